//! The sweeps of a run: for each mode an MTTKRP, normal equations and a new factor, then the fit.

use super::checkpoint::{Saver, State};
use super::line_search::LineSearch;
use super::normal_equations::{NormalEquations, hadamard, keep_blocks, with_ridge};
use super::steps::{AlsSteps, Updated};
use super::wide::inner;
use super::{CpAlsOptions, Init, Seconds, Stop, Sweep, fit, nonneg, timed};
use crate::{Dtype, Real, Result};
use ndarray::{Array1, Array2};
use std::borrow::Cow;
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

/// A run between its sweeps. The factors are with the device's steps, those of the state empty.
pub(super) struct Run<'a, T> {
    options: &'a CpAlsOptions,
    /// Of the tensor.
    norm: f64,
    /// Modes that are not fixed.
    free: Vec<usize>,
    steps: Box<dyn AlsSteps<T> + 'a>,
    state: State<T>,
    /// `sum_i G[i, r] A[i, r]` of the last update.
    inner: Array1<f64>,
    /// Factors without negative entries, which the host replaces.
    nonneg: Vec<Option<Array2<T>>>,
    search: Option<LineSearch<T>>,
    /// The MTTKRP of the mode at hand is under way.
    started: bool,
    /// What the first MTTKRP of a sweep took the last time.
    first_mttkrp: f64,
    seconds: Seconds,
    /// Memory of the last Hadamard product of grams.
    v_memory: Array2<f64>,
    /// The last equations, whose memory the next ones take.
    before: Option<NormalEquations>,
}

/// What a run leaves.
pub(super) struct Ended<T> {
    /// With the factors.
    pub state: State<T>,
    pub seconds: Seconds,
    /// Where the dense part was done, and how passes over the tensor were shared.
    pub algebra: String,
    pub tree: String,
}

/// Adds a warning, unless there is one that begins like that.
pub(super) fn tell(warnings: &mut Vec<String>, beginning: &str, warning: impl FnOnce() -> String) {
    if !warnings.iter().any(|w| w.starts_with(beginning)) {
        warnings.push(warning());
    }
}

impl<'a, T: Real> Run<'a, T> {
    pub fn new(
        options: &'a CpAlsOptions,
        norm: f64,
        free: Vec<usize>,
        steps: Box<dyn AlsSteps<T> + 'a>,
        state: State<T>,
        nonneg: Vec<Option<Array2<T>>>,
        seconds: Seconds,
    ) -> Self {
        let search = options.line_search.then(LineSearch::new);
        let (inner, started, first_mttkrp) = (Array1::zeros(0), false, f64::INFINITY);
        let v_memory = Array2::zeros((0, 0));
        Self {
            options,
            norm,
            free,
            steps,
            state,
            inner,
            nonneg,
            search,
            started,
            first_mttkrp,
            seconds,
            v_memory,
            before: None,
        }
    }

    /// The Hadamard product of the grams, of those of one mode left out.
    fn grams(&mut self, without: Option<usize>) -> Array2<f64> {
        let (rank, starts) = (self.options.rank, self.options.starts);
        let memory = std::mem::take(&mut self.v_memory);
        keep_blocks(hadamard(&self.state.grams, rank * starts, without, memory), rank)
    }

    /// Where a given start, or one that nothing will change, has a fit of its own. Its MTTKRP, of the first mode that is
    /// free, is that of the first update. `factor` is the start's of that mode.
    pub fn fit_of_start(&mut self, factor: &Array2<T>) -> Result<()> {
        let given = matches!(self.options.init, Init::Model(_)) || self.free.is_empty();
        if self.state.trace.sweeps() == 0 && given && self.state.weights.iter().all(|w| w.is_finite()) {
            let first = self.free.first().copied().unwrap_or(0);
            let mut fit = self.fits_of(first, factor, false)?[0];
            if cancels::<T>(self.norm, fit) && self.steps.can_widen(first)? {
                fit = self.fits_of(first, factor, true)?[0];
            }
            (self.state.initial_fit, self.started) = (Some(fit), true);
        }
        // Where they are out of range, HALS finds them by itself.
        self.state.weights.mapv_inplace(|w| if w.is_finite() { w } else { 1.0 });
        Ok(())
    }

