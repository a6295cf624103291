//! als_columns - what the fit and the scales for f16 need of a new factor's columns, in pieces of the rows.
//! Computes   sums[2 pieces + 4 piece + (0, 1, 2, 3), r] = sum of g[i, r] factor[i, r], largest |factor[i, r]|, sum of |factor[i, r]|, number of nonzeros
//! Bindings   0 p uniform UpdateParams | 1 g read Real [rows, stride] | 2 factors read Stored [rows of all modes, ..; stride] | 3 sums read_write f64 [the last 4 pieces of 6, stride]
//! With       als_params
//! Spec       COLUMNS 4 or 16 columns of a workgroup of 256
//! Grid       (column blocks, fastest, times pieces, folded over y, 1)          src/plan/update.rs
//! Order      one chain in each of the 256 / COLUMNS lanes, then one over them: repeatable
//! Twin       src/als/steps.rs
//! Reference  -
alias Real = f32; // @spec f32|f64
alias Stored = f32; // @spec f32|f64
const COLUMNS: u32 = 16u; // @spec
const LANES: u32 = 256u / COLUMNS;

@group(0) @binding(1) var<storage, read> g: array<Real>;
@group(0) @binding(2) var<storage, read> factors: array<Stored>;
@group(0) @binding(3) var<storage, read_write> sums: array<f64>;

var<workgroup> inners: array<f64, 256>;
var<workgroup> largests: array<f64, 256>;
var<workgroup> magnitudes: array<f64, 256>;
var<workgroup> counts: array<u32, 256>;

@compute @workgroup_size(256, 1, 1)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) li: u32) {
    let id = wg.y * p.grid_x + wg.x;
    let blocks = (p.rank + COLUMNS - 1u) / COLUMNS;
    let piece = id / blocks;
    if piece >= p.pieces {
        return;
    }
    let r = id % blocks * COLUMNS + li % COLUMNS;
    let inside = r < p.rank;
    let end = select(0u, min(piece * p.piece + p.piece, p.rows), inside);
    var inner = f64(0);
    var largest = f64(0);
    var magnitude = f64(0);
    var count = 0u;
    for (var i = piece * p.piece + li / COLUMNS; i < end; i += LANES) {
        let v = f64(factors[(p.factor_row0 + i) * p.stride + r]);
        inner += f64(g[i * p.stride + r]) * v;
        largest = max(largest, abs(v));
        magnitude += abs(v);
        count += u32(v != f64(0));
    }
    inners[li] = inner;
    largests[li] = largest;
    magnitudes[li] = magnitude;
    counts[li] = count;
    workgroupBarrier();
    if li < COLUMNS && inside {
        for (var lane = 1u; lane < LANES; lane++) {
            let at = lane * COLUMNS + li;
            inner += inners[at];
            largest = max(largest, largests[at]);
            magnitude += magnitudes[at];
            count += counts[at];
        }
        let at = (2u * p.pieces + 4u * piece) * p.stride + r;
        sums[at] = inner;
        sums[at + p.stride] = largest;
        sums[at + 2u * p.stride] = magnitude;
        sums[at + 3u * p.stride] = f64(count);
    }
}
