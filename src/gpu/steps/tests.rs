//! CP-ALS on the device, from inside.

use super::super::Gpu;
use super::super::range::scale_rows;
use super::*;
use crate::Backend;
use crate::plan::{DeviceCaps, Method, PlanOptions, Tree, column_stride, factor_rows, weights_row};

fn no_tree() -> &'static TreePlan {
    Box::leak(Box::new(TreePlan::new(&[2], 1, Tree::None, None, &PlanOptions::default(), &DeviceCaps::cpu(1)).unwrap()))
}

#[test]
fn an_mttkrp_that_overflows_is_named() {
    let Ok(gpu) = Gpu::new() else { return println!("skipped: no adapter") };
    if !gpu.caps().f64 {
        return println!("skipped: no f64");
    }
    let dims = [30, 20];
    let mut x = Array2::<f32>::ones(dims);
    x.row_mut(4).fill(3e38);
    let factors = dims.map(|rows| Array2::from_elem((rows, 3), 1.0));
    let plans = [0, 1].map(|mode| MttkrpPlan::new(&dims, mode, 3, &PlanOptions::default(), gpu.caps()).unwrap());
    let updates: Vec<_> = plans.iter().map(|plan| UpdatePlan::new(plan, gpu.caps()).unwrap()).collect();
    let xd = gpu.upload_tensor(x.view()).unwrap();
    let mut steps = GpuSteps::<f32>::new(&gpu.inner, &plans, no_tree(), updates, &xd, &factors).unwrap();
    steps.update(0, &NormalEquations::new(&Array2::eye(3), 1e-7, column_stride(3), 0).unwrap(), false).unwrap();
    // The next MTTKRP does not overwrite what is looked at.
    steps.start(1).unwrap();
    let error = steps.finish().unwrap_err();
    let expected = Error::Overflow { what: "MTTKRP of mode 0".into(), dtype: "f32", index: vec![4, 0] };
    assert_eq!(error, expected);
}

/// Every kernel that FUSED chooses by rank and layout, against the definition: the bound of f64, though data are f32.
#[test]
fn wide_sums_are_within_the_bound_of_f64() {
    let Ok(gpu) = Gpu::new() else { return println!("skipped: no adapter") };
    if !gpu.caps().f64 {
        return println!("skipped: no f64");
    }
    let mut kernels = std::collections::BTreeSet::new();
    for (dims, rank) in
        [([12, 8, 16], 3), ([9, 7, 5], 3), ([20, 9, 12], 12), ([30, 25, 21], 20), ([40, 6, 36], 33), ([70, 20, 64], 12)]
    {
        let mut at = 0u64;
        let mut next = || {
            at = at.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (at >> 40) as f32 / 16777216.0 - 0.5
        };
        let x = ndarray::Array3::from_shape_simple_fn(dims, &mut next);
        let factors = dims.map(|rows| Array2::from_shape_simple_fn((rows, rank), &mut next));
        let plans =
            [0, 1, 2].map(|mode| MttkrpPlan::new(&dims, mode, rank, &PlanOptions::default(), gpu.caps()).unwrap());
        let updates: Vec<_> = plans.iter().map(|plan| UpdatePlan::new(plan, gpu.caps()).unwrap()).collect();
        let xd = gpu.upload_tensor(x.view()).unwrap();
        let mut steps = GpuSteps::<f32>::new(&gpu.inner, &plans, no_tree(), updates, &xd, &factors).unwrap();
        let exact = factors.each_ref().map(|f| f.mapv(f64::from));
        let views = exact.each_ref().map(|f| f.view());
        let x = x.mapv(f64::from).into_dyn();
        for mode in 0..3 {
            assert!(steps.can_widen(mode).unwrap());
            steps.submit_mttkrp(mode, Kernels::Wide).unwrap();
            let mut g = Array2::zeros((dims[mode], rank));
            gpu.inner.read(&steps.modes[mode].wide.as_ref().unwrap().g, g.view_mut()).unwrap();
            let plan = plans[mode].wide(gpu.caps()).unwrap();
            kernels.extend(plan.dispatches().iter().map(|d| d.spec.shader));
            let expected = crate::reference::mttkrp_reference(x.view(), None, &views, mode);
            let scale = crate::reference::mttkrp_scale(x.view(), None, &views, mode);
            let terms = plan.chain() as usize + x.len() / dims[mode] + 2 * 4;
            for ((g, e), s) in g.iter().zip(&expected).zip(&scale) {
                let bound = terms as f64 * f64::EPSILON * s;
                assert!((g - e).abs() <= bound, "{dims:?} R {rank} mode {mode}: {g} and {e}, bound {bound:e}");
            }
        }
    }
    let all =
        ["fused_cols", "fused_held_rows", "fused_rows", "fused_small_cols", "fused_small_rows", "fused_stream_rows"];
    assert!(all.iter().all(|name| kernels.contains(name)), "{kernels:?}");
}

