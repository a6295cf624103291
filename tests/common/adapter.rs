//! Adapters for tests: skipped without one, unless `POLYAD_REQUIRE_GPU=1` says there has to be one.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use polyad::{Gpu, wgpu};

/// The best adapter, or `None` after saying that the test is skipped.
pub fn gpu() -> Option<Gpu> {
    or_skip(Gpu::new().map_err(|e| e.to_string()))
}

/// The best adapter with buffers of at most that many bytes.
pub fn gpu_with_binding(bytes: u64) -> Option<Gpu> {
    or_skip(Gpu::builder().max_binding_bytes(bytes).build().map_err(|e| e.to_string()))
}

/// A device with only these of the adapter's features and WebGPU's default limits, lent to the crate.
pub fn minimal_gpu(features: wgpu::Features) -> Option<Gpu> {
    or_skip(device(features).and_then(|(device, queue)| Gpu::from_wgpu(device, queue).map_err(|e| e.to_string())))
}

/// A device of the test's own.
pub fn device(features: wgpu::Features) -> Result<(wgpu::Device, wgpu::Queue), String> {
    device_with(&adapter()?, features, wgpu::Limits::default())
}

/// The first adapter of the driver's order.
pub fn adapter() -> Result<wgpu::Adapter, String> {
    adapter_of(wgpu::InstanceDescriptor::new_without_display_handle())
}

/// The same, of an instance of the test's own.
pub fn adapter_of(descriptor: wgpu::InstanceDescriptor) -> Result<wgpu::Adapter, String> {
    let instance = wgpu::Instance::new(descriptor);
    let adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::PRIMARY));
    adapters.into_iter().next().ok_or("no adapter".into())
}

/// A device with these of the adapter's features and these limits.
pub fn device_with(
    adapter: &wgpu::Adapter,
    features: wgpu::Features,
    limits: wgpu::Limits,
) -> Result<(wgpu::Device, wgpu::Queue), String> {
    let descriptor =
        wgpu::DeviceDescriptor { required_features: features, required_limits: limits, ..Default::default() };
    pollster::block_on(adapter.request_device(&descriptor)).map_err(|e| e.to_string())
}

/// What was opened, or `None` after saying that the test is skipped.
pub fn or_skip<G>(found: Result<G, String>) -> Option<G> {
    match found {
        Ok(gpu) => Some(gpu),
        Err(error) => {
            let required = std::env::var("POLYAD_REQUIRE_GPU").is_ok_and(|v| v == "1");
            assert!(!required, "POLYAD_REQUIRE_GPU=1 and {error}");
            println!("skipped: no adapter ({error})");
            None
        }
    }
}
