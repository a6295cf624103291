//! mttkrp_elem - MTTKRP-ELEM of the paper: one group of F invocations per tensor entry, one atomic add per entry and rank.
//! Computes   G[i_n, r] += X[i] * lambda[r] * prod_{m != n} A_m[i_m, r] for every entry i
//! Bindings   0 p uniform EntryParams | 1 x read Real [entries of the slab], row-major | 2 factors read Real [rows of all modes, then lambda; stride] | 3 g read_write, in the atomic file [I_n, stride]
//! Spec       ORDER 1..=8, F 1..=256 ranks of a group, WG F times the entries of a workgroup
//! Grid       (entries / (WG / F), folded over y, column blocks of F)          src/plan/entrywise.rs
//! Order      each entry is one addition into G: a chain of N / I_n, in no fixed order (not repeatable)
//! Twin       src/cpu/elem.rs
//! Reference  arXiv 2510.14891 sec. III
alias Real = f32; // @spec f32|f64
const ORDER: u32 = 3u; // @spec
const F: u32 = 16u; // @spec
const WG: u32 = 128u; // @spec
const G_BINDING: u32 = 3u; // of the atomic file

struct EntryParams {
    mode: u32,
    rank: u32,
    weights_row: u32,
    g_row0: u32,
    count: u32,
    grid_x: u32,
    stride: u32,
    group0: u32,
    dims: array<vec4<u32>, 2>,
    strides: array<vec4<u32>, 2>,
    row0: array<vec4<u32>, 2>,
    tiles: array<vec4<u32>, 2>,
}

@group(0) @binding(0) var<uniform> p: EntryParams;
@group(0) @binding(1) var<storage, read> x: array<Real>;
@group(0) @binding(2) var<storage, read> factors: array<Real>;

@compute @workgroup_size(WG, 1, 1)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) li: u32) {
    let entry = (p.group0 + wg.y * p.grid_x + wg.x) * (WG / F) + li / F;
    let r = wg.z * F + li % F;
    if entry >= p.count || r >= p.rank {
        return;
    }
    var value = x[entry] * factors[p.weights_row * p.stride + r];
    var row = 0u;
    var rest = entry;
    for (var k = 0u; k < ORDER; k++) {
        let m = ORDER - 1u - k;
        let dim = p.dims[m / 4u][m % 4u];
        let i = rest % dim;
        rest = rest / dim;
        if m == p.mode {
            row = i;
        } else {
            value *= factors[(p.row0[m / 4u][m % 4u] + i) * p.stride + r];
        }
    }
    g_add((p.g_row0 + row) * p.stride + r, value);
}
