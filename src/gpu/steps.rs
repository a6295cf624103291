//! CP-ALS with everything on the device: tensor, factors, solutions and grams. What crosses the bus in a sweep is, for
//! each mode, a root of the inverse of the normal equations (R x R) one way and a gram with four numbers a column the
//! other.
//!
//! Two submissions a mode, not one: the MTTKRP of a mode needs the factor before it and nothing of the host, so it goes
//! to the queue right behind that factor's update, and while it runs the host reads the gram, factors the normal equations
//! and sends the root. Only the update waits for the host. In one submission the device would idle for that long.

use super::Inner;
use super::buffers::{GpuFactors, GpuMatrix, GpuTensor};
use super::ledger::Ticket;
use super::range::Range;
use super::record::{Prepared, whole};
use super::scope::{create_buffer, scoped};
use super::timing::{Stopwatch, between};
use crate::als::{AlsSteps, NormalEquations, Product, Seconds, Updated, overflow};
use crate::error::one_line;
use crate::plan::{MttkrpPlan, Slot, UpdatePlan, column_stride};
use crate::{Dtype, Error, Real, Result};
use ndarray::{Array1, Array2, ArrayView2, s};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;
use wgpu::BufferUsages;

const TIMES: u64 = UpdatePlan::TIMES;

pub(super) struct GpuSteps<'a, 'x, T: Real> {
    inner: &'a Inner,
    x: &'a GpuTensor<'x, T>,
    u: GpuFactors<T>,
    modes: Vec<Mode<'a, T>>,
    buffers: HashMap<Slot, wgpu::Buffer>,
    /// Where the host reads what an update gave.
    staging: wgpu::Buffer,
    stopwatch: Option<Stopwatch>,
    rank: usize,
    /// Mode whose MTTKRP is on the queue, and by what.
    started: Option<(usize, Kernels)>,
    pending: Option<Pending>,
    _memory: Vec<Ticket>,
}

struct Mode<'a, T> {
    plan: &'a MttkrpPlan,
    g: GpuMatrix<T>,
    update: Prepared,
    /// The plan's own kernels, and its fallback's once they are needed.
    mttkrp: [Option<Prepared>; 2],
    /// Sums in f64, once they are needed.
    wide: Option<Wide>,
    /// What was chosen the last time.
    kernels: Kernels,
}

/// What an MTTKRP is done by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kernels {
    Own,
    Fallback,
    Wide,
}

/// f32 data summed in f64.
struct Wide {
    g: GpuMatrix<f64>,
    mttkrp: Prepared,
    update: Prepared,
}

/// An update on the queue.
struct Pending {
    mode: usize,
    submission: wgpu::SubmissionIndex,
    mapped: Receiver<std::result::Result<(), wgpu::BufferAsyncError>>,
    fallback: bool,
    seconds: Seconds,
}

/// The kernels of an update on a result.
fn prepare_update<T, G>(
    inner: &Inner,
    update: &UpdatePlan,
    g: &GpuMatrix<G>,
    u: &GpuFactors<T>,
    buffers: &HashMap<Slot, wgpu::Buffer>,
) -> Result<Prepared> {
    let params = update.dispatches().iter().map(|dispatch| dispatch.params).collect();
    inner.prepare("update", update.dispatches(), params, |slot| {
        Ok(match slot {
            Slot::G(block) => whole(&g.buffers[block]),
            Slot::Factors(block) => whole(&u.buffers[block]),
            other => whole(&buffers[&other]),
        })
    })
}

/// What is there, made the first time.
fn keep(place: &mut Option<Prepared>, make: impl FnOnce() -> Result<Prepared>) -> Result<&Prepared> {
    if place.is_none() {
        *place = Some(make()?);
    }
    place.as_ref().ok_or_else(|| Error::Gpu { during: "preparing".into(), message: "nothing was made".into() })
}

