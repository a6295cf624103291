//! What an MTTKRP has to do at least: flops, words moved under assumptions about reuse, and the time that follows from a
//! device's bandwidth and peak.
//!
//! After "A Performance Portable Matrix Free Dense MTTKRP in GenTen", arXiv 2510.14891, which compares measured times with
//! three models: T_0 (nothing is reused), T_inf (an infinite cache: everything is moved once) and T_{0,LM} (no cache, but
//! what a kernel keeps in local memory is reused). Published are their names, the methods and the flop count
//! `(d + 1) N R`; the counts of words are derived here from what each kernel reads and writes. Words count partial tiles
//! exactly; where tau divides every dim they are the formulas that [`CostModel::formula`] prints.

use super::walk::{Cut, Side, Walk};
use super::{Method, MttkrpPlan, Params};
use crate::{Dtype, Shape};

/// What is moved once only.
///
/// ```
/// use polyad::plan::Reuse;
/// assert_eq!(Reuse::ALL.map(Reuse::name), ["T_0", "T_0,LM(a)", "T_0,LM(b)", "T_inf"]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reuse {
    /// T_0: nothing but a sum that is kept in registers.
    Nothing,
    /// T_{0,LM}, the narrow reading: sums and weights of a tile are kept. For GEMM the same as T_0; for FUSED blocks of the
    /// Khatri-Rao operand are shared by the rows of a tile, on a CPU by all rows.
    Sums,
    /// T_{0,LM}, the wide reading: factor rows of a tile too. For GEMM what a tile of the product stages; for FUSED also the
    /// products that a run of the last other mode shares, on a CPU also the rows of the result and of the modes that are not
    /// summed by the product, for as long as a block is used.
    Rows,
    /// T_inf: everything.
    Everything,
}

impl Reuse {
    /// All of them, from most to fewest words.
    pub const ALL: [Self; 4] = [Self::Nothing, Self::Sums, Self::Rows, Self::Everything];

    /// `T_0`, `T_0,LM(a)`, `T_0,LM(b)`, `T_inf`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "T_0",
            Self::Sums => "T_0,LM(a)",
            Self::Rows => "T_0,LM(b)",
            Self::Everything => "T_inf",
        }
    }
}

/// A device's two limits, measured or given.
///
/// ```
/// let machine = polyad::plan::Machine::new(4.5e12, 5.1e13);
/// assert_eq!(machine.matrix_peak, None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Machine {
    /// Bytes per second.
    pub bandwidth: f64,
    /// Flops per second in the element type, without matrix units.
    pub peak: f64,
    /// Flops per second of products on matrix units as FUSED uses them. `None` where unknown: their arithmetic then counts
    /// as free, so that times stay lower bounds.
    pub matrix_peak: Option<f64>,
}

impl Machine {
    /// Bytes and flops per second.
    pub fn new(bandwidth: f64, peak: f64) -> Self {
        Self { bandwidth, peak, matrix_peak: None }
    }
}

/// What bounds a predicted time.
///
/// ```
/// assert_eq!(polyad::plan::Bound::Memory.name(), "memory");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bound {
    /// Words moved.
    Memory,
    /// Flops.
    Arithmetic,
}

impl Bound {
    /// `memory` or `arithmetic`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Arithmetic => "arithmetic",
        }
    }
}

/// A predicted time and what bounds it.
///
/// ```
/// # use polyad::plan::*;
/// # let plan = MttkrpPlan::new(&[9, 4, 5], 0, 2, &PlanOptions::default(), &DeviceCaps::cpu(1)).unwrap();
/// let predicted = CostModel::of(&plan).predict(Reuse::Everything, &Machine::new(1e10, 1e10));
/// assert!(predicted.seconds > 0.0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Prediction {
    /// `max(flops / peak, bytes / bandwidth)`.
    pub seconds: f64,
    /// Which of the two.
    pub bound: Bound,
}

/// Block sizes that the counts depend on; those that a method has no use for do not matter.
///
/// ```
/// assert_eq!(polyad::plan::ModelBlocks::default().tile, 1);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelBlocks {
    /// TILE's tau.
    pub tile: usize,
    /// Column block F of ELEM, SLICE and TILE.
    pub column_block: usize,
    /// Rows and columns of a tile of the product: BM and BN of GEMM and FUSED.
    pub product: [usize; 2],
    /// Pieces of the reduction of FUSED and of GEMM on a GPU, each with a partial result.
    pub pieces: usize,
    /// FUSED keeps products along runs of the last other mode.
    pub runs: bool,
}

