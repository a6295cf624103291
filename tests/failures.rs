//! GPUs that fail: lost between calls and within, out of memory. Errors, no panic, no wrong result.
#![cfg(feature = "gpu")]

mod common {
    pub mod adapter;
    #[path = "mod.rs"]
    pub mod compare;
}

use common::adapter::{adapter, adapter_of, device, device_with, or_skip};
use common::compare::Numbers;
use ndarray::{Array2, ArrayD};
use polyad::plan::{Method, MttkrpPlan, PlanOptions};
use polyad::{Backend, Checkpoint, CpAlsOptions, Device, Error, Every, Gpu, cp_als_with, wgpu};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

const DIMS: [usize; 3] = [30, 20, 12];

fn problem(rank: usize) -> (ArrayD<f32>, Vec<Array2<f32>>) {
    let mut numbers = Numbers::new(11);
    (numbers.tensor(&DIMS), DIMS.iter().map(|&d| numbers.matrix(d, rank)).collect())
}

/// An error of the device, on one line, that says what was being done.
fn is_of_the_device<T>(result: polyad::Result<T>, what: &str) {
    let Err(error) = result else { panic!("{what} succeeded on a lost device") };
    let text = error.to_string();
    let of_the_device = matches!(error, Error::Gpu { .. } | Error::OutOfDeviceMemory { .. });
    assert!(of_the_device && text.lines().count() == 1, "{what}: {text}");
    println!("{what}: {text}");
}

#[test]
fn a_device_lost_between_calls() {
    let Some((device, queue)) = or_skip(device(wgpu::Features::empty())) else { return };
    let gpu = Gpu::from_wgpu(device.clone(), queue).unwrap();
    let (x, factors) = problem(5);
    let views: Vec<_> = factors.iter().map(|f| f.view()).collect();
    let (xd, mut u) = (gpu.upload_tensor(x.view()).unwrap(), gpu.upload_factors(None, &views).unwrap());
    let plan = MttkrpPlan::new(&DIMS, 1, 5, &PlanOptions::default(), gpu.caps()).unwrap();
    let mut g = Array2::zeros((DIMS[1], 5));
    gpu.mttkrp_into(&plan, &xd, &u, g.view_mut()).unwrap();
    let out = gpu.output::<f32>(&plan).unwrap();
    device.destroy();
    is_of_the_device(gpu.mttkrp_into(&plan, &xd, &u, g.view_mut()), "an MTTKRP");
    is_of_the_device(gpu.upload_tensor(x.view()), "uploading a tensor");
    is_of_the_device(gpu.upload_factors(None, &views), "uploading factors");
    // wgpu only queues it; what would use it fails.
    let _ = gpu.set_factor(&mut u, 0, factors[0].view());
    is_of_the_device(gpu.mttkrp_into(&plan, &xd, &u, g.view_mut()), "an MTTKRP after setting a factor");
    // A buffer made now is an invalid one, which shows where it is used.
    match gpu.output::<f32>(&plan) {
        Ok(late) => is_of_the_device(gpu.read(&late, g.view_mut()), "reading a result made too late"),
        error => is_of_the_device(error, "making room for a result"),
    }
    is_of_the_device(gpu.read(&out, g.view_mut()), "reading a result");
    // Kernels that are not compiled yet.
    for method in Method::ALL {
        let plan = MttkrpPlan::new(&DIMS, 0, 5, &PlanOptions::default().method(method), gpu.caps()).unwrap();
        let mut g = Array2::zeros((DIMS[0], 5));
        is_of_the_device(gpu.mttkrp_into(&plan, &xd, &u, g.view_mut()), method.name());
    }
    let mut encoder = device.create_command_encoder(&Default::default());
    is_of_the_device(gpu.record_mttkrp(&mut encoder, &plan, &xd, &u, &out), "recording");
}

/// With f64 kernels factors stay on the device, without them the host solves: both end with an error.
#[test]
fn a_device_lost_in_a_decomposition() {
    let Some(adapter) = or_skip(adapter()) else { return };
    let double = wgpu::Features::SHADER_F64 & adapter.features();
    for features in [wgpu::Features::empty(), double] {
        let (device, queue) = device_with(&adapter, features, Default::default()).unwrap();
        let gpu = Gpu::from_wgpu(device.clone(), queue).unwrap();
        let (x, _) = problem(3);
        let mut sweeps = 0;
        let result = cp_als_with(&gpu, x.view(), &CpAlsOptions::new(3).fit_tolerance(0.0).max_sweeps(5), |sweep| {
            sweeps = sweep.number;
            if sweep.number == 2 {
                device.destroy();
            }
            ControlFlow::Continue(())
        });
        let text = result.as_ref().map_or_else(|error| error.to_string(), |_| String::new());
        assert!(text.contains("in sweep 3"), "{text}");
        is_of_the_device(result, "CP-ALS");
        assert_eq!(sweeps, 2);
    }
}

