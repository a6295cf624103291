//! Listing adapters, choosing one, opening it.

use super::tuning_file::{self, Identity, Source};
use super::{Gpu, heap};
use crate::plan::{DeviceCaps, DeviceKind, subgroup_size};
use crate::{Error, Result};
use wgpu::Features;

/// An adapter as it can be seen without opening it.
///
/// ```
/// for a in polyad::Gpu::adapters() {
///     println!("{} {} {}", a.backend, a.name, a.kind.name());
/// }
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AdapterSummary {
    /// Its name.
    pub name: String,
    /// `vulkan`, `metal` or `dx12`.
    pub backend: String,
    /// What it is.
    pub kind: DeviceKind,
    /// Driver name and version.
    pub driver: String,
    /// PCI id, empty where unknown. It tells identical cards apart.
    pub pci_bus_id: String,
    /// Limits and features as plans see them.
    pub caps: DeviceCaps,
    /// The features that count for this crate.
    pub features: Vec<FeatureUse>,
    /// What the user should know, one line each: a tuning file that could not be used.
    pub warnings: Vec<String>,
}

/// A feature that counts for this crate.
///
/// ```
/// let missing = |a: &polyad::AdapterSummary| a.features.iter().filter(|f| !f.present).count();
/// for a in polyad::Gpu::adapters() {
///     println!("{} lacks {}", a.name, missing(&a));
/// }
/// ```
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

/// Features this crate asks for where they exist.
const WANTED: [(Features, &str, &str); 7] = [
    (Features::SHADER_F64, "SHADER_F64", "dtype f64"),
    (Features::SHADER_FLOAT32_ATOMIC, "SHADER_FLOAT32_ATOMIC", "atomic f32 sums without a compare-exchange loop"),
    (Features::SHADER_INT64, "SHADER_INT64", "atomic f64 sums"),
    (Features::SHADER_INT64_ATOMIC_ALL_OPS, "SHADER_INT64_ATOMIC_ALL_OPS", "atomic f64 sums"),
    (Features::SHADER_F16, "SHADER_F16", "the fused kernels on matrix units"),
    (
        Features::EXPERIMENTAL_COOPERATIVE_MATRIX,
        "EXPERIMENTAL_COOPERATIVE_MATRIX",
        "the fused kernels on matrix units (16x16x16, f16 with f32 sums; 8x8x8, f32)",
    ),
    (Features::TIMESTAMP_QUERY, "TIMESTAMP_QUERY", "kernel times measured on the device"),
];

/// Choices before opening a device.
///
/// ```no_run
/// let gpu = polyad::Gpu::builder().adapter_name("radeon").build()?;
/// # Ok::<(), polyad::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct GpuBuilder {
    name: Option<String>,
    max_binding_bytes: Option<u64>,
    max_slab_bytes: Option<u64>,
    memory_budget: Option<u64>,
    hardware_only: bool,
    tuning: Source,
}

