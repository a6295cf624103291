//! The fused kernels on f16 matrix units. Where the adapter has none (Debian's lavapipe, say) the tests say so and pass;
//! `tests/coop.sh` runs them on a software driver that has them.
#![cfg(feature = "gpu")]

mod common {
    pub mod adapter;
    #[path = "mod.rs"]
    pub mod compare;
}

use common::adapter::gpu;
use common::compare::{Numbers, Reference, share_of_bound};
use ndarray::{Array1, Array2, ArrayD, ArrayView2};
use polyad::plan::{
    Footprint, Method, MttkrpPlan, PlanOptions, Precision, Tile, TileChoice, TileColumns, TileKernel, TileLayout,
    TreePlan, Tuning,
};
use polyad::{Backend, CpAlsOptions, Cpu, Gpu, Tree, cp_als};

/// An adapter with matrix units, or `None` after saying that there is none.
fn matrix_gpu() -> Option<Gpu> {
    let gpu = gpu()?;
    let has = gpu.caps().f16_matrix_units && gpu.caps().subgroup_size > 0;
    if !has {
        assert!(std::env::var("POLYAD_REQUIRE_COOP").is_err(), "{} has no f16 matrix units", gpu.name());
        println!("skipped: {} has no f16 matrix units", gpu.name());
    }
    has.then_some(gpu)
}

struct Problem {
    x: ArrayD<f32>,
    weights: Array1<f32>,
    factors: Vec<Array2<f32>>,
}

impl Problem {
    fn new(dims: &[usize], rank: usize) -> Self {
        let mut numbers = Numbers::new(dims.iter().product::<usize>() as u64 + rank as u64);
        let factors = dims.iter().map(|&d| numbers.matrix(d, rank)).collect();
        Self { x: numbers.tensor(dims), weights: numbers.vector(rank), factors }
    }

    /// Share of the float32 bound, whether the fallback was taken, and the chain K of the plan that was run.
    fn share(&self, gpu: &Gpu, mode: usize, precision: Precision) -> (f64, bool, u64) {
        self.share_if_planned(gpu, mode, precision).expect("the plan uses matrix units")
    }

    /// `None` if the plan prefers other kernels.
    fn share_if_planned(&self, gpu: &Gpu, mode: usize, precision: Precision) -> Option<(f64, bool, u64)> {
        let views: Vec<ArrayView2<f32>> = self.factors.iter().map(|f| f.view()).collect();
        let rank = self.weights.len();
        let options = PlanOptions::default().method(Method::Fused).precision(precision);
        let plan = MttkrpPlan::new(self.x.shape(), mode, rank, &options, gpu.caps()).unwrap();
        let fallback = plan.fallback()?;
        let x = gpu.upload_tensor(self.x.view()).unwrap();
        let u = gpu.upload_factors(Some(self.weights.view()), &views).unwrap();
        let mut g = Array2::from_elem((self.x.shape()[mode], rank), 7.0);
        let time = gpu.mttkrp_into(&plan, &x, &u, g.view_mut()).unwrap();
        let reference = Reference::new(self.x.view(), Some(self.weights.view()), &views, mode);
        let used = if time.fallback { fallback } else { &plan };
        Some((share_of_bound(g.view(), &reference, used.chain() as usize, self.x.ndim()), time.fallback, used.chain()))
    }
}

const SHAPES: [&[usize]; 6] =
    [&[40, 20, 24], &[33, 17, 19], &[3, 300, 1], &[130, 16, 20], &[1, 20, 16], &[6, 7, 8, 12]];

#[test]
fn three_products_keep_the_float32_bound() {
    let Some(gpu) = matrix_gpu() else { return };
    let (mut largest, mut cases) = (0.0f64, 0);
    for dims in SHAPES {
        for rank in [9, 17, 40, 70] {
            // A software driver takes minutes for all of them.
            if cases > 0 && gpu.caps().kind == polyad::plan::DeviceKind::Software && (dims.len() + rank) % 3 > 0 {
                continue;
            }
            let problem = Problem::new(dims, rank);
            for mode in 0..dims.len() {
                let Some((share, fallback, _)) = problem.share_if_planned(&gpu, mode, Precision::Float32) else {
                    continue;
                };
                assert!(share <= 1.0 && !fallback, "{dims:?} mode {mode} R {rank}: {share}, fallback {fallback}");
                (largest, cases) = (largest.max(share), cases + 1);
            }
        }
    }
    assert!(cases >= 10, "{cases} cases");
    println!("three f16 products: {cases} cases, largest share of the float32 bound {largest:.3}");
}

