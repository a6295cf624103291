//! Devices lent by an app: its work, its error scopes and handlers, its threads, and what is left when we are gone.
#![cfg(feature = "gpu")]

mod common {
    pub mod adapter;
    #[path = "mod.rs"]
    pub mod compare;
}

use common::adapter::{device, or_skip};
use common::compare::Numbers;
use ndarray::{Array2, ArrayD};
use polyad::plan::{Method, MttkrpPlan, PlanOptions};
use polyad::{Backend, Gpu, wgpu};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const DIMS: [usize; 3] = [30, 20, 12];

struct Problem {
    x: ArrayD<f32>,
    factors: Vec<Array2<f32>>,
}

impl Problem {
    fn new(seed: u64, rank: usize) -> Self {
        let mut numbers = Numbers::new(seed);
        Self { x: numbers.tensor(&DIMS), factors: DIMS.iter().map(|&d| numbers.matrix(d, rank)).collect() }
    }

    fn run(&self, gpu: &Gpu, mode: usize, method: Method) -> polyad::Result<Array2<f32>> {
        let rank = self.factors[0].ncols();
        let plan = MttkrpPlan::new(&DIMS, mode, rank, &PlanOptions::default().method(method), gpu.caps())?;
        let views: Vec<_> = self.factors.iter().map(|f| f.view()).collect();
        let (x, u) = (gpu.upload_tensor(self.x.view())?, gpu.upload_factors(None, &views)?);
        let mut g = Array2::zeros((DIMS[mode], rank));
        gpu.mttkrp_into(&plan, &x, &u, g.view_mut())?;
        Ok(g)
    }
}

/// Methods with the same bits every time.
const REPEATABLE: [Method; 3] = [Method::Slice, Method::Gemm, Method::Fused];

/// An error of the app's own: a usage that WebGPU does not allow.
fn break_a_rule(device: &wgpu::Device) {
    let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::STORAGE;
    let _ = device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("app"),
        size: 16,
        usage,
        mapped_at_creation: false,
    });
}

fn buffer(device: &wgpu::Device, size: u64) -> wgpu::Buffer {
    let usage = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    device.create_buffer(&wgpu::BufferDescriptor { label: Some("app"), size, usage, mapped_at_creation: false })
}

/// Objects that a device holds, by its own counters.
fn objects(device: &wgpu::Device) -> [isize; 7] {
    device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
    let hal = device.get_internal_counters().hal;
    [
        hal.buffers.read(),
        hal.buffer_memory.read(),
        hal.bind_groups.read(),
        hal.bind_group_layouts.read(),
        hal.compute_pipelines.read(),
        hal.shader_modules.read(),
        hal.query_sets.read(),
    ]
}

