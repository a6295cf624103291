//! The parameter blocks of the kernels, as the shaders have them.

use crate::MAX_ORDER;
use bytemuck::{Pod, Zeroable};

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

/// Parameters of `gemm`: `C[c_row0 + m, r] (+)= sum_k X[a0 + m * stride_m + k * stride_k] * B[k, r]`, or the same of every
/// piece of the reduction, one after the other in C.
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
    /// Length of a piece of the reduction; `k` where C has all of it.
    pub piece: u32,
    /// Fills the row.
    pub pad: u32,
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
    /// Steps of a slab but the last, where the reduction goes on over several; else 0.
    pub slab_steps: u32,
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
/// assert_eq!(std::mem::size_of::<polyad::plan::MultiTtvParams>(), 160);
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
    /// The first workgroup, where a dispatch is one part of several; 0 in plans.
    pub group0: u32,
    /// Fills the row.
    pub pad: [u32; 3],
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
    /// Bit m is set if mode m is the first of a group of a dimension tree ([`TreePlan`](crate::plan::TreePlan)).
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
            Self::MultiTtv(p) => (p.group0, p.grid_x) = (group0, width),
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
            Self::MultiTtv(p) => product(&[p.rows, p.reduction, p.columns4, 4]),
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
