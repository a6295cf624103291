//! A plan's dispatches into a command encoder. No decisions are made here.

use super::Inner;
use super::buffers::{GpuFactors, GpuMatrix, GpuTensor, Place};
use super::ledger::Ticket;
use super::pace::side_by_side;
use super::pipelines::Kernel;
use super::range::{Range, fits};
use super::scope::{create_buffer, scoped};
use super::timing::Stopwatch;
use crate::plan::{
    Dispatch, FusedParams, KernelSpec, Method, MttkrpPlan, Params, ReduceParams, Slot, parameter_stride, weights_row,
};
use crate::{Error, Real, Result, Shape};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use wgpu::BufferUsages;

impl Inner {
    /// Errors unless plan, tensor, factors and output belong together.
    fn check<T: Real, G: Real>(
        &self,
        plan: &MttkrpPlan,
        x: &GpuTensor<'_, T>,
        u: &GpuFactors<T>,
        g: &GpuMatrix<G>,
    ) -> Result<()> {
        for (what, gpu) in [("the tensor", x.gpu), ("the factors", u.gpu), ("the output", g.gpu)] {
            self.check_own(what, gpu)?;
        }
        if plan.dtype() != T::DTYPE {
            let (expected, found) = (plan.dtype().name(), T::DTYPE.name());
            return Err(Error::DtypeMismatch { what: "the plan", expected, found });
        }
        if plan.sums() != G::DTYPE {
            let (expected, found) = (plan.sums().name(), G::DTYPE.name());
            return Err(Error::DtypeMismatch { what: "the output", expected, found });
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
        x: &GpuTensor<'_, T>,
        u: &GpuFactors<T>,
        g: &GpuMatrix<T>,
        timestamps: Option<wgpu::ComputePassTimestampWrites<'_>>,
    ) -> Result<()> {
        if let Some(streaming) = x.streaming() {
            return Err(Error::LimitTooSmall {
                limit: "device memory",
                what: "a tensor whose MTTKRP is recorded, all of it at once,".into(),
                needed: streaming.pass_bytes,
                available: self.caps.memory.unwrap_or(0),
            });
        }
        let prepared = self.prepare_mttkrp(self.chosen(plan, x, u), x, u, g)?;
        scoped(&self.device, "recording an MTTKRP", || {
            prepared.encode(encoder, None, timestamps);
            Ok(())
        })
    }

    /// Puts a prepared MTTKRP on the queue, whether its tensor is on the device or streams; `last` may add to the last
    /// submission.
    pub(super) fn submit_mttkrp<T: Real>(
        &self,
        prepared: &[&Prepared],
        x: &GpuTensor<'_, T>,
        stopwatch: Option<&Stopwatch>,
        last: impl FnOnce(&mut wgpu::CommandEncoder),
    ) -> Result<wgpu::SubmissionIndex> {
        match &x.place {
            Place::Host(stream) => match prepared {
                [prepared] => stream.pass(self, &x.slabs, prepared, stopwatch, last),
                _ => Err(Error::PlanMismatch { reason: "products are kept of tensors on the device only".into() }),
            },
            Place::Device { .. } => scoped(&self.device, "an MTTKRP", || {
                let mut encoder = self.encoder("mttkrp");
                Prepared::encode_all(prepared, &mut encoder, None, stopwatch.map(|stopwatch| stopwatch.writes(0)));
                last(&mut encoder);
                Ok(self.queue.submit([encoder.finish()]))
            }),
        }
    }

    /// Measures what may take long of a plan. Whatever is in the operands' buffers, a kernel's time is the same; the result is
    /// overwritten.
    pub(super) fn pace_mttkrp<T: Real, G: Real>(
        &self,
        plan: &MttkrpPlan,
        x: &GpuTensor<'_, T>,
        u: &GpuFactors<T>,
        g: &GpuMatrix<G>,
    ) -> Result<()> {
        self.check(plan, x, u, g)?;
        self.measure_pace(plan.dispatches(), |dispatch| {
            let params = vec![dispatch.params];
            self.prepare("pace", &[dispatch], params, |slot| self.bound(plan, x, u, g, slot))
        })
    }

    /// The buffer of a slot and how much of it is bound.
    fn bound<T: Real, G: Real>(
        &self,
        plan: &MttkrpPlan,
        x: &GpuTensor<'_, T>,
        u: &GpuFactors<T>,
        g: &GpuMatrix<G>,
        slot: Slot,
    ) -> Result<(wgpu::Buffer, u64)> {
        match slot {
            Slot::X(slab) => Ok(x.buffer(slab)),
            Slot::Factors(block) => Ok(whole(&u.buffers[block])),
            Slot::G(block) => Ok(whole(&g.buffers[block])),
            scratch => self.scratch.get(self, scratch, plan.scratch_bytes(scratch)).map(|buffer| whole(&buffer)),
        }
    }

    /// A plan as it is, whatever the numbers' range.
    pub(super) fn prepare_mttkrp<T: Real, G: Real>(
        &self,
        plan: &MttkrpPlan,
        x: &GpuTensor<'_, T>,
        u: &GpuFactors<T>,
        g: &GpuMatrix<G>,
    ) -> Result<Prepared> {
        self.check(plan, x, u, g)?;
        let x_scale = x.range.map_or(1.0, Range::x_scale);
        let scaled = plan.fallback().is_some().then_some(x_scale);
        let params = plan.dispatches().iter().map(|dispatch| with_scale(dispatch.params, scaled, plan.shape()));
        let mut prepared =
            self.prepare("mttkrp", plan.dispatches(), params.collect(), |slot| self.bound(plan, x, u, g, slot))?;
        // FUSED with partial results writes every entry itself.
        if plan.method() != Method::Fused || plan.dispatches().iter().any(|d| d.spec.atomic.is_some()) {
            prepared.cleared = g.buffers.clone();
        }
        Ok(prepared)
    }

    /// Kernels, bindings and parameters of dispatches.
    pub(super) fn prepare(
        &self,
        name: &'static str,
        dispatches: &[Dispatch],
        params: Vec<Params>,
        buffer: impl Fn(Slot) -> Result<(wgpu::Buffer, u64)>,
    ) -> Result<Prepared> {
        let stride = parameter_stride(params.iter().map(|p| p.bytes().len()), &self.caps);
        let together = side_by_side(dispatches);
        let parts: Vec<_> = dispatches
            .iter()
            .zip(params)
            .flat_map(|(dispatch, params)| {
                self.parts(dispatch, params, together).into_iter().map(move |(params, grid)| (dispatch, params, grid))
            })
            .collect();
        let mut bytes = vec![0u8; stride * parts.len().max(1)];
        for (slot, (_, params, _)) in bytes.chunks_mut(stride).zip(&parts) {
            let params = params.bytes();
            slot[..params.len()].copy_from_slice(params);
        }
        let usage = BufferUsages::UNIFORM | BufferUsages::COPY_DST;
        let (uniform, memory) = create_buffer(self, "params", bytes.len() as u64, usage)?;
        let label = format!("polyad.{name}");
        let mut steps = Vec::with_capacity(parts.len());
        let mut groups: HashMap<(&KernelSpec, &[Slot]), wgpu::BindGroup> = HashMap::new();
        // Each is asked for once: another thread may put a larger scratch buffer in the place of one between two requests,
        // and what one dispatch writes would not be what the next one reads.
        let mut buffers: HashMap<Slot, (wgpu::Buffer, u64)> = HashMap::new();
        scoped(&self.device, &format!("preparing {name}"), || {
            self.queue.write_buffer(&uniform, 0, &bytes);
            for (index, &(dispatch, ref params, grid)) in parts.iter().enumerate() {
                let size = params.bytes().len() as u64;
                let kernel = self.pipelines.get(&self.device, &dispatch.spec, dispatch.slots.len(), size)?;
                let key = (&dispatch.spec, &dispatch.slots[..]);
                if let Entry::Vacant(vacant) = groups.entry(key) {
                    for &slot in &dispatch.slots {
                        if let Entry::Vacant(vacant) = buffers.entry(slot) {
                            vacant.insert(buffer(slot)?);
                        }
                    }
                    let mut entries = vec![wgpu::BindGroupEntry {
                        binding: 0,
                        resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                            buffer: &uniform,
                            offset: 0,
                            size: wgpu::BufferSize::new(size),
                        }),
                    }];
                    entries.extend(dispatch.slots.iter().enumerate().map(|(binding, slot)| wgpu::BindGroupEntry {
                        binding: binding as u32 + 1,
                        resource: {
                            let (buffer, bytes) = &buffers[slot];
                            let size = wgpu::BufferSize::new(*bytes);
                            wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset: 0, size })
                        },
                    }));
                    let descriptor =
                        wgpu::BindGroupDescriptor { label: Some(&label), layout: &kernel.layout, entries: &entries };
                    vacant.insert(self.device.create_bind_group(&descriptor));
                }
                let (group, offset) = (groups[&key].clone(), (index * stride) as u32);
                steps.push(Step { kernel, group, offset, grid, slab: dispatch.slab });
            }
            Ok(())
        })?;
        Ok(Prepared { label, cleared: Vec::new(), steps, _memory: memory })
    }

    /// The plan itself, or its fallback where the numbers' range is too wide for f16 matrix units.
    pub(super) fn chosen<'a, T: Real>(
        &self,
        plan: &'a MttkrpPlan,
        x: &GpuTensor<'_, T>,
        u: &GpuFactors<T>,
    ) -> &'a MttkrpPlan {
        match (plan.fallback(), x.range) {
            (Some(fallback), None) => fallback,
            (Some(fallback), Some(range)) if !fits(plan, range, &u.ranges) => fallback,
            _ => plan,
        }
    }
}

