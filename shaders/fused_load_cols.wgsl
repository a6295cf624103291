//! fused_load_cols - part of the fused kernels: X where it is contiguous along the mode.
//! Computes   load(row, q, origin) = four neighbours along the mode
//! Bindings   -
//! Spec       -
//! Grid       -
//! Order      -
//! Twin       -
//! Reference  -
// X of q at rows i..i+3. What lies beyond the ends reads something valid; its products are 0 or dropped.
fn load(row: u32, q: u32, origin: u32) -> Vec {
    let at = origin + select(min(q, p.run - 1u), q, SNUG == 1u) * p.rows;
    if VEC == 4u {
        return Vec(x4[(at + min(row, p.rows - 4u)) / 4u]);
    }
    var value = Vec(0);
    for (var e = 0u; e < 4u; e++) { // @unroll
        value[e] = Real(x1[at + min(row + e, p.rows - 1u)]);
    }
    return value;
}
