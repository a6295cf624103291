//! fused_held_rows - small ranks where workgroup memory would be the limit (few rows, f64), every mode but the last: an invocation keeps its rows of the last other mode's factor in registers, from run to run.
//! Computes   partial[piece, i, r] = sum over the piece's k = (l, t) of X[l, i, t] * prod_{m != n} A_m[i_m, r]; l runs left of mode n, t right of it
//! Bindings   0 p uniform FusedParams | 1 x4 read vec4 Stored, not used | 2 x1 read Stored [entries] | 3 factors read vec4 Stored [rows of all modes, ..; stride4] | 4 partial read_write vec4 Real [pieces, partial_rows, partial_stride4]
//! With       fused_params, fused_place, fused_next, fused_store or fused_add
//! Spec       ORDER 3..=8, RUNS 1, KL invocations along the last other mode, ML along the mode, CL along the columns, EK rows of the last factor, TM rows and RV vec4s of ranks of every invocation
//! Grid       (row tiles of ML TM, fastest, times blocks of EK KL of the last other mode, times pieces of the runs, folded over y, column blocks of 4 CL RV)          src/plan/fused.rs
//! Order      each invocation sums its EK of every run of the piece, then KL invocations in a chain; pieces as fused_store or fused_add have it
//! Twin       -
//! Reference  matrix-free by forming the Khatri-Rao operand of the product in arXiv 2510.14891 sec. II row by row
alias Real = f32; // @spec f32|f64
alias Vec = vec4<Real>;
const SCALED: u32 = 0u; // columns are scaled for f16
const ORDER: u32 = 3u; // @spec
const RUNS: u32 = 1u; // @spec
const KL: u32 = 32u; // @spec
const ML: u32 = 1u; // @spec
const CL: u32 = 1u; // @spec
const EK: u32 = 4u; // @spec
const TM: u32 = 5u; // @spec
const RV: u32 = 4u; // @spec
const WG: u32 = KL * CL * ML;
const BK: u32 = EK * KL;

var<workgroup> sums: array<Vec, RV * WG>; // (RV, ML, KL, CL)

@compute @workgroup_size(WG, 1, 1)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) li: u32) {
    let id = p.group0 + wg.y * p.grid_x + wg.x;
    if id >= p.m_tiles * p.pieces {
        return;
    }
    let lane = li / CL % KL;
    let row0 = (id % p.m_tiles) * (ML * TM) + li / (CL * KL) * TM;
    // Blocks of the last other mode are neighbours: together they read whole runs.
    let piece = id / p.m_tiles;
    let blocks = (p.run + BK - 1u) / BK;
    let block = piece % blocks;
    // Neighbours have the same k and other columns.
    let c0 = p.column0 / 4u + (wg.z * CL + li % CL) * RV;
    let column = min(c0, p.stride4 - 1u);
    let first = piece / blocks * p.piece;
    let count = min(p.piece, p.steps - first);
    // A step is a run: of this block of it, the same rows of the last factor.
    // @insert fused_place
    var acc: array<Vec, TM * RV>;
    for (var i = 0u; i < TM * RV; i++) { // @unroll
        acc[i] = Vec(0);
    }
    var row_at: array<u32, TM>;
    for (var m = 0u; m < TM; m++) { // @unroll
        row_at[m] = min(row0 + m, p.rows - 1u) * p.right;
    }
    // Columns beyond the end repeat the last ones; what comes of them is not read. k beyond the run's end have rows of 0.
    var at: array<u32, EK>;
    var held: array<Vec, EK * RV>;
    for (var e = 0u; e < EK; e++) { // @unroll
        let q = block * BK + e * KL + lane;
        at[e] = min(q, p.run - 1u);
        for (var v = 0u; v < RV; v++) { // @unroll
            let row = Vec(factors[(p.last_row0 + at[e]) * p.stride4 + min(c0 + v, p.stride4 - 1u)]);
            held[e * RV + v] = select(row, Vec(0), q >= p.run);
        }
    }
    // X of a run is read before the products of the run before it: so few workgroups fit that none hides the other's waiting.
    var value: array<Real, TM * EK>;
    for (var m = 0u; m < TM; m++) { // @unroll
        for (var e = 0u; e < EK; e++) { // @unroll
            value[m * EK + e] = Real(x1[origin + row_at[m] + at[e]]);
        }
    }
    for (var step = 0u; step < count; step++) {
        var others: array<Vec, RV>;
        for (var v = 0u; v < RV; v++) { // @unroll
            let c = min(c0 + v, p.stride4 - 1u);
            others[v] = Vec(1);
            for (var has = 0u; has < ONE; has++) { // @unroll
                others[v] = Vec(factors[(p.row0[0][0] + run) * p.stride4 + c]);
            }
            for (var s = 0u; s < MANY; s++) { // @unroll
                others[v] *= Vec(factors[(p.row0[(REST - 1u - s) / 4u][(REST - 1u - s) % 4u] + index[s]) * p.stride4 + c]);
            }
        }
        // On to the next run, wherever this one's end is.
        q0 = p.run;
        // @insert fused_next
        var ahead: array<Real, TM * EK>;
        let next = select(origin, 0u, step + 1u == count);
        for (var m = 0u; m < TM; m++) { // @unroll
            for (var e = 0u; e < EK; e++) { // @unroll
                ahead[m * EK + e] = Real(x1[next + row_at[m] + at[e]]);
            }
        }
        for (var v = 0u; v < RV; v++) { // @unroll
            for (var e = 0u; e < EK; e++) { // @unroll
                let b = others[v] * held[e * RV + v];
                for (var m = 0u; m < TM; m++) { // @unroll
                    acc[m * RV + v] += value[m * EK + e] * b;
                }
            }
        }
        for (var m = 0u; m < TM; m++) { // @unroll
            for (var e = 0u; e < EK; e++) { // @unroll
                value[m * EK + e] = ahead[m * EK + e];
            }
        }
    }
    // Across the invocations of a row, all columns of one row of the tile at a time.
    for (var m = 0u; m < TM; m++) { // @unroll
        for (var v = 0u; v < RV; v++) { // @unroll
            sums[v * WG + li] = acc[m * RV + v];
        }
        workgroupBarrier();
        for (var v = lane; v < RV; v += KL) {
            let first = v * WG + li - lane * CL;
            var sum = sums[first];
            for (var l = 1u; l < KL; l++) {
                sum += sums[first + l * CL];
            }
            put(piece, row0 + m, (wg.z * CL + li % CL) * RV + v, sum);
        }
        workgroupBarrier();
    }
}
