//! What CP-ALS is told, and what it answers.

use crate::plan::{Method, PlanOptions, Tree};
use crate::{CpTensor, Error, Result};

/// Where CP-ALS starts.
///
/// ```
/// let init = polyad::Init::Random { seed: 7 };
/// assert_eq!(init, polyad::Init::Random { seed: 7 });
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Init {
    /// Entries uniform in [0, 1), from ChaCha8 with this seed: the same on every machine and device.
    Random {
        /// The seed.
        seed: u64,
    },
    /// Leading left singular vectors of each unfolding; components beyond a mode's dim are random.
    Nvecs {
        /// The seed of the random columns.
        seed: u64,
    },
    /// A given model of the right dims and rank. It is not changed.
    Model(Box<CpTensor<f64>>),
}

/// Options of CP-ALS. Made by [`CpAlsOptions::new`] and changed by its methods.
///
/// ```
/// use polyad::{CpAlsOptions, Init};
/// let options = CpAlsOptions::new(3).max_sweeps(200).fit_tolerance(1e-6).init(Init::Random { seed: 7 });
/// assert_eq!((options.rank, options.max_sweeps), (3, 200));
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CpAlsOptions {
    /// Number of components R.
    pub rank: usize,
    /// Most sweeps done (100).
    pub max_sweeps: usize,
    /// Stop when the fit changes by less than this from one sweep to the next (1e-6). 0 does all sweeps.
    pub fit_tolerance: f64,
    /// The start (random, seed 0).
    pub init: Init,
    /// The MTTKRP's method, tile and column block. Its dtype is the data's.
    pub plan: PlanOptions,
    /// Whether products of the tensor are kept for several modes, so that there are fewer passes over it (auto).
    pub tree: Tree,
    /// Most bytes that such products may take on the device; `None` for as many as the tensor has, at least 64 MiB.
    pub memory_budget: Option<u64>,
    /// Whether to go on along what a sweep changed, where that lowers the error (no).
    pub line_search: bool,
}

impl CpAlsOptions {
    /// Defaults for this rank: 100 sweeps, tolerance 1e-6, random start with seed 0, the device's default method.
    ///
    /// ```
    /// assert_eq!(polyad::CpAlsOptions::new(4).rank, 4);
    /// ```
    pub fn new(rank: usize) -> Self {
        Self {
            rank,
            max_sweeps: 100,
            fit_tolerance: 1e-6,
            init: Init::Random { seed: 0 },
            plan: PlanOptions::default(),
            tree: Tree::Auto,
            memory_budget: None,
            line_search: false,
        }
    }

    /// Most sweeps done; at least 1.
    ///
    /// ```
    /// assert_eq!(polyad::CpAlsOptions::new(4).max_sweeps(5).max_sweeps, 5);
    /// ```
    pub fn max_sweeps(mut self, sweeps: usize) -> Self {
        self.max_sweeps = sweeps;
        self
    }

    /// Stop when the fit changes by less than this; 0 does all sweeps.
    ///
    /// ```
    /// assert_eq!(polyad::CpAlsOptions::new(4).fit_tolerance(0.0).fit_tolerance, 0.0);
    /// ```
    pub fn fit_tolerance(mut self, tolerance: f64) -> Self {
        self.fit_tolerance = tolerance;
        self
    }

    /// The start.
    ///
    /// ```
    /// use polyad::{CpAlsOptions, Init};
    /// assert_eq!(CpAlsOptions::new(4).init(Init::Nvecs { seed: 1 }).init, Init::Nvecs { seed: 1 });
    /// ```
    pub fn init(mut self, init: Init) -> Self {
        self.init = init;
        self
    }

    /// How MTTKRP is done.
    ///
    /// ```
    /// use polyad::{plan::{Method, PlanOptions}, CpAlsOptions};
    /// let options = CpAlsOptions::new(4).plan(PlanOptions::default().method(Method::Tile));
    /// assert_eq!(options.plan.method, Method::Tile);
    /// ```
    pub fn plan(mut self, plan: PlanOptions) -> Self {
        self.plan = plan;
        self
    }

    /// Whether products of the tensor are kept for several modes. Results are the same but for rounding;
    /// [`CpAlsResult::tree`] says what was done and why.
    ///
    /// ```
    /// use ndarray::Array3;
    /// use polyad::{CpAlsOptions, Cpu, Tree, cp_als};
    /// let x = Array3::from_shape_fn((6, 5, 4), |(i, j, k)| ((i + 1) * (j + 2) * (k + 3)) as f64);
    /// let options = CpAlsOptions::new(1).tree(Tree::MultiSweep).max_sweeps(4).fit_tolerance(0.0);
    /// let result = cp_als(&Cpu::new(), x.view(), &options).unwrap();
    /// assert_eq!((result.sweeps, result.passes), (4, 6));
    /// ```
    pub fn tree(mut self, tree: Tree) -> Self {
        self.tree = tree;
        self
    }

    /// Most bytes that kept products may take on the device. Where they need more there is an MTTKRP for every mode.
    ///
    /// ```
    /// assert_eq!(polyad::CpAlsOptions::new(4).memory_budget(1 << 30).memory_budget, Some(1 << 30));
    /// ```
    pub fn memory_budget(mut self, bytes: u64) -> Self {
        self.memory_budget = Some(bytes);
        self
    }

