//! roofline_read - how fast a buffer can be read: every vec4 of x once, nothing kept.
//! Computes   out[0] = a partial sum, written only if it equals p.never (it does not); `fill` writes x with noise first
//! Bindings   0 p uniform ReadParams | 1 x read vec4<f32> [p.count] | 2 out read_write vec4<f32> [1]; fill: 2 is x itself
//! Grid       (any number of workgroups, 1, 1), grid-stride
struct ReadParams {
    count: u32,
    never: f32,
    pad: vec2<u32>,
}

@group(0) @binding(0) var<uniform> p: ReadParams;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;

@compute @workgroup_size(256, 1, 1)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let step = groups.x * 256u;
    var sum = vec4<f32>();
    var at = id.x;
    // Eight loads a round, so that many are under way and the loop itself costs little.
    for (; at + 7u * step < p.count; at += 8u * step) {
        let a = x[at];
        let b = x[at + step];
        let c = x[at + 2u * step];
        let d = x[at + 3u * step];
        let e = x[at + 4u * step];
        let f = x[at + 5u * step];
        let g = x[at + 6u * step];
        let h = x[at + 7u * step];
        sum += ((a + b) + (c + d)) + ((e + f) + (g + h));
    }
    for (; at < p.count; at += step) {
        sum += x[at];
    }
    if sum.x + sum.y + sum.z + sum.w == p.never {
        out[0] = sum;
    }
}

fn noise(position: u32) -> f32 {
    var z = position * 747796405u + 2891336453u;
    z = ((z >> ((z >> 28u) + 4u)) ^ z) * 277803737u;
    return f32((z >> 22u) ^ z) / 2147483648.0 - 1.0;
}

@compute @workgroup_size(256, 1, 1)
fn fill(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    for (var at = id.x; at < p.count; at += groups.x * 256u) {
        let q = 4u * at;
        out[at] = vec4<f32>(noise(q), noise(q + 1u), noise(q + 2u), noise(q + 3u));
    }
}