/// Parameters with what only the device's tensor knows, its scale, where f16 matrix units are used.
pub(super) fn with_scale(params: Params, x_scale: Option<f32>, shape: &Shape) -> Params {
    match (params, x_scale) {
        (Params::Fused(p), Some(x_scale)) => Params::Fused(FusedParams { x_scale, ..p }),
        (Params::Reduce(p), Some(x_scale)) if p.scale_row as usize > weights_row(shape) => {
            Params::Reduce(ReduceParams { unscale: 1.0 / x_scale, ..p })
        }
        (other, _) => other,
    }
}

/// Dispatches with all they need, to be recorded any number of times.
#[derive(Debug)]
pub(super) struct Prepared {
    label: String,
    /// Buffers to fill with zeros first.
    cleared: Vec<wgpu::Buffer>,
    steps: Vec<Step>,
    /// Of the parameters.
    _memory: Ticket,
}

#[derive(Debug)]
struct Step {
    kernel: Arc<Kernel>,
    group: wgpu::BindGroup,
    /// Of its parameters.
    offset: u32,
    grid: [u32; 3],
    slab: usize,
}

/// A buffer bound from end to end.
pub(super) fn whole(buffer: &wgpu::Buffer) -> (wgpu::Buffer, u64) {
    (buffer.clone(), buffer.size())
}

