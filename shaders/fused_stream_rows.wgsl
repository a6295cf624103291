//! fused_stream_rows - ranks up to 4, every mode but the last, whole vec4s: X is read once at the speed of memory, nothing is staged.
//! Computes   partial[piece, i, r] = sum over the piece's k = (l, t) of X[l, i, t] * prod_{m != n} A_m[i_m, r]; l runs left of mode n, t right of it
//! Bindings   0 p uniform FusedParams | 1 x4 read vec4 Stored [entries / 4] | 2 x1 read Stored, the same buffer | 3 factors read vec4 Stored [rows of all modes, ..; stride4] | 4 partial read_write vec4 Real [pieces, partial_rows, partial_stride4]
//! With       fused_params, fused_place, fused_next, fused_start, fused_store or fused_add
//! Spec       ORDER 1..=8, RUNS 1 to keep every step within a run of the last other mode, 0 to cross them at the price of a division, SNUG 1 if runs are whole steps, WG invocations along k, TM rows of every invocation; the last other dim is a multiple of 4
//! Grid       (row tiles of TM, fastest, times pieces, folded over y, column blocks of 4)          src/plan/fused.rs
//! Order      each invocation sums its 4 of every 4 WG k of the piece, then 4 groups of 32, then a chain of 32; pieces as fused_store or fused_add have it
//! Twin       -
//! Reference  matrix-free by forming the Khatri-Rao operand of the product in arXiv 2510.14891 sec. II where it is used
alias Real = f32; // @spec f32|f64
alias Vec = vec4<Real>;
const SCALED: u32 = 0u; // columns are scaled for f16
const ORDER: u32 = 3u; // @spec
const RUNS: u32 = 1u; // @spec
const SNUG: u32 = 1u; // @spec
const WG: u32 = 128u; // @spec
const TM: u32 = 8u; // @spec
const BK: u32 = 4u * WG;
const LAST: u32 = max(ORDER, 2u) - 2u; // slot of the last other mode

var<workgroup> sums: array<Vec, WG>;

// Product of the factor rows of all other modes but the last of them, at position q over those.
fn prefix(q: u32, c: u32) -> Vec {
    var value = Vec(1);
    var rest = q;
    for (var s = 2u; s < ORDER; s++) {
        let slot = ORDER - 1u - s;
        var i = rest;
        if slot > 0u {
            let dim = p.dims[slot / 4u][slot % 4u];
            rest = rest / dim;
            i -= rest * dim;
        }
        value *= Vec(factors[(p.row0[slot / 4u][slot % 4u] + i) * p.stride4 + c]);
    }
    return value;
}

@compute @workgroup_size(WG, 1, 1)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) li: u32) {
    let id = p.group0 + wg.y * p.grid_x + wg.x;
    if id >= p.m_tiles * p.pieces {
        return;
    }
    let row0 = (id % p.m_tiles) * TM;
    let piece = id / p.m_tiles;
    let column = min(p.column0 / 4u + wg.z, p.stride4 - 1u);
    var acc: array<Vec, TM>;
    var row_at: array<u32, TM>;
    for (var m = 0u; m < TM; m++) { // @unroll
        acc[m] = Vec(0);
        row_at[m] = min(row0 + m, p.rows - 1u) * p.right;
    }
    let first = piece * p.piece;
    let count = min(p.piece, p.steps - first);
    // @insert fused_place
    for (var step = 0u; step < count; step++) {
        let q = q0 + li * 4u;
        // Beyond the run's end something valid is read, and its products are 0.
        let at = select(min(q, p.run - 4u), q, SNUG == 1u);
        var corner = origin + at;
        var product = before;
        var last = at;
        if RUNS == 0u {
            corner = start(at);
            let run = at / p.dims[LAST / 4u][LAST % 4u];
            product = prefix(run, column);
            last = at - run * p.dims[LAST / 4u][LAST % 4u];
        }
        if SNUG == 0u && q >= p.run {
            product = Vec(0);
        }
        var value: array<Vec, TM>;
        for (var m = 0u; m < TM; m++) { // @unroll
            value[m] = Vec(x4[(corner + row_at[m]) / 4u]);
        }
        for (var e = 0u; e < 4u; e++) { // @unroll
            // Four neighbours differ in the last index only.
            let b = product * Vec(factors[(p.last_row0 + last + e) * p.stride4 + column]);
            for (var m = 0u; m < TM; m++) { // @unroll
                acc[m] += value[m][e] * b;
            }
        }
        // @insert fused_next
    }
    // Across invocations, one row at a time.
    for (var m = 0u; m < TM; m++) { // @unroll
        sums[li] = acc[m];
        workgroupBarrier();
        if li < 32u {
            var sum = sums[li];
            for (var lane = li + 32u; lane < WG; lane += 32u) {
                sum += sums[lane];
            }
            sums[li] = sum;
        }
        workgroupBarrier();
        if li == 0u {
            var sum = sums[0];
            for (var lane = 1u; lane < min(WG, 32u); lane++) {
                sum += sums[lane];
            }
            put(piece, row0 + m, wg.z, sum);
        }
        workgroupBarrier();
    }
}
