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
use super::range::{Range, group_scale_rows};
use super::record::{Prepared, whole};
use super::scope::{create_buffer, scoped};
use super::timing::{Stopwatch, between};
use super::tree::GpuTree;
use crate::als::{AlsSteps, NormalEquations, Product, Seconds, Updated, overflow};
use crate::error::one_line;
use crate::plan::{MttkrpPlan, Params, Slot, TreePlan, UpdateParams, UpdatePlan, column_stride, group_scale_row};
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
    /// Mode whose MTTKRP is on the queue, by what, and in how many passes over the tensor.
    started: Option<(usize, Kernels, usize)>,
    tree: Option<GpuTree<'a>>,
    /// The tree's groups, by their first modes.
    groups: u32,
    why_tree: String,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kernels {
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
    passes: usize,
    seconds: Seconds,
}

/// The kernels of an update on a result; `groups` are those of a dimension tree, by their first modes.
fn prepare_update<T, G>(
    inner: &Inner,
    update: &UpdatePlan,
    groups: u32,
    g: &GpuMatrix<G>,
    u: &GpuFactors<T>,
    buffers: &HashMap<Slot, wgpu::Buffer>,
) -> Result<Prepared> {
    let params = update.dispatches().iter().map(|dispatch| match dispatch.params {
        Params::Update(params) => Params::Update(UpdateParams { groups, ..params }),
        other => other,
    });
    let params = params.collect();
    inner.prepare("update", update.dispatches(), params, |slot| {
        Ok(match slot {
            Slot::G(block) => whole(&g.buffers[block]),
            Slot::Factors(block) => whole(&u.buffers[block]),
            other => whole(&buffers[&other]),
        })
    })
}

/// What is there, made the first time.
pub(super) fn keep(place: &mut Option<Prepared>, make: impl FnOnce() -> Result<Prepared>) -> Result<&Prepared> {
    if place.is_none() {
        *place = Some(make()?);
    }
    place.as_ref().ok_or_else(|| Error::Gpu { during: "preparing".into(), message: "nothing was made".into() })
}

impl<'a, 'x, T: Real> GpuSteps<'a, 'x, T> {
    pub fn new(
        inner: &'a Inner,
        plans: &'a [MttkrpPlan],
        tree: &'a TreePlan,
        updates: Vec<UpdatePlan>,
        x: &'a GpuTensor<'x, T>,
        factors: &[Array2<T>],
    ) -> Result<Self> {
        let views: Vec<_> = factors.iter().map(|f| f.view()).collect();
        let u = inner.upload_factors(None, &views)?;
        let rank = u.rank();
        let mut buffers = HashMap::new();
        // Scratch for all modes at once: one that grew from mode to mode would stay as often as it grew.
        let pieces = (Slot::Partial(0), tree.scratch());
        for (slot, bytes) in MttkrpPlan::scratch_of(plans, Some(pieces)) {
            inner.scratch.get(inner, slot, bytes)?;
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
        let groups = tree.first_modes();
        let modes = plans.iter().zip(&updates).map(|(plan, update)| {
            let g = inner.output::<T>(plan)?;
            let update = prepare_update(inner, update, groups, &g, &u, &buffers)?;
            let kernels = if std::ptr::eq(inner.chosen(plan, x, &u), plan) { Kernels::Own } else { Kernels::Fallback };
            Ok(Mode { plan, g, update, mttkrp: [None, None], wide: None, kernels })
        });
        let modes = modes.collect::<Result<_>>()?;
        let stopwatch = Stopwatch::new(inner, 2)?;
        let made = if groups == 0 { Ok(None) } else { GpuTree::new(inner, tree).map(Some) };
        let (tree, why_tree) = match made {
            Ok(made) => (made, tree.to_string()),
            // Other programs may have the memory that the plan counted on.
            Err(why @ Error::OutOfDeviceMemory { .. }) => (None, tree.without(why.to_string()).to_string()),
            Err(error) => return Err(error),
        };
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
            tree,
            groups,
            why_tree,
            pending: None,
            _memory: memory,
        };
        (0..plans.len()).try_for_each(|mode| new.write_magnitudes(mode))?;
        Ok(new)
    }

