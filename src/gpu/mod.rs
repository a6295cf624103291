//! The GPU backend: wgpu on Vulkan, Metal and DX12.

mod adapter;
mod buffers;
mod heap;
mod ledger;
mod pace;
mod pipelines;
mod range;
mod record;
mod scope;
mod shader;
mod steps;
mod stream;
mod timing;
mod tree;
mod tune;
mod tuning_file;
mod unroll;

pub use adapter::{AdapterSummary, FeatureUse, GpuBuilder};
pub use buffers::{GpuFactors, GpuMatrix, GpuTensor};
pub use ledger::DeviceMemory;
pub use tune::{TuneOptions, TuneReport, TunedRegime};

use crate::als::{AlsSteps, HostSteps};
use crate::error::one_line;
use crate::plan::{DeviceCaps, Footprint, MttkrpPlan, TreePlan, UpdatePlan};
use crate::{Backend, Error, MttkrpTime, Real, Result};
use ndarray::{Array2, ArrayView, ArrayView1, ArrayView2, ArrayViewD, ArrayViewMut2, Dimension};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long one submission may take before the device counts as hung.
const PATIENCE: Duration = Duration::from_secs(600);

/// A GPU: a wgpu device and queue with this crate's kernels. Cheap to clone, shared between threads.
///
/// Calls that upload, read or run block the calling thread and poll the device, which on a borrowed device also runs
/// the callbacks of its owner's work.
///
/// ```
/// fn assert_shareable<T: Clone + Send + Sync>() {}
/// assert_shareable::<polyad::Gpu>();
/// ```
#[derive(Debug, Clone)]
pub struct Gpu {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Tells buffers of one `Gpu` from those of another.
    id: u64,
    device: wgpu::Device,
    queue: wgpu::Queue,
    caps: DeviceCaps,
    pipelines: pipelines::Pipelines,
    scratch: buffers::Scratch,
    /// How fast kernels are.
    pace: pace::Pace,
    /// Device memory in use.
    ledger: Arc<ledger::Ledger>,
    /// What the user should know.
    warnings: Vec<String>,
}

impl Gpu {
    /// Opens the best adapter; see [`GpuBuilder::build`] for the order and the environment variables.
    ///
    /// # Errors
    /// [`Error::NoAdapter`], [`Error::LimitTooSmall`], [`Error::Gpu`].
    ///
    /// ```
    /// match polyad::Gpu::new() {
    ///     Ok(gpu) => println!("{}", polyad::Backend::name(&gpu)),
    ///     Err(error) => println!("{error}"),
    /// }
    /// ```
    pub fn new() -> Result<Self> {
        Self::builder().build()
    }

    /// Choices before opening a device.
    ///
    /// ```no_run
    /// let gpu = polyad::Gpu::builder().adapter_name("geforce").build()?;
    /// # Ok::<(), polyad::Error>(())
    /// ```
    pub fn builder() -> GpuBuilder {
        GpuBuilder::default()
    }

    /// Every adapter that can be seen, opened or not.
    ///
    /// ```
    /// for a in polyad::Gpu::adapters() {
    ///     println!("{} {}", a.backend, a.name);
    /// }
    /// ```
    pub fn adapters() -> Vec<AdapterSummary> {
        adapter::summaries()
    }

    /// Uses an app's own device and queue, with the features and limits it was opened with. Nothing is requested,
    /// no handler is installed, every object's label begins with `polyad.`, and no tuning file is read
    /// ([`Gpu::with_tuning_file`] does that).
    ///
    /// # Errors
    /// [`Error::LimitTooSmall`] naming the limit; WebGPU's default limits are enough.
    ///
    /// ```no_run
    /// # fn lend(device: polyad::wgpu::Device, queue: polyad::wgpu::Queue) -> polyad::Result<()> {
    /// let gpu = polyad::Gpu::from_wgpu(device, queue)?;
    /// # Ok(()) }
    /// ```
    pub fn from_wgpu(device: wgpu::Device, queue: wgpu::Queue) -> Result<Self> {
        adapter::from_parts(device, queue, None, [None; 2], &tuning_file::Source::Off)
    }

    /// As [`Gpu::from_wgpu`], with what only the adapter knows: the size of the device's memory, and whether its matrix
    /// units have the size that the fused kernels need.
    ///
    /// # Errors
    /// As [`Gpu::from_wgpu`].
    ///
    /// ```no_run
    /// # fn lend(adapter: &polyad::wgpu::Adapter, device: polyad::wgpu::Device, queue: polyad::wgpu::Queue) -> polyad::Result<()> {
    /// let gpu = polyad::Gpu::from_wgpu_with_adapter(adapter, device, queue)?;
    /// # Ok(()) }
    /// ```
    pub fn from_wgpu_with_adapter(adapter: &wgpu::Adapter, device: wgpu::Device, queue: wgpu::Queue) -> Result<Self> {
        adapter::from_parts(device, queue, Some(adapter), [None; 2], &tuning_file::Source::Off)
    }

