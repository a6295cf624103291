//! Tensors larger than the memory that may be used: how much of the bus's bandwidth streaming reaches, and whether the
//! result is that of a tensor on the device, bit for bit.
//!
//! cargo bench --bench stream -- --dims 2048x2048x2048 --rank 16

use ndarray::{Array2, ArrayD, IxDyn};
use polyad::plan::{Footprint, slab_limit};
use polyad::{Backend, Dtype, Gpu, MttkrpPlan, PlanOptions, Result, wgpu};
use rayon::prelude::*;
use std::time::Instant;

const USAGE: &str = "cargo bench --bench stream -- [--dims AxBxC] [--rank R] [--share S: budget / tensor] [--runs N]
    [--bus GB/S: what the bus is said to give] [--adapter NAME]";

struct Args {
    dims: Vec<usize>,
    rank: usize,
    share: f64,
    runs: usize,
    bus: Option<f64>,
    adapter: Option<String>,
}

fn args() -> std::result::Result<Args, String> {
    let mut args = Args { dims: vec![512, 512, 256], rank: 16, share: 0.25, runs: 3, bus: None, adapter: None };
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(word) = words.next() {
        let value = words.next().ok_or(USAGE)?;
        let bad = || format!("{word} {value}: {USAGE}");
        let number = || value.parse::<f64>().ok().filter(|v| *v > 0.0).ok_or_else(bad);
        match word.as_str() {
            "--dims" => {
                args.dims =
                    value.split('x').map(|d| d.parse().map_err(|_| bad())).collect::<std::result::Result<_, _>>()?
            }
            "--rank" => args.rank = value.parse().map_err(|_| bad())?,
            "--share" => args.share = number()?,
            "--runs" => args.runs = value.parse().map_err(|_| bad())?,
            "--bus" => args.bus = Some(number()?),
            "--adapter" => args.adapter = Some(value),
            _ => return Err(bad()),
        }
    }
    Ok(args)
}

