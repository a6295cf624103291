//! CP-ALS: one least-squares problem per mode, until the fit stands still. The loop is `cp_als_with`; what it calls is
//! in `init`, `normal_equations` and `fit`.

mod fit;
mod init;
mod line_search;
mod normal_equations;
mod options;
mod steps;
mod wide;

pub use options::{CpAlsOptions, CpAlsResult, Init, Seconds, Stop, Sweep};

pub(crate) use steps::HostSteps;
#[cfg(feature = "gpu")]
pub(crate) use {normal_equations::overflow, steps::Updated, wide::inner};
// In the signature of a public trait, though nobody can name them.
pub use normal_equations::NormalEquations;
pub use steps::AlsSteps;

use crate::plan::{MttkrpPlan, TreePlan};
use crate::{Backend, CpTensor, Dtype, Error, Real, Result, Shape};
use line_search::LineSearch;
use ndarray::{Array1, Array2, ArrayView, Axis, CowArray, Dimension};
use normal_equations::{gram, hadamard};
use std::ops::ControlFlow;
use std::time::Instant;

/// Seconds of an MTTKRP up to which the first of the next sweep is started before it is known whether there is one: a
/// round trip to the host is a good part of a short one, and nothing beside a long one.
const WORTH_STARTING: f64 = 0.02;

/// `eps cond(V)` from which on f32 data are summed in f64: beyond it the rounding of G shows in the factors.
const COARSE: f64 = 1e-2;

/// What such sums are taken to be known to when it is told which eigenvalues of V count. Not f64's eps: the factors are
/// rounded to f32, and where components cancel to less than this, that alone is more than what is left.
const WIDE_EPS: f64 = 1e-11;

/// `1 - fit` below which f32 sums do not give its fifth digit.
const CANCELS: f64 = 0.05;