impl Prepared {
    /// Dispatches.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// One compute pass, of all slabs or of one, before the first of which what has to be cleared is. To be called inside
    /// error scopes.
    pub fn encode(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        slab: Option<usize>,
        timestamps: Option<wgpu::ComputePassTimestampWrites<'_>>,
    ) {
        Self::encode_all(&[self], encoder, slab, timestamps);
    }

    /// One compute pass of all of them, one after the other. To be called inside error scopes.
    pub fn encode_all(
        all: &[&Self],
        encoder: &mut wgpu::CommandEncoder,
        slab: Option<usize>,
        timestamps: Option<wgpu::ComputePassTimestampWrites<'_>>,
    ) {
        if slab.is_none_or(|slab| slab == 0) {
            for buffer in all.iter().flat_map(|prepared| &prepared.cleared) {
                encoder.clear_buffer(buffer, 0, None);
            }
        }
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
            label: all.first().map(|prepared| &*prepared.label),
            timestamp_writes: timestamps,
        });
        let steps = all.iter().flat_map(|prepared| &prepared.steps);
        for step in steps.filter(|step| slab.is_none_or(|slab| step.slab == slab)) {
            pass.set_pipeline(&step.kernel.pipeline);
            pass.set_bind_group(0, &step.group, &[step.offset]);
            let [x, y, z] = step.grid;
            pass.dispatch_workgroups(x, y, z);
        }
    }
}
