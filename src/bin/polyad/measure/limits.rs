//! The limits of a device, as the cost models want them.

use super::AnyError;
use super::timer::Effort;
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, Par};
use polyad::plan::Machine;
use polyad::{Device, Dtype};
use rayon::prelude::*;
use std::time::Instant;

/// Measures bandwidth and peak. On a GPU by shaders that read, and that multiply and add in registers; on the CPU by a sum
/// over 256 MiB and by a matrix product of 768 x 768 x 768.
pub fn measure(device: &Device, dtype: Dtype, effort: Effort) -> Result<Machine, AnyError> {
    match device {
        #[cfg(feature = "gpu")]
        Device::Gpu(gpu) => {
            let timer = super::timer::Timer::new(gpu);
            let limits = super::roofline::Roofline::measure(gpu, &timer, dtype, effort)?;
            Ok(Machine::new(limits.read, limits.flops))
        }
        _ => {
            let peak = match dtype {
                Dtype::F32 => product::<f32>(effort, 1.0),
                Dtype::F64 => product::<f64>(effort, 1.0),
            };
            Ok(Machine::new(read(effort)?, peak?))
        }
    }
}

/// Bytes per second of a sum over more than any cache holds: the fastest of the runs.
fn read(effort: Effort) -> Result<f64, AnyError> {
    const COUNT: usize = 64 << 20;
    let data = vec![1f32; COUNT];
    let seconds = fastest(effort, || {
        let sum = |chunk: &[f32]| {
            let mut lanes = [0f32; 32];
            for part in chunk.chunks_exact(32) {
                lanes.iter_mut().zip(part).for_each(|(lane, &v)| *lane += v);
            }
            lanes.iter().sum::<f32>()
        };
        let total: f32 = data.par_chunks(1 << 18).map(sum).sum();
        if total == COUNT as f32 { Ok(()) } else { Err(format!("the sum of {COUNT} ones is {total}").into()) }
    })?;
    Ok((4 * COUNT) as f64 / seconds)
}

/// Flops per second of a product that lies in a cache: the fastest of the runs.
fn product<T: polyad::Real>(effort: Effort, one: f64) -> Result<f64, AnyError> {
    const N: usize = 768;
    let (a, mut c) = (Mat::<T>::from_fn(N, N, |i, j| T::of(((i + 3 * j) % 7) as f64)), Mat::<T>::zeros(N, N));
    let seconds = fastest(effort, || {
        matmul(c.as_mut(), Accum::Replace, a.as_ref(), a.as_ref(), T::of(one), Par::rayon(0));
        Ok(())
    })?;
    Ok(2.0 * (N as f64).powi(3) / seconds)
}

fn fastest(effort: Effort, mut work: impl FnMut() -> Result<(), AnyError>) -> Result<f64, AnyError> {
    const LEAST: usize = 5;
    let (start, mut best, mut runs) = (Instant::now(), f64::INFINITY, 0);
    while runs < LEAST || start.elapsed().as_secs_f64() < effort.warm_up + effort.seconds {
        let clock = Instant::now();
        work()?;
        best = best.min(clock.elapsed().as_secs_f64());
        runs += 1;
    }
    Ok(best)
}
