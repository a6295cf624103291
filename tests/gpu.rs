//! Conformance of the GPU backend: every method, dtype and mode at awkward sizes, against the derived bound.
#![cfg(feature = "gpu")]

mod common {
    pub mod adapter;
    #[path = "mod.rs"]
    pub mod compare;
}

use common::adapter::{adapter, device_with, gpu, gpu_with_binding, minimal_gpu, or_skip};
use common::compare::known::known_values;
use common::compare::{Numbers, Reference, share_of_bound};
use ndarray::{Array1, Array2, Array3, ArrayD, ArrayView2, ShapeBuilder, s};
use polyad::plan::{Method, MttkrpPlan, PlanOptions, Reduction};
use polyad::{Backend, CpAlsOptions, Cpu, Dtype, Gpu, Real, Tree, cp_als, wgpu};

/// Runs one MTTKRP and returns the result and its plan's chain.
fn run<T: Real>(
    gpu: &Gpu,
    x: &ArrayD<T>,
    weights: &Array1<T>,
    factors: &[Array2<T>],
    mode: usize,
    options: &PlanOptions,
) -> polyad::Result<(Array2<T>, u64)> {
    let options = options.clone().dtype(T::DTYPE);
    let plan = MttkrpPlan::new(x.shape(), mode, weights.len(), &options, gpu.caps())?;
    let views: Vec<ArrayView2<T>> = factors.iter().map(|f| f.view()).collect();
    let xd = gpu.upload_tensor(x.view())?;
    let u = gpu.upload_factors(Some(weights.view()), &views)?;
    let mut g = Array2::from_elem((x.shape()[mode], weights.len()), T::of(7.0));
    gpu.mttkrp_into(&plan, &xd, &u, g.view_mut())?;
    Ok((g, plan.chain()))
}

/// Every mode of one problem under each of the options; failures are gathered, the largest share of the bound is kept.
struct Check<'a> {
    gpu: &'a Gpu,
    failures: Vec<String>,
    largest: f64,
    cases: usize,
}

impl<'a> Check<'a> {
    fn new(gpu: &'a Gpu) -> Self {
        Self { gpu, failures: Vec::new(), largest: 0.0, cases: 0 }
    }

    fn problem<T: Real>(&mut self, dims: &[usize], rank: usize, all: &[PlanOptions]) {
        let mut numbers = Numbers::new(dims.iter().sum::<usize>() as u64 * 31 + rank as u64);
        let x: ArrayD<T> = numbers.tensor(dims);
        let weights: Array1<T> = numbers.vector(rank);
        let factors: Vec<Array2<T>> = dims.iter().map(|&d| numbers.matrix(d, rank)).collect();
        let views: Vec<_> = factors.iter().map(|f| f.view()).collect();
        for mode in 0..dims.len() {
            let reference = Reference::new(x.view(), Some(weights.view()), &views, mode);
            for options in all {
                let name = format!("{dims:?} mode {mode} R {rank} {} {options:?}", T::DTYPE);
                self.cases += 1;
                match run(self.gpu, &x, &weights, &factors, mode, options) {
                    Ok((g, chain)) => {
                        let share = share_of_bound(g.view(), &reference, chain as usize, dims.len());
                        if share > 1.0 {
                            self.failures.push(format!("{name}: {share} of the bound"));
                        }
                        self.largest = self.largest.max(share);
                    }
                    Err(error) => self.failures.push(format!("{name}: {error}")),
                }
            }
        }
    }

    fn done(self, what: &str) {
        println!("{what}: {} cases, largest share of the bound {:.3}", self.cases, self.largest);
        assert!(self.failures.is_empty(), "{} of {}:\n{}", self.failures.len(), self.cases, self.failures.join("\n"));
    }
}

fn methods() -> Vec<PlanOptions> {
    Method::ALL.iter().map(|&m| PlanOptions::default().method(m)).collect()
}

