//! Figure `models`: measured times beside those of the cost models.

use super::table::{Cell, Table};
use super::{Drawn, Setting, failed, shown_name};
use crate::chart::{self, Axis, Frame, Series};
use crate::failure::Failure;
use crate::measure::limits;
use crate::report::{Out, number};
use polyad::plan::{CostModel, Reuse};

pub fn draw(setting: &Setting<'_>, out: &mut Out) -> Result<Drawn, Failure> {
    let device = setting.device()?;
    let name = shown_name(device);
    let machine = limits::measure(device, setting.args.dtype, setting.effort()).map_err(failed)?;
    out.line(format_args!("{name}: {} GB/s, {} GFLOP/s", number(machine.bandwidth / 1e9), number(machine.peak / 1e9)));
    let measured = setting.measured(out)?.last().map_or(&[][..], Vec::as_slice);
    let mut head = vec!["device", "method", "rank", "measured_seconds"];
    head.extend(Reuse::ALL.map(Reuse::name));
    head.extend(["bandwidth", "peak", "t_inf_share"]);
    let mut table = Table::new(&head);
    let series = |name: &str| Series { name: name.into(), points: Vec::new(), line: false, filled: false };
    let mut all = vec![series("measured")];
    all[0].filled = true;
    all.extend(Reuse::ALL.map(|reuse| series(reuse.name())));
    let mut categories = Vec::new();
    let mut below = Vec::new();
    for m in measured {
        let modes = m.plans.len() as f64;
        let at = categories.len() as f64;
        let models: Vec<CostModel> = m.plans.iter().map(CostModel::of).collect();
        let predict =
            |reuse: Reuse| models.iter().map(|model| model.predict(reuse, &machine).seconds).sum::<f64>() / modes;
        let seconds = m.total() / modes;
        let predicted = Reuse::ALL.map(predict);
        categories.push(format!("{} R={}", m.method.name().to_uppercase(), m.rank));
        all[0].points.push((at, 1e3 * seconds));
        for (series, value) in all[1..].iter_mut().zip(predicted) {
            series.points.push((at, 1e3 * value));
        }
        if seconds < predicted[3] {
            below.push(categories[categories.len() - 1].clone());
        }
        let mut row = vec![Cell::text(name.as_str()), Cell::text(m.method.name()), Cell::Count(m.rank as u64)];
        row.push(Cell::Number(seconds));
        row.extend(predicted.map(Cell::Number));
        row.extend([machine.bandwidth, machine.peak, predicted[3] / seconds].map(Cell::Number));
        table.rows.push(row);
    }
    let below = match below.len() {
        0 => "No measured time is below T_inf.".to_owned(),
        _ => format!(
            "Below T_inf: {}. A tensor that fits a cache is read faster than memory gives it; take a larger one.",
            below.join(", ")
        ),
    };
    let frame = Frame {
        title: format!(
            "Measured and modelled MTTKRP, mean over modes: {}, {}",
            setting.shown_dims(),
            setting.args.dtype
        ),
        caption: vec![
            format!(
                "{name}, measured at {:.0} GB/s and {:.0} GFLOP/s. T = max(flops / peak, bytes / bandwidth): T_0 reuses nothing, \
                 T_inf moves everything once, T_0,LM what a kernel keeps in local memory, (a) sums and weights, (b) factor \
                 rows too. The words of a model are derived; arithmetic on matrix units counts as free. {below}",
                machine.bandwidth / 1e9,
                machine.peak / 1e9
            ),
            setting.command(),
        ],
        x: Axis::new("method and rank", false),
        y: Axis::new("time of an MTTKRP, ms", true),
    };
    let svg = chart::lines(&frame, &all, &[], &categories).map_err(Failure::Failed)?;
    Ok(Drawn { svg, table })
}
