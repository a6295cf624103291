//! fused_small_rows - small ranks, every mode but the last: memory-bound, X goes straight to registers.
//! Computes   partial[piece, i, r] = sum over the piece's k = (l, t) of X[l, i, t] * prod_{m != n} A_m[i_m, r]; l runs left of mode n, t right of it
//! Bindings   0 p uniform FusedParams | 1 x4 read vec4 Stored [entries / 4] | 2 x1 read Stored, the same buffer | 3 factors read vec4 Stored [rows of all modes, ..; stride4] | 4 partial read_write vec4 Real [pieces, partial_rows, partial_stride4]
//! With       fused_params, fused_place, fused_next, fused_operand, fused_start, fused_store or fused_add
//! Spec       ORDER 1..=8, RUNS 1 to keep every step within a run of the last other mode, 0 to cross them at the price of a division, SNUG 1 if runs are whole steps, KL invocations along k, ML along the mode, EK k of a step (4 where VEC is 4), TM rows and RV vec4s of ranks of every invocation, VEC 4 or 1 entries of X a load
//! Grid       (row tiles of ML TM, fastest, times pieces, folded over y, column blocks of 4 RV)          src/plan/fused.rs
//! Order      each invocation sums its EK of every EK KL k of the piece, then KL invocations in a chain; pieces as fused_store or fused_add have it
//! Twin       -
//! Reference  matrix-free by forming the Khatri-Rao operand of the product in arXiv 2510.14891 sec. II a block at a time
alias Real = f32; // @spec f32|f64
alias Vec = vec4<Real>;
const SCALED: u32 = 0u; // columns are scaled for f16
const ORDER: u32 = 3u; // @spec
const RUNS: u32 = 1u; // @spec
const SNUG: u32 = 1u; // @spec
const KL: u32 = 32u; // @spec
const ML: u32 = 4u; // @spec
const EK: u32 = 4u; // @spec
const TM: u32 = 8u; // @spec
const RV: u32 = 1u; // @spec
const VEC: u32 = 4u; // @spec
const WG: u32 = KL * ML;
const BK: u32 = EK * KL;
// Rows of bs are shifted against each other, so that neighbours in k and in r lie in different banks.
const PE: u32 = KL + 1u;
const PV: u32 = EK * PE;

var<workgroup> bs: array<Vec, RV * PV>; // (RV, EK, KL + 1): the e-th k of every invocation side by side
var<workgroup> sums: array<Vec, WG>; // (ML, KL)

// X of row i at this invocation's EK k of a step: neighbours, or KL apart where rows are not whole vec4s.
fn load(i: u32, q0: u32, lane: u32, origin: u32) -> Vec {
    if VEC == 4u {
        let at = select(min(q0 + lane * 4u, p.run - 4u), q0 + lane * 4u, SNUG == 1u);
        if RUNS == 1u {
            return Vec(x4[(origin + at + i * p.right) / 4u]);
        }
        return Vec(x4[(start(at) + i * p.right) / 4u]);
    }
    var value = Vec(0);
    for (var e = 0u; e < EK; e++) { // @unroll
        let at = select(min(q0 + e * KL + lane, p.run - 1u), q0 + e * KL + lane, SNUG == 1u);
        if RUNS == 1u {
            value[e] = Real(x1[origin + at + i * p.right]);
        } else {
            value[e] = Real(x1[start(at) + i * p.right]);
        }
    }
    return value;
}

@compute @workgroup_size(WG, 1, 1)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) li: u32) {
    let id = p.group0 + wg.y * p.grid_x + wg.x;
    if id >= p.m_tiles * p.pieces {
        return;
    }
    let lane = li % KL;
    let row0 = (id % p.m_tiles) * (ML * TM) + (li / KL) * TM;
    let piece = id / p.m_tiles;
    let c0 = p.column0 / 4u + wg.z * RV;
    var acc: array<Vec, TM * RV>;
    for (var i = 0u; i < TM * RV; i++) { // @unroll
        acc[i] = Vec(0);
    }
    // Columns beyond the end repeat the last ones; what comes of them is not read.
    let column = min(c0 + li % RV, p.stride4 - 1u);
    // A step is BK of k within one run of the last other mode (all of k where RUNS is 0).
    let first = piece * p.piece;
    let count = min(p.piece, p.steps - first);
    // @insert fused_place
    for (var step = 0u; step < count; step++) {
        var value: array<Vec, TM>;
        for (var m = 0u; m < TM; m++) { // @unroll
            value[m] = load(min(row0 + m, p.rows - 1u), q0, lane, origin);
        }
        for (var part = 0u; part < (BK * RV + WG - 1u) / WG; part++) { // @unroll
            let at = li + part * WG;
            if at < BK * RV {
                let kk = at / RV;
                var slot = (kk / KL) * PE + kk % KL;
                if VEC == 4u {
                    slot = (kk % 4u) * PE + kk / 4u;
                }
                bs[(at % RV) * PV + slot] = operand(q0 + kk, column, before);
            }
        }
        workgroupBarrier();
        // @insert fused_next
        for (var v = 0u; v < RV; v++) { // @unroll
            for (var e = 0u; e < EK; e++) { // @unroll
                let b = bs[v * PV + e * PE + lane];
                for (var m = 0u; m < TM; m++) { // @unroll
                    acc[m * RV + v] += value[m][e] * b;
                }
            }
        }
        workgroupBarrier();
    }
    // Across the invocations of a row, one vec4 of the tile at a time.
    for (var o = 0u; o < TM * RV; o++) { // @unroll
        sums[li] = acc[o];
        workgroupBarrier();
        if lane == 0u {
            var sum = sums[li];
            for (var l = 1u; l < KL; l++) {
                sum += sums[li + l];
            }
            put(piece, row0 + o / RV, wg.z * RV + o % RV, sum);
        }
        workgroupBarrier();
    }
}
