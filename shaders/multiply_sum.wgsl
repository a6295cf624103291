//! multiply_sum - second step of the baseline's middle modes: the one-sided product times the other side's Khatri-Rao rows, summed.
//! Computes   G[g_row0 + i, r] += sum_q outer[q - q0, r] * partial[q * stride_q + i * stride_i - m0, r], over rows that are there
//! Bindings   0 p uniform MultiplySumParams | 1 outer read Real [q1 - q0, rank] | 2 partial read Real [m1 - m0, rank] | 3 g read_write Real [I_n, rank]
//! Spec       WG 1..=256
//! Grid       (rows * rank / WG, folded over y, 1)          src/plan/gemm.rs
//! Order      one chain over q, then one addition per piece: repeatable
//! Twin       src/cpu/gemm.rs
//! Reference  arXiv 2510.14891 sec. II (the matrix-based baseline)
alias Real = f32; // @spec f32|f64
const WG: u32 = 64u; // @spec

struct MultiplySumParams {
    rows: u32,
    rank: u32,
    g_row0: u32,
    q0: u32,
    q1: u32,
    stride_q: u32,
    stride_i: u32,
    m0: u32,
    m1: u32,
    grid_x: u32,
    pad: vec2<u32>,
}

@group(0) @binding(0) var<uniform> p: MultiplySumParams;
@group(0) @binding(1) var<storage, read> outer: array<Real>;
@group(0) @binding(2) var<storage, read> partial: array<Real>;
@group(0) @binding(3) var<storage, read_write> g: array<Real>;

@compute @workgroup_size(WG, 1, 1)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) li: u32) {
    let at = (wg.y * p.grid_x + wg.x) * WG + li;
    if at >= p.rows * p.rank {
        return;
    }
    let i = at / p.rank;
    let r = at % p.rank;
    var sum = Real(0);
    for (var q = p.q0; q < p.q1; q++) {
        let m = q * p.stride_q + i * p.stride_i;
        if m >= p.m0 && m < p.m1 {
            sum += outer[(q - p.q0) * p.rank + r] * partial[(m - p.m0) * p.rank + r];
        }
    }
    let out = (p.g_row0 + i) * p.rank + r;
    g[out] = g[out] + sum;
}