impl<'a, 'x, T: Real> GpuSteps<'a, 'x, T> {
    pub fn new(
        inner: &'a Inner,
        plans: &'a [MttkrpPlan],
        updates: Vec<UpdatePlan>,
        x: &'a GpuTensor<'x, T>,
        factors: &[Array2<T>],
    ) -> Result<Self> {
        let views: Vec<_> = factors.iter().map(|f| f.view()).collect();
        let u = inner.upload_factors(None, &views)?;
        let rank = u.rank();
        let mut buffers = HashMap::new();
        // Scratch for all modes at once: one that grew from mode to mode would stay as often as it grew.
        for slot in [Slot::KhatriRao, Slot::Partial, Slot::Outer] {
            let bytes = plans.iter().map(|plan| plan.scratch_bytes(slot)).max().unwrap_or(0);
            if bytes > 0 {
                inner.scratch.get(inner, slot, bytes)?;
            }
        }
        let mut memory = Vec::new();
        for slot in UpdatePlan::SLOTS {
            let bytes = updates.iter().map(|update| update.bytes(slot)).max().unwrap_or(0);
            let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
            let (buffer, held) = create_buffer(inner, &format!("als.{slot:?}"), bytes, usage)?;
            buffers.insert(slot, buffer);
            memory.push(held);
        }
        let segment = updates.first().map_or(0, UpdatePlan::segment) as u64 * 8;
        let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
        let (staging, held) = create_buffer(inner, "als.staging", segment + TIMES, usage)?;
        memory.push(held);
        let modes = plans.iter().zip(&updates).map(|(plan, update)| {
            let g = inner.output::<T>(plan)?;
            let update = prepare_update(inner, update, &g, &u, &buffers)?;
            let kernels = if std::ptr::eq(inner.chosen(plan, x, &u), plan) { Kernels::Own } else { Kernels::Fallback };
            Ok(Mode { plan, g, update, mttkrp: [None, None], wide: None, kernels })
        });
        let modes = modes.collect::<Result<_>>()?;
        let stopwatch = Stopwatch::new(inner, 2)?;
        let new = Self {
            inner,
            x,
            u,
            modes,
            buffers,
            staging,
            stopwatch,
            rank,
            started: None,
            pending: None,
            _memory: memory,
        };
        (0..plans.len()).try_for_each(|mode| new.write_magnitudes(mode))?;
        Ok(new)
    }

    /// Tells the device the largest magnitudes of a factor that the host has uploaded, where scales depend on them.
    fn write_magnitudes(&self, mode: usize) -> Result<()> {
        let Some(ranges) = self.u.ranges.get(mode) else { return Ok(()) };
        scoped(&self.inner.device, "upload of magnitudes", || {
            let largest: Vec<f64> = ranges.iter().map(|range| range.largest()).collect();
            let at = mode * self.segment() + self.rank * (self.rank + 2);
            self.inner.queue.write_buffer(&self.buffers[&Slot::State], at as u64 * 8, bytemuck::cast_slice(&largest));
            Ok(())
        })
    }

    /// Before the first MTTKRP of a mode: measures what may take long.
    fn pace(&self, mode: usize, kernels: Kernels) -> Result<()> {
        let entry = &self.modes[mode];
        match kernels {
            Kernels::Own if entry.mttkrp[0].is_none() => self.inner.pace_mttkrp(entry.plan, self.x, &self.u, &entry.g),
            Kernels::Fallback if entry.mttkrp[1].is_none() => {
                let plan = entry.plan.fallback().unwrap_or(entry.plan);
                self.inner.pace_mttkrp(plan, self.x, &self.u, &entry.g)
            }
            // Prepared already, the sums in f64 among them.
            _ => Ok(()),
        }
    }

    /// Puts an MTTKRP on the queue.
    fn submit_mttkrp(&mut self, mode: usize, kernels: Kernels) -> Result<()> {
        let inner = self.inner;
        self.pace(mode, kernels)?;
        let entry = &mut self.modes[mode];
        let prepared = match (kernels, &entry.wide) {
            (Kernels::Wide, Some(wide)) => &wide.mttkrp,
            (Kernels::Fallback, _) => {
                let plan = entry.plan.fallback().unwrap_or(entry.plan);
                keep(&mut entry.mttkrp[1], || inner.prepare_mttkrp(plan, self.x, &self.u, &entry.g))?
            }
            _ => keep(&mut entry.mttkrp[0], || inner.prepare_mttkrp(entry.plan, self.x, &self.u, &entry.g))?,
        };
        inner.submit_mttkrp(prepared, self.x, self.stopwatch.as_ref(), |_| ())?;
        entry.kernels = kernels;
        self.started = Some((mode, kernels));
        Ok(())
    }

