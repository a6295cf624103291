//! Dimension trees: the tensor times the factors of some modes is kept for the modes that remain, so that a sweep of
//! CP-ALS reads the tensor fewer times than it has modes.

use super::fused::{View, first_of_rows, kernel, reduce_shape};
use super::kernel::{Dispatch, FusedParams, KernelSpec, MultiTtvParams, Params, ReduceParams, Slot};
use super::memory::{Slab, buffer_limit, column_blocks, column_stride, group_scale_row, slabs, weights_row};
use super::{DeviceCaps, DeviceKind, Method, PlanOptions, Problem, entrywise::per_mode, fold_grid, tuning};
use crate::{Error, Result, Shape};
use std::ops::Range;
use std::{fmt, str::FromStr};

/// Whether CP-ALS keeps partial products of the tensor. The updates and their order are the same in any case, and so are
/// the results but for rounding.
///
/// ```
/// use polyad::Tree;
/// assert_eq!("multi".parse::<Tree>().unwrap(), Tree::MultiSweep);
/// assert_eq!(Tree::default(), Tree::Auto);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Tree {
    /// What is likely to take least time within the memory budget.
    #[default]
    Auto,
    /// One MTTKRP a mode: as many passes over the tensor as it has modes.
    None,
    /// Two groups of modes, two passes a sweep: a dimension tree (Phan, Tichavsky and Cichocki 2013, sec. III).
    Two,
    /// Three groups or more: a product lasts from one sweep into the next, g / (g - 1) passes a sweep for g groups
    /// (multi-sweep dimension tree, Ma and Solomonik 2020).
    MultiSweep,
}

impl Tree {
    const ALL: [Self; 4] = [Self::Auto, Self::None, Self::Two, Self::MultiSweep];

    /// The word of the command line: `auto`, `none`, `two` or `multi`.
    ///
    /// ```
    /// assert_eq!(polyad::Tree::Two.name(), "two");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::None => "none",
            Self::Two => "two",
            Self::MultiSweep => "multi",
        }
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Tree {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|tree| tree.name() == text).ok_or_else(|| Error::Option {
            name: "tree",
            value: text.into(),
            requirement: "it must be auto, none, two or multi".into(),
        })
    }
}

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
    /// By group: what its product is made by; `None` where a single mode remains, whose MTTKRP it is.
    products: Vec<Option<Product>>,
    bytes: u64,
    budget: u64,
    reason: String,
    /// Without f16 matrix units.
    fallback: Option<Box<TreePlan>>,
}

/// The product with a group's factors, and what comes of it.
#[derive(Debug, Clone, PartialEq)]
struct Product {
    contraction: Contraction,
    /// By mode; empty for those of the group.
    results: Vec<Vec<Dispatch>>,
    /// By mode: longest chain of additions.
    chains: Vec<u64>,
    /// Bytes of the pieces of results.
    scratch: u64,
}

