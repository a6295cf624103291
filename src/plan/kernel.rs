//! What a plan is made of: which kernel, with which constants, on which buffers, over which grid.

use crate::{Dtype, MAX_ORDER};
use bytemuck::{Pod, Zeroable};
use std::fmt;

/// How kernels that share output entries add to them.
///
/// ```
/// assert_eq!(polyad::plan::AtomicAdd::F32.shader(), "atomic_add_f32");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AtomicAdd {
    /// The adapter's own f32 atomic addition.
    F32,
    /// A compare-exchange loop on 32-bit words.
    CompareExchange32,
    /// A compare-exchange loop on 64-bit words.
    CompareExchange64,
}

impl AtomicAdd {
    /// The shader file (without `.wgsl`) that is put in front of the kernel.
    pub fn shader(self) -> &'static str {
        match self {
            Self::F32 => "atomic_add_f32",
            Self::CompareExchange32 => "atomic_add_cas32",
            Self::CompareExchange64 => "atomic_add_cas64",
        }
    }
}

/// One specialised kernel: the plan's output, the pipeline cache's key and the pipeline's label.
///
/// ```
/// use polyad::{plan::{DeviceCaps, KernelSpec}, Dtype};
/// let spec = KernelSpec::new("khatri_rao", Dtype::F32, None, &[("WG", 64)]);
/// assert_eq!(spec.to_string(), "khatri_rao f32 WG=64");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct KernelSpec {
    /// File name under `shaders/`, without `.wgsl`.
    pub shader: &'static str,
    /// Element type of sums and results.
    pub dtype: Dtype,
    /// Element type of the tensor and the factors, where a kernel tells them apart: f32 data may be summed in f64.
    pub stored: Dtype,
    /// How it adds to shared output entries, if it has to.
    pub atomic: Option<AtomicAdd>,
    /// The numbers put into its `// @spec` lines.
    pub consts: Vec<(&'static str, u32)>,
}

impl KernelSpec {
    /// A specification.
    pub fn new(shader: &'static str, dtype: Dtype, atomic: Option<AtomicAdd>, consts: &[(&'static str, u32)]) -> Self {
        Self { shader, dtype, stored: dtype, atomic, consts: consts.to_vec() }
    }

    /// With tensor and factors in another element type than sums.
    pub(super) fn stored(mut self, dtype: Dtype) -> Self {
        self.stored = dtype;
        self
    }
}

impl fmt::Display for KernelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.shader, self.dtype)?;
        if self.stored != self.dtype {
            write!(f, " of {}", self.stored)?;
        }
        if let Some(atomic) = self.atomic {
            write!(f, " {}", atomic.shader())?;
        }
        self.consts.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

/// A buffer that a dispatch binds.
///
/// ```
/// assert_ne!(polyad::plan::Slot::X(0), polyad::plan::Slot::X(1));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Slot {
    /// A slab of the tensor.
    X(usize),
    /// Factor rows and, in the last row, the weights, of one block of columns.
    Factors(usize),
    /// The result's columns of one block.
    G(usize),
    /// Scratch: Khatri-Rao rows that a matrix product reads.
    KhatriRao,
    /// Scratch: the one-sided product of a middle mode (GEMM, 0 only), pieces of the result (FUSED by partial results, one
    /// for each slab that is in work at the same time).
    Partial(usize),
    /// Scratch: Khatri-Rao rows of the other side of a middle mode.
    Outer,
    /// A slab's product with the factors of some modes, kept for the others ([`TreePlan`](super::TreePlan)), or some of its
    /// columns where all exceed a binding.
    Tree(usize),
    /// A root F of the inverse of the normal equations, `R x R` in f64 ([`UpdatePlan`](super::UpdatePlan) from here on).
    Root,
    /// Scratch: `G F` in f64.
    Product,
    /// Scratch: the solution `G F F^T` in f64.
    Solution,
    /// Scratch: sums over pieces of the solution's and the factor's columns.
    ColumnSums,
    /// Scratch: pieces of a gram.
    GramPieces,
    /// The grams of all modes in f64, and for every column its norm before it was scaled, its share of the inner product
    /// with the tensor, its largest and its mean magnitude.
    State,
}

