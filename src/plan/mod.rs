//! Plans: pure arithmetic that decides everything about an MTTKRP before a device is touched.
//!
//! A plan is a printable value: the method and why, tile and column block, slabs, and for a GPU every dispatch with
//! its kernel, parameters, buffers and grid. Nothing here knows wgpu.

mod auto;
mod caps;
mod display;
mod entrywise;
mod footprint;
mod fused;
mod gemm;
mod kernel;
mod memory;
mod model;
mod options;
mod streaming;
mod tile_width;
mod tree;
mod tuning;
mod update;
mod walk;

pub use caps::{DeviceCaps, DeviceKind};
pub use footprint::Footprint;
#[cfg(feature = "gpu")]
pub(crate) use footprint::parameter_stride;
pub(crate) use gemm::{FIXED_PARTS, PANEL, in_panels};
pub use kernel::{
    AtomicAdd, Dispatch, EntryParams, FusedParams, GemmParams, KernelSpec, KhatriRaoParams, MultiTtvParams,
    MultiplySumParams, Params, PerMode, ReduceParams, Slot, UpdateParams,
};
pub use memory::{Slab, buffer_limit, column_blocks, column_stride, slabs};
#[cfg(feature = "gpu")]
pub(crate) use memory::{buffer_bytes, factor_rows, group_scale_row, weights_row};
pub use model::{Bound, CostModel, Machine, ModelBlocks, Prediction, Reuse};
pub use options::{Method, PlanOptions, Precision, Reduction, Tree};
pub use streaming::{Streaming, slab_limit};
pub(crate) use tree::Kept;
pub use tree::TreePlan;
#[cfg(feature = "gpu")]
pub(crate) use tuning::{DEFAULT_GROUPS, candidates, subgroup_size};
pub use tuning::{Tile, TileChoice, TileColumns, TileKernel, TileLayout, Tuning};
pub use update::UpdatePlan;
pub(crate) use walk::{Cut, Side, Walk};

use crate::{Dtype, Error, Result, Shape};

/// How one MTTKRP will be computed on one device.
///
/// ```
/// use polyad::plan::{DeviceCaps, Method, MttkrpPlan, PlanOptions};
/// let options = PlanOptions::default().method(Method::Tile).tile(4);
/// let plan = MttkrpPlan::new(&[30, 20, 10], 1, 8, &options, &DeviceCaps::webgpu_minimum("any GPU")).unwrap();
/// assert_eq!((plan.method(), plan.tile(), plan.rank()), (Method::Tile, 4, 8));
/// println!("{plan}");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct MttkrpPlan {
    shape: Shape,
    mode: usize,
    rank: usize,
    dtype: Dtype,
    method: Method,
    reason: String,
    warnings: Vec<String>,
    tile: usize,
    column_block: usize,
    columns: Vec<usize>,
    slabs: Vec<Slab>,
    dispatches: Vec<Dispatch>,
    scratch: Vec<(Slot, u64)>,
    /// What FUSED's is at most.
    scratch_bound: Option<u64>,
    chain: u64,
    /// Element type of sums and result.
    sums: Dtype,
    /// For a plan that uses f16 matrix units, what to do when the numbers' range is too wide for them.
    fallback: Option<Box<MttkrpPlan>>,
    /// Name of the tuning file that tiles come from.
    tuning: Option<String>,
    /// How FUSED walks X on a CPU.
    walk: Option<Walk>,
    /// Set where one MTTKRP with all of the tensor exceeds the device's memory.
    streaming: Option<Streaming>,
}

/// What the parts of the planner share.
struct Problem<'a> {
    shape: &'a Shape,
    mode: usize,
    options: &'a PlanOptions,
    /// First column of each block and, last, the rank.
    columns: Vec<usize>,
}

impl Problem<'_> {
    fn dtype(&self) -> Dtype {
        self.options.dtype
    }

    fn other_modes(&self) -> impl DoubleEndedIterator<Item = usize> {
        (0..self.shape.order()).filter(move |&m| m != self.mode)
    }

    fn weights_row(&self) -> u32 {
        memory::weights_row(self.shape) as u32
    }

    /// First factor row of each mode that a slab reads.
    fn row0(&self, slab: &Slab) -> PerMode {
        let first = |m: usize| self.shape[..m].iter().sum::<usize>() + slab.offsets[m];
        entrywise::per_mode((0..self.shape.order()).map(|m| first(m) as u32))
    }
}

