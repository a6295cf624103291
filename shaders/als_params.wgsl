//! als_params - part of the kernels that replace a factor in CP-ALS: their parameters.
//! Computes   -
//! Bindings   -
//! Spec       -
//! Grid       -
//! Order      -
//! Twin       -
//! Reference  -
struct UpdateParams {
    rows: u32,
    rank: u32,
    stride: u32,
    factor_row0: u32,
    pieces: u32,
    piece: u32,
    gram_pieces: u32,
    gram_piece: u32,
    grid_x: u32,
    mode: u32,
    order: u32,
    segment: u32,
    weights_row: u32,
    groups: u32,
    pad0: u32,
    pad1: u32,
}

@group(0) @binding(0) var<uniform> p: UpdateParams;

// A mode's segment of the state: its gram, then one number a column of each of these.
const NORM: u32 = 0u;
const INNER: u32 = 1u;
const LARGEST: u32 = 2u;
const MEAN: u32 = 3u;

fn column_at(mode: u32, what: u32, r: u32) -> u32 {
    return mode * p.segment + p.rank * (p.rank + what) + r;
}
