//! als_product - product of a tall matrix with the R x R root of the inverse, or with its transpose, in f64.
//! Computes   out[i, c] = sum_k a[i, k] * (root[c, k] if TRANSPOSED else root[k, c])
//! Bindings   0 p uniform UpdateParams | 1 a read Real [rows, stride] | 2 root read f64 [rank, stride] | 3 out read_write f64 [rows, stride]
//! With       als_params
//! Spec       TILE 16, 32 or 64: rows and columns of a workgroup, whose (TILE / 4)^2 invocations have 4 x 4 sums each; TRANSPOSED 0 or 1
//! Grid       (column tiles, fastest, times row tiles, folded over y, 1)          src/plan/update.rs
//! Order      one chain over k: repeatable
//! Twin       src/als/normal_equations.rs
//! Reference  -
alias Real = f32; // @spec f32|f64
const TILE: u32 = 64u; // @spec
const TRANSPOSED: u32 = 0u; // @spec
const W: u32 = TILE / 4u;
const WG: u32 = W * W;
const BK: u32 = 8u;
const LOADS: u32 = TILE * BK / WG;
const PITCH: u32 = TILE + 1u; // fewer bank conflicts where rows are written as columns

@group(0) @binding(1) var<storage, read> a: array<Real>;
@group(0) @binding(2) var<storage, read> root: array<f64>;
@group(0) @binding(3) var<storage, read_write> out: array<f64>;

var<workgroup> lefts: array<f64, BK * PITCH>;
var<workgroup> rights: array<f64, BK * PITCH>;

@compute @workgroup_size(WG, 1, 1)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) li: u32) {
    let id = wg.y * p.grid_x + wg.x;
    let n_tiles = (p.rank + TILE - 1u) / TILE;
    let row0 = id / n_tiles * TILE;
    if row0 >= p.rows {
        return;
    }
    let column0 = id % n_tiles * TILE;
    let tx = li % W;
    let ty = li / W;
    var acc: array<array<f64, 4>, 4>;
    for (var i = 0u; i < 4u; i++) { // @unroll
        for (var j = 0u; j < 4u; j++) { // @unroll
            acc[i][j] = f64(0);
        }
    }
    for (var k0 = 0u; k0 < p.rank; k0 += BK) {
        for (var part = 0u; part < LOADS; part++) { // @unroll
            let at = li + part * WG;
            let i = row0 + at / BK;
            let k = k0 + at % BK;
            var left = f64(0);
            if i < p.rows && k < p.rank {
                left = f64(a[i * p.stride + k]);
            }
            lefts[at % BK * PITCH + at / BK] = left;
        }
        for (var part = 0u; part < LOADS; part++) { // @unroll
            let at = li + part * WG;
            // Neighbours read neighbours, whichever way the root lies.
            let k = select(at / TILE, at % BK, TRANSPOSED == 1u);
            let c = select(at % TILE, at / BK, TRANSPOSED == 1u);
            let row = select(k0 + k, column0 + c, TRANSPOSED == 1u);
            let column = select(column0 + c, k0 + k, TRANSPOSED == 1u);
            var right = f64(0);
            if row < p.rank && column < p.rank {
                right = root[row * p.stride + column];
            }
            rights[k * PITCH + c] = right;
        }
        workgroupBarrier();
        for (var k = 0u; k < BK; k++) {
            for (var i = 0u; i < 4u; i++) { // @unroll
                let left = lefts[k * PITCH + ty + i * W];
                for (var j = 0u; j < 4u; j++) { // @unroll
                    acc[i][j] += left * rights[k * PITCH + tx + j * W];
                }
            }
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < 4u; i++) { // @unroll
        let row = row0 + ty + i * W;
        for (var j = 0u; j < 4u; j++) { // @unroll
            let column = column0 + tx + j * W;
            if row < p.rows && column < p.rank {
                out[row * p.stride + column] = acc[i][j];
            }
        }
    }
}
