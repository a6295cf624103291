//! Device time of recorded work, by two timestamps around it, and the median of repeats.

use super::AnyError;
use ndarray::Array2;
use polyad::{Backend, Device, DeviceFactors, DeviceTensor, MttkrpPlan, Real};
#[cfg(feature = "gpu")]
use polyad::{Gpu, wgpu};
#[cfg(feature = "gpu")]
use std::sync::{Mutex, PoisonError};
#[cfg(feature = "gpu")]
use std::time::Duration;
use std::time::Instant;

/// What one measurement says.
#[derive(Debug, Clone, Copy)]
pub struct Timed {
    /// Median seconds of one repeat.
    pub seconds: f64,
    /// Measurements the median is of.
    pub runs: usize,
}

/// How long to warm up and to measure.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    pub warm_up: f64,
    pub seconds: f64,
}

impl Effort {
    /// A single run.
    pub const ONCE: Self = Self { warm_up: 0.0, seconds: 0.0 };

    /// Long enough for a GPU whose clocks are low; no warm-up stays none.
    #[cfg(feature = "gpu")]
    pub fn waking(self) -> Self {
        Self { warm_up: if self.warm_up > 0.0 { self.warm_up.max(AWAKE) } else { 0.0 }, ..self }
    }

    /// Warms up, then takes the median of as many runs as fit; a first run that takes longer than both is the only one. `run` does the work a number of times, back to back,
    /// and returns the seconds of all of them; short work is repeated within a run until it takes about 2 ms.
    pub fn median(self, mut run: impl FnMut(usize) -> Result<f64, AnyError>) -> Result<Timed, AnyError> {
        let mut one = run(1)?;
        if one >= self.warm_up + self.seconds {
            return Ok(Timed { seconds: one, runs: 1 });
        }
        let mut repeats = repeats_of(one);
        let start = Instant::now();
        while start.elapsed().as_secs_f64() < self.warm_up {
            one = run(repeats)? / repeats as f64;
            repeats = repeats_of(one);
        }
        let runs = (self.seconds / (one * repeats as f64).max(1e-9)).clamp(1.0, 25.0) as usize;
        let mut times = (0..runs).map(|_| run(repeats)).collect::<Result<Vec<_>, _>>()?;
        times.sort_by(f64::total_cmp);
        Ok(Timed { seconds: times[runs / 2] / repeats as f64, runs })
    }
}

/// A GPU that was idle for more seconds than this lowers its clocks; an H200 does at about two.
const IDLE: f64 = 0.5;

/// Seconds of work after which they are up again: an H200 takes about one, at a quarter of its speed.
pub const AWAKE: f64 = 1.5;

/// When a GPU was last measured.
#[cfg(feature = "gpu")]
static LAST_USE: Mutex<Option<Instant>> = Mutex::new(None);

#[cfg(feature = "gpu")]
fn since_last_use() -> f64 {
    let last = LAST_USE.lock().unwrap_or_else(PoisonError::into_inner);
    last.map_or(f64::INFINITY, |last| last.elapsed().as_secs_f64())
}

#[cfg(feature = "gpu")]
fn used_now() {
    *LAST_USE.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
}

fn repeats_of(seconds: f64) -> usize {
    (2e-3 / seconds.max(1e-7)).clamp(1.0, 20.0) as usize
}

/// Times an MTTKRP: on a GPU whole recordings, back to back; elsewhere calls.
pub fn mttkrp<T: Real>(
    device: &Device,
    effort: Effort,
    plan: &MttkrpPlan,
    x: &DeviceTensor<'_, T>,
    u: &DeviceFactors<T>,
    g: &mut Array2<T>,
) -> Result<Timed, AnyError> {
    #[cfg(feature = "gpu")]
    if let (Device::Gpu(gpu), DeviceTensor::Gpu(x), DeviceFactors::Gpu(u)) = (device, x, u) {
        let (timer, out) = (Timer::new(gpu), gpu.output::<T>(plan)?);
        let run = |repeats| {
            timer.seconds(|encoder| (0..repeats).try_for_each(|_| Ok(gpu.record_mttkrp(encoder, plan, x, u, &out)?)))
        };
        // Compiles, while the GPU has nothing to do.
        let seconds = run(1)?;
        let idle = since_last_use();
        let effort = if idle > IDLE { effort.waking() } else { effort };
        let once = seconds >= effort.warm_up + effort.seconds;
        let timed = if once { Ok(Timed { seconds, runs: 1 }) } else { effort.median(run) };
        used_now();
        return timed;
    }
    effort.median(|repeats| {
        let call = |_| Ok(device.mttkrp_into(plan, x, u, g.view_mut())?.compute.as_secs_f64());
        (0..repeats).map(call).sum::<Result<f64, AnyError>>()
    })
}

