//! The GPU backend: wgpu on Vulkan, Metal and DX12.

mod adapter;

pub use adapter::{AdapterSummary, FeatureUse, GpuBuilder};

use crate::plan::{DeviceCaps, MttkrpPlan};
use crate::{Backend, MttkrpTime, Real, Result};
use ndarray::{ArrayView, ArrayView1, ArrayView2, ArrayViewMut2, Dimension};
use std::marker::PhantomData;
use std::sync::Arc;

/// A GPU: a wgpu device and queue, with this crate's pipelines.
#[derive(Debug, Clone)]
pub struct Gpu {
    caps: Arc<DeviceCaps>,
}

/// A tensor on a GPU.
#[derive(Debug)]
pub struct GpuTensor<T>(PhantomData<T>);

/// Factors on a GPU.
#[derive(Debug)]
pub struct GpuFactors<T>(PhantomData<T>);

impl Gpu {
    /// The best adapter there is.
    pub fn new() -> Result<Self> {
        Self::builder().build()
    }

    /// Choices before opening a device.
    pub fn builder() -> GpuBuilder {
        GpuBuilder::default()
    }

    /// Every adapter that can be seen.
    pub fn adapters() -> Vec<AdapterSummary> {
        Vec::new()
    }
}

impl Backend for Gpu {
    type Tensor<'a, T: Real> = GpuTensor<T>;
    type Factors<T: Real> = GpuFactors<T>;

    fn name(&self) -> String {
        self.caps.name.clone()
    }
    fn caps(&self) -> &DeviceCaps {
        &self.caps
    }
    fn upload_tensor<'a, T: Real, D: Dimension>(&self, _x: ArrayView<'a, T, D>) -> Result<Self::Tensor<'a, T>> {
        todo!()
    }
    fn upload_factors<T: Real>(
        &self,
        _weights: Option<ArrayView1<'_, T>>,
        _factors: &[ArrayView2<'_, T>],
    ) -> Result<Self::Factors<T>> {
        todo!()
    }
    fn set_factor<T: Real>(&self, _u: &mut Self::Factors<T>, _mode: usize, _factor: ArrayView2<'_, T>) -> Result<()> {
        todo!()
    }
    fn mttkrp_into<T: Real>(
        &self,
        _plan: &MttkrpPlan,
        _x: &Self::Tensor<'_, T>,
        _u: &Self::Factors<T>,
        _g: ArrayViewMut2<'_, T>,
    ) -> Result<MttkrpTime> {
        todo!()
    }
}