/// Slabs from the host and dispatches in parts: the bits of a tensor on the device, scales and all.
#[test]
fn streams_and_parts_have_the_same_bits() {
    if matrix_gpu().is_none() {
        return;
    }
    let problem = Problem::new(&[130, 16, 20], 40);
    let views: Vec<ArrayView2<f32>> = problem.factors.iter().map(|f| f.view()).collect();
    let gpu = Gpu::builder().max_slab_bytes(48 << 10).build().unwrap();
    let hasty = gpu.with_dispatch_target(std::time::Duration::from_nanos(1));
    for mode in 0..3 {
        let plan = |gpu: &Gpu| MttkrpPlan::new(&[130, 16, 20], mode, 40, &PlanOptions::default(), gpu.caps()).unwrap();
        let need = Footprint::mttkrp(&plan(&gpu), gpu.caps()).unwrap();
        let run = |gpu: &Gpu| {
            let plan = plan(gpu);
            assert!(plan.fallback().is_some(), "{plan}");
            let x = gpu.place_tensor(Footprint::mttkrp(&plan, gpu.caps()).unwrap(), problem.x.view()).unwrap();
            let u = gpu.upload_factors(Some(problem.weights.view()), &views).unwrap();
            let mut g = Array2::from_elem((problem.x.shape()[mode], 40), f32::NAN);
            assert!(!gpu.mttkrp_into(&plan, &x, &u, g.view_mut()).unwrap().fallback);
            (g, x.streaming().map(|streaming| streaming.slabs))
        };
        let (expected, none) = run(&gpu);
        let (streamed, slabs) = run(&gpu.with_memory_budget(need.peak() - 1));
        assert!(none.is_none() && slabs.is_some_and(|slabs| slabs >= 4), "{slabs:?}");
        assert_eq!(streamed, expected, "mode {mode}");
        assert_eq!(run(&hasty).0, expected, "mode {mode}, in parts");
    }
}

/// A kept product with the factor of the mode that slabs cut: one kernel reads two slabs, or three, and CP-ALS comes out as
/// without slabs.
#[test]
fn products_over_slabs_are_those_of_one() {
    let Some(whole) = matrix_gpu() else { return };
    let software = whole.caps().kind == polyad::plan::DeviceKind::Software;
    for (rows, slabs, rank) in [(256, 2, 12), (290, 3, 12), (288, 3, 100)] {
        // A software driver takes minutes to compile the tile of many columns.
        if software && rank > 12 {
            continue;
        }
        // Large enough for the normal equations to be well-conditioned.
        let dims = if rank > 12 { [rows, 30, 32] } else { [rows, 6, 8] };
        let problem = Problem::new(&dims, rank);
        let slab = 128 * dims[1] * dims[2] * 4;
        let gpu = Gpu::builder().max_slab_bytes(slab as u64).build().unwrap();
        let plan = |gpu: &Gpu| {
            TreePlan::new(&dims, rank, Tree::MultiSweep, None, &PlanOptions::default(), gpu.caps()).unwrap()
        };
        let read = |plan: &TreePlan| plan.dispatches().filter(|d| d.slots.len() == 6).count();
        assert_eq!((read(&plan(&whole)), read(&plan(&gpu))), (0, 1), "{rows} rows: {}", plan(&gpu));
        let mttkrp = MttkrpPlan::new(&dims, 0, rank, &PlanOptions::default(), gpu.caps()).unwrap();
        assert_eq!(mttkrp.slabs().len(), slabs);
        let options = CpAlsOptions::new(rank).max_sweeps(3).fit_tolerance(0.0).tree(Tree::MultiSweep);
        let [one, cut] = [&whole, &gpu].map(|gpu| cp_als(gpu, problem.x.view(), &options).unwrap());
        assert!(cut.tree.starts_with("1.50 passes") && cut.passes == one.passes, "{}", cut.tree);
        assert!(!cut.warnings.iter().any(|warning| warning.contains("f16")), "{:?}", cut.warnings);
        for (a, b) in one.fits.iter().zip(&cut.fits) {
            assert!((a - b).abs() <= 2e-5, "{rows} rows: {:?} and {:?}", one.fits, cut.fits);
        }
    }
}

