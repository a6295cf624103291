//! CP-ALS.

mod options;

pub use options::{CpAlsOptions, CpAlsResult, Init, Seconds, Stop, Sweep};

use crate::{Backend, Real, Result};
use ndarray::{ArrayView, Dimension};
use std::ops::ControlFlow;

/// CP-ALS without a callback.
pub fn cp_als<B: Backend, T: Real, D: Dimension>(
    backend: &B,
    x: ArrayView<'_, T, D>,
    options: &CpAlsOptions,
) -> Result<CpAlsResult<T>> {
    cp_als_with(backend, x, options, |_| ControlFlow::Continue(()))
}

/// CP-ALS.
pub fn cp_als_with<B: Backend, T: Real, D: Dimension>(
    _backend: &B,
    _x: ArrayView<'_, T, D>,
    _options: &CpAlsOptions,
    _callback: impl FnMut(&Sweep) -> ControlFlow<()>,
) -> Result<CpAlsResult<T>> {
    todo!()
}
