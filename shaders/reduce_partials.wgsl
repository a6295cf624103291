//! reduce_partials - adds the pieces of a split reduction in a fixed order, and the weights with it.
//! Computes   G[g_row0 + i, column0 + r] (+)= unscale * scale[r] * sum_piece partial[piece, i, r]
//! Bindings   0 p uniform ReduceParams | 1 partial read vec4 Real [pieces, partial_rows, partial_stride4] | 2 factors read vec4 Stored, row scale_row is scale | 3 g read_write vec4 Real [I_n or rows of GEMM's one-sided product, stride4]
//! Spec       LANES invocations that share the pieces of one output, OUTPUTS vec4s of a workgroup
//! Grid       (rows * columns4 / OUTPUTS, folded over y, 1)          src/plan/fused.rs and src/plan/gemm.rs
//! Order      every LANES-th piece in a chain, then lanes in a chain, then one addition per slab, and of GEMM per piece of its Khatri-Rao rows: repeatable
//! Twin       -
//! Reference  -
alias Real = f32; // @spec f32|f64
alias Stored = f32; // @spec f32|f64
alias Vec = vec4<Real>;
const LANES: u32 = 8u; // @spec
const OUTPUTS: u32 = 32u; // @spec
const WG: u32 = LANES * OUTPUTS;

struct ReduceParams {
    rows: u32,
    columns4: u32,
    pieces: u32,
    partial_rows: u32,
    partial_stride4: u32,
    stride4: u32,
    g_row0: u32,
    column0: u32,
    scale_row: u32,
    grid_x: u32,
    unscale: f32,
    add: u32,
}

@group(0) @binding(0) var<uniform> p: ReduceParams;
@group(0) @binding(1) var<storage, read> partial: array<Vec>;
@group(0) @binding(2) var<storage, read> factors: array<vec4<Stored>>;
@group(0) @binding(3) var<storage, read_write> g: array<Vec>;

var<workgroup> sums: array<Vec, WG>; // (LANES, OUTPUTS)

@compute @workgroup_size(WG, 1, 1)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) li: u32) {
    let at = (wg.y * p.grid_x + wg.x) * OUTPUTS + li % OUTPUTS;
    let i = at / p.columns4;
    let c = at % p.columns4;
    let inside = at < p.rows * p.columns4;
    var sum = Vec(0);
    if inside {
        for (var piece = li / OUTPUTS; piece < p.pieces; piece += LANES) {
            sum += partial[(piece * p.partial_rows + i) * p.partial_stride4 + c];
        }
    }
    if LANES > 1u {
        sums[li] = sum;
        workgroupBarrier();
        if li < OUTPUTS {
            for (var lane = 1u; lane < LANES; lane++) {
                sum += sums[lane * OUTPUTS + li];
            }
        }
    }
    if li < OUTPUTS && inside {
        let column = p.column0 / 4u + c;
        let out = (p.g_row0 + i) * p.stride4 + column;
        var value = (sum * Real(p.unscale)) * Vec(factors[p.scale_row * p.stride4 + column]);
        if p.add == 1u {
            value += g[out];
        }
        g[out] = value;
    }
}