/// The four methods, TILE at tau 1, 3 and 4, and a column block that does not divide the rank.
fn variants() -> Vec<PlanOptions> {
    let mut all = methods();
    all.extend([1, 3, 4].map(|tau| PlanOptions::default().method(Method::Tile).tile(tau)));
    all.extend(
        [Method::Elem, Method::Slice, Method::Tile].map(|m| PlanOptions::default().method(m).column_block(5).tile(2)),
    );
    all
}

const SHAPES: [&[usize]; 14] = [
    &[1],
    &[7],
    &[4, 5],
    &[1, 9],
    &[17, 1],
    &[4, 5, 8],
    &[5, 3, 4],
    &[3, 1, 13],
    &[1, 1, 1],
    &[65, 3, 17],
    &[2, 3, 4, 5],
    &[3, 1, 5, 4],
    &[2, 3, 1, 4, 3],
    &[2, 1, 3, 2, 1, 2, 2, 3],
];

#[test]
fn every_method_is_within_its_bound_in_f32() {
    let Some(gpu) = gpu() else { return };
    let mut check = Check::new(&gpu);
    for dims in SHAPES {
        for rank in [1, 3, 17] {
            check.problem::<f32>(dims, rank, &variants());
        }
    }
    check.problem::<f32>(&[6, 5, 7], 33, &variants());
    // Around the 64 of GEMM's and the fused kernels' tiles, along every mode, and around it in the ranks.
    check.problem::<f32>(&[66, 65, 3], 65, &methods());
    check.problem::<f32>(&[63, 16, 17], 64, &methods());
    check.problem::<f32>(&[64, 15, 3], 63, &methods());
    check.done("f32");
}

#[test]
fn every_method_is_within_its_bound_in_f64() {
    let Some(gpu) = gpu() else { return };
    if !gpu.caps().f64 {
        println!("skipped: {} lacks SHADER_F64", gpu.name());
        return;
    }
    let mut check = Check::new(&gpu);
    for dims in SHAPES {
        check.problem::<f64>(dims, 3, &variants());
    }
    check.problem::<f64>(&[6, 5, 7], 33, &methods());
    check.done("f64");
}

/// FUSED whose pieces add to the result: by f32 atomics where there are any, by compare-exchange in f32 and in f64; over
/// register tiles and kernels for small ranks, several pieces, several slabs, ranks and rows that no tile divides.
#[test]
fn atomics_are_within_the_bound() {
    let options = [PlanOptions::default().method(Method::Fused).reduction(Reduction::Atomics)];
    let adding = |gpu: &Gpu, dims: &[usize], mode: usize, rank: usize| {
        let plan = MttkrpPlan::new(dims, mode, rank, &options[0], gpu.caps()).unwrap();
        assert!(plan.reason().contains("added atomically") && plan.total_scratch_bytes() == 0, "{plan}");
        assert!(plan.dispatches().iter().all(|d| d.spec.shader != "reduce_partials" && d.spec.atomic.is_some()));
        plan
    };
    for (gpu, what) in [(gpu(), "adapter's own"), (minimal_gpu(wgpu::Features::empty()), "compare-exchange")] {
        let Some(gpu) = gpu else { return };
        let mut check = Check::new(&gpu);
        for dims in [&[7][..], &[4, 5, 8], &[65, 3, 17], &[3, 1, 5, 4]] {
            check.problem::<f32>(dims, 3, &options);
        }
        check.problem::<f32>(&[40, 30, 20], 17, &options);
        check.problem::<f32>(&[66, 65, 3], 65, &options);
        assert_eq!(adding(&gpu, &[40, 30, 20], 0, 17).dispatches().len(), 1);
        check.done(&format!("atomics, {what}"));
    }
    let Some(gpu) = gpu_with_binding(64 << 10) else { return };
    let plan = adding(&gpu, &[2, 200, 200], 1, 7);
    assert!(plan.slabs().len() > 1 && plan.dispatches().len() > 1);
    let mut check = Check::new(&gpu);
    check.problem::<f32>(&[2, 200, 200], 7, &options);
    if gpu.caps().u64_atomics {
        check.problem::<f64>(&[5, 40, 12], 6, &options);
        check.problem::<f64>(&[30, 20, 12], 33, &options);
    }
    check.done("atomics, slabs and f64");
}

