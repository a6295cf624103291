//! The two limits of a device, measured by shaders that do nothing else: reading memory and multiply-adds.

use super::AnyError;
use super::timer::{Effort, Timer};
use polyad::plan::DeviceKind;
use polyad::{Backend, Dtype, Gpu, wgpu};
use wgpu::BufferUsages;

/// Measured limits.
#[derive(Debug, Clone, Copy)]
pub struct Roofline {
    /// Bytes per second of a plain read.
    pub read: f64,
    /// Flops per second of multiply-adds in registers, in the element type.
    pub flops: f64,
    /// Size of the buffer that was read.
    pub bytes: u64,
}

impl Roofline {
    /// Measures both.
    pub fn measure(gpu: &Gpu, timer: &Timer, dtype: Dtype, effort: Effort) -> Result<Self, AnyError> {
        let (read, bytes) = read(gpu, timer, effort)?;
        timer.wait(None)?;
        Ok(Self { read, flops: fma(gpu, timer, dtype, effort)?, bytes })
    }

    /// The shortest time for that many bytes read and flops done.
    pub fn seconds(&self, bytes: f64, flops: f64) -> f64 {
        (bytes / self.read).max(flops / self.flops)
    }
}

/// One entry point of a shader with its own buffers.
struct Kernel<'a> {
    device: &'a wgpu::Device,
    pipeline: wgpu::ComputePipeline,
    group: wgpu::BindGroup,
}

impl<'a> Kernel<'a> {
    fn new(device: &'a wgpu::Device, wgsl: &str, entry_point: &str, buffers: &[(u32, &wgpu::Buffer)]) -> Self {
        let label = Some("bench.roofline");
        let source = wgpu::ShaderSource::Wgsl(wgsl.into());
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label, source });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label,
            layout: None,
            module: &module,
            entry_point: Some(entry_point),
            compilation_options: Default::default(),
            cache: None,
        });
        let entries: Vec<_> = buffers
            .iter()
            .map(|&(binding, buffer)| wgpu::BindGroupEntry { binding, resource: buffer.as_entire_binding() })
            .collect();
        let layout = &pipeline.get_bind_group_layout(0);
        let group = device.create_bind_group(&wgpu::BindGroupDescriptor { label, layout, entries: &entries });
        Self { device, pipeline, group }
    }

    fn record(&self, encoder: &mut wgpu::CommandEncoder, workgroups: u32, repeats: usize) {
        let workgroups = workgroups.min(self.device.limits().max_compute_workgroups_per_dimension);
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.group, &[]);
        (0..repeats).for_each(|_| pass.dispatch_workgroups(workgroups, 1, 1));
    }
}

fn buffer(device: &wgpu::Device, size: u64, usage: BufferUsages) -> wgpu::Buffer {
    let label = Some("bench.roofline");
    device.create_buffer(&wgpu::BufferDescriptor { label, size, usage, mapped_at_creation: false })
}

fn uniform(gpu: &Gpu, bytes: &[u8], usage: BufferUsages) -> wgpu::Buffer {
    let (device, queue) = gpu.device_and_queue();
    let buffer = buffer(device, bytes.len() as u64, usage | BufferUsages::COPY_DST);
    queue.write_buffer(&buffer, 0, bytes);
    buffer
}

/// Bytes per second: the best of a few grids. The buffer is as large as one binding may be, at most 2 GiB.
fn read(gpu: &Gpu, timer: &Timer, effort: Effort) -> Result<(f64, u64), AnyError> {
    const WGSL: &str = include_str!("../../../../benches/roofline_read.wgsl");
    const MIB: u64 = 1 << 20;
    let (device, caps) = (gpu.device_and_queue().0, gpu.caps());
    let most = if caps.kind == DeviceKind::Software { 64 * MIB } else { 2048 * MIB };
    let bytes = most.min(caps.max_binding_bytes).min(caps.max_buffer_bytes).min(caps.memory.unwrap_or(u64::MAX) / 4);
    let bytes = (bytes / MIB).max(1) * MIB;
    let x = buffer(device, bytes, BufferUsages::STORAGE);
    let out = buffer(device, 16, BufferUsages::STORAGE);
    let params =
        uniform(gpu, bytemuck::cast_slice(&[(bytes / 16) as u32, 1e30f32.to_bits(), 0, 0]), BufferUsages::UNIFORM);
    let fill = Kernel::new(device, WGSL, "fill", &[(0, &params), (2, &x)]);
    timer.seconds(|encoder| {
        fill.record(encoder, 16384, 1);
        Ok(())
    })?;
    let kernel = Kernel::new(device, WGSL, "main", &[(0, &params), (1, &x), (2, &out)]);
    let mut best = f64::INFINITY;
    for workgroups in [1 << 11, 1 << 13, 1 << 15] {
        let timed = effort.median(|repeats| {
            timer.seconds(|encoder| {
                kernel.record(encoder, workgroups, repeats);
                Ok(())
            })
        })?;
        best = best.min(timed.seconds);
    }
    Ok((bytes as f64 / best, bytes))
}

/// Flops per second. The number of rounds grows until a dispatch takes some milliseconds.
fn fma(gpu: &Gpu, timer: &Timer, dtype: Dtype, effort: Effort) -> Result<f64, AnyError> {
    const WGSL: &str = include_str!("../../../../benches/roofline_fma.wgsl");
    const FLOPS: f64 = 256.0;
    let device = gpu.device_and_queue().0;
    let wgsl = WGSL.replace("alias Real = f32;", &format!("alias Real = {dtype};"));
    let workgroups: u32 = if gpu.caps().kind == DeviceKind::Software { 64 } else { 1 << 13 };
    let out = buffer(device, 16, BufferUsages::STORAGE);
    let mut rounds = 16u32;
    loop {
        let params = params(dtype, rounds);
        let params = uniform(gpu, &params, BufferUsages::STORAGE);
        let kernel = Kernel::new(device, &wgsl, "main", &[(0, &params), (1, &out)]);
        let run = |repeats| {
            timer.seconds(|encoder| {
                kernel.record(encoder, workgroups, repeats);
                Ok(())
            })
        };
        run(1)?;
        if run(1)? > 4e-3 || rounds >= 1 << 16 {
            let seconds = effort.median(run)?.seconds;
            return Ok(f64::from(workgroups) * 256.0 * f64::from(rounds) * FLOPS / seconds);
        }
        rounds *= 4;
    }
}

/// `FmaParams`, padded to 32 bytes. Multiplying by a little less than 1 keeps the chains finite.
fn params(dtype: Dtype, rounds: u32) -> Vec<u8> {
    let reals = [0.9999, 1e-3, 1e30];
    let mut bytes: Vec<u8> = match dtype {
        Dtype::F32 => reals.iter().flat_map(|&v| (v as f32).to_le_bytes()).collect(),
        Dtype::F64 => reals.iter().flat_map(|v: &f64| v.to_le_bytes()).collect(),
    };
    bytes.extend(rounds.to_le_bytes());
    bytes.resize(32, 0);
    bytes
}
