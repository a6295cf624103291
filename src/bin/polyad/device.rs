//! `--device`: which device computes, and why.

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

/// Chooses a device for a problem, and starts the threads that all work on the CPU is done by. `natural` is the file's
/// dtype.
pub fn choose(work: &Work, shape: &Shape, rank: usize, natural: Dtype) -> Result<Choice, Failure> {
    if let Some(threads) = work.threads {
        at_least_one("--threads", threads)?;
        let started = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
        started.map_err(|e| Failure::Failed(format!("--threads {threads}: {e}")))?;
    }
    let (word, asked) = (work.device.as_str(), work.dtype);
    let wanted = asked.unwrap_or(natural);
    let (device, why) = match word.to_ascii_lowercase().as_str() {
        "auto" => Device::auto(shape, rank, wanted),
        "cpu" => (Device::Cpu(Cpu::new()), "asked for".into()),
        "" => return Err(Failure::Usage("--device is empty: it must be auto, cpu, gpu or an adapter's name".into())),
        "gpu" => open(None)?,
        _ => open(Some(word))?,
    };
    let mut warnings = Vec::new();
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

/// The best adapter, or the one of that name.
#[cfg(feature = "gpu")]
fn open(name: Option<&str>) -> Result<(Device, String), Failure> {
    let (gpu, why) = match name {
        None => (polyad::Gpu::new(), "asked for, the best adapter there is".to_string()),
        Some(name) => (polyad::Gpu::builder().adapter_name(name).build(), format!("asked for by {name:?}")),
    };
    match (gpu, name) {
        (Ok(gpu), _) => Ok((Device::Gpu(gpu), why)),
        // Where there is no adapter at all, any name is an unknown one.
        (Err(Error::NoAdapter { .. }), Some(name)) => {
            Err(Failure::from(Error::UnknownAdapter { name: name.into(), seen: Vec::new() }))
        }
        (Err(error), _) => Err(Failure::from(error)),
    }
}

#[cfg(not(feature = "gpu"))]
fn open(name: Option<&str>) -> Result<(Device, String), Failure> {
    let word = name.unwrap_or("gpu");
    Err(Failure::Usage(format!("--device {word}: this polyad was built without GPU support (feature \"gpu\")")))
}
