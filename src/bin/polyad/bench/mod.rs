//! `polyad bench`: the figures of arXiv 2510.14891, measured (or, for memory, planned) here, as CSV and SVG.

mod als;
mod memory;
mod models;
mod table;
mod variants;

use crate::args::{self, Bytes, at_most_an_hour, card_memory};
use crate::device::{choose_by_name, start_threads};
use crate::failure::Failure;
use crate::measure::AnyError;
use crate::measure::timer::Effort;
use crate::profile;
use crate::report::{Out, warn};
use clap::ValueEnum;
use polyad::plan::DeviceCaps;
use polyad::{Backend, Device, Dtype, Method, Precision, Shape, io};
use std::cell::OnceCell;
use std::path::PathBuf;
use std::time::Instant;
use table::Table;
use variants::Measured;

/// Measure a figure of the paper: CSV and SVG
///
/// After "A Performance Portable Matrix Free Dense MTTKRP in GenTen", arXiv 2510.14891. memory (its figure 3) is arithmetic
/// on plans: bytes against rank. variants (figure 4): the rate of every method, mean over modes, on each device. als (figure
/// 5): the parts of a CP-ALS sweep. models: measured times beside those of the cost models. Without options a figure takes a
/// minute or two on a laptop; larger dims and ranks are yours to give.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The figure; of several, variants and models share their measurements
    #[arg(long, value_enum, value_name = "FIGURE,FIGURE", value_delimiter = ',', required = true)]
    figure: Vec<Figure>,
    /// Dims of the tensor [default: 48x480x480, for memory 48x4800x4800]
    #[arg(long, value_name = "AxBxC", value_parser = args::dims)]
    dims: Option<std::vec::Vec<usize>>,
    /// Ranks [default: 16; for als 8,16,32; for memory 100 to 2000]
    #[arg(long, value_name = "R,R", value_parser = args::rank, value_delimiter = ',')]
    ranks: Vec<usize>,
    /// Methods [default: elem,slice,tile,gemm,fused; for als without elem and slice]
    #[arg(long, value_name = "M,M", value_parser = args::methods(), value_delimiter = ',')]
    methods: Vec<Method>,
    /// Devices: cpu, gpu, or names [default: the CPU and the best hardware GPU; for memory, als and models one of them]
    #[arg(long, value_name = "D,D", value_delimiter = ',')]
    device: Vec<String>,
    /// For memory: a device that is not here, an object of `polyad devices --json`
    #[arg(long, value_name = "FILE", conflicts_with = "device")]
    profile: Option<PathBuf>,
    /// Element type
    #[arg(long, default_value = "f32", value_parser = args::dtypes())]
    dtype: Dtype,
    /// How exact products in f32 are
    #[arg(long, default_value = "float32", value_parser = args::precisions())]
    precision: Precision,
    /// For memory: memory of one card [default: 80GB]
    #[arg(long, value_name = "BYTES", value_parser = card_memory)]
    card_memory: Option<Bytes>,
    /// Measured seconds of each point
    #[arg(long, value_name = "S", default_value_t = 0.2)]
    seconds: f64,
    /// Seconds after which no more points are begun; the figures have those that were
    #[arg(long, value_name = "S")]
    budget: Option<f64>,
    /// Threads of the CPU [default: one for each core]
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Folder for FIGURE.csv and FIGURE.svg; made if it is missing
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Name of the files in place of the figure's; FIGURE-NAME where there are several figures
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Print nothing but warnings and errors
    #[arg(short, long)]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  polyad bench --figure memory -o figures
  polyad bench --figure variants,models --device cpu --threads 4 -o figures
  polyad bench --figure als --dims 1024x1024x1024 --ranks 16,64,512 --device gpu -o figures";

/// The figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Figure {
    Memory,
    Variants,
    Als,
    Models,
}

impl Figure {
    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Variants => "variants",
            Self::Als => "als",
            Self::Models => "models",
        }
    }
}

/// A figure with its numbers.
struct Drawn {
    svg: String,
    table: Table,
}

/// What the figures are given.
struct Setting<'a> {
    args: &'a Args,
    dims: Vec<usize>,
    ranks: Vec<usize>,
    methods: Vec<Method>,
    start: Instant,
    devices: OnceCell<Vec<Device>>,
    /// By device.
    measured: OnceCell<Vec<Vec<Measured>>>,
}

