//! What CP-ALS asks of a device. Static dispatch; the GPU and the CPU implement it.

use crate::als::{AlsSteps, HostSteps};
use crate::plan::{DeviceCaps, Footprint, MttkrpPlan, PlanOptions, TreePlan};
use crate::{Real, Result};
use ndarray::{Array2, ArrayView, ArrayView1, ArrayView2, ArrayViewD, ArrayViewMut2, Dimension};
use std::time::Duration;

/// Where the time of one MTTKRP went.
///
/// ```
/// assert!(polyad::MttkrpTime::default().compute.is_zero());
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MttkrpTime {
    /// From the first kernel's submission to the last one's end. Of a tensor that streams, most of it may be the bus.
    pub compute: Duration,
    /// Reading the result back (zero on the CPU).
    pub transfer: Duration,
    /// The plan's fallback was used: the numbers' range was too wide for f16 matrix units.
    pub fallback: bool,
}

/// A device that can hold a tensor and factors and run MTTKRP plans.
///
/// ```
/// use ndarray::{array, Array2};
/// use polyad::{Backend, Cpu};
/// let x = array![[1.0, 2.0], [3.0, 4.0]];
/// let (a, b) = (Array2::ones((2, 1)), array![[1.0], [10.0]]);
/// let g = Cpu::new().mttkrp(x.view().into_dyn(), &[a.view(), b.view()], 0).unwrap();
/// assert_eq!(g, array![[21.0], [43.0]]);
/// ```
pub trait Backend {
    /// A tensor on the device. The CPU borrows a row-major tensor instead of copying it.
    type Tensor<'a, T: Real>;
    /// Factor matrices and weights on the device.
    type Factors<T: Real>;

    /// Name of the device, for people.
    fn name(&self) -> String;

    /// Limits and features, as plans want them.
    fn caps(&self) -> &DeviceCaps;

    /// Puts a tensor on the device, whatever its memory order.
    ///
    /// # Errors
    /// What [`Shape::new`](crate::Shape::new) says of the dims, a dtype the device lacks, or no memory for it.
    fn upload_tensor<'a, T: Real, D: Dimension>(&self, x: ArrayView<'a, T, D>) -> Result<Self::Tensor<'a, T>>;

    /// The same for work that needs this much memory, the tensor included: where that is more than the device has, a GPU keeps
    /// the tensor on the host and streams it, if that helps ([`Footprint::streaming`] says so). By default
    /// [`upload_tensor`](Self::upload_tensor).
    ///
    /// # Errors
    /// As for [`upload_tensor`](Self::upload_tensor), and on a GPU where so much is more than its memory.
    fn place_tensor<'a, T: Real, D: Dimension>(
        &self,
        need: Footprint,
        x: ArrayView<'a, T, D>,
    ) -> Result<Self::Tensor<'a, T>> {
        let _ = need;
        self.upload_tensor(x)
    }

    /// Puts factors (`I_n x R` each) and weights (length R; ones where `None`) on the device.
    ///
    /// # Errors
    /// Shapes that do not fit each other, a dtype the device lacks, or no memory for them.
    fn upload_factors<T: Real>(
        &self,
        weights: Option<ArrayView1<'_, T>>,
        factors: &[ArrayView2<'_, T>],
    ) -> Result<Self::Factors<T>>;

    /// Replaces the factor of one mode.
    ///
    /// # Errors
    /// A mode or a shape that does not fit, or a device failure.
    fn set_factor<T: Real>(&self, u: &mut Self::Factors<T>, mode: usize, factor: ArrayView2<'_, T>) -> Result<()>;

    /// `g[i, r] = weights[r] * sum over entries with index i in the plan's mode of x * product over m != mode of
    /// factors[m][i_m, r]`, written to `g` (`I_mode x R`).
    ///
    /// # Errors
    /// A plan that was made for something else, a wrong output shape, a device failure.
    fn mttkrp_into<T: Real>(
        &self,
        plan: &MttkrpPlan,
        x: &Self::Tensor<'_, T>,
        u: &Self::Factors<T>,
        g: ArrayViewMut2<'_, T>,
    ) -> Result<MttkrpTime>;

    /// The steps of CP-ALS on a tensor, from these factors (`I_n x R` each), for [`cp_als`](crate::cp_als), which calls
    /// them; `data` is the tensor on the host. By default there is an MTTKRP for every mode, whatever `tree` says, and
    /// every one comes back to the host, which solves and uploads the new factor. A device that can do better keeps the
    /// factors and products of the tensor with them.
    ///
    /// # Errors
    /// As for [`upload_factors`](Self::upload_factors).
    fn als_steps<'a, 'x: 'a, T: Real>(
        &'a self,
        plans: &'a [MttkrpPlan],
        tree: &'a TreePlan,
        x: &'a Self::Tensor<'x, T>,
        data: ArrayViewD<'a, T>,
        factors: Vec<Array2<T>>,
    ) -> Result<Box<dyn AlsSteps<T> + 'a>>
    where
        Self: Sized,
    {
        Ok(Box::new(HostSteps::new(self, plans, x, data, factors, "on the host".into())?.without_tree(tree)))
    }

    /// One MTTKRP with unit weights and default options: uploads, plans, runs.
    ///
    /// # Errors
    /// As for the steps it is made of.
    fn mttkrp<T: Real>(&self, x: ArrayViewD<'_, T>, factors: &[ArrayView2<'_, T>], mode: usize) -> Result<Array2<T>> {
        let shape = crate::Shape::new(x.shape())?;
        shape.check_mode(mode)?;
        let sizes: Vec<_> = factors.iter().map(|f| f.dim()).collect();
        let rank = shape.check_factors(&sizes, None)?;
        let plan = MttkrpPlan::new(&shape, mode, rank, &PlanOptions::default().dtype(T::DTYPE), self.caps())?;
        let xd = self.place_tensor(Footprint::mttkrp(&plan, self.caps())?, x)?;
        let u = self.upload_factors(None, factors)?;
        let mut g = Array2::zeros((shape.rows(mode), rank));
        self.mttkrp_into(&plan, &xd, &u, g.view_mut())?;
        Ok(g)
    }
}
