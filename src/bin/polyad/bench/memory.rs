//! Figure `memory`: bytes that CP-ALS takes against the rank, worst mode, with lines at 1, 2, .. cards. Nothing is run.

use super::table::{Cell, Table};
use super::{Drawn, Setting, planned_caps};
use crate::chart::{self, Axis, Frame, Series};
use crate::failure::Failure;
use polyad::plan::{DeviceCaps, Footprint, TreePlan};
use polyad::{Method, MttkrpPlan, Tree};

/// What the paper's matrix-based method takes: tensor, factors, results, and the largest Khatri-Rao product, whole.
const WHOLE: &str = "matrix-based: whole Khatri-Rao product";

pub fn draw(setting: &Setting<'_>) -> Result<Drawn, Failure> {
    // Bytes of whole tensors, whatever the memory of the card at hand.
    let mut caps = planned_caps(setting)?;
    caps.memory = None;
    let card = setting.args.card_memory.map_or(80_000_000_000, |bytes| bytes.0);
    let mut table = Table::new(&[
        "method",
        "rank",
        "tensor_bytes",
        "factors_bytes",
        "scratch_bytes",
        "peak_bytes",
        "cards",
        "share_of_matrix_based",
    ]);
    let mut series: Vec<Series> = Vec::new();
    let mut add = |name: &str, rank: usize, peak: u64| {
        let point = (rank as f64, peak as f64 / 1e9);
        match series.iter_mut().find(|s| s.name == name) {
            Some(s) => s.points.push(point),
            None => series.push(Series { name: name.into(), points: vec![point], line: true, filled: true }),
        }
    };
    let mut last_shares = Vec::new();
    for &rank in &setting.ranks {
        let whole = matrix_based(setting, rank, &caps)?;
        add("matrix-based (paper)", rank, whole.peak);
        table.rows.push(row(WHOLE, rank, whole, card, 1.0));
        last_shares.clear();
        for &method in &setting.methods {
            // What a column block needs is the same for the entry-wise methods: one line for them.
            if matches!(method, Method::Elem | Method::Slice) && setting.methods.contains(&Method::Tile) {
                continue;
            }
            let bytes = match planned(setting, rank, method, &caps) {
                Ok(bytes) => bytes,
                Err(error) => {
                    setting.skip(&format!("{method} at rank {rank}"), &error);
                    continue;
                }
            };
            let name = match method {
                Method::Gemm => "GEMM here".to_owned(),
                Method::Tile => "TILE (ELEM, SLICE)".to_owned(),
                other => other.name().to_uppercase(),
            };
            add(&name, rank, bytes.peak());
            let share = bytes.peak() as f64 / whole.peak as f64;
            last_shares.push(format!("{} {:.1} %", method.name().to_uppercase(), 100.0 * share));
            let all =
                Bytes { tensor: bytes.tensor, factors: bytes.factors, scratch: bytes.scratch, peak: bytes.peak() };
            table.rows.push(row(method.name(), rank, all, card, share));
        }
    }
    let highest = series.iter().flat_map(|s| &s.points).fold(0.0f64, |most, p| most.max(p.1));
    let gigabytes = card as f64 / 1e9;
    let lines = ((highest / gigabytes).ceil() as usize).clamp(1, 8);
    let levels: Vec<(f64, String)> = (1..=lines)
        .map(|k| (k as f64 * gigabytes, if k == 1 { "1 card".into() } else { format!("{k} cards") }))
        .collect();
    let rank = setting.ranks.last().copied().unwrap_or(0);
    let frame = Frame {
        title: format!("Memory of CP-ALS of {}, {}", setting.shown_dims(), setting.args.dtype),
        caption: vec![
            format!(
                "Planned for {}; a card has {gigabytes} GB. Matrix-based: tensor, factors, results and the largest whole \
                 Khatri-Rao product, as in the paper; the other lines are what a run here allocates.",
                caps.name
            ),
            format!("Share of the matrix-based bytes at rank {rank}: {}.", last_shares.join(", ")),
            setting.command(),
        ],
        x: Axis::new("rank R", false),
        y: Axis::new("memory, GB (1e9 bytes)", false),
    };
    let svg = chart::lines(&frame, &series, &levels, &[]).map_err(Failure::Failed)?;
    Ok(Drawn { svg, table })
}

#[derive(Clone, Copy)]
struct Bytes {
    tensor: u64,
    factors: u64,
    scratch: u64,
    peak: u64,
}

fn row(method: &str, rank: usize, bytes: Bytes, card: u64, share: f64) -> Vec<Cell> {
    let cards = bytes.peak.div_ceil(card);
    let counts = [rank as u64, bytes.tensor, bytes.factors, bytes.scratch, bytes.peak, cards].map(Cell::Count);
    let mut row = vec![Cell::text(method)];
    row.extend(counts);
    row.push(Cell::Number(share));
    row
}

fn plans(setting: &Setting<'_>, rank: usize, method: Method, caps: &DeviceCaps) -> polyad::Result<Vec<MttkrpPlan>> {
    let options = setting.options(method);
    (0..setting.dims.len()).map(|mode| MttkrpPlan::new(&setting.dims, mode, rank, &options, caps)).collect()
}

/// One MTTKRP a mode, as in the paper.
fn cp_als(setting: &Setting<'_>, plans: &[MttkrpPlan], method: Method, caps: &DeviceCaps) -> polyad::Result<Footprint> {
    Footprint::cp_als(plans, &TreePlan::of(plans, Tree::None, None, &setting.options(method), caps)?, caps)
}

fn planned(setting: &Setting<'_>, rank: usize, method: Method, caps: &DeviceCaps) -> polyad::Result<Footprint> {
    cp_als(setting, &plans(setting, rank, method, caps)?, method, caps)
}

fn matrix_based(setting: &Setting<'_>, rank: usize, caps: &DeviceCaps) -> polyad::Result<Bytes> {
    let plans = plans(setting, rank, Method::Slice, caps)?;
    let bytes = cp_als(setting, &plans, Method::Slice, caps)?;
    let scratch = plans.iter().map(Footprint::whole_khatri_rao).max().unwrap_or(0);
    let peak = bytes.peak().saturating_add(scratch);
    Ok(Bytes { tensor: bytes.tensor, factors: bytes.factors, scratch, peak })
}