/// Cosine of two components from which on they count as degenerate, as is usual (Krijnen, Dijkstra and Stegeman,
/// Psychometrika 73, 2008).
const DEGENERATE: f64 = -0.85;

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
/// sums in f32 are summed in f64, with a warning; so are components told that almost cancel each other. A component that became zero has weight 0 and columns of zeros.
///
/// The start's columns are scaled to unit 2-norm first, which changes nothing in exact arithmetic. The weights of a
/// given start play no part either: the first update replaces factor 0 by the best for the other factors, so the first
/// fit is at least that of the start. A start that is zero is an error, as ALS cannot leave it. Data whose largest
/// magnitude is far from 1 (beyond 2^30 in f32, 2^300 in f64, either way) are scaled by a power of two in a copy. [`Init::Nvecs`] takes the smaller gram of each unfolding, which may have up to
/// 8192 rows. Nothing is printed, and neither x nor the options are changed.
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
    let start = Instant::now();
    let mut seconds = Seconds::default();
    options.check()?;
    let (x, rank) = (x.into_dyn(), options.rank);
    let shape = Shape::new(x.shape())?;
    check_rank(&shape, rank)?;
    let (norm, largest) = timed(&mut seconds.fit, || fit::norm(x.view()))?;
    // Tiny or huge data are brought near 1 by a power of two, which changes no digit; the weights undo it.
    let scale = data_scale::<T>(largest);
    let x = match scale {
        1.0 => CowArray::from(x),
        _ => CowArray::from(x.mapv(|v| T::of(v.f64() * scale))),
    };
    let norm = norm * scale;
    let plan_options = options.plan.clone().dtype(T::DTYPE);
    let plan = |mode| MttkrpPlan::new(&shape, mode, rank, &plan_options, backend.caps());
    let plans = (0..shape.order()).map(plan).collect::<Result<Vec<_>>>()?;
    let tree = TreePlan::new(&shape, rank, options.tree, options.memory_budget, &plan_options, backend.caps())?;
    let mut warnings: Vec<String> = Vec::new();
    for warning in plans.iter().flat_map(|plan| plan.warnings()) {
        if !warnings.contains(warning) {
            warnings.push(warning.clone());
        }
    }

    let factors: Vec<Array2<T>> = init::start(x.view(), &shape, options)?;
    let mut grams: Vec<Array2<f64>> = timed(&mut seconds.gram, || factors.iter().map(gram).collect());
    let xd = timed(&mut seconds.transfer, || backend.upload_tensor(x.view()))?;
    let mut steps = timed(&mut seconds.transfer, || backend.als_steps(&plans, &tree, &xd, x.view(), factors))?;

    let (mut weights, mut inner) = (Array1::zeros(rank), Array1::zeros(rank));
    let mut fits: Vec<f64> = Vec::new();
    let (mut deficient, mut ill_conditioned, mut fallback) = (false, false, false);
    let mut passes = 0;
    let eps = <T as num_traits::Float>::epsilon().f64();
    let mut search = options.line_search.then(LineSearch::new);
    // Whether the MTTKRP of the mode at hand is under way, and what that of mode 0 took the last time.
    let (mut started, mut first_mttkrp) = (false, f64::INFINITY);
    let last = shape.order() - 1;
    let stop = loop {
        let number = fits.len() + 1;
        let mut v = Array2::zeros((0, 0));
        if let Some(search) = &mut search {
            search.go_on(&mut *steps, &mut grams)?;
        }
        let mut n = 0;
        while n <= last {
            if !std::mem::take(&mut started) {
                steps.start(n)?;
            }
            let trying = search.as_ref().is_some_and(|search| search.trying);
            v = timed(&mut seconds.gram, || hadamard(&grams, rank, Some(n)));
            let mut normal = timed(&mut seconds.solve, || NormalEquations::new(&v, eps, n))?;
            // f32 sums are too coarse for equations like these.
            let condition =
                if T::DTYPE == Dtype::F32 { timed(&mut seconds.solve, || normal.condition(&v)) } else { 1.0 };
            let mut wide = false;
            if condition * eps > COARSE {
                wide = steps.can_widen(n)?;
                if wide {
                    normal = timed(&mut seconds.solve, || NormalEquations::new(&v, WIDE_EPS, n))?;
                }
                if !ill_conditioned {
                    ill_conditioned = true;
                    let remedy = if wide { "some sums are in f64, which takes longer" } else { "use dtype f64" };
                    warnings.push(format!(
                        "ill-conditioned, {remedy}: from sweep {number}, mode {n} on normal equations have a condition \
                         of {condition:.0e}, too much for sums in f32"
                    ));
                }
            }
            if normal.deficient() && !deficient {
                deficient = true;
                warnings.push(format!(
                    "rank deficient: from sweep {number}, mode {n} on normal equations were singular to the \
                     precision of {}, and the smallest solution was taken",
                    T::DTYPE
                ));
            }
            steps.update(n, &normal, wide)?;
            // The next MTTKRP right behind it, so that the device has work while the host looks at the result. At the end
            // of a sweep that may be one too many.
            if n < last && !trying {
                steps.start(n + 1)?;
                started = true;
            } else if n == last && search.is_none() && number < options.max_sweeps && first_mttkrp < WORTH_STARTING {
                steps.start(0)?;
                started = true;
            }
            let updated = steps.finish()?;
            seconds.add(&updated.seconds);
            passes += updated.passes;
            if n == 0 {
                first_mttkrp = updated.seconds.mttkrp;
            }
            if updated.fallback && !fallback {
                fallback = true;
                warnings.push(format!(
                    "the range of the numbers is too wide for f16 matrix units in mode {n}: the f32 kernels were used"
                ));
            }
            (grams[n], weights, inner) = (updated.gram, updated.norms, updated.inner);
            if let (true, Some(search)) = (trying, &mut search) {
                let h = [v.view(), grams[n].view()];
                let fit = timed(&mut seconds.fit, || fit::fit(norm, inner.view(), weights.view(), h))?;
                let better = fits.last().is_some_and(|&before| fit > before);
                if search.settle(better, &mut *steps, &mut grams)? {
                    continue;
                }
            }
            n += 1;
        }
        let h = [v.view(), grams[last].view()];
        let fit = timed(&mut seconds.fit, || fit::fit(norm, inner.view(), weights.view(), h))?;
        let fit_change = fits.last().map(|before| fit - before);
        fits.push(fit);
        let sweep = Sweep { number, fit, fit_change, passes, seconds: start.elapsed().as_secs_f64(), parts: seconds };
        if callback(&sweep).is_break() {
            break Stop::Callback;
        }
        if fit_change.is_some_and(|change| change.abs() < options.fit_tolerance) {
            break Stop::Tolerance;
        }
        if number >= options.max_sweeps {
            break Stop::MaxSweeps;
        }
    };

    // Near a perfect fit f32 sums leave nothing of the difference: once more, in f64.
    if T::DTYPE == Dtype::F32 && norm > 0.0 && fits.last().is_some_and(|fit| 1.0 - fit < CANCELS) {
        let exact = timed(&mut seconds.fit, || steps.wide_inner(last))?;
        if let (Some(exact), Some(fit)) = (exact, fits.last_mut()) {
            let v = hadamard(&grams, rank, Some(last));
            *fit = fit::fit(norm, exact.view(), weights.view(), [v.view(), grams[last].view()])?;
        }
    }
    warnings.extend(degenerate(&weights, &hadamard(&grams, rank, None)));
    let factors = timed(&mut seconds.transfer, || steps.factors())?;
    let (algebra, tree) = (steps.place().to_owned(), steps.tree());
    drop(steps);
    let model = by_weight(weights / scale, factors)?;
    seconds.total = start.elapsed().as_secs_f64();
    let fit = fits.last().copied().unwrap_or_default();
    let (sweeps, method, device) = (fits.len(), plans[0].method(), backend.name());
    Ok(CpAlsResult { model, fit, fits, sweeps, stop, seconds, method, device, algebra, tree, passes, warnings })
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

