//! multi_ttv - a product of the tensor with the factors of some modes, kept with its columns apart, times those of all others but one.
//! Computes   partial[piece, i, r] = sum over the piece's indices o of the other kept modes of T[row(i, o), r] * prod over them of A_m[o_m, 4 column0 + r], row(i, o) = i row_stride + sum_m o_m strides[m]
//! Bindings   0 p uniform MultiTtvParams | 1 t read vec4 Real [rows of the kept modes, t_stride4] | 2 factors read vec4 Real [rows of all modes, ..; stride4] | 3 partial read_write vec4 Real [pieces, rows, columns4]
//! Spec       OTHERS 1..=7 other kept modes, COLUMNS, LANES, ROWS invocations along columns, reduction and rows, TM rows of each
//! Grid       (column tiles of COLUMNS, fastest, times row tiles of ROWS TM times pieces, folded over y, 1)          src/plan/tree.rs
//! Order      every LANES-th index of the piece in a chain, then lanes in a chain: repeatable
//! Twin       src/cpu/tree.rs
//! Reference  Phan, Tichavsky and Cichocki 2013, sec. III, DOI 10.1109/TSP.2013.2269903; Ma and Solomonik 2020, arXiv 2010.12056
alias Real = f32; // @spec f32|f64
alias Vec = vec4<Real>;
const OTHERS: u32 = 1u; // @spec
const COLUMNS: u32 = 16u; // @spec
const LANES: u32 = 16u; // @spec
const ROWS: u32 = 1u; // @spec
const TM: u32 = 4u; // @spec
const WG: u32 = COLUMNS * LANES * ROWS;

struct MultiTtvParams {
    rows: u32,
    stride4: u32,
    t_stride4: u32,
    row_stride: u32,
    reduction: u32,
    piece: u32,
    pieces: u32,
    row_tiles: u32,
    column_tiles: u32,
    grid_x: u32,
    column0: u32,
    columns4: u32,
    group0: u32,
    pad0: u32,
    pad1: u32,
    pad2: u32,
    dims: array<vec4<u32>, 2>,
    row0: array<vec4<u32>, 2>,
    strides: array<vec4<u32>, 2>,
}

@group(0) @binding(0) var<uniform> p: MultiTtvParams;
@group(0) @binding(1) var<storage, read> t: array<Vec>;
@group(0) @binding(2) var<storage, read> factors: array<Vec>;
@group(0) @binding(3) var<storage, read_write> partial: array<Vec>;

var<workgroup> sums: array<Vec, WG>; // (LANES, ROWS, COLUMNS)

@compute @workgroup_size(WG, 1, 1)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) li: u32) {
    let id = p.group0 + wg.y * p.grid_x + wg.x;
    if id >= p.column_tiles * p.row_tiles * p.pieces {
        return;
    }
    let column = id % p.column_tiles * COLUMNS + li % COLUMNS;
    let row0 = id / p.column_tiles % p.row_tiles * (ROWS * TM) + li / COLUMNS % ROWS;
    let piece = id / p.column_tiles / p.row_tiles;
    let lane = li / (COLUMNS * ROWS);
    // Columns and rows beyond the ends repeat the last ones; what comes of them is not written.
    let c = min(column, p.columns4 - 1u);
    var acc: array<Vec, TM>;
    var at: array<u32, TM>;
    for (var k = 0u; k < TM; k++) { // @unroll
        acc[k] = Vec(0);
        at[k] = min(row0 + k * ROWS, p.rows - 1u) * p.row_stride;
    }
    let end = min(piece * p.piece + p.piece, p.reduction);
    for (var o = piece * p.piece + lane; o < end; o += LANES) {
        var rest = o;
        var row = 0u;
        var product = Vec(1);
        for (var s = 0u; s < OTHERS; s++) { // @unroll
            let slot = OTHERS - 1u - s;
            var i = rest;
            if slot > 0u {
                let dim = p.dims[slot / 4u][slot % 4u];
                rest = rest / dim;
                i -= rest * dim;
            }
            row += i * p.strides[slot / 4u][slot % 4u];
            product *= factors[(p.row0[slot / 4u][slot % 4u] + i) * p.stride4 + p.column0 + c];
        }
        for (var k = 0u; k < TM; k++) { // @unroll
            acc[k] += t[(at[k] + row) * p.t_stride4 + c] * product;
        }
    }
    for (var k = 0u; k < TM; k++) { // @unroll
        let i = row0 + k * ROWS;
        sums[li] = acc[k];
        workgroupBarrier();
        if lane == 0u && i < p.rows && column < p.columns4 {
            var sum = acc[k];
            for (var other = 1u; other < LANES; other++) {
                sum += sums[other * (COLUMNS * ROWS) + li];
            }
            partial[(piece * p.rows + i) * p.columns4 + column] = sum;
        }
        workgroupBarrier();
    }
}
