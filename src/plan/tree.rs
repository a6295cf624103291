//! Dimension trees: the tensor times the factors of some modes is kept for the modes that remain, so that a sweep of
//! CP-ALS reads the tensor fewer times than it has modes.

mod dispatches;
mod kept;
#[cfg(test)]
mod tests;

pub(crate) use kept::Kept;

use super::kernel::Dispatch;
use super::memory::{Slab, buffer_limit, column_blocks, slabs};
use super::streaming::slab_limit;
use super::{DeviceCaps, DeviceKind, Footprint, Method, MttkrpPlan, PlanOptions, Reduction, Tree, tuning};
use crate::{Error, Result, Shape};
use dispatches::Product;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

/// A budget that a small tensor's products may take whatever its own size: 64 MiB.
const SMALL: u64 = 64 << 20;

/// Gain in time below which a tree is not worth it.
const WORTHWHILE: f64 = 0.9;

/// How the MTTKRPs of a sweep share passes over the tensor.
///
/// The modes are cut into groups of neighbours. The product of the tensor with the factors of one group,
/// `T[kept modes, r] = sum over the group's indices of X * product over the group of A_m[i_m, r]`, is made by FUSED (by a
/// matrix product on a CPU) and kept as long as those factors are; the other modes' MTTKRPs follow from it by sums over
/// T alone. With g groups every product serves all groups but its own, so there are `g / (g - 1)` passes a sweep.
///
/// ```
/// use polyad::{Tree, plan::{DeviceCaps, PlanOptions, TreePlan}};
/// let caps = DeviceCaps::webgpu_minimum("any GPU");
/// let plan = TreePlan::new(&[200, 300, 400], 16, Tree::MultiSweep, None, &PlanOptions::default(), &caps).unwrap();
/// assert_eq!((plan.passes(), plan.groups().len()), (1.5, 3));
/// println!("{plan}");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct TreePlan {
    order: usize,
    groups: Vec<Range<usize>>,
    /// By group: what its product is made by; `None` on the CPU, and where a single mode remains, whose MTTKRP it is.
    products: Vec<Option<Product>>,
    /// Bytes kept, by buffer.
    bytes: Vec<u64>,
    budget: u64,
    reason: String,
    /// Without f16 matrix units.
    fallback: Option<Box<TreePlan>>,
}
impl TreePlan {
    /// Plans the sweeps of CP-ALS at `rank` for a tensor with these dims. Kept products take at most `memory_budget`
    /// bytes; by default as much as the tensor, twice that on a GPU whose memory is known, or 64 MiB where that is more. Where a tree does not fit, or is not worth
    /// it under [`Tree::Auto`], there is one MTTKRP a mode, and [`reason`](Self::reason) says why.
    ///
    /// # Errors
    /// What [`Shape::new`] says of the dims, [`Error::RankZero`].
    ///
    /// ```
    /// use polyad::{Tree, plan::{DeviceCaps, PlanOptions, TreePlan}};
    /// let plan = |budget| TreePlan::new(&[40, 50, 60], 8, Tree::Two, Some(budget), &PlanOptions::default(), &DeviceCaps::cpu(4));
    /// assert_eq!(plan(64000).unwrap().passes(), 2.0);
    /// let plan = plan(63999).unwrap();
    /// assert_eq!(plan.passes(), 3.0);
    /// assert!(plan.reason().contains("63999"), "{plan}");
    /// ```
    pub fn new(
        dims: &[usize],
        rank: usize,
        tree: Tree,
        memory_budget: Option<u64>,
        options: &PlanOptions,
        caps: &DeviceCaps,
    ) -> Result<Self> {
        let shape = Shape::new(dims)?;
        if rank == 0 {
            return Err(Error::RankZero);
        }
        let budget = memory_budget.unwrap_or_else(|| {
            // Where it is known that they fit, products may be larger than the tensor.
            let times = if caps.kind != DeviceKind::Cpu && caps.memory.is_some() { 2 } else { 1 };
            (shape.len() as u64).saturating_mul(times * options.dtype.bytes()).max(SMALL)
        });
        let none = |reason: String| Self {
            order: shape.order(),
            groups: Vec::new(),
            products: Vec::new(),
            bytes: Vec::new(),
            budget,
            reason,
            fallback: None,
        };
        if tree == Tree::None {
            return Ok(none("asked for".into()));
        }
        if shape.order() < 3 {
            return Ok(none(format!("a tensor of order {} has no products to share", shape.order())));
        }
        if tree == Tree::Auto && !matches!(options.method, Method::Auto | Method::Fused) {
            return Ok(none(format!("method {} was asked for", options.method)));
        }
        if tree == Tree::Auto && options.reduction == Reduction::Atomics {
            return Ok(none("a reduction by atomics, without scratch, was asked for".into()));
        }
        let limit = buffer_limit(caps, options.dtype);
        let on_cpu = caps.kind == DeviceKind::Cpu;
        if !on_cpu && column_blocks(&shape, rank, options.dtype, limit)?.len() > 2 {
            return Ok(none(format!("the factors exceed a binding of {limit} bytes")));
        }
        let slabs = if on_cpu { Vec::new() } else { slabs(&shape, options.dtype, slab_limit(caps, options.dtype))? };
        let asked = Asked { shape: &shape, rank, options, caps, slabs, limit };
        let rooms = asked.rooms();
        let mut best: Option<(f64, Vec<Range<usize>>)> = None;
        let mut least: Option<u64> = None;
        let mut why_not = String::new();
        for groups in partitions(shape.order()) {
            match tree {
                Tree::Two if groups.len() != 2 => continue,
                Tree::MultiSweep if groups.len() < 3 => continue,
                _ => {}
            }
            let kept = groups.iter().filter_map(|group| rooms.get(group)).map(std::result::Result::as_ref);
            let kept = match kept.collect::<std::result::Result<Vec<&Room>, &Error>>() {
                Ok(kept) => kept,
                Err(error) => {
                    why_not = error.to_string();
                    continue;
                }
            };
            let bytes = sum(&largest(kept.iter().map(|room| &room.bytes)));
            if bytes > budget {
                least = Some(least.map_or(bytes, |least| least.min(bytes)));
                continue;
            }
            let seconds = asked.cost(&groups, &rooms);
            if best.as_ref().is_none_or(|(best, _)| seconds < *best) {
                best = Some((seconds, groups));
            }
        }
        let Some((seconds, groups)) = best else {
            return Ok(none(match least {
                Some(least) => format!("kept products take {least} bytes, the memory budget is {budget}"),
                None => format!("no product can be kept: {why_not}"),
            }));
        };
        let plain = asked.plain_cost();
        if tree == Tree::Auto && seconds > plain * WORTHWHILE {
            let (seconds, plain) = (1e3 * seconds, 1e3 * plain);
            return Ok(none(format!("about {plain:.3} ms of MTTKRPs a sweep, with a tree {seconds:.3}")));
        }
        let reason = match tree {
            Tree::Auto => {
                format!("about {:.3} ms of MTTKRPs a sweep, {:.3} with one for every mode", 1e3 * seconds, 1e3 * plain)
            }
            _ => "asked for".into(),
        };
        asked.plan(groups, budget, reason)
    }

