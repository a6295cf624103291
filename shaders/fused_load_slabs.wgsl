//! fused_load_slabs - part of the fused kernels: X where it is contiguous along the mode and lies in up to three slabs.
//! Computes   load_slab(slab, row, q) = four neighbours along the mode, q counted over all slabs, whose reduction is one run
//! Bindings   4 y4 read vec4 f32, the second slab | 5 z4 read vec4 f32, the third, or the second again
//! Spec       -
//! Grid       -
//! Order      -
//! Twin       -
//! Reference  -
@group(0) @binding(4) var<storage, read> y4: array<vec4<Stored>>;
@group(0) @binding(5) var<storage, read> z4: array<vec4<Stored>>;

// `slab` is a number wherever this is called, so that no condition is left.
fn load_slab(slab: u32, row: u32, q: u32) -> Vec {
    let k = select(min(q, p.run - 1u), q, SNUG == 1u) - slab * p.slab_steps * BK;
    let at = (k * p.rows + min(row, p.rows - 4u)) / 4u;
    if slab == 0u {
        return Vec(x4[at]);
    }
    if slab == 1u {
        return Vec(y4[at]);
    }
    return Vec(z4[at]);
}