    /// Records an MTTKRP into an app's encoder: no submission, no wait. The result is in `out` once the app has
    /// submitted the encoder.
    ///
    /// # Errors
    /// [`Error::PlanMismatch`], [`Error::DimsMismatch`] and [`Error::DtypeMismatch`] where the arguments do not belong
    /// together, [`Error::LimitTooSmall`] for a tensor that streams, [`Error::OutOfDeviceMemory`], [`Error::Gpu`].
    ///
    /// ```
    /// use ndarray::{array, Array2};
    /// use polyad::{plan::{MttkrpPlan, PlanOptions}, wgpu, Backend, Gpu};
    /// # fn main() -> polyad::Result<()> {
    /// # let Ok(gpu) = Gpu::new() else { return Ok(()) };
    /// # fn with(gpu: &Gpu, device: &wgpu::Device, queue: &wgpu::Queue) -> polyad::Result<()> {
    /// let x = array![[1f32, 2.0], [3.0, 4.0]];
    /// let x = gpu.upload_tensor(x.view())?;
    /// let u = gpu.upload_factors(None, &[Array2::ones((2, 3)).view(), Array2::ones((2, 3)).view()])?;
    /// let plan = MttkrpPlan::new(&[2, 2], 0, 3, &PlanOptions::default(), gpu.caps())?;
    /// let out = gpu.output(&plan)?;
    /// let mut encoder = device.create_command_encoder(&Default::default());
    /// gpu.record_mttkrp(&mut encoder, &plan, &x, &u, &out)?;
    /// queue.submit([encoder.finish()]);
    /// let mut g = Array2::zeros((2, 3));
    /// gpu.read(&out, g.view_mut())?;
    /// assert_eq!(g[[1, 2]], 7.0);
    /// # Ok(()) }
    /// # let (device, queue) = gpu.device_and_queue();
    /// # with(&gpu, device, queue) }
    /// ```
    pub fn record_mttkrp<T: Real>(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        plan: &MttkrpPlan,
        x: &GpuTensor<'_, T>,
        u: &GpuFactors<T>,
        out: &GpuMatrix<T>,
    ) -> Result<()> {
        self.inner.record(encoder, plan, x, u, out, None)
    }

    /// The same device, of whose memory buffers made through this `Gpu` may take that many bytes (what it has, where that is
    /// less). A tensor that does not fit beside what is needed with it streams from the host; see
    /// [`Streaming`](crate::plan::Streaming). What was uploaded before belongs to the other `Gpu`.
    ///
    /// ```
    /// use polyad::{Backend, Gpu};
    /// # let Ok(gpu) = Gpu::new() else { return };
    /// assert_eq!(gpu.with_memory_budget(1 << 20).caps().memory, Some(1 << 20));
    /// ```
    pub fn with_memory_budget(&self, bytes: u64) -> Self {
        let memory = self.caps().memory.map_or(bytes, |memory| memory.min(bytes));
        let caps = DeviceCaps { memory: Some(memory), ..self.caps().clone() };
        Self::on(self.inner.device.clone(), self.inner.queue.clone(), caps, self.inner.warnings.clone())
    }

    /// The same device, with dispatches of at most about this long (100 ms by default). Longer ones are done in parts, which
    /// changes no bit of a result. How long a kernel takes is measured when an MTTKRP or CP-ALS first needs it, by trials of up
    /// to ten times this, a second at most; workgroups that run at the same time are not divided. What is recorded before
    /// that, by [`record_mttkrp`](Self::record_mttkrp), is not divided. What was uploaded before belongs to the other `Gpu`.
    ///
    /// ```
    /// use polyad::{Backend, Gpu};
    /// use std::time::Duration;
    /// # let Ok(gpu) = Gpu::new() else { return };
    /// assert_eq!(gpu.caps().dispatch_target, Duration::from_millis(100));
    /// let gpu = gpu.with_dispatch_target(Duration::from_millis(10));
    /// assert_eq!(gpu.caps().dispatch_target, Duration::from_millis(10));
    /// ```
    pub fn with_dispatch_target(&self, target: Duration) -> Self {
        let caps = DeviceCaps { dispatch_target: target, ..self.caps().clone() };
        Self::on(self.inner.device.clone(), self.inner.queue.clone(), caps, self.inner.warnings.clone())
    }

    /// The device and queue it works on.
    ///
    /// ```no_run
    /// # fn show(gpu: &polyad::Gpu) {
    /// let (device, _queue) = gpu.device_and_queue();
    /// println!("{:?}", device.features());
    /// # }
    /// ```
    pub fn device_and_queue(&self) -> (&wgpu::Device, &wgpu::Queue) {
        (&self.inner.device, &self.inner.queue)
    }

    fn on(device: wgpu::Device, queue: wgpu::Queue, caps: DeviceCaps, warnings: Vec<String>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let (pipelines, scratch, pace, ledger) = Default::default();
        Self { inner: Arc::new(Inner { id, device, queue, caps, pipelines, scratch, pace, ledger, warnings }) }
    }
}

