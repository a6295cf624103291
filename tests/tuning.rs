//! Tuning files: what plans make of them, that results stay within the bound, and which devices read them.
#![cfg(feature = "gpu")]

mod common {
    pub mod adapter;
    #[path = "mod.rs"]
    pub mod compare;
}

use common::adapter::{device, gpu};
use common::compare::{Numbers, Reference, share_of_bound};
use ndarray::{Array2, ArrayD, ArrayView2};
use polyad::plan::{
    DeviceCaps, Method, MttkrpPlan, PlanOptions, Tile, TileChoice, TileColumns, TileKernel, TileLayout, Tuning,
};
use polyad::{Backend, Dtype, Error, Gpu, Real, wgpu};

fn choice(layout: TileLayout, columns: TileColumns, sizes: [u32; 5], groups: u32) -> TileChoice {
    TileChoice::new(TileKernel::RegistersF32, layout, columns, Tile::new(sizes, groups))
}

fn with(caps: &DeviceCaps, choices: &[TileChoice]) -> DeviceCaps {
    DeviceCapsWith(caps.clone()).tuning(Tuning::new("mine", choices.to_vec(), caps).unwrap())
}

/// `DeviceCaps` cannot be made by literal outside of the crate.
struct DeviceCapsWith(DeviceCaps);

impl DeviceCapsWith {
    fn tuning(mut self, tuning: Tuning) -> DeviceCaps {
        self.0.tuning = Some(tuning);
        self.0
    }
}

fn fused(dims: &[usize], mode: usize, rank: usize, caps: &DeviceCaps) -> MttkrpPlan {
    MttkrpPlan::new(dims, mode, rank, &PlanOptions::default().method(Method::Fused), caps).unwrap()
}

fn constant(plan: &MttkrpPlan, name: &str) -> u32 {
    plan.dispatches()[0].spec.consts.iter().find(|(known, _)| *known == name).unwrap().1
}

#[test]
fn a_plan_takes_the_tile_of_its_own_regime_and_says_so() {
    let caps = DeviceCaps::webgpu_minimum("any GPU");
    let tuned = with(&caps, &[choice(TileLayout::Rows, TileColumns::UpTo32, [32, 32, 16, 4, 8], 7)]);
    let dims = [100, 90, 80];
    let (without, plan) = (fused(&dims, 0, 32, &caps), fused(&dims, 0, 32, &tuned));
    assert_ne!(without, plan);
    assert_eq!(["BM", "BN", "BK", "TM", "TN"].map(|name| constant(&plan, name)), [32, 32, 16, 4, 8]);
    assert_eq!((plan.tuning(), without.tuning()), (Some("mine"), None));
    assert!(plan.to_string().contains("tiles from tuning file mine"), "{plan}");
    assert!(!without.to_string().contains("tuning"), "{without}");
    // Seven workgroups wanted, four row tiles: one piece.
    assert!(plan.total_scratch_bytes() < without.total_scratch_bytes(), "{plan}{without}");
    // Another layout, another class of ranks, another dtype and another method are as they were.
    for (mode, rank) in [(2, 32), (0, 16), (0, 33), (1, 100)] {
        assert_eq!(fused(&dims, mode, rank, &tuned), fused(&dims, mode, rank, &caps), "mode {mode} R {rank}");
    }
    let tile = PlanOptions::default().method(Method::Tile);
    assert_eq!(
        MttkrpPlan::new(&dims, 0, 32, &tile, &tuned).unwrap(),
        MttkrpPlan::new(&dims, 0, 32, &tile, &caps).unwrap()
    );
}

/// Tiles that a device does not allow are refused when they are given to it, and not used when it has become smaller.
#[test]
fn tiles_are_checked_against_the_device() {
    let mut large = DeviceCaps::webgpu_minimum("large");
    large.max_workgroup_memory = 49152;
    let tile = choice(TileLayout::Rows, TileColumns::UpTo32, [256, 32, 32, 8, 8], 1056);
    let tuned = with(&large, &[tile]);
    assert!(fused(&[300, 90, 80], 0, 32, &tuned).tuning().is_some());
    let small = DeviceCaps::webgpu_minimum("small");
    let error = Tuning::new("mine", vec![tile], &small).unwrap_err();
    assert!(matches!(error, Error::Option { name: "tile", .. }) && error.to_string().contains("bytes"), "{error}");
    let moved = DeviceCapsWith(small.clone()).tuning(tuned.tuning.unwrap());
    assert_eq!(fused(&[300, 90, 80], 0, 32, &moved), fused(&[300, 90, 80], 0, 32, &small));
}

/// A tile too large for one partial result in a binding gives way to the built-in one.
#[test]
fn scratch_that_does_not_fit_gives_way() {
    let mut caps = DeviceCaps::webgpu_minimum("tight");
    (caps.max_binding_bytes, caps.max_workgroup_memory) = (20_000, 32768);
    let tuned = with(&caps, &[choice(TileLayout::Rows, TileColumns::UpTo32, [256, 32, 16, 8, 8], 1056)]);
    let plan = fused(&[20, 30, 4], 0, 32, &tuned);
    assert_eq!((plan.tuning(), &plan), (None, &fused(&[20, 30, 4], 0, 32, &caps)));
}