    /// What the MTTKRP of a mode has to be done by, as the factors are.
    fn kernels(&mut self, mode: usize, wide: bool) -> Result<Kernels> {
        if wide && self.can_widen(mode)? {
            return Ok(Kernels::Wide);
        }
        let plan = self.modes[mode].plan;
        let own = std::ptr::eq(self.inner.chosen(plan, self.x, &self.u), plan);
        Ok(if own { Kernels::Own } else { Kernels::Fallback })
    }

    /// Numbers of the state that a mode has.
    fn segment(&self) -> usize {
        self.rank * (self.rank + 4)
    }

    /// Why the numbers of an update are not finite.
    fn not_finite(&self, mode: usize, norms: &Array1<f64>) -> Error {
        let mut g = Array2::<T>::zeros((self.modes[mode].g.rows, self.rank));
        if let Err(error) = self.inner.read(&self.modes[mode].g, g.view_mut()) {
            return error;
        }
        overflow(g.view(), mode).unwrap_or_else(|| {
            let index = norms.iter().position(|n| !n.is_finite()).into_iter().collect();
            Error::Overflow { what: "the norm of a column".into(), dtype: "f64", index }
        })
    }
}

impl<T: Real> AlsSteps<T> for GpuSteps<'_, '_, T> {
    fn start(&mut self, mode: usize) -> Result<()> {
        // The ranges of the factor before it may still be on their way: as the last time, which `update` checks.
        self.submit_mttkrp(mode, self.modes[mode].kernels)
    }

    fn can_widen(&mut self, mode: usize) -> Result<bool> {
        if T::DTYPE == Dtype::F64 {
            return Ok(false);
        }
        if self.modes[mode].wide.is_none() {
            let inner = self.inner;
            let plan = self.modes[mode].plan.wide(&inner.caps);
            let both = plan.and_then(|plan| Ok((UpdatePlan::new(&plan, &inner.caps)?, plan)));
            let Ok((update, plan)) = both else { return Ok(false) };
            let g = inner.output::<f64>(&plan)?;
            inner.pace_mttkrp(&plan, self.x, &self.u, &g)?;
            let mttkrp = inner.prepare_mttkrp(&plan, self.x, &self.u, &g)?;
            let update = prepare_update(inner, &update, &g, &self.u, &self.buffers)?;
            self.modes[mode].wide = Some(Wide { g, mttkrp, update });
        }
        Ok(true)
    }

    fn update(&mut self, mode: usize, normal: &NormalEquations, wide: bool) -> Result<()> {
        let inner = self.inner;
        let kernels = self.kernels(mode, wide)?;
        if self.started.take() != Some((mode, kernels)) {
            self.submit_mttkrp(mode, kernels)?;
            self.started = None;
        }
        let mut seconds = Seconds::default();
        let clock = Instant::now();
        let root = normal.root(column_stride(self.rank));
        seconds.solve = clock.elapsed().as_secs_f64();
        let clock = Instant::now();
        let bytes = self.segment() as u64 * 8;
        let (sender, mapped) = channel();
        let submission = scoped(&inner.device, "an update", || {
            inner.queue.write_buffer(&self.buffers[&Slot::Root], 0, bytemuck::cast_slice(&root));
            let mut encoder = inner.encoder("update");
            let entry = &self.modes[mode];
            let update = match (kernels, &entry.wide) {
                (Kernels::Wide, Some(wide)) => &wide.update,
                _ => &entry.update,
            };
            update.encode(&mut encoder, None, self.stopwatch.as_ref().map(|s| s.writes(1)));
            let state = &self.buffers[&Slot::State];
            encoder.copy_buffer_to_buffer(state, mode as u64 * bytes, &self.staging, 0, bytes);
            if let Some(stopwatch) = &self.stopwatch {
                let times = stopwatch.resolve(&mut encoder);
                encoder.copy_buffer_to_buffer(times, 0, &self.staging, bytes, TIMES);
            }
            let submission = inner.queue.submit([encoder.finish()]);
            self.staging.map_async(wgpu::MapMode::Read, 0..bytes + TIMES, move |result| {
                let _ = sender.send(result);
            });
            Ok(submission)
        })?;
        seconds.transfer = clock.elapsed().as_secs_f64();
        self.pending = Some(Pending { mode, submission, mapped, fallback: kernels == Kernels::Fallback, seconds });
        Ok(())
    }