/// Numbers in (-1, 1), made by all threads.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    (0..count as u64)
        .into_par_iter()
        .map(|at| {
            let mut bits = (at + (seed << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            bits = (bits ^ bits >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (bits >> 40) as f32 / 8388608.0 - 1.0
        })
        .collect()
}

/// Seconds of the fastest of some runs.
fn fastest(runs: usize, mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..runs.max(1) {
        let start = Instant::now();
        run()?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(best)
}

/// What the bus gives: bytes per second of the host writing mapped memory by all threads, and of the device copying out of
/// it. Of the two the one that crosses the bus is the slower: the first where mapped memory is the device's, the second
/// where it is the host's.
fn bus(gpu: &Gpu) -> (f64, f64) {
    const BYTES: u64 = 256 << 20;
    let (device, queue) = gpu.device_and_queue();
    let make = |usage| {
        device.create_buffer(&wgpu::BufferDescriptor { label: None, size: BYTES, usage, mapped_at_creation: false })
    };
    let mapped = make(wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC);
    let target = make(wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::STORAGE);
    let source = vec![1u8; BYTES as usize];
    let (mut write, mut copy) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..8 {
        mapped.map_async(wgpu::MapMode::Write, .., |_| ());
        let _ = device.poll(wgpu::PollType::wait_indefinitely());
        let start = Instant::now();
        {
            let mut view = mapped.get_mapped_range_mut(..).expect("mapped");
            let (parts, _) = view.slice(..).into_chunks::<{ 1 << 20 }>();
            let parts: Vec<_> = parts.into_iter().zip(source.chunks(1 << 20)).collect();
            parts.into_par_iter().for_each(|(to, from)| wgpu::WriteOnly::<[u8]>::from(to).copy_from_slice(from));
        }
        write = write.min(start.elapsed().as_secs_f64());
        mapped.unmap();
        let mut encoder = device.create_command_encoder(&Default::default());
        for _ in 0..4 {
            encoder.copy_buffer_to_buffer(&mapped, 0, &target, 0, BYTES);
        }
        let start = Instant::now();
        queue.submit([encoder.finish()]);
        let _ = device.poll(wgpu::PollType::wait_indefinitely());
        copy = copy.min(start.elapsed().as_secs_f64() / 4.0);
    }
    (BYTES as f64 / write, BYTES as f64 / copy)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let args = args()?;
    let builder = args.adapter.iter().fold(Gpu::builder(), |builder, name| builder.adapter_name(name));
    let gpu = builder.build()?;
    let entries: usize = args.dims.iter().product();
    let bytes = 4 * entries as u64;
    let budget = (bytes as f64 * args.share) as u64;
    let small = gpu.with_memory_budget(budget);
    // The same slabs for the tensor on the device.
    let slab = slab_limit(small.caps(), Dtype::F32);
    let own = slab_limit(gpu.caps(), Dtype::F32);
    println!("{}: tensor {bytes} bytes, budget {budget}, slabs of at most {slab} (of {own} by themselves)", gpu.name());
    let (write, copy) = bus(&gpu);
    println!("bus    host into mapped memory {:.2} GB/s, copied from there {:.2} GB/s", write / 1e9, copy / 1e9);
    let peak = args.bus.map_or(write.min(copy), |said| said * 1e9);
    let x = ArrayD::from_shape_vec(IxDyn(&args.dims), numbers(entries, 1))?;
    let factors: Vec<Array2<f32>> = (args.dims.iter().zip(2u64..))
        .map(|(&rows, seed)| Array2::from_shape_vec((rows, args.rank), numbers(rows * args.rank, seed)))
        .collect::<std::result::Result<_, _>>()?;
    let views: Vec<_> = factors.iter().map(|f| f.view()).collect();
    let mut streamed = Vec::new();
    for mode in 0..args.dims.len() {
        let plan = MttkrpPlan::new(&args.dims, mode, args.rank, &PlanOptions::default(), small.caps())?;
        let need = Footprint::mttkrp(&plan, small.caps())?;
        let xd = small.place_tensor(need, x.view())?;
        let streaming = xd.streaming().ok_or("the tensor fits: nothing streams")?;
        let u = small.upload_factors(None, &views)?;
        let mut g = Array2::zeros((args.dims[mode], args.rank));
        let seconds = fastest(args.runs, || small.mttkrp_into(&plan, &xd, &u, g.view_mut()).map(|_| ()))?;
        let rate = streaming.pass_bytes as f64 / seconds;
        println!(
            "mode {mode} streamed: {} slabs, {seconds:.4} s, {:.2} GB/s, {:.1} % of the bus; {} bytes taken of {budget}",
            streaming.slabs,
            rate / 1e9,
            100.0 * rate / peak,
            small.memory().peak,
        );
        streamed.push((plan, g));
    }
    if gpu.caps().memory.is_some_and(|memory| bytes + bytes / 8 > memory) {
        println!("all of it does not fit the device: nothing to compare with");
        return Ok(());
    }
    // The plans of the budget, whose slabs the whole tensor has where they are no finer.
    let builder = args.adapter.iter().fold(Gpu::builder().max_slab_bytes(slab), |b, name| b.adapter_name(name));
    let whole = builder.build()?;
    let start = Instant::now();
    let xd = whole.upload_tensor(x.view())?;
    println!("upload of all of it: {:.2} GB/s", bytes as f64 / start.elapsed().as_secs_f64() / 1e9);
    let u = whole.upload_factors(None, &views)?;
    for (mode, (plan, expected)) in streamed.iter().enumerate() {
        let mut g = Array2::zeros(expected.dim());
        let seconds = fastest(args.runs, || whole.mttkrp_into(plan, &xd, &u, g.view_mut()).map(|_| ()))?;
        let equal = if g == *expected { "the same bits" } else { "OTHER BITS" };
        println!("mode {mode} resident: {seconds:.4} s, {equal}");
        if g != *expected {
            return Err("streamed and resident results differ".into());
        }
    }
    Ok(())
}
