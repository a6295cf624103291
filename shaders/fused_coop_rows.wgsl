//! fused_coop_rows - f16 matrix units (16x16x16, f32 sums), every mode but the last: X is contiguous along k.
//! Computes   partial[piece, i, r] = x_scale * scale[r] * sum over the piece's k = (l, t) of X[l, i, t] * prod_{m != n} A_m[i_m, r]; l runs left of mode n, t right of it
//! Bindings   0 p uniform FusedParams | 1 x4 read vec4 f32 [entries / 4] | 2 x1 read f32, the same buffer | 3 factors read vec4 f32 [rows of all modes, lambda, scales; stride4] | 4 partial read_write f32 [pieces, partial_rows, partial_stride4 * 4]
//! With       fused_params, fused_operand, fused_start, fused_load_rows
//! Spec       ORDER 1..=8, RUNS 1 to keep every step within a run of the last other mode, 0 to cross them at the price of a division, SNUG 1 if runs are whole steps, BM, BN, BK tile of a workgroup, SM, SN subgroups along m and n, LANES of a subgroup, SPLIT 1 for float32 by three f16 products, 0 for one, FLUSH k between roundings, VEC 4 or 1 entries of X a load
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
const FM: u32 = BM / SM / 16u; // fragments of a subgroup along m: 1, 2 or 4
const FN: u32 = BN / SN / 16u; // and along n: 1 or 2
// 1 where a fragment exists: loops over these are unrolled to one copy or none.
const M1: u32 = min(FM / 2u, 1u);
const M2: u32 = min(FM / 4u, 1u);
const N1: u32 = min(FN / 2u, 1u);
const M1N1: u32 = M1 * N1;
const M2N1: u32 = M2 * N1;

@group(0) @binding(4) var<storage, read_write> partial: array<f32>;

const PX: u32 = BK / 4u + 2u; // 8 halves more than a row: fewer bank conflicts
const PB: u32 = BN / 4u + 2u;
// High and low parts of X and of the Khatri-Rao rows; one part only without SPLIT. Every array is a multiple of 16
// bytes, because fragments are loaded from addresses that have to be.
var<workgroup> xh: array<Half, BM * PX>; // (BM, PX)
var<workgroup> xl: array<Half, BM * PX * SPLIT + 2u>;
var<workgroup> bh: array<Half, BK * PB>; // (BK, PB)
var<workgroup> bl: array<Half, BK * PB * SPLIT + 2u>;

// The leading 11 bits, by masking: a rounded conversion there and back would be folded away.
fn high(v: Vec) -> Vec {
    return bitcast<Vec>(bitcast<vec4<u32>>(v) & vec4<u32>(0xFFFFE000u));
}

