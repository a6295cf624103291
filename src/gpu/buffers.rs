//! Tensors, factors and results on a GPU.

use super::ledger::Ticket;
use super::range::{Range, scale_rows};
use super::scope::{create_buffer, scoped};
use super::stream::Stream;
use super::{Gpu, Inner};
use crate::error::one_line;
use crate::plan::{
    MttkrpPlan, Slab, Slot, Streaming, buffer_bytes, buffer_limit, column_blocks, column_stride, factor_rows,
    slab_limit, slabs, weights_row,
};
use crate::{Error, Real, Result, Shape};
use ndarray::{ArrayView, ArrayView1, ArrayView2, ArrayViewMut2, Axis, Dimension, s};
use std::borrow::Cow;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};
use wgpu::BufferUsages;

/// Bytes uploaded before the queue is drained: what staging may take.
const UPLOAD_BYTES: usize = 64 << 20;

/// A tensor on a GPU, cut into slabs that fit one binding each; or one that does not fit there, whose slabs come from the
/// host in every MTTKRP.
///
/// ```
/// # fn show<T: polyad::Real>(x: &polyad::GpuTensor<'_, T>) -> usize {
/// x.shape().order()
/// # }
/// ```
#[derive(Debug)]
pub struct GpuTensor<'a, T: Clone> {
    pub(super) gpu: u64,
    pub(super) shape: Shape,
    pub(super) slabs: Vec<Slab>,
    pub(super) place: Place<'a, T>,
    /// Where the device has f16 matrix units that may want it.
    pub(super) range: Option<Range>,
}

/// Where the slabs are.
#[derive(Debug)]
pub(super) enum Place<'a, T: Clone> {
    Device { buffers: Vec<wgpu::Buffer>, _memory: Vec<Ticket> },
    Host(Stream<'a, T>),
}

impl<T: Real> GpuTensor<'_, T> {
    /// Its shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// How it passes through the device, if it is not held there.
    ///
    /// ```
    /// use polyad::{Backend, Gpu};
    /// # let Ok(gpu) = Gpu::new() else { return };
    /// let x = ndarray::Array2::<f32>::ones((64, 64));
    /// assert!(gpu.upload_tensor(x.view()).unwrap().streaming().is_none());
    /// let small = gpu.with_memory_budget(9000);
    /// assert_eq!(small.upload_tensor(x.view()).unwrap().streaming().map(|s| s.pass_bytes), Some(64 * 64 * 4));
    /// ```
    pub fn streaming(&self) -> Option<Streaming> {
        match &self.place {
            Place::Device { .. } => None,
            Place::Host(stream) => Some(*stream.streaming()),
        }
    }

    /// The buffer that a slab is in when it is worked on, and the bytes of it that are the slab's.
    pub(super) fn buffer(&self, slab: usize) -> (wgpu::Buffer, u64) {
        let buffer = match &self.place {
            Place::Device { buffers, .. } => &buffers[slab],
            Place::Host(stream) => stream.buffer(),
        };
        (buffer.clone(), buffer_bytes(self.slabs[slab].len() as u64 * T::DTYPE.bytes()))
    }
}

/// Factors and weights on a GPU, in blocks of columns that fit one binding each.
///
/// ```
/// # fn show<T: polyad::Real>(u: &polyad::GpuFactors<T>) -> usize {
/// u.rank()
/// # }
/// ```
#[derive(Debug)]
pub struct GpuFactors<T> {
    pub(super) gpu: u64,
    pub(super) shape: Shape,
    /// First column of each block and, last, the rank.
    pub(super) columns: Vec<usize>,
    pub(super) buffers: Vec<wgpu::Buffer>,
    /// By mode and column, where the device has f16 matrix units that may want it; else empty.
    pub(super) ranges: Vec<Vec<Range>>,
    weights: Vec<T>,
    _memory: Vec<Ticket>,
}

impl<T> GpuFactors<T> {
    /// The rank.
    pub fn rank(&self) -> usize {
        self.columns.last().copied().unwrap_or(0)
    }
}

/// A result `I_n x R` on a GPU, row-major within each block of columns, rows padded to whole `vec4`s
/// ([`column_stride`](crate::plan::column_stride)).
///
/// ```
/// # fn show<T: polyad::Real>(g: &polyad::GpuMatrix<T>) -> usize {
/// g.buffers().len()
/// # }
/// ```
#[derive(Debug)]
pub struct GpuMatrix<T> {
    pub(super) gpu: u64,
    pub(super) rows: usize,
    pub(super) columns: Vec<usize>,
    pub(super) buffers: Vec<wgpu::Buffer>,
    _memory: Vec<Ticket>,
    dtype: PhantomData<T>,
}

