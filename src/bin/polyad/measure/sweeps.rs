//! Seconds of CP-ALS sweeps, fit included, from callback to callback.

use super::AnyError;
use ndarray::ArrayD;
use polyad::{CpAlsOptions, CpAlsResult, Device, Real, Sweep, cp_als_with};
use std::ops::ControlFlow;

/// Sweeps timed: a multiple of those after which the steps of a tree of up to four groups repeat.
pub const SWEEPS: usize = 12;

/// Sweeps after which such a tree has taken each of its steps once.
const FIRST: usize = 3;

/// Most sweeps before those that are timed: the first compiles kernels, and a card that has waited for the upload is slow at
/// first (an H200 three times) until it has had work for a while.
const WARM_UP_SWEEPS: usize = 1000;

/// Sweeps in a row, as they ended.
pub struct Swept<T> {
    pub from: Sweep,
    pub to: Sweep,
    /// From the end of `from` to that of `to`.
    pub sweeps: usize,
    pub result: CpAlsResult<T>,
}

impl<T> Swept<T> {
    /// A part of a sweep, on average: sweeps of a tree differ.
    pub fn mean(&self, part: fn(&Sweep) -> f64) -> f64 {
        (part(&self.to) - part(&self.from)) / self.sweeps as f64
    }
}

/// Times [`SWEEPS`] sweeps after `warm_up` seconds and the first of them; two or more, where all take the same steps and
/// `enough` seconds are up.
pub fn sweeps<T: Real>(
    device: &Device,
    x: &ArrayD<T>,
    options: CpAlsOptions,
    warm_up: f64,
    enough: Option<f64>,
) -> Result<Swept<T>, AnyError> {
    let options = options.max_sweeps(WARM_UP_SWEEPS + SWEEPS + 1).fit_tolerance(0.0);
    let (mut ends, mut first): (Vec<Sweep>, _) = (Vec::new(), None);
    let (mut passes, mut usual, mut alike) = (0, None, true);
    let result = cp_als_with(device, x.view(), &options, |sweep| {
        let running = sweep.seconds - *first.get_or_insert(sweep.seconds);
        // Sweeps of a tree of three groups or more differ.
        let step = sweep.passes - std::mem::replace(&mut passes, sweep.passes);
        alike &= *usual.get_or_insert(step) == step;
        let early = sweep.number <= FIRST && !(alike && enough.is_some());
        // One more end than sweeps: the last of the warm-up is where the first of them begins.
        if running < warm_up && sweep.number < WARM_UP_SWEEPS || early {
            ends.clear();
        }
        ends.push(*sweep);
        let since = sweep.seconds - ends[0].seconds;
        let done = ends.len() > SWEEPS || alike && ends.len() > 2 && enough.is_some_and(|enough| since > enough);
        if done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    match &ends[..] {
        [from, .., to] => Ok(Swept { from: *from, to: *to, sweeps: ends.len() - 1, result }),
        _ => Err(format!("CP-ALS ended after {} sweeps", result.sweeps).into()),
    }
}