impl MttkrpPlan {
    /// Plans the MTTKRP of `mode` at `rank` for a tensor with these dims.
    ///
    /// # Errors
    /// What [`Shape::new`] says of the dims, [`Error::ModeOutOfRange`], [`Error::RankZero`], [`Error::Option`] for a
    /// tile or column block of 0, [`Error::MissingFeature`] or [`Error::LimitTooSmall`] where the device cannot.
    ///
    /// ```
    /// use polyad::plan::{DeviceCaps, MttkrpPlan, PlanOptions};
    /// assert!(MttkrpPlan::new(&[3, 4], 2, 1, &PlanOptions::default(), &DeviceCaps::cpu(1)).is_err());
    /// ```
    pub fn new(dims: &[usize], mode: usize, rank: usize, options: &PlanOptions, caps: &DeviceCaps) -> Result<Self> {
        let shape = Shape::new(dims)?;
        shape.check_mode(mode)?;
        if rank == 0 {
            return Err(Error::RankZero);
        }
        // Any buffer of factors or results has to be addressable, with room for padding.
        let largest = shape.iter().sum::<usize>().saturating_add(64).max(rank);
        if largest.checked_mul(rank).and_then(|n| n.checked_mul(64)).is_none_or(|n| n > isize::MAX as usize) {
            return Err(Error::TooManyElements { what: "a factor matrix", dims: vec![largest, rank] });
        }
        for (name, value) in [("tile", options.tile), ("column_block", options.column_block)] {
            if value == Some(0) {
                return Err(Error::Option { name, value: "0".into(), requirement: "it must be at least 1".into() });
            }
        }
        let dtype = options.dtype;
        if dtype == Dtype::F64 && !caps.f64 {
            let needed_for = "dtype f64".into();
            return Err(Error::MissingFeature { adapter: caps.name.clone(), feature: "SHADER_F64", needed_for });
        }
        let limit = buffer_limit(caps, dtype);
        let on_gpu = caps.kind != DeviceKind::Cpu;
        let slabs = if on_gpu { slabs(&shape, dtype, slab_limit(caps, dtype))? } else { Vec::new() };
        let columns = if on_gpu { column_blocks(&shape, rank, dtype, limit)? } else { vec![0, rank] };
        let mut problem = Problem { shape: &shape, mode, options, columns };
        let mut warnings = Vec::new();
        let (method, mut reason, fused) = auto::resolve(&problem, caps, &slabs, limit)?;
        let (mut fallback, mut tuning, mut scratch_bound) = (None, None, None);
        let blocks = entrywise::blocks(&problem, method, caps, &mut warnings);
        let (dispatches, scratch, chain) = match (on_gpu, method) {
            (false, _) => (Vec::new(), Vec::new(), (shape.len() / shape.rows(mode)) as u64),
            (true, Method::Gemm) => {
                let (dispatches, bytes) = gemm::dispatches(&problem, caps, &slabs, limit)?;
                let scratch = gemm::SCRATCH.into_iter().zip(bytes).collect();
                (dispatches, scratch, gemm::chain(&problem, &slabs, limit))
            }
            (true, Method::Fused) => {
                let fused = match fused {
                    Some(fused) => fused,
                    None => fused::dispatches(&problem, caps, &slabs, limit)?,
                };
                if fused.f16 {
                    let without = DeviceCaps { f16_matrix_units: false, ..caps.clone() };
                    let options = options.clone().method(Method::Fused);
                    fallback = Some(Box::new(Self::new(&shape, mode, rank, &options, &without)?));
                }
                reason.push_str(&fused.why);
                scratch_bound = Some(fused.partial_bound);
                tuning = caps.tuning.as_ref().filter(|_| fused.tuned).map(|tuning| tuning.name().to_owned());
                if let Some(name) = &tuning {
                    reason.push_str(&format!("; tiles from tuning file {name}"));
                }
                let partials = fused.partial_bytes.iter().enumerate();
                let scratch = partials.map(|(place, &bytes)| (Slot::Partial(place), bytes)).collect();
                (fused.dispatches, scratch, fused.chain)
            }
            (true, _) => (
                entrywise::dispatches(&problem, method, blocks, caps, &slabs)?,
                Vec::new(),
                entrywise::chain(&problem, method, blocks, slabs.len()),
            ),
        };
        let fused_on_cpu = !on_gpu && method == Method::Fused && shape.order() > 1;
        let walk = fused_on_cpu.then(|| Walk::new(&shape, mode, rank, dtype));
        let columns = std::mem::take(&mut problem.columns);
        let (tile, column_block) = (blocks.tile, blocks.columns);
        let mut plan = Self {
            mode,
            rank,
            dtype,
            sums: options.sums(),
            method,
            reason,
            warnings,
            tile,
            column_block,
            columns,
            slabs,
            dispatches,
            scratch,
            scratch_bound,
            chain,
            fallback,
            tuning,
            walk,
            streaming: None,
            shape,
        };
        plan.streaming = Footprint::mttkrp(&plan, caps)?.streaming;
        Ok(plan)
    }

