//! Methods and the options of a plan.

use crate::{Dtype, Error};
use std::{fmt, str::FromStr};

/// How an MTTKRP is computed. The four of the paper (arXiv 2510.14891), FUSED, and a choice of the best.
///
/// ```
/// use polyad::plan::Method;
/// assert_eq!("tile".parse::<Method>().unwrap(), Method::Tile);
/// assert_eq!(Method::Tile.name(), "tile");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Method {
    /// The best for the device and the problem; the plan says which and why.
    #[default]
    Auto,
    /// MTTKRP-ELEM: parallel over entries, one atomic add per entry and rank.
    Elem,
    /// MTTKRP-SLICE: parallel over the slices of the mode, entries of a slice one after the other.
    Slice,
    /// MTTKRP-TILE: slices cut into tiles, factor rows of a tile in workgroup memory, one atomic add per tile and rank.
    Tile,
    /// The baseline: the Khatri-Rao product formed explicitly, then a matrix product.
    Gemm,
    /// Beyond the paper: a matrix product whose Khatri-Rao operand is formed a block at a time where it is used.
    Fused,
}

impl Method {
    /// Every method that can be asked for by name, without `Auto`.
    ///
    /// ```
    /// assert_eq!(polyad::plan::Method::ALL.len(), 5);
    /// ```
    pub const ALL: [Self; 5] = [Self::Elem, Self::Slice, Self::Tile, Self::Gemm, Self::Fused];

    /// The paper's four, which every device has.
    ///
    /// ```
    /// assert!(!polyad::plan::Method::PAPER.contains(&polyad::plan::Method::Fused));
    /// ```
    pub const PAPER: [Self; 4] = [Self::Elem, Self::Slice, Self::Tile, Self::Gemm];

    /// The word of the command line.
    ///
    /// ```
    /// assert_eq!(polyad::plan::Method::Gemm.name(), "gemm");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Elem => "elem",
            Self::Slice => "slice",
            Self::Tile => "tile",
            Self::Gemm => "gemm",
            Self::Fused => "fused",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Method {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        std::iter::once(Self::Auto).chain(Self::ALL).find(|m| m.name() == text).ok_or_else(|| Error::Option {
            name: "method",
            value: text.into(),
            requirement: "it must be auto, elem, slice, tile, gemm or fused".into(),
        })
    }
}

/// How exact f32 products have to be.
///
/// ```
/// use polyad::plan::Precision;
/// assert_eq!("fast".parse::<Precision>().unwrap(), Precision::Fast);
/// assert_eq!(Precision::default().name(), "float32");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Precision {
    /// The error of f32 arithmetic, whatever units do the work.
    #[default]
    Float32,
    /// About three digits: one f16 product where FUSED has matrix units for it, with f32 sums (the error class of TF32).
    Fast,
}

impl Precision {
    /// The word of the command line: `float32` or `fast`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Fast => "fast",
        }
    }
}

impl FromStr for Precision {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        [Self::Float32, Self::Fast].into_iter().find(|p| p.name() == text).ok_or_else(|| Error::Option {
            name: "precision",
            value: text.into(),
            requirement: "it must be float32 or fast".into(),
        })
    }
}

/// How FUSED adds up the pieces that a reduction is split into. The other methods have one way each.
///
/// ```
/// use polyad::plan::Reduction;
/// assert_eq!("atomics".parse::<Reduction>().unwrap(), Reduction::Atomics);
/// assert_eq!(Reduction::default().name(), "partials");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Reduction {
    /// Every piece has a result of its own in scratch memory, and these are added in a fixed order: repeatable.
    #[default]
    Partials,
    /// Pieces add to the result atomically: no scratch, and not repeatable. The kernels are those without matrix units,
    /// from whose fragments single numbers cannot be taken; f64 needs 64-bit atomics.
    Atomics,
}

impl Reduction {
    /// The word of the command line: `partials` or `atomics`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Partials => "partials",
            Self::Atomics => "atomics",
        }
    }
}

impl FromStr for Reduction {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        [Self::Partials, Self::Atomics].into_iter().find(|r| r.name() == text).ok_or_else(|| Error::Option {
            name: "reduction",
            value: text.into(),
            requirement: "it must be partials or atomics".into(),
        })
    }
}

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

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|tree| tree.name() == text).ok_or_else(|| Error::Option {
            name: "tree",
            value: text.into(),
            requirement: "it must be auto, none, two or multi".into(),
        })
    }
}

/// What a plan may be told. All of it has defaults.
///
/// ```
/// use polyad::{plan::{Method, PlanOptions}, Dtype};
/// let options = PlanOptions::default().method(Method::Tile).tile(4).column_block(16).dtype(Dtype::F64);
/// assert_eq!(options.tile, Some(4));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PlanOptions {
    /// The method.
    pub method: Method,
    /// Element type (f32).
    pub dtype: Dtype,
    /// How exact f32 products have to be (float32).
    pub precision: Precision,
    /// TILE's tau: tile width along every mode but the plan's.
    pub tile: Option<usize>,
    /// Column block F: ranks that a workgroup handles at a time.
    pub column_block: Option<usize>,
    /// How FUSED adds up pieces (partials).
    pub reduction: Reduction,
    /// f32 data are summed in f64, and the result is f64.
    pub(crate) wide: bool,
}

impl PlanOptions {
    /// The method.
    ///
    /// ```
    /// use polyad::plan::{Method, PlanOptions};
    /// assert_eq!(PlanOptions::default().method(Method::Elem).method, Method::Elem);
    /// ```
    pub fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// Element type of the tensor, the factors and the result.
    ///
    /// ```
    /// use polyad::{plan::PlanOptions, Dtype};
    /// assert_eq!(PlanOptions::default().dtype(Dtype::F64).dtype, Dtype::F64);
    /// ```
    pub fn dtype(mut self, dtype: Dtype) -> Self {
        self.dtype = dtype;
        self
    }

    /// Element type of sums and result.
    pub(super) fn sums(&self) -> Dtype {
        if self.wide { Dtype::F64 } else { self.dtype }
    }

    /// How exact f32 products have to be.
    ///
    /// ```
    /// use polyad::plan::{PlanOptions, Precision};
    /// assert_eq!(PlanOptions::default().precision(Precision::Fast).precision, Precision::Fast);
    /// ```
    pub fn precision(mut self, precision: Precision) -> Self {
        self.precision = precision;
        self
    }

    /// How FUSED adds up the pieces of its reduction.
    ///
    /// ```
    /// use polyad::plan::{PlanOptions, Reduction};
    /// assert_eq!(PlanOptions::default().reduction(Reduction::Atomics).reduction, Reduction::Atomics);
    /// ```
    pub fn reduction(mut self, reduction: Reduction) -> Self {
        self.reduction = reduction;
        self
    }

    /// TILE's tau, at least 1. One that does not fit is clamped, with a warning in the plan.
    ///
    /// ```
    /// assert_eq!(polyad::plan::PlanOptions::default().tile(8).tile, Some(8));
    /// ```
    pub fn tile(mut self, tau: usize) -> Self {
        self.tile = Some(tau);
        self
    }

    /// Column block F, at least 1. One larger than the kernels allow is reduced.
    ///
    /// ```
    /// assert_eq!(polyad::plan::PlanOptions::default().column_block(32).column_block, Some(32));
    /// ```
    pub fn column_block(mut self, ranks: usize) -> Self {
        self.column_block = Some(ranks);
        self
    }
}
