//! Seconds of a CP-ALS sweep.

use crate::AnyError;
use crate::measure::sweeps::sweeps;
use crate::report::{Report, SweepRow};
use ndarray::ArrayD;
use polyad::{CpAlsOptions, Device, Real};

/// CP-ALS, fit included, from a random start. The sweep's time is the mean of the wall times from callback to callback,
/// as sweeps of a tree differ, and so is each of its parts.
pub fn run<T: Real>(
    report: &Report,
    device: &Device,
    x: &ArrayD<T>,
    options: CpAlsOptions,
    warm_up: f64,
) -> Result<f64, AnyError> {
    let (rank, tree) = (options.rank, options.tree.name());
    let swept = sweeps(device, x, options, warm_up, None)?;
    let result = &swept.result;
    let passes = (swept.to.passes - swept.from.passes) as f64 / swept.sweeps as f64;
    let parts = [
        swept.mean(|sweep| sweep.parts.mttkrp),
        swept.mean(|sweep| sweep.parts.algebra),
        swept.mean(|sweep| sweep.parts.gram),
        swept.mean(|sweep| sweep.parts.solve),
        swept.mean(|sweep| sweep.parts.fit),
        swept.mean(|sweep| sweep.parts.transfer),
        swept.mean(|sweep| sweep.parts.wait),
    ];
    let (resolved, seconds) = (result.method.name(), swept.mean(|sweep| sweep.seconds));
    report.sweep(&SweepRow { rank, resolved, tree, passes, sweeps: swept.sweeps, seconds, parts })?;
    println!("#     {}", result.tree);
    let s = result.seconds;
    println!(
        "#     normal equations {}; whole run of {} sweeps {:.3} s, upload and transfers {:.3}, fit and norm {:.3}; fit {:.6}",
        result.algebra, result.sweeps, s.total, s.transfer, s.fit, result.fit
    );
    result.warnings.iter().for_each(|warning| println!("#     {warning}"));
    Ok(seconds)
}
