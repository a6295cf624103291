//! Seconds of a CP-ALS sweep.

use crate::AnyError;
use crate::report::{Report, SweepRow};
use ndarray::ArrayD;
use polyad::{CpAlsOptions, Device, Real, Sweep, cp_als_with};
use std::ops::ControlFlow;

/// Sweeps timed: a multiple of those after which the steps of a tree of up to four groups repeat.
const SWEEPS: usize = 12;

/// Sweeps before them, at least: a tree of three groups takes different steps in the second than in the first.
const FIRST: usize = 2;

/// Most sweeps before them: the first compiles kernels, and a card that has waited for the upload is slow at first (an
/// H200 three times) until it has had work for a while.
const WARM_UP_SWEEPS: usize = 1000;

/// CP-ALS, fit included, from a random start. The sweep's time is the mean of the wall times from callback to callback,
/// as sweeps of a tree differ, and so is each of its parts.
pub fn run<T: Real>(
    report: &Report,
    device: &Device,
    x: &ArrayD<T>,
    options: CpAlsOptions,
    warm_up: f64,
) -> Result<f64, AnyError> {
    let options = options.max_sweeps(WARM_UP_SWEEPS + SWEEPS + 1).fit_tolerance(0.0);
    let (rank, tree) = (options.rank, options.tree.name());
    let mut ends: Vec<Sweep> = Vec::new();
    let mut first = None;
    let result = cp_als_with(device, x.view(), &options, |sweep| {
        let since = sweep.seconds - *first.get_or_insert(sweep.seconds);
        // One more end than sweeps: the last of the warm-up is where the first of them begins.
        if sweep.number <= FIRST || since < warm_up && sweep.number < WARM_UP_SWEEPS {
            ends.clear();
        }
        ends.push(*sweep);
        if ends.len() > SWEEPS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    let (Some(from), Some(to)) = (ends.first(), ends.get(SWEEPS)) else {
        return Err(format!("CP-ALS ended after {} sweeps", result.sweeps).into());
    };
    let mean = |part: fn(&Sweep) -> f64| (part(to) - part(from)) / SWEEPS as f64;
    let passes = (to.passes - from.passes) as f64 / SWEEPS as f64;
    let parts = [
        mean(|sweep| sweep.parts.mttkrp),
        mean(|sweep| sweep.parts.algebra),
        mean(|sweep| sweep.parts.gram),
        mean(|sweep| sweep.parts.solve),
        mean(|sweep| sweep.parts.fit),
        mean(|sweep| sweep.parts.transfer),
        mean(|sweep| sweep.parts.wait),
    ];
    let (resolved, seconds) = (result.method.name(), mean(|sweep| sweep.seconds));
    report.sweep(&SweepRow { rank, resolved, tree, passes, sweeps: SWEEPS, seconds, parts })?;
    println!("#     {}", result.tree);
    let s = result.seconds;
    println!(
        "#     normal equations {}; whole run of {} sweeps {:.3} s, upload and transfers {:.3}, fit and norm {:.3}; fit {:.6}",
        result.algebra, result.sweeps, s.total, s.transfer, s.fit, result.fit
    );
    result.warnings.iter().for_each(|warning| println!("#     {warning}"));
    Ok(seconds)
}