impl<T> GpuMatrix<T> {
    /// One buffer per block of columns, row-major with rows of `column_stride(block)`: one buffer unless the rank is
    /// very large.
    pub fn buffers(&self) -> &[wgpu::Buffer] {
        &self.buffers
    }

    /// First column of each block and, last, the rank.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }
}

/// Scratch buffers by slot, kept from call to call. They may be shared by everything on one queue: every submission
/// writes its scratch before it reads it.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    buffers: Mutex<HashMap<Slot, (wgpu::Buffer, Ticket)>>,
}

impl Scratch {
    /// A buffer of at least that many bytes.
    pub fn get(&self, inner: &Inner, slot: Slot, bytes: u64) -> Result<wgpu::Buffer> {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((buffer, _)) = buffers.get(&slot).filter(|(buffer, _)| buffer.size() >= bytes) {
            return Ok(buffer.clone());
        }
        // The smaller one is freed before the larger one is made.
        buffers.remove(&slot);
        let (buffer, memory) = create_buffer(inner, &format!("scratch.{slot:?}"), bytes, BufferUsages::STORAGE)?;
        buffers.insert(slot, (buffer.clone(), memory));
        Ok(buffer)
    }
}

impl Inner {
    /// Errors for buffers of another `Gpu`, at which wgpu would panic.
    pub(super) fn check_own(&self, what: &str, gpu: u64) -> Result<()> {
        if gpu == self.id {
            return Ok(());
        }
        Err(Error::PlanMismatch { reason: format!("{what} were made by another Gpu than {}", self.caps.name) })
    }

    pub(super) fn check_dtype<T: Real>(&self) -> Result<()> {
        if T::DTYPE == crate::Dtype::F64 && !self.caps.f64 {
            let (adapter, needed_for) = (self.caps.name.clone(), "dtype f64".into());
            return Err(Error::MissingFeature { adapter, feature: "SHADER_F64", needed_for });
        }
        Ok(())
    }

