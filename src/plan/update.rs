//! Dispatches that replace a factor in a sweep of CP-ALS: the solution of the normal equations, its norms, the factor
//! itself, its gram and what the fit needs, all in f64 and on the device.

use super::kernel::{Dispatch, KernelSpec, Params, Slot, UpdateParams};
use super::memory::{buffer_limit, column_stride, weights_row};
use super::{DeviceCaps, MttkrpPlan, fold_grid, tuning};
use crate::{Dtype, Error, Result};

/// How the factor of a mode is replaced on the device once its MTTKRP G is there: `A = G F F^T`, F being a root of the
/// inverse of the normal equations (`V^-1 = F F^T`) that the host found, then columns of unit norm, and the gram of those.
///
/// ```
/// use polyad::plan::{DeviceCaps, MttkrpPlan, PlanOptions, UpdatePlan};
/// let mut caps = DeviceCaps::webgpu_minimum("any GPU");
/// caps.f64 = true;
/// let mttkrp = MttkrpPlan::new(&[30, 20, 10], 1, 8, &PlanOptions::default(), &caps).unwrap();
/// let update = UpdatePlan::new(&mttkrp, &caps).unwrap();
/// assert_eq!(update.dispatches()[0].spec.shader, "als_product");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct UpdatePlan {
    dispatches: Vec<Dispatch>,
    bytes: Vec<(Slot, u64)>,
    segment: usize,
}

impl UpdatePlan {
    /// The buffers that an update has beside those of the MTTKRP.
    pub(crate) const SLOTS: [Slot; 6] =
        [Slot::Root, Slot::Product, Slot::Solution, Slot::ColumnSums, Slot::GramPieces, Slot::State];

    /// Bytes of the timestamps of an MTTKRP and an update.
    pub(crate) const TIMES: u64 = 32;

