//! Memory of an MTTKRP or of CP-ALS on a device, buffer by buffer, before any of it is allocated.

use super::memory::{buffer_bytes, buffer_limit, column_blocks, column_stride, factor_rows, slabs};
use super::streaming::{Streaming, slab_limit};
use super::{DeviceCaps, DeviceKind, Dispatch, Method, MttkrpPlan, Slot, TreePlan, UpdatePlan, gemm};
use crate::Result;
use std::ops::Range;

/// Bytes on the device. On a GPU they are those of the buffers that this crate makes, as `Gpu::memory` counts them; on the
/// CPU those of the arrays that a method works on. What a driver keeps for itself, and wgpu's staging of uploads (at most
/// some 64 MiB), is not in it.
///
/// ```
/// use polyad::plan::{DeviceCaps, Footprint, Method, MttkrpPlan, PlanOptions};
/// let (options, caps) = (PlanOptions::default().method(Method::Tile), DeviceCaps::webgpu_minimum("any GPU"));
/// let plan = MttkrpPlan::new(&[30, 20, 10], 0, 8, &options, &caps).unwrap();
/// let bytes = Footprint::mttkrp(&plan, &caps).unwrap();
/// assert_eq!((bytes.tensor, bytes.scratch), (30 * 20 * 10 * 4, 0));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Footprint {
    /// The tensor, all slabs; where it streams, one slab and what slabs are sent through.
    pub tensor: u64,
    /// All factors, with the weights and scales that lie behind them.
    pub factors: u64,
    /// Results: that of the mode, or for CP-ALS on the device those of all modes.
    pub result: u64,
    /// Scratch of the method: of each buffer the largest of the modes, as they share them.
    pub scratch: u64,
    /// The product of the tensor with some factors that CP-ALS keeps for several modes ([`TreePlan`]).
    pub tree: u64,
    /// What CP-ALS needs beside MTTKRPs: solutions, grams, sums.
    pub algebra: u64,
    /// Parameters, timestamps, and buffers that results are read through.
    pub other: u64,
    /// Set where all of the tensor and the rest exceed the device's memory ([`DeviceCaps::memory`]), and the tensor streams.
    pub streaming: Option<Streaming>,
}

impl Footprint {
    /// Of one MTTKRP by this plan.
    ///
    /// # Errors
    /// What planning the buffers says.
    pub fn mttkrp(plan: &MttkrpPlan, caps: &DeviceCaps) -> Result<Self> {
        Self::of_host_steps(std::slice::from_ref(plan), caps).map(|bytes| bytes.within(plan, caps))
    }