    /// Puts a tensor on the device, or gets ready to stream it where it would not fit: `streams`, or by itself alone.
    pub(super) fn upload_tensor<'a, T: Real, D: Dimension>(
        &self,
        x: ArrayView<'a, T, D>,
        streams: bool,
    ) -> Result<GpuTensor<'a, T>> {
        self.check_dtype::<T>()?;
        let shape = Shape::new(x.shape())?;
        let slabs = slabs(&shape, T::DTYPE, slab_limit(&self.caps, T::DTYPE))?;
        let needed = shape.len() as u64 * T::DTYPE.bytes();
        let too_large = self.caps.memory.filter(|&memory| needed > memory);
        let streaming = Streaming::new(&slabs, T::DTYPE).filter(|_| streams || too_large.is_some());
        if let Some(available) = too_large {
            // A copy in row-major order is the host's only way to contiguous slabs.
            let copied = x.is_standard_layout() || Vec::<T>::new().try_reserve_exact(shape.len()).is_ok();
            if streaming.is_none_or(|streaming| streaming.device_bytes > available) || !copied {
                let what = "the tensor".into();
                return Err(Error::LimitTooSmall { limit: "device memory", what, needed, available });
            }
        }
        let data = row_major(x);
        let range = self.wants_ranges::<T>().then(|| Range::of_tensor(&data, &shape));
        let place = match streaming {
            Some(streaming) => Place::Host(Stream::new(self, data, streaming)?),
            None => self.upload_slabs(&data, &slabs)?,
        };
        Ok(GpuTensor { gpu: self.id, shape, slabs, place, range })
    }

    fn upload_slabs<'a, T: Real>(&self, data: &[T], slabs: &[Slab]) -> Result<Place<'a, T>> {
        let (mut buffers, mut memory) = (Vec::with_capacity(slabs.len()), Vec::with_capacity(slabs.len()));
        for (index, slab) in slabs.iter().enumerate() {
            let part: &[u8] = bytemuck::cast_slice(&data[slab.start..slab.start + slab.len()]);
            let usage = BufferUsages::STORAGE | BufferUsages::COPY_DST;
            let (buffer, held) = create_buffer(self, &format!("x.{index}"), part.len() as u64, usage)?;
            memory.push(held);
            scoped(&self.device, "upload of the tensor", || {
                for (chunk, bytes) in part.chunks(UPLOAD_BYTES).enumerate() {
                    self.queue.write_buffer(&buffer, (chunk * UPLOAD_BYTES) as u64, bytes);
                    let submission = self.queue.submit([]);
                    if bytes.len() == UPLOAD_BYTES {
                        self.wait(Some(submission), "upload of the tensor")?;
                    }
                }
                Ok(())
            })?;
            buffers.push(buffer);
        }
        Ok(Place::Device { buffers, _memory: memory })
    }

    pub(super) fn upload_factors<T: Real>(
        &self,
        weights: Option<ArrayView1<'_, T>>,
        factors: &[ArrayView2<'_, T>],
    ) -> Result<GpuFactors<T>> {
        self.check_dtype::<T>()?;
        let dims: Vec<usize> = factors.iter().map(|f| f.nrows()).collect();
        let sizes: Vec<_> = factors.iter().map(|f| f.dim()).collect();
        let shape = Shape::new(&dims)?;
        let rank = shape.check_factors(&sizes, weights.map(|w| w.len()))?;
        let columns = column_blocks(&shape, rank, T::DTYPE, buffer_limit(&self.caps, T::DTYPE))?;
        let (mut buffers, mut memory) = (Vec::with_capacity(columns.len() - 1), Vec::new());
        for (block, ends) in columns.windows(2).enumerate() {
            let bytes = (factor_rows(&shape) * column_stride(ends[1] - ends[0])) as u64 * T::DTYPE.bytes();
            let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
            let (buffer, held) = create_buffer(self, &format!("factors.{block}"), bytes, usage)?;
            buffers.push(buffer);
            memory.push(held);
        }
        let weights = weights.map_or_else(|| vec![T::one(); rank], |w| w.to_vec());
        let ranges =
            if self.wants_ranges::<T>() { factors.iter().map(|f| column_ranges(f.view())).collect() } else { vec![] };
        let u = GpuFactors { gpu: self.id, shape, columns, buffers, ranges, weights, _memory: memory };
        let row = ArrayView1::from(&u.weights).insert_axis(Axis(0));
        self.write_rows(&u, weights_row(&u.shape), row)?;
        for (mode, factor) in factors.iter().enumerate() {
            self.write_rows(&u, u.shape[..mode].iter().sum(), factor.view())?;
        }
        self.write_scales(&u)?;
        Ok(u)
    }

    pub(super) fn set_factor<T: Real>(
        &self,
        u: &mut GpuFactors<T>,
        mode: usize,
        factor: ArrayView2<'_, T>,
    ) -> Result<()> {
        self.check_own("the factors", u.gpu)?;
        u.shape.check_mode(mode)?;
        let expected = (u.shape.rows(mode), u.rank());
        if factor.dim() != expected {
            return Err(Error::FactorShape { mode, expected, found: factor.dim() });
        }
        if self.wants_ranges::<T>() {
            u.ranges[mode] = column_ranges(factor.view());
            self.write_scales(u)?;
        }
        self.write_rows(u, u.shape[..mode].iter().sum(), factor)
    }

    /// f16 matrix units compute f32 only.
    fn wants_ranges<T: Real>(&self) -> bool {
        self.caps.f16_matrix_units && T::DTYPE == crate::Dtype::F32
    }

    /// The rows behind the weights, which scale columns into the range of f16 and back.
    fn write_scales<T: Real>(&self, u: &GpuFactors<T>) -> Result<()> {
        if u.ranges.is_empty() {
            return Ok(());
        }
        let rows = scale_rows(&u.ranges, &u.weights);
        self.write_rows(u, weights_row(&u.shape) + 1, rows.view())
    }

    /// Writes rows of every block of columns, from `first` on.
    pub(super) fn write_rows<T: Real>(&self, u: &GpuFactors<T>, first: usize, rows: ArrayView2<'_, T>) -> Result<()> {
        scoped(&self.device, "upload of factors", || {
            for (ends, buffer) in u.columns.windows(2).zip(&u.buffers) {
                let (width, stride) = (ends[1] - ends[0], column_stride(ends[1] - ends[0]));
                let mut padded = ndarray::Array2::zeros((rows.nrows(), stride));
                padded.slice_mut(s![.., ..width]).assign(&rows.slice(s![.., ends[0]..ends[1]]));
                let at = (first * stride) as u64 * T::DTYPE.bytes();
                self.queue.write_buffer(buffer, at, bytemuck::cast_slice(padded.as_slice().unwrap_or_default()));
            }
            Ok(())
        })
    }

    pub(super) fn output<T: Real>(&self, plan: &MttkrpPlan) -> Result<GpuMatrix<T>> {
        self.check_dtype::<T>()?;
        let rows = plan.shape().rows(plan.mode());
        let (mut buffers, mut memory) = (Vec::new(), Vec::new());
        for (block, ends) in plan.columns().windows(2).enumerate() {
            let bytes = (rows * column_stride(ends[1] - ends[0])) as u64 * T::DTYPE.bytes();
            let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
            let (buffer, held) = create_buffer(self, &format!("g.{block}"), bytes, usage)?;
            buffers.push(buffer);
            memory.push(held);
        }
        Ok(GpuMatrix {
            gpu: self.id,
            rows,
            columns: plan.columns().to_vec(),
            buffers,
            _memory: memory,
            dtype: PhantomData,
        })
    }

    /// Reads a result back.
    pub(super) fn read<T: Real>(&self, g: &GpuMatrix<T>, mut out: ArrayViewMut2<'_, T>) -> Result<()> {
        self.check_own("the output", g.gpu)?;
        let expected = (g.rows, g.columns.last().copied().unwrap_or(0));
        if out.dim() != expected {
            return Err(Error::OutputShape { expected, found: out.dim() });
        }
        for (ends, buffer) in g.columns.windows(2).zip(&g.buffers) {
            let width = ends[1] - ends[0];
            let stride = column_stride(width);
            let words = self.read_buffer::<T>(buffer, g.rows * stride)?;
            let block = ArrayView2::from_shape((g.rows, stride), &words)
                .map_err(|e| Error::Gpu { during: "reading the result".into(), message: e.to_string() })?;
            out.slice_mut(s![.., ends[0]..ends[1]]).assign(&block.slice(s![.., ..width]));
        }
        Ok(())
    }

    /// The first `count` elements of a buffer, through a mapped copy.
    pub(super) fn read_buffer<T: bytemuck::Pod>(&self, buffer: &wgpu::Buffer, count: usize) -> Result<Vec<T>> {
        let during = "reading a result back";
        let failed = |message: String| Error::Gpu { during: during.into(), message: one_line(&message) };
        let bytes = (count * size_of::<T>()) as u64;
        let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
        let (staging, _memory) = create_buffer(self, "staging", bytes, usage)?;
        scoped(&self.device, during, || {
            let mut encoder = self.encoder("read");
            encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, bytes.next_multiple_of(4));
            let submission = self.queue.submit([encoder.finish()]);
            let (sender, receiver) = std::sync::mpsc::channel();
            staging.map_async(wgpu::MapMode::Read, 0..bytes.next_multiple_of(4), move |result| {
                let _ = sender.send(result);
            });
            self.wait(Some(submission), during)?;
            receiver.recv().map_err(|e| failed(e.to_string()))?.map_err(|e| failed(e.to_string()))?;
            let view = staging.get_mapped_range(0..bytes).map_err(|e| failed(e.to_string()))?;
            let mut words = vec![T::zeroed(); count];
            bytemuck::cast_slice_mut::<T, u8>(&mut words).copy_from_slice(&view);
            Ok(words)
        })
    }
}

