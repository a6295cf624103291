//! fused_coop_rows - f16 matrix units (16x16x16, f32 sums), every mode but the last: X is contiguous along k.
//! Computes   partial[piece, i, r] = x_scale * scale[r] * sum over the piece's k = (l, t) of X[l, i, t] * prod_{m != n} A_m[i_m, r]; l runs left of mode n, t right of it
//! Bindings   0 p uniform FusedParams | 1 x4 read vec4 f32 [entries / 4] | 2 x1 read f32, the same buffer | 3 factors read vec4 f32 [rows of all modes, lambda, scales; stride4] | 4 partial read_write f32 [pieces, partial_rows, partial_stride4 * 4]
//! With       fused_params, fused_group, fused_place, fused_next, fused_coop_halves, fused_coop_products, fused_operand, fused_start, fused_load_rows
//! Spec       ORDER 1..=8, RUNS 1 to keep every step within a run of the last other mode, 0 to cross them at the price of a division, SNUG 1 if runs are whole steps, BM, BN, BK tile of a workgroup, SM, SN subgroups along m and n, LANES of a subgroup, SPLIT 1 for float32 by three f16 products, 0 for one, FLUSH k between roundings, a power of two times BK, or 0 for none, VEC 4 or 1 entries of X a load
//! Grid       (column tiles of BN, fastest, times row tiles of BM times pieces, folded over y, 1)          src/plan/fused.rs
//! Order      FLUSH k in the matrix unit, then a chain of those over the piece: repeatable
//! Twin       -
//! Reference  split products: Ootomo and Yokota 2022, DOI 10.1177/10943420221090256; the operand as in fused_rows
enable f16;
enable wgpu_cooperative_matrix;

alias Real = f32;
alias Vec = vec4<Real>;
alias Half = vec4<f16>;
const SCALED: u32 = 1u; // columns are scaled for f16
const ORDER: u32 = 3u; // @spec
const RUNS: u32 = 1u; // @spec
const SNUG: u32 = 1u; // @spec
const BM: u32 = 128u; // @spec
const BN: u32 = 128u; // @spec
const BK: u32 = 32u; // @spec
const SM: u32 = 2u; // @spec
const SN: u32 = 4u; // @spec
const LANES: u32 = 32u; // @spec
const SPLIT: u32 = 1u; // @spec
const FLUSH: u32 = 512u; // @spec
const VEC: u32 = 4u; // @spec
const WG: u32 = SM * SN * LANES;
const FM: u32 = BM / SM / 16u; // fragments of a subgroup along m
const FN: u32 = BN / SN / 16u; // and along n
const ROUND: u32 = min(FLUSH, 1u);

@group(0) @binding(4) var<storage, read_write> partial: array<f32>;

const BY_ROWS: u32 = 1u; // X in workgroup memory
const XE: u32 = BK / 4u; // vec4s of a row there
const PX: u32 = XE + 2u; // 8 halves more than a row: fewer bank conflicts
const PB: u32 = BN / 4u + 2u;
// High and low parts of X and of the Khatri-Rao rows; one part only without SPLIT. Every array is a multiple of 16
// bytes, because fragments are loaded from addresses that have to be, and of exactly its rows: one vec4 more and the
// kernel took 1.6 times as long on an H200.
var<workgroup> xh: array<Half, BM * PX>; // (BM, PX)
var<workgroup> xl: array<Half, max(BM * PX * SPLIT, 2u)>;
var<workgroup> bh: array<Half, BK * PB>; // (BK, PB)
var<workgroup> bl: array<Half, max(BK * PB * SPLIT, 2u)>;

// The leading 11 bits, by masking: a rounded conversion there and back would be folded away.
fn high(v: Vec) -> Vec {
    return bitcast<Vec>(bitcast<vec4<u32>>(v) & vec4<u32>(0xFFFFE000u));
}

@compute @workgroup_size(WG, 1, 1)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) li: u32) {
    // @insert fused_group
    let wm = (li / LANES) / SN;
    let wn = (li / LANES) % SN;
    // c: what the matrix unit, which truncates, adds up; s: the sum of those, rounded.
    var c: array<coop_mat16x16<f32, C>, FM * FN>; // @named
    var s: array<coop_mat16x16<f32, C>, FM * FN * ROUND>; // @named
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
        // @insert fused_coop_halves
        workgroupBarrier();
        // @insert fused_next
        // @insert fused_coop_products
        workgroupBarrier();
    }
    let pitch = p.partial_stride4 * 4u;
    let corner = (piece * p.partial_rows + m_tile * BM + wm * FM * 16u) * pitch + n_tile * BN + wn * FN * 16u;
    for (var i = 0u; i < FM; i++) { // @unroll
        for (var j = 0u; j < FN; j++) { // @unroll
            for (var has = 0u; has < ROUND; has++) { // @unroll
                c[i * FN + j] = s[i * FN + j] + c[i * FN + j];
            }
            let total = c[i * FN + j];
            let at = corner + i * 16u * pitch + j * 16u;
            coopStoreT(total, &partial[at], pitch);
        }
    }
}
