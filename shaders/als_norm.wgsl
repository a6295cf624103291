//! als_norm - part of the kernels that need the norms of the solution's columns: the pieces of als_norms put together.
//! Computes   norm[r] = largest[r] * sqrt(sum over pieces of sum[piece, r] * (largest[piece, r] / largest[r])^2)
//! Bindings   -
//! Spec       -
//! Grid       -
//! Order      one chain over the pieces: repeatable
//! Twin       -
//! Reference  -
fn norm(r: u32) -> f64 {
    var largest = f64(0);
    for (var piece = 0u; piece < p.pieces; piece++) {
        largest = max(largest, sums[2u * piece * p.stride + r]);
    }
    if largest == f64(0) {
        return largest;
    }
    var sum = f64(0);
    for (var piece = 0u; piece < p.pieces; piece++) {
        let share = sums[2u * piece * p.stride + r] / largest;
        sum += sums[(2u * piece + 1u) * p.stride + r] * share * share;
    }
    return largest * sqrt(sum);
}
