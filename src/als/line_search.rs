//! A line search along what the last sweep changed, after Bro (Multi-way analysis in the food industry, 1998, sec. 5.4),
//! with a step that grows as long as it helps, and without a pass over the tensor of its own.
//!
//! Between sweeps the factors of all modes but the first move on by `step` times what the sweep changed. The sweep goes on
//! from there: the first mode's factor is solved for, which is the best for the others wherever they are, and tells the
//! fit. If that is no better than before, the others go back and the first is solved for once more, so that the error never
//! rises; only then there is one MTTKRP more.

use super::normal_equations::{gram, normalize};
use super::steps::AlsSteps;
use crate::{Real, Result};
use ndarray::{Array2, Zip};

/// The first step, what it grows by when it helps and shrinks by when not, and its limits.
const FIRST: f64 = 0.5;
const GROWTH: f64 = 1.6;
const SHRINKING: f64 = 0.3;
const LIMITS: (f64, f64) = (0.1, 1e4);

/// Where the factors were, and how far to go.
pub(super) struct LineSearch<T> {
    /// The factors before the last sweep and after it, and the grams of these.
    before: Vec<Array2<T>>,
    here: Vec<Array2<T>>,
    grams: Vec<Array2<f64>>,
    step: f64,
    /// The factors are somewhere else, and it is not yet known whether that is better.
    pub trying: bool,
}

impl<T: Real> LineSearch<T> {
    pub fn new() -> Self {
        Self { before: Vec::new(), here: Vec::new(), grams: Vec::new(), step: FIRST, trying: false }
    }

    /// Moves on at the start of a sweep, once there are two points to draw a line through.
    pub fn go_on(&mut self, steps: &mut (impl AlsSteps<T> + ?Sized), grams: &mut [Array2<f64>]) -> Result<()> {
        let here = steps.snapshot()?;
        self.before = std::mem::replace(&mut self.here, here);
        if self.before.is_empty() || self.here.len() < 2 {
            return Ok(());
        }
        self.grams = grams.to_vec();
        for (mode, (here, before)) in self.here.iter().zip(&self.before).enumerate().skip(1) {
            let mut there = here.mapv(Real::f64);
            Zip::from(&mut there).and(before).for_each(|there, before| *there += self.step * (*there - before.f64()));
            let (_, there) = normalize::<T>(there)?;
            grams[mode] = gram(&there);
            steps.replace(mode, there.view())?;
        }
        self.trying = true;
        Ok(())
    }

    /// What to do once the first mode is solved for: true if its factor has to be found again, as the others went back.
    pub fn settle(
        &mut self,
        better: bool,
        steps: &mut (impl AlsSteps<T> + ?Sized),
        grams: &mut [Array2<f64>],
    ) -> Result<bool> {
        self.trying = false;
        self.step = (self.step * if better { GROWTH } else { SHRINKING }).clamp(LIMITS.0, LIMITS.1);
        if better {
            return Ok(false);
        }
        for (mode, here) in self.here.iter().enumerate().skip(1) {
            steps.replace(mode, here.view())?;
            grams[mode].assign(&self.grams[mode]);
        }
        Ok(true)
    }
}
