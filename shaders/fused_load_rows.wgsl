//! fused_load_rows - part of the fused kernels: X where it is contiguous along k.
//! Computes   load(i, q, origin) = four neighbours along k of the row that begins at i
//! Bindings   -
//! Spec       -
//! Grid       -
//! Order      -
//! Twin       -
//! Reference  -
// X of the row that begins at i, at q..q+3 of a run. What lies beyond the run's end reads something valid.
fn load(i: u32, q: u32, origin: u32) -> Vec {
    if VEC == 4u {
        let at = select(min(q, p.run - 4u), q, SNUG == 1u);
        if RUNS == 1u {
            return Vec(x4[(origin + at + i) / 4u]);
        }
        return Vec(x4[(start(at) + i) / 4u]);
    }
    var value = Vec(0);
    for (var e = 0u; e < 4u; e++) { // @unroll
        let at = select(min(q + e, p.run - 1u), q + e, SNUG == 1u);
        if RUNS == 1u {
            value[e] = Real(x1[origin + at + i]);
        } else {
            value[e] = Real(x1[start(at) + i]);
        }
    }
    return value;
}
