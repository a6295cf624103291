//! fused_coop8_rows - f32 matrix units (8x8x8, as Metal has them), every mode but the last: X is contiguous along k.
//! Computes   partial[piece, i, r] = sum over the piece's k = (l, t) of X[l, i, t] * prod_{m != n} A_m[i_m, r]; l runs left of mode n, t right of it
//! Bindings   0 p uniform FusedParams | 1 x4 read vec4 f32 [entries / 4] | 2 x1 read f32, the same buffer | 3 factors read vec4 f32 [rows of all modes, ..; stride4] | 4 partial read_write f32 [pieces, partial_rows, partial_stride4 * 4]
//! With       fused_params, fused_group, fused_place, fused_next, fused_operand, fused_start, fused_load_rows
//! Spec       ORDER 1..=8, RUNS 1 to keep every step within a run of the last other mode, 0 to cross them at the price of a division, SNUG 1 if runs are whole steps, BM, BN, BK tile of a workgroup, SM, SN subgroups along m and n, LANES of a subgroup, VEC 4 or 1 entries of X a load
//! Grid       (column tiles of BN, fastest, times row tiles of BM times pieces, folded over y, 1)          src/plan/fused.rs
//! Order      eight k at a time in the matrix unit, a chain over the piece: repeatable
//! Twin       -
//! Reference  the operand as in fused_rows
enable wgpu_cooperative_matrix;

alias Real = f32;
alias Vec = vec4<Real>;
const SCALED: u32 = 0u; // columns are scaled for f16
const ORDER: u32 = 3u; // @spec
const RUNS: u32 = 1u; // @spec
const SNUG: u32 = 1u; // @spec
const BM: u32 = 64u; // @spec
const BN: u32 = 64u; // @spec
const BK: u32 = 16u; // @spec
const SM: u32 = 2u; // @spec
const SN: u32 = 2u; // @spec
const LANES: u32 = 32u; // @spec
const VEC: u32 = 4u; // @spec
const WG: u32 = SM * SN * LANES;
const FM: u32 = BM / SM / 8u; // fragments of a subgroup along m
const FN: u32 = BN / SN / 8u; // and along n

@group(0) @binding(4) var<storage, read_write> partial: array<f32>;

const PX: u32 = BK + 4u; // one vec4 more than a row: fewer bank conflicts
const PB: u32 = BN + 4u;
// Numbers and not vec4s: Metal loads a fragment from a pointer to numbers, with a stride in numbers.
var<workgroup> xs: array<f32, BM * PX>; // (BM, PX)
var<workgroup> bs: array<f32, BK * PB>; // (BK, PB)

@compute @workgroup_size(WG, 1, 1)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) li: u32) {
    // @insert fused_group
    let wm = (li / LANES) / SN;
    let wn = (li / LANES) % SN;
    // Zeros are loaded: what an empty fragment holds is not said by every language this becomes.
    for (var at = li; at < 8u * PB; at += WG) {
        bs[at] = 0.0;
    }
    workgroupBarrier();
    var c: array<coop_mat8x8<f32, C>, FM * FN>; // @named
    for (var f = 0u; f < FM * FN; f++) { // @unroll
        c[f] = coopLoadT<coop_mat8x8<f32, C>>(&bs[0], PB);
    }
    workgroupBarrier();
    // Columns and rows beyond the ends repeat the last ones; what comes of them is not read.
    let column = min(c0 + li % (BN / 4u), p.stride4 - 1u);
    var row_at: array<u32, BM * BK / 4u / WG>;
    for (var part = 0u; part < BM * BK / 4u / WG; part++) { // @unroll
        row_at[part] = min(m_tile * BM + (li + part * WG) / (BK / 4u), p.rows - 1u) * p.right;
    }
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
            xv[part] = load(row_at[part], q0 + at % (BK / 4u) * 4u, origin);
        }
        for (var part = 0u; part < BK * BN / 4u / WG; part++) { // @unroll
            let at = li + part * WG;
            bv[part] = operand(q0 + at / (BN / 4u), column, before);
        }
        for (var part = 0u; part < BM * BK / 4u / WG; part++) { // @unroll
            let at = li + part * WG;
            let slot = (at / (BK / 4u)) * PX + at % (BK / 4u) * 4u;
            xs[slot] = xv[part].x;
            xs[slot + 1u] = xv[part].y;
            xs[slot + 2u] = xv[part].z;
            xs[slot + 3u] = xv[part].w;
        }
        for (var part = 0u; part < BK * BN / 4u / WG; part++) { // @unroll
            let at = li + part * WG;
            let slot = (at / (BN / 4u)) * PB + at % (BN / 4u) * 4u;
            bs[slot] = bv[part].x;
            bs[slot + 1u] = bv[part].y;
            bs[slot + 2u] = bv[part].z;
            bs[slot + 3u] = bv[part].w;
        }
        workgroupBarrier();
        // @insert fused_next
        for (var kk = 0u; kk < BK / 8u; kk++) { // @unroll
            var a: array<coop_mat8x8<f32, A>, FM>; // @named
            var b: array<coop_mat8x8<f32, B>, FN>; // @named
            for (var i = 0u; i < FM; i++) { // @unroll
                a[i] = coopLoadT<coop_mat8x8<f32, A>>(&xs[(wm * FM + i) * 8u * PX + kk * 8u], PX);
            }
            for (var j = 0u; j < FN; j++) { // @unroll
                b[j] = coopLoadT<coop_mat8x8<f32, B>>(&bs[kk * 8u * PB + (wn * FN + j) * 8u], PB);
            }
            for (var i = 0u; i < FM; i++) { // @unroll
                for (var j = 0u; j < FN; j++) { // @unroll
                    c[i * FN + j] = coopMultiplyAdd(a[i], b[j], c[i * FN + j]);
                }
            }
        }
        workgroupBarrier();
    }
    let pitch = p.partial_stride4 * 4u;
    let corner = (piece * p.partial_rows + m_tile * BM + wm * FM * 8u) * pitch + n_tile * BN + wn * FN * 8u;
    for (var i = 0u; i < FM; i++) { // @unroll
        for (var j = 0u; j < FN; j++) { // @unroll
            let total = c[i * FN + j];
            let at = corner + i * 8u * pitch + j * 8u;
            coopStoreT(total, &partial[at], pitch);
        }
    }
}