impl Setting<'_> {
    fn effort(&self) -> Effort {
        Effort { warm_up: self.args.seconds.min(0.3), seconds: self.args.seconds }
    }

    fn options(&self, method: Method) -> polyad::PlanOptions {
        polyad::PlanOptions::default().method(method).dtype(self.args.dtype).precision(self.args.precision)
    }

    /// `1024 x 1024 x 1024`.
    fn shown_dims(&self) -> String {
        self.dims.iter().map(ToString::to_string).collect::<Vec<_>>().join(" x ")
    }

    /// The command, as it could be typed again.
    fn command(&self) -> String {
        let words: Vec<String> = std::env::args().skip(1).collect();
        format!("command: polyad {}", words.join(" "))
    }

    /// The devices asked for, or by default the CPU and the best hardware GPU.
    fn devices(&self) -> Result<&[Device], Failure> {
        if let Some(devices) = self.devices.get() {
            return Ok(devices);
        }
        let devices = if self.args.device.is_empty() {
            std::iter::once(Device::Cpu(polyad::Cpu::new())).chain(hardware_gpu()).collect()
        } else {
            self.args.device.iter().map(|name| choose_by_name(name)).collect::<Result<Vec<_>, _>>()?
        };
        Ok(self.devices.get_or_init(|| devices))
    }

    /// One device: the one asked for, or the last of the defaults.
    fn device(&self) -> Result<&Device, Failure> {
        if self.args.device.len() > 1 {
            return Err(Failure::Usage("--device: this figure is of one device".into()));
        }
        self.devices()?.last().ok_or_else(|| Failure::Usage("--device is empty".into()))
    }

    /// Every method at every rank, on every device or, where models are wanted, on one; measured once.
    fn measured(&self, out: &mut Out) -> Result<&[Vec<Measured>], Failure> {
        if let Some(measured) = self.measured.get() {
            return Ok(measured);
        }
        let measured = self.measured_devices()?.iter().map(|device| variants::measure(self, device, out));
        let measured = measured.collect::<Result<Vec<_>, _>>()?;
        Ok(self.measured.get_or_init(|| measured))
    }

    fn measured_devices(&self) -> Result<&[Device], Failure> {
        if self.args.figure.contains(&Figure::Models) {
            return self.device().map(std::slice::from_ref);
        }
        self.devices()
    }

    /// Whether there is time for another point, of a method that took so many seconds at the rank before; if not, that is
    /// said.
    fn has_time(&self, what: &str, took: f64) -> bool {
        let left = self.args.budget.map_or(f64::INFINITY, |budget| budget - self.start.elapsed().as_secs_f64());
        if left <= 0.0 {
            self.skip(what, &"the budget is used up");
        } else if took > left {
            self.skip(what, &format!("it would not fit the {left:.0} s that are left"));
        }
        left > 0.0 && took <= left
    }

    /// A point that could not be measured: said, and left out.
    fn skip(&self, what: &str, error: &dyn std::fmt::Display) {
        warn(&format!("{what} is left out: {error}"));
    }
}

#[cfg(feature = "gpu")]
fn hardware_gpu() -> Option<Device> {
    polyad::Gpu::builder().hardware_only().build().ok().map(Device::Gpu)
}

#[cfg(not(feature = "gpu"))]
fn hardware_gpu() -> Option<Device> {
    None
}

/// Runs the command.
pub fn run(args: &Args, out: &mut Out) -> Result<(), Failure> {
    if args.quiet {
        out.silence();
    }
    at_most_an_hour("--seconds", args.seconds)?;
    args.budget.map_or(Ok(()), |budget| at_most_an_hour("--budget", budget))?;
    let name = args.name.as_deref().unwrap_or("figure");
    if name.is_empty() || name.contains(['/', '\\']) || name.starts_with('.') {
        return Err(Failure::Usage(format!("--name {name:?}: it must be a plain file name")));
    }
    io::check_output_dir(&args.output)?;
    start_threads(args.threads)?;
    let mut figures = args.figure.clone();
    figures.sort_unstable();
    figures.dedup();
    let start = Instant::now();
    let (devices, measured) = (OnceCell::new(), OnceCell::new());
    let (memory, als) = (figures == [Figure::Memory], figures.contains(&Figure::Als));
    let dims = args.dims.clone().unwrap_or(if memory { vec![48, 4800, 4800] } else { vec![48, 480, 480] });
    Shape::new(&dims)?;
    let ranks = match args.ranks.is_empty() {
        false => args.ranks.clone(),
        true if memory => (1..=20).map(|k| 100 * k).collect(),
        true if als => vec![8, 16, 32],
        true => vec![16],
    };
    let methods = match args.methods.is_empty() {
        false => args.methods.clone(),
        true if als => vec![Method::Tile, Method::Gemm, Method::Fused],
        true => Method::ALL.to_vec(),
    };
    let setting = Setting { args, dims, ranks, methods, start, devices, measured };
    for &figure in &figures {
        let drawn = match figure {
            Figure::Memory => memory::draw(&setting),
            Figure::Variants => variants::draw(&setting, out),
            Figure::Als => als::draw(&setting, out),
            Figure::Models => models::draw(&setting, out),
        }?;
        let name = match &args.name {
            Some(name) if figures.len() == 1 => name.clone(),
            Some(name) => format!("{}-{name}", figure.name()),
            None => figure.name().to_owned(),
        };
        let csv = drawn.table.csv(&setting.command());
        io::write_folder(&args.output, |staging| {
            for (ending, text) in [("csv", &csv), ("svg", &drawn.svg)] {
                let path = staging.join(format!("{name}.{ending}"));
                std::fs::write(&path, text).map_err(|e| Failure::io(&path, &e))?;
            }
            Ok::<_, Failure>(())
        })?;
        out.line(drawn.table.shown());
        out.line(format_args!("written  {name}.csv and {name}.svg in {}", args.output.display()));
    }
    Ok(())
}

/// A device's name for figures, with the threads of a CPU.
fn shown_name(device: &Device) -> String {
    match device {
        Device::Cpu(_) => {
            let threads = device.caps().threads;
            format!("{} ({threads} {})", device.name(), if threads == 1 { "thread" } else { "threads" })
        }
        _ => device.name(),
    }
}

/// The device of the memory figure: a profile, the device asked for, or the best there is. Where that is the CPU, the
/// smallest GPU that WebGPU allows, with f64 and its atomics.
fn planned_caps(setting: &Setting<'_>) -> Result<DeviceCaps, Failure> {
    if let Some(path) = &setting.args.profile {
        return profile::read(path);
    }
    if !setting.args.device.is_empty() {
        return Ok(setting.device()?.caps().clone());
    }
    Ok(hardware_gpu().map_or_else(
        || {
            let mut caps = DeviceCaps::webgpu_minimum("a GPU with the limits of WebGPU, f64 and 64-bit atomics");
            (caps.f64, caps.u64_atomics) = (true, true);
            caps
        },
        |device| device.caps().clone(),
    ))
}

/// A failure of measuring.
fn failed(error: AnyError) -> Failure {
    Failure::Failed(error.to_string())
}
