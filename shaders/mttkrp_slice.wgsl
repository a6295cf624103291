//! mttkrp_slice - MTTKRP-SLICE of the paper: one group of F invocations per slice of mode n, its entries one after the other, the sum in registers.
//! Computes   G[i_n, r] += sum over the slice of X[i] * lambda[r] * prod_{m != n} A_m[i_m, r]
//! Bindings   0 p uniform EntryParams | 1 x read Real [entries of the slab], row-major | 2 factors read Real [rows of all modes, then lambda; stride] | 3 g read_write Real [I_n, stride]
//! Spec       ORDER 1..=8, F 1..=256 ranks of a group, WG F times the slices of a workgroup
//! Grid       (slices / (WG / F), folded over y, column blocks of F)          src/plan/entrywise.rs
//! Order      along the last of the other modes first (one chain), then over the rest of the slice, then over slabs: repeatable
//! Twin       src/cpu/slice.rs
//! Reference  arXiv 2510.14891 sec. III
alias Real = f32; // @spec f32|f64
const ORDER: u32 = 3u; // @spec
const F: u32 = 16u; // @spec
const WG: u32 = 128u; // @spec

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
@group(0) @binding(3) var<storage, read_write> g: array<Real>;

@compute @workgroup_size(WG, 1, 1)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) li: u32) {
    let row = (p.group0 + wg.y * p.grid_x + wg.x) * (WG / F) + li / F;
    let r = wg.z * F + li % F;
    if row >= p.count || r >= p.rank {
        return;
    }
    let n = p.mode;
    let base = row * p.strides[n / 4u][n % 4u];
    var total = Real(0);
    if ORDER == 1u {
        total = x[base];
    } else {
        // The innermost loop runs along the last of the other modes; the factors of the rest are constant in it.
        let last = select(ORDER - 1u, ORDER - 2u, n == ORDER - 1u);
        let inner = p.dims[last / 4u][last % 4u];
        let step = p.strides[last / 4u][last % 4u];
        let first = p.row0[last / 4u][last % 4u];
        var outer = 1u;
        for (var m = 0u; m < ORDER; m++) {
            outer *= select(p.dims[m / 4u][m % 4u], 1u, m == n || m == last);
        }
        for (var o = 0u; o < outer; o++) {
            var product = Real(1);
            var offset = base;
            var rest = o;
            for (var k = 0u; k < ORDER; k++) {
                let m = ORDER - 1u - k;
                if m != n && m != last {
                    let dim = p.dims[m / 4u][m % 4u];
                    let i = rest % dim;
                    rest = rest / dim;
                    offset += i * p.strides[m / 4u][m % 4u];
                    product *= factors[(p.row0[m / 4u][m % 4u] + i) * p.stride + r];
                }
            }
            var sum = Real(0);
            for (var j = 0u; j < inner; j++) {
                sum += x[offset + j * step] * factors[(first + j) * p.stride + r];
            }
            total += product * sum;
        }
    }
    let at = (p.g_row0 + row) * p.stride + r;
    g[at] = g[at] + total * factors[p.weights_row * p.stride + r];
}
