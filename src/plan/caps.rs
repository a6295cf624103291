//! What a plan knows of a device: limits and features as plain numbers.

use super::Tuning;
use std::time::Duration;

/// Far below the seconds after which a watchdog resets a GPU, and short enough for a display on the same one.
const DISPATCH_TARGET: Duration = Duration::from_millis(100);

/// What sort of device it is.
///
/// ```
/// assert!(polyad::plan::DeviceKind::Software < polyad::plan::DeviceKind::DiscreteGpu);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DeviceKind {
    /// This crate's own rayon backend.
    Cpu,
    /// A GPU API run in software on the CPU (lavapipe, SwiftShader, WARP).
    Software,
    /// An adapter that does not say what it is.
    Other,
    /// A GPU shared into a virtual machine.
    VirtualGpu,
    /// A GPU that shares the CPU's memory.
    IntegratedGpu,
    /// A GPU with memory of its own.
    DiscreteGpu,
}

impl DeviceKind {
    /// A word for it, as the command line prints it.
    ///
    /// ```
    /// assert_eq!(polyad::plan::DeviceKind::DiscreteGpu.name(), "discrete GPU");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Software => "software",
            Self::Other => "other",
            Self::VirtualGpu => "virtual GPU",
            Self::IntegratedGpu => "integrated GPU",
            Self::DiscreteGpu => "discrete GPU",
        }
    }
}

/// Limits and features of a device. Bytes are bytes; counts are counts.
///
/// ```
/// use polyad::{plan::DeviceCaps, Backend, Cpu};
/// let caps: &DeviceCaps = &DeviceCaps::cpu(4);
/// assert!(caps.f64 && caps.threads == 4);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceCaps {
    /// Name of the adapter, or `CPU`.
    pub name: String,
    /// What sort of device it is.
    pub kind: DeviceKind,
    /// Bytes of device memory that may be used, where it is known. What does not fit streams ([`Streaming`](super::Streaming)).
    pub memory: Option<u64>,
    /// Largest storage-buffer binding, in bytes. Larger data are cut into slabs.
    pub max_binding_bytes: u64,
    /// Largest slab of the tensor, in bytes, below what the other limits allow.
    pub max_slab_bytes: u64,
    /// Largest buffer, in bytes.
    pub max_buffer_bytes: u64,
    /// Storage buffers one kernel may bind.
    pub max_storage_buffers: u32,
    /// Invocations of one workgroup.
    pub max_workgroup_invocations: u32,
    /// Workgroup memory, in bytes.
    pub max_workgroup_memory: u32,
    /// Workgroups along one dimension of a grid.
    pub max_workgroups_per_dim: u32,
    /// Alignment of dynamic uniform offsets, in bytes.
    pub uniform_alignment: u32,
    /// f64 arithmetic in kernels.
    pub f64: bool,
    /// f32 atomic addition on storage buffers.
    pub f32_atomics: bool,
    /// 64-bit atomic compare-exchange on storage buffers (f64 sums by atomics need it).
    pub u64_atomics: bool,
    /// f16 matrix units with f32 sums, 16x16x16, usable from kernels.
    pub f16_matrix_units: bool,
    /// f32 matrix units, 8x8x8, usable from kernels.
    pub f32_matrix_units: bool,
    /// Invocations of a subgroup; 0 where it varies or is not known.
    pub subgroup_size: u32,
    /// Timestamps inside an encoder.
    pub timestamps: bool,
    /// CPU threads that share the work (1 on a GPU).
    pub threads: usize,
    /// The longest that one dispatch is meant to take on a GPU; longer ones are done in parts.
    pub dispatch_target: Duration,
    /// Tiles measured on this machine, which plans prefer to the built-in ones.
    pub tuning: Option<Tuning>,
}

impl DeviceCaps {
    /// The CPU backend with that many threads: no limits but memory.
    ///
    /// ```
    /// assert_eq!(polyad::plan::DeviceCaps::cpu(2).name, "CPU");
    /// ```
    pub fn cpu(threads: usize) -> Self {
        Self {
            name: "CPU".into(),
            kind: DeviceKind::Cpu,
            memory: None,
            max_binding_bytes: u64::MAX,
            max_slab_bytes: u64::MAX,
            max_buffer_bytes: u64::MAX,
            max_storage_buffers: u32::MAX,
            max_workgroup_invocations: 1,
            max_workgroup_memory: u32::MAX,
            max_workgroups_per_dim: u32::MAX,
            uniform_alignment: 1,
            f64: true,
            f32_atomics: false,
            u64_atomics: false,
            f16_matrix_units: false,
            f32_matrix_units: false,
            subgroup_size: 0,
            timestamps: false,
            threads: threads.max(1),
            dispatch_target: DISPATCH_TARGET,
            tuning: None,
        }
    }

    /// The smallest GPU that WebGPU allows: default limits, no optional feature.
    ///
    /// ```
    /// let caps = polyad::plan::DeviceCaps::webgpu_minimum("any GPU");
    /// assert_eq!((caps.max_workgroup_memory, caps.f64), (16384, false));
    /// ```
    pub fn webgpu_minimum(name: &str) -> Self {
        Self {
            name: name.into(),
            kind: DeviceKind::Other,
            memory: None,
            max_binding_bytes: 128 << 20,
            max_slab_bytes: u64::MAX,
            max_buffer_bytes: 256 << 20,
            max_storage_buffers: 8,
            max_workgroup_invocations: 256,
            max_workgroup_memory: 16384,
            max_workgroups_per_dim: 65535,
            uniform_alignment: 256,
            f64: false,
            f32_atomics: false,
            u64_atomics: false,
            f16_matrix_units: false,
            f32_matrix_units: false,
            subgroup_size: 0,
            timestamps: false,
            threads: 1,
            dispatch_target: DISPATCH_TARGET,
            tuning: None,
        }
    }
}
