//! A device chosen at run time: the CPU or a GPU.

use crate::als::{AlsSteps, CpAlsOptions, CpAlsResult, Sweep, cp_als_with};
use crate::plan::{DeviceCaps, DeviceKind, Footprint, MttkrpPlan, TreePlan};
use crate::{Backend, Cpu, CpuFactors, Dtype, MttkrpTime, Real, Result, Shape};
#[cfg(feature = "gpu")]
use crate::{Gpu, GpuFactors, GpuTensor};
use ndarray::{Array2, ArrayView, ArrayView1, ArrayView2, ArrayViewD, ArrayViewMut2, CowArray, Dimension, IxDyn};
use std::ops::ControlFlow;

/// The CPU or a GPU behind one type, for programs that choose at run time.
///
/// ```
/// use polyad::{Backend, Device, Dtype, Shape};
/// let (device, reason) = Device::auto(&Shape::new(&[4, 5, 6]).unwrap(), 2, Dtype::F64);
/// assert_eq!(device.name(), "CPU");
/// assert!(!reason.is_empty());
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Device {
    /// The rayon backend.
    Cpu(Cpu),
    /// A GPU.
    #[cfg(feature = "gpu")]
    Gpu(Gpu),
}

/// A tensor held by a [`Device`].
#[derive(Debug)]
#[non_exhaustive]
pub enum DeviceTensor<'a, T: Real> {
    /// On the CPU, borrowed where it could be.
    Cpu(CowArray<'a, T, IxDyn>),
    /// On a GPU.
    #[cfg(feature = "gpu")]
    Gpu(GpuTensor<'a, T>),
}

/// Factors held by a [`Device`].
#[derive(Debug)]
#[non_exhaustive]
pub enum DeviceFactors<T: Real> {
    /// On the CPU.
    Cpu(CpuFactors<T>),
    /// On a GPU.
    #[cfg(feature = "gpu")]
    Gpu(GpuFactors<T>),
}

impl Device {
    /// A hardware GPU if there is one and the problem is worth its start-up, else the CPU; with the reason.
    /// Never a software adapter.
    ///
    /// ```
    /// use polyad::{Backend, Device, Dtype, Shape};
    /// let (device, reason) = Device::auto(&Shape::new(&[10, 10, 10]).unwrap(), 2, Dtype::F32);
    /// println!("{} because {reason}", device.name());
    /// ```
    pub fn auto(shape: &Shape, rank: usize, dtype: Dtype) -> (Self, String) {
        let cpu = Cpu::new();
        let seconds = cpu_seconds(shape, rank, cpu.caps().threads);
        if seconds < GPU_START_SECONDS {
            let reason = format!("about {seconds:.1e} s of work, less than a GPU takes to start");
            return (Self::Cpu(cpu), reason);
        }
        let (device, reason) = gpu_or_why_not(shape, dtype);
        (device.unwrap_or(Self::Cpu(cpu)), reason)
    }
}

impl Device {
    /// CP-ALS as by [`cp_als_with`], which goes on on the CPU where a GPU fails: from the checkpoint, if the options have one
    /// and it was written, else from the start. A warning in the result says so. Without this call a failure is an error.
    ///
    /// # Errors
    /// As [`cp_als_with`], but for failures of a GPU.
    ///
    /// ```
    /// use polyad::{CpAlsOptions, Device, Dtype, Shape};
    /// use std::ops::ControlFlow;
    /// let x = ndarray::Array2::<f32>::eye(3);
    /// let (device, _) = Device::auto(&Shape::new(&[3, 3])?, 2, Dtype::F32);
    /// let result = device.cp_als_or_on_cpu(x.view(), &CpAlsOptions::new(2), |_| ControlFlow::Continue(()))?;
    /// assert!(result.warnings.iter().all(|warning| !warning.contains("went on on the CPU")));
    /// # Ok::<(), polyad::Error>(())
    /// ```
    pub fn cp_als_or_on_cpu<T: Real, D: Dimension>(
        &self,
        x: ArrayView<'_, T, D>,
        options: &CpAlsOptions,
        mut callback: impl FnMut(&Sweep) -> ControlFlow<()>,
    ) -> Result<CpAlsResult<T>> {
        let error = match cp_als_with(self, x.view(), options, &mut callback) {
            Err(error) if error.is_of_device() && self.caps().kind != DeviceKind::Cpu => error,
            done => return done,
        };
        let mut options = options.clone();
        options.checkpoint = options.checkpoint.map(|checkpoint| checkpoint.resume(true));
        let from = match &options.checkpoint {
            Some(checkpoint) if checkpoint.file().exists() => "from the checkpoint",
            _ => "from the start",
        };
        let mut result = cp_als_with(&Cpu::new(), x, &options, callback)?;
        result.warnings.push(format!("{error}: went on on the CPU, {from}"));
        Ok(result)
    }
}

/// What opening a device, compiling kernels and the first upload take.
const GPU_START_SECONDS: f64 = 1.0;

/// A rough guess at CP-ALS on the CPU: 20 sweeps of one MTTKRP per mode, `2 N R` flops each, at 30 GFLOP/s per thread.
fn cpu_seconds(shape: &Shape, rank: usize, threads: usize) -> f64 {
    let flops = 2.0 * shape.len() as f64 * rank as f64 * shape.order() as f64 * 20.0;
    flops / (3e10 * threads as f64)
}

#[cfg(feature = "gpu")]
fn gpu_or_why_not(shape: &Shape, dtype: Dtype) -> (Option<Device>, String) {
    let gpu = match Gpu::builder().hardware_only().build() {
        Ok(gpu) => gpu,
        Err(error) => return (None, format!("no hardware GPU: {error}")),
    };
    let caps = gpu.caps();
    if dtype == Dtype::F64 && !caps.f64 {
        return (None, format!("{} lacks f64", caps.name));
    }
    let bytes = shape.len() as u64 * dtype.bytes();
    if let Some(memory) = caps.memory.filter(|&memory| bytes > memory) {
        return (None, format!("{} has {memory} bytes, the tensor takes {bytes} and would stream", caps.name));
    }
    let reason = format!("a {} with room for the tensor's {bytes} bytes", caps.kind.name());
    (Some(Device::Gpu(gpu)), reason)
}

#[cfg(not(feature = "gpu"))]
fn gpu_or_why_not(_shape: &Shape, _dtype: Dtype) -> (Option<Device>, String) {
    (None, "this build has no GPU backend".into())
}

impl Backend for Device {
    type Tensor<'a, T: Real> = DeviceTensor<'a, T>;
    type Factors<T: Real> = DeviceFactors<T>;

    fn name(&self) -> String {
        match self {
            Self::Cpu(d) => d.name(),
            #[cfg(feature = "gpu")]
            Self::Gpu(d) => d.name(),
        }
    }

    fn caps(&self) -> &DeviceCaps {
        match self {
            Self::Cpu(d) => d.caps(),
            #[cfg(feature = "gpu")]
            Self::Gpu(d) => d.caps(),
        }
    }

    fn upload_tensor<'a, T: Real, D: Dimension>(&self, x: ArrayView<'a, T, D>) -> Result<Self::Tensor<'a, T>> {
        match self {
            Self::Cpu(d) => d.upload_tensor(x).map(DeviceTensor::Cpu),
            #[cfg(feature = "gpu")]
            Self::Gpu(d) => d.upload_tensor(x).map(DeviceTensor::Gpu),
        }
    }

    fn place_tensor<'a, T: Real, D: Dimension>(
        &self,
        need: Footprint,
        x: ArrayView<'a, T, D>,
    ) -> Result<Self::Tensor<'a, T>> {
        match self {
            Self::Cpu(d) => d.place_tensor(need, x).map(DeviceTensor::Cpu),
            #[cfg(feature = "gpu")]
            Self::Gpu(d) => d.place_tensor(need, x).map(DeviceTensor::Gpu),
        }
    }

    fn upload_factors<T: Real>(
        &self,
        weights: Option<ArrayView1<'_, T>>,
        factors: &[ArrayView2<'_, T>],
    ) -> Result<Self::Factors<T>> {
        match self {
            Self::Cpu(d) => d.upload_factors(weights, factors).map(DeviceFactors::Cpu),
            #[cfg(feature = "gpu")]
            Self::Gpu(d) => d.upload_factors(weights, factors).map(DeviceFactors::Gpu),
        }
    }

    fn set_factor<T: Real>(&self, u: &mut Self::Factors<T>, mode: usize, factor: ArrayView2<'_, T>) -> Result<()> {
        match (self, u) {
            (Self::Cpu(d), DeviceFactors::Cpu(u)) => d.set_factor(u, mode, factor),
            #[cfg(feature = "gpu")]
            (Self::Gpu(d), DeviceFactors::Gpu(u)) => d.set_factor(u, mode, factor),
            #[cfg(feature = "gpu")]
            _ => Err(other_device("the factors")),
        }
    }

    fn mttkrp_into<T: Real>(
        &self,
        plan: &MttkrpPlan,
        x: &Self::Tensor<'_, T>,
        u: &Self::Factors<T>,
        g: ArrayViewMut2<'_, T>,
    ) -> Result<MttkrpTime> {
        match (self, x, u) {
            (Self::Cpu(d), DeviceTensor::Cpu(x), DeviceFactors::Cpu(u)) => d.mttkrp_into(plan, x, u, g),
            #[cfg(feature = "gpu")]
            (Self::Gpu(d), DeviceTensor::Gpu(x), DeviceFactors::Gpu(u)) => d.mttkrp_into(plan, x, u, g),
            #[cfg(feature = "gpu")]
            _ => Err(other_device("the tensor or the factors")),
        }
    }

    fn als_steps<'a, 'x: 'a, T: Real>(
        &'a self,
        plans: &'a [MttkrpPlan],
        tree: &'a TreePlan,
        x: &'a Self::Tensor<'x, T>,
        data: ArrayViewD<'a, T>,
        factors: Vec<Array2<T>>,
    ) -> Result<Box<dyn AlsSteps<T> + 'a>> {
        match (self, x) {
            (Self::Cpu(d), DeviceTensor::Cpu(x)) => d.als_steps(plans, tree, x, data, factors),
            #[cfg(feature = "gpu")]
            (Self::Gpu(d), DeviceTensor::Gpu(x)) => d.als_steps(plans, tree, x, data, factors),
            #[cfg(feature = "gpu")]
            _ => Err(other_device("the tensor")),
        }
    }
}

#[cfg(feature = "gpu")]
fn other_device(what: &str) -> crate::Error {
    crate::Error::PlanMismatch { reason: format!("{what} were uploaded to another device") }
}
