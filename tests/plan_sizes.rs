//! Plans of tensors beyond 32 bits: every count, offset and index that kernels are given is exact and fits its 32 bits.

use polyad::plan::{
    DeviceCaps, Method, MttkrpPlan, Params, PlanOptions, Reduction, TreePlan, buffer_limit, column_stride,
};
use polyad::{Dtype, Error, Shape, Tree};
use proptest::prelude::*;
use std::collections::HashMap;

/// 200 GB in f32 and more, in all sorts of shapes.
fn shapes() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        Just(vec![5000, 5000, 2000]),
        Just(vec![2000, 5000, 5000]),
        Just(vec![50, 20_000, 50_000]),
        Just(vec![473, 473, 473, 473]),
        Just(vec![50_000_000_000]),
        Just(vec![2, 25_000_000_000]),
        Just(vec![3_000_000, 17, 1000]),
        Just(vec![7, 11, 13, 17, 19, 23, 29, 31]),
        prop::collection::vec(prop_oneof![2usize..40, 40usize..4000, 4000usize..300_000], 2..=6)
            .prop_filter("50 billion entries at most", |dims| {
                dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).is_some_and(|n| n <= 50_000_000_000)
            }),
    ]
}

const MOST: u64 = 1 << 32;

/// A number that a kernel forms in 32 bits.
fn fits(what: &str, factors: &[u64], plan: &MttkrpPlan) {
    let product = factors.iter().try_fold(1u64, |product, &factor| product.checked_mul(factor));
    assert!(product.is_some_and(|product| product < MOST), "{what}: {factors:?} in {plan}");
}

/// Factors, weights, and four rows a mode for scales.
fn rows_of_factors(shape: &Shape) -> u64 {
    shape.iter().sum::<usize>() as u64 + 1 + 4 * shape.order() as u64
}