    /// The same MTTKRP of f32 data by FUSED with sums and result in f64.
    ///
    /// # Errors
    /// As for [`MttkrpPlan::new`].
    #[cfg(feature = "gpu")]
    pub(crate) fn wide(&self, caps: &DeviceCaps) -> Result<Self> {
        let options = PlanOptions { wide: true, ..PlanOptions::default().method(Method::Fused).dtype(self.dtype) };
        Self::new(&self.shape, self.mode, self.rank, &options, caps)
    }

    /// Element type of sums and result: the plan's, or f64 for f32 data.
    pub(crate) fn sums(&self) -> Dtype {
        self.sums
    }

    /// The tensor's shape.
    ///
    /// ```
    /// # use polyad::plan::{DeviceCaps, MttkrpPlan, PlanOptions};
    /// let plan = MttkrpPlan::new(&[3, 4], 1, 2, &PlanOptions::default(), &DeviceCaps::cpu(1)).unwrap();
    /// assert_eq!(plan.shape().dims(), [3, 4]);
    /// ```
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The mode: the result is `I_mode x R`.
    ///
    /// ```
    /// # use polyad::plan::{DeviceCaps, MttkrpPlan, PlanOptions};
    /// let plan = MttkrpPlan::new(&[3, 4], 1, 2, &PlanOptions::default(), &DeviceCaps::cpu(1)).unwrap();
    /// assert_eq!(plan.mode(), 1);
    /// ```
    pub fn mode(&self) -> usize {
        self.mode
    }

    /// The rank R.
    ///
    /// ```
    /// # use polyad::plan::{DeviceCaps, MttkrpPlan, PlanOptions};
    /// let plan = MttkrpPlan::new(&[3, 4], 1, 2, &PlanOptions::default(), &DeviceCaps::cpu(1)).unwrap();
    /// assert_eq!(plan.rank(), 2);
    /// ```
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Element type of tensor, factors and result.
    ///
    /// ```
    /// # use polyad::{plan::{DeviceCaps, MttkrpPlan, PlanOptions}, Dtype};
    /// let plan = MttkrpPlan::new(&[3, 4], 1, 2, &PlanOptions::default(), &DeviceCaps::cpu(1)).unwrap();
    /// assert_eq!(plan.dtype(), Dtype::F32);
    /// ```
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The method, resolved: never `Auto`.
    ///
    /// ```
    /// # use polyad::plan::{DeviceCaps, Method, MttkrpPlan, PlanOptions};
    /// let plan = MttkrpPlan::new(&[3, 4], 1, 2, &PlanOptions::default(), &DeviceCaps::cpu(1)).unwrap();
    /// assert_ne!(plan.method(), Method::Auto);
    /// ```
    pub fn method(&self) -> Method {
        self.method
    }

    /// Why this method.
    ///
    /// ```
    /// # use polyad::plan::{DeviceCaps, Method, MttkrpPlan, PlanOptions};
    /// let options = PlanOptions::default().method(Method::Slice);
    /// let plan = MttkrpPlan::new(&[3, 4], 1, 2, &options, &DeviceCaps::cpu(1)).unwrap();
    /// assert_eq!(plan.reason(), "asked for");
    /// ```
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// What the user should know, one line each: a tile that had to be clamped, for instance.
    ///
    /// ```
    /// # use polyad::plan::{DeviceCaps, MttkrpPlan, PlanOptions};
    /// let plan = MttkrpPlan::new(&[3, 4], 1, 2, &PlanOptions::default(), &DeviceCaps::cpu(1)).unwrap();
    /// assert!(plan.warnings().is_empty());
    /// ```
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// TILE's tau: the width of a tile along every mode but the plan's, at most the largest of their dims.
    ///
    /// ```
    /// # use polyad::plan::{DeviceCaps, MttkrpPlan, PlanOptions};
    /// let plan = MttkrpPlan::new(&[9, 4], 0, 2, &PlanOptions::default().tile(7), &DeviceCaps::cpu(1)).unwrap();
    /// assert_eq!(plan.tile(), 4);
    /// ```
    pub fn tile(&self) -> usize {
        self.tile
    }