/// MTTKRPs that follow from a kept product, against the definition: the bound with the additions of both steps.
#[test]
fn results_of_kept_products_are_within_the_bound() {
    let cases: [(&[usize], usize, u64); 5] = [
        (&[12, 8, 16], 3, 1 << 30),
        (&[30, 25, 21], 20, 1 << 30),
        (&[5, 6, 4, 7], 9, 1 << 30),
        (&[3, 4, 2, 3, 5], 6, 1 << 30),
        // Products of two blocks of columns.
        (&[24, 24, 128], 68, 800 << 10),
    ];
    for (dims, rank, binding) in cases {
        let Ok(gpu) = Gpu::builder().max_binding_bytes(binding).build() else { return println!("skipped: no adapter") };
        if !gpu.caps().f64 {
            return println!("skipped: no f64");
        }
        let mut at = 0u64;
        let mut next = || {
            at = at.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (at >> 40) as f32 / 16777216.0 - 0.5
        };
        let x = ndarray::ArrayD::from_shape_simple_fn(dims, &mut next);
        let factors: Vec<_> = dims.iter().map(|&rows| Array2::from_shape_simple_fn((rows, rank), &mut next)).collect();
        let options = PlanOptions::default();
        let order = dims.len();
        let plan = |mode| MttkrpPlan::new(dims, mode, rank, &options, gpu.caps()).unwrap();
        let plans: Vec<_> = (0..order).map(plan).collect();
        let xd = gpu.upload_tensor(x.view()).unwrap();
        let exact: Vec<_> = factors.iter().map(|f| f.mapv(f64::from)).collect();
        let views: Vec<_> = exact.iter().map(|f| f.view()).collect();
        let x = x.mapv(f64::from);
        for kind in [Tree::Two, Tree::MultiSweep] {
            let tree = TreePlan::new(dims, rank, kind, None, &options, gpu.caps()).unwrap();
            let updates: Vec<_> = plans.iter().map(|plan| UpdatePlan::new(plan, gpu.caps()).unwrap()).collect();
            let mut steps = GpuSteps::<f32>::new(&gpu.inner, &plans, &tree, updates, &xd, &factors).unwrap();
            let mut seen = 0;
            for mode in 0..order {
                let group = tree.group_before(mode).filter(|&group| tree.keeps(group));
                steps.start(mode).unwrap();
                let mut g = Array2::zeros((dims[mode], rank));
                gpu.inner.read(&steps.modes[mode].g, g.view_mut()).unwrap();
                let chain = match group {
                    Some(_) => (0..tree.groups().len()).map(|group| tree.chain(group, mode)).max().unwrap(),
                    None => plans[mode].chain(),
                };
                seen += usize::from(group.is_some());
                let expected = crate::reference::mttkrp_reference(x.view(), None, &views, mode);
                let scale = crate::reference::mttkrp_scale(x.view(), None, &views, mode);
                let own = (chain as usize + order + 1) as f64 * f64::from(f32::EPSILON);
                for ((g, e), s) in g.iter().zip(&expected).zip(&scale) {
                    let error = (f64::from(*g) - e).abs();
                    assert!(error <= own * s, "{dims:?} R {rank} mode {mode} {tree}: {g} and {e}, {error:e}");
                }
                // As if the factor had been replaced by itself: the next product is made anew.
                steps.tree.as_mut().unwrap().changed(mode);
            }
            assert!(seen > 0, "{tree}");
        }
    }
}