    /// What the kernels on f16 matrix units need of a factor from the host: its largest magnitudes, and the scales of the
    /// tree's group that it is in.
    fn write_magnitudes(&self, mode: usize) -> Result<()> {
        let (inner, u, rank) = (self.inner, &self.u, self.rank);
        let Some(ranges) = u.ranges.get(mode) else { return Ok(()) };
        scoped(&inner.device, "upload of magnitudes", || {
            let largest: Vec<f64> = ranges.iter().map(|range| range.largest()).collect();
            let at = (mode * self.segment() + rank * (rank + 2)) as u64 * 8;
            inner.queue.write_buffer(&self.buffers[&Slot::State], at, bytemuck::cast_slice(&largest));
            Ok(())
        })?;
        let order = u.shape.order();
        let is_first = |&m: &usize| self.groups >> m & 1 == 1;
        let Some(first) = (0..=mode).rev().find(is_first) else { return Ok(()) };
        let end = (mode + 1..order).find(is_first).unwrap_or(order);
        let rows = group_scale_rows::<T>(&u.ranges, first..end);
        inner.write_rows(u, group_scale_row(&u.shape, first), rows.view())
    }

    /// Before the first MTTKRP of a mode: measures what may take long.
    fn pace(&self, mode: usize, kernels: Kernels) -> Result<()> {
        let entry = &self.modes[mode];
        match kernels {
            Kernels::Own | Kernels::Fallback if self.tree.as_ref().is_some_and(|tree| tree.serves(mode)) => {
                self.tree.iter().try_for_each(|tree| tree.pace(self.inner, self.x, &self.u, &entry.g, (mode, kernels)))
            }
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
        let (prepared, passes) = match (&mut self.tree, kernels) {
            (Some(tree), Kernels::Own | Kernels::Fallback) if tree.serves(mode) => {
                tree.mttkrp(inner, self.x, &self.u, &entry.g, (mode, kernels))?
            }
            (_, Kernels::Fallback) => {
                let plan = entry.plan.fallback().unwrap_or(entry.plan);
                (vec![keep(&mut entry.mttkrp[1], || inner.prepare_mttkrp(plan, self.x, &self.u, &entry.g))?], 1)
            }
            (_, Kernels::Own) => {
                (vec![keep(&mut entry.mttkrp[0], || inner.prepare_mttkrp(entry.plan, self.x, &self.u, &entry.g))?], 1)
            }
            (_, Kernels::Wide) => (entry.wide.iter().map(|wide| &wide.mttkrp).collect(), 1),
        };
        inner.submit_mttkrp(&prepared, self.x, self.stopwatch.as_ref(), |_| ())?;
        entry.kernels = kernels;
        self.started = Some((mode, kernels, passes));
        Ok(())
    }

    /// What the MTTKRP of a mode has to be done by, as the factors are.
    fn kernels(&mut self, mode: usize, wide: bool) -> Result<Kernels> {
        if wide && self.can_widen(mode)? {
            return Ok(Kernels::Wide);
        }
        if let Some(kernels) = self.tree.as_ref().and_then(|tree| tree.kernels(mode, self.x, &self.u)) {
            return Ok(kernels);
        }
        let plan = self.modes[mode].plan;
        let own = std::ptr::eq(self.inner.chosen(plan, self.x, &self.u), plan);
        Ok(if own { Kernels::Own } else { Kernels::Fallback })
    }

    /// Puts an MTTKRP on the queue, unless it is there.
    fn submit_unless_started(&mut self, mode: usize, kernels: Kernels) -> Result<()> {
        if self.started.is_some_and(|(started, by, _)| (started, by) == (mode, kernels)) {
            return Ok(());
        }
        // What was queued instead has been a pass too.
        let before = self.started.take().map_or(0, |(.., passes)| passes);
        self.submit_mttkrp(mode, kernels)?;
        if let Some((.., passes)) = &mut self.started {
            *passes += before;
        }
        Ok(())
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
        let at_hand = self.tree.as_ref().and_then(|tree| tree.at_hand(mode));
        self.submit_mttkrp(mode, at_hand.unwrap_or(self.modes[mode].kernels))
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
            let wide = || {
                let g = inner.output::<f64>(&plan)?;
                inner.pace_mttkrp(&plan, self.x, &self.u, &g)?;
                let mttkrp = inner.prepare_mttkrp(&plan, self.x, &self.u, &g)?;
                let update = prepare_update(inner, &update, self.groups, &g, &self.u, &self.buffers)?;
                Ok(Wide { g, mttkrp, update })
            };
            // Sums in f64 are an extra, for which there may be no room beside the rest.
            self.modes[mode].wide = match wide() {
                Err(Error::OutOfDeviceMemory { .. }) => return Ok(false),
                other => Some(other?),
            };
        }
        Ok(true)
    }

