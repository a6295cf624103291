//! als_gram - lower tiles of a factor's gram in f64, in pieces of the rows.
//! Computes   pieces[piece, tile, i, j] = sum over the piece's rows q of factor[q, row0 + i] * factor[q, column0 + j], for tiles on and below the diagonal
//! Bindings   0 p uniform UpdateParams | 1 factors read Real [rows of all modes, ..; stride] | 2 pieces read_write f64 [gram_pieces, tiles, TILE, TILE]
//! With       als_params
//! Spec       TILE 16, 32 or 64: edge of a workgroup's tile, whose (TILE / 4)^2 invocations have 4 x 4 sums each
//! Grid       (tiles, fastest, times pieces, folded over y, 1)          src/plan/update.rs
//! Order      one chain over the piece: repeatable
//! Twin       src/als/normal_equations.rs
//! Reference  -
alias Real = f32; // @spec f32|f64
const TILE: u32 = 64u; // @spec
const W: u32 = TILE / 4u;
const WG: u32 = W * W;
const BK: u32 = 8u;
const LOADS: u32 = TILE * BK / WG;

@group(0) @binding(1) var<storage, read> factors: array<Real>;
@group(0) @binding(2) var<storage, read_write> pieces: array<f64>;

var<workgroup> lefts: array<f64, BK * TILE>;
var<workgroup> rights: array<f64, BK * TILE>;

fn entry(q: u32, end: u32, column: u32) -> f64 {
    if q < end && column < p.rank {
        return f64(factors[(p.factor_row0 + q) * p.stride + column]);
    }
    return f64(0);
}

@compute @workgroup_size(WG, 1, 1)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) li: u32) {
    let id = wg.y * p.grid_x + wg.x;
    let edge = (p.rank + TILE - 1u) / TILE;
    let tiles = edge * (edge + 1u) / 2u;
    let piece = id / tiles;
    if piece >= p.gram_pieces {
        return;
    }
    // Tiles row by row: row t has t + 1 of them.
    var tile_column = id % tiles;
    var tile_row = 0u;
    for (; tile_column > tile_row; tile_row++) {
        tile_column -= tile_row + 1u;
    }
    let tx = li % W;
    let ty = li / W;
    var acc: array<array<f64, 4>, 4>;
    for (var i = 0u; i < 4u; i++) { // @unroll
        for (var j = 0u; j < 4u; j++) { // @unroll
            acc[i][j] = f64(0);
        }
    }
    let end = min(piece * p.gram_piece + p.gram_piece, p.rows);
    for (var q0 = piece * p.gram_piece; q0 < end; q0 += BK) {
        for (var part = 0u; part < LOADS; part++) { // @unroll
            let at = li + part * WG;
            lefts[at] = entry(q0 + at / TILE, end, tile_row * TILE + at % TILE);
            rights[at] = entry(q0 + at / TILE, end, tile_column * TILE + at % TILE);
        }
        workgroupBarrier();
        for (var q = 0u; q < BK; q++) {
            for (var i = 0u; i < 4u; i++) { // @unroll
                let left = lefts[q * TILE + ty + i * W];
                for (var j = 0u; j < 4u; j++) { // @unroll
                    acc[i][j] += left * rights[q * TILE + tx + j * W];
                }
            }
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < 4u; i++) { // @unroll
        for (var j = 0u; j < 4u; j++) { // @unroll
            pieces[id * TILE * TILE + (ty + i * W) * TILE + tx + j * W] = acc[i][j];
        }
    }
}