#[test]
fn scopes_handlers_and_memory_are_as_they_were() {
    let Some((device, queue)) = or_skip(device(wgpu::Features::empty())) else { return };
    let uncaptured = Arc::new(AtomicUsize::new(0));
    let count = uncaptured.clone();
    device.on_uncaptured_error(Arc::new(move |_: wgpu::Error| {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    let _kept = buffer(&device, 1 << 20);
    // What the device makes for itself on its first submission is not ours.
    queue.write_buffer(&_kept, 0, &[1; 16]);
    queue.submit([]);
    let before = objects(&device);
    let outer = device.push_error_scope(wgpu::ErrorFilter::Validation);
    {
        let gpu = Gpu::from_wgpu(device.clone(), queue.clone()).unwrap();
        let problem = Problem::new(1, 5);
        for method in Method::ALL {
            problem.run(&gpu, 1, method).unwrap();
        }
        assert!(objects(&device) > before, "the counters count");
        // Failures leave nothing either.
        let wrong = [problem.factors[0].view(), problem.factors[0].view()];
        gpu.mttkrp(problem.x.view(), &wrong, 0).unwrap_err();
        let plan = MttkrpPlan::new(&DIMS, 0, 4, &PlanOptions::default(), gpu.caps()).unwrap();
        let out = gpu.output::<f32>(&plan).unwrap();
        gpu.read(&out, Array2::zeros((1, 1)).view_mut()).unwrap_err();
    }
    assert_eq!(objects(&device), before, "buffers, their bytes, bind groups, layouts, pipelines, modules, queries");
    // One scope too many of ours, and this error would be in it; one too few, and the app's would be gone.
    break_a_rule(&device);
    assert!(pollster::block_on(outer.pop()).is_some(), "the app's scope did not see its error");
    assert_eq!(uncaptured.load(Ordering::Relaxed), 0, "an error of ours reached the app's handler");
    break_a_rule(&device);
    assert_eq!(uncaptured.load(Ordering::Relaxed), 1, "the app's handler is gone");
}

/// One encoder and one queue for both: copies of the app around and beside a recorded MTTKRP.
#[test]
fn work_of_the_app_and_ours_in_one_submission() {
    let Some((device, queue)) = or_skip(device(wgpu::Features::empty())) else { return };
    let gpu = Gpu::from_wgpu(device.clone(), queue.clone()).unwrap();
    let problem = Problem::new(2, 3);
    let views: Vec<_> = problem.factors.iter().map(|f| f.view()).collect();
    let (x, u) = (gpu.upload_tensor(problem.x.view()).unwrap(), gpu.upload_factors(None, &views).unwrap());
    for method in REPEATABLE {
        let expected = problem.run(&gpu, 2, method).unwrap();
        let plan = MttkrpPlan::new(&DIMS, 2, 3, &PlanOptions::default().method(method), gpu.caps()).unwrap();
        let out = gpu.output::<f32>(&plan).unwrap();
        let [source, middle, target] = [1 << 20; 3].map(|size| buffer(&device, size));
        queue.write_buffer(&source, 0, &[7; 1 << 20]);
        let mut encoder = device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(&source, 0, &middle, 0, 1 << 20);
        gpu.record_mttkrp(&mut encoder, &plan, &x, &u, &out).unwrap();
        encoder.copy_buffer_to_buffer(&middle, 0, &target, 0, 1 << 20);
        queue.submit([encoder.finish()]);
        // In flight when ours is asked for again.
        assert_eq!(problem.run(&gpu, 2, method).unwrap(), expected, "{method}");
        let mut g = Array2::zeros((DIMS[2], 3));
        gpu.read(&out, g.view_mut()).unwrap();
        assert_eq!(g, expected, "{method}");
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let descriptor = wgpu::BufferDescriptor { label: Some("app"), size: 1 << 20, usage, mapped_at_creation: false };
        let staging = device.create_buffer(&descriptor);
        let mut encoder = device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(&target, 0, &staging, 0, 1 << 20);
        queue.submit([encoder.finish()]);
        staging.map_async(wgpu::MapMode::Read, .., |result| result.unwrap());
        device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
        assert!(staging.get_mapped_range(..).unwrap().iter().all(|&byte| byte == 7), "{method}");
    }
}

/// Several threads on one `Gpu`, with problems of different sizes, so that scratch is replaced while others use it.
#[test]
fn threads_share_a_gpu() {
    let Some((device, queue)) = or_skip(device(wgpu::Features::empty())) else { return };
    let gpu = Gpu::from_wgpu(device, queue).unwrap();
    let all: Vec<_> = [2, 9, 40].into_iter().map(|rank| Problem::new(rank as u64, rank)).collect();
    let cases: Vec<_> = REPEATABLE.into_iter().flat_map(|method| (0..3).map(move |mode| (mode, method))).collect();
    let results = |gpu: &Gpu, problem: &Problem| -> Vec<_> {
        cases.iter().map(|&(mode, method)| problem.run(gpu, mode, method).unwrap()).collect()
    };
    let (all, results) = (&all, &results);
    std::thread::scope(|scope| {
        let threads: Vec<_> = all.iter().map(|problem| (problem, scope.spawn(|| results(&gpu, problem)))).collect();
        let found: Vec<_> = threads.into_iter().map(|(problem, thread)| (problem, thread.join().unwrap())).collect();
        for (problem, found) in found {
            let expected = results(&gpu, problem);
            for (&(mode, method), (found, expected)) in cases.iter().zip(found.iter().zip(&expected)) {
                let wrong = found.iter().zip(expected).filter(|(a, b)| a != b).count();
                let rank = found.ncols();
                assert_eq!(wrong, 0, "{method}, mode {mode}, rank {rank}: {found} is not {expected}");
            }
        }
    });
}

#[test]
fn two_gpus_in_one_process() {
    let (Some(one), Some(other)) = (or_skip(device(wgpu::Features::empty())), or_skip(device(wgpu::Features::empty())))
    else {
        return;
    };
    let [one, other] = [one, other].map(|(device, queue)| Gpu::from_wgpu(device, queue).unwrap());
    let problem = Problem::new(3, 6);
    std::thread::scope(|scope| {
        let problem = &problem;
        let run = move |gpu| (0..3).map(|mode| problem.run(gpu, mode, Method::Fused).unwrap()).collect::<Vec<_>>();
        let (one, other) = (&one, &other);
        let (first, second) = (scope.spawn(move || run(one)), run(other));
        assert_eq!(first.join().unwrap(), second);
    });
    // One gone, the other works.
    drop(one);
    problem.run(&other, 0, Method::Fused).unwrap();
}
