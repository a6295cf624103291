//! fused_add - part of the fused kernels: pieces of the reduction add to the result, with an atomic file in front.
//! Computes   G[g_row0 + row, column0 + 4c..4c+3] += lambda * value, within the result
//! Bindings   4 g read_write, in the atomic file [I_n, 4 stride4]
//! Spec       -
//! Grid       -
//! Order      pieces in no fixed order: not repeatable
//! Twin       -
//! Reference  arXiv 2510.14891 sec. III (atomic reduction)
const G_BINDING: u32 = 4u;

// Rows and columns of a tile beyond the result's ends are dropped.
fn put(piece: u32, row: u32, c: u32, value: Vec) {
    let column = p.column0 / 4u + c;
    if row < p.rows && column < p.stride4 {
        let weighted = value * Vec(factors[p.weights_row * p.stride4 + column]);
        let at = ((p.g_row0 + row) * p.stride4 + column) * 4u;
        for (var e = 0u; e < 4u; e++) { // @unroll
            g_add(at + e, weighted[e]);
        }
    }
}
