//! The CPU backend.

use crate::plan::{DeviceCaps, MttkrpPlan};
use crate::{Backend, MttkrpTime, Real, Result};
use ndarray::{Array1, Array2, ArrayView, ArrayView1, ArrayView2, ArrayViewMut2, CowArray, Dimension, IxDyn};

/// The CPU backend: rayon over this machine's cores.
#[derive(Debug, Clone)]
pub struct Cpu {
    caps: DeviceCaps,
}

impl Cpu {
    /// Uses rayon's current pool.
    pub fn new() -> Self {
        Self { caps: DeviceCaps::cpu(rayon::current_num_threads()) }
    }
}

impl Default for Cpu {
    fn default() -> Self {
        Self::new()
    }
}

/// Factors and weights held by the CPU backend.
#[derive(Debug, Clone)]
pub struct CpuFactors<T> {
    weights: Array1<T>,
    factors: Vec<Array2<T>>,
}

impl Backend for Cpu {
    type Tensor<'a, T: Real> = CowArray<'a, T, IxDyn>;
    type Factors<T: Real> = CpuFactors<T>;

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
