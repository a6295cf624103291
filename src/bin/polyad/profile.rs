//! `--profile`: a device that is not here, as an object of `polyad devices --json` describes it.

use crate::failure::Failure;
use polyad::plan::{DeviceCaps, DeviceKind};
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;

#[derive(Deserialize)]
struct Profile {
    name: String,
    #[serde(default)]
    backend: String,
    kind: String,
    memory: Option<u64>,
    threads: Option<usize>,
    limits: Option<Limits>,
    #[serde(default)]
    features: Vec<Feature>,
    /// Of matrices that matrix units multiply; missing in files of other programs.
    matrix_units: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Limits {
    max_binding_bytes: u64,
    max_buffer_bytes: u64,
    max_storage_buffers: u32,
    max_workgroup_invocations: u32,
    max_workgroup_memory: u32,
    max_workgroups_per_dim: u32,
    subgroup_size: Option<u32>,
    uniform_alignment: Option<u32>,
}

#[derive(Deserialize)]
struct Feature {
    name: String,
    present: bool,
}

/// Words of `matrix_units`.
pub const F16_UNITS: &str = "f16 16x16x16";
/// The other one.
pub const F32_UNITS: &str = "f32 8x8x8";

/// Reads a profile.
pub fn read(path: &Path) -> Result<DeviceCaps, Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| Failure::io(path, &e))?;
    let bad = |reason: String| Failure::Failed(format!("profile {}: {reason}", path.display()));
    let value: Value = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
    if let Value::Array(all) = &value {
        let count = all.len();
        return Err(bad(format!("it is a list of {count} devices: keep one object of `polyad devices --json`")));
    }
    let profile: Profile = serde_json::from_value(value).map_err(|e| bad(e.to_string()))?;
    caps(profile).map_err(bad)
}

fn caps(profile: Profile) -> Result<DeviceCaps, String> {
    let kinds = [
        DeviceKind::Cpu,
        DeviceKind::Software,
        DeviceKind::Other,
        DeviceKind::VirtualGpu,
        DeviceKind::IntegratedGpu,
        DeviceKind::DiscreteGpu,
    ];
    let kind = kinds.into_iter().find(|kind| kind.name() == profile.kind);
    let kind = kind.ok_or_else(|| {
        format!("kind is {:?}: it must be one of {}", profile.kind, kinds.map(DeviceKind::name).join(", "))
    })?;
    if kind == DeviceKind::Cpu {
        let mut caps = DeviceCaps::cpu(profile.threads.unwrap_or(1));
        caps.memory = profile.memory;
        return Ok(caps);
    }
    let limits = profile.limits.ok_or("limits are missing")?;
    let mut caps = DeviceCaps::webgpu_minimum(&profile.name);
    // What every kernel needs of any device.
    let least = [
        ("max_binding_bytes", limits.max_binding_bytes, 4096),
        ("max_buffer_bytes", limits.max_buffer_bytes, 4096),
        ("max_storage_buffers", limits.max_storage_buffers.into(), 4),
        ("max_workgroup_invocations", limits.max_workgroup_invocations.into(), caps.max_workgroup_invocations.into()),
        ("max_workgroup_memory", limits.max_workgroup_memory.into(), caps.max_workgroup_memory.into()),
        ("max_workgroups_per_dim", limits.max_workgroups_per_dim.into(), 1),
    ];
    if let Some((name, value, least)) = least.into_iter().find(|(_, value, least)| value < least) {
        return Err(format!("{name} is {value}: it must be at least {least}"));
    }
    let has = |name: &str| profile.features.iter().any(|feature| feature.name == name && feature.present);
    let units = profile.matrix_units.unwrap_or_default();
    caps.kind = kind;
    caps.memory = profile.memory;
    caps.max_binding_bytes = limits.max_binding_bytes;
    caps.max_buffer_bytes = limits.max_buffer_bytes;
    caps.max_storage_buffers = limits.max_storage_buffers;
    caps.max_workgroup_invocations = limits.max_workgroup_invocations;
    caps.max_workgroup_memory = limits.max_workgroup_memory;
    caps.max_workgroups_per_dim = limits.max_workgroups_per_dim;
    caps.uniform_alignment = limits.uniform_alignment.unwrap_or(caps.uniform_alignment).min(1 << 16);
    caps.subgroup_size = limits.subgroup_size.unwrap_or(0).min(1024);
    caps.f64 = has("SHADER_F64");
    caps.f32_atomics = has("SHADER_FLOAT32_ATOMIC") && profile.backend != "dx12";
    caps.u64_atomics = has("SHADER_INT64") && has("SHADER_INT64_ATOMIC_ALL_OPS");
    caps.f16_matrix_units = units.iter().any(|unit| unit == F16_UNITS);
    caps.f32_matrix_units = units.iter().any(|unit| unit == F32_UNITS);
    caps.timestamps = has("TIMESTAMP_QUERY");
    Ok(caps)
}