    fn finish(&mut self) -> Result<Updated> {
        let failed = |message: String| Error::Gpu { during: "an update".into(), message: one_line(&message) };
        let pending = self.pending.take().ok_or_else(|| failed("nothing is under way".into()))?;
        let Pending { mode, submission, mapped, fallback, mut seconds } = pending;
        let (inner, rank) = (self.inner, self.rank);
        let clock = Instant::now();
        scoped(&inner.device, "an update", || inner.wait(Some(submission), "an update"))?;
        mapped.recv().map_err(|e| failed(e.to_string()))?.map_err(|e| failed(e.to_string()))?;
        seconds.wait = clock.elapsed().as_secs_f64();
        let clock = Instant::now();
        let bytes = self.segment() as u64 * 8;
        let (mut words, mut ticks) = (vec![0f64; self.segment()], [0u64; 4]);
        {
            let view = self.staging.get_mapped_range(0..bytes + TIMES).map_err(|e| failed(e.to_string()))?;
            bytemuck::cast_slice_mut::<f64, u8>(&mut words).copy_from_slice(&view[..bytes as usize]);
            bytemuck::cast_slice_mut::<u64, u8>(&mut ticks).copy_from_slice(&view[bytes as usize..]);
        }
        self.staging.unmap();
        let column = |what: usize| Array1::from_iter((0..rank).map(|r| words[rank * (rank + what) + r]));
        let (norms, inner_products, largest, mean) = (column(0), column(1), column(2), column(3));
        if !self.u.ranges.is_empty() {
            let ranges = largest.iter().zip(&mean).map(|(&largest, &mean)| Range::from_magnitudes(largest, mean));
            self.u.ranges[mode] = ranges.collect();
        }
        words.truncate(rank * rank);
        let gram = Array2::from_shape_vec((rank, rank), words).map_err(|e| failed(e.to_string()))?;
        seconds.transfer += clock.elapsed().as_secs_f64();
        let all_finite = |values: &Array1<f64>| values.iter().all(|v| v.is_finite());
        if !(all_finite(&norms) && all_finite(&inner_products)) {
            return Err(self.not_finite(mode, &norms));
        }
        if self.stopwatch.is_some() {
            seconds.mttkrp = between(inner, ticks[0], ticks[1]).as_secs_f64();
            seconds.algebra = between(inner, ticks[2], ticks[3]).as_secs_f64();
        } else {
            // Without a clock on the device, all of the wait is taken for its longest part.
            seconds.mttkrp = seconds.wait;
        }
        Ok(Updated { gram, norms, inner: inner_products, fallback, seconds })
    }

    fn product(&mut self, mode: usize, wide: bool) -> Result<Product> {
        let clock = Instant::now();
        let kernels = self.kernels(mode, wide)?;
        if self.started != Some((mode, kernels)) {
            self.submit_mttkrp(mode, kernels)?;
        }
        let entry = &self.modes[mode];
        let mut g = Array2::<f64>::zeros((entry.g.rows, self.rank));
        match (kernels, &entry.wide) {
            (Kernels::Wide, Some(wide)) => self.inner.read(&wide.g, g.view_mut())?,
            _ => {
                let mut narrow = Array2::<T>::zeros(g.dim());
                self.inner.read(&entry.g, narrow.view_mut())?;
                if let Some(error) = overflow(narrow.view(), mode) {
                    return Err(error);
                }
                g.zip_mut_with(&narrow, |to, from| *to = from.f64());
            }
        }
        let seconds = Seconds { mttkrp: clock.elapsed().as_secs_f64(), ..Seconds::default() };
        Ok(Product { g, fallback: kernels == Kernels::Fallback, seconds })
    }

