//! fused_place - part of the fused kernels: where its first step lies; statements, put into main
//! Computes   of step `first`: q0, its k within the run; origin, X at the run; factor_at, the factor rows of the other modes but the last, fastest first; before, the product of those rows
//! Bindings   -
//! Spec       -
//! Grid       -
//! Order      products only, fastest mode first: repeatable
//! Twin       -
//! Reference  -
let first_run = first / p.run_steps;
var q0 = (first - first_run * p.run_steps) * BK;
// A turn: the modes right of ours begin anew.
let turns_before = first_run / p.turn_runs;
var turn = first_run - turns_before * p.turn_runs;
var origin = first_run * p.run_stride + turns_before * p.turn_stride;
var run = first_run; // for orders up to 3 the row of the other mode but the last
var factor_at: array<u32, REST>; // @named
var rest = first_run;
for (var s = 0u; s < MANY; s++) { // @unroll
    let dim = p.dims[(REST - 1u - s) / 4u][(REST - 1u - s) % 4u];
    let next = rest / dim;
    factor_at[s] = (p.row0[(REST - 1u - s) / 4u][(REST - 1u - s) % 4u] + rest - next * dim) * p.stride4;
    rest = next;
}
var before = Vec(1);
for (var has = 0u; has < SCALED; has++) { // @unroll
    // Columns are brought near 1 before products are formed, which keeps them in the range of f16 afterwards.
    before = Vec(factors[p.scale_row * p.stride4 + column]);
}
for (var has = 0u; has < ONE; has++) { // @unroll
    before *= Vec(factors[(p.row0[0][0] + run) * p.stride4 + column]);
}
for (var s = 0u; s < MANY; s++) { // @unroll
    before *= Vec(factors[factor_at[s] + column]);
}
