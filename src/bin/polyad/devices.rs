//! `polyad devices`: every adapter and the CPU, with what counts for this crate.

use crate::failure::Failure;
#[cfg(feature = "gpu")]
use crate::profile::{F16_UNITS, F32_UNITS};
use crate::report::{Out, bytes};
use polyad::plan::DeviceCaps;
use polyad::{Backend, Cpu};
use serde::Serialize;

/// List the devices: GPU adapters with their limits and features, and the CPU
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A device as it is listed.
#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    backend: String,
    kind: &'static str,
    /// Bytes; `null` where unknown.
    memory: Option<u64>,
    driver: Option<String>,
    pci_bus_id: Option<String>,
    /// CPU threads; `null` for an adapter.
    threads: Option<usize>,
    /// `null` for the CPU, which has none.
    limits: Option<Limits>,
    features: Vec<Feature>,
    /// Those that kernels use.
    matrix_units: Vec<&'static str>,
    /// The tuning file in use; `null` where there is none.
    tuning: Option<String>,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Limits {
    max_binding_bytes: u64,
    max_buffer_bytes: u64,
    max_storage_buffers: u32,
    max_workgroup_invocations: u32,
    max_workgroup_memory: u32,
    max_workgroups_per_dim: u32,
    uniform_alignment: u32,
    /// 0 where it varies.
    subgroup_size: u32,
}

#[derive(Debug, Serialize)]
struct Feature {
    name: &'static str,
    present: bool,
    used_for: &'static str,
}

/// Runs the command.
pub fn run(args: &Args, out: &mut Out) -> Result<(), Failure> {
    let cpu = Cpu::new();
    let mut devices = vec![listed_cpu(cpu.caps())];
    devices.extend(adapters());
    if args.json {
        return out.json(&devices);
    }
    for device in &devices {
        print(device, out);
    }
    if devices.len() == 1 {
        out.line(no_adapter());
    }
    Ok(())
}

fn no_adapter() -> &'static str {
    if cfg!(feature = "gpu") {
        "no GPU adapter was found"
    } else {
        "this polyad was built without GPU support (feature \"gpu\")"
    }
}

fn listed_cpu(caps: &DeviceCaps) -> Listed {
    Listed {
        name: caps.name.clone(),
        backend: "cpu".into(),
        kind: caps.kind.name(),
        memory: caps.memory,
        driver: None,
        pci_bus_id: None,
        threads: Some(caps.threads),
        limits: None,
        features: Vec::new(),
        matrix_units: Vec::new(),
        tuning: None,
        warnings: Vec::new(),
    }
}

#[cfg(feature = "gpu")]
fn adapters() -> Vec<Listed> {
    let known = |text: String| if text.is_empty() { None } else { Some(text) };
    let listed = polyad::Gpu::adapters().into_iter().map(|a| Listed {
        name: a.name,
        backend: a.backend,
        kind: a.kind.name(),
        memory: a.caps.memory,
        driver: known(a.driver),
        pci_bus_id: known(a.pci_bus_id),
        threads: None,
        limits: Some(Limits {
            max_binding_bytes: a.caps.max_binding_bytes,
            max_buffer_bytes: a.caps.max_buffer_bytes,
            max_storage_buffers: a.caps.max_storage_buffers,
            max_workgroup_invocations: a.caps.max_workgroup_invocations,
            max_workgroup_memory: a.caps.max_workgroup_memory,
            max_workgroups_per_dim: a.caps.max_workgroups_per_dim,
            uniform_alignment: a.caps.uniform_alignment,
            subgroup_size: a.caps.subgroup_size,
        }),
        features: a
            .features
            .iter()
            .map(|f| Feature { name: f.name, present: f.present, used_for: f.used_for })
            .collect(),
        matrix_units: [(a.caps.f16_matrix_units, F16_UNITS), (a.caps.f32_matrix_units, F32_UNITS)]
            .iter()
            .filter(|(present, _)| *present)
            .map(|&(_, name)| name)
            .collect(),
        tuning: a.caps.tuning.map(|tuning| tuning.name().to_owned()),
        warnings: a.warnings,
    });
    listed.collect()
}

#[cfg(not(feature = "gpu"))]
fn adapters() -> Vec<Listed> {
    Vec::new()
}

fn print(device: &Listed, out: &mut Out) {
    out.line(&device.name);
    let mut row = |what: &str, value: &str| out.line(format_args!("  {what:<29} {value}"));
    row("backend", &device.backend);
    row("kind", device.kind);
    row("memory", &device.memory.map_or("unknown".into(), bytes));
    if let Some(driver) = &device.driver {
        row("driver", driver);
    }
    if let Some(id) = &device.pci_bus_id {
        row("PCI id", id);
    }
    if let Some(threads) = device.threads {
        row("threads", &threads.to_string());
    }
    if let Some(limits) = &device.limits {
        row("largest binding", &bytes(limits.max_binding_bytes));
        row("largest buffer", &bytes(limits.max_buffer_bytes));
        row("storage buffers a kernel", &limits.max_storage_buffers.to_string());
        row("workgroup invocations", &limits.max_workgroup_invocations.to_string());
        row("workgroup memory", &bytes(limits.max_workgroup_memory.into()));
        row("workgroups a dimension", &limits.max_workgroups_per_dim.to_string());
    }
    if device.limits.is_some() {
        row("tuning file", device.tuning.as_deref().unwrap_or("none (`polyad tune` makes one)"));
    }
    for warning in &device.warnings {
        row("warning", warning);
    }
    for feature in &device.features {
        let present = if feature.present { "yes" } else { "no " };
        row(feature.name, &format!("{present}  {}", feature.used_for));
    }
}