    /// The same for CP-ALS with these plans, one for each mode, of `caps`' device: less is kept, or nothing, where it would
    /// exceed the memory that the device is known to have.
    ///
    /// # Errors
    /// As [`TreePlan::new`].
    ///
    /// ```
    /// use polyad::{Tree, plan::{DeviceCaps, MttkrpPlan, PlanOptions, TreePlan}};
    /// let (options, mut caps) = (PlanOptions::default(), DeviceCaps::webgpu_minimum("a card"));
    /// let plans: Vec<_> = (0..3).map(|n| MttkrpPlan::new(&[60, 50, 40], n, 8, &options, &caps).unwrap()).collect();
    /// let passes = |caps: &DeviceCaps| TreePlan::of(&plans, Tree::Two, None, &options, caps).unwrap().passes();
    /// assert_eq!(passes(&caps), 2.0);
    /// caps.memory = Some(60 * 50 * 40 * 4);
    /// assert_eq!(passes(&caps), 3.0);
    /// ```
    pub fn of(
        plans: &[MttkrpPlan],
        tree: Tree,
        memory_budget: Option<u64>,
        options: &PlanOptions,
        caps: &DeviceCaps,
    ) -> Result<Self> {
        let (dims, rank) = plans.first().map_or((&[][..], 0), |plan| (plan.shape().dims(), plan.rank()));
        let mut plan = Self::new(dims, rank, tree, memory_budget, options, caps)?;
        let Some(memory) = caps.memory else { return Ok(plan) };
        let mut why = None;
        while !plan.groups.is_empty() {
            // A tensor that streams leaves no room for products, and one that need not stream is worth more.
            let bytes = Footprint::cp_als(plans, &plan, caps)?;
            let needed = bytes.streaming.map_or(bytes.peak(), |streaming| streaming.resident_bytes);
            if needed <= memory {
                return Ok(plan);
            }
            // Smaller products may fit.
            let room = plan.bytes().min(plan.budget).saturating_sub(needed - memory);
            let name = &caps.name;
            why.get_or_insert_with(|| format!("with kept products {needed} bytes are needed, and {name} has {memory}"));
            plan = Self::new(dims, rank, tree, Some(room), options, caps)?;
        }
        Ok(match why {
            Some(why) => plan.without(why),
            None => plan,
        })
    }

