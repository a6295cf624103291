//! Times every MTTKRP method on one device and checks it against the CPU backend on the way.
//!
//! `cargo bench --bench methods -- --dims 1024x1024x1024 --ranks 32,128 --device gpu`
//!
//! Flop model: 2 N R, N the number of entries; GB/s counts the tensor once. Device time by timestamps where there are
//! any, else wall time of the submission. 0.3 s of warm-up, then the median of as many runs as fit `--seconds`.

use clap::Parser;
use ndarray::{Array2, ArrayD, ArrayView2, IxDyn};
use polyad::plan::{Method, MttkrpPlan, PlanOptions};
use polyad::{Backend, Cpu, Device, Dtype, Gpu, Real, Shape};
use rayon::prelude::*;
use std::time::{Duration, Instant};

#[derive(Parser)]
struct Args {
    /// Dims of the random tensor.
    #[arg(long, default_value = "128x128x128")]
    dims: String,
    #[arg(long, default_value = "32", value_delimiter = ',')]
    ranks: Vec<usize>,
    /// Modes; all by default.
    #[arg(long, value_delimiter = ',')]
    modes: Vec<usize>,
    /// Methods, TILE as tile:TAU or tile:TAU:F.
    #[arg(long, default_value = "elem,slice,tile:1,tile:2,tile:4,tile:8,gemm", value_delimiter = ',')]
    methods: Vec<String>,
    #[arg(long, default_value = "f32")]
    dtype: String,
    /// cpu, gpu or a part of an adapter's name.
    #[arg(long, default_value = "gpu")]
    device: String,
    /// Time for each row.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// CSV file to append to.
    #[arg(long)]
    csv: Option<std::path::PathBuf>,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

type AnyError = Box<dyn std::error::Error>;

fn main() -> Result<(), AnyError> {
    let args = Args::parse();
    match args.dtype.parse()? {
        Dtype::F32 => run::<f32>(&args),
        Dtype::F64 => run::<f64>(&args),
    }
}

/// Uniform in (-1, 1), by a hash of the position: the same on every machine.
fn noise<T: Real>(position: u64) -> T {
    let mut z = position.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    T::of((z >> 11) as f64 / (1u64 << 52) as f64 - 1.0)
}

fn random<T: Real>(dims: &[usize], seed: u64) -> Result<ArrayD<T>, AnyError> {
    let mut data = vec![T::zero(); dims.iter().product()];
    data.par_iter_mut().enumerate().for_each(|(i, v)| *v = noise(i as u64 ^ seed << 48));
    Ok(ArrayD::from_shape_vec(IxDyn(dims), data)?)
}

fn options(method: &str, dtype: Dtype) -> Result<PlanOptions, AnyError> {
    let mut parts = method.split(':');
    let mut options = PlanOptions::default().dtype(dtype).method(parts.next().unwrap_or_default().parse()?);
    if let Some(tau) = parts.next() {
        options = options.tile(tau.parse()?);
    }
    if let Some(f) = parts.next() {
        options = options.column_block(f.parse()?);
    }
    Ok(options)
}

fn run<T: Real>(args: &Args) -> Result<(), AnyError> {
    let dims = args.dims.split('x').map(str::parse).collect::<Result<Vec<usize>, _>>()?;
    let shape = Shape::new(&dims)?;
    let device = match args.device.as_str() {
        "cpu" => Device::Cpu(Cpu::new()),
        "gpu" => Device::Gpu(Gpu::new()?),
        name => Device::Gpu(Gpu::builder().adapter_name(name).build()?),
    };
    let x = random::<T>(&dims, 1)?;
    println!(
        "# {} | {} | {} | command: {}",
        device.name(),
        args.dims,
        T::DTYPE,
        std::env::args().skip(1).collect::<Vec<_>>().join(" ")
    );
    println!("# flop model 2 N R = per rank {:.3e}; GB/s counts the tensor once", 2.0 * shape.len() as f64);
    let start = Instant::now();
    let xd = device.upload_tensor(x.view())?;
    println!("# upload {:.2} s", start.elapsed().as_secs_f64());
    println!(
        "{:>5} {:>5} {:>10} {:>11} {:>10} {:>10} {:>6} {:>9} {:>12}",
        "R", "mode", "method", "ms", "TFLOP/s", "GB/s", "runs", "error", "scratch B"
    );
    let cpu = Cpu::new();
    let xc = cpu.upload_tensor(x.view())?;
    for &rank in &args.ranks {
        let factors: Vec<Array2<T>> = dims
            .iter()
            .enumerate()
            .map(|(m, &d)| Ok(random::<T>(&[d, rank], 7 + m as u64)?.into_dimensionality()?))
            .collect::<Result<_, AnyError>>()?;
        let views: Vec<ArrayView2<T>> = factors.iter().map(|f| f.view()).collect();
        let (u, uc) = (device.upload_factors(None, &views)?, cpu.upload_factors(None, &views)?);
        let modes: Vec<usize> = if args.modes.is_empty() { (0..dims.len()).collect() } else { args.modes.clone() };
        for mode in modes {
            let mut expected = Array2::zeros((dims[mode], rank));
            let plain = PlanOptions::default().dtype(T::DTYPE).method(Method::Gemm);
            cpu.mttkrp_into(&MttkrpPlan::new(&dims, mode, rank, &plain, cpu.caps())?, &xc, &uc, expected.view_mut())?;
            for method in &args.methods {
                let plan = match MttkrpPlan::new(&dims, mode, rank, &options(method, T::DTYPE)?, device.caps()) {
                    Ok(plan) => plan,
                    Err(error) => {
                        println!("{rank:>5} {mode:>5} {method:>10} {error}");
                        continue;
                    }
                };
                let mut g = Array2::zeros((dims[mode], rank));
                let mut once = || device.mttkrp_into(&plan, &xd, &u, g.view_mut()).map(|t| t.compute);
                let warm = Instant::now();
                let mut last = once()?;
                while warm.elapsed() < Duration::from_millis(300) {
                    last = once()?;
                }
                let runs = (args.seconds / last.as_secs_f64()).clamp(1.0, 25.0) as usize;
                let mut times = (0..runs).map(|_| once()).collect::<Result<Vec<_>, _>>()?;
                times.sort();
                let seconds = times[runs / 2].as_secs_f64();
                let rate = |work: f64| work / seconds;
                let n = shape.len() as f64;
                let (tflops, gbs) = (rate(2.0 * n * rank as f64) / 1e12, rate(n * T::DTYPE.bytes() as f64) / 1e9);
                let error = relative_error(&g, &expected);
                let scratch: u64 = plan.total_scratch_bytes();
                println!(
                    "{rank:>5} {mode:>5} {method:>10} {:>11.3} {tflops:>10.3} {gbs:>10.1} {runs:>6} {error:>9.1e} {scratch:>12}",
                    seconds * 1e3
                );
                if let Some(path) = &args.csv {
                    use std::io::Write;
                    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
                    writeln!(
                        file,
                        "{},{},{},{rank},{mode},{method},{seconds:e},{tflops},{gbs},{runs},{error:e},{scratch}",
                        device.name(),
                        args.dims,
                        T::DTYPE
                    )?;
                }
            }
        }
    }
    Ok(())
}

/// Frobenius norm of the difference to the CPU's result over that of the result.
fn relative_error<T: Real>(g: &Array2<T>, expected: &Array2<T>) -> f64 {
    let square = |v: f64| v * v;
    let difference: f64 = g.iter().zip(expected).map(|(a, b)| square(a.f64() - b.f64())).sum();
    let norm: f64 = expected.iter().map(|v| square(v.f64())).sum();
    (difference / norm).sqrt()
}