/// Tiles of a tuning file keep the bound as the built-in ones do.
#[test]
fn a_tuned_tile_keeps_the_float32_bound() {
    let Some(gpu) = matrix_gpu() else { return };
    let mut caps = gpu.caps().clone();
    let choice = |layout| {
        let tile = Tile::new([16, 32, 16, 1, 2], 50).flush(256);
        TileChoice::new(TileKernel::CoopFloat32, layout, TileColumns::UpTo32, tile)
    };
    caps.tuning = Some(Tuning::new("mine", TileLayout::ALL.map(choice).to_vec(), &caps).unwrap());
    let problem = Problem::new(&[40, 17, 33], 20);
    let views: Vec<ArrayView2<f32>> = problem.factors.iter().map(|f| f.view()).collect();
    let x = gpu.upload_tensor(problem.x.view()).unwrap();
    let u = gpu.upload_factors(Some(problem.weights.view()), &views).unwrap();
    for mode in [0, 2] {
        let options = PlanOptions::default().method(Method::Fused);
        let plan = MttkrpPlan::new(&[40, 17, 33], mode, 20, &options, &caps).unwrap();
        assert_eq!(plan.tuning(), Some("mine"), "{plan}");
        let mut g = Array2::from_elem((problem.x.shape()[mode], 20), f32::NAN);
        assert!(!gpu.mttkrp_into(&plan, &x, &u, g.view_mut()).unwrap().fallback);
        let reference = Reference::new(problem.x.view(), Some(problem.weights.view()), &views, mode);
        let share = share_of_bound(g.view(), &reference, plan.chain() as usize, 3);
        assert!(share <= 1.0, "mode {mode}: {share} of the bound\n{plan}");
    }
}

/// The kernels for 8x8x8 in f32, which Metal has, where the adapter lists it; a software driver runs what it does not list.
#[test]
fn f32_matrix_units_keep_the_float32_bound() {
    let Some(gpu) = matrix_gpu() else { return };
    let mut caps = gpu.caps().clone();
    if !caps.f32_matrix_units && caps.kind != polyad::plan::DeviceKind::Software {
        println!("skipped: {} has no f32 matrix units", gpu.name());
        return;
    }
    (caps.f16_matrix_units, caps.f32_matrix_units) = (false, true);
    let (mut largest, mut cases) = (0.0f64, 0);
    for (dims, rank) in [(&[40, 20, 24][..], 12), (&[33, 17, 19], 40), (&[6, 9, 8, 12], 17)] {
        let problem = Problem::new(dims, rank);
        let views: Vec<ArrayView2<f32>> = problem.factors.iter().map(|f| f.view()).collect();
        let x = gpu.upload_tensor(problem.x.view()).unwrap();
        let u = gpu.upload_factors(Some(problem.weights.view()), &views).unwrap();
        for mode in 0..dims.len() {
            let options = PlanOptions::default().method(Method::Fused);
            let plan = MttkrpPlan::new(dims, mode, rank, &options, &caps).unwrap();
            if !plan.dispatches()[0].spec.shader.starts_with("fused_coop8") {
                continue;
            }
            let mut g = Array2::from_elem((dims[mode], rank), f32::NAN);
            gpu.mttkrp_into(&plan, &x, &u, g.view_mut()).unwrap();
            let reference = Reference::new(problem.x.view(), Some(problem.weights.view()), &views, mode);
            let share = share_of_bound(g.view(), &reference, plan.chain() as usize, dims.len());
            assert!(share <= 1.0, "{dims:?} mode {mode} R {rank}: {share} of the bound\n{plan}");
            (largest, cases) = (largest.max(share), cases + 1);
        }
    }
    assert!(cases >= 6, "{cases} cases");
    println!("f32 matrix units: {cases} cases, largest share of the bound {largest:.3}");
}

