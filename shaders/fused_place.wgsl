//! fused_place - part of the fused kernels: where a step of the reduction lies, kept up by additions.
//! Computes   place_of(step, c), then advance() to the next step; place.before = prod over the other modes but the last of A_m[i_m, 4c..4c+3]
//! Bindings   -
//! Spec       -
//! Grid       -
//! Order      products only, fastest mode first: repeatable
//! Twin       -
//! Reference  -
const REST: u32 = (max(ORDER, 2u) - 2u) * RUNS; // the other modes but the last; steps that cross runs have none

struct Place {
    q0: u32, // k within the run
    origin: u32, // X at the run's first k
    turn: u32, // runs since the last turn: the modes right of ours begin anew
    before: Vec,
    at: array<u32, max(REST, 1u)>, // factor rows of the other modes but the last, fastest first
}

// No division, no loop and no load under a condition in here: with one of those, the driver does not overlap the loads
// of a step with the products of the step before.
fn advance(place: ptr<function, Place>, c: u32) {
    (*place).q0 += BK;
    if (*place).q0 >= p.run {
        (*place).q0 = 0u;
        let turns = (*place).turn + 1u == p.turn_runs;
        (*place).turn = select((*place).turn + 1u, 0u, turns);
        (*place).origin += p.run_stride + select(0u, p.turn_stride, turns);
        var by = p.stride4;
        for (var s = 0u; s < REST; s++) { // @unroll
            let first = p.row0[(REST - 1u - s) / 4u][(REST - 1u - s) % 4u] * p.stride4;
            let end = first + p.dims[(REST - 1u - s) / 4u][(REST - 1u - s) % 4u] * p.stride4;
            let next = (*place).at[s] + by;
            by = select(0u, p.stride4, next == end);
            (*place).at[s] = select(next, first, next == end);
        }
    }
    (*place).before = before_run(place, c);
}

fn before_run(place: ptr<function, Place>, c: u32) -> Vec {
    var value = Vec(1);
    // Columns are brought near 1 before products are formed, which keeps them in the range of f16 afterwards.
    for (var has = 0u; has < SCALED; has++) { // @unroll
        value = Vec(factors[p.scale_row * p.stride4 + c]);
    }
    for (var s = 0u; s < REST; s++) { // @unroll
        value *= Vec(factors[(*place).at[s] + c]);
    }
    return value;
}

fn place_of(step: u32, c: u32) -> Place {
    var place: Place;
    let run = step / p.run_steps;
    place.q0 = (step - run * p.run_steps) * BK;
    let turns = run / p.turn_runs;
    place.turn = run - turns * p.turn_runs;
    place.origin = run * p.run_stride + turns * p.turn_stride;
    var rest = run;
    for (var s = 0u; s < REST; s++) { // @unroll
        let dim = p.dims[(REST - 1u - s) / 4u][(REST - 1u - s) % 4u];
        let next = rest / dim;
        place.at[s] = (p.row0[(REST - 1u - s) / 4u][(REST - 1u - s) % 4u] + rest - next * dim) * p.stride4;
        rest = next;
    }
    place.before = before_run(&place, c);
    return place;
}