    /// Column block F: ranks handled at a time.
    ///
    /// ```
    /// # use polyad::plan::{DeviceCaps, MttkrpPlan, PlanOptions};
    /// let plan = MttkrpPlan::new(&[9, 4], 0, 2, &PlanOptions::default(), &DeviceCaps::cpu(1)).unwrap();
    /// assert_eq!(plan.column_block(), 2);
    /// ```
    pub fn column_block(&self) -> usize {
        self.column_block
    }

    /// First column of each block of columns that has buffers of its own and, last, the rank.
    ///
    /// ```
    /// # use polyad::plan::{DeviceCaps, MttkrpPlan, PlanOptions};
    /// let plan = MttkrpPlan::new(&[9, 4], 0, 2, &PlanOptions::default(), &DeviceCaps::cpu(1)).unwrap();
    /// assert_eq!(plan.columns(), [0, 2]);
    /// ```
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// The slabs the tensor is cut into (none on the CPU, which does not cut it).
    ///
    /// ```
    /// # use polyad::plan::{DeviceCaps, MttkrpPlan, PlanOptions};
    /// let caps = DeviceCaps::webgpu_minimum("any GPU");
    /// let plan = MttkrpPlan::new(&[1000, 1000, 100], 0, 2, &PlanOptions::default(), &caps).unwrap();
    /// assert_eq!(plan.slabs().len(), 3);
    /// ```
    pub fn slabs(&self) -> &[Slab] {
        &self.slabs
    }

    /// The dispatches in order (none on the CPU).
    ///
    /// ```
    /// # use polyad::plan::{DeviceCaps, Method, MttkrpPlan, PlanOptions};
    /// let (options, caps) = (PlanOptions::default().method(Method::Gemm), DeviceCaps::webgpu_minimum("any GPU"));
    /// let plan = MttkrpPlan::new(&[9, 4, 5], 1, 2, &options, &caps).unwrap();
    /// let shaders: Vec<_> = plan.dispatches().iter().map(|d| d.spec.shader).collect();
    /// assert_eq!(shaders, ["khatri_rao", "gemm", "khatri_rao", "multiply_sum"]);
    /// ```
    pub fn dispatches(&self) -> &[Dispatch] {
        &self.dispatches
    }

    /// For a plan that uses f16 matrix units: the plan without them, for numbers whose range is too wide for f16.
    ///
    /// ```
    /// # use polyad::plan::{DeviceCaps, MttkrpPlan, PlanOptions};
    /// let caps = DeviceCaps::webgpu_minimum("any GPU");
    /// assert!(MttkrpPlan::new(&[9, 4], 0, 2, &PlanOptions::default(), &caps).unwrap().fallback().is_none());
    /// ```
    pub fn fallback(&self) -> Option<&Self> {
        self.fallback.as_deref()
    }

    /// For FUSED on a GPU, what its scratch is at most: the rank, rounded up to whole tiles, times the sum of the dims, and one
    /// tile for each workgroup that is wanted at the same time (see [`Tile::groups`]), in bytes; 0 where pieces are added
    /// atomically. `None` for other methods and on a CPU.
    ///
    /// ```
    /// # use polyad::plan::{DeviceCaps, Method, MttkrpPlan, PlanOptions};
    /// let (options, caps) = (PlanOptions::default().method(Method::Fused), DeviceCaps::webgpu_minimum("any GPU"));
    /// let plan = MttkrpPlan::new(&[200, 300, 400], 0, 32, &options, &caps).unwrap();
    /// assert!(plan.scratch_bound().is_some_and(|most| plan.total_scratch_bytes() <= most));
    /// // 32 columns times the sum of dims, and 1056 tiles of 128 x 32.
    /// assert_eq!(plan.scratch_bound(), Some(4 * (32 * 900 + 1056 * 128 * 32)));
    /// ```
    pub fn scratch_bound(&self) -> Option<u64> {
        self.scratch_bound
    }