/// The kernel that keeps rows of the last factor in registers: runs longer and shorter than its blocks, modes on both sides
/// of the mode, several pieces, several slabs of both, pieces added atomically.
#[test]
fn rows_that_stay_in_registers_are_within_the_bound() {
    fn check<T: Real>(gpu: &Gpu, dims: &[usize], mode: usize, rank: usize, reduction: Reduction) -> usize {
        let options = PlanOptions::default().method(Method::Fused).dtype(T::DTYPE).reduction(reduction);
        let plan = MttkrpPlan::new(dims, mode, rank, &options, gpu.caps()).unwrap();
        let held = plan.dispatches().iter().filter(|d| d.spec.shader == "fused_held_rows").count();
        assert!(held > 0, "{plan}");
        let mut check = Check::new(gpu);
        check.problem::<T>(dims, rank, &[options]);
        check.done(&format!("{dims:?} mode {mode} R {rank}, {held} slabs"));
        held
    }
    let Some(gpu) = gpu() else { return };
    for reduction in [Reduction::Partials, Reduction::Atomics] {
        check::<f32>(&gpu, &[70, 5, 131], 1, 16, reduction);
    }
    check::<f32>(&gpu, &[9, 8, 7, 40], 2, 13, Reduction::Partials);
    check::<f32>(&gpu, &[3, 13, 6, 61], 0, 33, Reduction::Partials);
    check::<f32>(&gpu, &[4, 5, 6, 7, 31], 1, 9, Reduction::Partials);
    if gpu.caps().f64 {
        check::<f64>(&gpu, &[30, 70, 64], 0, 16, Reduction::Partials);
        check::<f64>(&gpu, &[8, 25, 9, 30], 1, 11, Reduction::Partials);
    }
    let Some(gpu) = gpu_with_binding(256 << 10) else { return };
    assert!(check::<f32>(&gpu, &[200, 5, 131], 1, 16, Reduction::Partials) > 1);
}

#[test]
fn known_values_of_every_method() {
    let Some(gpu) = gpu() else { return };
    for method in Method::ALL {
        known_values::<f32>(&gpu, method);
        if gpu.caps().f64 {
            known_values::<f64>(&gpu, method);
        }
    }
}

/// Without f32 atomics, with 128 MiB bindings, 16 KiB of workgroup memory and 8 storage buffers.
#[test]
fn the_smallest_device_agrees() {
    let Some(gpu) = minimal_gpu(wgpu::Features::empty()) else { return };
    assert!(!gpu.caps().f32_atomics && !gpu.caps().f64);
    let mut check = Check::new(&gpu);
    for dims in SHAPES {
        check.problem::<f32>(dims, 3, &methods());
    }
    check.done("smallest device");
    let error = gpu.upload_tensor(Array2::<f64>::ones((2, 2)).view()).unwrap_err();
    assert!(error.to_string().contains("SHADER_F64"), "{error}");
}