impl Default for ModelBlocks {
    fn default() -> Self {
        Self { tile: 1, column_block: 1, product: [1, 1], pieces: 1, runs: false }
    }
}

/// Flops and words of one MTTKRP by one method.
///
/// ```
/// use polyad::plan::{CostModel, Method, ModelBlocks, Reuse};
/// use polyad::{Dtype, Shape};
/// let shape = Shape::new(&[8, 8, 8]).unwrap();
/// let model = |method, tile| CostModel::new(method, &shape, 0, 4, Dtype::F32, ModelBlocks { tile, ..Default::default() });
/// let (elem, tile) = (model(Method::Elem, 1), model(Method::Tile, 1));
/// assert_eq!(elem.words(Reuse::Nothing), tile.words(Reuse::Nothing));
/// assert!(model(Method::Tile, 4).words(Reuse::Nothing) < tile.words(Reuse::Nothing));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct CostModel {
    method: Method,
    shape: Shape,
    mode: usize,
    rank: usize,
    dtype: Dtype,
    blocks: ModelBlocks,
    /// Products are done by matrix units.
    matrix_units: bool,
    /// FUSED on a CPU.
    walk: Option<Walk>,
}

impl CostModel {
    /// Of a method (not `Auto`, which counts as FUSED), with given blocks. FUSED is that of a GPU.
    pub fn new(method: Method, shape: &Shape, mode: usize, rank: usize, dtype: Dtype, blocks: ModelBlocks) -> Self {
        Self { method, shape: shape.clone(), mode, rank, dtype, blocks, matrix_units: false, walk: None }
    }

    /// Of a plan, with the blocks that it has; where it has several dispatches, the first product's stand for all. On a CPU
    /// the tiles of GEMM's product are those of a library: T_{0,LM} is T_0 there.
    ///
    /// ```
    /// # use polyad::plan::*;
    /// let plan = MttkrpPlan::new(&[9, 4, 5], 0, 2, &PlanOptions::default(), &DeviceCaps::cpu(1)).unwrap();
    /// assert!(CostModel::of(&plan).flops() >= 2.0 * 180.0 * 2.0);
    /// ```
    pub fn of(plan: &MttkrpPlan) -> Self {
        let mut blocks = ModelBlocks { tile: plan.tile(), column_block: plan.column_block(), ..Default::default() };
        let is_product = |params: &Params| matches!(params, Params::Gemm(_) | Params::Fused(_));
        let product = plan.dispatches().iter().find(|dispatch| is_product(&dispatch.params));
        if let Some(product) = product {
            let constant =
                |name| product.spec.consts.iter().find(|(known, _)| *known == name).map(|&(_, v)| v as usize);
            let columns = constant("BN").unwrap_or(4 * constant("RV").unwrap_or(1));
            blocks.product = [constant("BM").unwrap_or(1), columns];
            match product.params {
                Params::Fused(p) => {
                    blocks.product[0] = (p.partial_rows / p.m_tiles.max(1)).max(1) as usize;
                    (blocks.pieces, blocks.runs) = (p.pieces as usize, constant("RUNS") == Some(1));
                }
                Params::Gemm(p) => blocks.pieces = p.k.div_ceil(p.piece.max(1)) as usize,
                _ => {}
            }
        }
        let matrix_units = product.is_some_and(|product| product.spec.shader.contains("coop"));
        let model = Self::new(plan.method(), plan.shape(), plan.mode(), plan.rank(), plan.dtype(), blocks);
        Self { matrix_units, walk: plan.walk().cloned(), ..model }
    }

