//! Seconds of a CP-ALS sweep.

use crate::AnyError;
use crate::report::{Report, SweepRow};
use ndarray::ArrayD;
use polyad::{CpAlsOptions, Device, Real, Sweep, cp_als_with};
use std::ops::ControlFlow;

/// Sweeps timed, after two that compile kernels and warm up: a tree of three groups takes different steps in the second
/// than in the first. A multiple of the sweeps after which the steps of a tree of up to four groups repeat.
const SWEEPS: usize = 12;
const FIRST: usize = 2;

/// CP-ALS, fit included, from a random start. The sweep's time is the mean of the wall times from callback to callback,
/// as sweeps of a tree differ, and so is each of its parts.
pub fn run<T: Real>(report: &Report, device: &Device, x: &ArrayD<T>, options: CpAlsOptions) -> Result<(), AnyError> {
    let options = options.max_sweeps(SWEEPS + FIRST).fit_tolerance(0.0);
    let (rank, tree) = (options.rank, options.tree.name());
    let mut ends: Vec<Sweep> = Vec::new();
    let result = cp_als_with(device, x.view(), &options, |sweep| {
        ends.push(*sweep);
        ControlFlow::Continue(())
    })?;
    let (Some(from), Some(to)) = (ends.get(FIRST - 1), ends.get(FIRST + SWEEPS - 1)) else {
        return Err(format!("CP-ALS ended after {} sweeps", ends.len()).into());
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
    Ok(())
}