    /// Of CP-ALS with a plan for each mode, and what `tree` keeps of the tensor. Sums in f64 for f32 data and the f32
    /// kernels for numbers of too wide a range, which some data need, come on top of it.
    ///
    /// # Errors
    /// What planning the buffers says.
    ///
    /// ```
    /// use polyad::{Tree, plan::{DeviceCaps, Footprint, MttkrpPlan, PlanOptions, TreePlan}};
    /// let (options, caps) = (PlanOptions::default(), DeviceCaps::cpu(1));
    /// let plans: Vec<_> = (0..3).map(|n| MttkrpPlan::new(&[30, 20, 10], n, 8, &options, &caps).unwrap()).collect();
    /// let tree = TreePlan::of(&plans, Tree::Two, None, &options, &caps).unwrap();
    /// let bytes = Footprint::cp_als(&plans, &tree, &caps).unwrap();
    /// // The smaller of the two products of a dimension tree: modes 1 and 2 are left.
    /// assert_eq!(bytes.tree, 20 * 10 * 8 * 4);
    /// assert!(bytes.peak() > 30 * 20 * 10 * 4 + bytes.tree);
    /// ```
    pub fn cp_als(plans: &[MttkrpPlan], tree: &TreePlan, caps: &DeviceCaps) -> Result<Self> {
        let mut bytes = Self::of_host_steps(plans, caps)?;
        if caps.kind == DeviceKind::Cpu {
            // The loop keeps the factors and the results of all modes beside those of the backend.
            let dense = |plan: &MttkrpPlan| plan.shape().rows(plan.mode()) as u64 * plan.rank() as u64;
            let all = plans.iter().map(dense).sum::<u64>() * plans.first().map_or(0, |plan| plan.dtype().bytes());
            (bytes.result, bytes.other, bytes.tree) = (all, all, tree.bytes());
            bytes.scratch = bytes.scratch.max(plans.first().map_or(0, |plan| tree_on_cpu(tree, plan, caps.threads)));
            return Ok(bytes);
        }
        let updates: Result<Vec<_>> = plans.iter().map(|plan| UpdatePlan::new(plan, caps)).collect();
        let Some(first) = plans.first() else { return Ok(bytes) };
        let Ok(updates) = updates else { return Ok(bytes.within(first, caps)) };
        bytes.result = plans.iter().map(results).map(|blocks| blocks.sum::<u64>()).sum();
        let largest = |slot| buffer_bytes(updates.iter().map(|update| update.bytes(slot)).max().unwrap_or(0));
        bytes.algebra = UpdatePlan::SLOTS.into_iter().map(largest).sum();
        let stride = column_stride(first.rank()) as u64 * first.dtype().bytes();
        bytes.tree = tree.buffers().into_iter().map(buffer_bytes).sum();
        if tree.scratch() > 0 {
            let pieces = |plan: &MttkrpPlan| plan.scratch_bytes(Slot::Partial(0));
            let most = plans.iter().map(pieces).max().filter(|&bytes| bytes > 0).map_or(0, buffer_bytes);
            bytes.scratch += buffer_bytes(tree.scratch()).saturating_sub(most);
        }
        let by_product = |plan: &&MttkrpPlan| tree.group_before(plan.mode()).is_some_and(|group| tree.keeps(group));
        let segment = updates.first().map_or(0, UpdatePlan::segment) as u64 * 8;
        bytes.other = buffer_bytes(segment + UpdatePlan::TIMES)
            + if caps.timestamps { buffer_bytes(UpdatePlan::TIMES) } else { 0 }
            + plans.iter().filter(|plan| !by_product(plan)).map(|plan| parameters(plan.dispatches(), caps)).sum::<u64>()
            + (0..tree.groups().len()).map(|group| parameters_of_product(tree, group, caps)).sum::<u64>()
            + updates.iter().map(|update| parameters(update.dispatches(), caps)).sum::<u64>()
            // The factors are read back at the end.
            + buffer_bytes(first.shape().iter().sum::<usize>() as u64 * stride);
        Ok(bytes.within(first, caps))
    }

    /// MTTKRPs one after the other, each result read back.
    fn of_host_steps(plans: &[MttkrpPlan], caps: &DeviceCaps) -> Result<Self> {
        let Some(first) = plans.first() else { return Ok(Self::default()) };
        let (shape, rank, dtype) = (first.shape(), first.rank(), first.dtype());
        if caps.kind == DeviceKind::Cpu {
            let bytes = |count: usize| count as u64 * dtype.bytes();
            let scratch = plans.iter().map(|plan| on_cpu(plan, caps.threads)).max().unwrap_or(0);
            return Ok(Self {
                tensor: bytes(shape.len()),
                factors: shape.iter().sum::<usize>() as u64 * bytes(rank),
                result: plans.iter().map(|plan| shape.rows(plan.mode())).max().unwrap_or(0) as u64 * bytes(rank),
                scratch,
                ..Self::default()
            });
        }
        let limit = buffer_limit(caps, dtype);
        let tensor = slabs(shape, dtype, slab_limit(caps, dtype))?
            .iter()
            .map(|slab| buffer_bytes(slab.len() as u64 * dtype.bytes()))
            .sum();
        let rows = factor_rows(shape) as u64 * dtype.bytes();
        let columns = column_blocks(shape, rank, dtype, limit)?;
        let block = |ends: &[usize]| buffer_bytes(rows * column_stride(ends[1] - ends[0]) as u64);
        let times = if caps.timestamps { buffer_bytes(16) } else { 0 };
        // Parameters are gone when the result is read.
        let passing = |plan: &MttkrpPlan| {
            let staging = results(plan).max().unwrap_or(0);
            parameters(plan.dispatches(), caps).max(staging)
        };
        Ok(Self {
            tensor,
            factors: columns.windows(2).map(block).sum(),
            result: plans.iter().map(|plan| results(plan).sum()).max().unwrap_or(0),
            scratch: MttkrpPlan::scratch_of(plans, None).into_iter().map(|(_, bytes)| buffer_bytes(bytes)).sum(),
            tree: 0,
            algebra: 0,
            other: times + plans.iter().map(passing).max().unwrap_or(0),
            streaming: None,
        })
    }

