//! `--device`, `--tuning`, `--no-tuning`: which device computes, with which tiles, and why.

use crate::args::{Work, at_least_one};
use crate::failure::Failure;
use crate::report::warn;
use polyad::{Backend, Cpu, Device, Dtype, Error, Shape};

/// A device, the dtype it computes in, and the reason for both.
#[derive(Debug)]
pub struct Choice {
    /// The device.
    pub device: Device,
    /// The dtype: the one asked for, else the file's if the device has it.
    pub dtype: Dtype,
    /// Why this device, for people.
    pub why: String,
    /// What the user should know; already printed.
    pub warnings: Vec<String>,
}

/// Starts the threads of `--threads`, which all work on the CPU is done by: before anything is read, as reading uses them.
pub fn start_threads(threads: Option<usize>) -> Result<(), Failure> {
    let Some(threads) = threads else { return Ok(()) };
    at_least_one("--threads", threads)?;
    let started = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
    started.map_err(|e| Failure::Failed(format!("--threads {threads}: {e}")))
}

/// Chooses a device for a problem. `natural` is the file's dtype.
pub fn choose(work: &Work, shape: &Shape, rank: usize, natural: Dtype) -> Result<Choice, Failure> {
    let asked = work.dtype;
    let wanted = asked.unwrap_or(natural);
    let (device, why) = match work.device.to_ascii_lowercase().as_str() {
        "auto" => {
            let (device, why) = Device::auto(shape, rank, wanted);
            (retuned(device, work)?, why)
        }
        "cpu" => (Device::Cpu(Cpu::new()), "asked for".into()),
        "" => return Err(Failure::Usage("--device is empty: it must be auto, cpu, gpu or an adapter's name".into())),
        "gpu" => open(None, work)?,
        _ => open(Some(&work.device), work)?,
    };
    let device = within_budget(device, work);
    let mut warnings = warnings_of(&device);
    if work.tuning.is_some() && matches!(device, Device::Cpu(_)) {
        warnings.push("--tuning has no use on the CPU".into());
    }
    if !device.caps().f64 && wanted == Dtype::F64 {
        if asked.is_some() {
            return Err(Failure::from(Error::MissingFeature {
                adapter: device.name(),
                feature: "SHADER_F64",
                needed_for: "--dtype f64".into(),
            }));
        }
        warnings.push(format!("{} has no f64: computing in f32", device.name()));
    }
    let dtype = if device.caps().f64 { wanted } else { Dtype::F32 };
    if device.caps().kind == polyad::plan::DeviceKind::Software {
        warnings.push(format!("{} is a software adapter, not a GPU", device.name()));
    }
    for warning in &warnings {
        warn(warning);
    }
    Ok(Choice { device, dtype, why, warnings })
}

/// The device of a word: cpu, gpu, or part of an adapter's name. Its warnings are printed.
pub fn choose_by_name(word: &str) -> Result<Device, Failure> {
    let device = match word.to_ascii_lowercase().as_str() {
        "cpu" => Device::Cpu(Cpu::new()),
        "" => return Err(Failure::Usage("--device is empty: it must be cpu, gpu or an adapter's name".into())),
        "gpu" => gpu(None)?,
        _ => gpu(Some(word))?,
    };
    warnings_of(&device).iter().for_each(|warning| warn(warning));
    if device.caps().kind == polyad::plan::DeviceKind::Software {
        warn(&format!("{} is a software adapter, not a GPU", device.name()));
    }
    Ok(device)
}

#[cfg(feature = "gpu")]
fn gpu(name: Option<&str>) -> Result<Device, Failure> {
    open_gpu(name, |builder| builder).map(Device::Gpu)
}

#[cfg(not(feature = "gpu"))]
fn gpu(name: Option<&str>) -> Result<Device, Failure> {
    let word = name.unwrap_or("gpu");
    Err(Failure::Usage(format!("--device {word}: this polyad was built without GPU support (feature \"gpu\")")))
}

/// The best adapter, or the one of that name, opened as `with` has it.
#[cfg(feature = "gpu")]
pub fn open_gpu(
    name: Option<&str>,
    with: impl FnOnce(polyad::GpuBuilder) -> polyad::GpuBuilder,
) -> Result<polyad::Gpu, Failure> {
    let builder = with(polyad::Gpu::builder());
    let Some(name) = name else { return Ok(builder.build()?) };
    builder.adapter_name(name).build().map_err(|error| match error {
        // Where there is no adapter at all, any name is an unknown one.
        Error::NoAdapter { .. } => Error::UnknownAdapter { name: name.into(), seen: Vec::new() }.into(),
        error => error.into(),
    })
}

#[cfg(feature = "gpu")]
fn open(name: Option<&str>, work: &Work) -> Result<(Device, String), Failure> {
    let gpu = open_gpu(name, |builder| match &work.tuning {
        _ if work.no_tuning => builder.no_tuning(),
        Some(path) => builder.tuning_file(path),
        None => builder,
    })?;
    let why = name.map_or("asked for, the best adapter there is".into(), |name| format!("asked for by {name:?}"));
    Ok((Device::Gpu(gpu), why))
}

#[cfg(not(feature = "gpu"))]
fn open(name: Option<&str>, _work: &Work) -> Result<(Device, String), Failure> {
    let word = name.unwrap_or("gpu");
    Err(Failure::Usage(format!("--device {word}: this polyad was built without GPU support (feature \"gpu\")")))
}

/// A device that was chosen without asking for a tuning file, with the one asked for.
#[cfg(feature = "gpu")]
fn retuned(device: Device, work: &Work) -> Result<Device, Failure> {
    Ok(match (device, &work.tuning) {
        (Device::Gpu(gpu), _) if work.no_tuning => Device::Gpu(gpu.without_tuning()),
        (Device::Gpu(gpu), Some(path)) => Device::Gpu(gpu.with_tuning_file(path)?),
        (device, _) => device,
    })
}

#[cfg(not(feature = "gpu"))]
fn retuned(device: Device, _work: &Work) -> Result<Device, Failure> {
    Ok(device)
}

/// With the memory of `--card-memory` and, on a GPU, the time of `--dispatch-ms`.
fn within_budget(device: Device, work: &Work) -> Device {
    match device {
        Device::Cpu(cpu) => Device::Cpu(work.card_memory.map_or(cpu.clone(), |bytes| cpu.with_memory_budget(bytes.0))),
        #[cfg(feature = "gpu")]
        Device::Gpu(mut gpu) => {
            if let Some(bytes) = work.card_memory {
                gpu = gpu.with_memory_budget(bytes.0);
            }
            if let Some(target) = work.dispatch_ms {
                gpu = gpu.with_dispatch_target(target);
            }
            Device::Gpu(gpu)
        }
        other => other,
    }
}

/// What the device itself has to say.
fn warnings_of(device: &Device) -> Vec<String> {
    match device {
        #[cfg(feature = "gpu")]
        Device::Gpu(gpu) => gpu.warnings().to_vec(),
        _ => Vec::new(),
    }
}
