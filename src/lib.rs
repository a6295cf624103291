//! CP (CANDECOMP/PARAFAC) decomposition of dense tensors, on any GPU or on the CPU.
//!
//! A CP model of rank R writes a tensor as a sum of R components, each an outer product of one vector per mode:
//! `X[i, j, k] ~ sum_r weights[r] A[i, r] B[j, r] C[k, r]`. [`cp_als`] fits one by alternating least squares. Its costly
//! step, the MTTKRP (matricized tensor times Khatri-Rao product), runs on a [`Backend`]: the [`Cpu`] (rayon) or a
//! `Gpu` (WGSL compute shaders through wgpu, on Vulkan, Metal and DX12). Tensors come in as ndarray views of order 1 to
//! 8, f32 or f64, in any memory order; models go out as a [`CpTensor`].
//!
//! # On the CPU
//!
//! ```
//! use ndarray::Array3;
//! use polyad::{CpAlsOptions, Cpu, cp_als};
//!
//! let x = Array3::from_shape_fn((6, 5, 4), |(i, j, k)| ((i + 1) * (j + 2) * (k + 3)) as f64);
//! let result = cp_als(&Cpu::new(), x.view(), &CpAlsOptions::new(1))?;
//! assert!(result.fit > 0.999999);
//! let (weights, factors) = result.model.into_parts();
//! assert_eq!((weights.len(), factors[2].dim()), (1, (4, 1)));
//! # Ok::<(), polyad::Error>(())
//! ```
//!
//! # On a GPU
//!
//! The same call. One MTTKRP can be planned before a device is touched, and its operands stay on the device:
//!
//! ```
//! # #[cfg(feature = "gpu")] fn main() -> polyad::Result<()> {
//! # use ndarray::{Array2, Array3};
//! # use polyad::{Backend, CpAlsOptions, Gpu, MttkrpPlan, PlanOptions, cp_als};
//! let gpu = match Gpu::new() {
//!     Ok(gpu) => gpu,
//!     Err(error) => {
//!         println!("no GPU: {error}");
//!         return Ok(());
//!     }
//! };
//! let x = Array3::from_shape_fn((6, 5, 4), |(i, j, k)| ((i + 1) * (j + 2) * (k + 3)) as f32);
//! assert!(cp_als(&gpu, x.view(), &CpAlsOptions::new(1))?.fit > 0.999);
//!
//! let plan = MttkrpPlan::new(x.shape(), 0, 2, &PlanOptions::default(), gpu.caps())?;
//! println!("{plan}");
//! let [a, b, c] = [6, 5, 4].map(|rows| Array2::<f32>::ones((rows, 2)));
//! let (xd, u) = (gpu.upload_tensor(x.view())?, gpu.upload_factors(None, &[a.view(), b.view(), c.view()])?);
//! let mut g = Array2::zeros((6, 2));
//! gpu.mttkrp_into(&plan, &xd, &u, g.view_mut())?;
//! assert_eq!(g[[1, 0]], 2.0 * 20.0 * 18.0);
//! # Ok(()) }
//! # #[cfg(not(feature = "gpu"))] fn main() {}
//! ```
//!
//! # Where things are
//!
//! - [`cp_als`], [`cp_als_with`], [`CpAlsOptions`], [`CpAlsResult`]: the decomposition.
//! - [`guide`]: which option for what, with a small program each, and what they are called in other packages.
//! - [`CpTensor`]: a model; normalize, arrange, fix signs, expand, compare, core consistency.
//! - [`Cpu`], `Gpu`, [`Device`]: where it runs; [`Device::auto`] chooses. [`Backend`] is what they share.
//! - [`plan`]: how an MTTKRP will be computed, as plain arithmetic. [`reference`](mod@reference): what it is, in f64.
//! - [`io`]: `.npy`, `.npz` and Tensor Toolbox text.
//! - `plot`: SVG figures of factors.
//! - [`Error`]: everything that can go wrong, with its numbers. Nothing here prints, panics on bad input, or has global
//!   state.
//!
//! # Features
//!
//! Both are on by default: `gpu` (wgpu, `Gpu`) and `cli` (the program `polyad`, and `plot`).

mod als;
mod backend;
mod cp_tensor;
mod cpu;
mod device;
mod error;
#[cfg(feature = "gpu")]
mod gpu;
pub mod guide;
pub mod io;
pub mod plan;
#[cfg(feature = "cli")]
pub mod plot;
mod real;
mod shape;

pub use als::{Checkpoint, CpAlsOptions, CpAlsResult, Every, Init, Seconds, Stop, Sweep, cp_als, cp_als_with};
pub use backend::{Backend, MttkrpTime};
pub use cp_tensor::{CpTensor, Score, ScoreOptions};
pub use cpu::{Cpu, CpuFactors, reference};
pub use device::{Device, DeviceFactors, DeviceTensor};
pub use error::{Error, Result};
#[cfg(feature = "gpu")]
pub use gpu::{
    AdapterSummary, DeviceMemory, FeatureUse, Gpu, GpuBuilder, GpuFactors, GpuMatrix, GpuTensor, TuneOptions,
    TuneReport, TunedRegime,
};
pub use plan::{Method, MttkrpPlan, PlanOptions, Precision, Tree};
pub use real::{Dtype, Real};
pub use shape::{MAX_ORDER, Shape};
#[cfg(feature = "gpu")]
pub use wgpu;

/// The README's Rust code, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
