//! Measuring: how long recorded work and calls take, what a device can do at most, and data to measure with. The benchmark
//! (`benches/mttkrp`) uses the same files.

pub mod data;
pub mod limits;
#[cfg(feature = "gpu")]
pub mod roofline;
pub mod sweeps;
pub mod timer;

/// What measuring can fail with.
pub type AnyError = Box<dyn std::error::Error>;