    /// Name of the tuning file whose tiles it has; `None` where all are built-in ones. See [`Tuning`] for an example.
    pub fn tuning(&self) -> Option<&str> {
        self.tuning.as_deref()
    }

    /// How the tensor passes through the device where one MTTKRP with all of it there would not fit the device's memory; `None`
    /// where it fits, where memory is not known, and on a CPU. See [`Streaming`] for an example. CP-ALS needs more than one
    /// MTTKRP: [`Footprint::cp_als`] tells of it.
    pub fn streaming(&self) -> Option<Streaming> {
        self.streaming
    }

    /// How FUSED walks X on a CPU; `None` for anything else.
    pub(crate) fn walk(&self) -> Option<&Walk> {
        self.walk.as_ref()
    }

    /// Bytes of one scratch buffer on a GPU: GEMM has four, FUSED one for each slab that is
    /// in work at the same time (none for [`Reduction::Atomics`]), the others none.
    ///
    /// ```
    /// # use polyad::plan::{DeviceCaps, Method, MttkrpPlan, PlanOptions, Slot};
    /// let (options, caps) = (PlanOptions::default().method(Method::Gemm), DeviceCaps::webgpu_minimum("any GPU"));
    /// let plan = MttkrpPlan::new(&[9, 4, 5], 0, 2, &options, &caps).unwrap();
    /// assert_eq!(plan.scratch_bytes(Slot::KhatriRao), 4 * 5 * 4 * 4);
    /// ```
    pub fn scratch_bytes(&self, slot: Slot) -> u64 {
        self.scratch.iter().find(|(known, _)| *known == slot).map_or(0, |&(_, bytes)| bytes)
    }

    /// The scratch buffers that serve all of the plans, and another that is needed beside them: each as large as whoever
    /// needs most of it.
    pub(crate) fn scratch_of(plans: &[Self], another: Option<(Slot, u64)>) -> Vec<(Slot, u64)> {
        let mut all: Vec<(Slot, u64)> = Vec::new();
        let needed = plans.iter().flat_map(|plan| plan.scratch.iter().copied()).chain(another);
        for (slot, bytes) in needed.filter(|(_, bytes)| *bytes > 0) {
            match all.iter_mut().find(|(known, _)| *known == slot) {
                Some((_, most)) => *most = bytes.max(*most),
                None => all.push((slot, bytes)),
            }
        }
        all
    }

    /// Bytes of all scratch buffers on a GPU.
    ///
    /// ```
    /// # use polyad::plan::{DeviceCaps, Method, MttkrpPlan, PlanOptions};
    /// let (options, caps) = (PlanOptions::default().method(Method::Tile), DeviceCaps::webgpu_minimum("any GPU"));
    /// assert_eq!(MttkrpPlan::new(&[9, 4, 5], 0, 2, &options, &caps).unwrap().total_scratch_bytes(), 0);
    /// ```
    pub fn total_scratch_bytes(&self) -> u64 {
        self.scratch.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Longest chain of additions into one entry of the result: K of the rounding bound `(K + d + 1) eps S`.
    ///
    /// ```
    /// # use polyad::plan::{DeviceCaps, MttkrpPlan, PlanOptions};
    /// let plan = MttkrpPlan::new(&[9, 4], 0, 2, &PlanOptions::default(), &DeviceCaps::cpu(1)).unwrap();
    /// assert_eq!(plan.chain(), 4);
    /// ```
    pub fn chain(&self) -> u64 {
        self.chain
    }
}

/// Folds a count of workgroups over x and y.
fn fold_grid(groups: u64, caps: &DeviceCaps) -> Result<[u32; 2]> {
    let most = u64::from(caps.max_workgroups_per_dim);
    let y = groups.div_ceil(most).max(1);
    if y > most {
        return Err(Error::LimitTooSmall {
            limit: "max_compute_workgroups_per_dimension",
            what: format!("a grid of {groups} workgroups"),
            needed: y,
            available: most,
        });
    }
    Ok([groups.div_ceil(y) as u32, y as u32])
}
