//! Listing adapters and opening one.

use super::Gpu;
use crate::Result;
use crate::plan::{DeviceCaps, DeviceKind};

/// An adapter as `polyad devices` lists it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AdapterSummary {
    /// Its name.
    pub name: String,
    /// `vulkan`, `metal`, `dx12`.
    pub backend: String,
    /// What it is.
    pub kind: DeviceKind,
    /// Driver name and version.
    pub driver: String,
    /// PCI id, empty where unknown. Tells identical cards apart.
    pub pci_bus_id: String,
    /// Limits and features.
    pub caps: DeviceCaps,
    /// The features that count, whether they are there, and what they are for.
    pub features: Vec<FeatureUse>,
}

/// A feature that counts for this crate.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeatureUse {
    /// wgpu's name of it.
    pub name: &'static str,
    /// Whether the adapter has it.
    pub present: bool,
    /// What it is used for.
    pub used_for: &'static str,
}

/// Choices before opening a device.
#[derive(Debug, Clone, Default)]
pub struct GpuBuilder {
    name: Option<String>,
    max_binding_bytes: Option<u64>,
}

impl GpuBuilder {
    /// Only an adapter whose name contains this (any case), or whose PCI id it is.
    pub fn adapter_name(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Cut buffers to at most this many bytes.
    pub fn max_binding_bytes(mut self, bytes: u64) -> Self {
        self.max_binding_bytes = Some(bytes);
        self
    }

    /// Opens it.
    pub fn build(self) -> Result<Gpu> {
        todo!()
    }
}