    /// The groups of modes; empty where every mode has an MTTKRP of its own.
    ///
    /// ```
    /// # use polyad::{Tree, plan::{DeviceCaps, PlanOptions, TreePlan}};
    /// let plan = TreePlan::new(&[9, 9, 9], 2, Tree::None, None, &PlanOptions::default(), &DeviceCaps::cpu(1)).unwrap();
    /// assert!(plan.groups().is_empty());
    /// ```
    pub fn groups(&self) -> &[Range<usize>] {
        &self.groups
    }

    /// Passes over the tensor a sweep, in the long run.
    ///
    /// ```
    /// # use polyad::{Tree, plan::{DeviceCaps, PlanOptions, TreePlan}};
    /// let plan = TreePlan::new(&[9, 9, 9], 2, Tree::None, None, &PlanOptions::default(), &DeviceCaps::cpu(1)).unwrap();
    /// assert_eq!(plan.passes(), 3.0);
    /// ```
    pub fn passes(&self) -> f64 {
        match self.groups.len() {
            0 => self.order as f64,
            groups => groups as f64 / (groups - 1) as f64,
        }
    }

    /// Bytes of the kept product; one is kept at a time.
    ///
    /// ```
    /// # use polyad::{Tree, plan::{DeviceCaps, PlanOptions, TreePlan}};
    /// let options = PlanOptions::default();
    /// let plan = TreePlan::new(&[9, 8, 10], 2, Tree::Two, None, &options, &DeviceCaps::cpu(1)).unwrap();
    /// assert_eq!(plan.bytes(), 9 * 8 * 2 * 4);
    /// ```
    pub fn bytes(&self) -> u64 {
        sum(&self.buffers())
    }

    /// Why these groups, or none.
    ///
    /// ```
    /// # use polyad::{Tree, plan::{DeviceCaps, PlanOptions, TreePlan}};
    /// let plan = TreePlan::new(&[9, 9], 2, Tree::Auto, None, &PlanOptions::default(), &DeviceCaps::cpu(1)).unwrap();
    /// assert_eq!(plan.reason(), "a tensor of order 2 has no products to share");
    /// ```
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// All dispatches, of every product and all that comes of it (none on the CPU).
    ///
    /// ```
    /// # use polyad::{Tree, plan::{DeviceCaps, PlanOptions, TreePlan}};
    /// let caps = DeviceCaps::webgpu_minimum("any GPU");
    /// let plan = TreePlan::new(&[9, 8, 10], 2, Tree::Two, None, &PlanOptions::default(), &caps).unwrap();
    /// let shaders: Vec<_> = plan.dispatches().map(|d| d.spec.shader).collect();
    /// assert_eq!(shaders[1..], ["multi_ttv", "reduce_partials", "multi_ttv", "reduce_partials"]);
    /// ```
    pub fn dispatches(&self) -> impl Iterator<Item = &Dispatch> {
        let products = self.products.iter().flatten();
        products.flat_map(|product| product.contraction.dispatches.iter().chain(product.results.iter().flatten()))
    }

    /// Order of the tensor.
    pub(super) fn order(&self) -> usize {
        self.order
    }

    /// The group whose product a mode is to be made of when none is at hand: the one before the mode's own, whose factors
    /// are the last to change.
    pub(crate) fn group_before(&self, mode: usize) -> Option<usize> {
        let own = self.groups.iter().position(|group| group.contains(&mode))?;
        Some((own + self.groups.len() - 1) % self.groups.len())
    }

    /// Whether the group's product is kept, or is the MTTKRP of the single mode that remains.
    pub(crate) fn keeps(&self, group: usize) -> bool {
        self.order - self.groups[group].len() > 1
    }

