//! Plans as values: what they promise for any shape, rank and device.

use polyad::plan::{
    DeviceCaps, DeviceKind, Method, MttkrpPlan, Params, PlanOptions, Precision, Reduction, Slot, TreePlan,
};
use polyad::{Dtype, Tree};
use proptest::prelude::*;
use std::collections::HashMap;

/// Devices from the smallest that WebGPU allows to one with matrix units, and one whose bindings are tight.
fn device(kind: usize, binding: u64) -> DeviceCaps {
    let mut caps = DeviceCaps::webgpu_minimum("some GPU");
    caps.max_binding_bytes = binding;
    caps.max_buffer_bytes = binding;
    if kind > 0 {
        caps.f64 = true;
        caps.max_workgroup_memory = 49152;
        caps.max_workgroup_invocations = 1024;
    }
    if kind > 1 {
        caps.f16_matrix_units = true;
        caps.subgroup_size = 32;
        caps.kind = DeviceKind::DiscreteGpu;
    }
    caps
}

/// Dims of all orders, long modes and ones among them, of at most 2^34 entries.
fn dims() -> impl Strategy<Value = Vec<usize>> {
    let dim = prop_oneof![Just(1usize), 2usize..20, 20usize..2000, 2000usize..3_000_000];
    prop::collection::vec(dim, 1..=6).prop_filter("too many entries", |dims| {
        dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).is_some_and(|n| n <= 1 << 34)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    /// Scratch of FUSED: within the bound that the plan states, which is no more than the columns, padded to whole tiles
    /// of at most 128, times the sum of dims, and 2112 tiles of 256 x 128; and within a binding.
    #[test]
    fn scratch_is_bounded(
        dims in dims(),
        mode in 0usize..6,
        rank in prop_oneof![1usize..70, 70usize..5000],
        kind in 0usize..3,
        binding in prop_oneof![Just(1u64 << 27), Just(1 << 31), 1u64 << 20..1 << 24],
        double in any::<bool>(),
        fast in any::<bool>(),
    ) {
        let caps = device(kind, binding);
        let dtype = if double && caps.f64 { Dtype::F64 } else { Dtype::F32 };
        let precision = if fast { Precision::Fast } else { Precision::Float32 };
        let options = PlanOptions::default().method(Method::Fused).dtype(dtype).precision(precision);
        // A single partial result, or the factors of four columns, may be more than a binding: an error, no plan.
        let Ok(plan) = MttkrpPlan::new(&dims, mode % dims.len(), rank, &options, &caps) else { return Ok(()) };
        // Slabs side by side write to places of their own, until their sums are read.
        for plan in [Some(&plan), plan.fallback()].into_iter().flatten() {
            let (scratch, bound) = (plan.total_scratch_bytes(), plan.scratch_bound().unwrap());
            prop_assert!(scratch <= bound && scratch > 0, "{plan}");
            let buffers: Vec<u64> = (0..8).map(|place| plan.scratch_bytes(Slot::Partial(place))).collect();
            prop_assert!(buffers.iter().all(|&bytes| bytes <= binding), "{plan}");
            prop_assert_eq!(scratch, buffers.iter().sum::<u64>());
            let columns = rank.next_multiple_of(128) as u64;
            let most = (columns * dims.iter().sum::<usize>() as u64 + 2112 * 256 * 128) * dtype.bytes();
            prop_assert!(bound <= most, "{bound} of {most}: {plan}");
            let said = format!("scratch {scratch} bytes, for this shape at most {bound}");
            prop_assert!(plan.to_string().contains(&said), "{plan}");
            // What dispatches write is what the scratch has room for.
            for dispatch in plan.dispatches() {
                if let polyad::plan::Params::Fused(p) = dispatch.params {
                    let entries = u64::from(p.pieces) * u64::from(p.partial_rows) * u64::from(p.partial_stride4) * 4;
                    let room = plan.scratch_bytes(*dispatch.slots.last().unwrap());
                    prop_assert!(entries * dtype.bytes() <= room, "{plan}");
                }
            }
        }
    }
}

/// A narrower last block of columns has batches of its own, whose places are not those of the others.
#[test]
fn blocks_of_columns_share_their_scratch() {
    let options = PlanOptions::default().method(Method::Fused).dtype(Dtype::F64);
    let plan = MttkrpPlan::new(&[693, 1, 289, 1, 1271], 4, 4225, &options, &device(1, 9_830_400)).unwrap();
    let widths: Vec<_> = plan.columns().windows(2).map(|ends| ends[1] - ends[0]).collect();
    assert!(widths.len() > 1 && plan.slabs().len() > 8 && widths.iter().any(|&width| width != widths[0]), "{plan}");
    assert!(plan.total_scratch_bytes() <= plan.scratch_bound().unwrap(), "{plan}");
}

/// The rank is cut where all of its columns have no room: several dispatches share the scratch.
#[test]
fn ranks_are_cut_where_scratch_is_tight() {
    let options = PlanOptions::default().method(Method::Fused);
    let dispatches = |binding| {
        let mut caps = device(0, 1 << 31);
        caps.max_binding_bytes = binding;
        let plan = MttkrpPlan::new(&[5000, 300], 0, 512, &options, &caps).unwrap();
        assert!(plan.total_scratch_bytes() <= binding);
        (plan.dispatches().len(), plan.columns().len() - 1)
    };
    assert_eq!(dispatches(1 << 30), (2, 1));
    // The factors are cut no less: blocks of columns of their own.
    let (count, blocks) = dispatches(1 << 22);
    assert!(count > 2 * blocks && blocks > 1, "{count} dispatches, {blocks} blocks");
}

/// A slab's product with the factors of a group may exceed a binding: its columns are in several buffers then.
#[test]
fn kept_products_are_cut_where_a_binding_is_tight() {
    for kind in 0..3 {
        let mut caps = device(kind, (2 << 30) - 16);
        caps.memory = Some(140 << 30);
        let (dims, rank) = ([1024, 1024, 1024], 512);
        let plan = TreePlan::new(&dims, rank, Tree::MultiSweep, None, &PlanOptions::default(), &caps).unwrap();
        assert_eq!((plan.passes(), plan.bytes()), (1.5, 3 * (2 << 30)), "{plan}");
        let mut sums = Vec::new();
        let mut made = HashMap::new();
        for dispatch in plan.dispatches() {
            match dispatch.params {
                Params::Fused(p) => {
                    let entries = u64::from(p.pieces) * u64::from(p.partial_rows) * u64::from(p.partial_stride4) * 4;
                    assert!(entries * 4 <= caps.max_binding_bytes, "{plan}");
                    made.insert(*dispatch.slots.last().unwrap(), (p.column0, p.partial_stride4, dispatch.slab));
                }
                // What is read of a buffer is what the last product has there.
                Params::MultiTtv(p) => {
                    let (column0, columns4, slab) = made[&dispatch.slots[0]];
                    assert_eq!(
                        (p.column0, p.columns4, p.t_stride4, dispatch.slab),
                        (column0 / 4, columns4, columns4, slab)
                    );
                }
                Params::Reduce(p) => sums.push((p.column0, p.columns4)),
                _ => panic!("{}", dispatch.spec),
            }
        }
        // Three slabs: all columns of each for two modes of every group; on matrix units one product over all slabs where they
        // cut the group's mode.
        let columns: u32 = sums.iter().map(|(_, columns4)| 4 * columns4).sum();
        let products = if caps.f16_matrix_units { 7 } else { 9 };
        assert_eq!(columns, products * 2 * 512);
        assert!(sums.contains(&(256, 64)), "{sums:?}");
        if !caps.f64 {
            continue; // The host replaces factors, and nothing is kept.
        }
        // Without room for it, something smaller is kept.
        caps.memory = Some(9 << 30);
        let options = PlanOptions::default();
        let plans: Vec<_> = (0..3).map(|n| MttkrpPlan::new(&dims, n, rank, &options, &caps).unwrap()).collect();
        let plan = |tree| TreePlan::of(&plans, tree, None, &options, &caps).unwrap();
        assert!(plan(Tree::MultiSweep).reason().contains("with kept products"), "{}", plan(Tree::MultiSweep));
        assert_eq!(plan(Tree::Two).passes(), 2.0, "{}", plan(Tree::Two));
    }
}

/// Atomics leave matrix units unused and say so; nothing else about them depends on the device.
#[test]
fn atomics_take_no_scratch_and_no_matrix_units() {
    let options = PlanOptions::default().reduction(Reduction::Atomics);
    for kind in 0..3 {
        let caps = device(kind, 1 << 27);
        let plan = MttkrpPlan::new(&[200, 300, 40], 0, 64, &options, &caps).unwrap();
        assert_eq!((plan.total_scratch_bytes(), plan.scratch_bound(), plan.dispatches().len()), (0, Some(0), 1));
        assert!(plan.fallback().is_none() && plan.dispatches()[0].spec.shader == "fused_rows", "{plan}");
        assert!(plan.reason().contains("not repeatable"), "{plan}");
        assert_eq!(plan.reason().contains("without matrix units"), caps.f16_matrix_units, "{plan}");
        // Methods of one way each ignore it.
        let gemm = PlanOptions::default().method(Method::Gemm);
        let plans = [gemm.clone(), gemm.reduction(Reduction::Atomics)];
        let [plain, same] = plans.map(|options| MttkrpPlan::new(&[20, 30, 40], 0, 64, &options, &caps).unwrap());
        assert_eq!(plain, same);
    }
}

/// The kernels that take over from f16 matrix units have other tiles, whose products may be larger.
#[test]
fn kept_products_stay_within_the_budget() {
    let (caps, options) = (device(2, 1 << 31), PlanOptions::default());
    for dims in [&[600, 300, 33][..], &[33, 64, 40, 20]] {
        for tree in [Tree::Two, Tree::MultiSweep] {
            let plan = |budget| TreePlan::new(dims, 64, tree, Some(budget), &options, &caps).unwrap();
            let most = plan(u64::MAX).bytes();
            assert!(most > 0, "{dims:?} {tree}");
            for budget in [most, most - 1, most / 2, most / 8] {
                assert!(plan(budget).bytes() <= budget, "{budget}: {}", plan(budget));
            }
            assert_eq!(plan(most).bytes(), most);
        }
    }
}
