//! fused_operand - part of the fused kernels: rows of the Khatri-Rao product, made where they are used.
//! Computes   operand(q, c, place.before) = prod_{m != n} A_m[i_m, 4c..4c+3] at q of the place's run
//! Bindings   -
//! Spec       -
//! Grid       -
//! Order      products only, last mode last within a run: repeatable
//! Twin       -
//! Reference  -
// Row q of a run of the Khatri-Rao product, vec4 column c, from what its rows have in common: 0 beyond the run's end.
fn operand(q: u32, c: u32, before: Vec) -> Vec {
    if RUNS == 1u {
        if SNUG == 1u {
            return before * Vec(factors[(p.last_row0 + q) * p.stride4 + c]);
        }
        let made = before * Vec(factors[(p.last_row0 + min(q, p.run - 1u)) * p.stride4 + c]);
        return select(made, Vec(0), q >= p.run);
    }
    if SNUG == 0u && q >= p.run {
        return Vec(0);
    }
    var value = before;
    var rest = q;
    for (var s = 1u; s < ORDER; s++) {
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