    /// One MTTKRP a mode after all, for this reason.
    pub(crate) fn without(&self, reason: String) -> Self {
        Self { groups: Vec::new(), products: Vec::new(), bytes: Vec::new(), reason, fallback: None, ..self.clone() }
    }

    /// Bytes of each buffer, of a product or some of its columns, of a slab or several; all products share them.
    pub(crate) fn buffers(&self) -> Vec<u64> {
        largest([Some(&self.bytes), self.fallback.as_ref().map(|without| &without.bytes)].into_iter().flatten())
    }

    /// Bytes of the pieces that MTTKRPs are summed from.
    pub(crate) fn scratch(&self) -> u64 {
        let own = self.products.iter().flatten().map(|product| product.scratch).max().unwrap_or(0);
        own.max(self.fallback.as_ref().map_or(0, |without| without.scratch()))
    }

    /// The dispatches that make a group's product, one a buffer.
    pub(crate) fn product(&self, group: usize) -> &[Dispatch] {
        self.products[group].as_ref().map_or(&[], |product| &product.contraction.dispatches)
    }

    /// The dispatches that make a mode's MTTKRP of a group's product.
    pub(crate) fn result(&self, group: usize, mode: usize) -> &[Dispatch] {
        self.products[group].as_ref().map_or(&[], |product| &product.results[mode])
    }
}

/// What a GPU needs of it.
#[cfg(feature = "gpu")]
impl TreePlan {
    /// The plan without f16 matrix units, where there is one with.
    pub(crate) fn fallback(&self) -> Option<&Self> {
        self.fallback.as_deref()
    }

    /// Additions behind an entry of a group's product.
    pub(crate) fn product_chain(&self, group: usize) -> u64 {
        self.products[group].as_ref().map_or(0, |product| product.contraction.chain)
    }

    /// Longest chain of additions into an entry of that.
    #[cfg(test)]
    pub(crate) fn chain(&self, group: usize, mode: usize) -> u64 {
        self.products[group].as_ref().map_or(0, |product| product.chains[mode])
    }

    /// Bit m is set if a group begins with mode m.
    pub(crate) fn first_modes(&self) -> u32 {
        self.groups.iter().fold(0, |bits, group| bits | 1 << group.start)
    }
}

/// All ways to cut the modes into two groups of neighbours or more.
fn partitions(order: usize) -> impl Iterator<Item = Vec<Range<usize>>> {
    (1u32..1 << (order - 1)).map(move |cuts| {
        let ends = (1..order).filter(|&m| cuts >> (m - 1) & 1 == 1).chain([order]);
        let mut from = 0;
        ends.map(|end| std::mem::replace(&mut from, end)..end).collect()
    })
}

impl fmt::Display for TreePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.groups.len() {
            0 => return write!(f, "{} passes a sweep, one MTTKRP a mode: {}", self.order, self.reason),
            2 => "dimension tree",
            _ => "multi-sweep dimension tree",
        };
        let modes = |group: &Range<usize>| group.clone().map(|m| m.to_string()).collect::<Vec<_>>().join(" ");
        let groups: Vec<String> = self.groups.iter().map(modes).collect();
        let (passes, groups) = (self.passes(), groups.join(" | "));
        write!(f, "{passes:.2} passes a sweep, {kind} of modes {groups}: {}; ", self.reason)?;
        write!(f, "keeps {} bytes of at most {}", self.bytes(), self.budget)
    }
}

/// What the planner is asked.
struct Asked<'a> {
    shape: &'a Shape,
    rank: usize,
    options: &'a PlanOptions,
    caps: &'a DeviceCaps,
    slabs: Vec<Slab>,
    limit: u64,
}

/// What a group's product takes.
struct Room {
    /// By buffer, whichever kernels make it.
    bytes: Vec<u64>,
    /// By the kernels that are meant to.
    written: f64,
    /// That share the pass which makes it.
    workgroups: f64,
}

