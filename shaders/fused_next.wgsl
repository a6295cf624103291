//! fused_next - part of the fused kernels: where the next step lies; statements, put into main
//! Computes   what fused_place does, from what it was
//! Bindings   -
//! Spec       -
//! Grid       -
//! Order      products only, fastest mode first: repeatable
//! Twin       -
//! Reference  -
// Variables and nothing but additions, no struct, no division, no load under a condition: with one of those, the driver
// does not overlap the loads of a step with the products of the step before (R = 512 on an H200: 75 TFLOP/s, not 105).
// The same with the address of a row in place of its number. One mode (orders up to 3) is told from many because its
// number is that of the run, which never wraps.
q0 += BK;
if q0 >= p.run {
    q0 = 0u;
    run += 1u;
    turn += 1u;
    let turns = turn == p.turn_runs;
    turn = select(turn, 0u, turns);
    origin += p.run_stride + select(0u, p.turn_stride, turns);
    var carry = 1u;
    for (var s = 0u; s < MANY; s++) { // @unroll
        let raised = index[s] + carry;
        let wraps = raised == p.dims[(REST - 1u - s) / 4u][(REST - 1u - s) % 4u];
        index[s] = select(raised, 0u, wraps);
        carry = select(0u, 1u, wraps);
    }
}
before = Vec(1);
for (var has = 0u; has < SCALED; has++) { // @unroll
    // Columns are brought near 1 before products are formed, which keeps them in the range of f16 afterwards.
    before = Vec(factors[p.scale_row * p.stride4 + column]);
}
for (var has = 0u; has < ONE; has++) { // @unroll
    before *= Vec(factors[(p.row0[0][0] + run) * p.stride4 + column]);
}
for (var s = 0u; s < MANY; s++) { // @unroll
    before *= Vec(factors[(p.row0[(REST - 1u - s) / 4u][(REST - 1u - s) % 4u] + index[s]) * p.stride4 + column]);
}