/// One dispatch of a plan.
///
/// ```
/// use polyad::plan::{DeviceCaps, Method, MttkrpPlan, PlanOptions};
/// # let mut caps = polyad::plan::DeviceCaps::webgpu_minimum("test");
/// let plan = MttkrpPlan::new(&[4, 5, 6], 0, 2, &PlanOptions::default().method(Method::Slice), &caps).unwrap();
/// assert_eq!(plan.dispatches()[0].spec.shader, "mttkrp_slice");
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Dispatch {
    /// The kernel.
    pub spec: KernelSpec,
    /// Its parameters, bound at 0.
    pub params: Params,
    /// Storage buffers at bindings 1, 2, ..; the last one is written.
    pub slots: Vec<Slot>,
    /// Workgroups along x, y and z.
    pub grid: [u32; 3],
    /// The slab that it works on, or that it makes something for. Those of one slab do not need those of a later one, so that
    /// slabs may come one after the other, whatever the order of dispatches.
    pub slab: usize,
}

/// Eight numbers, one per mode, as WGSL's uniform address space wants them: `array<vec4<u32>, 2>`.
pub type PerMode = [u32; MAX_ORDER];

/// Parameters of ELEM, SLICE and TILE; `EntryParams` in the shaders.
///
/// ```
/// assert_eq!(std::mem::size_of::<polyad::plan::EntryParams>(), 160);
/// ```
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Pod, Zeroable)]
pub struct EntryParams {
    /// The mode.
    pub mode: u32,
    /// Columns of this block.
    pub rank: u32,
    /// Row of the factor buffer that holds the weights.
    pub weights_row: u32,
    /// First row of the result that this slab adds to.
    pub g_row0: u32,
    /// Groups: entries (ELEM), slices (SLICE) or tiles (TILE).
    pub count: u32,
    /// Workgroups along x: the grid is folded over x and y.
    pub grid_x: u32,
    /// Row stride of factors and result: the columns padded to a multiple of 4.
    pub stride: u32,
    /// The first workgroup, where a dispatch is one part of several; 0 in plans.
    pub group0: u32,
    /// Dims of the slab.
    pub dims: PerMode,
    /// Row-major strides of the slab.
    pub strides: PerMode,
    /// First factor row of each mode for this slab.
    pub row0: PerMode,
    /// Tiles along each mode (TILE only; the dim itself along the plan's mode).
    pub tiles: PerMode,
}

/// Parameters of `khatri_rao`.
///
/// ```
/// assert_eq!(std::mem::size_of::<polyad::plan::KhatriRaoParams>(), 96);
/// ```
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Pod, Zeroable)]
pub struct KhatriRaoParams {
    /// Rows made.
    pub rows: u32,
    /// Columns, padded to a multiple of 4.
    pub rank: u32,
    /// Position of the first row in the whole product.
    pub q0: u32,
    /// Bit m is set if mode m takes part.
    pub modes: u32,
    /// Row of the factor buffer that holds the weights.
    pub weights_row: u32,
    /// 1 to multiply by the weights.
    pub with_weights: u32,
    /// Workgroups along x.
    pub grid_x: u32,
    /// Number of modes.
    pub order: u32,
    /// Dims of the slab.
    pub dims: PerMode,
    /// First factor row of each mode for this slab.
    pub row0: PerMode,
}

/// Parameters of `gemm`: `C[c_row0 + m, r] (+)= sum_k X[a0 + m * stride_m + k * stride_k] * B[k, r]`.
///
/// ```
/// assert_eq!(std::mem::size_of::<polyad::plan::GemmParams>(), 48);
/// ```
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Pod, Zeroable)]
pub struct GemmParams {
    /// Rows.
    pub m: u32,
    /// Columns, padded to a multiple of 4.
    pub rank: u32,
    /// Length of the reduction.
    pub k: u32,
    /// First entry of X.
    pub a0: u32,
    /// Stride of rows in X.
    pub stride_m: u32,
    /// Stride of the reduction in X.
    pub stride_k: u32,
    /// First row of C.
    pub c_row0: u32,
    /// 1 to add to C, 0 to overwrite it.
    pub accumulate: u32,
    /// Workgroups along x.
    pub grid_x: u32,
    /// The first workgroup, where a dispatch is one part of several; 0 in plans.
    pub group0: u32,
    /// Fills the row.
    pub pad: [u32; 2],
}

/// Parameters of `multiply_sum`: `G[g_row0 + i, r] += sum_q outer[q, r] * partial[q * stride_q + i * stride_i - m0, r]`,
/// over those `q` whose row is in the buffer.
///
/// ```
/// assert_eq!(std::mem::size_of::<polyad::plan::MultiplySumParams>(), 48);
/// ```
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Pod, Zeroable)]
pub struct MultiplySumParams {
    /// Rows of the result that this slab has.
    pub rows: u32,
    /// Columns, padded to a multiple of 4.
    pub rank: u32,
    /// First row of the result.
    pub g_row0: u32,
    /// First row of the outer operand that is in its buffer.
    pub q0: u32,
    /// One past the last.
    pub q1: u32,
    /// Stride of `q` in rows of the partial product.
    pub stride_q: u32,
    /// Stride of the result's row in rows of the partial product.
    pub stride_i: u32,
    /// First row of the partial product that is in its buffer.
    pub m0: u32,
    /// One past the last.
    pub m1: u32,
    /// Workgroups along x.
    pub grid_x: u32,
    /// Fills the row.
    pub pad: [u32; 2],
}