    /// Why the run has ended, if it has.
    pub fn end(&self, clock: &Instant) -> Option<Stop> {
        let (options, trace) = (self.options, &self.state.trace);
        let over = options.max_seconds.is_some_and(|most| clock.elapsed().as_secs_f64() >= most);
        match trace.sweeps() {
            0 => self.free.is_empty().then_some(Stop::AllFixed),
            _ if trace.stands_still(options.fit_tolerance) => Some(Stop::Tolerance),
            sweeps if sweeps >= options.max_sweeps => Some(Stop::MaxSweeps),
            _ => over.then_some(Stop::MaxSeconds),
        }
    }

    /// One sweep over all modes that are free.
    pub fn sweep(&mut self) -> Result<()> {
        let number = self.state.trace.sweeps() + 1;
        self.updates(number).map_err(|error| error.in_sweep(number))
    }

    fn updates(&mut self, number: usize) -> Result<()> {
        if let Some(search) = &mut self.search {
            search.go_on(&mut *self.steps, &mut self.state.grams)?;
        }
        let (mut fits, mut at) = (Vec::new(), 0);
        while let Some(&mode) = self.free.get(at) {
            let trying = self.search.as_ref().is_some_and(|search| search.trying);
            // At the end of a sweep the next MTTKRP may be one too many.
            let another =
                number < self.options.max_sweeps && self.search.is_none() && self.first_mttkrp < WORTH_STARTING;
            let next = self.free.get(at + 1).or(self.free.first().filter(|_| another)).filter(|_| !trying).copied();
            let v = self.update(number, mode, next)?;
            if trying || at + 1 == self.free.len() {
                fits = self.fits(mode, &v)?;
            }
            self.v_memory = v;
            if let (true, Some(search)) = (trying, &mut self.search) {
                let better = fits[0] > self.state.trace.best_fit().0;
                if search.settle(better, &mut *self.steps, &mut self.state.grams)? {
                    continue;
                }
            }
            at += 1;
        }
        self.state.trace.fits.push(fits);
        Ok(())
    }

    /// A new factor for a mode; returns the Hadamard product of the other modes' grams. The MTTKRP of the `next` mode is
    /// started right behind it, so that the device has work while the host looks at the result.
    fn update(&mut self, sweep: usize, mode: usize, next: Option<usize>) -> Result<Array2<f64>> {
        if !std::mem::take(&mut self.started) {
            self.steps.start(mode)?;
        }
        let clock = Instant::now();
        let v = self.grams(Some(mode));
        self.seconds.gram += clock.elapsed().as_secs_f64();
        let (ridged, normal, wide) = self.equations(sweep, mode, &v)?;
        let (weights, rank) = (&self.state.weights, self.options.rank);
        let done = match &mut self.nonneg[mode] {
            Some(factor) => Some(nonneg::update(&mut *self.steps, mode, &ridged, weights, factor, rank, wide)?),
            None => {
                self.steps.update(mode, &normal, wide)?;
                None
            }
        };
        self.before = Some(normal);
        if let Some(next) = next {
            self.steps.start(next)?;
            self.started = true;
        }
        let updated = done.map_or_else(|| self.steps.finish(), Ok)?;
        self.take(mode, updated);
        Ok(v)
    }

