//! The app's own kernel of examples/shared_device.rs: values[i] = values[i]^2.

@group(0) @binding(0) var<storage, read_write> values: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&values) {
        values[id.x] *= values[id.x];
    }
}
