//! khatri_rao - rows of the Khatri-Rao product of some of the factors, made explicitly: what the matrix-free methods never do.
//! Computes   out[q - q0, r] = (lambda[r]) * prod_{m in modes} A_m[i_m, r], q the row-major position over those modes
//! Bindings   0 p uniform KhatriRaoParams | 1 factors read Real [rows of all modes, then lambda; rank] | 2 out read_write Real [rows, rank]
//! Spec       WG 1..=256
//! Grid       (rows * rank / WG, folded over y, 1)          src/plan/gemm.rs
//! Order      products only, last mode first: repeatable
//! Twin       src/cpu/gemm.rs
//! Reference  arXiv 2510.14891 sec. II (the matrix-based baseline)
alias Real = f32; // @spec f32|f64
const WG: u32 = 64u; // @spec

struct KhatriRaoParams {
    rows: u32,
    rank: u32,
    q0: u32,
    modes: u32,
    weights_row: u32,
    with_weights: u32,
    grid_x: u32,
    order: u32,
    dims: array<vec4<u32>, 2>,
    row0: array<vec4<u32>, 2>,
}

@group(0) @binding(0) var<uniform> p: KhatriRaoParams;
@group(0) @binding(1) var<storage, read> factors: array<Real>;
@group(0) @binding(2) var<storage, read_write> out: array<Real>;

@compute @workgroup_size(WG, 1, 1)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) li: u32) {
    let at = (wg.y * p.grid_x + wg.x) * WG + li;
    if at >= p.rows * p.rank {
        return;
    }
    let r = at % p.rank;
    var rest = p.q0 + at / p.rank;
    var value = Real(1);
    if p.with_weights == 1u {
        value = factors[p.weights_row * p.rank + r];
    }
    for (var k = 0u; k < p.order; k++) {
        let m = p.order - 1u - k;
        if ((p.modes >> m) & 1u) == 1u {
            let dim = p.dims[m / 4u][m % 4u];
            value *= factors[(p.row0[m / 4u][m % 4u] + rest % dim) * p.rank + r];
            rest = rest / dim;
        }
    }
    out[at] = value;
}
