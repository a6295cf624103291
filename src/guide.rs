//! Choosing options of CP-ALS: which one for what, with a small program each, and what they are called elsewhere.
//!
//! The programs share this tensor: three components, no negative entries, and a little of something else.
//!
//! ```
//! use polyad::{CpAlsOptions, Cpu, cp_als};
//! # fn tensor() -> ndarray::Array3<f64> { ndarray::Array3::from_shape_fn((8, 7, 6), |(i, j, k)| {
//! #     let bump = |at: usize, i: usize| (-0.5 * (i as f64 - at as f64).powi(2)).exp();
//! #     (0..3).map(|r| bump(2 * r, i) * bump(5 - 2 * r, j) * bump(r + 1, k)).sum::<f64>() + 1e-3 * ((i * j + k) % 3) as f64
//! # }) }
//! let x = tensor();
//! let plain = cp_als(&Cpu::new(), x.view(), &CpAlsOptions::new(3))?;
//! println!("fit {:.4} after {} sweeps ({:?})", plain.fit, plain.sweeps, plain.stop);
//! # Ok::<(), polyad::Error>(())
//! ```
//!
//! # How many components?
//!
//! Fit grows with the rank, so it does not tell. [Core consistency](crate::CpTensor::core_consistency) falls once there are
//! too many. On the command line: `--rank 1..6`.
//!
//! ```
//! # use polyad::{CpAlsOptions, Cpu, cp_als};
//! # fn tensor() -> ndarray::Array3<f64> { ndarray::Array3::from_shape_fn((8, 7, 6), |(i, j, k)| {
//! #     let bump = |at: usize, i: usize| (-0.5 * (i as f64 - at as f64).powi(2)).exp();
//! #     (0..3).map(|r| bump(2 * r, i) * bump(5 - 2 * r, j) * bump(r + 1, k)).sum::<f64>() + 1e-3 * ((i * j + k) % 3) as f64
//! # }) }
//! let x = tensor();
//! for rank in 1..=4 {
//!     let result = cp_als(&Cpu::new(), x.view(), &CpAlsOptions::new(rank).max_sweeps(300))?;
//!     println!("{rank}: fit {:.4}, core consistency {:.1}", result.fit, result.model.core_consistency(x.view())?);
//! }
//! # Ok::<(), polyad::Error>(())
//! ```
//!
//! # A better start
//!
//! ALS may end in a local optimum. [`starts`](crate::CpAlsOptions::starts) runs several and keeps the best; one pass over X
//! serves all of them. [`Init::Nvecs`](crate::Init::Nvecs) starts from singular vectors, and
//! [`Init::Model`](crate::Init::Model) from a model, whose own fit is in
//! [`initial_fit`](crate::CpAlsResult::initial_fit).
//!
//! ```
//! # use polyad::{CpAlsOptions, Cpu, Init, cp_als};
//! # let x = ndarray::Array3::from_shape_fn((8, 7, 6), |(i, j, k)| ((i * j + 2 * k) % 5) as f64);
//! let best = cp_als(&Cpu::new(), x.view(), &CpAlsOptions::new(3).starts(5))?;
//! println!("{:?}: start {} is the best", best.start_fits, best.best_start);
//!
//! let init = Init::Model(Box::new(best.model.to_f64()));
//! let more = cp_als(&Cpu::new(), x.view(), &CpAlsOptions::new(3).init(init).fit_tolerance(1e-9))?;
//! assert!((more.initial_fit.unwrap() - best.fit).abs() < 1e-7);
//! # Ok::<(), polyad::Error>(())
//! ```
//!
//! # What is known beforehand
//!
//! Factors that are known are [fixed](crate::CpAlsOptions::fix), those that cannot be negative are
//! [kept so](crate::CpAlsOptions::nonneg). Both go mode by mode, and together.
//!
//! ```
//! # use polyad::{CpAlsOptions, Cpu, Init, cp_als};
//! # let x = ndarray::Array3::from_shape_fn((8, 7, 6), |(i, j, k)| ((i * j + 2 * k) % 5) as f64);
//! let calibrated = cp_als(&Cpu::new(), x.view(), &CpAlsOptions::new(2).nonneg(0..3))?.model;
//! let next_day = x.mapv(|v| 1.1 * v);
//! let options = CpAlsOptions::new(2).init(Init::Model(Box::new(calibrated.to_f64()))).fix([1, 2]).nonneg([0]);
//! let model = cp_als(&Cpu::new(), next_day.view(), &options)?.model;
//! assert_eq!(model.factors()[1], calibrated.factors()[1]);
//! # Ok::<(), polyad::Error>(())
//! ```
//!
//! # Components that cancel
//!
//! A warning "degenerate components" says that two components grow against each other, and that perhaps no best model of
//! this rank exists. Take a smaller rank, factors without negative entries, or a [`ridge`](crate::CpAlsOptions::ridge),
//! which bounds the weights; 1e-3 is a gentle one.
//!
//! # Fewer passes over the tensor
//!
//! Nearly all time goes into passes over the tensor, one a mode. A [`tree`](crate::CpAlsOptions::tree) keeps a product of the
//! tensor with some of the factors, from which the updates of several modes follow: two passes a sweep, or fewer, for the same
//! sweeps. [`Tree::Auto`](crate::Tree::Auto) takes one where it is likely to save time and the product fits
//! [`memory_budget`](crate::CpAlsOptions::memory_budget), by default as many bytes as the tensor has, or twice as many on a GPU
//! whose memory is known. Ask for one kind, or for none, where you know better.
//!
//! ```
//! use polyad::{CpAlsOptions, Cpu, Tree, cp_als};
//! # let x = ndarray::Array3::from_shape_fn((8, 7, 6), |(i, j, k)| ((i * j + 2 * k) % 5) as f64);
//! let options = CpAlsOptions::new(3).max_sweeps(10).fit_tolerance(0.0);
//! let run = |tree| cp_als(&Cpu::new(), x.view(), &options.clone().tree(tree).memory_budget(1 << 20));
//! let (plain, kept) = (run(Tree::None)?, run(Tree::MultiSweep)?);
//! assert_eq!((plain.passes, kept.passes), (30, 15));
//! assert!((plain.fit - kept.fit).abs() < 1e-9);
//! println!("{}", kept.tree);
//! # Ok::<(), polyad::Error>(())
//! ```
//!
//! # Fewer sweeps
//!
//! Where components are nearly parallel, each sweep goes a little further in the same direction, for thousands of them. A
//! [`line_search`](crate::CpAlsOptions::line_search) goes a longer way at once. The error never rises by it: a step that does
//! not help is taken back, which costs one MTTKRP. It leaves out fixed and non-negative modes, several starts, a ridge and
//! checkpoints.
//!
//! ```
//! use polyad::{CpAlsOptions, Cpu, cp_als};
//! let column = |r: usize, i: usize| 1.0 + 0.3 * ((i * (r + 2) % 7) as f64 - 3.0) / 3.0;
//! let x = ndarray::Array3::from_shape_fn((9, 8, 7), |(i, j, k)| {
//!     (0..3).map(|r| column(r, i) * column(r, j) * column(r, k)).sum::<f64>()
//! });
//! let options = CpAlsOptions::new(3).max_sweeps(150).fit_tolerance(0.0);
//! let plain = cp_als(&Cpu::new(), x.view(), &options)?;
//! let searched = cp_als(&Cpu::new(), x.view(), &options.line_search(true))?;
//! assert!(1.0 - searched.fit < 0.5 * (1.0 - plain.fit));
//! # Ok::<(), polyad::Error>(())
//! ```
//!
//! # Long runs
//!
//! [`max_seconds`](crate::CpAlsOptions::max_seconds) ends a run in time, a callback ([`cp_als_with`](crate::cp_als_with))
//! whenever it likes, and a [`checkpoint`](crate::CpAlsOptions::checkpoint) lets it go on later, to the same bits.
//!
//! ```
//! # use polyad::{Checkpoint, CpAlsOptions, Cpu, Every, cp_als};
//! # let x = ndarray::Array3::from_shape_fn((8, 7, 6), |(i, j, k)| ((i * j + 2 * k) % 5) as f64);
//! # let dir = tempfile::tempdir().unwrap();
//! let checkpoint = Checkpoint::new(dir.path()).every(Every::Seconds(30.0)).resume(true);
//! let options = CpAlsOptions::new(3).max_seconds(0.01).checkpoint(checkpoint);
//! let first = cp_als(&Cpu::new(), x.view(), &options)?;
//! let both = cp_als(&Cpu::new(), x.view(), &options)?;
//! assert_eq!(first.fits[..], both.fits[..first.sweeps]);
//! # Ok::<(), polyad::Error>(())
//! ```
//!
//! A GPU that fails ends a run with an error; [`Device::cp_als_or_on_cpu`](crate::Device::cp_als_or_on_cpu) goes on on the
//! CPU instead.
//!
//! # Tensors that do not fit
//!
//! What exceeds a GPU's memory, or a budget (`Gpu::with_memory_budget`, `--card-memory`), stays on the host, in memory or in a
//! mapped `.npy` file, and crosses the bus once in every MTTKRP. Nothing has to be asked for;
//! [`Footprint`](crate::plan::Footprint) says beforehand whether it will be so, and what a sweep moves. A larger rank or more
//! `starts` cost little then, as the bus and not the arithmetic is what takes the time.
//!
//! # Names elsewhere
//!
//! | Here (default) | Command line | TensorLy `parafac` | pyttb `cp_als` | Tensor Toolbox `cp_als` |
//! | --- | --- | --- | --- | --- |
//! | `rank` | `--rank` | `rank` | `rank` | the second argument |
//! | `max_sweeps` (100) | `--sweeps` | `n_iter_max` (100) | `maxiters` (1000) | `maxiters` (50) |
//! | `fit_tolerance` (1e-6), change of the fit | `--tol` | `tol` (1e-8), change of the relative error | `stoptol` (1e-4), change of the fit | `tol` (1e-4), change of the fit |
//! | `init` (`Random`, uniform) | `--init`, `--seed` | `init` (`svd`), `random_state` | `init` (`random`, uniform) | `init` (`random`, uniform) |
//! | `Init::Normal` | `--init normal` | | | |
//! | `Init::Nvecs` | `--init nvecs` | `svd` | `nvecs` | `nvecs` |
//! | `Init::Model` | `--init DIR` | a `CPTensor` | a `ktensor` | a cell array or a `ktensor` |
//! | `starts` (1) | `--starts` | call several times | call several times | call several times |
//! | `fix` (none) | `--fix` | `fixed_modes` (none, not the last) | all but `optdims` (all) | |
//! | `nonneg` (none) | `--nonneg` | `non_negative_parafac_hals`, `nn_modes` | | |
//! | `ridge` (0), relative to unit columns | `--ridge` | `l2_reg` (0), as it is | | |
//! | `line_search` (no) | `--line-search` | `linesearch` (no) | | |
//! | `tree` (`Auto`), `memory_budget` | `--tree`, `--memory-budget` | | | |
//! | `max_seconds` (no limit) | `--max-seconds` | | | |
//! | `checkpoint` (none) | `--checkpoint`, `--resume` | | | |
//! | modes in their order | | in their order | `dimorder` | `dimorder` |
//! | callback | `--print-every` (1) | `callback`, `verbose` (0) | `printitn` (1) | `printitn` (1) |
//! | [`CpAlsResult::fits`](crate::CpAlsResult::fits) | `fits` in `summary.json` | `return_errors` (no) | the last one | `trace` (no) |
//! | [`CpTensor::fix_signs`](crate::CpTensor::fix_signs), to be called | | `cp_flip_sign` | `fixsigns` (yes) | `fixsigns` (yes) |
//! | unit columns, weights beside them, always | | `normalize_factors` (no) | always | always |
//! | [`CpTensor::arrange`](crate::CpTensor::arrange), done | | | `arrange`, done | `arrange`, done |
//! | [`CpTensor::score`](crate::CpTensor::score) | `polyad score` | `congruence_coefficient` | `score` | `score` |
//! | [`CpTensor::to_full`](crate::CpTensor::to_full) | `polyad reconstruct` | `cp_to_tensor` | `full` | `full` |
//! | [`CpTensor::core_consistency`](crate::CpTensor::core_consistency) | `--rank 1..6` | | | |
