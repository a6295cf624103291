//! fused_small_cols - small ranks, last mode: memory-bound, X goes straight to registers, neighbours along the mode itself.
//! Computes   partial[piece, i, r] = sum over the piece's k = (l, t) of X[l, i, t] * prod_{m != n} A_m[i_m, r]; l runs left of mode n, t right of it
//! Bindings   0 p uniform FusedParams | 1 x4 read vec4 Stored [entries / 4] | 2 x1 read Stored, the same buffer | 3 factors read vec4 Stored [rows of all modes, ..; stride4] | 4 partial read_write vec4 Real [pieces, partial_rows, partial_stride4]
//! With       fused_params, fused_place, fused_next, fused_operand, fused_load_cols, fused_store or fused_add
//! Spec       ORDER 1..=8, RUNS 1 to keep every step within a run of the last other mode, 0 to cross them at the price of a division, SNUG 1 if runs are whole steps, LX invocations along the mode, LK along k, RV vec4s of ranks of every invocation, BK rows of the Khatri-Rao product staged at a time, VEC 4 or 1 entries of X a load
//! Grid       (row tiles of 4 LX, fastest, times pieces, folded over y, column blocks of 4 RV)          src/plan/fused.rs
//! Order      each invocation sums every LK-th k of its piece, then LK invocations in a chain; pieces as fused_store or fused_add have it
//! Twin       -
//! Reference  matrix-free by forming the Khatri-Rao operand of the product in arXiv 2510.14891 sec. II a block at a time
alias Real = f32; // @spec f32|f64
alias Vec = vec4<Real>;
const SCALED: u32 = 0u; // columns are scaled for f16
const ORDER: u32 = 3u; // @spec
const RUNS: u32 = 1u; // @spec
const SNUG: u32 = 1u; // @spec
const LX: u32 = 32u; // @spec
const LK: u32 = 8u; // @spec
const RV: u32 = 1u; // @spec
const BK: u32 = 64u; // @spec
const VEC: u32 = 4u; // @spec
const WG: u32 = LX * LK;

var<workgroup> bs: array<Vec, BK * RV>; // (BK, RV)
var<workgroup> sums: array<Vec, WG>; // (LK, LX)

@compute @workgroup_size(WG, 1, 1)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) li: u32) {
    let id = p.group0 + wg.y * p.grid_x + wg.x;
    if id >= p.m_tiles * p.pieces {
        return;
    }
    let row = ((id % p.m_tiles) * LX + li % LX) * 4u;
    let lane = li / LX;
    let piece = id / p.m_tiles;
    let c0 = p.column0 / 4u + wg.z * RV;
    var acc: array<Vec, 4u * RV>;
    for (var i = 0u; i < 4u * RV; i++) { // @unroll
        acc[i] = Vec(0);
    }
    // Columns beyond the end repeat the last ones; what comes of them is not read.
    let column = min(c0 + li % RV, p.stride4 - 1u);
    // A step is BK of k within one run of the last other mode (all of k where RUNS is 0).
    let first = piece * p.piece;
    let count = min(p.piece, p.steps - first);
    // @insert fused_place
    for (var step = 0u; step < count; step++) {
        var value: array<Vec, BK / LK>;
        for (var part = 0u; part < BK / LK; part++) { // @unroll
            value[part] = load(row, q0 + part * LK + lane, origin);
        }
        for (var part = 0u; part < (BK * RV + WG - 1u) / WG; part++) { // @unroll
            let at = li + part * WG;
            if at < BK * RV {
                bs[at] = operand(q0 + at / RV, column, before);
            }
        }
        workgroupBarrier();
        // @insert fused_next
        for (var part = 0u; part < BK / LK; part++) { // @unroll
            for (var v = 0u; v < RV; v++) { // @unroll
                let b = bs[(part * LK + lane) * RV + v];
                for (var e = 0u; e < 4u; e++) { // @unroll
                    acc[e * RV + v] += value[part][e] * b;
                }
            }
        }
        workgroupBarrier();
    }
    for (var o = 0u; o < 4u * RV; o++) { // @unroll
        sums[li] = acc[o];
        workgroupBarrier();
        if lane == 0u {
            var sum = sums[li];
            for (var l = 1u; l < LK; l++) {
                sum += sums[l * LX + li];
            }
            put(piece, row + o / RV, wg.z * RV + o % RV, sum);
        }
        workgroupBarrier();
    }
}