/// As if the device had f16 matrix units: the magnitudes that an update reports and the scales that it writes are those
/// that an upload of the same factors would have.
#[test]
fn scales_follow_the_factors() {
    let Ok(gpu) = Gpu::new() else { return println!("skipped: no adapter") };
    if !gpu.caps().f64 {
        return println!("skipped: no f64");
    }
    let mut caps = gpu.caps().clone();
    caps.f16_matrix_units = true;
    let gpu = Gpu::on(gpu.inner.device.clone(), gpu.inner.queue.clone(), caps, Vec::new());
    let (dims, rank) = ([70, 9, 300], 5);
    let shape = crate::Shape::new(&dims).unwrap();
    // Rows of very different magnitudes; the last slice of mode 1 makes a component that has one entry there.
    let x = ndarray::Array3::from_shape_fn(dims, |(i, j, k)| {
        ((i * 31 + j * 17 + k * 7) % 23) as f32 * 0.5f32.powi(i as i32 % 30)
    });
    let factors = dims.map(|rows| Array2::from_shape_fn((rows, rank), |(i, r)| ((i * 5 + r * 3) % 11) as f32 + 0.25));
    let options = PlanOptions::default().method(Method::Slice);
    let plans = [0, 1, 2].map(|mode| MttkrpPlan::new(&dims, mode, rank, &options, gpu.caps()).unwrap());
    let updates: Vec<_> = plans.iter().map(|plan| UpdatePlan::new(plan, gpu.caps()).unwrap()).collect();
    assert_eq!(updates[0].dispatches().last().unwrap().spec.shader, "als_scales");
    let xd = gpu.upload_tensor(x.view()).unwrap();
    let without = DeviceCaps { f16_matrix_units: false, ..gpu.caps().clone() };
    let tree = TreePlan::new(&dims, rank, Tree::Two, None, &options, &without).unwrap();
    let mut steps = GpuSteps::<f32>::new(&gpu.inner, &plans, &tree, updates, &xd, &factors).unwrap();
    let normal = NormalEquations::new(&Array2::eye(rank), 1e-7, column_stride(rank), 0).unwrap();
    let mut before = steps.u.ranges.clone();
    for mode in 0..3 {
        steps.start(mode).unwrap();
        steps.update(mode, &normal, false).unwrap();
        steps.finish().unwrap();
        let factors = steps.factors().unwrap();
        before[mode] = factors[mode].columns().into_iter().map(|c| Range::of(c.iter())).collect();
        assert_eq!(steps.u.ranges, before, "ranges after mode {mode}");
        let stride = column_stride(rank);
        let words = gpu.inner.read_buffer::<f32>(&steps.u.buffers[0], factor_rows(&shape) * stride).unwrap();
        let scales = ArrayView2::from_shape((12, stride), &words[(weights_row(&shape) + 1) * stride..]).unwrap();
        let expected = scale_rows(&before, &[1f32; 5]);
        assert_eq!(scales.slice(s![..6, ..rank]), expected, "scales after mode {mode}");
        for group in tree.groups() {
            let first = 6 + 2 * group.start;
            let expected = group_scale_rows::<f32>(&before, group.clone());
            assert_eq!(scales.slice(s![first..first + 2, ..rank]), expected, "{group:?} after mode {mode}");
        }
    }
}
