//! als_gram_sum - the pieces of als_gram put together, both halves, into the state.
//! Computes   state[gram; i, j] = state[gram; j, i] = sum over pieces of pieces[piece, tile, i, j], i >= j
//! Bindings   0 p uniform UpdateParams | 1 pieces read f64 [gram_pieces, tiles, TILE, TILE] | 2 state read_write f64 [order, rank^2 + 4 rank]
//! With       als_params
//! Spec       TILE 16, 32 or 64: edge of a tile of als_gram
//! Grid       (entries of the tiles / 32, folded over y, 1)          src/plan/update.rs
//! Order      every 8th piece in a chain, then the 8 lanes in a chain: repeatable
//! Twin       -
//! Reference  -
const TILE: u32 = 64u; // @spec
const LANES: u32 = 8u;
const OUTPUTS: u32 = 32u;

@group(0) @binding(1) var<storage, read> pieces: array<f64>;
@group(0) @binding(2) var<storage, read_write> state: array<f64>;

var<workgroup> sums: array<f64, 256>;

@compute @workgroup_size(256, 1, 1)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) li: u32) {
    let edge = (p.rank + TILE - 1u) / TILE;
    let tiles = edge * (edge + 1u) / 2u;
    let at = (wg.y * p.grid_x + wg.x) * OUTPUTS + li % OUTPUTS;
    let inside = at < tiles * TILE * TILE;
    var sum = f64(0);
    if inside {
        for (var piece = li / OUTPUTS; piece < p.gram_pieces; piece += LANES) {
            sum += pieces[piece * tiles * TILE * TILE + at];
        }
    }
    sums[li] = sum;
    workgroupBarrier();
    if li >= OUTPUTS || !inside {
        return;
    }
    for (var lane = 1u; lane < LANES; lane++) {
        sum += sums[lane * OUTPUTS + li];
    }
    var tile_column = at / (TILE * TILE);
    var tile_row = 0u;
    for (; tile_column > tile_row; tile_row++) {
        tile_column -= tile_row + 1u;
    }
    let i = tile_row * TILE + at % (TILE * TILE) / TILE;
    let j = tile_column * TILE + at % TILE;
    if i < p.rank && j <= i {
        state[p.mode * p.segment + i * p.rank + j] = sum;
        state[p.mode * p.segment + j * p.rank + i] = sum;
    }
}