    fn replace(&mut self, mode: usize, factor: ArrayView2<'_, T>) -> Result<()> {
        self.started = None;
        self.inner.set_factor(&mut self.u, mode, factor)?;
        self.write_magnitudes(mode)
    }

    fn snapshot(&mut self) -> Result<Vec<Array2<T>>> {
        self.factors()
    }

    fn factors(&mut self) -> Result<Vec<Array2<T>>> {
        let (shape, stride) = (&self.u.shape, column_stride(self.rank));
        let rows: usize = shape.iter().sum();
        let words = self.inner.read_buffer::<T>(&self.u.buffers[0], rows * stride)?;
        let all = ArrayView2::from_shape((rows, stride), &words)
            .map_err(|e| Error::Gpu { during: "reading the factors".into(), message: e.to_string() })?;
        let mut first = 0;
        let one = |&rows: &usize| {
            first += rows;
            all.slice(s![first - rows..first, ..self.rank]).to_owned()
        };
        Ok(shape.iter().map(one).collect())
    }

    fn place(&self) -> &str {
        "on the device, in f64"
    }
}

#[cfg(test)]
mod tests {
    use super::super::Gpu;
    use super::super::range::scale_rows;
    use super::*;
    use crate::Backend;
    use crate::plan::{Method, PlanOptions, column_stride, weights_row};

    #[test]
    fn an_mttkrp_that_overflows_is_named() {
        let Ok(gpu) = Gpu::new() else { return println!("skipped: no adapter") };
        if !gpu.caps().f64 {
            return println!("skipped: no f64");
        }
        let dims = [30, 20];
        let mut x = Array2::<f32>::ones(dims);
        x.row_mut(4).fill(3e38);
        let factors = dims.map(|rows| Array2::from_elem((rows, 3), 1.0));
        let plans = [0, 1].map(|mode| MttkrpPlan::new(&dims, mode, 3, &PlanOptions::default(), gpu.caps()).unwrap());
        let updates: Vec<_> = plans.iter().map(|plan| UpdatePlan::new(plan, gpu.caps()).unwrap()).collect();
        let xd = gpu.upload_tensor(x.view()).unwrap();
        let mut steps = GpuSteps::<f32>::new(&gpu.inner, &plans, updates, &xd, &factors).unwrap();
        steps.update(0, &NormalEquations::new(&Array2::eye(3), 1e-7, 0).unwrap(), false).unwrap();
        // The next MTTKRP does not overwrite what is looked at.
        steps.start(1).unwrap();
        let error = steps.finish().unwrap_err();
        let expected = Error::Overflow { what: "MTTKRP of mode 0".into(), dtype: "f32", index: vec![4, 0] };
        assert_eq!(error, expected);
    }

    /// Every kernel that FUSED chooses by rank and layout, against the definition: the bound of f64, though data are f32.
    #[test]
    fn wide_sums_are_within_the_bound_of_f64() {
        let Ok(gpu) = Gpu::new() else { return println!("skipped: no adapter") };
        if !gpu.caps().f64 {
            return println!("skipped: no f64");
        }
        let mut kernels = std::collections::BTreeSet::new();
        for (dims, rank) in [([12, 8, 16], 3), ([9, 7, 5], 3), ([20, 9, 12], 12), ([30, 25, 21], 20), ([40, 6, 36], 33)]
        {
            let mut at = 0u64;
            let mut next = || {
                at = at.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (at >> 40) as f32 / 16777216.0 - 0.5
            };
            let x = ndarray::Array3::from_shape_simple_fn(dims, &mut next);
            let factors = dims.map(|rows| Array2::from_shape_simple_fn((rows, rank), &mut next));
            let plans =
                [0, 1, 2].map(|mode| MttkrpPlan::new(&dims, mode, rank, &PlanOptions::default(), gpu.caps()).unwrap());
            let updates: Vec<_> = plans.iter().map(|plan| UpdatePlan::new(plan, gpu.caps()).unwrap()).collect();
            let xd = gpu.upload_tensor(x.view()).unwrap();
            let mut steps = GpuSteps::<f32>::new(&gpu.inner, &plans, updates, &xd, &factors).unwrap();
            let exact = factors.each_ref().map(|f| f.mapv(f64::from));
            let views = exact.each_ref().map(|f| f.view());
            let x = x.mapv(f64::from).into_dyn();
            for mode in 0..3 {
                assert!(steps.can_widen(mode).unwrap());
                steps.submit_mttkrp(mode, Kernels::Wide).unwrap();
                let mut g = Array2::zeros((dims[mode], rank));
                gpu.inner.read(&steps.modes[mode].wide.as_ref().unwrap().g, g.view_mut()).unwrap();
                let plan = plans[mode].wide(gpu.caps()).unwrap();
                kernels.extend(plan.dispatches().iter().map(|d| d.spec.shader));
                let expected = crate::reference::mttkrp_reference(x.view(), None, &views, mode);
                let scale = crate::reference::mttkrp_scale(x.view(), None, &views, mode);
                let terms = plan.chain() as usize + x.len() / dims[mode] + 2 * 4;
                for ((g, e), s) in g.iter().zip(&expected).zip(&scale) {
                    let bound = terms as f64 * f64::EPSILON * s;
                    assert!((g - e).abs() <= bound, "{dims:?} R {rank} mode {mode}: {g} and {e}, bound {bound:e}");
                }
            }
        }
        let all = ["fused_cols", "fused_rows", "fused_small_cols", "fused_small_rows", "fused_stream_rows"];
        assert!(all.iter().all(|name| kernels.contains(name)), "{kernels:?}");
    }