/// Devices with fewer limits and features than the adapter has: WebGPU's defaults and nothing, each limit alone, and
/// each feature missing alone; matrix units are missing in all of them (`tests/coop.rs` has those). Everything that plans
/// pick there keeps the bound, and CP-ALS with kept products finds what the CPU finds.
#[test]
fn every_profile_of_a_device_agrees() {
    let Some(adapter) = or_skip(adapter()) else { return };
    type Change = fn(&mut wgpu::Limits);
    let smallest = wgpu::Limits::default();
    let limits: [(&str, Change); 5] = [
        ("128 MiB bindings", |l| l.max_storage_buffer_binding_size = 128 << 20),
        ("256 MiB buffers", |l| l.max_buffer_size = 256 << 20),
        ("16 KiB of workgroup memory", |l| l.max_compute_workgroup_storage_size = 16384),
        ("256 invocations", |l| {
            l.max_compute_invocations_per_workgroup = 256;
            (l.max_compute_workgroup_size_x, l.max_compute_workgroup_size_y) = (256, 256);
        }),
        ("4 storage buffers", |l| l.max_storage_buffers_per_shader_stage = 4),
    ];
    let int64 = wgpu::Features::SHADER_INT64 | wgpu::Features::SHADER_INT64_ATOMIC_ALL_OPS;
    let features = [
        ("f64", wgpu::Features::SHADER_F64),
        ("f32 atomics", wgpu::Features::SHADER_FLOAT32_ATOMIC),
        ("64-bit atomics", int64),
        ("f16", wgpu::Features::SHADER_F16),
        ("subgroups", wgpu::Features::SUBGROUP),
        ("timestamps", wgpu::Features::TIMESTAMP_QUERY),
    ];
    let all = features.iter().fold(wgpu::Features::empty(), |all, (_, f)| all | *f) & adapter.features();
    let mut profiles = vec![("nothing, WebGPU's defaults".to_owned(), wgpu::Features::empty(), smallest)];
    for (name, change) in limits {
        let mut fewer = adapter.limits();
        change(&mut fewer);
        profiles.push((name.into(), all, fewer));
    }
    for (name, missing) in features {
        profiles.push((format!("no {name}"), all - missing, adapter.limits()));
    }
    for (name, features, limits) in profiles {
        let (device, queue) = device_with(&adapter, features, limits).unwrap_or_else(|e| panic!("{name}: {e}"));
        let gpu = Gpu::from_wgpu_with_adapter(&adapter, device, queue).unwrap_or_else(|e| panic!("{name}: {e}"));
        let caps = gpu.caps();
        assert_eq!(caps.f64, features.contains(wgpu::Features::SHADER_F64), "{name}");
        assert_eq!(caps.timestamps, features.contains(wgpu::Features::TIMESTAMP_QUERY), "{name}");
        let mut check = Check::new(&gpu);
        let mut options = methods();
        options.push(PlanOptions::default());
        options.push(PlanOptions::default().method(Method::Tile).tile(40));
        options.push(PlanOptions::default().reduction(Reduction::Atomics));
        check.problem::<f32>(&[40, 3, 17], 17, &options);
        check.problem::<f32>(&[4, 12, 8], 3, &options);
        if caps.f64 {
            // Atomic sums in f64 need more, which another test is about.
            options.retain(|o| {
                let adds = matches!(o.method, Method::Elem | Method::Tile) || o.reduction == Reduction::Atomics;
                caps.u64_atomics || !adds
            });
            check.problem::<f64>(&[9, 4, 7], 5, &options);
        }
        check.done(&name);
        decomposes(&gpu, &name);
    }
    let fewer = wgpu::Limits { max_storage_buffers_per_shader_stage: 3, ..Default::default() };
    let (device, queue) = device_with(&adapter, wgpu::Features::empty(), fewer).unwrap();
    let error = Gpu::from_wgpu(device, queue).unwrap_err().to_string();
    assert_eq!(error, "max_storage_buffers_per_shader_stage is 3 on this device, polyad needs 4");
}

/// Sweeps with kept products: the fits are those of the CPU, to what f32 makes of four sweeps from the same start.
fn decomposes(gpu: &Gpu, name: &str) {
    let x = Array3::from_shape_fn((11, 9, 7), |(i, j, k)| ((3 * i + 5 * j * k + i * j) % 13) as f32 - 4.0);
    let options = CpAlsOptions::new(3).tree(Tree::Two).max_sweeps(4).fit_tolerance(0.0);
    let expected = cp_als(&Cpu::new(), x.view(), &options).unwrap();
    let found = cp_als(gpu, x.view(), &options).unwrap_or_else(|e| panic!("{name}: {e}"));
    // Without f64 the host replaces the factors, and nothing is kept.
    let passes = if gpu.caps().f64 { "2.00 passes" } else { "3 passes" };
    assert!(found.tree.contains(passes), "{name}: {}", found.tree);
    for (a, b) in expected.fits.iter().zip(&found.fits) {
        assert!((a - b).abs() < 1e-4, "{name}: {:?} and {:?}", expected.fits, found.fits);
    }
    assert_eq!(expected.fits.len(), found.fits.len(), "{name}");
}

