//! als_normalize - the solution's columns scaled to unit 2-norm, rounded, into the factor's rows.
//! Computes   factors[factor_row0 + i, r] = Real(solution[i, r] / norm[r]), zero where the column is
//! Bindings   0 p uniform UpdateParams | 1 solution read f64 [rows, stride] | 2 sums read f64 [2 pieces of 6, stride] | 3 factors read_write Real [rows of all modes, ..; stride]
//! With       als_params, als_norm
//! Spec       COLUMNS 4 or 16 columns of a workgroup of 256
//! Grid       (column blocks, fastest, times pieces, folded over y, 1)          src/plan/update.rs
//! Order      one chain over the pieces of the norm: repeatable
//! Twin       src/als/normal_equations.rs
//! Reference  -
alias Real = f32; // @spec f32|f64
const COLUMNS: u32 = 16u; // @spec
const LANES: u32 = 256u / COLUMNS;

@group(0) @binding(1) var<storage, read> solution: array<f64>;
@group(0) @binding(2) var<storage, read> sums: array<f64>;
@group(0) @binding(3) var<storage, read_write> factors: array<Real>;

@compute @workgroup_size(256, 1, 1)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) li: u32) {
    let id = wg.y * p.grid_x + wg.x;
    let blocks = (p.rank + COLUMNS - 1u) / COLUMNS;
    let piece = id / blocks;
    let r = id % blocks * COLUMNS + li % COLUMNS;
    if piece >= p.pieces || r >= p.rank {
        return;
    }
    let length = norm(r);
    let end = min(piece * p.piece + p.piece, p.rows);
    for (var i = piece * p.piece + li / COLUMNS; i < end; i += LANES) {
        var v = f64(0);
        if length != f64(0) {
            v = solution[i * p.stride + r] / length;
        }
        factors[(p.factor_row0 + i) * p.stride + r] = Real(v);
    }
}
