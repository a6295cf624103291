//! What CP-ALS is told, and what it answers.

use super::checkpoint::Checkpoint;
use crate::plan::{Method, PlanOptions, Tree};
use crate::{CpTensor, Error, Result, Shape};

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
    /// Entries from the standard normal distribution, from ChaCha8 with this seed. They may differ in the last bit between
    /// machines, as logarithms do, but not between devices of one.
    Normal {
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
    /// Starts that run side by side (1).
    pub starts: usize,
    /// Modes whose factors are left as the start has them (none).
    pub fixed: Vec<usize>,
    /// Modes whose factors have no negative entry (none): see [`nonneg`](Self::nonneg).
    pub nonneg: Vec<usize>,
    /// What is added to the normal equations' diagonal (0): see [`ridge`](Self::ridge).
    pub ridge: f64,
    /// Seconds after which no further sweep is begun (no limit).
    pub max_seconds: Option<f64>,
    /// Where to save what there is, and how often (nowhere).
    pub checkpoint: Option<Checkpoint>,
    /// The MTTKRP's method, tile and column block. Its dtype is the data's.
    pub plan: PlanOptions,
    /// Whether products of the tensor are kept for several modes, so that there are fewer passes over it (auto).
    pub tree: Tree,
    /// Most bytes that such products may take on the device; `None` for as many as the tensor has, twice that on a GPU whose
    /// memory is known, and at least 64 MiB.
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
            starts: 1,
            fixed: Vec::new(),
            nonneg: Vec::new(),
            ridge: 0.0,
            max_seconds: None,
            checkpoint: None,
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

    /// That many starts run as one batch, and the best is returned: their factors lie side by side in MTTKRPs of rank
    /// `starts * rank`, so X is read once for all of them. The first starts from `init`; the others are random, with
    /// the seeds after its own (beside a given model 1, 2, ..), and uniform unless `init` is normal. All go on until none
    /// changes by the tolerance. Plans, memory and the dense part are those of the larger rank.
    ///
    /// ```
    /// use polyad::{CpAlsOptions, Cpu, cp_als};
    /// let x = ndarray::Array3::from_shape_fn((5, 4, 3), |(i, j, k)| ((i * j + 2 * k) % 5) as f64);
    /// let result = cp_als(&Cpu::new(), x.view(), &CpAlsOptions::new(2).starts(4)).unwrap();
    /// assert_eq!(result.start_fits.len(), 4);
    /// assert!(result.start_fits.iter().all(|&fit| fit <= result.fit));
    /// ```
    pub fn starts(mut self, starts: usize) -> Self {
        self.starts = starts;
        self
    }

    /// Modes whose factors are not changed, any subset of them; each is returned with the bits that it has in the start
    /// (rounded to the data's dtype), and the components keep the start's order. With all modes fixed the start comes back
    /// with its fit after no sweep.
    ///
    /// ```
    /// use ndarray::{Array1, Array2, array};
    /// use polyad::{CpAlsOptions, CpTensor, Cpu, Init, cp_als};
    /// let x = array![[2.0f64, 4.0], [3.0, 6.0]];
    /// let known = CpTensor::new(Array1::ones(1), vec![Array2::ones((2, 1)), array![[1.0], [2.0]]]).unwrap();
    /// let options = CpAlsOptions::new(1).init(Init::Model(Box::new(known))).fix([1]);
    /// let model = cp_als(&Cpu::new(), x.view(), &options).unwrap().model;
    /// assert_eq!(model.factors()[1], array![[1.0], [2.0]]);
    /// assert!((model.weights()[0] * model.factors()[0][[1, 0]] - 3.0).abs() < 1e-12);
    /// ```
    pub fn fix(mut self, modes: impl IntoIterator<Item = usize>) -> Self {
        self.fixed = modes.into_iter().collect();
        self
    }

    /// Modes whose factors are kept free of negative entries, by hierarchical alternating least squares (HALS; Cichocki and
    /// Phan 2009, DOI 10.1587/transfun.E92.A.708). Weights are never negative, so with all modes here the model is
    /// non-negative. The device does the MTTKRP of such a mode, the host the rest. A component that the data have no use for
    /// ends with weight 0: data without a positive entry give a model of zeros, whose fit is 0.
    ///
    /// A given start must not have negative entries there; of singular vectors the longer of the positive and the negative
    /// part is taken.
    ///
    /// ```
    /// use polyad::{CpAlsOptions, Cpu, cp_als};
    /// let x = ndarray::Array3::from_shape_fn((5, 4, 3), |(i, j, k)| ((i + 2 * j + 3 * k) % 5) as f64);
    /// let model = cp_als(&Cpu::new(), x.view(), &CpAlsOptions::new(2).nonneg(0..3)).unwrap().model;
    /// assert!(model.factors().iter().flatten().all(|&v| v >= 0.0));
    /// ```
    pub fn nonneg(mut self, modes: impl IntoIterator<Item = usize>) -> Self {
        self.nonneg = modes.into_iter().collect();
        self
    }

    /// A ridge: every update minimises `|X - Xhat|^2 + ridge * sum over r of |component r|^2`, that is, solves
    /// `A (V + ridge I) = G`, V being that of columns of unit norm. It has no unit and goes with data of any scale. The
    /// sum of the squares of the weights stays below `|X|^2 / ridge`, also where no best model exists (degeneracy).
    ///
    /// ```
    /// use polyad::{CpAlsOptions, Cpu, cp_als};
    /// let mut x = ndarray::Array3::<f64>::zeros((2, 2, 2));
    /// for index in [[0, 0, 1], [0, 1, 0], [1, 0, 0]] {
    ///     x[index] = 1.0;
    /// }
    /// let options = CpAlsOptions::new(2).max_sweeps(500).fit_tolerance(0.0).ridge(1e-2);
    /// let weights = cp_als(&Cpu::new(), x.view(), &options).unwrap().model.into_parts().0;
    /// assert!(weights.mapv(|w| w * w).sum() <= 3.0 / 1e-2);
    /// ```
    pub fn ridge(mut self, ridge: f64) -> Self {
        self.ridge = ridge;
        self
    }

    /// No sweep is begun once this many seconds have passed since the start, so at least one is done.
    ///
    /// ```
    /// assert_eq!(polyad::CpAlsOptions::new(4).max_seconds(1.5).max_seconds, Some(1.5));
    /// ```
    pub fn max_seconds(mut self, seconds: f64) -> Self {
        self.max_seconds = Some(seconds);
        self
    }

    /// Saves what there is as it goes, in a file that is replaced at once, so that a run that is killed loses at most one
    /// interval. A run that resumes goes on to the same bits as one that was never interrupted, on the same device (by
    /// methods other than SLICE and FUSED on the CPU: with as many threads). It has to be given the same tensor and options, but for the limits on sweeps, time and
    /// tolerance: anything else is an error. A checkpoint that cannot be written is a warning. There is then no
    /// [`line_search`](Self::line_search).
    ///
    /// ```
    /// use polyad::{Checkpoint, CpAlsOptions, Cpu, Every, cp_als};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let x = ndarray::Array3::from_shape_fn((5, 4, 3), |(i, j, k)| ((i * j + 2 * k) % 5) as f64);
    /// let options = CpAlsOptions::new(2).fit_tolerance(0.0);
    /// let checkpoint = Checkpoint::new(dir.path()).every(Every::Sweeps(2));
    /// cp_als(&Cpu::new(), x.view(), &options.clone().max_sweeps(5).checkpoint(checkpoint.clone())).unwrap();
    /// let resumed = options.clone().max_sweeps(9).checkpoint(checkpoint.resume(true));
    /// let resumed = cp_als(&Cpu::new(), x.view(), &resumed).unwrap();
    /// assert_eq!(resumed.model, cp_als(&Cpu::new(), x.view(), &options.max_sweeps(9)).unwrap().model);
    /// ```
    pub fn checkpoint(mut self, checkpoint: Checkpoint) -> Self {
        self.checkpoint = Some(checkpoint);
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
    /// [`CpAlsResult::tree`] says what was done and why. Of several starts all products are kept, side by side. Plans count
    /// every mode, also fixed ones, whose factors keep products longer.
    ///
    /// Products are not in a [`checkpoint`](Self::checkpoint), but which one was at hand is: a run that resumes makes it
    /// again, with the same bits, which may be one pass more.
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
    /// It is not for fixed or non-negative modes, several starts, a ridge or a checkpoint: together they are an error.
    ///
    /// ```
    /// assert!(polyad::CpAlsOptions::new(4).line_search(true).line_search);
    /// ```
    pub fn line_search(mut self, on: bool) -> Self {
        self.line_search = on;
        self
    }

    pub(crate) fn check(&self, shape: &Shape) -> Result<()> {
        if self.rank == 0 {
            return Err(Error::RankZero);
        }
        for (name, value, requirement) in [
            ("max_sweeps", self.max_sweeps, "at least one sweep is needed"),
            ("starts", self.starts, "at least one start is needed"),
        ] {
            if value == 0 {
                return Err(Error::Option { name, value: "0".into(), requirement: requirement.into() });
            }
        }
        let numbers = [
            ("fit_tolerance", self.fit_tolerance),
            ("ridge", self.ridge),
            ("max_seconds", self.max_seconds.unwrap_or_default()),
        ];
        if let Some((name, value)) = numbers.into_iter().find(|(_, v)| !(*v >= 0.0 && v.is_finite())) {
            let requirement = "it must be a finite number of at least 0".into();
            return Err(Error::Option { name, value: value.to_string(), requirement });
        }
        self.checkpoint.iter().try_for_each(Checkpoint::check)?;
        let together = |name, value: &str, with: &str, why: &str| {
            let requirement = format!("it cannot be combined with {with}: {why}");
            Err(Error::Option { name, value: value.into(), requirement })
        };
        if self.line_search {
            let search = |with: &str, why: &str| together("line_search", "true", with, why);
            if !self.fixed.is_empty() {
                return search(&format!("fixed modes {:?}", self.fixed), "it moves the factors of all modes");
            }
            if !self.nonneg.is_empty() {
                return search(
                    &format!("nonneg modes {:?}", self.nonneg),
                    "its steps may leave the non-negative factors",
                );
            }
            if self.starts > 1 {
                return search(&format!("starts {}", self.starts), "a step that helps one start may not help another");
            }
            if self.ridge > 0.0 {
                return search(&format!("ridge {:e}", self.ridge), "it looks at the fit alone");
            }
            if self.checkpoint.is_some() {
                return search("a checkpoint", "its step and the factors before are not saved");
            }
        }
        self.fixed.iter().chain(&self.nonneg).try_for_each(|&mode| shape.check_mode(mode))
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
    /// `1 - |X - Xhat| / |X|` after it; of several starts the best.
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
    /// The seconds allowed had passed.
    MaxSeconds,
    /// All modes are fixed: there was nothing to do.
    AllFixed,
}

impl Stop {
    /// The word in `summary.json`: `tolerance`, `max_sweeps`, `interrupted`, `max_seconds` or `all_fixed`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tolerance => "tolerance",
            Self::MaxSweeps => "max_sweeps",
            Self::Callback => "interrupted",
            Self::MaxSeconds => "max_seconds",
            Self::AllFixed => "all_fixed",
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
    /// The model: columns of unit norm, weights of at least 0 in falling order. With fixed modes: their factors as they
    /// were, components in the order of the start.
    pub model: CpTensor<T>,
    /// `1 - |X - Xhat| / |X|`, from the last sweep.
    pub fit: f64,
    /// The fit of the start, where that is a given model or all modes are fixed. It takes no pass over X of its own.
    /// `None` too where the start's weights leave the range of f64.
    pub initial_fit: Option<f64>,
    /// The fit after each sweep.
    pub fits: Vec<f64>,
    /// The last fit of every start, in order of their seeds.
    pub start_fits: Vec<f64>,
    /// The start that the model comes from, counted from 0.
    pub best_start: usize,
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
    /// Passes over the tensor that the sweeps' MTTKRPs took, those before a checkpoint included.
    pub passes: usize,
    /// What the user should know, one line each.
    pub warnings: Vec<String>,
}
