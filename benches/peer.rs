//! polyad as one of the peers of `peers_cpu.py`: reads a tensor and factors, then answers a line of stdin with a line
//! of JSON.
//!
//! `peer FOLDER DTYPE METHOD THREADS`, FOLDER with x.npy, factor_0.npy, ... Commands: `mt MODE SECONDS` (times of
//! MTTKRPs, at most 200), `product MODE SECONDS` (the same of faer's plain product of a matrix of the mode's dim by the
//! others' product and one of R columns), `als SWEEPS` (seconds of that many sweeps, and of their MTTKRPs), `save MODE FILE` (the result
//! as raw row-major numbers), `rss` (peak resident memory above that at the start, MiB), `plan MODE`, `quit`.

use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par};
use ndarray::Array2;
use polyad::io::{TensorFile, read_matrix};
use polyad::{Backend, CpAlsOptions, Cpu, Method, MttkrpPlan, PlanOptions, Real, cp_als};
use std::io::{BufRead, Write};
use std::time::Instant;

type AnyError = Box<dyn std::error::Error>;

fn main() -> Result<(), AnyError> {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let [folder, dtype, method, threads] = &args[..] else {
        println!("peer FOLDER DTYPE METHOD THREADS: see peers_cpu.py");
        return Ok(());
    };
    match dtype.as_str() {
        "f32" => serve::<f32>(folder, method.parse()?, threads.parse()?),
        _ => serve::<f64>(folder, method.parse()?, threads.parse()?),
    }
}

/// A line of /proc/self/status in MiB; NaN where there is none.
fn status(key: &str) -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let kib = line.and_then(|line| line.trim_start_matches(':').split_whitespace().next()?.parse::<f64>().ok());
    kib.map_or(f64::NAN, |kib| kib / 1024.0)
}

fn reset_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Seconds of each call, after one that is not counted.
fn times(seconds: f64, mut work: impl FnMut() -> Result<(), AnyError>) -> Result<Vec<f64>, AnyError> {
    work()?;
    let (start, mut times) = (Instant::now(), Vec::new());
    while times.is_empty() || times.len() < 200 && start.elapsed().as_secs_f64() < seconds {
        let start = Instant::now();
        work()?;
        times.push(start.elapsed().as_secs_f64());
    }
    Ok(times)
}

fn serve<T: Real>(folder: &str, method: Method, threads: usize) -> Result<(), AnyError> {
    // In memory of its own, as the peers have it.
    let x = TensorFile::open(format!("{folder}/x.npy"))?.read::<T>()?.view().to_owned();
    let x = x.view();
    let read = |mode: usize| read_matrix::<T>(format!("{folder}/factor_{mode}.npy"));
    let factors = (0..x.ndim()).map(read).collect::<Result<Vec<_>, _>>()?;
    let rank = factors[0].ncols();
    let flat = x.as_slice().ok_or("the tensor is not row-major")?;
    let cpu = Cpu::with_threads(threads)?;
    let options = PlanOptions::default().method(method).dtype(T::DTYPE);
    let plan = |mode| MttkrpPlan::new(x.shape(), mode, rank, &options, cpu.caps());
    let views: Vec<_> = factors.iter().map(|f| f.view()).collect();
    let (xd, u) = (cpu.upload_tensor(x.view())?, cpu.upload_factors(None, &views)?);
    reset_peak();
    let base = status("VmRSS");
    let mut stdout = std::io::stdout();
    writeln!(stdout, r#"{{"ready": true, "ver": "polyad {}", "als": true}}"#, env!("CARGO_PKG_VERSION"))?;
    stdout.flush()?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match words[..] {
            ["mt", mode, seconds] => {
                let (mode, seconds) = (mode.parse()?, seconds.parse::<f64>()?);
                let (plan, mut g) = (plan(mode)?, Array2::zeros((x.shape()[mode], rank)));
                let times = times(seconds, || Ok(cpu.mttkrp_into(&plan, &xd, &u, g.view_mut()).map(drop)?))?;
                format!(r#"{{"ts": {times:?}}}"#)
            }
            ["product", mode, seconds] => {
                let rows = x.shape()[mode.parse::<usize>()?];
                let a = MatRef::from_row_major_slice(flat, rows, flat.len() / rows);
                let b = Mat::<T>::from_fn(a.ncols(), rank, |_, _| <T as num_traits::One>::one());
                let mut c = Mat::<T>::zeros(rows, rank);
                let times = times(seconds.parse()?, || {
                    matmul(
                        c.as_mut(),
                        Accum::Replace,
                        a,
                        b.as_ref(),
                        <T as num_traits::One>::one(),
                        Par::rayon(threads),
                    );
                    Ok(())
                })?;
                format!(r#"{{"ts": {times:?}}}"#)
            }
            ["als", sweeps] => {
                let als = CpAlsOptions::new(rank).max_sweeps(sweeps.parse()?).fit_tolerance(0.0);
                let seconds = cp_als(&cpu, x.view(), &als.plan(options.clone()))?.seconds;
                format!(
                    r#"{{"total": {}, "mttkrp": {}, "gram": {}, "solve": {}, "fit": {}}}"#,
                    seconds.total, seconds.mttkrp, seconds.gram, seconds.solve, seconds.fit
                )
            }
            ["save", mode, path] => {
                let mode = mode.parse()?;
                let mut g = Array2::zeros((x.shape()[mode], rank));
                cpu.mttkrp_into(&plan(mode)?, &xd, &u, g.view_mut())?;
                let numbers = g.as_slice().ok_or("the result is not row-major")?;
                std::fs::write(path, bytemuck::cast_slice::<T, u8>(numbers))?;
                r#"{"saved": true}"#.to_owned()
            }
            ["rss"] => {
                let answer = format!(r#"{{"extra": {}}}"#, status("VmHWM") - base);
                reset_peak();
                answer
            }
            ["plan", mode] => format!(r#"{{"plan": {:?}}}"#, plan(mode.parse()?)?.to_string()),
            _ => return Ok(()),
        };
        writeln!(stdout, "{answer}")?;
        stdout.flush()?;
    }
    Ok(())
}
