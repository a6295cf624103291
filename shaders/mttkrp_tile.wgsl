//! mttkrp_tile - MTTKRP-TILE of the paper: one workgroup per tile of a slice, factor rows staged in workgroup memory, one atomic add per tile and rank.
//! Computes   G[i_n, r] += sum over the tile of X[i] * lambda[r] * prod_{m != n} A_m[i_m, r]
//! Bindings   0 p uniform EntryParams | 1 x read Real [entries of the slab], row-major | 2 factors read Real [rows of all modes, then lambda; stride] | 3 g read_write, in the atomic file [I_n, stride]
//! Spec       ORDER 1..=8, F 1..=256 ranks of a workgroup, LANES entry lanes, TAU 1.. width of a tile along every other mode
//! Grid       (tiles, the row of mode n fastest, folded over y, column blocks of F)          src/plan/entrywise.rs
//! Order      along the tile's last mode (TAU), then over its rest in LANES lanes, then over lanes, then tiles in no fixed order (not repeatable)
//! Twin       src/cpu/tile.rs
//! Reference  arXiv 2510.14891 sec. III
alias Real = f32; // @spec f32|f64
const ORDER: u32 = 3u; // @spec
const F: u32 = 16u; // @spec
const LANES: u32 = 8u; // @spec
const TAU: u32 = 8u; // @spec
const WG: u32 = F * LANES;
const SLOTS: u32 = max(ORDER - 1u, 1u);
const G_BINDING: u32 = 3u; // of the atomic file

struct EntryParams {
    mode: u32,
    rank: u32,
    weights_row: u32,
    g_row0: u32,
    count: u32,
    grid_x: u32,
    stride: u32,
    group0: u32,
    dims: array<vec4<u32>, 2>,
    strides: array<vec4<u32>, 2>,
    row0: array<vec4<u32>, 2>,
    tiles: array<vec4<u32>, 2>,
}

@group(0) @binding(0) var<uniform> p: EntryParams;
@group(0) @binding(1) var<storage, read> x: array<Real>;
@group(0) @binding(2) var<storage, read> factors: array<Real>;

var<workgroup> rows: array<Real, SLOTS * TAU * F>; // (slot, TAU, F)
var<workgroup> sums: array<Real, WG>; // (LANES, F)

// Slots are the modes other than n, in order.
fn mode_of(slot: u32) -> u32 {
    return slot + select(0u, 1u, slot >= p.mode);
}

@compute @workgroup_size(WG, 1, 1)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) li: u32) {
    let tile = p.group0 + wg.y * p.grid_x + wg.x;
    if tile >= p.count {
        return;
    }
    let n = p.mode;
    let extent = p.dims[n / 4u][n % 4u];
    let row = tile % extent;
    let column0 = wg.z * F;

    // Where the tile starts and how wide it is along each slot: partial at the edges.
    var width: array<u32, SLOTS>;
    var step: array<u32, SLOTS>;
    var base = row * p.strides[n / 4u][n % 4u];
    var outer = 1u;
    var rest = tile / extent;
    for (var k = 0u; k < ORDER - 1u; k++) {
        let slot = ORDER - 2u - k;
        let m = mode_of(slot);
        let across = p.tiles[m / 4u][m % 4u];
        let start = (rest % across) * TAU;
        rest = rest / across;
        width[slot] = min(TAU, p.dims[m / 4u][m % 4u] - start);
        step[slot] = p.strides[m / 4u][m % 4u];
        base += start * step[slot];
        outer *= select(width[slot], 1u, k == 0u);
        let first = p.row0[m / 4u][m % 4u] + start;
        for (var at = li; at < TAU * F; at += WG) {
            let r = column0 + at % F;
            var value = Real(0);
            if at / F < width[slot] && r < p.rank {
                value = factors[(first + at / F) * p.stride + r];
            }
            rows[slot * TAU * F + at] = value;
        }
    }
    workgroupBarrier();

    let f = li % F;
    var total = Real(0);
    if ORDER == 1u {
        total = x[base];
    } else {
        for (var o = li / F; o < outer; o += LANES) {
            var product = Real(1);
            var offset = base;
            var left = o;
            for (var k = 1u; k < ORDER - 1u; k++) {
                let slot = ORDER - 2u - k;
                let i = left % width[slot];
                left = left / width[slot];
                offset += i * step[slot];
                product *= rows[(slot * TAU + i) * F + f];
            }
            let inner = (SLOTS - 1u) * TAU * F + f;
            var sum = Real(0);
            if width[SLOTS - 1u] == TAU {
                for (var j = 0u; j < TAU; j++) {
                    sum += x[offset + j * step[SLOTS - 1u]] * rows[inner + j * F];
                }
            } else {
                for (var j = 0u; j < width[SLOTS - 1u]; j++) {
                    sum += x[offset + j * step[SLOTS - 1u]] * rows[inner + j * F];
                }
            }
            total += product * sum;
        }
    }
    sums[li] = total;
    workgroupBarrier();
    let r = column0 + f;
    if li < F && r < p.rank {
        for (var lane = 1u; lane < LANES; lane++) {
            total += sums[lane * F + f];
        }
        g_add((p.g_row0 + row) * p.stride + r, total * factors[p.weights_row * p.stride + r]);
    }
}
