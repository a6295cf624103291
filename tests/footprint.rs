//! What a plan says of device memory, against what a run takes.
#![cfg(feature = "gpu")]

#[path = "common/adapter.rs"]
mod adapter;

use ndarray::{Array2, ArrayD, IxDyn};
use polyad::plan::{Footprint, TreePlan};
use polyad::{Backend, CpAlsOptions, Gpu, Method, MttkrpPlan, PlanOptions, Real, Tree, cp_als};

fn tensor<T: Real>(dims: &[usize]) -> ArrayD<T> {
    let mut at = 0u64;
    ArrayD::from_shape_simple_fn(IxDyn(dims), || {
        at = at.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        T::of((at >> 40) as f64 / 16777216.0 - 0.5)
    })
}

fn plans<T: Real>(gpu: &Gpu, dims: &[usize], rank: usize, method: Method) -> Vec<MttkrpPlan> {
    let options = PlanOptions::default().method(method).dtype(T::DTYPE);
    (0..dims.len()).map(|mode| MttkrpPlan::new(dims, mode, rank, &options, gpu.caps()).unwrap()).collect()
}

/// Passes if they differ by at most 1 %.
#[track_caller]
fn assert_near(predicted: Footprint, measured: u64, what: &str) {
    let share = predicted.peak() as f64 / measured as f64;
    println!("{what}: predicted {}, measured {measured}, {predicted:?}", predicted.peak());
    assert!((share - 1.0).abs() <= 0.01, "{what}: predicted {} bytes, measured {measured}", predicted.peak());
}

/// Without kept products, by each method.
const PLAIN: [(Method, Tree); 4] =
    [(Method::Slice, Tree::None), (Method::Gemm, Tree::None), (Method::Fused, Tree::None), (Method::Tile, Tree::None)];

fn check_cp_als<T: Real>(open: impl Fn() -> Option<Gpu>, dims: &[usize], rank: usize, runs: &[(Method, Tree)]) {
    for &(method, tree) in runs {
        // A Gpu of its own, as scratch outlives a run.
        let Some(gpu) = open() else { return };
        if !gpu.caps().f64 && T::DTYPE == polyad::Dtype::F64 {
            return println!("skipped: no f64");
        }
        let plans = plans::<T>(&gpu, dims, rank, method);
        let options = PlanOptions::default().method(method).dtype(T::DTYPE);
        let kept = TreePlan::of(&plans, tree, None, &options, gpu.caps()).unwrap();
        let predicted = Footprint::cp_als(&plans, &kept, gpu.caps()).unwrap();
        assert_eq!(predicted.tree > 0, matches!(tree, Tree::Two | Tree::MultiSweep));
        let x = tensor::<T>(dims);
        let options = CpAlsOptions::new(rank).max_sweeps(2).plan(options).tree(tree);
        let result = cp_als(&gpu, x.view(), &options).unwrap();
        assert_eq!(result.algebra, "on the device, in f64");
        assert_near(predicted, gpu.memory().peak, &format!("{method}, {kept}, of {dims:?} R {rank} {}", T::DTYPE));
        assert!(gpu.memory().current <= predicted.scratch, "only scratch outlives a run");
    }
}

#[test]
fn cp_als_takes_what_was_said() {
    check_cp_als::<f32>(adapter::gpu, &[20, 31, 17], 5, &PLAIN);
}

#[test]
fn cp_als_in_f64_takes_what_was_said() {
    check_cp_als::<f64>(adapter::gpu, &[9, 8, 7, 6], 18, &PLAIN[..3]);
}

/// The kept product, the pieces of what comes of it, and parameters for all of it.
#[test]
fn kept_products_are_counted() {
    let trees = [Tree::Two, Tree::MultiSweep].map(|tree| (Method::Fused, tree));
    check_cp_als::<f32>(adapter::gpu, &[20, 31, 17], 5, &trees);
    check_cp_als::<f64>(adapter::gpu, &[9, 8, 7, 6], 18, &trees[1..]);
    check_cp_als::<f32>(|| adapter::gpu_with_binding(20 << 10), &[20, 31, 17], 5, &trees[..1]);
    // The product with the first factor is in two buffers a slab.
    check_cp_als::<f32>(|| adapter::gpu_with_binding(800 << 10), &[24, 24, 128], 68, &trees[1..]);
}

/// With small bindings there are many slabs, and parameters for each.
#[test]
fn slabs_are_counted() {
    let open = || adapter::gpu_with_binding(20 << 10);
    check_cp_als::<f32>(open, &[20, 31, 17], 5, &PLAIN[..2]);
}

#[test]
fn an_mttkrp_takes_what_was_said() {
    for (dims, rank, binding) in [(vec![20, 31, 17], 6, 1 << 30), (vec![40, 30], 70, 6 << 10)] {
        for method in [Method::Slice, Method::Tile, Method::Gemm, Method::Fused] {
            for mode in 0..dims.len() {
                let Some(gpu) = adapter::gpu_with_binding(binding) else { return };
                let options = PlanOptions::default().method(method);
                // A partial result of FUSED may exceed so small a binding.
                let Ok(plan) = MttkrpPlan::new(&dims, mode, rank, &options, gpu.caps()) else { continue };
                let predicted = Footprint::mttkrp(&plan, gpu.caps()).unwrap();
                let factors: Vec<_> = dims.iter().map(|&rows| Array2::<f32>::ones((rows, rank))).collect();
                let views: Vec<_> = factors.iter().map(|f| f.view()).collect();
                let x = tensor::<f32>(&dims);
                let x = gpu.upload_tensor(x.view()).unwrap();
                let u = gpu.upload_factors(None, &views).unwrap();
                let mut g = Array2::zeros((dims[mode], rank));
                gpu.mttkrp_into(&plan, &x, &u, g.view_mut()).unwrap();
                assert_near(predicted, gpu.memory().peak, &format!("{method} of {dims:?} mode {mode}"));
                assert!(plan.columns().len() == 2 || binding < 1 << 20);
            }
        }
    }
}