/// How the product is made, and how it lies in the buffer of each slab.
#[derive(Debug, Clone, PartialEq)]
struct Contraction {
    dispatches: Vec<Dispatch>,
    layouts: Vec<Layout>,
    /// Bytes of each slab's.
    bytes: Vec<u64>,
    chain: u64,
    f16: bool,
    /// Fewest workgroups of a dispatch.
    workgroups: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Layout {
    /// Rows from one index of the modes left of the group to the next.
    part: usize,
    stride: usize,
    /// Columns and X are scaled.
    scaled: bool,
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

impl TreePlan {
    /// Plans the sweeps of CP-ALS at `rank` for a tensor with these dims. Kept products take at most `memory_budget`
    /// bytes; by default as much as the tensor, or 64 MiB where that is more. Where a tree does not fit, or is not worth
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
        let budget = memory_budget.unwrap_or((shape.len() as u64 * options.dtype.bytes()).max(SMALL));
        let none = |reason: String| Self {
            order: shape.order(),
            groups: Vec::new(),
            products: Vec::new(),
            bytes: 0,
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
        let limit = buffer_limit(caps, options.dtype);
        let on_cpu = caps.kind == DeviceKind::Cpu;
        if !on_cpu && column_blocks(&shape, rank, options.dtype, limit)?.len() > 2 {
            return Ok(none(format!("the factors exceed a binding of {limit} bytes")));
        }
        let slabs = if on_cpu { Vec::new() } else { slabs(&shape, options.dtype, limit)? };
        let asked = Asked { shape: &shape, rank, options, caps, slabs, limit };
        let mut best: Option<(f64, Vec<Range<usize>>)> = None;
        let mut least: Option<u64> = None;
        let mut why_not = String::new();
        for groups in partitions(shape.order()) {
            match tree {
                Tree::Two if groups.len() != 2 => continue,
                Tree::MultiSweep if groups.len() < 3 => continue,
                _ => {}
            }
            match asked.cost(&groups) {
                Err(error) => why_not = error.to_string(),
                Ok((_, bytes)) if bytes > budget => least = Some(least.map_or(bytes, |least| least.min(bytes))),
                Ok((seconds, _)) if best.as_ref().is_none_or(|(best, _)| seconds < *best) => {
                    best = Some((seconds, groups))
                }
                Ok(_) => {}
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
            return Ok(none(format!("about {plain:.3} ms a sweep, with a tree {seconds:.3}")));
        }
        let reason = match tree {
            Tree::Auto => {
                format!("about {:.3} ms a sweep, {:.3} with an MTTKRP for every mode", 1e3 * seconds, 1e3 * plain)
            }
            _ => "asked for".into(),
        };
        asked.plan(groups, budget, reason)
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

    /// Bytes of the kept products.
    ///
    /// ```
    /// # use polyad::{Tree, plan::{DeviceCaps, PlanOptions, TreePlan}};
    /// let options = PlanOptions::default();
    /// let plan = TreePlan::new(&[9, 8, 10], 2, Tree::Two, None, &options, &DeviceCaps::cpu(1)).unwrap();
    /// assert_eq!(plan.bytes(), 9 * 8 * 2 * 4);
    /// ```
    pub fn bytes(&self) -> u64 {
        self.bytes
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
        Self { groups: Vec::new(), products: Vec::new(), bytes: 0, reason, fallback: None, ..self.clone() }
    }
}

/// What a GPU needs of it.
#[cfg(feature = "gpu")]
impl TreePlan {
    /// The plan without f16 matrix units, where there is one with.
    pub(crate) fn fallback(&self) -> Option<&Self> {
        self.fallback.as_deref()
    }

    /// The dispatches that make a group's product, one a slab.
    pub(crate) fn product(&self, group: usize) -> &[Dispatch] {
        self.products[group].as_ref().map_or(&[], |product| &product.contraction.dispatches)
    }

    /// Additions behind an entry of a group's product.
    pub(crate) fn product_chain(&self, group: usize) -> u64 {
        self.products[group].as_ref().map_or(0, |product| product.contraction.chain)
    }

    /// The dispatches that make a mode's MTTKRP of a group's product.
    pub(crate) fn result(&self, group: usize, mode: usize) -> &[Dispatch] {
        self.products[group].as_ref().map_or(&[], |product| &product.results[mode])
    }

    /// Longest chain of additions into an entry of that.
    #[cfg(test)]
    pub(crate) fn chain(&self, group: usize, mode: usize) -> u64 {
        self.products[group].as_ref().map_or(0, |product| product.chains[mode])
    }

    /// Bytes of the pieces of results.
    pub(crate) fn scratch(&self) -> u64 {
        self.products.iter().flatten().map(|product| product.scratch).max().unwrap_or(0)
    }

    /// Bytes of each slab's product, for the largest of them.
    pub(crate) fn slab_bytes(&self) -> Vec<u64> {
        let mut most = Vec::new();
        for product in self.products.iter().flatten() {
            most.resize(product.contraction.bytes.len(), 0);
            most.iter_mut().zip(&product.contraction.bytes).for_each(|(most, &bytes)| *most = bytes.max(*most));
        }
        most
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

    /// Roughly the seconds of a sweep's MTTKRPs with these groups, and the bytes kept.
    fn cost(&self, groups: &[Range<usize>]) -> Result<(f64, u64)> {
        let rates = tuning::rates(self.caps, self.options.dtype);
        let (order, count) = (self.shape.order(), groups.len() as f64);
        let (mut seconds, mut most) = (0.0, 0);
        for group in groups {
            let kept = order - group.len();
            if kept == 1 {
                seconds += self.pass(f64::INFINITY, 0.0);
                continue;
            }
            let (bytes, workgroups) = if self.caps.kind == DeviceKind::Cpu {
                let rows: usize = (0..order).filter(|m| !group.contains(m)).map(|m| self.shape[m]).product();
                (
                    (rows as u64).saturating_mul(self.rank as u64).saturating_mul(self.options.dtype.bytes()),
                    f64::INFINITY,
                )
            } else {
                let contraction = self.contraction(group)?;
                (contraction.bytes.iter().sum(), contraction.workgroups)
            };
            most = bytes.max(most);
            seconds += self.pass(workgroups, bytes as f64);
            seconds += kept as f64 * (bytes as f64 / rates.bytes + 2.0 * rates.step);
        }
        // Every product is made once in g - 1 sweeps.
        Ok((seconds / (count - 1.0), most))
    }

    fn plan(&self, groups: Vec<Range<usize>>, budget: u64, reason: String) -> Result<TreePlan> {
        let order = self.shape.order();
        let (_, bytes) = self.cost(&groups)?;
        let mut products = Vec::with_capacity(groups.len());
        for group in &groups {
            let single = order - group.len() == 1 || self.caps.kind == DeviceKind::Cpu;
            products.push(if single { None } else { Some(self.product(group)?) });
        }
        let fallback = if products.iter().flatten().any(|product| product.contraction.f16) {
            let caps = DeviceCaps { f16_matrix_units: false, ..self.caps.clone() };
            let without = Asked { caps: &caps, slabs: self.slabs.clone(), ..*self };
            Some(Box::new(without.plan(groups.clone(), budget, reason.clone())?))
        } else {
            None
        };
        let bytes = fallback.as_ref().map_or(bytes, |fallback| fallback.bytes.max(bytes));
        Ok(TreePlan { order, groups, products, bytes, budget, reason, fallback })
    }

    /// FUSED over the group's modes, one row of T for every index of the kept ones. Where modes are kept on both sides,
    /// every index of those on the left is a part of the reduction with a result of its own, in which it has no factor:
    /// its place in the parameters is a mode with one row, the weights, which are ones.
    fn contraction(&self, group: &Range<usize>) -> Result<Contraction> {
        let (shape, order) = (self.shape, self.shape.order());
        let (left, right) = (group.start > 0, group.end < order);
        let stride = column_stride(self.rank);
        let mut all = Contraction {
            dispatches: Vec::new(),
            layouts: Vec::new(),
            bytes: Vec::new(),
            chain: 0,
            f16: false,
            workgroups: f64::INFINITY,
        };
        for (index, slab) in self.slabs.iter().enumerate() {
            let (l, t) = (slab.dims[..group.start].iter().product(), slab.dims[group.end..].iter().product());
            // Modes whose factor is the row of ones. One alone would be followed by a count of all runs, beyond that row
            // (`fused_next`); of several each has an index that begins anew.
            let ones = if left && right { 3usize.saturating_sub(group.len()).max(1) } else { 0 };
            let mut dims = vec![1; ones.saturating_sub(1)];
            if left {
                dims.push(l);
            }
            dims.extend_from_slice(&slab.dims[group.clone()]);
            if right {
                dims.push(t);
            }
            let virtual_mode = if right { dims.len() - 1 } else { 0 };
            let batch = if left && right { l } else { 1 };
            let view = View::of(&dims, virtual_mode, batch);
            let virtual_shape = Shape::new(&dims)?;
            let columns = vec![0, self.rank];
            let problem = Problem { shape: &virtual_shape, mode: virtual_mode, options: self.options, columns };
            let kernel = kernel(&problem, view, self.rank, self.caps);
            let run = view.run(kernel.runs);
            let run_steps = run.div_ceil(kernel.step);
            let steps = view.reduction / run * run_steps;
            let (m_tiles, n_tiles) = (view.rows.div_ceil(kernel.bm), stride.div_ceil(kernel.bn));
            let (part, pitch) = (m_tiles * kernel.bm, n_tiles * kernel.bn);
            let bytes = (batch * part * pitch) as u64 * self.options.dtype.bytes();
            if bytes > self.limit {
                return Err(Error::LimitTooSmall {
                    limit: "max_storage_buffer_binding_size",
                    what: format!("the product with the factors of modes {} to {}", group.start, group.end - 1),
                    needed: bytes,
                    available: self.limit,
                });
            }
            let mut modes: Vec<(u32, u32)> = Vec::new();
            modes.extend(vec![(1, weights_row(shape) as u32); ones]);
            let row0 = |m: usize| (shape[..m].iter().sum::<usize>() + slab.offsets[m]) as u32;
            modes.extend(group.clone().map(|m| (slab.dims[m] as u32, row0(m))));
            let folded = m_tiles * batch * if kernel.along_z { 1 } else { n_tiles };
            let [x, y] = fold_grid(folded as u64, self.caps)?;
            let piece = steps / batch;
            let params = FusedParams {
                rows: view.rows as u32,
                right: view.right as u32,
                reduction: view.reduction as u32,
                stride4: (stride / 4) as u32,
                run: run as u32,
                run_steps: run_steps as u32,
                steps: steps as u32,
                piece: piece as u32,
                pieces: batch as u32,
                m_tiles: m_tiles as u32,
                column0: 0,
                partial_rows: part as u32,
                partial_stride4: (pitch / 4) as u32,
                grid_x: x,
                scale_row: group_scale_row(shape, group.start) as u32,
                x_scale: 1.0,
                last_row0: modes.last().map_or(0, |&(_, row)| row),
                run_stride: (if view.cols { run * view.rows } else { run }) as u32,
                turn_runs: u32::MAX,
                turn_stride: 0,
                dims: per_mode(modes.iter().map(|&(dim, _)| dim)),
                row0: per_mode(modes.iter().map(|&(_, row)| row)),
            };
            all.chain = all.chain.max((kernel.chain)(&kernel, piece) as u64);
            all.f16 |= kernel.f16;
            all.workgroups = all.workgroups.min((m_tiles * batch * n_tiles) as f64);
            // A single row is as many rows apart as there are parts.
            all.layouts.push(Layout { part: if right { part } else { 1 }, stride: pitch, scaled: kernel.f16 });
            all.bytes.push(bytes);
            all.dispatches.push(Dispatch {
                spec: kernel.spec,
                params: Params::Fused(params),
                slots: vec![Slot::X(index), Slot::X(index), Slot::Factors(0), Slot::Tree(index)],
                grid: [x, y, if kernel.along_z { n_tiles as u32 } else { 1 }],
            });
        }
        Ok(all)
    }

    fn product(&self, group: &Range<usize>) -> Result<Product> {
        let contraction = self.contraction(group)?;
        let order = self.shape.order();
        let (mut results, mut chains, mut scratch) = (Vec::new(), Vec::new(), 0);
        for mode in 0..order {
            let mut dispatches = Vec::new();
            let mut chain = 0;
            if !group.contains(&mode) {
                for index in 0..self.slabs.len() {
                    let (pair, additions, bytes) = self.result(group, &contraction, mode, index)?;
                    dispatches.extend(pair);
                    chain += contraction.chain + additions;
                    scratch = bytes.max(scratch);
                }
            }
            results.push(dispatches);
            chains.push(chain);
        }
        Ok(Product { contraction, results, chains, scratch })
    }

    /// A mode's MTTKRP of a slab of T: the dispatches, the additions and the bytes of its pieces.
    fn result(
        &self,
        group: &Range<usize>,
        contraction: &Contraction,
        mode: usize,
        index: usize,
    ) -> Result<([Dispatch; 2], u64, u64)> {
        let (shape, slab, layout) = (self.shape, &self.slabs[index], contraction.layouts[index]);
        let dtype = self.options.dtype;
        // Rows of T from one index of a kept mode to the next.
        let apart = |m: usize| match m < group.start {
            true => slab.dims[m + 1..group.start].iter().product::<usize>() * layout.part,
            false => slab.dims[m + 1..].iter().product(),
        };
        let others: Vec<usize> = (0..shape.order()).filter(|m| *m != mode && !group.contains(m)).collect();
        let (rows, reduction) = (slab.dims[mode], others.iter().map(|&m| slab.dims[m]).product::<usize>());
        let stride4 = column_stride(self.rank) / 4;
        let blocks = tuning::multi_ttv(stride4, reduction, others.iter().all(|&m| m < mode));
        let (row_tiles, column_tiles) = (rows.div_ceil(blocks.rows * blocks.tm), stride4.div_ceil(blocks.columns));
        let one = (rows * stride4 * 4) as u64 * dtype.bytes();
        if one > self.limit {
            return Err(Error::LimitTooSmall {
                limit: "max_storage_buffer_binding_size",
                what: format!("a partial result of mode {mode}"),
                needed: one,
                available: self.limit,
            });
        }
        let wanted = (blocks.groups / (row_tiles * column_tiles)).min(reduction.div_ceil(4 * blocks.lanes));
        let piece = reduction.div_ceil(wanted.min((self.limit / one) as usize).max(1));
        let pieces = reduction.div_ceil(piece);
        let row0 = |m: usize| (shape[..m].iter().sum::<usize>() + slab.offsets[m]) as u32;
        let [x, y] = fold_grid((row_tiles * column_tiles * pieces) as u64, self.caps)?;
        let params = MultiTtvParams {
            rows: rows as u32,
            stride4: stride4 as u32,
            t_stride4: (layout.stride / 4) as u32,
            row_stride: apart(mode) as u32,
            reduction: reduction as u32,
            piece: piece as u32,
            pieces: pieces as u32,
            row_tiles: row_tiles as u32,
            column_tiles: column_tiles as u32,
            grid_x: x,
            pad: [0; 2],
            dims: per_mode(others.iter().map(|&m| slab.dims[m] as u32)),
            row0: per_mode(others.iter().map(|&m| row0(m))),
            strides: per_mode(others.iter().map(|&m| apart(m) as u32)),
        };
        let consts = [
            ("OTHERS", others.len() as u32),
            ("COLUMNS", blocks.columns as u32),
            ("LANES", blocks.lanes as u32),
            ("ROWS", blocks.rows as u32),
            ("TM", blocks.tm as u32),
        ];
        let sum = Dispatch {
            spec: KernelSpec::new("multi_ttv", dtype, None, &consts),
            params: Params::MultiTtv(params),
            slots: vec![Slot::Tree(index), Slot::Factors(0), Slot::Partial],
            grid: [x, y, 1],
        };
        let (lanes, outputs) = reduce_shape(pieces);
        let [x, y] = fold_grid((rows * stride4).div_ceil(outputs) as u64, self.caps)?;
        let reduce = ReduceParams {
            rows: rows as u32,
            columns4: stride4 as u32,
            pieces: pieces as u32,
            partial_rows: rows as u32,
            partial_stride4: stride4 as u32,
            stride4: stride4 as u32,
            g_row0: slab.offsets[mode] as u32,
            column0: 0,
            scale_row: if layout.scaled { group_scale_row(shape, group.start) + 1 } else { weights_row(shape) } as u32,
            grid_x: x,
            unscale: 1.0,
            add: u32::from(!first_of_rows(&self.slabs, mode, index)),
        };
        let reduce = Dispatch {
            spec: KernelSpec::new(
                "reduce_partials",
                dtype,
                None,
                &[("LANES", lanes as u32), ("OUTPUTS", outputs as u32)],
            ),
            params: Params::Reduce(reduce),
            slots: vec![Slot::Partial, Slot::Factors(0), Slot::G(0)],
            grid: [x, y, 1],
        };
        let additions = piece.div_ceil(blocks.lanes) + blocks.lanes + pieces.div_ceil(lanes) + lanes + 1;
        Ok(([sum, reduce], additions as u64, one * pieces as u64))
    }
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
        write!(f, "keeps {} bytes of at most {}", self.bytes, self.budget)
    }
}

/// Which group's product is at hand, and whether its factors are still those that it was made of.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept {
    group: Option<usize>,
}

impl Kept {
    /// The group whose product serves a mode: the one at hand, or else the one to make first.
    pub fn group(&self, plan: &TreePlan, mode: usize) -> Option<(usize, bool)> {
        let at_hand = self.group.filter(|&group| !plan.groups[group].contains(&mode));
        let group = at_hand.or_else(|| plan.group_before(mode))?;
        plan.keeps(group).then_some((group, at_hand.is_some()))
    }

    /// A group's product has been made.
    pub fn made(&mut self, group: usize) {
        self.group = Some(group);
    }

    /// A mode's factor has changed.
    pub fn changed(&mut self, plan: &TreePlan, mode: usize) {
        self.group = self.group.filter(|&group| !plan.groups[group].contains(&mode));
    }

    /// Nothing is at hand.
    pub fn clear(&mut self) {
        self.group = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_all_cuts() {
        let found: Vec<_> = partitions(3).collect();
        assert_eq!(found, [vec![0..1, 1..3], vec![0..2, 2..3], vec![0..1, 1..2, 2..3]]);
        assert_eq!(partitions(8).count(), 127);
    }

    /// Passes of ten sweeps after the first: g / (g - 1) each, whatever the groups.
    #[test]
    fn products_last_as_long_as_their_factors() {
        for dims in [&[30, 20, 10][..], &[9, 8, 7, 6], &[5, 6, 4, 5, 3]] {
            for tree in [Tree::Two, Tree::MultiSweep] {
                let plan = TreePlan::new(dims, 3, tree, None, &PlanOptions::default(), &DeviceCaps::cpu(2)).unwrap();
                let mut kept = Kept::default();
                let mut passes = 0;
                let sweeps = 12 * (plan.groups().len() - 1);
                for _ in 0..sweeps {
                    for mode in 0..dims.len() {
                        match kept.group(&plan, mode) {
                            Some((_, true)) => {}
                            Some((group, false)) => {
                                passes += 1;
                                kept.made(group);
                            }
                            None => passes += 1,
                        }
                        kept.changed(&plan, mode);
                    }
                }
                let expected = plan.passes() * sweeps as f64;
                assert!((passes as f64 - expected).abs() < 1.0 + 1e-9, "{dims:?} {tree}: {passes} and {expected}");
            }
        }
    }
}
