//! TILE's tau, chosen for a GPU: the width whose estimated time is least.
//!
//! The time of a kernel is estimated as that of a list schedule (Graham 1969): all work, spread over what runs at the same
//! time, and the longest workgroup, which may be the last to start. The work of a workgroup is what `mttkrp_tile.wgsl`
//! does: it starts, stages its factor rows, and for every run of entries along the tile's last mode finds the place and the
//! product of the other factor rows before it sums the run. A run that the end of a mode cuts is slower, as its loop is not
//! unrolled. So wide tiles win by fewer workgroups and longer runs, until there are too few of them, or until their rows
//! crowd the cache out of the memory that both share. What each of these takes is measured (`tuning::TILE_COSTS`).

use super::Problem;
use super::tuning::{TILE_COSTS, TileCosts};

/// No wider tile was best by more than 10 %, and from about 100 on they are much slower.
const WIDEST: usize = 64;

/// The widths to choose from: multiples of 4, whole modes and their even parts of an even width, and what is narrower than
/// those. Others are not measured, and most of their runs begin where vectors of 16 bytes do not.
fn candidates(dims: &[usize]) -> impl Iterator<Item = usize> {
    let largest = dims.iter().copied().max().unwrap_or(1);
    let divides = |tau: usize| dims.iter().any(|&dim| dim == tau || tau.is_multiple_of(2) && dim.is_multiple_of(tau));
    (1..=largest.min(WIDEST)).filter(move |&tau| tau < 4 || tau.is_multiple_of(4) || divides(tau))
}

/// Equal workgroups: their number, the entries of a tile in all modes but its last, and the width along that.
type Tiles = (f64, f64, usize);

/// The workgroups of a block of columns: whole tiles, and those that the ends of modes cut.
fn tiles(problem: &Problem, tau: usize) -> Vec<Tiles> {
    let mut all = vec![(problem.shape.rows(problem.mode) as f64, 1.0, 1)];
    for mode in problem.other_modes() {
        let dim = problem.shape.rows(mode);
        let parts = [(dim / tau, tau), (1, dim % tau)].into_iter().filter(|&(times, width)| times > 0 && width > 0);
        let cut = |&(count, outer, last): &Tiles| {
            parts
                .clone()
                .map(move |(times, width)| (count * times as f64, outer * last as f64, width))
                .collect::<Vec<_>>()
        };
        all = all.iter().flat_map(cut).collect();
    }
    all
}

/// Estimated time with tiles of that width, in no unit, for F `columns` and that many entry `lanes`.
fn time(problem: &Problem, tau: usize, columns: usize, lanes: usize, costs: &TileCosts) -> f64 {
    let others = problem.shape.order().saturating_sub(1);
    let width = problem.columns.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(1);
    let subgroups = ((columns * lanes) as f64 / 32.0).max(1.0);
    let staged = (others * tau) as f64 / lanes as f64;
    let (mut work, mut longest) = (0.0, 0.0f64);
    for (count, outer, last) in tiles(problem, tau) {
        let run = last as f64 * if last == tau { 1.0 } else { costs.cut };
        let runs = outer / lanes as f64 * (costs.run * others.saturating_sub(1) as f64 + run);
        let one = costs.start + subgroups * (costs.row * staged + runs);
        work += count * one;
        longest = longest.max(one);
    }
    let words = (columns * (others * tau + lanes)) as f64;
    let crowding = (words * problem.dtype().bytes() as f64 / (subgroups * costs.bytes)).max(1.0).sqrt();
    work * width.div_ceil(columns.max(1)) as f64 * crowding + costs.groups * longest
}

