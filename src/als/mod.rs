//! CP-ALS: one least-squares problem per mode, until the fit stands still. The loop is `cp_als_with`; what it calls is
//! in `init`, `normal_equations` and `fit`.

mod checkpoint;
mod fit;
mod init;
mod leading;
mod nonneg;
mod normal_equations;
mod nvecs;
mod options;
mod starts;
mod steps;
mod wide;

pub use checkpoint::{Checkpoint, Every};
pub use options::{CpAlsOptions, CpAlsResult, Init, Seconds, Stop, Sweep};

pub(crate) use steps::HostSteps;
#[cfg(feature = "gpu")]
pub(crate) use {normal_equations::overflow, steps::Product, steps::Updated};
// In the signature of a public trait, though nobody can name them.
pub use normal_equations::NormalEquations;
pub use steps::AlsSteps;

use crate::plan::MttkrpPlan;
use crate::{Backend, CpTensor, Dtype, Error, Real, Result, Shape};
use checkpoint::{Saver, State};
use init::Start;
use ndarray::{Array1, Array2, ArrayView, ArrayView2, Axis, CowArray, Dimension, s};
use normal_equations::{gram, hadamard, keep_blocks, with_ridge};
use starts::{Trace, columns, entries};
use std::ops::ControlFlow;
use std::time::Instant;
use wide::inner;

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
    let all_columns = rank.saturating_mul(options.starts);
    check_rank(&shape, all_columns)?;
    let (norm, largest) = timed(&mut seconds.fit, || fit::norm(x.view()))?;
    // Tiny or huge data are brought near 1 by a power of two, which changes no digit; the weights undo it.
    let scale = data_scale::<T>(largest);
    let x = match scale {
        1.0 => CowArray::from(x),
        _ => CowArray::from(x.mapv(|v| T::of(v.f64() * scale))),
    };
    let norm = norm * scale;
    let plan_options = options.plan.clone().dtype(T::DTYPE);
    let plan = |mode| MttkrpPlan::new(&shape, mode, all_columns, &plan_options, backend.caps());
    let plans = (0..shape.order()).map(plan).collect::<Result<Vec<_>>>()?;
    let mut warnings: Vec<String> = Vec::new();
    for warning in plans.iter().flat_map(|plan| plan.warnings()) {
        if !warnings.contains(warning) {
            warnings.push(warning.clone());
        }
    }

    let Start { mut factors, weights, fixed, powers } = init::start::<T>(x.view(), &shape, options)?;
    let (mut weights, mut inner_products) = (weights * scale, Array1::zeros(all_columns));
    let (mut trace, mut initial_fit) = (Trace::default(), None);
    // Sums on the CPU depend on the number of threads.
    let device = format!("{}, threads {}", backend.name(), backend.caps().threads);
    let mut saver = Saver::new::<T>(options, &shape, norm, device)?;
    let saved = saver.as_ref().map(|saver| saver.load::<T>(&shape, all_columns)).transpose()?.flatten();
    let resumed = saved.as_ref().map(|(state, _)| state.grams.clone());
    if let Some((state, warning)) = saved {
        (factors, weights, trace, initial_fit) = (state.factors, state.weights, state.trace, state.initial_fit);
        for warning in state.warnings.into_iter().chain(warning) {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
    }
    let free: Vec<usize> = (0..shape.order()).filter(|&mode| fixed[mode].is_none()).collect();
    let (first, last) = (free.first().copied().unwrap_or(0), free.last().copied().unwrap_or(0));
    let first_factor = factors[first].clone();
    // HALS starts from the factor as it is.
    let held = |(mode, factor): (usize, &Array2<T>)| options.nonneg.contains(&mode).then(|| factor.clone());
    let mut nonneg: Vec<Option<Array2<T>>> = factors.iter().enumerate().map(held).collect();
    // A device's grams may differ from the host's in the last bits.
    let own_grams = || factors.iter().map(|f| keep_blocks(gram(f), rank)).collect();
    let mut grams: Vec<Array2<f64>> = timed(&mut seconds.gram, || resumed.unwrap_or_else(own_grams));
    let others = |grams: &[Array2<f64>], without| keep_blocks(hadamard(grams, all_columns, without), rank);
    let xd = timed(&mut seconds.transfer, || backend.upload_tensor(x.view()))?;
    let mut steps = timed(&mut seconds.transfer, || backend.als_steps(&plans, &xd, x.view(), factors))?;
    // Whether the first MTTKRP of a sweep is under way.
    let mut started = false;
    if trace.sweeps() == 0
        && (matches!(options.init, Init::Model(_)) || free.is_empty())
        && weights.iter().all(|w| w.is_finite())
    {
        // The MTTKRP is that of the first update.
        let model = [others(&grams, Some(first)), grams[first].clone()];
        let fit = |steps: &mut dyn AlsSteps<T>, wide| {
            fits_of(steps, first, &first_factor, norm, &weights, &model, rank, wide)
        };
        let (mut own, spent) = fit(&mut *steps, false)?;
        seconds.add(&spent);
        if cancels::<T>(norm, own[0]) && steps.can_widen(first)? {
            let (exact, spent) = fit(&mut *steps, true)?;
            seconds.add(&spent);
            own = exact;
        }
        (initial_fit, started) = (Some(own[0]), true);
    }

    // Where they are out of range, HALS finds them by itself.
    weights.mapv_inplace(|w| if w.is_finite() { w } else { 1.0 });

    let told = |warnings: &[String], what: &str| warnings.iter().any(|w| w.starts_with(what));
    let mut deficient = told(&warnings, "rank deficient");
    let mut ill_conditioned = told(&warnings, "ill-conditioned");
    let mut fallback = told(&warnings, "the range of the numbers");
    let eps = <T as num_traits::Float>::epsilon().f64();
    // What the first MTTKRP of a sweep took the last time.
    let mut first_mttkrp = f64::INFINITY;
    let ended = |trace: &Trace| {
        let over = options.max_seconds.is_some_and(|most| clock.elapsed().as_secs_f64() >= most);
        match trace.sweeps() {
            0 => free.is_empty().then_some(Stop::AllFixed),
            _ if trace.stands_still(options.fit_tolerance) => Some(Stop::Tolerance),
            sweeps if sweeps >= options.max_sweeps => Some(Stop::MaxSweeps),
            _ => over.then_some(Stop::MaxSeconds),
        }
    };
    let mut end = ended(&trace);
    let stop = loop {
        if let Some(stop) = end {
            break stop;
        }
        let number = trace.sweeps() + 1;
        let mut v = Array2::zeros((0, 0));
        if !std::mem::take(&mut started) {
            steps.start(first)?;
        }
        for (at, &n) in free.iter().enumerate() {
            v = timed(&mut seconds.gram, || others(&grams, Some(n)));
            let ridged = with_ridge(&v, options.ridge);
            let mut normal = timed(&mut seconds.solve, || NormalEquations::blocks(&ridged, rank, eps, n))?;
            // f32 sums are too coarse for equations like these.
            let condition =
                if T::DTYPE == Dtype::F32 { timed(&mut seconds.solve, || normal.condition(&ridged)) } else { 1.0 };
            let mut wide = false;
            if condition * eps > COARSE {
                wide = steps.can_widen(n)?;
                if wide {
                    normal = timed(&mut seconds.solve, || NormalEquations::blocks(&ridged, rank, WIDE_EPS, n))?;
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
            if normal.deficient() && !deficient && nonneg[n].is_none() {
                deficient = true;
                warnings.push(format!(
                    "rank deficient: from sweep {number}, mode {n} on normal equations were singular to the \
                     precision of {}, and the smallest solution was taken",
                    T::DTYPE
                ));
            }
            let done = match &mut nonneg[n] {
                Some(factor) => Some(nonneg::update(&mut *steps, n, &ridged, &weights, factor, rank, wide)?),
                None => {
                    steps.update(n, &normal, wide)?;
                    None
                }
            };
            // The next MTTKRP right behind it, so that the device has work while the host looks at the result. At the end
            // of a sweep that may be one too many.
            if let Some(&next) = free.get(at + 1) {
                steps.start(next)?;
            } else if number < options.max_sweeps && first_mttkrp < WORTH_STARTING {
                steps.start(first)?;
                started = true;
            }
            let updated = done.map_or_else(|| steps.finish(), Ok)?;
            seconds.add(&updated.seconds);
            if n == first {
                first_mttkrp = updated.seconds.mttkrp;
            }
            if updated.fallback && !fallback {
                fallback = true;
                warnings.push(format!(
                    "the range of the numbers is too wide for f16 matrix units in mode {n}: the f32 kernels were used"
                ));
            }
            (grams[n], weights, inner_products) = (keep_blocks(updated.gram, rank), updated.norms, updated.inner);
        }
        let h = [v.view(), grams[last].view()];
        let (inner, w) = (inner_products.view(), weights.view());
        trace.fits.push(timed(&mut seconds.fit, || fit::fits(norm, inner, w, h, rank))?);
        let (fit, fit_change) = trace.best_fit();
        let sweep = Sweep { number, fit, fit_change, seconds: clock.elapsed().as_secs_f64(), parts: seconds };
        end = if callback(&sweep).is_break() { Some(Stop::Callback) } else { ended(&trace) };
        if let Some(saver) = &mut saver
            && (end.is_some() || saver.due(number))
        {
            let (grams, weights, trace) = (grams.clone(), weights.clone(), trace.clone());
            let state = State { factors: Vec::new(), grams, weights, trace, initial_fit, warnings: warnings.clone() };
            warnings.extend(timed(&mut seconds.transfer, || saver.save(&mut *steps, state)));
        }
    };

    // Near a perfect fit f32 sums leave nothing of the difference: once more, in f64.
    if trace.sweeps() > 0 && cancels::<T>(norm, trace.best_fit().0) && steps.can_widen(last)? {
        let (factor, model) = (steps.snapshot()?.swap_remove(last), [others(&grams, Some(last)), grams[last].clone()]);
        let (fits, spent) = fits_of(&mut *steps, last, &factor, norm, &weights, &model, rank, true)?;
        seconds.add(&spent);
        trace.fits.last_mut().into_iter().for_each(|last| last.clone_from(&fits));
    }
    let factors = timed(&mut seconds.transfer, || steps.factors())?;
    let mut algebra = steps.place().to_owned();
    if free.iter().any(|&mode| nonneg[mode].is_some()) {
        algebra += "; factors without negative entries by HALS on the host";
    }
    drop(steps);
    // The best start alone.
    let best = trace.best();
    let (fits, factors) = (trace.of(best), factors.iter().map(|f| columns(f, best, rank)).collect::<Vec<Array2<T>>>());
    let weights = entries(&weights, best, rank) / scale;
    let fit = fits.last().copied().or(initial_fit);
    let fit = fit.ok_or(Error::Overflow { what: "a weight of the start".into(), dtype: "f64", index: vec![] })?;
    let start_fits = trace.fits.pop().unwrap_or_else(|| vec![fit]);
    let h = keep_blocks(hadamard(&grams, all_columns, None), rank);
    let h = h.slice(s![best * rank..(best + 1) * rank, best * rank..(best + 1) * rank]);
    let sorted = free.len() == shape.order();
    let order = if sorted { by_falling_weight(&weights) } else { (0..rank).collect() };
    warnings.extend(degenerate(&order, h));
    let model = if sorted {
        in_order(&order, weights, factors)?
    } else {
        let given = fixed.iter().map(|fixed| fixed.as_ref().map(|f| columns(f, best, rank)));
        let factors = factors.into_iter().zip(given).map(|(factor, given)| given.unwrap_or(factor));
        CpTensor::new(in_range(&(weights / entries(&powers, best, rank)))?, factors.collect())?
    };
    seconds.total = clock.elapsed().as_secs_f64();
    let (sweeps, method, device) = (fits.len(), plans[0].method(), backend.name());
    Ok(CpAlsResult {
        model,
        fit,
        initial_fit,
        fits,
        start_fits,
        best_start: best,
        sweeps,
        stop,
        seconds,
        method,
        device,
        algebra,
        warnings,
    })
}

/// The fits of all starts from a new MTTKRP of a mode whose factor is `factor`; `model` has the product of the other modes'
/// grams, and this mode's. With what it took.
#[allow(clippy::too_many_arguments, reason = "what a fit is made of")]
fn fits_of<T: Real>(
    steps: &mut dyn AlsSteps<T>,
    mode: usize,
    factor: &Array2<T>,
    norm: f64,
    weights: &Array1<f64>,
    model: &[Array2<f64>; 2],
    rank: usize,
    wide: bool,
) -> Result<(Vec<f64>, Seconds)> {
    let product = steps.product(mode, wide)?;
    let inner = inner(&product.g, factor);
    let fits = fit::fits(norm, inner.view(), weights.view(), model.each_ref().map(|m| m.view()), rank)?;
    Ok((fits, product.seconds))
}

/// Whether f32 sums leave too little of `1 - fit`.
fn cancels<T: Real>(norm: f64, fit: f64) -> bool {
    T::DTYPE == Dtype::F32 && norm > 0.0 && 1.0 - fit < CANCELS
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
/// bound while the fit creeps up, and no best model of this rank may exist. `h` has the products of components, which are
/// numbered in this order.
fn degenerate(order: &[usize], h: ArrayView2<'_, f64>) -> Option<String> {
    let pairs = (0..order.len()).flat_map(|s| (0..s).map(move |r| (r, s)));
    let cosine = |&(r, s): &(usize, usize)| {
        let (r, s) = (order[r], order[s]);
        // A component of zeros cancels nothing.
        if h[[r, r]] > 0.0 && h[[s, s]] > 0.0 { h[[r, s]] / (h[[r, r]] * h[[s, s]]).sqrt() } else { 0.0 }
    };
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

/// The model with its components in this order. Columns stay as they were solved for: `CpTensor::arrange` would scale them
/// to unit norm a second time, in T.
fn in_order<T: Real>(order: &[usize], weights: Array1<f64>, factors: Vec<Array2<T>>) -> Result<CpTensor<T>> {
    let sorted = in_range(&weights.select(Axis(0), order))?;
    CpTensor::new(sorted, factors.iter().map(|f| f.select(Axis(1), order)).collect())
}

/// The weights in T, where they have to be finite.
fn in_range<T: Real>(weights: &Array1<f64>) -> Result<Array1<T>> {
    let weights: Array1<T> = weights.mapv(T::of);
    match weights.iter().position(|w| !w.is_finite()) {
        Some(r) => Err(Error::Overflow { what: "a weight".into(), dtype: T::DTYPE.name(), index: vec![r] }),
        None => Ok(weights),
    }
}

/// Adds the seconds that `work` takes.
fn timed<R>(seconds: &mut f64, work: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = work();
    *seconds += start.elapsed().as_secs_f64();
    result
}