@compute @workgroup_size(WG, 1, 1)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) li: u32) {
    // Column tiles are neighbours: they read the same X at about the same time.
    let id = wg.y * p.grid_x + wg.x;
    let n_tiles = p.partial_stride4 * 4u / BN;
    if id >= n_tiles * p.m_tiles * p.pieces {
        return;
    }
    let n_tile = id % n_tiles;
    let m_tile = (id / n_tiles) % p.m_tiles;
    let piece = id / n_tiles / p.m_tiles;
    let c0 = p.column0 / 4u + n_tile * (BN / 4u);
    let wm = (li / LANES) / SN;
    let wn = (li / LANES) % SN;
    // c: what the matrix unit, which truncates, adds up; s: the sum of those, rounded. Named, because arrays of
    // fragments do not stay in registers.
    var c00 = coop_mat16x16<f32, C>();
    var s00 = coop_mat16x16<f32, C>();
    var c01 = coop_mat16x16<f32, C>();
    var s01 = coop_mat16x16<f32, C>();
    var c10 = coop_mat16x16<f32, C>();
    var s10 = coop_mat16x16<f32, C>();
    var c11 = coop_mat16x16<f32, C>();
    var s11 = coop_mat16x16<f32, C>();
    var c20 = coop_mat16x16<f32, C>();
    var s20 = coop_mat16x16<f32, C>();
    var c21 = coop_mat16x16<f32, C>();
    var s21 = coop_mat16x16<f32, C>();
    var c30 = coop_mat16x16<f32, C>();
    var s30 = coop_mat16x16<f32, C>();
    var c31 = coop_mat16x16<f32, C>();
    var s31 = coop_mat16x16<f32, C>();
    var since = 0u;
    // Columns and rows beyond the ends repeat the last ones; what comes of them is not read.
    let column = min(c0 + li % (BN / 4u), p.stride4 - 1u);
    var row_at: array<u32, BM * BK / 4u / WG>;
    for (var part = 0u; part < BM * BK / 4u / WG; part++) { // @unroll
        row_at[part] = min(m_tile * BM + (li + part * WG) / (BK / 4u), p.rows - 1u) * p.right;
    }
    // A step is BK of k within one run of the last other mode (all of k where RUNS is 0).
    var step = piece * p.piece;
    let end = min(step + p.piece, p.steps);
    var run = step / p.run_steps;
    var q0 = (step - run * p.run_steps) * BK;
    var origin = start(run * p.run);
    var before = before_run(run, column);
    for (; step < end; step++) {
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
            let place = (at / (BK / 4u)) * PX + at % (BK / 4u);
            let value = xv[part] * p.x_scale;
            let top = high(value);
            if SPLIT == 1u {
                xh[place] = Half(top);
                xl[place] = Half(value - top);
            } else {
                xh[place] = Half(value);
            }
        }
        for (var part = 0u; part < BK * BN / 4u / WG; part++) { // @unroll
            let at = li + part * WG;
            let place = (at / (BN / 4u)) * PB + at % (BN / 4u);
            let top = high(bv[part]);
            if SPLIT == 1u {
                bh[place] = Half(top);
                bl[place] = Half(bv[part] - top);
            } else {
                bh[place] = Half(bv[part]);
            }
        }
        // The next step's place, before the barrier: its loads overlap with the products.
        q0 += BK;
        if q0 >= p.run {
            q0 = 0u;
            run += 1u;
            origin = start(run * p.run);
            before = before_run(run, column);
        }
        workgroupBarrier();
        for (var kk = 0u; kk < BK / 16u; kk++) { // @unroll
            let a0 = coopLoadT<coop_mat16x16<f16, A>>(&xh[(wm * FM * 16u + 0u) * PX + kk * 4u], PX);
            var a1 = coop_mat16x16<f16, A>();
            for (var has = 0u; has < M1; has++) { // @unroll
                a1 = coopLoadT<coop_mat16x16<f16, A>>(&xh[(wm * FM * 16u + 16u) * PX + kk * 4u], PX);
            }
            var a2 = coop_mat16x16<f16, A>();
            for (var has = 0u; has < M2; has++) { // @unroll
                a2 = coopLoadT<coop_mat16x16<f16, A>>(&xh[(wm * FM * 16u + 32u) * PX + kk * 4u], PX);
            }
            var a3 = coop_mat16x16<f16, A>();
            for (var has = 0u; has < M2; has++) { // @unroll
                a3 = coopLoadT<coop_mat16x16<f16, A>>(&xh[(wm * FM * 16u + 48u) * PX + kk * 4u], PX);
            }
            let b0 = coopLoadT<coop_mat16x16<f16, B>>(&bh[kk * 16u * PB + wn * FN * 4u + 0u], PB);
            var b1 = coop_mat16x16<f16, B>();
            for (var has = 0u; has < N1; has++) { // @unroll
                b1 = coopLoadT<coop_mat16x16<f16, B>>(&bh[kk * 16u * PB + wn * FN * 4u + 4u], PB);
            }
            for (var has = 0u; has < SPLIT; has++) { // @unroll
                // The small products first: high of X times low, low times high.
                let d0 = coopLoadT<coop_mat16x16<f16, B>>(&bl[kk * 16u * PB + wn * FN * 4u + 0u], PB);
                var d1 = coop_mat16x16<f16, B>();
                for (var has = 0u; has < N1; has++) { // @unroll
                    d1 = coopLoadT<coop_mat16x16<f16, B>>(&bl[kk * 16u * PB + wn * FN * 4u + 4u], PB);
                }
                c00 = coopMultiplyAdd(a0, d0, c00);
                for (var has = 0u; has < N1; has++) { // @unroll
                    c01 = coopMultiplyAdd(a0, d1, c01);
                }
                for (var has = 0u; has < M1; has++) { // @unroll
                    c10 = coopMultiplyAdd(a1, d0, c10);
                }
                for (var has = 0u; has < M1N1; has++) { // @unroll
                    c11 = coopMultiplyAdd(a1, d1, c11);
                }
                for (var has = 0u; has < M2; has++) { // @unroll
                    c20 = coopMultiplyAdd(a2, d0, c20);
                }
                for (var has = 0u; has < M2N1; has++) { // @unroll
                    c21 = coopMultiplyAdd(a2, d1, c21);
                }
                for (var has = 0u; has < M2; has++) { // @unroll
                    c30 = coopMultiplyAdd(a3, d0, c30);
                }
                for (var has = 0u; has < M2N1; has++) { // @unroll
                    c31 = coopMultiplyAdd(a3, d1, c31);
                }
                let e0 = coopLoadT<coop_mat16x16<f16, A>>(&xl[(wm * FM * 16u + 0u) * PX + kk * 4u], PX);
                c00 = coopMultiplyAdd(e0, b0, c00);
                for (var has = 0u; has < N1; has++) { // @unroll
                    c01 = coopMultiplyAdd(e0, b1, c01);
                }
                var e1 = coop_mat16x16<f16, A>();
                for (var has = 0u; has < M1; has++) { // @unroll
                    e1 = coopLoadT<coop_mat16x16<f16, A>>(&xl[(wm * FM * 16u + 16u) * PX + kk * 4u], PX);
                }
                for (var has = 0u; has < M1; has++) { // @unroll
                    c10 = coopMultiplyAdd(e1, b0, c10);
                }
                for (var has = 0u; has < M1N1; has++) { // @unroll
                    c11 = coopMultiplyAdd(e1, b1, c11);
                }
                var e2 = coop_mat16x16<f16, A>();
                for (var has = 0u; has < M2; has++) { // @unroll
                    e2 = coopLoadT<coop_mat16x16<f16, A>>(&xl[(wm * FM * 16u + 32u) * PX + kk * 4u], PX);
                }
                for (var has = 0u; has < M2; has++) { // @unroll
                    c20 = coopMultiplyAdd(e2, b0, c20);
                }
                for (var has = 0u; has < M2N1; has++) { // @unroll
                    c21 = coopMultiplyAdd(e2, b1, c21);
                }
                var e3 = coop_mat16x16<f16, A>();
                for (var has = 0u; has < M2; has++) { // @unroll
                    e3 = coopLoadT<coop_mat16x16<f16, A>>(&xl[(wm * FM * 16u + 48u) * PX + kk * 4u], PX);
                }
                for (var has = 0u; has < M2; has++) { // @unroll
                    c30 = coopMultiplyAdd(e3, b0, c30);
                }
                for (var has = 0u; has < M2N1; has++) { // @unroll
                    c31 = coopMultiplyAdd(e3, b1, c31);
                }
            }
            c00 = coopMultiplyAdd(a0, b0, c00);
            for (var has = 0u; has < N1; has++) { // @unroll
                c01 = coopMultiplyAdd(a0, b1, c01);
            }
            for (var has = 0u; has < M1; has++) { // @unroll
                c10 = coopMultiplyAdd(a1, b0, c10);
            }
            for (var has = 0u; has < M1N1; has++) { // @unroll
                c11 = coopMultiplyAdd(a1, b1, c11);
            }
            for (var has = 0u; has < M2; has++) { // @unroll
                c20 = coopMultiplyAdd(a2, b0, c20);
            }
            for (var has = 0u; has < M2N1; has++) { // @unroll
                c21 = coopMultiplyAdd(a2, b1, c21);
            }
            for (var has = 0u; has < M2; has++) { // @unroll
                c30 = coopMultiplyAdd(a3, b0, c30);
            }
            for (var has = 0u; has < M2N1; has++) { // @unroll
                c31 = coopMultiplyAdd(a3, b1, c31);
            }
        }
        workgroupBarrier();
        since += BK;
        if since >= FLUSH {
            since = 0u;
            s00 = s00 + c00;
            c00 = coop_mat16x16<f32, C>();
            for (var has = 0u; has < N1; has++) { // @unroll
                s01 = s01 + c01;
            }
            for (var has = 0u; has < N1; has++) { // @unroll
                c01 = coop_mat16x16<f32, C>();
            }
            for (var has = 0u; has < M1; has++) { // @unroll
                s10 = s10 + c10;
            }
            for (var has = 0u; has < M1; has++) { // @unroll
                c10 = coop_mat16x16<f32, C>();
            }
            for (var has = 0u; has < M1N1; has++) { // @unroll
                s11 = s11 + c11;
            }
            for (var has = 0u; has < M1N1; has++) { // @unroll
                c11 = coop_mat16x16<f32, C>();
            }
            for (var has = 0u; has < M2; has++) { // @unroll
                s20 = s20 + c20;
            }
            for (var has = 0u; has < M2; has++) { // @unroll
                c20 = coop_mat16x16<f32, C>();
            }
            for (var has = 0u; has < M2N1; has++) { // @unroll
                s21 = s21 + c21;
            }
            for (var has = 0u; has < M2N1; has++) { // @unroll
                c21 = coop_mat16x16<f32, C>();
            }
            for (var has = 0u; has < M2; has++) { // @unroll
                s30 = s30 + c30;
            }
            for (var has = 0u; has < M2; has++) { // @unroll
                c30 = coop_mat16x16<f32, C>();
            }
            for (var has = 0u; has < M2N1; has++) { // @unroll
                s31 = s31 + c31;
            }
            for (var has = 0u; has < M2N1; has++) { // @unroll
                c31 = coop_mat16x16<f32, C>();
            }
        }
    }
    let pitch = p.partial_stride4 * 4u;
    let corner = (piece * p.partial_rows + m_tile * BM + wm * FM * 16u) * pitch + n_tile * BN + wn * FN * 16u;
    let t00 = s00 + c00;
    let o00 = corner + 0u * pitch + 0u;
    coopStoreT(t00, &partial[o00], pitch);
    for (var has = 0u; has < N1; has++) { // @unroll
        let t01 = s01 + c01;
        let o01 = corner + 0u * pitch + 16u;
        coopStoreT(t01, &partial[o01], pitch);
    }
    for (var has = 0u; has < M1; has++) { // @unroll
        let t10 = s10 + c10;
        let o10 = corner + 16u * pitch + 0u;
        coopStoreT(t10, &partial[o10], pitch);
    }
    for (var has = 0u; has < M1N1; has++) { // @unroll
        let t11 = s11 + c11;
        let o11 = corner + 16u * pitch + 16u;
        coopStoreT(t11, &partial[o11], pitch);
    }
    for (var has = 0u; has < M2; has++) { // @unroll
        let t20 = s20 + c20;
        let o20 = corner + 32u * pitch + 0u;
        coopStoreT(t20, &partial[o20], pitch);
    }
    for (var has = 0u; has < M2N1; has++) { // @unroll
        let t21 = s21 + c21;
        let o21 = corner + 32u * pitch + 16u;
        coopStoreT(t21, &partial[o21], pitch);
    }
    for (var has = 0u; has < M2; has++) { // @unroll
        let t30 = s30 + c30;
        let o30 = corner + 48u * pitch + 0u;
        coopStoreT(t30, &partial[o30], pitch);
    }
    for (var has = 0u; has < M2N1; has++) { // @unroll
        let t31 = s31 + c31;
        let o31 = corner + 48u * pitch + 16u;
        coopStoreT(t31, &partial[o31], pitch);
    }
}