    /// The normal equations of a mode, with the ridge, and whether its MTTKRP has to be summed in f64.
    fn equations<'v>(
        &mut self,
        sweep: usize,
        mode: usize,
        v: &'v Array2<f64>,
    ) -> Result<(Cow<'v, Array2<f64>>, NormalEquations, bool)> {
        let rank = self.options.rank;
        let clock = Instant::now();
        let eps = <T as num_traits::Float>::epsilon().f64();
        let ridged = with_ridge(v, self.options.ridge);
        let stride = self.steps.root_stride().filter(|_| self.nonneg[mode].is_none());
        let mut normal = NormalEquations::blocks(&ridged, rank, eps, stride, mode, self.before.take())?;
        let condition = if T::DTYPE == Dtype::F32 { normal.condition(&ridged, COARSE / eps) } else { 1.0 };
        let mut wide = false;
        // f32 sums are too coarse for equations like these.
        if condition * eps > COARSE {
            wide = self.steps.can_widen(mode)?;
            if wide {
                normal = NormalEquations::blocks(&ridged, rank, WIDE_EPS, stride, mode, Some(normal))?;
            }
            let remedy = if wide { "some sums are in f64, which takes longer" } else { "use dtype f64" };
            tell(&mut self.state.warnings, "ill-conditioned", || {
                format!(
                    "ill-conditioned, {remedy}: from sweep {sweep}, mode {mode} on normal equations have a condition of \
                     {condition:.0e}, too much for sums in f32"
                )
            });
        }
        if normal.deficient() && self.nonneg[mode].is_none() {
            tell(&mut self.state.warnings, "rank deficient", || {
                format!(
                    "rank deficient: from sweep {sweep}, mode {mode} on normal equations were singular to the \
                     precision of {}, and the smallest solution was taken",
                    T::DTYPE
                )
            });
        }
        self.seconds.solve += clock.elapsed().as_secs_f64();
        Ok((ridged, normal, wide))
    }

    /// Keeps what came of an update.
    fn take(&mut self, mode: usize, updated: Updated) {
        self.seconds.add(&updated.seconds);
        self.state.passes += updated.passes;
        if self.free.first() == Some(&mode) {
            self.first_mttkrp = updated.seconds.mttkrp;
        }
        if updated.fallback {
            tell(&mut self.state.warnings, "the range of the numbers", || {
                format!(
                    "the range of the numbers is too wide for f16 matrix units in mode {mode}: the f32 kernels were used"
                )
            });
        }
        self.state.grams[mode] = keep_blocks(updated.gram, self.options.rank);
        (self.state.weights, self.inner) = (updated.norms, updated.inner);
    }

    /// The fits of all starts after the update of a mode; `v` has the other modes' grams.
    fn fits(&mut self, mode: usize, v: &Array2<f64>) -> Result<Vec<f64>> {
        let clock = Instant::now();
        let (w, h) = (self.state.weights.view(), [v.view(), self.state.grams[mode].view()]);
        let fits = fit::fits(self.norm, self.inner.view(), w, h, self.options.rank);
        self.seconds.fit += clock.elapsed().as_secs_f64();
        fits
    }

    /// The fits of all starts from a new MTTKRP of a mode whose factor is `factor`.
    fn fits_of(&mut self, mode: usize, factor: &Array2<T>, wide: bool) -> Result<Vec<f64>> {
        let product = self.steps.product(mode, wide)?;
        self.seconds.add(&product.seconds);
        self.state.passes += product.passes;
        self.inner = inner(&product.g, factor);
        let v = self.grams(Some(mode));
        self.fits(mode, &v)
    }

    /// Near a perfect fit f32 sums leave nothing of the difference: the last fit once more, in f64.
    pub fn refine(&mut self) -> Result<()> {
        let last = self.free.last().copied().unwrap_or(0);
        let trace = &self.state.trace;
        if trace.sweeps() > 0 && cancels::<T>(self.norm, trace.best_fit().0) && self.steps.can_widen(last)? {
            let factor = self.steps.snapshot()?.swap_remove(last);
            let passes = self.state.passes;
            let fits = self.fits_of(last, &factor, true)?;
            // Without one that may have been queued for a sweep that did not come, which depends on the clock.
            self.state.passes = passes + 1;
            self.state.trace.fits.pop();
            self.state.trace.fits.push(fits);
        }
        Ok(())
    }

    /// What the callback is told of the last sweep.
    pub fn report(&self, clock: &Instant) -> Sweep {
        let ((fit, fit_change), number) = (self.state.trace.best_fit(), self.state.trace.sweeps());
        let (passes, parts) = (self.state.passes, self.seconds);
        Sweep { number, fit, fit_change, passes, seconds: clock.elapsed().as_secs_f64(), parts }
    }

    /// Writes a checkpoint.
    pub fn save(&mut self, saver: &mut Saver<'_>) {
        let clock = Instant::now();
        let failed = saver.save(&mut *self.steps, self.state.clone());
        self.state.warnings.extend(failed);
        self.seconds.transfer += clock.elapsed().as_secs_f64();
    }

    /// The end of it.
    pub fn finish(mut self) -> Result<Ended<T>> {
        self.state.factors = timed(&mut self.seconds.transfer, || self.steps.factors())?;
        let mut algebra = self.steps.place().to_owned();
        if self.free.iter().any(|&mode| self.nonneg[mode].is_some()) {
            algebra += "; factors without negative entries by HALS on the host";
        }
        Ok(Ended { tree: self.steps.tree(), state: self.state, seconds: self.seconds, algebra })
    }
}

/// Whether f32 sums leave too little of `1 - fit`.
fn cancels<T: Real>(norm: f64, fit: f64) -> bool {
    T::DTYPE == Dtype::F32 && norm > 0.0 && 1.0 - fit < CANCELS
}
