//! TILE's tau, chosen for a GPU by what a tile costs.
//!
//! Every tile reads its factor rows once and adds to G once, so wide tiles move fewest words (T_{0,LM} of `model.rs`);
//! but a workgroup works on one tile, so there have to be enough of them, and its factor rows have to fit workgroup memory.
//! The cost of a width is estimated as
//!
//!   (N + ROW * staged rows + TILE * tiles) * waves
//!
//! in entries, with partial tiles counted exactly; `waves` is what is lost because the last wave of workgroups is not full.
//! Derived; the two weights are fitted to times of one card (NVIDIA H200, 1024^3, R = 32: tau 4 69.4 ms, 8 29.9 ms, 32
//! 14.2 ms).

use super::Problem;

/// What a staged factor row costs, in entries.
const ROW: f64 = 3.0;
/// What a tile costs beside its rows and entries.
const TILE: f64 = 57.0;
/// The share of the traffic that atomic additions may have: a floor of tau.
const ATOMICS: f64 = 0.1;
/// Widest tile tried.
const WIDEST: usize = 128;

/// The least width at which atomic additions are at most `ATOMICS` of the traffic: `(2 / (eps d))^(1 / (d - 1))`, 3, 2, 2
/// for orders 3, 4, 5.
pub(super) fn floor(order: usize) -> usize {
    if order < 2 {
        return 1;
    }
    (2.0 / (ATOMICS * order as f64)).powf(1.0 / (order as f64 - 1.0)).ceil().max(1.0) as usize
}

/// The width with the least estimated cost of those that `fits` allows, among the floor and wider ones; the least width
/// that there is where none of them fits. `resident` workgroups run at a time, `columns` is the column block.
pub(super) fn choose(problem: &Problem, columns: usize, resident: usize, fits: impl Fn(usize) -> bool) -> usize {
    let dims: Vec<usize> = problem.other_modes().map(|m| problem.shape.rows(m)).collect();
    let largest = dims.iter().copied().max().unwrap_or(1);
    let least = floor(problem.shape.order()).min(largest);
    let width = problem.columns.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(1);
    let blocks = width.div_ceil(columns.max(1));
    let rows = problem.shape.rows(problem.mode);
    let cost = |tau: usize| {
        let across = |dim: usize| dim.div_ceil(tau) as f64;
        let tiles = rows as f64 * dims.iter().map(|&dim| across(dim)).product::<f64>();
        let staged: f64 = dims.iter().map(|&dim| tiles / across(dim) * dim as f64).sum();
        let waves = tiles * blocks as f64 / resident as f64;
        (problem.shape.len() as f64 + ROW * staged + TILE * tiles) * waves.ceil() / waves
    };
    let widths = (least..=largest.min(WIDEST)).filter(|&tau| fits(tau));
    // Of equal ones the widest, which has the shortest chains of additions.
    widths.min_by(|&a, &b| cost(a).total_cmp(&cost(b)).then(b.cmp(&a))).unwrap_or(least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{DeviceCaps, DeviceKind, Method, MttkrpPlan, PlanOptions};

    #[test]
    fn floors_are_those_of_the_formula() {
        assert_eq!([1, 2, 3, 4, 5].map(floor), [1, 10, 3, 2, 2]);
    }

    fn tau(dims: &[usize], mode: usize, rank: usize) -> usize {
        let mut caps = DeviceCaps::webgpu_minimum("some GPU");
        (caps.kind, caps.max_workgroup_memory) = (DeviceKind::DiscreteGpu, 49152);
        let plan = MttkrpPlan::new(dims, mode, rank, &PlanOptions::default().method(Method::Tile), &caps).unwrap();
        assert!(plan.warnings().is_empty(), "a chosen width needs no warning: {plan}");
        plan.tile()
    }

    /// The order of measured times on the card that the weights are from: 32 before 16 before 8.
    #[test]
    fn large_tensors_get_wide_tiles() {
        for rank in [16, 32, 64, 128] {
            assert!(tau(&[1024, 1024, 1024], 0, rank) >= 32, "{rank}");
        }
    }

    #[test]
    fn the_device_stays_busy() {
        // 33 rows and 2112 workgroups at a time: 64 tiles of a slice at least.
        let tau = tau(&[33, 4800, 4800], 0, 32);
        assert!(33 * 4800usize.div_ceil(tau).pow(2) >= 2112, "{tau}");
        // Even where no width fills it.
        assert!(self::tau(&[4, 40, 40], 0, 8) < 40);
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