/// A lost device leaves the last checkpoint as it was: another goes on from it to the bits of a run that was never broken off,
/// and the CPU does where that was allowed.
#[test]
fn a_checkpoint_outlives_the_device() {
    let Some(adapter) = or_skip(adapter()) else { return };
    let open = || device_with(&adapter, adapter.features() & wgpu::Features::SHADER_F64, Default::default()).unwrap();
    let (x, _) = problem(3);
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = Checkpoint::new(folder.path()).every(Every::Sweeps(1)).resume(true);
    let options = CpAlsOptions::new(3).fit_tolerance(0.0).max_sweeps(5).checkpoint(checkpoint);
    let lose = |device: &wgpu::Device, sweep: usize, last: usize| {
        if sweep == last {
            device.destroy();
        }
        ControlFlow::Continue(())
    };
    let (device, queue) = open();
    let gpu = Gpu::from_wgpu(device.clone(), queue).unwrap();
    let lost = cp_als_with(&gpu, x.view(), &options, |sweep| lose(&device, sweep.number, 3));
    is_of_the_device(lost, "CP-ALS");
    let saved = std::fs::read(options.checkpoint.as_ref().unwrap().file()).unwrap();

    let (device, queue) = open();
    let gpu = Gpu::from_wgpu(device, queue).unwrap();
    let mut first = 0;
    let resumed = cp_als_with(&gpu, x.view(), &options, |sweep| {
        first = if first == 0 { sweep.number } else { first };
        ControlFlow::Continue(())
    });
    let resumed = resumed.unwrap();
    // The third sweep's state went with the device, unless the host had it.
    let next = if gpu.caps().f64 { 3 } else { 4 };
    assert_eq!((first, resumed.sweeps), (next, 5));
    let mut without = options.clone();
    without.checkpoint = None;
    let whole = cp_als_with(&gpu, x.view(), &without, |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((&resumed.fits, resumed.model.factors()), (&whole.fits, whole.model.factors()));

    for (checkpoint, from) in [(options.checkpoint.clone(), "the checkpoint"), (None, "the start")] {
        if let Some(checkpoint) = &checkpoint {
            std::fs::write(checkpoint.file(), &saved).unwrap();
        }
        let mut options = options.clone();
        let last = if checkpoint.is_some() { next } else { 3 };
        options.checkpoint = checkpoint;
        let (device, queue) = open();
        let gpu = Device::Gpu(Gpu::from_wgpu(device.clone(), queue).unwrap());
        let mut seen = Vec::new();
        let done = gpu.cp_als_or_on_cpu(x.view(), &options, |sweep| {
            seen.push(sweep.number);
            lose(&device, sweep.number, last)
        });
        let done = done.unwrap();
        assert_eq!((done.device.as_str(), done.sweeps), ("CPU", 5));
        let told = done.warnings.iter().find(|w| w.contains("the GPU failed during"));
        assert!(told.is_some_and(|w| w.ends_with(&format!("went on on the CPU, from {from}"))), "{:?}", done.warnings);
        let expected: &[usize] = match (from, next) {
            ("the start", _) => &[1, 2, 3, 1, 2, 3, 4, 5],
            (_, 3) => &[3, 3, 4, 5],
            _ => &[4, 5],
        };
        assert_eq!(seen, expected);
        approx::assert_abs_diff_eq!(done.fit, whole.fit, epsilon = 1e-4);
    }
}

/// By another thread, at any point of a call. What still succeeds is right.
#[test]
fn a_device_lost_within_a_call() {
    let Some(adapter) = or_skip(adapter()) else { return };
    for wait in [0, 1, 2, 5, 10, 20] {
        let (device, queue) = device_with(&adapter, wgpu::Features::empty(), Default::default()).unwrap();
        let gpu = Gpu::from_wgpu(device.clone(), queue).unwrap();
        let (x, factors) = problem(5);
        let views: Vec<_> = factors.iter().map(|f| f.view()).collect();
        let expected = gpu.mttkrp(x.view(), &views, 1).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(wait));
                device.destroy();
            });
            let start = Instant::now();
            loop {
                match gpu.mttkrp(x.view(), &views, 1) {
                    Ok(g) => assert_eq!(g, expected),
                    Err(error) => break is_of_the_device::<()>(Err(error), &format!("after {wait} ms")),
                }
                assert!(start.elapsed() < Duration::from_secs(60), "the device is not lost");
            }
        });
    }
}

/// A device that may use none of its memory: every allocation fails, with the buffer's name and bytes.
#[test]
fn out_of_memory_names_the_buffer() {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.memory_budget_thresholds.for_resource_creation = Some(0);
    let Some(adapter) = or_skip(adapter_of(descriptor)) else { return };
    let Ok((device, queue)) = device_with(&adapter, wgpu::Features::empty(), Default::default()) else {
        println!("skipped: such a device cannot be opened");
        return;
    };
    let gpu = Gpu::from_wgpu(device, queue).unwrap();
    let (x, factors) = problem(5);
    let views: Vec<_> = factors.iter().map(|f| f.view()).collect();
    let error = match gpu.upload_tensor(x.view()) {
        Err(error) => error,
        Ok(_) => {
            println!("skipped: {} does not tell its memory budget", gpu.name());
            return;
        }
    };
    let bytes = 4 * DIMS.iter().product::<usize>() as u64;
    assert_eq!(error, Error::OutOfDeviceMemory { buffer: "polyad.x.0".into(), bytes });
    let text = format!("out of device memory: polyad.x.0 of {bytes} bytes could not be allocated");
    assert_eq!(error.to_string(), text);
    let error = gpu.upload_factors(None, &views).unwrap_err().to_string();
    assert!(error.starts_with("out of device memory: polyad.factors.0 of "), "{error}");
}

/// More than the device has is refused before anything is allocated or copied: the view repeats one number.
#[test]
fn a_tensor_beyond_the_memory_is_refused() {
    let Some(adapter) = or_skip(adapter()) else { return };
    let (device, queue) = device_with(&adapter, wgpu::Features::empty(), Default::default()).unwrap();
    let gpu = Gpu::from_wgpu_with_adapter(&adapter, device, queue).unwrap();
    let Some(memory) = gpu.caps().memory else {
        println!("skipped: {} does not tell its memory", gpu.name());
        return;
    };
    let one = ndarray::arr0(1f32);
    let x = one.broadcast((1 << 20, 1 << 22)).unwrap();
    let error = gpu.upload_tensor(x).unwrap_err().to_string();
    assert_eq!(error, format!("device memory is {memory} on this device, the tensor needs {}", 4u64 << 42));
}