impl GpuBuilder {
    /// Only an adapter whose name contains this, in any case, or whose PCI id it is.
    ///
    /// ```no_run
    /// let gpu = polyad::Gpu::builder().adapter_name("H200").build()?;
    /// # Ok::<(), polyad::Error>(())
    /// ```
    pub fn adapter_name(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Cuts every large buffer to at most this many bytes, below what the adapter allows.
    ///
    /// ```no_run
    /// let gpu = polyad::Gpu::builder().max_binding_bytes(1 << 20).build()?;
    /// # Ok::<(), polyad::Error>(())
    /// ```
    pub fn max_binding_bytes(mut self, bytes: u64) -> Self {
        self.max_binding_bytes = Some(bytes);
        self
    }

    /// Cuts the tensor to slabs of at most this many bytes, below what the adapter allows. Sums are grouped by slabs, so runs in
    /// the same slabs give the same bits, whether the tensor streams or not.
    ///
    /// ```no_run
    /// let gpu = polyad::Gpu::builder().max_slab_bytes(1 << 28).build()?;
    /// # Ok::<(), polyad::Error>(())
    /// ```
    pub fn max_slab_bytes(mut self, bytes: u64) -> Self {
        self.max_slab_bytes = Some(bytes);
        self
    }

    /// How much of the device's memory may be used: see [`Gpu::with_memory_budget`].
    ///
    /// ```no_run
    /// let gpu = polyad::Gpu::builder().memory_budget(8 << 30).build()?;
    /// # Ok::<(), polyad::Error>(())
    /// ```
    pub fn memory_budget(mut self, bytes: u64) -> Self {
        self.memory_budget = Some(bytes);
        self
    }

    /// Never a software adapter.
    ///
    /// ```no_run
    /// let gpu = polyad::Gpu::builder().hardware_only().build()?;
    /// # Ok::<(), polyad::Error>(())
    /// ```
    pub fn hardware_only(mut self) -> Self {
        self.hardware_only = true;
        self
    }

    /// No tuning file: the built-in tiles. Without this call the adapter's file in the user's cache folder is read, if
    /// there is one (`polyad tune` writes it); one that cannot be used is ignored, and [`Gpu::warnings`] says why.
    ///
    /// ```no_run
    /// let gpu = polyad::Gpu::builder().no_tuning().build()?;
    /// # Ok::<(), polyad::Error>(())
    /// ```
    pub fn no_tuning(mut self) -> Self {
        self.tuning = Source::Off;
        self
    }

    /// This tuning file and no other. If it cannot be used, [`build`](Self::build) fails.
    ///
    /// ```no_run
    /// let gpu = polyad::Gpu::builder().tuning_file("mine.json").build()?;
    /// # Ok::<(), polyad::Error>(())
    /// ```
    pub fn tuning_file(mut self, path: impl Into<std::path::PathBuf>) -> Self {
        self.tuning = Source::File(path.into());
        self
    }

    /// Opens the best adapter that fits: discrete before integrated before virtual before others before software.
    /// Without a name, the environment variable `WGPU_ADAPTER_NAME` is one; `WGPU_BACKEND` narrows the backends.
    ///
    /// # Errors
    /// [`Error::NoAdapter`], [`Error::UnknownAdapter`] with the names seen, [`Error::LimitTooSmall`], [`Error::Gpu`],
    /// and for a file given by [`tuning_file`](Self::tuning_file) what [`Gpu::with_tuning_file`] says.
    ///
    /// ```
    /// let error = polyad::Gpu::builder().adapter_name("no such card").build().unwrap_err();
    /// assert!(error.to_string().contains("no"));
    /// ```
    pub fn build(self) -> Result<Gpu> {
        let (instance, backends) = instance();
        let mut all = pollster::block_on(instance.enumerate_adapters(backends));
        if all.is_empty() {
            return Err(Error::NoAdapter { backends: backend_names(backends) });
        }
        let name = self.name.or_else(|| std::env::var("WGPU_ADAPTER_NAME").ok().filter(|n| !n.is_empty()));
        let seen: Vec<String> = all.iter().map(|a| a.get_info().name).collect();
        if let Some(name) = &name {
            let wanted = name.to_lowercase();
            all.retain(|adapter| {
                let info = adapter.get_info();
                info.name.to_lowercase().contains(&wanted) || info.device_pci_bus_id.eq_ignore_ascii_case(&wanted)
            });
        }
        if self.hardware_only {
            all.retain(|adapter| kind(&adapter.get_info()) != DeviceKind::Software);
        }
        // The first of the best: adapters come in the driver's order.
        let best = all.iter().rev().max_by_key(|adapter| kind(&adapter.get_info()));
        let Some(adapter) = best else {
            return Err(match name {
                Some(name) => Error::UnknownAdapter { name, seen },
                None => Error::UnknownAdapter { name: "hardware".into(), seen },
            });
        };
        let gpu = open(adapter, [self.max_binding_bytes, self.max_slab_bytes], &self.tuning)?;
        Ok(self.memory_budget.map_or_else(|| gpu.clone(), |bytes| gpu.with_memory_budget(bytes)))
    }
}

/// Every adapter of every backend this build has, in the driver's order.
pub(super) fn summaries() -> Vec<AdapterSummary> {
    let (instance, backends) = instance();
    pollster::block_on(instance.enumerate_adapters(backends)).iter().map(summary).collect()
}

fn summary(adapter: &wgpu::Adapter) -> AdapterSummary {
    let (info, features) = (adapter.get_info(), adapter.features());
    let mut caps = caps(&info, features, &adapter.limits(), Some(adapter));
    let (tuning, warning) = tuning_file::load(&Source::Cache, &Identity::of(&info), &caps).unwrap_or_default();
    caps.tuning = tuning;
    AdapterSummary {
        name: info.name.clone(),
        backend: info.backend.to_str().into(),
        kind: kind(&info),
        driver: format!("{} {}", info.driver, info.driver_info).trim().into(),
        pci_bus_id: info.device_pci_bus_id.clone(),
        caps,
        warnings: warning.into_iter().collect(),
        features: WANTED
            .iter()
            .map(|&(feature, name, used_for)| FeatureUse { name, present: features.contains(feature), used_for })
            .collect(),
    }
}

fn instance() -> (wgpu::Instance, wgpu::Backends) {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle_from_env();
    descriptor.backends &= wgpu::Backends::VULKAN | wgpu::Backends::METAL | wgpu::Backends::DX12;
    let backends = descriptor.backends;
    (wgpu::Instance::new(descriptor), backends)
}

fn backend_names(backends: wgpu::Backends) -> String {
    backends.iter_names().map(|(name, _)| name.to_lowercase()).collect::<Vec<_>>().join(", ")
}

fn kind(info: &wgpu::AdapterInfo) -> DeviceKind {
    match info.device_type {
        wgpu::DeviceType::DiscreteGpu => DeviceKind::DiscreteGpu,
        wgpu::DeviceType::IntegratedGpu => DeviceKind::IntegratedGpu,
        wgpu::DeviceType::VirtualGpu => DeviceKind::VirtualGpu,
        wgpu::DeviceType::Cpu => DeviceKind::Software,
        wgpu::DeviceType::Other => DeviceKind::Other,
    }
}

fn open(adapter: &wgpu::Adapter, most: [Option<u64>; 2], tuning: &Source) -> Result<Gpu> {
    let wanted = WANTED.iter().fold(Features::empty(), |all, &(feature, ..)| all | feature);
    let request = adapter.request_device(&wgpu::DeviceDescriptor {
        label: Some("polyad.device"),
        required_features: adapter.features() & wanted,
        required_limits: adapter.limits(),
        // SAFETY: the only experimental feature used is cooperative matrices, with sizes and types that are listed.
        experimental_features: unsafe { wgpu::ExperimentalFeatures::enabled() },
        memory_hints: wgpu::MemoryHints::Performance,
        ..Default::default()
    });
    let name = adapter.get_info().name;
    let (device, queue) = pollster::block_on(request).map_err(|e| Error::Gpu {
        during: format!("opening {name}"),
        message: crate::error::one_line(&e.to_string()),
    })?;
    from_parts(device, queue, Some(adapter), most, tuning)
}

/// A `Gpu` on an open device, whoever opened it, with at most so many bytes in a binding and in a slab.
pub(super) fn from_parts(
    device: wgpu::Device,
    queue: wgpu::Queue,
    adapter: Option<&wgpu::Adapter>,
    [max_binding_bytes, max_slab_bytes]: [Option<u64>; 2],
    tuning: &Source,
) -> Result<Gpu> {
    let mut caps = caps(&device.adapter_info(), device.features(), &device.limits(), adapter);
    check_limits(&device.limits())?;
    if let Some(bytes) = max_binding_bytes {
        caps.max_binding_bytes = caps.max_binding_bytes.min(bytes);
    }
    caps.max_slab_bytes = max_slab_bytes.unwrap_or(caps.max_slab_bytes);
    let (tuning, warning) = tuning_file::load(tuning, &Identity::of(&device.adapter_info()), &caps)?;
    caps.tuning = tuning;
    Ok(Gpu::on(device, queue, caps, warning.into_iter().collect()))
}

fn caps(
    info: &wgpu::AdapterInfo,
    features: Features,
    limits: &wgpu::Limits,
    adapter: Option<&wgpu::Adapter>,
) -> DeviceCaps {
    let mut caps = DeviceCaps::webgpu_minimum(&info.name);
    caps.kind = kind(info);
    caps.memory = adapter.and_then(heap::device_memory);
    caps.max_binding_bytes = limits.max_storage_buffer_binding_size;
    caps.max_buffer_bytes = limits.max_buffer_size;
    caps.max_storage_buffers = limits.max_storage_buffers_per_shader_stage;
    caps.max_workgroup_invocations = limits.max_compute_invocations_per_workgroup;
    caps.max_workgroup_memory = limits.max_compute_workgroup_storage_size;
    caps.max_workgroups_per_dim = limits.max_compute_workgroups_per_dimension;
    caps.uniform_alignment = limits.min_uniform_buffer_offset_alignment;
    caps.f64 = features.contains(Features::SHADER_F64);
    // naga translates f32 atomics for Vulkan and Metal only.
    caps.f32_atomics = features.contains(Features::SHADER_FLOAT32_ATOMIC) && info.backend != wgpu::Backend::Dx12;
    caps.u64_atomics = features.contains(Features::SHADER_INT64 | Features::SHADER_INT64_ATOMIC_ALL_OPS);
    // A varying subgroup size would make the collective operations of matrix units undefined.
    caps.subgroup_size = subgroup_size(&info.name, info.subgroup_min_size, info.subgroup_max_size);
    caps.f32_matrix_units = features.contains(Features::EXPERIMENTAL_COOPERATIVE_MATRIX)
        && adapter.is_some_and(|adapter| adapter.cooperative_matrix_properties().iter().any(is_f32_of_8));
    caps.f16_matrix_units = features.contains(Features::SHADER_F16 | Features::EXPERIMENTAL_COOPERATIVE_MATRIX)
        && adapter.is_some_and(has_f16_matrices);
    caps.timestamps = features.contains(Features::TIMESTAMP_QUERY);
    caps
}

/// Whether 16x16x16 with f16 operands and f32 sums is among what the adapter lists. A software adapter that lists any
/// f16 size with f32 sums counts too: it is for tests, and computes every size alike.
fn has_f16_matrices(adapter: &wgpu::Adapter) -> bool {
    let software = kind(&adapter.get_info()) == DeviceKind::Software;
    adapter.cooperative_matrix_properties().iter().any(|p| {
        let f16 = p.ab_type == wgpu::CooperativeScalarType::F16 && p.cr_type == wgpu::CooperativeScalarType::F32;
        f16 && (software || (p.m_size, p.n_size, p.k_size) == (16, 16, 16))
    })
}

/// 8x8x8 in f32, as Metal has it.
fn is_f32_of_8(p: &wgpu::CooperativeMatrixProperties) -> bool {
    let f32 = wgpu::CooperativeScalarType::F32;
    (p.m_size, p.n_size, p.k_size, p.ab_type, p.cr_type) == (8, 8, 8, f32, f32)
}

/// What every kernel needs; WebGPU's default limits are enough.
fn check_limits(limits: &wgpu::Limits) -> Result<()> {
    let needed = [
        ("max_storage_buffers_per_shader_stage", limits.max_storage_buffers_per_shader_stage, 4),
        ("max_dynamic_uniform_buffers_per_pipeline_layout", limits.max_dynamic_uniform_buffers_per_pipeline_layout, 1),
        ("max_compute_invocations_per_workgroup", limits.max_compute_invocations_per_workgroup, 256),
        ("max_compute_workgroup_size_x", limits.max_compute_workgroup_size_x, 256),
        ("max_compute_workgroup_storage_size", limits.max_compute_workgroup_storage_size, 16384),
        ("max_compute_workgroups_per_dimension", limits.max_compute_workgroups_per_dimension, 1),
    ];
    match needed.into_iter().find(|(_, available, needed)| available < needed) {
        Some((limit, available, needed)) => Err(Error::LimitTooSmall {
            limit,
            what: "polyad".into(),
            needed: u64::from(needed),
            available: u64::from(available),
        }),
        None => Ok(()),
    }
}
