//! TILE's tau, chosen for a GPU.
//!
//! Every tile reads its factor rows once and adds to G once, so wide tiles move fewest words (T_{0,LM} of `model.rs`);
//! but a workgroup works on one tile, so there have to be enough of them, its factor rows have to fit workgroup memory,
//! and more of those leave room for fewer workgroups. The width that this comes to is measured (`tuning.rs`). From it:
//! tiles of about that width which divide the largest other mode evenly; for orders up to 3 a whole mode where that is not
//! much wider; and less where the device would not be busy.

use super::Problem;

/// The share of the traffic that atomic additions may have: a floor of tau.
const ATOMICS: f64 = 0.1;
/// Modes up to this long are covered whole: 50 of 2000 x 50 x 50 took 0.75 to 0.85 times as long as 48, which cuts them.
const WHOLE: usize = 64;

/// The least width at which atomic additions are at most `ATOMICS` of the traffic: `(2 / (eps d))^(1 / (d - 1))`, 3, 2, 2
/// for orders 3, 4, 5.
pub(super) fn floor(order: usize) -> usize {
    if order < 2 {
        return 1;
    }
    (2.0 / (ATOMICS * order as f64)).powf(1.0 / (order as f64 - 1.0)).ceil().max(1.0) as usize
}

/// The width near `measured` that suits the dims, or the widest below it that `fits` allows and that keeps half of the
/// `resident` workgroups busy; the floor where there is none. `columns` is the column block.
pub(super) fn choose(
    problem: &Problem,
    columns: usize,
    resident: usize,
    measured: usize,
    fits: impl Fn(usize) -> bool,
) -> usize {
    let dims: Vec<usize> = problem.other_modes().map(|m| problem.shape.rows(m)).collect();
    let largest = dims.iter().copied().max().unwrap_or(1);
    let least = floor(problem.shape.order()).min(largest);
    let width = problem.columns.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(1);
    let blocks = width.div_ceil(columns.max(1));
    let rows = problem.shape.rows(problem.mode) as f64;
    let tiles = |tau: usize| rows * dims.iter().map(|dim| dim.div_ceil(tau) as f64).product::<f64>();
    let busy = |tau: usize| 2.0 * tiles(tau) * blocks as f64 >= resident as f64;
    let whole = dims.iter().copied().filter(|dim| (measured * 3 / 4..=WHOLE).contains(dim)).max();
    let across = (2 * largest + measured) / (2 * measured);
    let even = largest.div_ceil(across.max(1));
    let wanted = whole.filter(|_| dims.len() <= 2).unwrap_or(even);
    (least..=wanted).rev().find(|&tau| fits(tau) && busy(tau)).unwrap_or(least)
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

    /// The order of measured times: 32 before 16 before 8.
    #[test]
    fn large_tensors_get_wide_tiles() {
        for rank in [16, 32, 64, 128] {
            assert!(tau(&[1024, 1024, 1024], 0, rank) >= 32, "{rank}");
        }
    }

    #[test]
    fn the_device_stays_busy() {
        // 4 rows and half of 2112 workgroups: 17 tiles or more along each other mode, where 44 wide ones would be 7.
        let tau = tau(&[4, 300, 300], 0, 8);
        assert_eq!(300usize.div_ceil(tau), 17, "{tau}");
        // Where no width fills it the floor is taken.
        assert_eq!(self::tau(&[4, 40, 40], 0, 8), 3);
    }

    /// Widths that were within 10 % of the best on an H200, or lie between such.
    #[test]
    fn widths_are_those_measured_best() {
        for (dims, mode, rank, from, to) in [
            (&[256, 256, 256][..], 0, 16, 32, 64),
            (&[256, 256, 256], 0, 64, 28, 32),
            (&[48, 1200, 1200], 0, 16, 33, 64),
            (&[48, 1200, 1200], 1, 16, 48, 64),
            (&[48, 1200, 1200], 1, 64, 24, 48),
            (&[2000, 50, 50], 0, 64, 50, 50),
            (&[2000, 50, 50], 1, 16, 50, 50),
            (&[100; 4], 0, 16, 20, 48),
            (&[100; 4], 1, 64, 20, 24),
            (&[40; 5], 0, 16, 16, 20),
            (&[40; 5], 0, 64, 12, 20),
            (&[8000, 8000], 0, 16, 20, 32),
            (&[8000, 8000], 1, 64, 16, 32),
        ] {
            let found = tau(dims, mode, rank);
            assert!((from..=to).contains(&found), "{dims:?} mode {mode} R {rank}: {found}");
        }
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
