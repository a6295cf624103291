//! als_column_sum - the pieces of als_norms and als_columns put together, into the state.
//! Computes   state[norm, inner, largest, mean; r] of the mode: the solution's norm, sum_i g[i, r] factor[i, r], largest |factor[i, r]|, mean of the nonzero |factor[i, r]|
//! Bindings   0 p uniform UpdateParams | 1 sums read f64 [6 pieces, stride] | 2 state read_write f64 [order, rank^2 + 4 rank]
//! With       als_params, als_norm
//! Spec       WG 64
//! Grid       (rank / WG, folded over y, 1)          src/plan/update.rs
//! Order      one chain over the pieces: repeatable
//! Twin       src/als/steps.rs
//! Reference  -
const WG: u32 = 64u; // @spec

@group(0) @binding(1) var<storage, read> sums: array<f64>;
@group(0) @binding(2) var<storage, read_write> state: array<f64>;

@compute @workgroup_size(WG, 1, 1)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) li: u32) {
    let r = (wg.y * p.grid_x + wg.x) * WG + li;
    if r >= p.rank {
        return;
    }
    var inner = f64(0);
    var largest = f64(0);
    var magnitude = f64(0);
    var count = f64(0);
    for (var piece = 0u; piece < p.pieces; piece++) {
        let at = (2u * p.pieces + 4u * piece) * p.stride + r;
        inner += sums[at];
        largest = max(largest, sums[at + p.stride]);
        magnitude += sums[at + 2u * p.stride];
        count += sums[at + 3u * p.stride];
    }
    state[column_at(p.mode, NORM, r)] = norm(r);
    state[column_at(p.mode, INNER, r)] = inner;
    state[column_at(p.mode, LARGEST, r)] = largest;
    state[column_at(p.mode, MEAN, r)] = magnitude / max(count, f64(1));
}