impl Inner {
    fn encoder(&self, what: &str) -> wgpu::CommandEncoder {
        let label = format!("polyad.{what}");
        self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some(&label) })
    }

    /// Waits for a submission, or for everything.
    fn wait(&self, submission_index: Option<wgpu::SubmissionIndex>, during: &str) -> Result<()> {
        let poll = wgpu::PollType::Wait { submission_index, timeout: Some(PATIENCE) };
        match self.device.poll(poll) {
            Ok(_) => Ok(()),
            Err(error) => Err(Error::Gpu { during: during.into(), message: one_line(&error.to_string()) }),
        }
    }
}

impl Backend for Gpu {
    type Tensor<'a, T: Real> = GpuTensor<'a, T>;
    type Factors<T: Real> = GpuFactors<T>;

    fn name(&self) -> String {
        self.inner.caps.name.clone()
    }

    fn caps(&self) -> &DeviceCaps {
        &self.inner.caps
    }

    fn upload_tensor<'a, T: Real, D: Dimension>(&self, x: ArrayView<'a, T, D>) -> Result<GpuTensor<'a, T>> {
        self.inner.upload_tensor(x, false)
    }

    fn place_tensor<'a, T: Real, D: Dimension>(
        &self,
        need: Footprint,
        x: ArrayView<'a, T, D>,
    ) -> Result<GpuTensor<'a, T>> {
        let needed = need.peak();
        if let Some(available) = self.caps().memory.filter(|&memory| needed > memory) {
            let what = "the tensor with what is needed beside it".into();
            return Err(Error::LimitTooSmall { limit: "device memory", what, needed, available });
        }
        self.inner.upload_tensor(x, need.streaming.is_some())
    }

    fn upload_factors<T: Real>(
        &self,
        weights: Option<ArrayView1<'_, T>>,
        factors: &[ArrayView2<'_, T>],
    ) -> Result<GpuFactors<T>> {
        self.inner.upload_factors(weights, factors)
    }

    fn set_factor<T: Real>(&self, u: &mut GpuFactors<T>, mode: usize, factor: ArrayView2<'_, T>) -> Result<()> {
        self.inner.set_factor(u, mode, factor)
    }

    fn mttkrp_into<T: Real>(
        &self,
        plan: &MttkrpPlan,
        x: &GpuTensor<'_, T>,
        u: &GpuFactors<T>,
        mut g: ArrayViewMut2<'_, T>,
    ) -> Result<MttkrpTime> {
        let inner = &*self.inner;
        let expected = (plan.shape().rows(plan.mode()), plan.rank());
        if g.dim() != expected {
            return Err(Error::OutputShape { expected, found: g.dim() });
        }
        let out = inner.output::<T>(plan)?;
        let stopwatch = timing::Stopwatch::new(inner, 1)?;
        inner.pace_mttkrp(inner.chosen(plan, x, u), x, u, &out)?;
        let start = Instant::now();
        let prepared = inner.prepare_mttkrp(inner.chosen(plan, x, u), x, u, &out)?;
        let submission = inner.submit_mttkrp(&[&prepared], x, stopwatch.as_ref(), |encoder| {
            if let Some(stopwatch) = &stopwatch {
                stopwatch.resolve(encoder);
            }
        })?;
        // Parameters are gone when the result is read.
        drop(prepared);
        scope::scoped(&inner.device, "an MTTKRP", || inner.wait(Some(submission), "an MTTKRP"))?;
        let wall = start.elapsed();
        inner.read(&out, g.view_mut())?;
        let whole = start.elapsed();
        let compute = stopwatch.map_or(Ok(wall), |stopwatch| stopwatch.elapsed(inner))?;
        if let Some(((i, r), _)) = g.indexed_iter().find(|(_, v)| !v.is_finite()) {
            let what = format!("the MTTKRP of mode {}", plan.mode());
            return Err(Error::Overflow { what, dtype: T::DTYPE.name(), index: vec![i, r] });
        }
        let fallback = !std::ptr::eq(inner.chosen(plan, x, u), plan);
        Ok(MttkrpTime { compute, transfer: whole.saturating_sub(compute), fallback })
    }

    fn als_steps<'a, 'x: 'a, T: Real>(
        &'a self,
        plans: &'a [MttkrpPlan],
        tree: &'a TreePlan,
        x: &'a GpuTensor<'x, T>,
        data: ArrayViewD<'a, T>,
        factors: Vec<Array2<T>>,
    ) -> Result<Box<dyn AlsSteps<T> + 'a>> {
        let updates: Result<Vec<_>> = plans.iter().map(|plan| UpdatePlan::new(plan, self.caps())).collect();
        match updates {
            Ok(updates) => Ok(Box::new(steps::GpuSteps::new(&self.inner, plans, tree, updates, x, &factors)?)),
            Err(why) => {
                let place = format!("on the host: {why}");
                Ok(Box::new(HostSteps::new(self, plans, x, data, factors, place)?.without_tree(tree)))
            }
        }
    }
}
