//! fused_params - part of the fused kernels: their parameters and what they read.
//! Computes   -
//! Bindings   -
//! Spec       -
//! Grid       -
//! Order      -
//! Twin       -
//! Reference  -
alias Stored = f32; // @spec f32|f64

const REST: u32 = (max(ORDER, 2u) - 2u) * RUNS; // the other modes but the last; steps that cross runs have none
const ONE: u32 = min(REST, 1u) * (2u - min(REST, 2u)); // 1 if it is one mode, else 0
const MANY: u32 = REST * (min(REST, 2u) - min(REST, 1u)); // their number if there are several, else 0

struct FusedParams {
    rows: u32,
    right: u32,
    reduction: u32,
    stride4: u32,
    run: u32,
    run_steps: u32,
    steps: u32,
    piece: u32,
    pieces: u32,
    m_tiles: u32,
    column0: u32,
    partial_rows: u32,
    partial_stride4: u32,
    grid_x: u32,
    scale_row: u32,
    x_scale: f32,
    last_row0: u32,
    run_stride: u32,
    turn_runs: u32,
    turn_stride: u32,
    g_row0: u32,
    weights_row: u32,
    group0: u32,
    slab_steps: u32,
    dims: array<vec4<u32>, 2>,
    row0: array<vec4<u32>, 2>,
}

@group(0) @binding(0) var<uniform> p: FusedParams;
@group(0) @binding(1) var<storage, read> x4: array<vec4<Stored>>;
@group(0) @binding(2) var<storage, read> x1: array<Stored>;
@group(0) @binding(3) var<storage, read> factors: array<vec4<Stored>>;