/// Timestamps around whatever is recorded. Empty passes before and after write them.
#[cfg(feature = "gpu")]
pub struct Timer {
    device: wgpu::Device,
    queue: wgpu::Queue,
    queries: Option<wgpu::QuerySet>,
    resolved: wgpu::Buffer,
    staging: wgpu::Buffer,
}

#[cfg(feature = "gpu")]
impl Timer {
    /// Without timestamps on the device it gives the wall time of the submission.
    pub fn new(gpu: &Gpu) -> Self {
        let (device, queue) = gpu.device_and_queue();
        let queries = gpu.caps().timestamps.then(|| {
            let ty = wgpu::QueryType::Timestamp;
            device.create_query_set(&wgpu::QuerySetDescriptor { label: Some("bench.timestamps"), ty, count: 2 })
        });
        let buffer = |usage| {
            let label = Some("bench.timestamps");
            device.create_buffer(&wgpu::BufferDescriptor { label, size: 16, usage, mapped_at_creation: false })
        };
        Self {
            queries,
            resolved: buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC),
            staging: buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST),
            device: device.clone(),
            queue: queue.clone(),
        }
    }

    /// Seconds that what `record` records takes on the device, clears and gaps between its passes included.
    pub fn seconds(
        &self,
        record: impl FnOnce(&mut wgpu::CommandEncoder) -> Result<(), AnyError>,
    ) -> Result<f64, AnyError> {
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("bench") });
        self.mark(&mut encoder, 0);
        record(&mut encoder)?;
        self.mark(&mut encoder, 1);
        if let Some(queries) = &self.queries {
            encoder.resolve_query_set(queries, 0..2, &self.resolved, 0);
            encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.staging, 0, 16);
        }
        let start = Instant::now();
        let submission = self.queue.submit([encoder.finish()]);
        self.wait(Some(submission))?;
        let wall = start.elapsed().as_secs_f64();
        if self.queries.is_none() {
            return Ok(wall);
        }
        self.staging.map_async(wgpu::MapMode::Read, .., |_| ());
        self.wait(None)?;
        let ticks: Vec<u64> = bytemuck::pod_collect_to_vec(&self.staging.get_mapped_range(..)?[..]);
        self.staging.unmap();
        let seconds = ticks[1].saturating_sub(ticks[0]) as f64 * f64::from(self.queue.get_timestamp_period()) * 1e-9;
        // A driver that writes no timestamps for empty passes leaves the wall time.
        Ok(if seconds > 0.0 && seconds <= wall { seconds } else { wall })
    }

    /// Waits for everything submitted.
    pub fn wait(&self, submission_index: Option<wgpu::SubmissionIndex>) -> Result<(), AnyError> {
        let timeout = Some(Duration::from_secs(600));
        self.device.poll(wgpu::PollType::Wait { submission_index, timeout })?;
        Ok(())
    }

    fn mark(&self, encoder: &mut wgpu::CommandEncoder, index: u32) {
        let timestamp_writes = self.queries.as_ref().map(|query_set| wgpu::ComputePassTimestampWrites {
            query_set,
            beginning_of_pass_write_index: (index == 1).then_some(1),
            end_of_pass_write_index: (index == 0).then_some(0),
        });
        let label = Some("bench.timestamp");
        drop(encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label, timestamp_writes }));
    }
}
