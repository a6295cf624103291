//! An app that owns its wgpu device and lends it to polyad: both compute on it, without a second device and without a
//! copy of the driver's state. cargo run --release --example shared_device

use ndarray::{Array2, Array3};
use polyad::wgpu::{self, util::DeviceExt};
use polyad::{Backend, Gpu};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    // The app's own set-up: its instance, adapter, device and queue.
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle_from_env());
    let Ok(adapter) = pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default())) else {
        println!("skipped: no adapter");
        return Ok(());
    };
    let wanted = wgpu::DeviceDescriptor { required_limits: adapter.limits(), ..Default::default() };
    let (device, queue) = pollster::block_on(adapter.request_device(&wanted))?;
    println!("the app's device: {}", adapter.get_info().name);

    // Handles are reference counted: the app keeps using its own. An error would name the limit that is too small.
    let gpu = Gpu::from_wgpu(device.clone(), queue.clone())?;
    let x = Array3::from_shape_fn((4, 3, 2), |(i, j, k)| (i + 2 * j + 3 * k) as f32);
    let factors = [4, 3, 2].map(|rows| Array2::from_shape_fn((rows, 2), |(i, r)| (i + r) as f32));
    let g = gpu.mttkrp(x.view().into_dyn(), &[factors[0].view(), factors[1].view(), factors[2].view()], 0)?;
    println!("polyad's MTTKRP on it:\n{g}");

    // The app's own compute, on the same queue, with polyad's result as its input.
    let squares = squared(&device, &queue, g.as_standard_layout().as_slice().unwrap_or_default())?;
    println!("the app's squares of it:\n{}", Array2::from_shape_vec(g.dim(), squares.clone())?);
    let expected: Vec<f32> = g.iter().map(|v| v * v).collect();
    if squares == expected { Ok(()) } else { Err(format!("expected {expected:?}").into()) }
}

/// Squares numbers with examples/shared_device.wgsl.
fn squared(device: &wgpu::Device, queue: &wgpu::Queue, values: &[f32]) -> Result<Vec<f32>, Box<dyn Error>> {
    let buffer = device.create_buffer_init(&wgpu::util::BufferInitDescriptor {
        label: Some("app.values"),
        contents: bytemuck::cast_slice(values),
        usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC,
    });
    let readback = device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("app.readback"),
        size: buffer.size(),
        usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
        mapped_at_creation: false,
    });
    let module = device.create_shader_module(wgpu::include_wgsl!("shared_device.wgsl"));
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some("app.square"),
        layout: None,
        module: &module,
        entry_point: Some("main"),
        compilation_options: Default::default(),
        cache: None,
    });
    let bindings = device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: Some("app.square"),
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[wgpu::BindGroupEntry { binding: 0, resource: buffer.as_entire_binding() }],
    });
    let mut encoder = device.create_command_encoder(&Default::default());
    let mut pass = encoder.begin_compute_pass(&Default::default());
    pass.set_pipeline(&pipeline);
    pass.set_bind_group(0, &bindings, &[]);
    pass.dispatch_workgroups(values.len().div_ceil(64) as u32, 1, 1);
    drop(pass);
    encoder.copy_buffer_to_buffer(&buffer, 0, &readback, 0, buffer.size());
    queue.submit([encoder.finish()]);

    let (sender, receiver) = std::sync::mpsc::channel();
    readback.map_async(wgpu::MapMode::Read, .., move |done| drop(sender.send(done)));
    device.poll(wgpu::PollType::wait_indefinitely())?;
    receiver.recv()??;
    Ok(bytemuck::cast_slice(&readback.get_mapped_range(..)?).to_vec())
}