    /// As if the device had f16 matrix units: the magnitudes that an update reports and the scales that it writes are those
    /// that an upload of the same factors would have.
    #[test]
    fn scales_follow_the_factors() {
        let Ok(gpu) = Gpu::new() else { return println!("skipped: no adapter") };
        if !gpu.caps().f64 {
            return println!("skipped: no f64");
        }
        let mut caps = gpu.caps().clone();
        caps.f16_matrix_units = true;
        let gpu = Gpu::on(gpu.inner.device.clone(), gpu.inner.queue.clone(), caps, Vec::new());
        let (dims, rank) = ([70, 9, 300], 5);
        let shape = crate::Shape::new(&dims).unwrap();
        // Rows of very different magnitudes; the last slice of mode 1 makes a component that has one entry there.
        let x = ndarray::Array3::from_shape_fn(dims, |(i, j, k)| {
            ((i * 31 + j * 17 + k * 7) % 23) as f32 * 0.5f32.powi(i as i32 % 30)
        });
        let factors =
            dims.map(|rows| Array2::from_shape_fn((rows, rank), |(i, r)| ((i * 5 + r * 3) % 11) as f32 + 0.25));
        let options = PlanOptions::default().method(Method::Slice);
        let plans = [0, 1, 2].map(|mode| MttkrpPlan::new(&dims, mode, rank, &options, gpu.caps()).unwrap());
        let updates: Vec<_> = plans.iter().map(|plan| UpdatePlan::new(plan, gpu.caps()).unwrap()).collect();
        assert_eq!(updates[0].dispatches().last().unwrap().spec.shader, "als_scales");
        let xd = gpu.upload_tensor(x.view()).unwrap();
        let mut steps = GpuSteps::<f32>::new(&gpu.inner, &plans, updates, &xd, &factors).unwrap();
        let normal = NormalEquations::new(&Array2::eye(rank), 1e-7, 0).unwrap();
        let mut before = steps.u.ranges.clone();
        for mode in 0..3 {
            steps.start(mode).unwrap();
            steps.update(mode, &normal, false).unwrap();
            steps.finish().unwrap();
            let factors = steps.factors().unwrap();
            before[mode] = factors[mode].columns().into_iter().map(|c| Range::of(c.iter())).collect();
            assert_eq!(steps.u.ranges, before, "ranges after mode {mode}");
            let stride = column_stride(rank);
            let words = gpu.inner.read_buffer::<f32>(&steps.u.buffers[0], (weights_row(&shape) + 7) * stride).unwrap();
            let scales = ArrayView2::from_shape((6, stride), &words[(weights_row(&shape) + 1) * stride..]).unwrap();
            let expected = scale_rows(&before, &[1f32; 5]);
            assert_eq!(scales.slice(s![.., ..rank]), expected, "scales after mode {mode}");
        }
    }
}