/// Everything about a plan that could have been truncated, against the same in 64 bits.
fn check(plan: &MttkrpPlan, caps: &DeviceCaps) {
    let (shape, mode) = (plan.shape(), plan.mode());
    let limit = buffer_limit(caps, plan.dtype());
    let mut at = 0;
    for slab in plan.slabs() {
        assert_eq!(slab.start, at, "{plan}");
        assert!(slab.len() as u64 * plan.dtype().bytes() <= limit && slab.len() <= 1 << 31, "{plan}");
        // Where its first entry lies, from its first indices.
        let start: usize = slab.offsets.iter().zip(shape.iter()).fold(0, |start, (&i, &d)| start * d + i);
        assert_eq!(start, slab.start, "{plan}");
        at += slab.len();
    }
    assert_eq!(at, shape.len(), "{plan}");
    let u = u64::from;
    for dispatch in plan.dispatches() {
        assert!(dispatch.grid.iter().all(|&g| g > 0 && g <= caps.max_workgroups_per_dim), "{plan}");
        let groups: u64 = dispatch.grid[..2].iter().map(|&g| u(g)).product();
        let slab = dispatch.slots.iter().find_map(|slot| match slot {
            polyad::plan::Slot::X(index) => plan.slabs().get(*index),
            _ => None,
        });
        let rows_of_factors = rows_of_factors(shape);
        match (dispatch.params, slab) {
            (Params::Fused(p), Some(slab)) => {
                assert_eq!(u(p.rows) * u(p.reduction), slab.len() as u64, "{plan}");
                assert_eq!(p.rows as usize, slab.dims[mode]);
                assert_eq!(p.g_row0 as usize, slab.offsets[mode]);
                assert!(p.g_row0 as usize + p.rows as usize <= shape[mode]);
                let right: usize = slab.dims[mode + 1..].iter().product();
                assert!(p.right as usize == right || p.rows == 1 && p.right == p.reduction);
                assert_eq!(u(p.steps), u(p.reduction) / u(p.run) * u(p.run_steps), "{plan}");
                // Where rows of the last factor are held, every block of a run has pieces of its own.
                let constant = |name| dispatch.spec.consts.iter().find(|c| c.0 == name).map_or(0, |c| c.1);
                let held = dispatch.spec.shader == "fused_held_rows";
                let blocks = if held { p.run.div_ceil(constant("EK") * constant("KL")) } else { 1 };
                let pieces = u(p.pieces / blocks);
                assert_eq!(p.pieces % blocks, 0, "{plan}");
                assert!(pieces * u(p.piece) >= u(p.steps) && (pieces - 1) * u(p.piece) < u(p.steps), "{plan}");
                fits("partial results", &[u(p.pieces), u(p.partial_rows), u(p.partial_stride4), 4], plan);
                fits("factors", &[rows_of_factors, u(p.stride4), 4], plan);
                fits("the result", &[shape[mode] as u64, u(p.stride4), 4], plan);
                assert!(groups * u(dispatch.grid[2]) >= u(p.m_tiles) * u(p.pieces), "{plan}");
                // The last turn's last run begins within the slab.
                let runs = u(p.reduction) / u(p.run) - 1;
                let origin = runs * u(p.run_stride) + runs / u(p.turn_runs) * u(p.turn_stride);
                assert!(origin < slab.len() as u64 || p.run == p.reduction, "{plan}");
                for (m, (&row0, &dim)) in p.row0.iter().zip(&p.dims).take(shape.order() - 1).enumerate() {
                    let other = m + usize::from(m >= mode);
                    assert_eq!(dim as usize, slab.dims[other], "{plan}");
                    let first = shape[..other].iter().sum::<usize>() + slab.offsets[other];
                    assert_eq!(row0 as usize, first, "{plan}");
                }
            }
            (Params::Entry(p), Some(slab)) => {
                for m in 0..shape.order() {
                    assert_eq!(p.dims[m] as usize, slab.dims[m], "{plan}");
                    assert_eq!(p.strides[m] as usize, slab.dims[m + 1..].iter().product::<usize>(), "{plan}");
                    assert_eq!(p.row0[m] as usize, shape[..m].iter().sum::<usize>() + slab.offsets[m], "{plan}");
                }
                let count = match plan.method() {
                    Method::Elem => slab.len(),
                    Method::Slice => slab.dims[mode],
                    _ => p.tiles[..shape.order()].iter().map(|&t| t as usize).product(),
                };
                assert_eq!(p.count as usize, count, "{plan}");
                fits("factors", &[rows_of_factors, u(p.stride)], plan);
            }
            (Params::Gemm(p), Some(slab)) => {
                let last = u(p.a0) + u(p.m - 1) * u(p.stride_m) + u(p.k - 1) * u(p.stride_k);
                assert!(last < slab.len() as u64, "{plan}");
                let pieces = u(p.k.div_ceil(p.piece));
                fits("the product", &[u(p.c_row0) + pieces * u(p.m), u(p.rank)], plan);
                assert!(groups >= u(p.m.div_ceil(64)) * pieces && p.piece > 0, "{plan}");
            }
            (Params::Reduce(p), _) => {
                fits("the result", &[u(p.rows), u(p.columns4)], plan);
                let rows = match dispatch.slots.last() {
                    Some(polyad::plan::Slot::G(_)) => shape[mode],
                    // The one-sided product of a middle mode.
                    _ => {
                        (plan.scratch_bytes(dispatch.slots[2]) / plan.dtype().bytes()) as usize
                            / p.columns4 as usize
                            / 4
                    }
                };
                assert!(p.g_row0 as usize + p.rows as usize <= rows, "{plan}");
            }
            (Params::KhatriRao(p), _) => fits("Khatri-Rao rows", &[u(p.rows), u(p.rank)], plan),
            (Params::MultiplySum(p), _) => {
                fits("the one-sided product", &[u(p.m1), 1], plan);
                assert!(p.q1 >= p.q0 && p.g_row0 as usize + p.rows as usize <= shape[mode], "{plan}");
            }
            (other, slab) => panic!("{other:?} with {slab:?}"),
        }
    }
    let columns = plan.columns();
    for ends in columns.windows(2) {
        let words = rows_of_factors(shape) * column_stride(ends[1] - ends[0]) as u64;
        assert!(words * plan.dtype().bytes() <= limit, "{plan}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// On a card with bindings of 2 GiB and on the smallest device; every method, in f32 and f64.
    #[test]
    fn numbers_beyond_32_bits(
        dims in shapes(),
        mode in 0usize..8,
        rank in prop_oneof![Just(1usize), 2usize..40, 40usize..3000],
        method in 0usize..6,
        large in any::<bool>(),
        double in any::<bool>(),
    ) {
        let mut caps = DeviceCaps::webgpu_minimum("simulated");
        (caps.f64, caps.u64_atomics) = (true, true);
        if large {
            (caps.max_binding_bytes, caps.max_buffer_bytes) = ((2 << 30) - 4, 1 << 40);
            caps.max_workgroup_memory = 49152;
        }
        let options = PlanOptions::default().dtype(if double { Dtype::F64 } else { Dtype::F32 });
        let options = match Method::ALL.get(method) {
            Some(&method) => options.method(method),
            None => options.method(Method::Fused).reduction(Reduction::Atomics),
        };
        match MttkrpPlan::new(&dims, mode % dims.len(), rank, &options, &caps) {
            Ok(plan) => check(&plan, &caps),
            // A mode so long that four columns of its factor, or one tile's partial result, exceed a binding; a grid
            // beyond what two dimensions hold.
            Err(Error::LimitTooSmall { needed, available, .. }) => prop_assert!(needed > available),
            Err(error) => prop_assert!(false, "{dims:?} R {rank}: {error}"),
        }
    }
}

/// Three hand-checked numbers of a 200 GB tensor: its slabs, the last one's start, and the entries they hold together.
#[test]
fn a_tensor_of_200_gb() {
    let mut caps = DeviceCaps::webgpu_minimum("simulated");
    (caps.max_binding_bytes, caps.max_buffer_bytes) = (2 << 30, 1 << 40);
    let plan = MttkrpPlan::new(&[5000, 5000, 2000], 0, 16, &PlanOptions::default(), &caps).unwrap();
    assert_eq!(plan.shape().len(), 50_000_000_000);
    // A slice along mode 0 has ten million entries: 53 fit 2 GiB, 52 are whole tiles of 4 and even.
    let last = plan.slabs().last().unwrap();
    assert_eq!(last.start + last.len(), 50_000_000_000);
    assert!(last.start > u32::MAX as usize && plan.slabs().iter().all(|slab| slab.len() <= 530_000_000), "{plan}");
    check(&plan, &caps);
    // Every method and mode has a plan of it.
    for (mode, method) in (0..3).flat_map(|mode| Method::ALL.map(|method| (mode, method))) {
        let options = PlanOptions::default().method(method);
        check(&MttkrpPlan::new(&[5000, 5000, 2000], mode, 16, &options, &caps).unwrap(), &caps);
    }
    // Beyond what can be addressed it is an error with the dims.
    let dims = [1 << 32, 1 << 31, 2];
    let error = MttkrpPlan::new(&dims, 0, 16, &PlanOptions::default(), &caps).unwrap_err();
    assert!(error.to_string().contains("(4294967296, 2147483648, 2)"), "{error}");
}

/// Kept products of large tensors: what is written is where it is read, within a binding.
#[test]
fn kept_products_of_large_tensors() {
    let mut small = DeviceCaps::webgpu_minimum("simulated");
    small.f64 = true;
    let mut large = small.clone();
    (large.max_binding_bytes, large.max_buffer_bytes) = ((2 << 30) - 4, 1 << 40);
    let shapes = [&[2000, 1500, 900][..], &[50, 20_000, 3000], &[200, 200, 200, 200], &[7, 11, 13, 17, 19, 23]];
    let mut seen = 0;
    for (caps, dims) in [&small, &large].into_iter().flat_map(|caps| shapes.map(|dims| (caps, dims))) {
        for (rank, dtype) in [(1, Dtype::F64), (17, Dtype::F32), (300, Dtype::F32)] {
            for tree in [Tree::Two, Tree::MultiSweep] {
                let options = PlanOptions::default().dtype(dtype);
                let plan = TreePlan::new(dims, rank, tree, Some(u64::MAX), &options, caps).unwrap();
                // Rows of the product at hand in each slab.
                let mut written = HashMap::new();
                for dispatch in plan.dispatches() {
                    assert!(dispatch.grid.iter().all(|&g| g > 0 && g <= caps.max_workgroups_per_dim), "{plan}");
                    let u = u64::from;
                    match dispatch.params {
                        Params::Fused(p) => {
                            let rows = u(p.pieces) * u(p.partial_rows);
                            assert!(rows * u(p.partial_stride4) * 4 * dtype.bytes() <= buffer_limit(caps, dtype));
                            assert_eq!(u(p.steps), u(p.pieces) * u(p.piece), "{plan}");
                            assert_eq!(u(p.steps), u(p.reduction) / u(p.run) * u(p.run_steps), "{plan}");
                            written.insert(dispatch.slots[3], (rows, p.partial_stride4));
                        }
                        Params::MultiTtv(p) => {
                            let others = p.dims.iter().zip(&p.strides).filter(|(dim, _)| **dim > 0);
                            let last = others.map(|(&dim, &stride)| u(dim - 1) * u(stride)).sum::<u64>();
                            let (rows, stride4) = written[&dispatch.slots[0]];
                            assert!(last + u(p.rows - 1) * u(p.row_stride) < rows, "{plan}");
                            assert_eq!(stride4, p.t_stride4, "{plan}");
                            let pieces = u(p.pieces);
                            assert!(
                                pieces * u(p.piece) >= u(p.reduction) && (pieces - 1) * u(p.piece) < u(p.reduction)
                            );
                            assert!(pieces * u(p.rows) * u(p.stride4) * 4 * dtype.bytes() <= buffer_limit(caps, dtype));
                            seen += 1;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    assert!(seen > 1000, "{seen}");
}
