//! CP-ALS: one least-squares problem per mode, until the fit stands still. `cp_als_with` puts a run together, `sweeps` has
//! what is done in a sweep, `ending` makes a model of what they leave.

mod checkpoint;
mod cholesky;
mod ending;
mod fit;
mod init;
mod leading;
mod line_search;
mod nonneg;
mod normal_equations;
mod nvecs;
mod options;
mod starts;
mod steps;
mod sweeps;
mod wide;

pub use checkpoint::{Checkpoint, Every};
pub use options::{CpAlsOptions, CpAlsResult, Init, Seconds, Stop, Sweep};

pub(crate) use steps::HostSteps;
#[cfg(feature = "gpu")]
pub(crate) use {normal_equations::NormalEquations, normal_equations::overflow, steps::Product, steps::Updated};
// In the signature of a public trait, though nobody can name it.
pub use steps::AlsSteps;

use crate::plan::{Footprint, Method, MttkrpPlan, TreePlan};
use crate::{Backend, Dtype, Error, Real, Result, Shape};
use checkpoint::{Saver, State};
use init::Start;
use ndarray::{Array2, ArrayView, CowArray, Dimension};
use normal_equations::{gram, keep_blocks};
use starts::Trace;
use std::ops::ControlFlow;
use std::time::Instant;
use sweeps::{Run, tell};

/// CP-ALS without a callback: see [`cp_als_with`].
///
/// # Errors
/// As [`cp_als_with`].
///
/// ```
/// use ndarray::Array3;
/// use polyad::{cp_als, CpAlsOptions, Cpu};
/// let x = Array3::from_shape_fn((4, 3, 2), |(i, j, k)| ((i + 1) * (j + 2) * (k + 3)) as f64);
/// let result = cp_als(&Cpu::new(), x.view(), &CpAlsOptions::new(1)).unwrap();
/// assert!(result.fit > 0.999999);
/// ```
pub fn cp_als<B: Backend, T: Real, D: Dimension>(
    backend: &B,
    x: ArrayView<'_, T, D>,
    options: &CpAlsOptions,
) -> Result<CpAlsResult<T>> {
    cp_als_with(backend, x, options, |_| ControlFlow::Continue(()))
}

