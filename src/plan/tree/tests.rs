//! How modes fall into groups, and how long their products last.

use super::*;
use crate::Dtype;
use crate::plan::{Params, Slot};

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

/// Where slabs cut nothing but the mode whose factor is multiplied, one kernel reads two or three of them; more, or slabs that
/// do not end with a step, have a product each.
#[test]
fn a_product_over_slabs_is_written_once() {
    let caps = |slab| DeviceCaps {
        f16_matrix_units: true,
        subgroup_size: 32,
        max_workgroup_memory: 48 << 10,
        max_workgroup_invocations: 1024,
        max_slab_bytes: slab,
        ..DeviceCaps::webgpu_minimum("a card")
    };
    let row = 40 * 50 * 4;
    for (rows, fitting, buffers) in
        [(384, 384, 1), (384, 200, 1), (384, 128, 1), (384, 96, 4), (300, 150, 2), (290, 128, 1)]
    {
        let caps = caps(fitting * row);
        let tree = |caps: &DeviceCaps| {
            TreePlan::new(&[rows, 40, 50], 64, Tree::MultiSweep, Some(1 << 30), &PlanOptions::default(), caps).unwrap()
        };
        let plan = tree(&caps);
        let product = plan.product(0);
        assert_eq!(product.len(), buffers, "{rows} by {fitting}: {product:?}");
        let Params::Fused(params) = product[0].params else { panic!("{product:?}") };
        let reads: Vec<_> = product.iter().flat_map(|d| &d.slots).filter(|s| matches!(s, Slot::X(_))).collect();
        let slabs = (rows as u64).div_ceil(fitting);
        if buffers == 1 && slabs > 1 {
            assert_eq!((reads.len(), params.reduction, params.slab_steps > 0), (4, rows as u32, true));
            assert_eq!(reads[3], &Slot::X(slabs as usize - 1));
            let bk = product[0].spec.consts.iter().find(|(name, _)| *name == "BK").unwrap().1;
            let cut = crate::plan::slabs(&Shape::new(&[rows, 40, 50]).unwrap(), Dtype::F32, fitting * row).unwrap();
            assert_eq!((params.slab_steps * bk) as usize, cut[0].dims[0], "{params:?}");
        } else {
            assert_eq!((reads.len(), params.slab_steps), (2 * buffers, 0));
        }
        // Sums over it read it once.
        assert_eq!(plan.result(0, 1).len(), 2 * buffers);
        // Few bindings, and kernels without matrix units: one product a slab.
        let few = DeviceCaps { max_storage_buffers: 5, ..caps.clone() };
        let without = DeviceCaps { f16_matrix_units: false, ..caps };
        assert!([few, without].iter().all(|caps| tree(caps).product(0).len() as u64 == slabs));
    }
}