/// The entries in row-major order, borrowed where they lie so.
fn row_major<T: Real, D: Dimension>(x: ArrayView<'_, T, D>) -> Cow<'_, [T]> {
    match x.to_slice() {
        Some(entries) => Cow::Borrowed(entries),
        None => Cow::Owned(x.iter().copied().collect()),
    }
}

fn column_ranges<T: Real>(factor: ArrayView2<'_, T>) -> Vec<Range> {
    factor.columns().into_iter().map(|column| Range::of(column.iter())).collect()
}

impl Gpu {
    /// Room for the result of a plan, for [`Gpu::record_mttkrp`]. The element type must be the plan's.
    ///
    /// # Errors
    /// [`Error::OutOfDeviceMemory`], [`Error::MissingFeature`].
    ///
    /// See [`Gpu::record_mttkrp`] for an example.
    pub fn output<T: Real>(&self, plan: &MttkrpPlan) -> Result<GpuMatrix<T>> {
        self.inner.output(plan)
    }

    /// Reads a result (`I_n x R`) back, waiting for the work submitted so far.
    ///
    /// # Errors
    /// [`Error::OutputShape`], [`Error::Gpu`].
    ///
    /// See [`Gpu::record_mttkrp`] for an example.
    pub fn read<T: Real>(&self, g: &GpuMatrix<T>, out: ArrayViewMut2<'_, T>) -> Result<()> {
        self.inner.read(g, out)
    }
}