impl Asked<'_> {
    fn element(&self) -> f64 {
        self.options.dtype.bytes() as f64
    }

    /// Seconds of a pass over X that `workgroups` share and that writes `written` bytes.
    fn pass(&self, workgroups: f64, written: f64) -> f64 {
        let rates = tuning::rates(self.caps, self.options.dtype);
        let entries = self.shape.len() as f64;
        let full =
            (2.0 * entries * self.rank as f64 / rates.flops).max((entries * self.element() + written) / rates.bytes);
        full * (rates.groups / workgroups).max(1.0) + 2.0 * rates.step
    }

    /// Roughly the seconds of a sweep's MTTKRPs without a tree.
    fn plain_cost(&self) -> f64 {
        self.shape.order() as f64 * self.pass(f64::INFINITY, 0.0)
    }

    /// What the product of every group takes that may be kept, or why it cannot be had.
    fn rooms(&self) -> HashMap<Range<usize>, Result<Room>> {
        let order = self.shape.order();
        let ranges = (0..order).flat_map(|start| (start + 1..=order).map(move |end| start..end));
        ranges.filter(|group| order - group.len() > 1).map(|group| (group.clone(), self.room(&group))).collect()
    }

    fn room(&self, group: &Range<usize>) -> Result<Room> {
        if self.caps.kind == DeviceKind::Cpu {
            let kept = (0..self.shape.order()).filter(|m| !group.contains(m)).map(|m| self.shape[m] as u64);
            let bytes = kept.fold(self.rank as u64 * self.options.dtype.bytes(), u64::saturating_mul);
            return Ok(Room { bytes: vec![bytes], written: bytes as f64, workgroups: f64::INFINITY });
        }
        let contraction = self.contraction(group)?;
        let mut bytes = contraction.bytes;
        let written = sum(&bytes) as f64;
        if contraction.f16 {
            // The kernels that take over where numbers need it have tiles of their own.
            let without = self.without_f16();
            let fallback = Asked { caps: &without, slabs: self.slabs.clone(), ..*self }.contraction(group)?;
            bytes = largest([&bytes, &fallback.bytes].into_iter());
        }
        Ok(Room { workgroups: contraction.workgroups, written, bytes })
    }

    fn without_f16(&self) -> DeviceCaps {
        DeviceCaps { f16_matrix_units: false, ..self.caps.clone() }
    }

    /// Roughly the seconds of a sweep's MTTKRPs with these groups. One that has no room is the MTTKRP of a mode. The host's
    /// work on the normal equations beside them is left out: where it takes longer than they do, any choice takes as long,
    /// and how fast it is follows from the host's threads, on which no choice may depend.
    fn cost(&self, groups: &[Range<usize>], rooms: &HashMap<Range<usize>, Result<Room>>) -> f64 {
        let rates = tuning::rates(self.caps, self.options.dtype);
        let one = |group: &Range<usize>| match rooms.get(group) {
            Some(Ok(room)) => {
                let (bytes, kept) = (room.written, (self.shape.order() - group.len()) as f64);
                self.pass(room.workgroups, bytes) + kept * (bytes / rates.bytes + 2.0 * rates.step)
            }
            _ => self.pass(f64::INFINITY, 0.0),
        };
        // Every product is made once in g - 1 sweeps.
        groups.iter().map(one).sum::<f64>() / (groups.len() - 1) as f64
    }

    fn plan(&self, groups: Vec<Range<usize>>, budget: u64, reason: String) -> Result<TreePlan> {
        let order = self.shape.order();
        let kept = |group: &&Range<usize>| order - group.len() > 1;
        let rooms = groups.iter().filter(kept).map(|group| self.room(group)).collect::<Result<Vec<_>>>()?;
        let bytes = largest(rooms.iter().map(|room| &room.bytes));
        let product = |group| match Some(group).filter(kept).filter(|_| self.caps.kind != DeviceKind::Cpu) {
            Some(group) => self.product(group).map(Some),
            None => Ok(None),
        };
        let products = groups.iter().map(product).collect::<Result<Vec<_>>>()?;
        let fallback = if products.iter().flatten().any(|product| product.contraction.f16) {
            let caps = self.without_f16();
            let without = Asked { caps: &caps, slabs: self.slabs.clone(), ..*self };
            Some(Box::new(without.plan(groups.clone(), budget, reason.clone())?))
        } else {
            None
        };
        Ok(TreePlan { order, groups, products, bytes, budget, reason, fallback })
    }
}

/// The largest of the numbers at each place.
fn largest<'a>(all: impl Iterator<Item = &'a Vec<u64>>) -> Vec<u64> {
    let mut most = Vec::new();
    for numbers in all {
        most.resize(numbers.len().max(most.len()), 0);
        most.iter_mut().zip(numbers).for_each(|(most, &number)| *most = number.max(*most));
    }
    most
}

fn sum(bytes: &[u64]) -> u64 {
    bytes.iter().fold(0, |sum, &bytes| sum.saturating_add(bytes))
}
