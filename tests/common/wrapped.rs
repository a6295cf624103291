//! A backend that does its MTTKRPs by another and has a look at each. CP-ALS takes the steps that every backend has.

use ndarray::{ArrayView, ArrayView1, ArrayView2, ArrayViewMut2, Dimension};
use polyad::plan::{DeviceCaps, MttkrpPlan};
use polyad::{Backend, MttkrpTime, Real, Result};

/// The backend, and what is made of every MTTKRP's time.
pub struct Wrapped<'b, B, F>(pub &'b B, pub F);

impl<B: Backend, F: Fn(&MttkrpPlan, MttkrpTime) -> MttkrpTime> Backend for Wrapped<'_, B, F> {
    type Tensor<'a, T: Real> = B::Tensor<'a, T>;
    type Factors<T: Real> = B::Factors<T>;

    fn name(&self) -> String {
        self.0.name()
    }

    fn caps(&self) -> &DeviceCaps {
        self.0.caps()
    }

    fn upload_tensor<'a, T: Real, D: Dimension>(&self, x: ArrayView<'a, T, D>) -> Result<Self::Tensor<'a, T>> {
        self.0.upload_tensor(x)
    }

    fn upload_factors<T: Real>(
        &self,
        weights: Option<ArrayView1<'_, T>>,
        factors: &[ArrayView2<'_, T>],
    ) -> Result<Self::Factors<T>> {
        self.0.upload_factors(weights, factors)
    }

    fn set_factor<T: Real>(&self, u: &mut Self::Factors<T>, mode: usize, factor: ArrayView2<'_, T>) -> Result<()> {
        self.0.set_factor(u, mode, factor)
    }

    fn mttkrp_into<T: Real>(
        &self,
        plan: &MttkrpPlan,
        x: &Self::Tensor<'_, T>,
        u: &Self::Factors<T>,
        g: ArrayViewMut2<'_, T>,
    ) -> Result<MttkrpTime> {
        Ok((self.1)(plan, self.0.mttkrp_into(plan, x, u, g)?))
    }
}