    /// Whether to go on along what a sweep changed (line search, Bro 1998), where that lowers the error: on collinear data
    /// it takes far fewer sweeps. It costs copies of the factors to the host and, when a step did not help, one MTTKRP.
    ///
    /// ```
    /// assert!(polyad::CpAlsOptions::new(4).line_search(true).line_search);
    /// ```
    pub fn line_search(mut self, on: bool) -> Self {
        self.line_search = on;
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.rank == 0 {
            return Err(Error::RankZero);
        }
        if self.max_sweeps == 0 {
            let requirement = "at least one sweep is needed".into();
            return Err(Error::Option { name: "max_sweeps", value: "0".into(), requirement });
        }
        if !(self.fit_tolerance >= 0.0 && self.fit_tolerance.is_finite()) {
            let requirement = "it must be a finite number of at least 0".into();
            return Err(Error::Option { name: "fit_tolerance", value: self.fit_tolerance.to_string(), requirement });
        }
        Ok(())
    }
}

/// One finished sweep, as the callback of [`cp_als_with`](crate::cp_als_with) sees it.
///
/// ```
/// fn show(sweep: &polyad::Sweep) -> String { format!("{} {:.4}", sweep.number, sweep.fit) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Sweep {
    /// 1 for the first.
    pub number: usize,
    /// `1 - |X - Xhat| / |X|` after it.
    pub fit: f64,
    /// Difference to the fit before it; `None` for the first.
    pub fit_change: Option<f64>,
    /// Passes over the tensor that MTTKRPs took so far.
    pub passes: usize,
    /// Seconds since the start.
    pub seconds: f64,
    /// What they were spent on, `total` left at 0.
    pub parts: Seconds,
}

/// Why CP-ALS ended.
///
/// ```
/// assert_eq!(polyad::Stop::Tolerance.name(), "tolerance");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// The fit changed by less than the tolerance.
    Tolerance,
    /// All sweeps were done.
    MaxSweeps,
    /// The callback asked for it.
    Callback,
}

impl Stop {
    /// The word in `summary.json`: `tolerance`, `max_sweeps` or `interrupted`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tolerance => "tolerance",
            Self::MaxSweeps => "max_sweeps",
            Self::Callback => "interrupted",
        }
    }
}

/// Seconds spent in each part of CP-ALS.
///
/// Where the device does the dense part too ([`CpAlsResult::algebra`]), `mttkrp` and `algebra` are its own time, and
/// `gram`, `solve`, `fit` and `transfer` what the host does meanwhile, so all of them may add up to more than `total`.
///
/// ```
/// assert_eq!(polyad::Seconds::default().total, 0.0);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[cfg_attr(feature = "cli", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Seconds {
    /// MTTKRP kernels.
    pub mttkrp: f64,
    /// Solutions, norms and grams on the device; 0 where the host does them.
    pub algebra: f64,
    /// Grams and their Hadamard products on the host.
    pub gram: f64,
    /// Normal equations on the host: factored and, where the host does the dense part, solved and normalised.
    pub solve: f64,
    /// The fit and the norm of X.
    pub fit: f64,
    /// Tensor and factors to the device, results back.
    pub transfer: f64,
    /// The host waiting for the device, where the device does the dense part; 0 elsewhere.
    pub wait: f64,
    /// All of it, the start (init) and checks included.
    pub total: f64,
}

impl Seconds {
    /// Adds part by part.
    pub(crate) fn add(&mut self, other: &Self) {
        self.mttkrp += other.mttkrp;
        self.algebra += other.algebra;
        self.gram += other.gram;
        self.solve += other.solve;
        self.fit += other.fit;
        self.transfer += other.transfer;
        self.wait += other.wait;
        self.total += other.total;
    }
}

/// What CP-ALS found.
///
/// ```
/// use ndarray::Array3;
/// use polyad::{cp_als, CpAlsOptions, Cpu};
/// let x = Array3::from_shape_fn((4, 3, 2), |(i, j, k)| ((i + 1) * (j + 1) * (k + 1)) as f64);
/// let result = cp_als(&Cpu::new(), x.view(), &CpAlsOptions::new(1)).unwrap();
/// assert!(result.fit > 0.999999 && result.fits.len() == result.sweeps);
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CpAlsResult<T> {
    /// The model: columns of unit norm, weights of at least 0 in falling order.
    pub model: CpTensor<T>,
    /// `1 - |X - Xhat| / |X|`, from the last sweep.
    pub fit: f64,
    /// The fit after each sweep.
    pub fits: Vec<f64>,
    /// Sweeps done.
    pub sweeps: usize,
    /// Why it ended.
    pub stop: Stop,
    /// Where the time went.
    pub seconds: Seconds,
    /// The MTTKRP method used.
    pub method: Method,
    /// Name of the device.
    pub device: String,
    /// Where the solutions, norms and grams were done, and why there.
    pub algebra: String,
    /// How MTTKRPs shared passes over the tensor, and why so.
    pub tree: String,
    /// Passes over the tensor that the sweeps' MTTKRPs took.
    pub passes: usize,
    /// What the user should know, one line each.
    pub warnings: Vec<String>,
}