/// A warning about the two components that cancel most, if they are almost opposite: their weights tend to grow without
/// bound while the fit creeps up, and no best model of this rank may exist. `h` has the cosines.
fn degenerate(weights: &Array1<f64>, h: &Array2<f64>) -> Option<String> {
    let order = by_falling_weight(weights);
    let pairs = (0..order.len()).flat_map(|s| (0..s).map(move |r| (r, s)));
    let cosine = |&(r, s): &(usize, usize)| h[[order[r], order[s]]];
    let (r, s) = pairs.min_by(|a, b| cosine(a).total_cmp(&cosine(b)))?;
    let c = cosine(&(r, s));
    (c < DEGENERATE)
        .then(|| format!("degenerate components, congruence {c:.4}: components {r} and {s} almost cancel each other"))
}

fn by_falling_weight(weights: &Array1<f64>) -> Vec<usize> {
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]));
    order
}

/// The model with its components in order of falling weight, equal ones as they were. Columns stay as they were solved
/// for: `CpTensor::arrange` would scale them to unit norm a second time, in T.
fn by_weight<T: Real>(weights: Array1<f64>, factors: Vec<Array2<T>>) -> Result<CpTensor<T>> {
    let order = by_falling_weight(&weights);
    let sorted: Array1<T> = order.iter().map(|&r| T::of(weights[r])).collect();
    if let Some(r) = sorted.iter().position(|w| !w.is_finite()) {
        return Err(Error::Overflow { what: "a weight".into(), dtype: T::DTYPE.name(), index: vec![r] });
    }
    CpTensor::new(sorted, factors.iter().map(|f| f.select(Axis(1), &order)).collect())
}

/// Adds the seconds that `work` takes.
fn timed<R>(seconds: &mut f64, work: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = work();
    *seconds += start.elapsed().as_secs_f64();
    result
}