/// Fits a CP model by alternating least squares and calls back after each sweep; `Break` ends it there.
///
/// A sweep does for each mode n: G = MTTKRP on the backend, V = Hadamard product of the other modes' grams,
/// A_n = G V^-1, columns scaled to unit 2-norm, their norms kept as weights. Everything but the MTTKRP is done in f64.
/// The fit `1 - |X - Xhat| / |X|` comes from the last mode's MTTKRP without another pass over X. For a tensor of zeros
/// it is 1: the model found is zero too, and nothing is left over. Rounding apart, the error never grows from sweep to
/// sweep; in f32, rounding of G shows in the fit from about the fifth digit on, and a smaller tolerance may not stop it.
/// MTTKRPs of several modes may share a pass over x ([`CpAlsOptions::tree`]), which changes results by rounding only.
/// Near 1 the last fit is taken once more from sums in f64. f32 data whose normal equations are too ill-conditioned for
/// sums in f32 are summed in f64, with a warning; so are components told that almost cancel each other.
/// A component that became zero has weight 0 and columns of zeros.
///
/// The start's columns are scaled to unit 2-norm first, which changes nothing in exact arithmetic. The weights of a given
/// start count for [`CpAlsResult::initial_fit`] and where modes are fixed; the first update replaces a factor by the best
/// for the others, so the first fit is at least that of the start. A start that is zero is an error, as ALS cannot leave
/// it. Data whose largest magnitude is far from 1 (beyond 2^30 in f32, 2^300 in f64, either way) are scaled by a power of
/// two in a copy. [`Init::Nvecs`] takes the smaller gram of each unfolding, which may have up to 8192 rows. Nothing is
/// printed, and neither x nor the options are changed.
///
/// # Errors
/// Options or shapes that make no sense, NaN or infinity in x, numbers that leave the range of the dtype, and what the
/// backend says. A model that is returned is finite.
///
/// ```
/// use ndarray::Array2;
/// use polyad::{cp_als_with, CpAlsOptions, Cpu, Stop};
/// use std::ops::ControlFlow;
/// let x = Array2::<f32>::eye(3);
/// let result = cp_als_with(&Cpu::new(), x.view(), &CpAlsOptions::new(1), |sweep| {
///     if sweep.number == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
/// });
/// assert_eq!(result.unwrap().stop, Stop::Callback);
/// ```
pub fn cp_als_with<B: Backend, T: Real, D: Dimension>(
    backend: &B,
    x: ArrayView<'_, T, D>,
    options: &CpAlsOptions,
    mut callback: impl FnMut(&Sweep) -> ControlFlow<()>,
) -> Result<CpAlsResult<T>> {
    let clock = Instant::now();
    let mut seconds = Seconds::default();
    let (x, rank) = (x.into_dyn(), options.rank);
    let shape = Shape::new(x.shape())?;
    options.check(&shape)?;
    // Columns of all starts together; their grams and equations are blocks on the diagonal.
    let columns = rank.saturating_mul(options.starts);
    check_rank(&shape, columns)?;
    let (norm, largest) = timed(&mut seconds.fit, || fit::norm(x.view()))?;
    // Tiny or huge data are brought near 1 by a power of two, which changes no digit; the weights undo it.
    let scale = data_scale::<T>(largest);
    let x = match scale {
        1.0 => CowArray::from(x),
        _ => CowArray::from(x.mapv(|v| T::of(v.f64() * scale))),
    };
    let norm = norm * scale;
    let (plans, tree) = plans::<T, B>(backend, &shape, columns, options)?;

    let Start { factors, weights, fixed, powers } = init::start::<T>(x.view(), &shape, options)?;
    // Sums of these depend on the number of threads on the CPU.
    let by_threads = |plan: &MttkrpPlan| matches!(plan.method(), Method::Elem | Method::Tile | Method::Gemm);
    let mut device = backend.name();
    if plans.iter().any(by_threads) {
        device += &format!(", threads {}", backend.caps().threads);
    }
    if !tree.groups().is_empty() {
        device += &format!(", groups of modes {:?}", tree.groups());
    }
    let mut saver = Saver::new::<T>(options, &shape, norm, device)?;
    let saved = saver.as_ref().map(|saver| saver.load::<T>(&shape, columns)).transpose()?.flatten();
    let (mut state, warning) = match saved {
        // A device's grams may differ from the host's in the last bits.
        Some(saved) => saved,
        None => {
            let grams = timed(&mut seconds.gram, || factors.iter().map(|f| keep_blocks(gram(f), rank)).collect());
            let (trace, warnings) = (Trace::default(), Vec::new());
            let weights = weights * scale;
            (State { factors, grams, weights, trace, passes: 0, kept: None, initial_fit: None, warnings }, None)
        }
    };
    let told = std::mem::take(&mut state.warnings);
    for warning in plans.iter().flat_map(|plan| plan.warnings()).cloned().chain(told).chain(warning) {
        tell(&mut state.warnings, &warning, || warning.clone());
    }

    let free: Vec<usize> = (0..shape.order()).filter(|&mode| fixed[mode].is_none()).collect();
    let factors = std::mem::take(&mut state.factors);
    // HALS starts from the factor as it is.
    let held = |(mode, factor): (usize, &Array2<T>)| options.nonneg.contains(&mode).then(|| factor.clone());
    let nonneg = factors.iter().enumerate().map(held).collect();
    let first_factor = factors[free.first().copied().unwrap_or(0)].clone();
    let need = Footprint::cp_als(&plans, &tree, backend.caps())?;
    let xd = timed(&mut seconds.transfer, || backend.place_tensor(need, x.view()))?;
    let mut steps = timed(&mut seconds.transfer, || backend.als_steps(&plans, &tree, &xd, x.view(), factors))?;
    state.kept.take().into_iter().for_each(|group| steps.keep(group));
    let mut run = Run::new(options, norm, free, steps, state, nonneg, seconds);
    run.fit_of_start(&first_factor)?;
    let mut end = run.end(&clock);
    let stop = loop {
        if let Some(stop) = end {
            break stop;
        }
        run.sweep()?;
        let sweep = run.report(&clock);
        end = if callback(&sweep).is_break() { Some(Stop::Callback) } else { run.end(&clock) };
        if let Some(saver) = &mut saver
            && (end.is_some() || saver.due(sweep.number))
        {
            run.save(saver);
        }
    };
    run.refine()?;
    let ended = run.finish()?;
    let (method, device) = (plans[0].method(), backend.name());
    ending::result(ended, options, scale, (&fixed, &powers), (stop, method, device), &clock)
}

/// The plans of all modes, and of what their MTTKRPs share.
fn plans<T: Real, B: Backend>(
    backend: &B,
    shape: &Shape,
    columns: usize,
    options: &CpAlsOptions,
) -> Result<(Vec<MttkrpPlan>, TreePlan)> {
    let caps = backend.caps();
    let plan_options = options.plan.clone().dtype(T::DTYPE);
    let plan = |mode| MttkrpPlan::new(shape, mode, columns, &plan_options, caps);
    let plans = (0..shape.order()).map(plan).collect::<Result<Vec<_>>>()?;
    let tree = TreePlan::of(&plans, options.tree, options.memory_budget, &plan_options, caps)?;
    Ok((plans, tree))
}

/// What to multiply data by whose largest magnitude is this: 1 unless products of it with entries of unit columns might
/// leave the normal range of T, else the power of two that brings it to 1..2.
fn data_scale<T: Real>(largest: f64) -> f64 {
    let safe = if T::DTYPE == Dtype::F32 { 30.0 } else { 300.0 };
    let exponent = if largest > 0.0 { largest.log2().floor() } else { 0.0 };
    if exponent.abs() <= safe { 1.0 } else { (-exponent.clamp(-1000.0, 1000.0)).exp2() }
}

/// Errors where a factor or a gram of this rank could not be addressed.
fn check_rank(shape: &Shape, rank: usize) -> Result<()> {
    let rows = shape.iter().fold(rank, |most, &d| most.max(d));
    match rows.checked_mul(rank).and_then(|n| n.checked_mul(size_of::<f64>())) {
        Some(bytes) if bytes <= isize::MAX as usize => Ok(()),
        _ => Err(Error::TooManyElements { what: "a factor or a gram", dims: vec![rows, rank] }),
    }
}

/// Adds the seconds that `work` takes.
fn timed<R>(seconds: &mut f64, work: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = work();
    *seconds += start.elapsed().as_secs_f64();
    result
}
