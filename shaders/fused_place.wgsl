//! fused_place - part of the fused kernels: where its first step lies; statements, put into main
//! Computes   of step `first`: q0, its k within the run; origin, X at the run; run or index, the row of the other mode but the last, or those of several, fastest first; before, the product of those rows
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
var index: array<u32, REST>; // @named
var rest = first_run;
for (var s = 0u; s < MANY; s++) { // @unroll
    let dim = p.dims[(REST - 1u - s) / 4u][(REST - 1u - s) % 4u];
    let next = rest / dim;
    index[s] = rest - next * dim;
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
    before *= Vec(factors[(p.row0[(REST - 1u - s) / 4u][(REST - 1u - s) % 4u] + index[s]) * p.stride4 + column]);
}