    /// Plans the update that follows this MTTKRP.
    ///
    /// # Errors
    /// [`Error::MissingFeature`] without f64 in kernels, [`Error::LimitTooSmall`] where a buffer would exceed a binding or
    /// the factors are cut into blocks of columns. The host does it then.
    ///
    /// ```
    /// use polyad::plan::{DeviceCaps, MttkrpPlan, PlanOptions, UpdatePlan};
    /// let caps = DeviceCaps::webgpu_minimum("no f64");
    /// let mttkrp = MttkrpPlan::new(&[30, 20, 10], 1, 8, &PlanOptions::default(), &caps).unwrap();
    /// assert!(UpdatePlan::new(&mttkrp, &caps).unwrap_err().to_string().contains("SHADER_F64"));
    /// ```
    pub fn new(mttkrp: &MttkrpPlan, caps: &DeviceCaps) -> Result<Self> {
        if !caps.f64 {
            let needed_for = "normal equations in f64".into();
            return Err(Error::MissingFeature { adapter: caps.name.clone(), feature: "SHADER_F64", needed_for });
        }
        let limit = buffer_limit(caps, Dtype::F64);
        let too_small = |what: &str, needed: u64| Error::LimitTooSmall {
            limit: "max_storage_buffer_binding_size",
            what: what.into(),
            needed,
            available: limit,
        };
        let (shape, mode, rank, dtype) = (mttkrp.shape(), mttkrp.mode(), mttkrp.rank(), mttkrp.dtype());
        let (rows, order, stride) = (shape.rows(mode), shape.order(), column_stride(rank));
        if mttkrp.columns().len() > 2 {
            let bytes = (shape.iter().sum::<usize>() * stride) as u64 * dtype.bytes();
            return Err(too_small("factors in one piece", bytes));
        }
        let blocks = tuning::update(rows, rank);
        let (tile, width) = (blocks.tile, blocks.columns);
        let edge = rank.div_ceil(tile);
        let tiles = edge * (edge + 1) / 2;
        let cut = |wanted: usize, least: usize| {
            let piece = rows.div_ceil(wanted.max(1)).max(least);
            (rows.div_ceil(piece), piece)
        };
        let column_blocks = rank.div_ceil(width);
        let (pieces, piece) = cut(blocks.groups / column_blocks, blocks.column_rows);
        let (gram_pieces, gram_piece) = cut(blocks.groups / tiles, blocks.gram_rows);
        let segment = rank * rank + 4 * rank;
        let f64s = |count: usize| count as u64 * 8;
        let bytes = vec![
            (Slot::Root, f64s(rank * stride)),
            (Slot::Product, f64s(rows * stride)),
            (Slot::Solution, f64s(rows * stride)),
            (Slot::ColumnSums, f64s(6 * pieces * stride)),
            (Slot::GramPieces, f64s(gram_pieces * tiles * tile * tile)),
            (Slot::State, f64s(order * segment)),
        ];
        if let Some(&(slot, needed)) = bytes.iter().find(|&&(_, bytes)| bytes > limit) {
            return Err(too_small(&format!("{slot:?} of the update of mode {mode}"), needed));
        }
        let params = UpdateParams {
            rows: rows as u32,
            rank: rank as u32,
            stride: stride as u32,
            factor_row0: shape[..mode].iter().sum::<usize>() as u32,
            pieces: pieces as u32,
            piece: piece as u32,
            gram_pieces: gram_pieces as u32,
            gram_piece: gram_piece as u32,
            grid_x: 1,
            mode: mode as u32,
            order: order as u32,
            segment: segment as u32,
            weights_row: weights_row(shape) as u32,
            groups: 0,
            pad: [0; 2],
        };
        let (sums, stored) = (mttkrp.sums(), mttkrp.dtype());
        let mut dispatches = Vec::new();
        let mut push = |shader, dtype, consts: &[(&'static str, u32)], slots: &[Slot], groups: usize| {
            let [x, y] = fold_grid(groups as u64, caps)?;
            dispatches.push(Dispatch {
                spec: KernelSpec::new(shader, dtype, None, consts).stored(if shader == "als_columns" {
                    stored
                } else {
                    dtype
                }),
                params: Params::Update(UpdateParams { grid_x: x, ..params }),
                slots: slots.to_vec(),
                grid: [x, y, 1],
                slab: 0,
            });
            Ok::<_, Error>(())
        };
        let (tile_const, wide) = (("TILE", tile as u32), [("COLUMNS", width as u32)]);
        let product = |transposed| [tile_const, ("TRANSPOSED", transposed)];
        let out_tiles = rows.div_ceil(tile) * edge;
        let column_groups = column_blocks * pieces;
        push("als_product", sums, &product(0), &[Slot::G(0), Slot::Root, Slot::Product], out_tiles)?;
        push("als_product", Dtype::F64, &product(1), &[Slot::Product, Slot::Root, Slot::Solution], out_tiles)?;
        push("als_norms", dtype, &wide, &[Slot::Solution, Slot::ColumnSums], column_groups)?;
        let slots = [Slot::Solution, Slot::ColumnSums, Slot::Factors(0)];
        push("als_normalize", dtype, &wide, &slots, column_groups)?;
        push("als_columns", sums, &wide, &[Slot::G(0), Slot::Factors(0), Slot::ColumnSums], column_groups)?;
        push("als_gram", dtype, &[tile_const], &[Slot::Factors(0), Slot::GramPieces], tiles * gram_pieces)?;
        let outputs = (tiles * tile * tile).div_ceil(32);
        push("als_gram_sum", dtype, &[tile_const], &[Slot::GramPieces, Slot::State], outputs)?;
        let wg = [("WG", 64)];
        push("als_column_sum", dtype, &wg, &[Slot::ColumnSums, Slot::State], rank.div_ceil(64))?;
        if caps.f16_matrix_units && dtype == Dtype::F32 {
            push("als_scales", dtype, &wg, &[Slot::State, Slot::Factors(0)], rank.div_ceil(64))?;
        }
        Ok(Self { dispatches, bytes, segment })
    }

    /// The dispatches in order.
    ///
    /// ```
    /// use polyad::plan::{DeviceCaps, MttkrpPlan, PlanOptions, Slot, UpdatePlan};
    /// let mut caps = DeviceCaps::webgpu_minimum("any GPU");
    /// caps.f64 = true;
    /// let mttkrp = MttkrpPlan::new(&[30, 20, 10], 1, 7, &PlanOptions::default(), &caps).unwrap();
    /// let update = UpdatePlan::new(&mttkrp, &caps).unwrap();
    /// assert_eq!(update.dispatches()[0].slots, [Slot::G(0), Slot::Root, Slot::Product]);
    /// ```
    pub fn dispatches(&self) -> &[Dispatch] {
        &self.dispatches
    }

    /// Bytes of a buffer; 0 for what the MTTKRP has.
    ///
    /// ```
    /// use polyad::plan::{DeviceCaps, MttkrpPlan, PlanOptions, Slot, UpdatePlan};
    /// let mut caps = DeviceCaps::webgpu_minimum("any GPU");
    /// caps.f64 = true;
    /// let mttkrp = MttkrpPlan::new(&[30, 20, 10], 1, 7, &PlanOptions::default(), &caps).unwrap();
    /// assert_eq!(UpdatePlan::new(&mttkrp, &caps).unwrap().bytes(Slot::Solution), 20 * 8 * 8);
    /// ```
    pub fn bytes(&self, slot: Slot) -> u64 {
        self.bytes.iter().find(|(known, _)| *known == slot).map_or(0, |&(_, bytes)| bytes)
    }

    /// Numbers of [`Slot::State`] that a mode has: its gram (`R x R`, both halves), then R norms, R inner products, R
    /// largest and R mean magnitudes.
    ///
    /// ```
    /// use polyad::plan::{DeviceCaps, MttkrpPlan, PlanOptions, UpdatePlan};
    /// let mut caps = DeviceCaps::webgpu_minimum("any GPU");
    /// caps.f64 = true;
    /// let mttkrp = MttkrpPlan::new(&[30, 20, 10], 1, 7, &PlanOptions::default(), &caps).unwrap();
    /// assert_eq!(UpdatePlan::new(&mttkrp, &caps).unwrap().segment(), 7 * 7 + 4 * 7);
    /// ```
    pub fn segment(&self) -> usize {
        self.segment
    }
}
