//! fused_stream_rows - ranks up to 4, every mode but the last, whole vec4s: X is read once at the speed of memory, nothing is staged.
//! Computes   partial[piece, i, r] = sum over the piece's k = (l, t) of X[l, i, t] * prod_{m != n} A_m[i_m, r]; l runs left of mode n, t right of it
//! Bindings   0 p uniform FusedParams | 1 x4 read vec4 Stored [entries / 4] | 2 x1 read Stored, the same buffer | 3 factors read vec4 Stored [rows of all modes, ..; stride4] | 4 partial read_write vec4 Real [pieces, partial_rows, partial_stride4]
//! With       fused_params
//! Spec       ORDER 2..=8, WG invocations along k, TM rows of every invocation; the last other dim is a multiple of 4
//! Grid       (row tiles of TM, fastest, times pieces, folded over y, column blocks of 4)          src/plan/fused.rs
//! Order      each invocation sums its 4 of every 4 WG k of the piece, then 4 groups of 32, then a chain of 32: repeatable
//! Twin       -
//! Reference  matrix-free by forming the Khatri-Rao operand of the product in arXiv 2510.14891 sec. II where it is used
alias Real = f32; // @spec f32|f64
alias Vec = vec4<Real>;
const ORDER: u32 = 3u; // @spec
const WG: u32 = 128u; // @spec
const TM: u32 = 8u; // @spec
const LAST: u32 = max(ORDER, 2u) - 2u; // slot of the last other mode

@group(0) @binding(4) var<storage, read_write> partial: array<Vec>;

var<workgroup> sums: array<Vec, WG>;

// Product of the factor rows of all other modes but the last of them, at position q over those.
fn prefix(q: u32, c: u32) -> Vec {
    var value = Vec(1);
    var rest = q;
    for (var s = 2u; s < ORDER; s++) {
        let slot = ORDER - 1u - s;
        var i = rest;
        if slot > 0u {
            let dim = p.dims[slot / 4u][slot % 4u];
            rest = rest / dim;
            i -= rest * dim;
        }
        value *= Vec(factors[(p.row0[slot / 4u][slot % 4u] + i) * p.stride4 + c]);
    }
    return value;
}

@compute @workgroup_size(WG, 1, 1)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) li: u32) {
    let id = wg.y * p.grid_x + wg.x;
    if id >= p.m_tiles * p.pieces {
        return;
    }
    let row0 = (id % p.m_tiles) * TM;
    let piece = id / p.m_tiles;
    let c = min(p.column0 / 4u + wg.z, p.stride4 - 1u);
    let end = min((piece + 1u) * p.piece * WG * 4u, p.reduction);
    var acc: array<Vec, TM>;
    for (var m = 0u; m < TM; m++) { // @unroll
        acc[m] = Vec(0);
    }
    let dim = p.dims[LAST / 4u][LAST % 4u];
    for (var k = piece * p.piece * WG * 4u + li * 4u; k < end; k += WG * 4u) {
        // A mode with nothing left of it needs no division.
        var at = k;
        if p.right < p.reduction {
            at += (k / p.right) * (p.rows - 1u) * p.right;
        }
        var value: array<Vec, TM>;
        for (var m = 0u; m < TM; m++) { // @unroll
            value[m] = Vec(x4[(at + min(row0 + m, p.rows - 1u) * p.right) / 4u]);
        }
        // Four neighbours differ in the last index only.
        let q = k / dim;
        let first = (p.row0[LAST / 4u][LAST % 4u] + k - q * dim) * p.stride4 + c;
        let before = prefix(q, c);
        for (var e = 0u; e < 4u; e++) { // @unroll
            let b = before * Vec(factors[first + e * p.stride4]);
            for (var m = 0u; m < TM; m++) { // @unroll
                acc[m] += value[m][e] * b;
            }
        }
    }
    // Across invocations, one row at a time.
    for (var m = 0u; m < TM; m++) { // @unroll
        sums[li] = acc[m];
        workgroupBarrier();
        if li < 32u {
            var sum = sums[li];
            for (var lane = li + 32u; lane < WG; lane += 32u) {
                sum += sums[lane];
            }
            sums[li] = sum;
        }
        workgroupBarrier();
        if li == 0u {
            var sum = sums[0];
            for (var lane = 1u; lane < min(WG, 32u); lane++) {
                sum += sums[lane];
            }
            partial[(piece * p.partial_rows + row0 + m) * p.partial_stride4 + wg.z] = sum;
        }
        workgroupBarrier();
    }
}
