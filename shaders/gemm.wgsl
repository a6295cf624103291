//! gemm - the matrix product of the baseline: an unfolding of X (any two strides) times explicit Khatri-Rao rows.
//! Computes   C[c_row0 + piece * M + m, r] (+)= sum over the piece's k of X[a0 + m * stride_m + k * stride_k] * B[k, r]
//! Bindings   0 p uniform GemmParams | 1 x read Real [entries of the slab] | 2 b read Real [k, rank] | 3 c read_write Real [rows or pieces * m rows, rank]
//! Spec       BM, BN, BK tile of a workgroup, TM, TN tile of an invocation; BM / TM * BN / TN invocations
//! Grid       (m / BM, fastest, times pieces, folded over y, rank / BN)          src/plan/gemm.rs
//! Order      one chain over a piece's k, then over pieces: repeatable
//! Twin       src/cpu/gemm.rs
//! Reference  arXiv 2510.14891 sec. II (the matrix-based baseline)
alias Real = f32; // @spec f32|f64
const BM: u32 = 64u; // @spec
const BN: u32 = 64u; // @spec
const BK: u32 = 16u; // @spec
const TM: u32 = 4u; // @spec
const TN: u32 = 4u; // @spec
const WG: u32 = (BM / TM) * (BN / TN);

struct GemmParams {
    m: u32,
    rank: u32,
    k: u32,
    a0: u32,
    stride_m: u32,
    stride_k: u32,
    c_row0: u32,
    accumulate: u32,
    grid_x: u32,
    group0: u32,
    piece: u32,
    pad: u32,
}

@group(0) @binding(0) var<uniform> p: GemmParams;
@group(0) @binding(1) var<storage, read> x: array<Real>;
@group(0) @binding(2) var<storage, read> b: array<Real>;
@group(0) @binding(3) var<storage, read_write> c: array<Real>;

var<workgroup> xs: array<Real, BK * BM>; // (BK, BM)
var<workgroup> bs: array<Real, BK * BN>; // (BK, BN)

@compute @workgroup_size(WG, 1, 1)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) li: u32) {
    let id = p.group0 + wg.y * p.grid_x + wg.x;
    let tiles = (p.m + BM - 1u) / BM;
    let m0 = id % tiles * BM;
    let n0 = wg.z * BN;
    let first = id / tiles * p.piece;
    if first >= p.k {
        return;
    }
    let end = min(p.piece, p.k - first) + first;
    let tm = (li / (BN / TN)) * TM;
    let tn = (li % (BN / TN)) * TN;
    var acc: array<Real, TM * TN>;
    for (var i = 0u; i < TM * TN; i++) { // @unroll
        acc[i] = Real(0);
    }
    for (var k0 = first; k0 < end; k0 += BK) {
        // Neighbouring invocations read along whichever of the two strides is 1.
        for (var at = li; at < BK * BM; at += WG) {
            var kk = at / BM;
            var mm = at % BM;
            if p.stride_k == 1u {
                kk = at % BK;
                mm = at / BK;
            }
            var value = Real(0);
            if k0 + kk < end && m0 + mm < p.m {
                value = x[p.a0 + (m0 + mm) * p.stride_m + (k0 + kk) * p.stride_k];
            }
            xs[kk * BM + mm] = value;
        }
        for (var at = li; at < BK * BN; at += WG) {
            let kk = at / BN;
            let r = n0 + at % BN;
            var value = Real(0);
            if k0 + kk < end && r < p.rank {
                value = b[(k0 + kk) * p.rank + r];
            }
            bs[at] = value;
        }
        workgroupBarrier();
        for (var kk = 0u; kk < BK; kk++) {
            var left: array<Real, TM>;
            var right: array<Real, TN>;
            for (var i = 0u; i < TM; i++) { // @unroll
                left[i] = xs[kk * BM + tm + i];
            }
            for (var j = 0u; j < TN; j++) { // @unroll
                right[j] = bs[kk * BN + tn + j];
            }
            for (var i = 0u; i < TM; i++) { // @unroll
                for (var j = 0u; j < TN; j++) { // @unroll
                    acc[i * TN + j] += left[i] * right[j];
                }
            }
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < TM; i++) { // @unroll
        for (var j = 0u; j < TN; j++) { // @unroll
            let m = m0 + tm + i;
            let r = n0 + tn + j;
            if m < p.m && r < p.rank {
                let at = (p.c_row0 + id / tiles * p.m + m) * p.rank + r;
                var value = acc[i * TN + j];
                if p.accumulate == 1u {
                    value += c[at];
                }
                c[at] = value;
            }
        }
    }
}