/// Long sums of few rows are cut into pieces: at either end, in the middle with either side left, in several slabs.
#[test]
fn matrix_products_of_few_rows_are_cut() {
    fn check<T: Real>(gpu: &Gpu, dims: &[usize], rank: usize) {
        let options = PlanOptions::default().method(Method::Gemm).dtype(T::DTYPE);
        for mode in 0..dims.len() {
            let plan = MttkrpPlan::new(dims, mode, rank, &options, gpu.caps()).unwrap();
            let cut = plan.dispatches().iter().any(|d| d.spec.shader == "reduce_partials");
            let k = dims[mode + 1..].iter().product::<usize>().max(dims[..mode].iter().product());
            assert_eq!(cut, k >= 1024, "{plan}");
        }
        let mut check = Check::new(gpu);
        check.problem::<T>(dims, rank, &[options]);
        check.done(&format!("{dims:?} R {rank} {}", T::DTYPE));
    }
    let Some(gpu) = gpu() else { return };
    for (dims, rank) in [(&[3, 40, 61][..], 5), (&[2, 3, 2500], 70), (&[1700, 5, 1], 16), (&[9, 2, 3, 700], 33)] {
        check::<f32>(&gpu, dims, rank);
        if gpu.caps().f64 {
            check::<f64>(&gpu, dims, rank);
        }
    }
    let Some(gpu) = gpu_with_binding(32 << 10) else { return };
    check::<f32>(&gpu, &[6, 2000, 3], 4);
    // A middle mode whose Khatri-Rao rows have two ranges, each of which is cut.
    let Some(gpu) = gpu_with_binding(64 << 10) else { return };
    let plan = MttkrpPlan::new(&[2, 3, 2500], 1, 8, &PlanOptions::default().method(Method::Gemm), gpu.caps()).unwrap();
    assert_eq!(plan.dispatches().iter().filter(|d| d.spec.shader == "reduce_partials").count(), 2, "{plan}");
    check::<f32>(&gpu, &[2, 3, 2500], 8);
}

#[test]
fn f64_without_64_bit_atomics_says_so() {
    let Some(gpu) = minimal_gpu(wgpu::Features::SHADER_F64) else { return };
    let mut check = Check::new(&gpu);
    let plain = [Method::Slice, Method::Gemm, Method::Fused].map(|m| PlanOptions::default().method(m));
    check.problem::<f64>(&[4, 5, 6], 3, &plain);
    check.done("f64 without atomics");
    let options = PlanOptions::default().method(Method::Tile).dtype(Dtype::F64);
    let error = MttkrpPlan::new(&[4, 5, 6], 0, 3, &options, gpu.caps()).unwrap_err();
    assert!(error.to_string().contains("SHADER_INT64_ATOMIC_ALL_OPS"), "{error}");
    for method in [Method::Auto, Method::Fused] {
        let options = PlanOptions::default().method(method).dtype(Dtype::F64).reduction(Reduction::Atomics);
        let error = MttkrpPlan::new(&[4, 5, 6], 0, 3, &options, gpu.caps()).unwrap_err().to_string();
        assert!(
            error.ends_with("lacks SHADER_INT64_ATOMIC_ALL_OPS, which a reduction by atomics in f64 needs"),
            "{error}"
        );
    }
}

#[test]
fn slabs_and_column_blocks_agree_with_the_reference() {
    for (dims, bytes) in [([100, 100, 100], 1 << 20), ([2, 200, 200], 64 << 10), ([5, 6, 7], 512), ([40, 3, 9], 1040)] {
        let Some(gpu) = gpu_with_binding(bytes) else { return };
        let plan = MttkrpPlan::new(&dims, 1, 7, &PlanOptions::default(), gpu.caps()).unwrap();
        assert!(plan.slabs().len() > 1, "{dims:?} is not cut at {bytes} bytes");
        assert!(plan.columns().len() > 2 || bytes > 1040, "the factors are not cut at {bytes} bytes");
        let mut check = Check::new(&gpu);
        // A whole tile of FUSED takes more than the smallest of these limits.
        let all: Vec<_> =
            if bytes < 1024 { Method::PAPER.map(|m| PlanOptions::default().method(m)).into() } else { methods() };
        check.problem::<f32>(&dims, 7, &all);
        check.done(&format!("{} slabs, {} column blocks", plan.slabs().len(), plan.columns().len() - 1));
    }
}