/// Share of the bound of every mode under a tuning, and how many plans took a tile of it.
fn conformance<T: Real>(gpu: &Gpu, caps: &DeviceCaps, dims: &[usize], rank: usize) -> (f64, usize) {
    let mut numbers = Numbers::new(rank as u64);
    let x: ArrayD<T> = numbers.tensor(dims);
    let weights = numbers.vector(rank);
    let factors: Vec<Array2<T>> = dims.iter().map(|&d| numbers.matrix(d, rank)).collect();
    let views: Vec<ArrayView2<T>> = factors.iter().map(|f| f.view()).collect();
    let options = PlanOptions::default().method(Method::Fused).dtype(T::DTYPE);
    let (xd, u) = (gpu.upload_tensor(x.view()).unwrap(), gpu.upload_factors(Some(weights.view()), &views).unwrap());
    let (mut largest, mut tuned) = (0.0f64, 0);
    for mode in 0..dims.len() {
        let plan = MttkrpPlan::new(dims, mode, rank, &options, caps).unwrap();
        let mut g = Array2::from_elem((dims[mode], rank), T::nan());
        gpu.mttkrp_into(&plan, &xd, &u, g.view_mut()).unwrap();
        let reference = Reference::new(x.view(), Some(weights.view()), &views, mode);
        let share = share_of_bound(g.view(), &reference, plan.chain() as usize, dims.len());
        assert!(share <= 1.0, "{dims:?} mode {mode} R {rank}: {share} of the bound\n{plan}");
        (largest, tuned) = (largest.max(share), tuned + usize::from(plan.tuning().is_some()));
    }
    (largest, tuned)
}

#[test]
fn results_are_within_the_bound_under_a_tuning() {
    let Some(gpu) = gpu() else { return };
    let gpu = gpu.without_tuning();
    let mut tiles = Vec::new();
    for layout in TileLayout::ALL {
        tiles.push(choice(layout, TileColumns::UpTo32, [32, 32, 32, 4, 4], 3));
        tiles.push(choice(layout, TileColumns::UpTo64, [64, 64, 16, 8, 4], 4096));
        tiles.push(choice(layout, TileColumns::More, [64, 32, 32, 4, 8], 100));
        let double = Tile::new([32, 32, 16, 4, 4], 50);
        tiles.push(TileChoice::new(TileKernel::RegistersF64, layout, TileColumns::UpTo32, double));
    }
    let mut caps = gpu.caps().clone();
    caps.f16_matrix_units = false;
    let caps = with(&caps, &tiles);
    let (mut largest, mut tuned) = (0.0f64, 0);
    for (dims, rank) in [(&[33, 31, 34][..], 17), (&[64, 32, 32], 64), (&[9, 12, 10, 11], 70)] {
        let (share, took) = conformance::<f32>(&gpu, &caps, dims, rank);
        (largest, tuned) = (largest.max(share), tuned + took);
    }
    if caps.f64 {
        tuned += conformance::<f64>(&gpu, &caps, &[33, 31, 34], 20).1;
    }
    assert_eq!(tuned, if caps.f64 { 13 } else { 10 });
    println!("tuned: {tuned} plans, largest share of the bound {largest:.3}");
}

/// A borrowed device reads no file by itself.
#[test]
fn a_borrowed_device_reads_what_it_is_told() {
    let Ok((device, queue)) = device(wgpu::Features::empty()) else { return };
    let gpu = Gpu::from_wgpu(device, queue).unwrap();
    assert!(gpu.caps().tuning.is_none() && gpu.warnings().is_empty());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.json");
    assert!(matches!(gpu.with_tuning_file(&path), Err(Error::Io { .. })));
    std::fs::write(&path, "{\"format\": 99}").unwrap();
    let error = gpu.with_tuning_file(&path).unwrap_err();
    assert!(matches!(error, Error::Format { .. }) && error.to_string().contains("format 99"), "{error}");
    // What no measurement found is a file too.
    let info = gpu.device_and_queue().0.adapter_info();
    let driver = [info.backend.to_str(), &info.driver, &info.driver_info].join(" ");
    let driver = driver.split_whitespace().collect::<Vec<_>>().join(" ");
    let tile = r#"{"kernel": "registers_f32", "layout": "rows", "columns": "17-32", "seconds": 1, "built_in_seconds": 2,
        "tile": {"bm": 32, "bn": 32, "bk": 16, "m": 4, "n": 4, "groups": 9},
        "built_in": {"bm": 64, "bn": 32, "bk": 16, "m": 4, "n": 4, "groups": 1056}}"#;
    let name = &info.name;
    let text =
        format!(r#"{{"format": 1, "polyad": "0", "adapter": "{name}", "driver": "{driver}", "tiles": [{tile}]}}"#);
    std::fs::write(&path, text).unwrap();
    let tuned = gpu.with_tuning_file(&path).unwrap();
    let plan = fused(&[40, 40, 40], 0, 20, tuned.caps());
    assert_eq!((plan.tuning(), constant(&plan, "BM")), (path.to_str(), 32));
    assert_eq!(plan.dtype(), Dtype::F32);
    assert!(tuned.without_tuning().caps().tuning.is_none());
}
