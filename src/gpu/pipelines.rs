//! Compiled kernels, kept by their specification.

use super::scope::scoped;
use crate::Result;
use crate::plan::KernelSpec;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A compiled kernel and the layout of its bindings.
#[derive(Debug)]
pub(super) struct Kernel {
    pub pipeline: wgpu::ComputePipeline,
    pub layout: wgpu::BindGroupLayout,
}

/// The cache. One compilation per specification and device.
#[derive(Debug, Default)]
pub(super) struct Pipelines {
    kernels: Mutex<HashMap<KernelSpec, Arc<Kernel>>>,
}

impl Pipelines {
    /// The kernel of a specification with that many storage buffers and a parameter block of `params` bytes.
    pub fn get(&self, device: &wgpu::Device, spec: &KernelSpec, buffers: usize, params: u64) -> Result<Arc<Kernel>> {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = kernels.get(spec) {
            return Ok(kernel.clone());
        }
        let kernel = Arc::new(compile(device, spec, buffers, params)?);
        kernels.insert(spec.clone(), kernel.clone());
        Ok(kernel)
    }
}

fn compile(device: &wgpu::Device, spec: &KernelSpec, buffers: usize, params: u64) -> Result<Kernel> {
    let wgsl = spec.wgsl()?;
    let label = format!("polyad.{spec}");
    scoped(device, &format!("compilation of {spec}"), || {
        let descriptor =
            wgpu::ShaderModuleDescriptor { label: Some(&label), source: wgpu::ShaderSource::Wgsl(wgsl.into()) };
        let mut checks = wgpu::ShaderRuntimeChecks::checked();
        checks.force_loop_bounding = false;
        // SAFETY: bounds checks stay on; every loop in our shaders ends (its bounds are constants, dims, or a compare-exchange that succeeds).
        let module = unsafe { device.create_shader_module_trusted(descriptor, checks) };
        let entries: Vec<_> = (0..=buffers as u32).map(|binding| entry(binding, buffers as u32, params)).collect();
        let layout = device
            .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: Some(&label), entries: &entries });
        let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: Some(&label),
            bind_group_layouts: &[Some(&layout)],
            immediate_size: 0,
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(&label),
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some("main"),
            // Every word of workgroup memory is written before it is read.
            compilation_options: wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache: None,
        });
        Ok(Kernel { pipeline, layout })
    })
}

/// Binding 0 holds the parameters, the last binding is written, those between are read.
fn entry(binding: u32, last: u32, params: u64) -> wgpu::BindGroupLayoutEntry {
    let ty = if binding == 0 {
        wgpu::BufferBindingType::Uniform
    } else {
        wgpu::BufferBindingType::Storage { read_only: binding != last }
    };
    wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty,
            has_dynamic_offset: binding == 0,
            min_binding_size: if binding == 0 { wgpu::BufferSize::new(params) } else { None },
        },
        count: None,
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::KernelSpec;
    use crate::{Dtype, Gpu};

    #[test]
    fn a_kernel_that_does_not_compile_is_an_error() {
        let Ok(gpu) = Gpu::new() else { return println!("skipped: no adapter") };
        let compile = |invocations| {
            let spec = KernelSpec::new("khatri_rao", Dtype::F32, None, &[("WG", invocations)]);
            gpu.inner.pipelines.get(&gpu.inner.device, &spec, 2, 96)
        };
        for _ in 0..2 {
            let message = compile(1 << 20).unwrap_err().to_string();
            assert!(message.contains("compilation of khatri_rao f32 WG=1048576"), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
        compile(64).unwrap();
    }
}
