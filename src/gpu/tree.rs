//! Products of the tensor with the factors of a group of modes, kept on the device for the others: see `plan/tree.rs`.

use super::Inner;
use super::buffers::{GpuFactors, GpuMatrix, GpuTensor};
use super::ledger::Ticket;
use super::range::{Range, fits_chain};
use super::record::{Prepared, whole, with_scale};
use super::scope::create_buffer;
use super::steps::Kernels;
use crate::plan::{Dispatch, Kept, Params, Slot, TreePlan};
use crate::{Error, Real, Result};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use wgpu::BufferUsages;

/// The kept product, and which it is.
pub(super) struct GpuTree<'a> {
    plan: &'a TreePlan,
    /// Of a product, or of some columns of it, of a slab or of several.
    buffers: Vec<wgpu::Buffer>,
    _memory: Vec<Ticket>,
    kept: Kept,
    /// What the product at hand was made by.
    by: Kernels,
    /// By group.
    products: HashMap<(usize, Kernels), Prepared>,
    /// By group and mode.
    results: HashMap<(usize, usize, Kernels), Prepared>,
}

impl<'a> GpuTree<'a> {
    /// Room for the plan's products.
    pub fn new(inner: &Inner, plan: &'a TreePlan) -> Result<Self> {
        let buffer = |(index, bytes)| create_buffer(inner, &format!("tree.{index}"), bytes, BufferUsages::STORAGE);
        let made = plan.buffers().into_iter().enumerate().map(buffer).collect::<Result<Vec<_>>>()?;
        let (buffers, _memory) = made.into_iter().unzip();
        let (products, results) = Default::default();
        Ok(Self { plan, buffers, _memory, kept: Kept::default(), by: Kernels::Own, products, results })
    }

    /// Whether a mode's MTTKRP follows from a kept product.
    pub fn serves(&self, mode: usize) -> bool {
        self.kept.group(self.plan, mode).is_some()
    }

    /// What a mode's product was made by, where it is at hand.
    pub fn at_hand(&self, mode: usize) -> Option<Kernels> {
        self.kept.group(self.plan, mode).filter(|&(_, at_hand)| at_hand).map(|_| self.by)
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

    /// The kernels of a mode's MTTKRP, and the passes over the tensor that they take. They have to be submitted.
    pub fn mttkrp<T: Real>(
        &mut self,
        inner: &Inner,
        x: &GpuTensor<T>,
        u: &GpuFactors<T>,
        g: &GpuMatrix<T>,
        (mode, by): (usize, Kernels),
    ) -> Result<(Vec<&Prepared>, usize)> {
        let Some((group, at_hand)) = self.kept.group(self.plan, mode) else {
            return Err(Error::PlanMismatch { reason: format!("no product is kept for mode {mode}") });
        };
        let plan = self.plan.fallback().filter(|_| by == Kernels::Fallback).unwrap_or(self.plan);
        let buffers = &self.buffers;
        let prepare = |dispatches: &[Dispatch]| prepare(inner, plan, buffers, x, u, g, dispatches);
        let fresh = !at_hand || self.by != by;
        let product = match self.products.entry((group, by)) {
            _ if !fresh => None,
            Entry::Occupied(there) => Some(&*there.into_mut()),
            Entry::Vacant(vacant) => Some(&*vacant.insert(prepare(plan.product(group))?)),
        };
        let result = match self.results.entry((group, mode, by)) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(prepare(plan.result(group, mode))?),
        };
        (self.by, self.kept) = (by, Kept::of(group));
        Ok((product.into_iter().chain([&*result]).collect(), usize::from(fresh)))
    }

    /// Measures what may take long of a mode's MTTKRP and was not measured yet. The product's buffers are overwritten where
    /// the product is to be made; sums over it go to pieces that are of no use before or after.
    pub fn pace<T: Real>(
        &self,
        inner: &Inner,
        x: &GpuTensor<T>,
        u: &GpuFactors<T>,
        g: &GpuMatrix<T>,
        (mode, by): (usize, Kernels),
    ) -> Result<()> {
        let Some((group, made)) = self.kept.group(self.plan, mode) else { return Ok(()) };
        let plan = self.plan.fallback().filter(|_| by == Kernels::Fallback).unwrap_or(self.plan);
        let one = |dispatch| prepare(inner, plan, &self.buffers, x, u, g, &[dispatch]);
        if (!made || self.by != by) && !self.products.contains_key(&(group, by)) {
            inner.measure_pace(plan.product(group), one)?;
        }
        if !self.results.contains_key(&(group, mode, by)) {
            let sums = plan.result(group, mode).iter().filter(|d| matches!(d.params, Params::MultiTtv(_)));
            inner.measure_pace(&sums.cloned().collect::<Vec<_>>(), one)?;
        }
        Ok(())
    }

    /// The group whose product is at hand.
    pub fn kept(&self) -> Option<usize> {
        self.kept.at_hand()
    }

    /// Has the product of this group made first.
    pub fn keep(&mut self, group: usize) {
        self.kept = Kept::again(self.plan, group);
    }

    /// A mode's factor has changed.
    pub fn changed(&mut self, mode: usize) {
        self.kept.changed(self.plan, mode);
    }
}

/// Kernels of a plan, with what they bind.
fn prepare<T: Real>(
    inner: &Inner,
    plan: &TreePlan,
    buffers: &[wgpu::Buffer],
    x: &GpuTensor<T>,
    u: &GpuFactors<T>,
    g: &GpuMatrix<T>,
    dispatches: &[Dispatch],
) -> Result<Prepared> {
    let scale = plan.fallback().map(|_| x.range.map_or(1.0, Range::x_scale));
    let params = dispatches.iter().map(|dispatch| with_scale(dispatch.params, scale, &x.shape)).collect();
    inner.prepare("mttkrp", dispatches, params, |slot| match slot {
        Slot::X(slab) => Ok(x.buffer(slab)),
        Slot::Factors(block) => Ok(whole(&u.buffers[block])),
        Slot::G(block) => Ok(whole(&g.buffers[block])),
        Slot::Tree(index) => Ok(whole(&buffers[index])),
        scratch => inner.scratch.get(inner, scratch, plan.scratch()).map(|buffer| whole(&buffer)),
    })
}