    /// With the tensor streaming, where that is what makes it fit or is nearer to it.
    fn within(mut self, plan: &MttkrpPlan, caps: &DeviceCaps) -> Self {
        let resident_bytes = self.peak();
        let fits = caps.memory.is_none_or(|memory| resident_bytes <= memory);
        let streaming = Streaming::new(plan.slabs(), plan.dtype()).filter(|s| !fits && s.device_bytes < self.tensor);
        if let Some(streaming) = streaming {
            self.tensor = streaming.device_bytes;
            self.streaming = Some(Streaming { resident_bytes, ..streaming });
        }
        self
    }

    /// All of it together.
    pub fn peak(&self) -> u64 {
        [self.tensor, self.factors, self.result, self.scratch, self.tree, self.algebra, self.other]
            .into_iter()
            .fold(0, u64::saturating_add)
    }

    /// Cards with that much memory that together have as many bytes, all of the tensor's among them; `None` for cards of none.
    ///
    /// ```
    /// # use polyad::plan::*;
    /// # let caps = DeviceCaps::cpu(1);
    /// # let plan = MttkrpPlan::new(&[30, 20, 10], 0, 8, &PlanOptions::default(), &caps).unwrap();
    /// let bytes = Footprint::mttkrp(&plan, &caps).unwrap();
    /// assert_eq!((bytes.cards(bytes.peak()), bytes.cards(bytes.peak() - 1)), (Some(1), Some(2)));
    /// ```
    pub fn cards(&self, memory: u64) -> Option<u64> {
        let bytes = self.streaming.map_or(self.peak(), |streaming| streaming.resident_bytes);
        (memory > 0).then(|| bytes.div_ceil(memory))
    }

    /// Bytes of a Khatri-Rao product that is formed whole, as the matrix-based method of the paper does: `R` times the dims
    /// of all modes but the plan's.
    ///
    /// ```
    /// # use polyad::plan::*;
    /// # let caps = DeviceCaps::cpu(1);
    /// let plan = MttkrpPlan::new(&[30, 20, 10], 0, 8, &PlanOptions::default(), &caps).unwrap();
    /// assert_eq!(Footprint::whole_khatri_rao(&plan), 20 * 10 * 8 * 4);
    /// ```
    pub fn whole_khatri_rao(plan: &MttkrpPlan) -> u64 {
        let slice = (plan.shape().len() / plan.shape().rows(plan.mode())) as u64;
        slice.saturating_mul(plan.rank() as u64).saturating_mul(plan.dtype().bytes())
    }
}

/// Buffers of a plan's result.
fn results(plan: &MttkrpPlan) -> impl Iterator<Item = u64> {
    let row = plan.shape().rows(plan.mode()) as u64 * plan.sums().bytes();
    plan.columns().windows(2).map(move |ends| buffer_bytes(row * column_stride(ends[1] - ends[0]) as u64))
}

/// The uniform buffer of dispatches.
fn parameters(dispatches: &[Dispatch], caps: &DeviceCaps) -> u64 {
    let stride = parameter_stride(dispatches.iter().map(|d| d.params.bytes().len()), caps);
    buffer_bytes((stride * dispatches.len().max(1)) as u64)
}

