//! fused_cols - register tiles, last mode: X is contiguous along the mode itself.
//! Computes   partial[piece, i, r] = sum over the piece's k = (l, t) of X[l, i, t] * prod_{m != n} A_m[i_m, r]; l runs left of mode n, t right of it
//! Bindings   0 p uniform FusedParams | 1 x4 read vec4 Stored [entries / 4] | 2 x1 read Stored, the same buffer | 3 factors read vec4 Stored [rows of all modes, ..; stride4] | 4 partial read_write vec4 Real [pieces, partial_rows, partial_stride4]
//! With       fused_params, fused_group, fused_place, fused_next, fused_operand, fused_load_cols, fused_store or fused_add
//! Spec       ORDER 1..=8, RUNS 1 to keep every step within a run of the last other mode, 0 to cross them at the price of a division, SNUG 1 if runs are whole steps, BM, BN, BK tile of a workgroup, TM, TN tile of an invocation, VEC 4 or 1 entries of X a load; BM / TM * BN / TN invocations
//! Grid       (column tiles of BN, fastest, times row tiles of BM times pieces, folded over y, 1)          src/plan/fused.rs
//! Order      one chain over the piece in each invocation; pieces as fused_store or fused_add have it
//! Twin       -
//! Reference  matrix-free by forming the Khatri-Rao operand of the product in arXiv 2510.14891 sec. II a block at a time
alias Real = f32; // @spec f32|f64
alias Vec = vec4<Real>;
const SCALED: u32 = 0u; // columns are scaled for f16
const ORDER: u32 = 3u; // @spec
const RUNS: u32 = 1u; // @spec
const SNUG: u32 = 1u; // @spec
const BM: u32 = 128u; // @spec
const BN: u32 = 64u; // @spec
const BK: u32 = 16u; // @spec
const TM: u32 = 8u; // @spec
const TN: u32 = 8u; // @spec
const VEC: u32 = 4u; // @spec
const WM: u32 = BM / TM;
const WN: u32 = BN / TN;
const WG: u32 = WM * WN;
const TN4: u32 = TN / 4u;

var<workgroup> xs: array<Vec, BK * BM / 4u>; // (BK, BM / 4), four rows in a vec4
var<workgroup> bs: array<Vec, BK * BN / 4u>; // (BK, BN / 4)

@compute @workgroup_size(WG, 1, 1)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) li: u32) {
    // @insert fused_group
    let tx = li % WN;
    let ty = li / WN;
    var acc: array<array<Vec, TN4>, TM>;
    for (var i = 0u; i < TM; i++) { // @unroll
        for (var j = 0u; j < TN4; j++) { // @unroll
            acc[i][j] = Vec(0);
        }
    }
    // Columns and rows beyond the ends repeat the last ones; what comes of them is not read.
    let column = min(c0 + li % (BN / 4u), p.stride4 - 1u);
    let row = m_tile * BM + li % (BM / 4u) * 4u;
    // A step is BK of k within one run of the last other mode (all of k where RUNS is 0).
    let first = piece * p.piece;
    let count = min(p.piece, p.steps - first);
    // @insert fused_place
    for (var step = 0u; step < count; step++) {
        // All loads first, so that they are in flight together.
        var xv: array<Vec, BM * BK / 4u / WG>;
        var bv: array<Vec, BK * BN / 4u / WG>;
        for (var part = 0u; part < BM * BK / 4u / WG; part++) { // @unroll
            let at = li + part * WG;
            xv[part] = load(row, q0 + at / (BM / 4u), origin);
        }
        for (var part = 0u; part < BK * BN / 4u / WG; part++) { // @unroll
            let at = li + part * WG;
            bv[part] = operand(q0 + at / (BN / 4u), column, before);
        }
        for (var part = 0u; part < BM * BK / 4u / WG; part++) { // @unroll
            let at = li + part * WG;
            xs[at] = xv[part];
        }
        for (var part = 0u; part < BK * BN / 4u / WG; part++) { // @unroll
            bs[li + part * WG] = bv[part];
        }
        workgroupBarrier();
        // @insert fused_next
        for (var kk = 0u; kk < BK; kk++) {
            var a: array<Vec, TM / 4u>;
            for (var i = 0u; i < TM / 4u; i++) { // @unroll
                a[i] = xs[kk * (BM / 4u) + ty + i * WM];
            }
            for (var j = 0u; j < TN4; j++) { // @unroll
                let b = bs[kk * (BN / 4u) + tx + j * WN];
                for (var i = 0u; i < TM; i++) { // @unroll
                    acc[i][j] += a[i / 4u][i % 4u] * b;
                }
            }
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < TM; i++) { // @unroll
        let row = m_tile * BM + (ty + (i / 4u) * WM) * 4u + i % 4u;
        for (var j = 0u; j < TN4; j++) { // @unroll
            put(piece, row, n_tile * (BN / 4u) + tx + j * WN, acc[i][j]);
        }
    }
}