#[test]
fn more_workgroups_than_one_dimension_has() {
    let Some(gpu) = gpu() else { return };
    let mut check = Check::new(&gpu);
    let one_each = |m| PlanOptions::default().method(m).tile(1).column_block(32);
    check.problem::<f32>(&[300, 310, 3], 32, &[one_each(Method::Tile), one_each(Method::Elem)]);
    check.problem::<f32>(&[70_001, 2], 32, &[PlanOptions::default().method(Method::Slice).column_block(128)]);
    let options = one_each(Method::Tile);
    let plan = MttkrpPlan::new(&[300, 310, 3], 0, 32, &options, gpu.caps()).unwrap();
    assert!(plan.dispatches()[0].grid[1] > 1);
    check.done("folded grids");
}

#[test]
fn a_tile_too_large_for_workgroup_memory_is_clamped_with_a_warning() {
    let Some(gpu) = minimal_gpu(wgpu::Features::empty()) else { return };
    let options = PlanOptions::default().method(Method::Tile).tile(5000);
    let plan = MttkrpPlan::new(&[3, 2500, 2], 0, 20, &options, gpu.caps()).unwrap();
    assert_eq!((plan.column_block(), plan.warnings().len()), (1, 1));
    let mut check = Check::new(&gpu);
    check.problem::<f32>(&[3, 2500, 2], 20, &[options]);
    check.done("clamped tile");
}

#[test]
fn any_memory_order_is_the_same_tensor() {
    let Some(gpu) = gpu() else { return };
    let mut numbers = Numbers::new(5);
    let whole: ArrayD<f32> = numbers.tensor(&[8, 9, 10]);
    let strided = whole.slice(s![..;2, 1..;3, ..;-1]);
    let mut fortran = ndarray::Array3::zeros(strided.raw_dim().f());
    fortran.assign(&strided);
    let factors: Vec<Array2<f32>> = strided.shape().iter().map(|&d| numbers.matrix(d, 4)).collect();
    let views: Vec<_> = factors.iter().map(|f| f.view()).collect();
    let contiguous = strided.as_standard_layout().into_owned();
    let expected = gpu.mttkrp(contiguous.view().into_dyn(), &views, 1).unwrap();
    assert_eq!(gpu.mttkrp(strided.into_dyn(), &views, 1).unwrap(), expected);
    assert_eq!(gpu.mttkrp(fortran.view().into_dyn(), &views, 1).unwrap(), expected);
    let transposed: Vec<Array2<f32>> = factors.iter().map(|f| f.t().as_standard_layout().into_owned()).collect();
    let views: Vec<_> = transposed.iter().map(|f| f.t()).collect();
    assert_eq!(gpu.mttkrp(contiguous.view().into_dyn(), &views, 1).unwrap(), expected);
}