    /// Flops of the kernels here. They sum along the last other mode first and multiply by the other factor rows once a
    /// run of it, so that SLICE and TILE do `(2 + (d - 1) / w) N R`, w being the width of a tile along that mode; ELEM does
    /// what [`published_flops`](Self::published_flops) says, GEMM `2 N R` and its Khatri-Rao product, FUSED `2 N R` and that
    /// product once for every tile of rows. On a CPU FUSED makes the product of the modes that are summed first once for all
    /// rows, and multiplies what a block has summed by the rows of the others.
    pub fn flops(&self) -> f64 {
        let (n, r, d) = (self.entries(), self.rank as f64, self.order());
        let last = self.others().last().map_or(1, |m| self.shape[m]);
        let by_runs = |width: usize| (2.0 + (d - 1.0) / width as f64) * n * r;
        if let Some(walk) = self.on_cpu() {
            return 2.0 * n * r + walk.flops * r;
        }
        match self.method {
            Method::Elem => self.published_flops(),
            Method::Slice => by_runs(last),
            Method::Tile => by_runs(self.blocks.tile.min(last)),
            Method::Gemm => {
                let g = self.sides();
                let outer = if g.outer > 0.0 { 2.0 * g.m * r + (g.outer_modes - 1.0) * g.outer * r } else { 0.0 };
                2.0 * n * r + (g.inner_modes - 1.0).max(0.0) * g.k * r + outer
            }
            _ => 2.0 * n * r + self.row_tiles() * (d - 2.0).max(0.0) * self.slice() * r,
        }
    }

    /// `(d + 1) N R`, as the paper's code counts every method.
    pub fn published_flops(&self) -> f64 {
        (self.order() + 1.0) * self.entries() * self.rank as f64
    }

    /// Words moved to and from memory.
    pub fn words(&self, reuse: Reuse) -> f64 {
        let (n, r, d) = (self.entries(), self.rank as f64, self.order());
        let rows = self.shape.rows(self.mode) as f64;
        let others: f64 = self.others().map(|m| self.shape[m] as f64).sum();
        if reuse == Reuse::Everything {
            return n + r * others + r + rows * r;
        }
        if let Some(walk) = self.on_cpu() {
            let (x, nothing) = (n * walk.columns, n * r * d);
            // Blocks so short that sums are added up all the time reuse nothing.
            let moved = match reuse {
                Reuse::Nothing => nothing,
                Reuse::Sums => (x + walk.sums * r).min(nothing),
                _ => (x + walk.rows * r).min(nothing),
            };
            return moved + r + rows * r * (2.0 * walk.partials + 1.0);
        }
        let blocks = self.rank.div_ceil(self.blocks.column_block.max(1)) as f64;
        match (self.method, reuse) {
            (Method::Elem, _) => n * (blocks + r * (d + 2.0)),
            (Method::Slice | Method::Tile, _) => {
                let tile = if self.method == Method::Tile { self.blocks.tile.max(1) } else { usize::MAX };
                let across = |m: usize| self.shape[m].div_ceil(tile) as f64;
                // One addition, and one read of the weights, for each tile.
                let tiles = rows * self.others().map(across).product::<f64>();
                match reuse {
                    Reuse::Nothing => n * (blocks + r * d) + 2.0 * r * tiles,
                    Reuse::Sums => n * (blocks + r * (d - 1.0)) + 3.0 * r * tiles,
                    _ => {
                        let staged: f64 = self.others().map(|m| tiles / across(m) * self.shape[m] as f64).sum();
                        n * blocks + r * (staged + 3.0 * tiles)
                    }
                }
            }
            (Method::Gemm, _) => {
                let g = self.sides();
                let product = match reuse {
                    Reuse::Rows => n * self.column_tiles() + (g.m / self.blocks.product[0] as f64).ceil() * g.k * r,
                    _ => 2.0 * n * r,
                };
                let outer =
                    if g.outer > 0.0 { g.outer * r * (g.outer_modes + 1.0) + 2.0 * g.m * r + rows * r } else { 0.0 };
                // Pieces of a sum are written and read where there are several.
                let pieces = if self.blocks.pieces > 1 { 2.0 * self.blocks.pieces as f64 * g.m * r } else { 0.0 };
                // The operand is written once; the product is G itself where there is no outer side.
                g.k * r * (g.inner_modes + 1.0) + product + pieces + g.m * r + outer
            }
            (_, _) => {
                let (operand, x) = match reuse {
                    Reuse::Nothing => (n * r * (d - 1.0), n * r),
                    Reuse::Sums => (self.row_tiles() * self.slice() * r * (d - 1.0), n * self.column_tiles()),
                    _ => {
                        let last = self.others().last().map_or(1, |m| self.shape[m]) as f64;
                        let a_row = if self.blocks.runs { 1.0 + (d - 2.0).max(0.0) / last } else { d - 1.0 };
                        (self.row_tiles() * self.slice() * r * a_row.min(d - 1.0), n * self.column_tiles())
                    }
                };
                x + operand + r + rows * r * (2.0 * self.blocks.pieces as f64 + 1.0)
            }
        }
    }

