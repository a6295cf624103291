//! A plan's dispatches into a command encoder. No decisions are made here.

use super::Inner;
use super::buffers::{GpuFactors, GpuMatrix, GpuTensor};
use super::range::{Range, fits};
use super::scope::{create_buffer, scoped};
use crate::plan::{FusedParams, Method, MttkrpPlan, Params, ReduceParams, Slot, weights_row};
use crate::{Error, Real, Result};
use std::collections::HashMap;
use wgpu::BufferUsages;

impl Inner {
    /// Errors unless plan, tensor, factors and output belong together.
    fn check<T: Real>(&self, plan: &MttkrpPlan, x: &GpuTensor<T>, u: &GpuFactors<T>, g: &GpuMatrix<T>) -> Result<()> {
        for (what, gpu) in [("the tensor", x.gpu), ("the factors", u.gpu), ("the output", g.gpu)] {
            self.check_own(what, gpu)?;
        }
        if plan.dtype() != T::DTYPE {
            let (expected, found) = (plan.dtype().name(), T::DTYPE.name());
            return Err(Error::DtypeMismatch { what: "the plan", expected, found });
        }
        for (what, found) in [("the tensor", &x.shape), ("the factors", &u.shape)] {
            if found != plan.shape() {
                let (expected, found) = (plan.shape().to_vec(), found.to_vec());
                return Err(Error::DimsMismatch { what, expected, found });
            }
        }
        if x.slabs != plan.slabs() {
            let reason = format!("it has {} slabs, the tensor was cut into {}", plan.slabs().len(), x.slabs.len());
            return Err(Error::PlanMismatch { reason });
        }
        for (what, columns) in [("the factors", &u.columns), ("the output", &g.columns)] {
            if columns != plan.columns() {
                let reason = format!("it has column blocks {:?}, {what} have {columns:?}", plan.columns());
                return Err(Error::PlanMismatch { reason });
            }
        }
        let expected = (plan.shape().rows(plan.mode()), plan.rank());
        if g.rows != expected.0 {
            return Err(Error::OutputShape { expected, found: (g.rows, plan.rank()) });
        }
        Ok(())
    }

    /// Records a plan: clears the result, then one compute pass with all dispatches.
    pub(super) fn record<T: Real>(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        plan: &MttkrpPlan,
        x: &GpuTensor<T>,
        u: &GpuFactors<T>,
        g: &GpuMatrix<T>,
        timestamps: Option<wgpu::ComputePassTimestampWrites<'_>>,
    ) -> Result<()> {
        self.check(plan, x, u, g)?;
        let plan = self.chosen(plan, x, u);
        let mut scratch = HashMap::new();
        for slot in [Slot::KhatriRao, Slot::Partial, Slot::Outer] {
            let bytes = plan.scratch_bytes(slot);
            if bytes > 0 {
                scratch.insert(slot, self.scratch.get(&self.device, slot, bytes)?);
            }
        }
        let params = self.params(plan, x.range.map_or(1.0, Range::x_scale))?;
        let stride = self.params_stride(plan);
        scoped(&self.device, "recording an MTTKRP", || {
            // FUSED writes every entry itself.
            for buffer in g.buffers.iter().filter(|_| plan.method() != Method::Fused) {
                encoder.clear_buffer(buffer, 0, None);
            }
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
                label: Some("polyad.mttkrp"),
                timestamp_writes: timestamps,
            });
            let mut groups = HashMap::new();
            for (index, dispatch) in plan.dispatches().iter().enumerate() {
                let size = dispatch.params.bytes().len() as u64;
                let kernel = self.pipelines.get(&self.device, &dispatch.spec, dispatch.slots.len(), size)?;
                let key = (&dispatch.spec, &dispatch.slots);
                if let std::collections::hash_map::Entry::Vacant(vacant) = groups.entry(key) {
                    let mut entries = vec![wgpu::BindGroupEntry {
                        binding: 0,
                        resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                            buffer: &params,
                            offset: 0,
                            size: wgpu::BufferSize::new(size),
                        }),
                    }];
                    for (binding, slot) in dispatch.slots.iter().enumerate() {
                        let buffer = match *slot {
                            Slot::X(slab) => &x.buffers[slab],
                            Slot::Factors(block) => &u.buffers[block],
                            Slot::G(block) => &g.buffers[block],
                            Slot::KhatriRao | Slot::Partial | Slot::Outer => &scratch[slot],
                        };
                        entries.push(wgpu::BindGroupEntry {
                            binding: binding as u32 + 1,
                            resource: buffer.as_entire_binding(),
                        });
                    }
                    vacant.insert(self.device.create_bind_group(&wgpu::BindGroupDescriptor {
                        label: Some("polyad.mttkrp"),
                        layout: &kernel.layout,
                        entries: &entries,
                    }));
                }
                pass.set_pipeline(&kernel.pipeline);
                pass.set_bind_group(0, &groups[&key], &[(index as u64 * stride) as u32]);
                let [gx, gy, gz] = dispatch.grid;
                pass.dispatch_workgroups(gx, gy, gz);
            }
            Ok(())
        })
    }

    /// The plan itself, or its fallback where the numbers' range is too wide for f16 matrix units.
    pub(super) fn chosen<'a, T>(&self, plan: &'a MttkrpPlan, x: &GpuTensor<T>, u: &GpuFactors<T>) -> &'a MttkrpPlan {
        match (plan.fallback(), x.range) {
            (Some(fallback), None) => fallback,
            (Some(fallback), Some(range)) if !fits(plan, range, &u.ranges) => fallback,
            _ => plan,
        }
    }

    fn params_stride(&self, plan: &MttkrpPlan) -> u64 {
        let largest = plan.dispatches().iter().map(|d| d.params.bytes().len()).max().unwrap_or(16);
        (largest as u64).next_multiple_of(u64::from(self.caps.uniform_alignment.max(16)))
    }

    /// One uniform buffer with the parameters of every dispatch, at dynamic offsets.
    fn params(&self, plan: &MttkrpPlan, x_scale: f32) -> Result<wgpu::Buffer> {
        let stride = self.params_stride(plan) as usize;
        let mut bytes = vec![0u8; stride * plan.dispatches().len().max(1)];
        for (slot, dispatch) in bytes.chunks_mut(stride).zip(plan.dispatches()) {
            let params = match dispatch.params {
                // Only the device's tensor knows its scale.
                Params::Fused(p) if plan.fallback().is_some() => Params::Fused(FusedParams { x_scale, ..p }),
                Params::Reduce(p) if p.scale_row as usize > weights_row(plan.shape()) => {
                    Params::Reduce(ReduceParams { unscale: 1.0 / x_scale, ..p })
                }
                other => other,
            };
            let params = params.bytes();
            slot[..params.len()].copy_from_slice(params);
        }
        let usage = BufferUsages::UNIFORM | BufferUsages::COPY_DST;
        let buffer = create_buffer(&self.device, "params", bytes.len() as u64, usage)?;
        scoped(&self.device, "upload of parameters", || {
            self.queue.write_buffer(&buffer, 0, &bytes);
            Ok(())
        })?;
        Ok(buffer)
    }
}
