//! fused_start - part of the fused kernels: where a k of the reduction lies in X.
//! Computes   start(l * right + t) = (l * rows) * right + t
//! Bindings   -
//! Spec       -
//! Grid       -
//! Order      -
//! Twin       -
//! Reference  -
// Where k lies in row 0 of X, for steps that cross runs.
fn start(k: u32) -> u32 {
    if p.right == p.reduction {
        return k;
    }
    return k + (k / p.right) * (p.rows - 1u) * p.right;
}