/// The check above can fail: one operand changed in one entry is seen, in every method.
#[test]
fn a_changed_entry_is_noticed() {
    let Some(gpu) = gpu() else { return };
    let mut numbers = Numbers::new(9);
    let x: ArrayD<f32> = numbers.tensor(&[6, 7, 8]);
    let weights: Array1<f32> = numbers.vector(5);
    let factors: Vec<Array2<f32>> = [6, 7, 8].map(|d| numbers.matrix(d, 5)).into();
    let views: Vec<_> = factors.iter().map(|f| f.view()).collect();
    let reference = Reference::new(x.view(), Some(weights.view()), &views, 1);
    let mut other = x.clone();
    other[[3, 2, 5]] *= 1.01;
    let mut scaled = weights.clone();
    scaled[4] *= 1.001;
    let mut moved = factors.clone();
    moved[2][[7, 0]] += 0.01;
    let adding = PlanOptions::default().method(Method::Fused).reduction(Reduction::Atomics);
    for options in methods().into_iter().chain([adding]) {
        for (x, weights, factors) in [(&other, &weights, &factors), (&x, &scaled, &factors), (&x, &weights, &moved)] {
            let (g, chain) = run(&gpu, x, weights, factors, 1, &options).unwrap();
            assert!(share_of_bound(g.view(), &reference, chain as usize, 3) > 1.0, "{options:?} did not notice");
        }
    }
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let Some(gpu) = gpu() else { return };
    let x = Array2::<f32>::ones((3, 4));
    let (a, b) = (Array2::<f32>::ones((3, 2)), Array2::<f32>::ones((4, 2)));
    let refused = |r: polyad::Result<Array2<f32>>, part: &str| {
        let error = r.unwrap_err().to_string();
        assert!(error.contains(part), "{error} does not contain {part}");
    };
    refused(gpu.mttkrp(x.view().into_dyn(), &[a.view(), a.view()], 0), "factor 1 is 3 x 2, expected 4 x 2");
    refused(gpu.mttkrp(x.view().into_dyn(), &[a.view(), b.view()], 2), "mode 2 is out of range");
    let plan = MttkrpPlan::new(&[4, 3], 0, 2, &PlanOptions::default(), gpu.caps()).unwrap();
    let xd = gpu.upload_tensor(x.view()).unwrap();
    let u = gpu.upload_factors(None, &[a.view(), b.view()]).unwrap();
    let error = gpu.mttkrp_into(&plan, &xd, &u, Array2::zeros((4, 2)).view_mut()).unwrap_err();
    assert_eq!(error.to_string(), "the tensor has dims (3, 4), expected (4, 3)");
    let error = gpu.mttkrp_into(&plan, &xd, &u, Array2::zeros((3, 2)).view_mut()).unwrap_err();
    assert_eq!(error.to_string(), "the output is 3 x 2, expected 4 x 2");
    let huge = Array2::<f32>::from_elem((3, 4), f32::MAX);
    let error = gpu.mttkrp(huge.view().into_dyn(), &[a.view(), b.view()], 0).unwrap_err();
    assert!(error.to_string().contains("overflowed f32 at index (0, 0)"), "{error}");
}

#[test]
fn buffers_of_another_gpu_are_refused() {
    let (Some(one), Some(other)) = (gpu(), gpu()) else { return };
    let plan = MttkrpPlan::new(&[3, 4], 0, 2, &PlanOptions::default(), one.caps()).unwrap();
    let ones = Array2::<f32>::ones((3, 4));
    let x = one.upload_tensor(ones.view()).unwrap();
    let factors = [Array2::<f32>::ones((3, 2)), Array2::<f32>::ones((4, 2))];
    let mut u = other.upload_factors(None, &[factors[0].view(), factors[1].view()]).unwrap();
    let error = one.mttkrp_into(&plan, &x, &u, Array2::zeros((3, 2)).view_mut()).unwrap_err();
    assert!(error.to_string().contains("the factors were made by another Gpu"), "{error}");
    assert!(one.set_factor(&mut u, 0, factors[0].view()).is_err());
}

#[test]
fn a_rank_that_cannot_be_addressed_is_refused() {
    let Some(gpu) = gpu() else { return };
    for rank in [usize::MAX, 1 << 60, 1 << 40] {
        for method in Method::ALL {
            let options = PlanOptions::default().method(method);
            let error = MttkrpPlan::new(&[4, 5], 0, rank, &options, gpu.caps()).unwrap_err().to_string();
            assert!(error.contains("more elements than can be addressed"), "{error}");
        }
    }
}

#[test]
fn an_adapter_that_is_not_there_lists_those_seen() {
    let Some(gpu) = gpu() else { return };
    let error = Gpu::builder().adapter_name("no such card").build().unwrap_err().to_string();
    assert!(error.contains("no such card") && error.contains(&gpu.name()), "{error}");
    assert!(!Gpu::adapters().is_empty());
}