/// The width of least estimated time among those that `fits` allows. `columns` is F, `lanes` the entry lanes for a width.
pub(super) fn choose(
    problem: &Problem,
    columns: usize,
    lanes: impl Fn(usize) -> usize,
    fits: impl Fn(usize) -> bool,
) -> usize {
    let dims: Vec<usize> = problem.other_modes().map(|m| problem.shape.rows(m)).collect();
    let time = |&tau: &usize| time(problem, tau, columns, lanes(tau), &TILE_COSTS);
    let best = candidates(&dims).filter(|&tau| fits(tau)).min_by(|a, b| time(a).total_cmp(&time(b)));
    best.unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use crate::plan::{DeviceCaps, DeviceKind, Method, MttkrpPlan, PlanOptions};
    use std::collections::BTreeMap;

    fn tau(dims: &[usize], mode: usize, rank: usize) -> usize {
        let mut caps = DeviceCaps::webgpu_minimum("some GPU");
        (caps.kind, caps.max_workgroup_memory) = (DeviceKind::DiscreteGpu, 49152);
        let plan = MttkrpPlan::new(dims, mode, rank, &PlanOptions::default().method(Method::Tile), &caps).unwrap();
        assert!(plan.warnings().is_empty(), "a chosen width needs no warning: {plan}");
        plan.tile()
    }

    /// The order of measured times: 32 before 16 before 8.
    #[test]
    fn large_tensors_get_wide_tiles() {
        for rank in [16, 32, 64, 128] {
            assert!(tau(&[1024, 1024, 1024], 0, rank) >= 28, "{rank}");
        }
    }

    #[test]
    fn the_device_stays_busy() {
        // 4 rows: whole modes would be 4 workgroups.
        let tau = tau(&[4, 60, 60], 0, 8);
        assert!((4..=20).contains(&tau), "{tau}");
    }

    /// Every width was measured on an H200. One that was not counts as the worse of its neighbours.
    #[test]
    fn widths_are_those_measured_best() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/figures/tile-widths.csv");
        let mut cases = BTreeMap::<_, BTreeMap<usize, f64>>::new();
        for line in std::fs::read_to_string(path).unwrap().lines().skip(1) {
            let fields: Vec<&str> = line.split(',').collect();
            let [_, dims, dtype, rank, mode, tau, seconds, ..] = fields[..] else { panic!("{line}") };
            assert_eq!(dtype, "f32");
            let widths = cases.entry((dims.to_owned(), rank.to_owned(), mode.to_owned())).or_default();
            widths.insert(tau.parse().unwrap(), seconds.parse().unwrap());
        }
        assert!(cases.len() >= 64, "{}", cases.len());
        let mut far = Vec::new();
        for ((dims, rank, mode), widths) in &cases {
            let shape: Vec<usize> = dims.split('x').map(|dim| dim.parse().unwrap()).collect();
            let tau = tau(&shape, mode.parse().unwrap(), rank.parse().unwrap());
            let below = *widths.range(..=tau).next_back().unwrap().1;
            let above = widths.range(tau..).next().map_or(f64::INFINITY, |(_, &seconds)| seconds);
            let best = widths.values().copied().fold(f64::INFINITY, f64::min);
            let loss = below.max(above) / best - 1.0;
            assert!(loss <= 0.2, "{dims} mode {mode} R {rank}: {tau} takes {loss} more than the best");
            if loss > 0.1 {
                far.push(format!("{dims} mode {mode} R {rank}: {tau}, {loss}"));
            }
        }
        assert!(10 * far.len() <= cases.len(), "{far:?}");
    }

    #[test]
    fn any_shape_has_a_width() {
        for dims in [&[7][..], &[1, 1], &[1, 9], &[5, 1, 4], &[3, 2, 2, 2], &[2, 2, 2, 2, 2, 2, 2, 2]] {
            for mode in 0..dims.len() {
                let tau = tau(dims, mode, 3);
                let largest = (0..dims.len()).filter(|&m| m != mode).map(|m| dims[m]).max().unwrap_or(1);
                assert!((1..=largest).contains(&tau), "{dims:?} mode {mode}: {tau}");
            }
        }
    }
}
