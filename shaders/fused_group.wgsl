//! fused_group - part of the fused kernels: which tile and piece a workgroup has; statements, put into main
//! Computes   n_tile, m_tile, piece and c0, the tile's first vec4 column, from the workgroup's place in the grid
//! Bindings   -
//! Spec       -
//! Grid       -
//! Order      -
//! Twin       -
//! Reference  -
// Column tiles are neighbours: they read the same X at about the same time.
let id = p.group0 + wg.y * p.grid_x + wg.x;
let n_tiles = p.partial_stride4 * 4u / BN;
if id >= n_tiles * p.m_tiles * p.pieces {
    return;
}
let n_tile = id % n_tiles;
let m_tile = (id / n_tiles) % p.m_tiles;
let piece = id / n_tiles / p.m_tiles;
let c0 = p.column0 / 4u + n_tile * (BN / 4u);