    /// `max(flops / peak, bytes / bandwidth)`.
    pub fn predict(&self, reuse: Reuse, machine: &Machine) -> Prediction {
        let bytes = self.words(reuse) * self.dtype.bytes() as f64;
        let peak = if self.matrix_units { machine.matrix_peak } else { Some(machine.peak) };
        let (memory, arithmetic) = (bytes / machine.bandwidth, peak.map_or(0.0, |peak| self.flops() / peak));
        let bound = if memory >= arithmetic { Bound::Memory } else { Bound::Arithmetic };
        Prediction { seconds: memory.max(arithmetic), bound }
    }

    /// The words as a formula, for people: N entries, d modes, R ranks in blocks of F, tau the width of a tile, L the last
    /// other dim, and of GEMM and FUSED tiles of BM x BN. `K` and `M` are the contracted and the remaining side of GEMM's
    /// product, `K M = N`, Q and q the other side of a middle mode and its modes, k the contracted modes. Of FUSED on a CPU
    /// K is the length of the sums, over k modes the last of which is L long, B the number of their blocks, F the ranks of a
    /// block, w the modes that are neither summed by the product nor the result's, c how often the Khatri-Rao rows are made,
    /// parts the partial results; where K is a factor's rows as they are, `K R` takes the place of their product's words.
    pub fn formula(&self, reuse: Reuse) -> &'static str {
        match (self.method, reuse) {
            (_, Reuse::Everything) => "N + R sum_{m != n} I_m + R + I_n R",
            (Method::Elem, _) => "N [ceil(R/F) + R (d + 2)]",
            (Method::Slice, Reuse::Nothing) => "N [ceil(R/F) + R d] + 2 I_n R",
            (Method::Slice, Reuse::Sums) => "N [ceil(R/F) + R (d - 1)] + 3 I_n R",
            (Method::Slice, _) => "N ceil(R/F) + I_n R sum_{m != n} I_m + 3 I_n R",
            (Method::Tile, Reuse::Nothing) => "N [ceil(R/F) + R d + 2 R / tau^(d-1)]",
            (Method::Tile, Reuse::Sums) => "N [ceil(R/F) + R (d - 1) + 3 R / tau^(d-1)]",
            (Method::Tile, _) => "N [ceil(R/F) + R ((d - 1) tau^(2-d) + 3 tau^(1-d))]",
            (Method::Gemm, Reuse::Rows) => {
                "K R (k + 1) + N ceil(R/BN) + ceil(M/BM) K R + M R [+ 2 pieces M R] [+ Q R (q + 1) + 2 M R + I_n R]"
            }
            (Method::Gemm, _) => "K R (k + 1) + 2 N R + M R [+ 2 pieces M R] [+ Q R (q + 1) + 2 M R + I_n R]",
            _ if self.walk.is_some() => match reuse {
                Reuse::Nothing => "N R d + R + I_n R (2 parts - 1)",
                Reuse::Sums => "N ceil(R/F) + c K R k + B (N/K) R (w + 2) + R + I_n R (2 parts - 1)",
                _ => "N ceil(R/F) + c K R (1 + (k - 1)/L) + B R (2 I_n + sum_w I_m) + R + I_n R (2 parts - 1)",
            },
            (_, Reuse::Nothing) => "N R d + R + I_n R (2 pieces + 1)",
            (_, Reuse::Sums) => "N ceil(R/BN) + ceil(I_n/BM) (N/I_n) R (d - 1) + R + I_n R (2 pieces + 1)",
            (_, _) => "N ceil(R/BN) + ceil(I_n/BM) (N/I_n) R (1 + (d - 2)/L) + R + I_n R (2 pieces + 1)",
        }
    }

    fn entries(&self) -> f64 {
        self.shape.len() as f64
    }

    fn order(&self) -> f64 {
        self.shape.order() as f64
    }

    /// Entries of a slice, `N / I_n`.
    fn slice(&self) -> f64 {
        self.entries() / self.shape.rows(self.mode) as f64
    }

    fn others(&self) -> impl DoubleEndedIterator<Item = usize> {
        let mode = self.mode;
        (0..self.shape.order()).filter(move |&m| m != mode)
    }

    fn row_tiles(&self) -> f64 {
        self.shape.rows(self.mode).div_ceil(self.blocks.product[0].max(1)) as f64
    }

    fn column_tiles(&self) -> f64 {
        self.rank.div_ceil(self.blocks.product[1].max(1)) as f64
    }

    /// What FUSED does on a CPU beside the products. With the modes in three groups, k of them summed by the micro-kernel (K
    /// entries, in B blocks), the result's, and w others:
    ///
    /// - A block of Khatri-Rao rows is made once and used by all `N / K` rows of X: k factor rows are read for each of its
    ///   rows, or, if what stays the same along the last summed mode is kept, one and `(k - 1) / L`; as many products, less one,
    ///   are formed. Parts that divide row modes make the same blocks again (c times in all); cuts between rows, which follow
    ///   the threads, are not counted.
    /// - Behind each block every row's sum is multiplied by w factor rows and added to its row of G: `w + 1` flops and, nothing
    ///   kept, `w + 2` words a rank; with rows of G and of the w factors kept in a cache, each of those rows once a block.
    /// - Where factor rows take the place of Khatri-Rao rows, blocks are of the last summed mode, and the other summed modes
    ///   are among those multiplied afterwards, one row of each for a block.
    fn on_cpu(&self) -> Option<OnCpu> {
        let walk = self.walk.as_ref()?;
        let order = self.shape.order();
        let (summed, modes) = match walk.side {
            Side::Right => (order - walk.split, 0..walk.split),
            Side::Left => (walk.split, walk.split..order),
            Side::Both => (order - 1, 0..0),
        };
        let behind = modes.filter(|&m| m != self.mode).map(|m| self.shape[m] as f64);
        let (weights, weight_rows) = (behind.clone().count() as f64, behind.sum::<f64>());
        let (k, last, length) = (summed as f64, walk.last as f64, (walk.run * walk.runs) as f64);
        let again = if walk.cut == Cut::Sum { 1.0 } else { walk.parts as f64 };
        let partials = walk.parts as f64 - 1.0;
        let all_rows = self.entries() / length;
        let result = 2.0 * self.shape.rows(self.mode) as f64;
        let columns = self.rank.div_ceil(walk.columns) as f64;
        let blocks_of = |extent: usize, step: usize| extent.div_ceil(step.max(1)) as f64;
        let adding = partials * self.shape.rows(self.mode) as f64;
        if walk.direct() {
            let (others, blocks) = (k - 1.0, length / last * blocks_of(walk.last, walk.step));
            return Some(OnCpu {
                flops: all_rows * blocks * (weights + others + 1.0) + adding,
                columns,
                sums: length + all_rows * blocks * (weights + others + 2.0),
                rows: length + blocks * (result + weight_rows + others),
                partials,
            });
        }
        let blocks = blocks_of(walk.runs, walk.steps) * blocks_of(walk.run, walk.step);
        let products = if summed > 1 { 1.0 + (k - 2.0) / last } else { 0.0 };
        Some(OnCpu {
            flops: again * length * products + all_rows * blocks * (weights + 1.0) + adding,
            columns,
            sums: again * length * k + all_rows * blocks * (weights + 2.0),
            rows: again * length * (1.0 + (k - 1.0) / last) + blocks * (result + weight_rows),
            partials,
        })
    }

    /// Which side GEMM contracts by its product: the one that leaves the smaller intermediate.
    fn sides(&self) -> Sides {
        let (left, right) = (self.shape.left(self.mode), self.shape.right(self.mode));
        let rows = self.shape.rows(self.mode);
        let (before, behind) = (self.mode, self.shape.order() - 1 - self.mode);
        let (k, inner, outer, outer_modes) = match (left, right) {
            (1, _) => (right, before + behind, 0, 0),
            (_, 1) => (left, before + behind, 0, 0),
            _ if left <= right => (right, behind, left, before),
            _ => (left, before, right, behind),
        };
        Sides {
            k: k as f64,
            m: (rows * outer.max(1)) as f64,
            inner_modes: inner as f64,
            outer: outer as f64,
            outer_modes: outer_modes as f64,
        }
    }
}

/// FUSED on a CPU, for each rank, beside `2 N` flops.
struct OnCpu {
    flops: f64,
    /// Blocks of ranks, for each of which X is read.
    columns: f64,
    /// Words of factors and results, by what is reused.
    sums: f64,
    rows: f64,
    /// Results beside the first.
    partials: f64,
}

/// The two contractions of GEMM.
struct Sides {
    /// Length of the product's reduction, and rows of the product.
    k: f64,
    m: f64,
    inner_modes: f64,
    /// Length of the second contraction, 0 for none.
    outer: f64,
    outer_modes: f64,
}
