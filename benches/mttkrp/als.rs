//! Seconds of a CP-ALS sweep.

use crate::AnyError;
use crate::report::{Report, SweepRow};
use ndarray::ArrayD;
use polyad::{CpAlsOptions, Device, PlanOptions, Real, Sweep, cp_als_with};
use std::ops::ControlFlow;

/// Sweeps timed.
const SWEEPS: usize = 5;

/// Most sweeps before them: the first compiles kernels, and a card that has waited for the upload is slow at first (an
/// H200 three times) until it has had work for a while.
const WARM_UP_SWEEPS: usize = 1000;

/// Plain CP-ALS, fit included, from a random start. The sweep's time is the median of the wall times from callback to
/// callback, and so is each of its parts.
pub fn run<T: Real>(
    report: &Report,
    device: &Device,
    x: &ArrayD<T>,
    rank: usize,
    method: &str,
    plan: PlanOptions,
    warm_up: f64,
) -> Result<(), AnyError> {
    let options = CpAlsOptions::new(rank).max_sweeps(WARM_UP_SWEEPS + SWEEPS + 1).fit_tolerance(0.0).plan(plan);
    let mut ends: Vec<Sweep> = Vec::new();
    let mut first = None;
    let result = cp_als_with(device, x.view(), &options, |sweep| {
        let since = sweep.seconds - *first.get_or_insert(sweep.seconds);
        // One more end than sweeps: the last of the warm-up is where the first of them begins.
        if since < warm_up && sweep.number < WARM_UP_SWEEPS {
            ends.clear();
        }
        ends.push(*sweep);
        if ends.len() > SWEEPS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if ends.len() < 2 {
        return Err("CP-ALS ended before its second sweep".into());
    }
    let median = |part: fn(&Sweep) -> f64| {
        let mut sweeps: Vec<f64> = ends.windows(2).map(|pair| part(&pair[1]) - part(&pair[0])).collect();
        sweeps.sort_by(f64::total_cmp);
        sweeps[sweeps.len() / 2]
    };
    let parts = [
        median(|sweep| sweep.parts.mttkrp),
        median(|sweep| sweep.parts.algebra),
        median(|sweep| sweep.parts.gram),
        median(|sweep| sweep.parts.solve),
        median(|sweep| sweep.parts.fit),
        median(|sweep| sweep.parts.transfer),
        median(|sweep| sweep.parts.wait),
    ];
    let (resolved, sweeps, seconds) = (result.method.name(), ends.len() - 1, median(|sweep| sweep.seconds));
    report.sweep(&SweepRow { rank, method, resolved, sweeps, seconds, parts })?;
    let s = result.seconds;
    println!(
        "#     normal equations {}; whole run of {} sweeps {:.3} s, upload and transfers {:.3}, fit and norm {:.3}; fit {:.6}",
        result.algebra, result.sweeps, s.total, s.transfer, s.fit, result.fit
    );
    result.warnings.iter().for_each(|warning| println!("#     {warning}"));
    Ok(())
}