/// Parameters of the fused kernels; `FusedParams` in the shaders.
///
/// ```
/// assert_eq!(std::mem::size_of::<polyad::plan::FusedParams>(), 160);
/// ```
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Default, Pod, Zeroable)]
pub struct FusedParams {
    /// Rows of the result that this slab has: its dim along the mode.
    pub rows: u32,
    /// Product of the slab's dims right of the mode.
    pub right: u32,
    /// Length of the reduction: the product of the slab's other dims.
    pub reduction: u32,
    /// Row stride of the factors in vec4s.
    pub stride4: u32,
    /// Length of a run, within which steps stay: the last other dim, or the whole reduction.
    pub run: u32,
    /// Steps of a run.
    pub run_steps: u32,
    /// Steps of the reduction.
    pub steps: u32,
    /// Steps of a piece.
    pub piece: u32,
    /// Number of pieces.
    pub pieces: u32,
    /// Tiles along the mode.
    pub m_tiles: u32,
    /// First column.
    pub column0: u32,
    /// Rows of the partial result: those of whole tiles.
    pub partial_rows: u32,
    /// Row stride of the partial result in vec4s: that of whole tiles.
    pub partial_stride4: u32,
    /// Workgroups along x.
    pub grid_x: u32,
    /// Row of the factor buffer with a power of two for each column (f16 kernels only).
    pub scale_row: u32,
    /// A power of two that X is multiplied by (f16 kernels only).
    pub x_scale: f32,
    /// First factor row of the last other mode.
    pub last_row0: u32,
    /// Entries of X from one run to the next.
    pub run_stride: u32,
    /// Runs after which the modes right of this one begin anew; `u32::MAX` where they never do.
    pub turn_runs: u32,
    /// Entries of X that are skipped then: the other rows of this mode.
    pub turn_stride: u32,
    /// First row of the result (where pieces are added to it atomically).
    pub g_row0: u32,
    /// Row of the factor buffer that holds the weights (likewise).
    pub weights_row: u32,
    /// The first workgroup, where a dispatch is one part of several; 0 in plans.
    pub group0: u32,
    /// Fills the row.
    pub pad: u32,
    /// Dims of the slab's other modes, in order.
    pub dims: PerMode,
    /// First factor row of each other mode for this slab.
    pub row0: PerMode,
}

/// Parameters of `reduce_partials`.
///
/// ```
/// assert_eq!(std::mem::size_of::<polyad::plan::ReduceParams>(), 48);
/// ```
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Default, Pod, Zeroable)]
pub struct ReduceParams {
    /// Rows added.
    pub rows: u32,
    /// vec4 columns added.
    pub columns4: u32,
    /// Pieces to sum.
    pub pieces: u32,
    /// Rows of one piece.
    pub partial_rows: u32,
    /// Row stride of a piece in vec4s.
    pub partial_stride4: u32,
    /// Row stride of the result and of the factors in vec4s.
    pub stride4: u32,
    /// First row of the result.
    pub g_row0: u32,
    /// First column of the result.
    pub column0: u32,
    /// Row of the factor buffer that each column is multiplied by.
    pub scale_row: u32,
    /// Workgroups along x.
    pub grid_x: u32,
    /// What everything is multiplied by.
    pub unscale: f32,
    /// 1 to add to the result, 0 to overwrite it.
    pub add: u32,
}

