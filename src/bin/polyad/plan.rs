//! `polyad plan`: what a problem would cost, before anything is allocated.

use crate::args::{Kept, Work, at_least_one, dims};
use crate::device::{choose, start_threads};
use crate::failure::Failure;
use crate::forecast::Question;
use crate::measure::limits;
use crate::measure::timer::Effort;
use crate::profile;
use crate::report::Out;
use polyad::plan::Machine;
use polyad::{Backend, Dtype, Error, Shape};
use std::path::PathBuf;

/// Say what a problem costs: method and why, memory of every method, cards it needs, predicted times
///
/// For CP-ALS over all modes, or with --mode for one MTTKRP. Nothing is allocated, and with --profile or --device cpu no
/// GPU is touched. Times are those of cost models: T_0 reuses nothing, T_inf moves everything once, T_0,LM reuses what a
/// kernel keeps in local memory, (a) sums and weights, (b) factor rows too.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Dims of the tensor
    #[arg(long, value_name = "AxBxC", value_parser = dims)]
    dims: std::vec::Vec<usize>,
    /// Number of components
    #[arg(short, long, value_name = "R", allow_negative_numbers = true)]
    rank: usize,
    /// One MTTKRP of this mode, from 0 [default: CP-ALS over all modes]
    #[arg(short, long, value_name = "N", allow_negative_numbers = true)]
    mode: Option<usize>,
    /// Starts that run as one batch, each of that rank
    #[arg(long, value_name = "K", default_value_t = 1, allow_negative_numbers = true, conflicts_with = "mode")]
    starts: usize,
    #[command(flatten)]
    work: Work,
    #[command(flatten)]
    kept: Kept,
    /// Plan for a device that is not here: a file with one object of `polyad devices --json`
    #[arg(long, value_name = "FILE", conflicts_with = "device")]
    profile: Option<PathBuf>,
    /// Bytes per second of the device's memory, for predicted times
    #[arg(long, value_name = "B/S", requires = "peak", allow_negative_numbers = true)]
    bandwidth: Option<f64>,
    /// Flops per second in the element type, for predicted times
    #[arg(long, value_name = "FLOP/S", requires = "bandwidth", allow_negative_numbers = true)]
    peak: Option<f64>,
    /// Flops per second of f16 matrix units; without it their arithmetic counts as free
    #[arg(long, value_name = "FLOP/S", requires = "peak", allow_negative_numbers = true)]
    matrix_peak: Option<f64>,
    /// Measure bandwidth and peak on the device (some seconds)
    #[arg(long, conflicts_with_all = ["profile", "bandwidth"])]
    measure: bool,
    /// Print JSON, and nothing else, on stdout
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  polyad plan --dims 1024x1024x1024 --rank 2000
  polyad plan --dims 1024x1024x1024 --rank 64 --tree multi --memory-budget 1GiB
  polyad plan --dims 48x4800x4800 --rank 500 --dtype f64 --device cpu --measure
  polyad plan --dims 1024x1024x1024 --rank 2000 --profile card.json --card-memory 80GB --json";

/// Runs the command.
pub fn run(args: &Args, out: &mut Out) -> Result<(), Failure> {
    at_least_one("--rank", args.rank)?;
    at_least_one("--starts", args.starts)?;
    for (name, value) in [("--bandwidth", args.bandwidth), ("--peak", args.peak), ("--matrix-peak", args.matrix_peak)] {
        if let Some(value) = value.filter(|value| !(*value > 0.0 && value.is_finite())) {
            return Err(Failure::Usage(format!("{name} is {value}: it must be a finite number above 0")));
        }
    }
    let shape = Shape::new(&args.dims)?;
    let (mut caps, device) = match &args.profile {
        Some(path) => (profile::read(path)?, None),
        None => {
            start_threads(args.work.threads)?;
            let choice = choose(&args.work, &shape, args.rank.saturating_mul(args.starts), Dtype::F32)?;
            (choice.device.caps().clone(), Some(choice.device))
        }
    };
    // A card larger than the one at hand may be planned for, too.
    caps.memory = args.work.card_memory.map(|bytes| bytes.0).or(caps.memory);
    let dtype = args.work.dtype.unwrap_or(Dtype::F32);
    if dtype == Dtype::F64 && !caps.f64 {
        let needed_for = "--dtype f64".into();
        return Err(Error::MissingFeature { adapter: caps.name.clone(), feature: "SHADER_F64", needed_for }.into());
    }
    let machine = match (args.bandwidth, args.peak, device) {
        (Some(bandwidth), Some(peak), _) => {
            let mut machine = Machine::new(bandwidth, peak);
            machine.matrix_peak = args.matrix_peak;
            Some(machine)
        }
        (_, _, Some(device)) if args.measure => {
            let measured = limits::measure(&device, dtype, Effort { warm_up: 0.3, seconds: 0.3 });
            Some(measured.map_err(|e| Failure::Failed(format!("--measure: {e}")))?)
        }
        _ => None,
    };
    let question = Question {
        dims: &args.dims,
        rank: args.rank,
        starts: args.starts,
        mode: args.mode,
        options: args.work.plan(dtype),
        kept: args.kept,
        caps: &caps,
        machine,
    };
    let forecast = question.answer()?;
    if args.json {
        return out.json(&forecast);
    }
    forecast.print(out);
    Ok(())
}