/// The check bites: without the low parts (one product) the float32 bound is missed, and the error is that of f16.
#[test]
fn one_product_misses_the_float32_bound() {
    let Some(gpu) = matrix_gpu() else { return };
    let mut problem = Problem::new(&[32, 16, 24], 16);
    // All of one sign and just off a f16 number, so that nothing averages out.
    problem.x.fill(1.0 + 3.0 / 8192.0);
    problem.factors.iter_mut().for_each(|f| f.mapv_inplace(f32::abs));
    for mode in 0..3 {
        assert!(problem.share(&gpu, mode, Precision::Float32).0 <= 1.0);
        let (share, _, chain) = problem.share(&gpu, mode, Precision::Fast);
        // Either operand may be off by half of f16's spacing, 2^-11, beside what the bound allows for sums.
        let most = 1.0 + 2f64.powi(-10) / ((chain + 4) as f64 * f64::from(f32::EPSILON));
        assert!(share > 1.0 && share < most, "mode {mode}: {share} of the bound, at most {most}");
    }
}

#[test]
fn any_magnitude_gives_the_float32_answer() {
    let Some(gpu) = matrix_gpu() else { return };
    for scale in [1e-30f32, 1e-4, 3e5, 1e30] {
        let mut problem = Problem::new(&[20, 16, 24], 12);
        problem.x.mapv_inplace(|v| v * scale);
        let (share, fallback, _) = problem.share(&gpu, 1, Precision::Float32);
        assert!(share <= 1.0 && !fallback, "X times {scale}: {share}");
    }
    let mut problem = Problem::new(&[20, 16, 24], 12);
    for (r, scale) in [1e-6f32, 1e6, 1e-3].into_iter().enumerate() {
        problem.factors.iter_mut().for_each(|f| f.column_mut(r * 4).mapv_inplace(|v| v * scale));
    }
    for mode in 0..3 {
        let (share, fallback, _) = problem.share(&gpu, mode, Precision::Float32);
        assert!(share <= 1.0 && !fallback, "columns of other norms, mode {mode}: {share}");
    }
}

/// What f16 pairs cannot hold goes to the f32 kernels, and is right.
#[test]
fn a_range_too_wide_falls_back() {
    let Some(gpu) = matrix_gpu() else { return };
    let mut problem = Problem::new(&[20, 16, 24], 12);
    problem.x.slice_mut(ndarray::s![3, .., ..]).mapv_inplace(|v| v * 1e-12);
    let (share, fallback, _) = problem.share(&gpu, 1, Precision::Float32);
    assert!(share <= 1.0 && fallback, "{share}");
    let mut problem = Problem::new(&[20, 16, 24], 12);
    problem.factors[2].column_mut(4).mapv_inplace(|v| v * 1e-12);
    problem.factors[2][[5, 4]] = 1.0;
    assert!(problem.share(&gpu, 1, Precision::Float32).0 <= 1.0);
}

/// A sweep of CP-ALS keeps the factors on the device, where the scales for f16 have to follow them.
#[test]
fn a_sweep_on_the_device_scales_as_the_host_does() {
    let Some(gpu) = matrix_gpu() else { return };
    if !gpu.caps().f64 {
        return;
    }
    let x: ArrayD<f32> = Numbers::new(5).tensor(&[40, 24, 32]).mapv(|v: f32| v.abs());
    let options = CpAlsOptions::new(10).max_sweeps(2).fit_tolerance(0.0);
    let device = cp_als(&gpu, x.view(), &options).unwrap();
    assert_eq!((&device.algebra[..], device.warnings.len()), ("on the device, in f64", 0));
    let cpu = cp_als(&Cpu::new(), x.view(), &options).unwrap();
    for (a, b) in device.fits.iter().zip(&cpu.fits) {
        assert!((a - b).abs() < 1e-5, "{:?} and {:?}", device.fits, cpu.fits);
    }
    // A slice far smaller than the others: f16 will not do, for any mode's MTTKRP.
    let mut wide = x.clone();
    wide.index_axis_mut(ndarray::Axis(0), 3).mapv_inplace(|v| v * 1e-12);
    let device = cp_als(&gpu, wide.view(), &options).unwrap();
    assert!(device.warnings.iter().any(|w| w.contains("f16")), "{:?}", device.warnings);
    let cpu = cp_als(&Cpu::new(), wide.view(), &options).unwrap();
    assert!((device.fit - cpu.fit).abs() < 1e-5, "{} and {}", device.fit, cpu.fit);
}
