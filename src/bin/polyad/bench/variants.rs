//! Figure `variants`: the rate of every method on each device, mean over modes.

use super::table::{Cell, Table};
use super::{Drawn, Setting, failed, shown_name};
use crate::chart::{self, Axis, Bar, Bars, Frame};
use crate::failure::Failure;
use crate::measure::AnyError;
use crate::measure::{data, timer};
use crate::report::{Out, number};
use ndarray::Array2;
use polyad::plan::CostModel;
use polyad::{Backend, Device, Dtype, Method, MttkrpPlan, Real};
use std::time::Instant;

/// Seconds of each mode.
pub struct Measured {
    pub method: Method,
    pub rank: usize,
    pub seconds: Vec<f64>,
    pub plans: Vec<MttkrpPlan>,
}

impl Measured {
    pub fn total(&self) -> f64 {
        self.seconds.iter().sum()
    }

    /// Flops of all modes, 2 N R each, per second.
    fn rate(&self) -> f64 {
        let flops: f64 = self.plans.iter().map(|p| 2.0 * p.shape().len() as f64 * self.rank as f64).sum();
        flops / self.total()
    }
}

/// Times every method at every rank on one device; what cannot be done is said and left out.
pub fn measure(setting: &Setting<'_>, device: &Device, out: &mut Out) -> Result<Vec<Measured>, Failure> {
    match setting.args.dtype {
        Dtype::F32 => of::<f32>(setting, device, out),
        Dtype::F64 => of::<f64>(setting, device, out),
    }
    .map_err(failed)
}

fn of<T: Real>(setting: &Setting<'_>, device: &Device, out: &mut Out) -> Result<Vec<Measured>, AnyError> {
    let (dims, name) = (&setting.dims, shown_name(device));
    let clock = Instant::now();
    let x = data::random::<T>(dims, 1)?;
    let made = clock.elapsed().as_secs_f64();
    let xd = device.upload_tensor(x.view())?;
    let uploaded = clock.elapsed().as_secs_f64() - made;
    out.line(format_args!("{name}: data made in {made:.1} s, uploaded in {uploaded:.1} s"));
    let mut all = Vec::new();
    // Method by method, so that a slow one named last leaves the others all ranks.
    for &method in &setting.methods {
        let mut took = 0.0;
        'ranks: for &rank in &setting.ranks {
            if !setting.has_time(&format!("{method} at rank {rank} on {name}"), took) {
                continue;
            }
            let factors = data::factors::<T>(dims, rank)?;
            let views: Vec<_> = factors.iter().map(|f| f.view()).collect();
            let u = device.upload_factors(None, &views)?;
            let clock = Instant::now();
            let (mut seconds, mut plans) = (Vec::new(), Vec::new());
            for mode in 0..dims.len() {
                let options = setting.options(method);
                let timed = MttkrpPlan::new(dims, mode, rank, &options, device.caps())
                    .map_err(AnyError::from)
                    .and_then(|plan| {
                        let mut g = Array2::zeros((dims[mode], rank));
                        device.mttkrp_into(&plan, &xd, &u, g.view_mut())?;
                        Ok((timer::mttkrp(device, setting.effort(), &plan, &xd, &u, &mut g)?, plan))
                    });
                match timed {
                    Ok((timed, plan)) => {
                        seconds.push(timed.seconds);
                        plans.push(plan);
                    }
                    Err(error) => {
                        setting.skip(&format!("{method} at rank {rank} on {name}"), &error);
                        continue 'ranks;
                    }
                }
            }
            let measured = Measured { method: plans[0].method(), rank, seconds, plans };
            let mean = measured.total() / dims.len() as f64;
            took = clock.elapsed().as_secs_f64();
            out.line(format_args!(
                "{name} {method} R {rank}: {} s an MTTKRP, {} GFLOP/s, measured in {took:.1} s",
                number(mean),
                number(measured.rate() / 1e9)
            ));
            all.push(measured);
        }
    }
    all.sort_by_key(|measured: &Measured| setting.ranks.iter().position(|&rank| rank == measured.rank));
    Ok(all)
}

pub fn draw(setting: &Setting<'_>, out: &mut Out) -> Result<Drawn, Failure> {
    let devices = setting.measured_devices()?;
    let mut table = Table::new(&[
        "device",
        "method",
        "rank",
        "mean_seconds",
        "gflops",
        "over_slice",
        "tile_widths",
        "published_flops",
    ]);
    let mut groups: Vec<(String, Vec<Option<Bar>>)> =
        setting.methods.iter().map(|method| (method.name().to_uppercase(), Vec::new())).collect();
    let mut names = Vec::new();
    let mut ratios = Vec::new();
    for (device, measured) in devices.iter().zip(setting.measured(out)?) {
        let device = shown_name(device);
        for &rank in &setting.ranks {
            names.push(format!("{device}, R = {rank}"));
            let find = |method: Method| measured.iter().find(|m| m.method == method && m.rank == rank);
            let slice = find(Method::Slice).map(Measured::rate);
            for (&method, (_, bars)) in setting.methods.iter().zip(&mut groups) {
                let found = find(method);
                bars.push(found.map(|m| {
                    let gflops = m.rate() / 1e9;
                    Bar { parts: vec![gflops], mark: None, text: chart_number(gflops) }
                }));
                let Some(m) = found else { continue };
                let over = slice.map_or(f64::NAN, |slice| m.rate() / slice);
                if method == Method::Tile && slice.is_some() {
                    ratios.push(format!("{device}, R = {rank}: {over:.1} times"));
                }
                let widths: Vec<String> = m.plans.iter().map(|plan| plan.tile().to_string()).collect();
                let widths = if method == Method::Tile { widths.join(" ") } else { String::new() };
                let published: f64 = m.plans.iter().map(|plan| CostModel::of(plan).published_flops()).sum();
                table.rows.push(vec![
                    Cell::text(device.as_str()),
                    Cell::text(method.name()),
                    Cell::Count(rank as u64),
                    Cell::Number(m.total() / m.seconds.len() as f64),
                    Cell::Number(m.rate() / 1e9),
                    Cell::Number(over),
                    Cell::text(widths),
                    Cell::Number(published),
                ]);
            }
        }
    }
    let ratios = if ratios.is_empty() { "not measured".into() } else { ratios.join("; ") };
    let frame = Frame {
        title: format!("MTTKRP by method, mean over modes: {}, {}", setting.shown_dims(), setting.args.dtype),
        caption: vec![
            "Flops count as 2 N R for every method, N entries and rank R; the rate is that of all modes over their time. \
             Logarithmic scale."
                .into(),
            format!("TILE over SLICE, the baseline without a matrix: {ratios}."),
            setting.command(),
        ],
        x: Axis::new("method", false),
        y: Axis::new("rate, GFLOP/s", true),
    };
    let svg = chart::bars(&frame, &Bars { groups, names, mark: None }).map_err(Failure::Failed)?;
    Ok(Drawn { svg, table })
}

/// Three digits.
pub fn chart_number(value: f64) -> String {
    let decimals = (2 - value.abs().max(1e-9).log10().floor() as i32).clamp(0, 6) as usize;
    format!("{value:.decimals$}")
}
