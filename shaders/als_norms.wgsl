//! als_norms - what the norms of the solution's columns are made of, in pieces of the rows.
//! Computes   sums[2 piece, r] = largest |solution[i, r]| of the piece, sums[2 piece + 1, r] = sum over it of (solution[i, r] / largest)^2, so that no square overflows
//! Bindings   0 p uniform UpdateParams | 1 solution read f64 [rows, stride] | 2 sums read_write f64 [2 pieces of 6, stride]
//! With       als_params
//! Spec       COLUMNS 4 or 16 columns of a workgroup of 256
//! Grid       (column blocks, fastest, times pieces, folded over y, 1)          src/plan/update.rs
//! Order      one chain in each of the 256 / COLUMNS lanes, then one over them: repeatable
//! Twin       src/als/normal_equations.rs
//! Reference  -
const COLUMNS: u32 = 16u; // @spec
const LANES: u32 = 256u / COLUMNS;

@group(0) @binding(1) var<storage, read> solution: array<f64>;
@group(0) @binding(2) var<storage, read_write> sums: array<f64>;

var<workgroup> shared_values: array<f64, 256>;

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
    let first = piece * p.piece + li / COLUMNS;
    let end = select(0u, min(piece * p.piece + p.piece, p.rows), inside);
    var largest = f64(0);
    for (var i = first; i < end; i += LANES) {
        let v = abs(solution[i * p.stride + r]);
        // A NaN stays, whatever comes after it.
        largest = select(select(largest, v, v > largest), v, v != v || largest != largest);
    }
    shared_values[li] = largest;
    workgroupBarrier();
    for (var lane = 0u; lane < LANES; lane++) {
        let v = shared_values[lane * COLUMNS + li % COLUMNS];
        largest = select(select(largest, v, v > largest), v, v != v);
    }
    workgroupBarrier();
    var sum = f64(0);
    if largest != f64(0) {
        for (var i = first; i < end; i += LANES) {
            let v = solution[i * p.stride + r] / largest;
            sum += v * v;
        }
    }
    shared_values[li] = sum;
    workgroupBarrier();
    if li < COLUMNS && inside {
        for (var lane = 1u; lane < LANES; lane++) {
            sum += shared_values[lane * COLUMNS + li];
        }
        sums[2u * piece * p.stride + r] = largest;
        sums[(2u * piece + 1u) * p.stride + r] = sum;
    }
}
