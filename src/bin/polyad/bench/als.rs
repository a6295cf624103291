//! Figure `als`: where the time of a CP-ALS sweep goes, by method and rank.

use super::table::{Cell, Table};
use super::variants::chart_number;
use super::{Drawn, Setting, failed, shown_name};
use crate::chart::{self, Axis, Bar, Bars, Frame};
use crate::failure::Failure;
use crate::measure::sweeps::{self, SWEEPS};
use crate::measure::{AnyError, data, timer::AWAKE};
use crate::report::{Out, number};
use ndarray::ArrayD;
use polyad::plan::DeviceKind;
use polyad::{Backend, CpAlsOptions, Device, Dtype, Method, Real};
use std::time::Instant;

/// How often `--seconds` goes into sweeps that all take the same steps.
const SHARE: f64 = 10.0;
/// What a bar is made of.
const PARTS: [&str; 4] = ["MTTKRP", "gram and solve", "fit", "transfer"];

/// Means over the sweeps.
struct Split {
    seconds: f64,
    parts: [f64; 4],
    wait: f64,
}

pub fn draw(setting: &Setting<'_>, out: &mut Out) -> Result<Drawn, Failure> {
    let device = setting.device()?;
    match setting.args.dtype {
        Dtype::F32 => of::<f32>(setting, device, out),
        Dtype::F64 => of::<f64>(setting, device, out),
    }
}

fn of<T: Real>(setting: &Setting<'_>, device: &Device, out: &mut Out) -> Result<Drawn, Failure> {
    let (name, clock) = (shown_name(device), Instant::now());
    let x = data::random::<T>(&setting.dims, 1).map_err(failed)?;
    out.line(format_args!("data made in {:.1} s", clock.elapsed().as_secs_f64()));
    let mut table = Table::new(&[
        "device",
        "method",
        "rank",
        "sweep_seconds",
        "mttkrp_seconds",
        "gram_and_solve_seconds",
        "fit_seconds",
        "transfer_seconds",
        "wait_seconds",
    ]);
    let mut found = Vec::new();
    // Method by method, so that a slow one named last leaves the others all ranks.
    for &method in &setting.methods {
        let mut took = 0.0;
        for (place, &rank) in setting.ranks.iter().enumerate() {
            if !setting.has_time(&format!("{method} at rank {rank}"), took) {
                continue;
            }
            let clock = Instant::now();
            let split = match split(setting, device, &x, rank, method) {
                Ok(split) => split,
                Err(error) => {
                    setting.skip(&format!("{method} at rank {rank}"), &error);
                    continue;
                }
            };
            took = clock.elapsed().as_secs_f64();
            let seconds = number(split.seconds);
            out.line(format_args!("{name} {method} R {rank}: {seconds} s a sweep, measured in {took:.1} s"));
            let ms = split.parts.map(|seconds| 1e3 * seconds);
            let text = chart_number(1e3 * split.seconds);
            let bar = Bar { parts: ms.to_vec(), mark: Some(1e3 * split.seconds), text };
            let group = (format!("{} R={rank}", method.name().to_uppercase()), vec![Some(bar)]);
            let mut row = vec![Cell::text(name.as_str()), Cell::text(method.name()), Cell::Count(rank as u64)];
            row.push(Cell::Number(split.seconds));
            row.extend(split.parts.map(Cell::Number));
            row.push(Cell::Number(split.wait));
            found.push((place, group, row));
        }
    }
    found.sort_by_key(|&(place, ..)| place);
    let mut groups = Vec::new();
    for (_, group, row) in found {
        groups.push(group);
        table.rows.push(row);
    }
    let warming = if device.caps().kind != DeviceKind::Cpu {
        format!("{AWAKE} s that warm up")
    } else {
        "those that warm up".into()
    };
    let frame = Frame {
        title: format!("A sweep of CP-ALS: {}, {}", setting.shown_dims(), setting.args.dtype),
        caption: vec![
            format!(
                "{name}. Means of two to {SWEEPS} sweeps after {warming}. On a GPU host and device work at the same time, so \
                 that parts may add up to more than the sweep took by the clock (black line, and the number)."
            ),
            setting.command(),
        ],
        x: Axis::new("method and rank", false),
        y: Axis::new("time of a sweep, ms", false),
    };
    let names = PARTS.map(str::to_owned).to_vec();
    let bars = Bars { groups, names, mark: Some("whole sweep, by the clock".into()) };
    Ok(Drawn { svg: chart::bars(&frame, &bars).map_err(Failure::Failed)?, table })
}

fn split<T: Real>(
    setting: &Setting<'_>,
    device: &Device,
    x: &ArrayD<T>,
    rank: usize,
    method: Method,
) -> Result<Split, AnyError> {
    let options = CpAlsOptions::new(rank).plan(setting.options(method));
    let warm_up = if device.caps().kind != DeviceKind::Cpu { AWAKE } else { 0.0 };
    let swept = sweeps::sweeps(device, x, options, warm_up, Some(SHARE * setting.args.seconds))?;
    let parts = [
        swept.mean(|s| s.parts.mttkrp),
        swept.mean(|s| s.parts.algebra + s.parts.gram + s.parts.solve),
        swept.mean(|s| s.parts.fit),
        swept.mean(|s| s.parts.transfer),
    ];
    Ok(Split { seconds: swept.mean(|s| s.seconds), parts, wait: swept.mean(|s| s.parts.wait) })
}
