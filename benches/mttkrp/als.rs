//! Seconds of a CP-ALS sweep.

use crate::AnyError;
use crate::report::{Report, SweepRow};
use ndarray::ArrayD;
use polyad::{CpAlsOptions, Device, PlanOptions, Real, cp_als_with};
use std::ops::ControlFlow;

/// Sweeps timed, after one that compiles kernels and warms up.
const SWEEPS: usize = 5;

/// Plain CP-ALS, fit included, from a random start. The sweep's time is the median of the wall times from callback to
/// callback. The parts of `Seconds` are per sweep; what they hold beside the sweeps (the upload, the norm of X) keeps
/// transfer and fit from being told apart here: the rest of a sweep is theirs.
pub fn run<T: Real>(
    report: &Report,
    device: &Device,
    x: &ArrayD<T>,
    rank: usize,
    method: &str,
    plan: PlanOptions,
) -> Result<(), AnyError> {
    let options = CpAlsOptions::new(rank).max_sweeps(SWEEPS + 1).fit_tolerance(0.0).plan(plan);
    let mut ends = Vec::new();
    let result = cp_als_with(device, x.view(), &options, |sweep| {
        ends.push(sweep.seconds);
        ControlFlow::Continue(())
    })?;
    let mut sweeps: Vec<f64> = ends.windows(2).map(|pair| pair[1] - pair[0]).collect();
    sweeps.sort_by(f64::total_cmp);
    let seconds = sweeps.get(sweeps.len() / 2).copied().ok_or("CP-ALS ended before its second sweep")?;
    let each = |part: f64| part / result.sweeps as f64;
    let parts = result.seconds;
    let (mttkrp, gram, solve) = (each(parts.mttkrp), each(parts.gram), each(parts.solve));
    let rest = (seconds - mttkrp - gram - solve).max(0.0);
    let (resolved, sweeps) = (result.method.name(), sweeps.len());
    report.sweep(&SweepRow { rank, method, resolved, sweeps, seconds, mttkrp, gram, solve, rest })?;
    println!(
        "#     whole run of {} sweeps {:.3} s: mttkrp {:.3}, gram {:.3}, solve {:.3}, fit and norm {:.3}, transfer with \
         the upload {:.3}; fit {:.6}",
        result.sweeps, parts.total, parts.mttkrp, parts.gram, parts.solve, parts.fit, parts.transfer, result.fit
    );
    result.warnings.iter().for_each(|warning| println!("#     {warning}"));
    Ok(())
}