/// The uniform buffers of a group's product and of all that comes of it.
fn parameters_of_product(tree: &TreePlan, group: usize, caps: &DeviceCaps) -> u64 {
    let results = (0..tree.order()).map(|mode| tree.result(group, mode));
    let all = results.chain([tree.product(group)]).filter(|dispatches| !dispatches.is_empty());
    all.map(|dispatches| parameters(dispatches, caps)).sum()
}

/// Distance of the parameters of one dispatch from those of the next.
pub(crate) fn parameter_stride(lengths: impl Iterator<Item = usize>, caps: &DeviceCaps) -> usize {
    lengths.max().unwrap_or(16).next_multiple_of(caps.uniform_alignment.max(16) as usize)
}

/// Arrays of a method on the CPU beside its operands: the operands that GEMM forms, and the partial sums of threads.
fn on_cpu(plan: &MttkrpPlan, threads: usize) -> u64 {
    let (shape, mode, rank) = (plan.shape(), plan.mode(), plan.rank());
    let (left, rows, right) = (shape.left(mode), shape.rows(mode), shape.right(mode));
    if shape.order() == 1 {
        return 0;
    }
    let entries = |count: usize| (count as u64).saturating_mul(rank as u64);
    let partials = entries(rows).saturating_mul(threads.saturating_sub(1) as u64);
    let words = match plan.method() {
        Method::Gemm if left == 1 => entries(right).saturating_add(partials),
        Method::Gemm if right == 1 => entries(left).saturating_add(partials),
        Method::Gemm => {
            entries(right).saturating_add(entries(left)).saturating_add(entries(rows.saturating_mul(left.min(right))))
        }
        // Parts that share no rows have no results of their own.
        Method::Fused => {
            let sharing = plan.walk().map_or(1, |walk| walk.parts);
            entries(rows).saturating_mul(sharing as u64 - 1)
        }
        // Rows are shared out where there are enough of them.
        Method::Slice => 0,
        Method::Tile if rows / 16 >= threads => 0,
        _ => partials,
    };
    // Without the block of the Khatri-Rao product, a few hundred KiB, that FUSED has for each thread.
    words.saturating_mul(plan.dtype().bytes())
}

/// Arrays that a kept product is made with on the CPU: the Khatri-Rao product of a group, and the sums of threads.
fn tree_on_cpu(tree: &TreePlan, plan: &MttkrpPlan, threads: usize) -> u64 {
    let (shape, rank) = (plan.shape(), plan.rank() as u64);
    let of = |(index, group): (usize, &Range<usize>)| {
        if !tree.keeps(index) {
            return 0;
        }
        let inner = shape[group.clone()].iter().product::<usize>();
        let rows = shape.len() / inner;
        let on_both_sides = shape.left(group.start) > 1 && group.end < shape.order() && shape.right(group.end - 1) > 1;
        // With modes kept on both sides there is a product for every index left of the group, several at a time.
        let (left, one) =
            if on_both_sides { (shape.left(group.start), rows / shape.left(group.start)) } else { (1, rows) };
        let parts = if gemm::in_panels(one, inner) { gemm::FIXED_PARTS.min(inner.div_ceil(gemm::PANEL)) } else { 1 };
        let partials = (one as u64).saturating_mul((parts - 1) as u64).saturating_mul(left.min(threads) as u64);
        let words = partials.saturating_add(inner as u64);
        // An MTTKRP of few rows is summed in parts.
        let few = shape.iter().copied().filter(|&dim| dim < 4 * gemm::FIXED_PARTS).max().unwrap_or(0);
        let sums = (few * (gemm::FIXED_PARTS - 1)) as u64;
        words.max(sums).saturating_mul(rank).saturating_mul(plan.dtype().bytes())
    };
    tree.groups().iter().enumerate().map(of).max().unwrap_or(0)
}
