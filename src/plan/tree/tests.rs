//! How modes fall into groups, and how long their products last.

use super::*;

#[test]
fn groups_are_all_cuts() {
    let found: Vec<_> = partitions(3).collect();
    assert_eq!(found, [vec![0..1, 1..3], vec![0..2, 2..3], vec![0..1, 1..2, 2..3]]);
    assert_eq!(partitions(8).count(), 127);
}

/// Passes of ten sweeps after the first: g / (g - 1) each, whatever the groups.
#[test]
fn products_last_as_long_as_their_factors() {
    for dims in [&[30, 20, 10][..], &[9, 8, 7, 6], &[5, 6, 4, 5, 3]] {
        for tree in [Tree::Two, Tree::MultiSweep] {
            let plan = TreePlan::new(dims, 3, tree, None, &PlanOptions::default(), &DeviceCaps::cpu(2)).unwrap();
            let mut kept = Kept::default();
            let mut passes = 0;
            let sweeps = 12 * (plan.groups().len() - 1);
            for _ in 0..sweeps {
                for mode in 0..dims.len() {
                    match kept.group(&plan, mode) {
                        Some((_, true)) => {}
                        Some((group, false)) => {
                            passes += 1;
                            kept = Kept::of(group);
                        }
                        None => passes += 1,
                    }
                    kept.changed(&plan, mode);
                }
            }
            let expected = plan.passes() * sweeps as f64;
            assert!((passes as f64 - expected).abs() < 1.0 + 1e-9, "{dims:?} {tree}: {passes} and {expected}");
        }
    }
}
