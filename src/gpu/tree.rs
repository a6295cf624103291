//! Products of the tensor with the factors of a group of modes, kept on the device for the others: see `plan/tree.rs`.

use super::Inner;
use super::buffers::{GpuFactors, GpuMatrix, GpuTensor};
use super::range::{Range, fits_chain};
use super::record::{Prepared, with_scale};
use super::scope::create_buffer;
use super::steps::Kernels;
use crate::plan::{Kept, Slot, TreePlan};
use crate::{Real, Result};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use wgpu::BufferUsages;

/// The kept product, and which it is.
pub(super) struct GpuTree<'a> {
    plan: &'a TreePlan,
    /// By slab.
    buffers: Vec<wgpu::Buffer>,
    kept: Kept,
    /// What the product at hand was made by.
    by: Kernels,
    /// By group, mode, kernels, and whether the product is made first.
    prepared: HashMap<(usize, usize, Kernels, bool), Prepared>,
}

impl<'a> GpuTree<'a> {
    /// Room for the plan's products.
    pub fn new(inner: &Inner, plan: &'a TreePlan) -> Result<Self> {
        let mut bytes = plan.slab_bytes();
        for (most, other) in bytes.iter_mut().zip(plan.fallback().map(TreePlan::slab_bytes).unwrap_or_default()) {
            *most = other.max(*most);
        }
        let buffer =
            |(slab, &bytes)| create_buffer(&inner.device, &format!("tree.{slab}"), bytes, BufferUsages::STORAGE);
        let buffers = bytes.iter().enumerate().map(buffer).collect::<Result<_>>()?;
        Ok(Self { plan, buffers, kept: Kept::default(), by: Kernels::Own, prepared: HashMap::new() })
    }

    /// Which kernels a mode's product is to be made by, as the factors' magnitudes are known; `None` where no product is
    /// kept for that mode.
    pub fn kernels<T: Real>(&self, mode: usize, x: &GpuTensor<T>, u: &GpuFactors<T>) -> Option<Kernels> {
        let (group, _) = self.kept.group(self.plan, mode)?;
        if self.plan.fallback().is_none() {
            return Some(Kernels::Own);
        }
        let factors: Vec<&Vec<Range>> = self.plan.groups()[group].clone().filter_map(|m| u.ranges.get(m)).collect();
        let fits = |range| fits_chain(self.plan.product_chain(group), range, &factors);
        Some(if x.range.is_some_and(fits) { Kernels::Own } else { Kernels::Fallback })
    }

    /// The kernels of a mode's MTTKRP, and whether they begin with a pass over the tensor; `None` where no product is kept
    /// for that mode. They have to be submitted.
    pub fn mttkrp<T: Real>(
        &mut self,
        inner: &Inner,
        x: &GpuTensor<T>,
        u: &GpuFactors<T>,
        g: &GpuMatrix<T>,
        (mode, by): (usize, Kernels),
    ) -> Result<Option<(&Prepared, bool)>> {
        let Some((group, at_hand)) = self.kept.group(self.plan, mode) else { return Ok(None) };
        let fresh = !at_hand || self.by != by;
        let prepared = match self.prepared.entry((group, mode, by, fresh)) {
            Entry::Occupied(occupied) => occupied.into_mut(),
            Entry::Vacant(vacant) => {
                let without = self.plan.fallback().filter(|_| by == Kernels::Fallback);
                let plan = without.unwrap_or(self.plan);
                let mut dispatches = if fresh { plan.product(group).to_vec() } else { Vec::new() };
                dispatches.extend_from_slice(plan.result(group, mode));
                let scale = plan.fallback().map(|_| x.range.map_or(1.0, Range::x_scale));
                let params = dispatches.iter().map(|dispatch| with_scale(dispatch.params, scale, &x.shape)).collect();
                vacant.insert(inner.prepare("mttkrp", &dispatches, params, |slot| match slot {
                    Slot::X(slab) => Ok(x.buffers[slab].clone()),
                    Slot::Factors(block) => Ok(u.buffers[block].clone()),
                    Slot::G(block) => Ok(g.buffers[block].clone()),
                    Slot::Tree(slab) => Ok(self.buffers[slab].clone()),
                    scratch => inner.scratch.get(&inner.device, scratch, plan.scratch()),
                })?)
            }
        };
        if fresh {
            self.kept.made(group);
            self.by = by;
        }
        Ok(Some((prepared, fresh)))
    }

    /// A mode's factor has changed.
    pub fn changed(&mut self, mode: usize) {
        self.kept.changed(self.plan, mode);
    }
}