    fn update(&mut self, mode: usize, normal: &NormalEquations, wide: bool) -> Result<()> {
        let inner = self.inner;
        let kernels = self.kernels(mode, wide)?;
        self.submit_unless_started(mode, kernels)?;
        let passes = self.started.take().map_or(0, |(.., passes)| passes);
        let mut seconds = Seconds::default();
        let root = normal.root();
        if root.len() != self.rank * column_stride(self.rank) {
            let message = format!("the root has {} numbers, rank {}", root.len(), self.rank);
            return Err(Error::Gpu { during: "an update".into(), message });
        }
        let clock = Instant::now();
        let bytes = self.segment() as u64 * 8;
        let (sender, mapped) = channel();
        let submission = scoped(&inner.device, "an update", || {
            inner.queue.write_buffer(&self.buffers[&Slot::Root], 0, bytemuck::cast_slice(root));
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
        if let Some(tree) = &mut self.tree {
            tree.changed(mode);
        }
        let fallback = kernels == Kernels::Fallback;
        self.pending = Some(Pending { mode, submission, mapped, fallback, passes, seconds });
        Ok(())
    }

    fn root_stride(&self) -> Option<usize> {
        Some(column_stride(self.rank))
    }

    fn finish(&mut self) -> Result<Updated> {
        let failed = |message: String| Error::Gpu { during: "an update".into(), message: one_line(&message) };
        let pending = self.pending.take().ok_or_else(|| failed("nothing is under way".into()))?;
        let Pending { mode, submission, mapped, fallback, passes, mut seconds } = pending;
        let (inner, rank) = (self.inner, self.rank);
        let clock = Instant::now();
        scoped(&inner.device, "an update", || inner.wait(Some(submission), "an update"))?;
        mapped.recv().map_err(|e| failed(e.to_string()))?.map_err(|e| failed(e.to_string()))?;
        seconds.wait = clock.elapsed().as_secs_f64();
        let clock = Instant::now();
        let bytes = self.segment() as u64 * 8;
        let mut ticks = [0u64; 4];
        let mut words = {
            let view = self.staging.get_mapped_range(0..bytes + TIMES).map_err(|e| failed(e.to_string()))?;
            bytemuck::cast_slice_mut::<u64, u8>(&mut ticks).copy_from_slice(&view[bytes as usize..]);
            let words = &view[..bytes as usize];
            // To zero new memory first would take as long as to copy.
            bytemuck::try_cast_slice::<u8, f64>(words)
                .map_or_else(|_| bytemuck::pod_collect_to_vec(words), <[f64]>::to_vec)
        };
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
        Ok(Updated { gram, norms, inner: inner_products, fallback, passes, seconds })
    }

    fn product(&mut self, mode: usize, wide: bool) -> Result<Product> {
        let clock = Instant::now();
        let kernels = self.kernels(mode, wide)?;
        self.submit_unless_started(mode, kernels)?;
        let passes = self.started.as_mut().map_or(0, |(.., passes)| std::mem::take(passes));
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
        Ok(Product { g, fallback: kernels == Kernels::Fallback, passes, seconds })
    }

    fn replace(&mut self, mode: usize, factor: ArrayView2<'_, T>) -> Result<()> {
        self.started = None;
        self.inner.set_factor(&mut self.u, mode, factor)?;
        if let Some(tree) = &mut self.tree {
            tree.changed(mode);
        }
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

    fn kept(&self) -> Option<usize> {
        self.tree.as_ref()?.kept()
    }

    fn keep(&mut self, group: usize) {
        self.tree.iter_mut().for_each(|tree| tree.keep(group));
    }

    fn place(&self) -> &str {
        "on the device, in f64"
    }

    fn tree(&self) -> String {
        self.why_tree.clone()
    }
}

#[cfg(test)]
mod tests;