/// Parameters of `multi_ttv`.
///
/// ```
/// assert_eq!(std::mem::size_of::<polyad::plan::MultiTtvParams>(), 144);
/// ```
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Pod, Zeroable)]
pub struct MultiTtvParams {
    /// Rows of the result that this slab has.
    pub rows: u32,
    /// Row stride of the factors in vec4s.
    pub stride4: u32,
    /// Row stride of the kept product in vec4s.
    pub t_stride4: u32,
    /// Rows of the kept product from one index of the mode to the next.
    pub row_stride: u32,
    /// Length of the reduction: the product of the other kept dims.
    pub reduction: u32,
    /// Part of it that a piece has.
    pub piece: u32,
    /// Number of pieces.
    pub pieces: u32,
    /// Tiles along the mode.
    pub row_tiles: u32,
    /// Tiles along the columns.
    pub column_tiles: u32,
    /// Workgroups along x.
    pub grid_x: u32,
    /// First of the columns that the buffer holds, in vec4s.
    pub column0: u32,
    /// How many they are, in vec4s: the row stride of the partial result.
    pub columns4: u32,
    /// Dims of the other kept modes, in order.
    pub dims: PerMode,
    /// First factor row of each of them for this slab.
    pub row0: PerMode,
    /// Rows of the kept product from one index of each of them to the next.
    pub strides: PerMode,
}

/// Parameters of the kernels that replace a factor; `UpdateParams` in the shaders.
///
/// ```
/// assert_eq!(std::mem::size_of::<polyad::plan::UpdateParams>(), 64);
/// ```
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Pod, Zeroable)]
pub struct UpdateParams {
    /// Rows of the factor.
    pub rows: u32,
    /// Columns.
    pub rank: u32,
    /// Row stride of everything but the grams: the columns padded to a multiple of 4.
    pub stride: u32,
    /// First row of the mode in the factor buffer.
    pub factor_row0: u32,
    /// Pieces that the rows are cut into for sums over columns.
    pub pieces: u32,
    /// Rows of such a piece.
    pub piece: u32,
    /// Pieces that the rows are cut into for the gram.
    pub gram_pieces: u32,
    /// Rows of such a piece.
    pub gram_piece: u32,
    /// Workgroups along x.
    pub grid_x: u32,
    /// The mode.
    pub mode: u32,
    /// Number of modes.
    pub order: u32,
    /// Numbers of the state that a mode has.
    pub segment: u32,
    /// Row of the factor buffer that holds the weights.
    pub weights_row: u32,
    /// Bit m is set if mode m is the first of a group of a dimension tree ([`TreePlan`](super::TreePlan)).
    pub groups: u32,
    /// Fills the row.
    pub pad: [u32; 2],
}

/// Parameters of a dispatch, by kernel.
///
/// ```
/// use polyad::plan::{GemmParams, Params};
/// assert_eq!(Params::Gemm(GemmParams::default()).bytes().len(), 48);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Params {
    /// ELEM, SLICE, TILE.
    Entry(EntryParams),
    /// `khatri_rao`.
    KhatriRao(KhatriRaoParams),
    /// `gemm`.
    Gemm(GemmParams),
    /// `multiply_sum`.
    MultiplySum(MultiplySumParams),
    /// The fused kernels.
    Fused(FusedParams),
    /// `reduce_partials`.
    Reduce(ReduceParams),
    /// `multi_ttv`.
    MultiTtv(MultiTtvParams),
    /// The kernels that replace a factor.
    Update(UpdateParams),
}

impl Params {
    /// The same for a part of the grid: from that workgroup on, in a grid of that width.
    #[cfg(feature = "gpu")]
    pub(crate) fn part(mut self, group0: u32, width: u32) -> Self {
        match &mut self {
            Self::Entry(p) => (p.group0, p.grid_x) = (group0, width),
            Self::Gemm(p) => (p.group0, p.grid_x) = (group0, width),
            Self::Fused(p) => (p.group0, p.grid_x) = (group0, width),
            _ => {}
        }
        self
    }

    /// Multiplications and additions of the kernels that can be done in parts; 0 for the others, which are short.
    #[cfg(feature = "gpu")]
    pub(crate) fn work(&self) -> f64 {
        let product = |numbers: &[u32]| numbers.iter().map(|&n| f64::from(n)).product::<f64>();
        match self {
            Self::Entry(p) => product(&p.dims) * f64::from(p.rank),
            Self::Gemm(p) => product(&[p.m, p.k, p.rank]),
            Self::Fused(p) => product(&[p.rows, p.reduction, p.partial_stride4, 4]),
            _ => 0.0,
        }
    }

    /// The bytes that the uniform buffer gets.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Entry(p) => bytemuck::bytes_of(p),
            Self::KhatriRao(p) => bytemuck::bytes_of(p),
            Self::Gemm(p) => bytemuck::bytes_of(p),
            Self::MultiplySum(p) => bytemuck::bytes_of(p),
            Self::Fused(p) => bytemuck::bytes_of(p),
            Self::Reduce(p) => bytemuck::bytes_of(p),
            Self::MultiTtv(p) => bytemuck::bytes_of(p),
            Self::Update(p) => bytemuck::bytes_of(p),
        }
    }
}
