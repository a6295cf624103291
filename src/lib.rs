//! polyad: cross-vendor GPU compute for dense CP (CANDECOMP/PARAFAC) tensor decomposition.

mod als;
mod backend;
mod cp_tensor;
mod cpu;
mod device;
mod error;
#[cfg(feature = "gpu")]
mod gpu;
pub mod io;
pub mod plan;
#[cfg(feature = "cli")]
pub mod plot;
mod real;
mod shape;

pub use als::{CpAlsOptions, CpAlsResult, Init, Seconds, Stop, Sweep, cp_als, cp_als_with};
pub use backend::{Backend, MttkrpTime};
pub use cp_tensor::{CpTensor, Score, ScoreOptions};
pub use cpu::{Cpu, CpuFactors, reference};
pub use device::{Device, DeviceFactors, DeviceTensor};
pub use error::{Error, Result};
#[cfg(feature = "gpu")]
pub use gpu::{AdapterSummary, FeatureUse, Gpu, GpuBuilder, GpuFactors, GpuMatrix, GpuTensor};
pub use plan::{Method, MttkrpPlan, PlanOptions, Precision};
pub use real::{Dtype, Real};
pub use shape::{MAX_ORDER, Shape};
#[cfg(feature = "gpu")]
pub use wgpu;
