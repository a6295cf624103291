//! A device chosen at run time: the CPU or a GPU.

use crate::plan::{DeviceCaps, MttkrpPlan};
use crate::{Backend, Cpu, CpuFactors, Dtype, MttkrpTime, Real, Result, Shape};
#[cfg(feature = "gpu")]
use crate::{Gpu, GpuFactors, GpuTensor};
use ndarray::{ArrayView, ArrayView1, ArrayView2, ArrayViewMut2, CowArray, Dimension, IxDyn};

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
    Gpu(GpuTensor<T>),
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
    pub fn auto(_shape: &Shape, _rank: usize, _dtype: Dtype) -> (Self, String) {
        (Self::Cpu(Cpu::new()), "stub".into())
    }
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
}

#[cfg(feature = "gpu")]
fn other_device(what: &str) -> crate::Error {
    crate::Error::PlanMismatch { reason: format!("{what} were uploaded to another device") }
}
