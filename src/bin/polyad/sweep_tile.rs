//! `polyad sweep-tile`: every width of TILE's tiles measured, and how good the chosen one is.

use crate::args::{self, at_most_an_hour};
use crate::device::{choose_by_name, start_threads};
use crate::failure::Failure;
use crate::measure::timer::{self, Effort, Timed};
use crate::measure::{AnyError, data};
use crate::report::{Out, number, show, table, warn};
use ndarray::Array2;
use polyad::io;
use polyad::{Backend, Device, Dtype, Method, MttkrpPlan, PlanOptions, Real, Shape};
use std::path::PathBuf;
use std::time::Instant;

/// Measure every tile width tau of method tile, and print the chosen one against the best
///
/// Widths are 1 to 8, then multiples of 4 up to 32 and of 16 up to 128, and those that the dims and the planner suggest. A
/// width that does not fit the device is left out; one that a first run shows to be far from the best has that run alone.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Dims of the tensor; several may be given
    #[arg(long, value_name = "AxBxC", value_parser = args::dims, required = true)]
    dims: Vec<std::vec::Vec<usize>>,
    /// Ranks
    #[arg(long, value_name = "R,R", value_parser = args::rank, value_delimiter = ',', default_value = "16")]
    ranks: Vec<usize>,
    /// Modes, from 0 [default: all]
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    modes: Vec<usize>,
    /// Widths to measure in place of those above; the chosen one is always among them
    #[arg(long, value_name = "T,T", value_parser = args::rank, value_delimiter = ',')]
    taus: Vec<usize>,
    /// Element type
    #[arg(long, default_value = "f32", value_parser = args::dtypes())]
    dtype: Dtype,
    /// The device: cpu, gpu, or part of an adapter's name or its PCI id
    #[arg(long, value_name = "cpu|gpu|NAME", default_value = "gpu")]
    device: String,
    /// Measured seconds of each width
    #[arg(long, value_name = "S", default_value_t = 0.1)]
    seconds: f64,
    /// Seconds after which no more choices are measured; those that were are counted
    #[arg(long, value_name = "S")]
    budget: Option<f64>,
    /// Threads of the CPU [default: one for each core]
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    threads: Option<usize>,
    /// CSV file for every measurement
    #[arg(long, value_name = "FILE.csv")]
    csv: Option<PathBuf>,
    /// Print the summary alone
    #[arg(short, long)]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  polyad sweep-tile --dims 256x256x256 --ranks 16,64
  polyad sweep-tile --dims 100x100x100 --dims 40x40x40x40 --device cpu --csv sweep.csv";

/// One shape, rank and mode.
struct Case {
    dims: Vec<usize>,
    rank: usize,
    mode: usize,
    chosen: usize,
    /// Width, seconds, and the runs that they are the median of.
    all: Vec<(usize, f64, usize)>,
}

/// A width is given up whose first run takes this many times the best so far.
const HOPELESS: f64 = 1.6;

/// Seconds of work before the first measurement: a GPU that had none is slow.
const WARM_UP: f64 = 0.5;

impl Case {
    fn best(&self) -> (usize, f64) {
        let best = self.all.iter().min_by(|a, b| a.1.total_cmp(&b.1));
        best.map_or((self.chosen, f64::NAN), |&(tau, seconds, _)| (tau, seconds))
    }

    fn chosen_seconds(&self) -> f64 {
        self.all.iter().find(|(tau, ..)| *tau == self.chosen).map_or(f64::NAN, |(_, seconds, _)| *seconds)
    }

    /// How much longer the chosen width takes than the best.
    fn loss(&self) -> f64 {
        self.chosen_seconds() / self.best().1 - 1.0
    }
}

/// Runs the command.
pub fn run(args: &Args, out: &mut Out) -> Result<(), Failure> {
    at_most_an_hour("--seconds", args.seconds)?;
    args.budget.map_or(Ok(()), |budget| at_most_an_hour("--budget", budget))?;
    if let Some(path) = &args.csv {
        io::check_output_file(path)?;
    }
    for dims in &args.dims {
        let shape = Shape::new(dims)?;
        args.modes.iter().try_for_each(|&mode| shape.check_mode(mode))?;
    }
    start_threads(args.threads)?;
    let start = Instant::now();
    let device = choose_by_name(&args.device)?;
    if args.dtype == Dtype::F64 && !device.caps().f64 {
        return Err(Failure::Failed(format!("{} has no f64", device.name())));
    }
    let mut cases = Vec::new();
    for dims in &args.dims {
        let more = match args.dtype {
            Dtype::F32 => sweep::<f32>(args, &device, dims, start, out),
            Dtype::F64 => sweep::<f64>(args, &device, dims, start, out),
        };
        cases.extend(more.map_err(|e| Failure::Failed(e.to_string()))?);
    }
    let mut rows =
        vec![["dims", "R", "mode", "chosen", "seconds", "best", "seconds", "loss, %"].map(str::to_owned).to_vec()];
    for case in &cases {
        let (best, seconds) = case.best();
        rows.push(vec![
            show(&case.dims),
            case.rank.to_string(),
            case.mode.to_string(),
            case.chosen.to_string(),
            number(case.chosen_seconds()),
            best.to_string(),
            number(seconds),
            format!("{:.1}", 100.0 * case.loss()),
        ]);
    }
    out.always(table(&rows));
    let wanted: usize = args.dims.iter().map(|dims| args.ranks.len() * modes(args, dims).len()).sum();
    if cases.len() < wanted {
        warn(&format!("the budget is used up: {} of {wanted} choices are not measured", wanted - cases.len()));
    }
    let near = cases.iter().filter(|case| case.loss() <= 0.1).count();
    out.always(format_args!("{near} of {} choices within 10 % of the best width on {}", cases.len(), device.name()));
    if let Some(path) = &args.csv {
        let mut text = String::from("device,dims,dtype,rank,mode,tau,seconds,runs,chosen\n");
        for case in &cases {
            let dims = case.dims.iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
            for (tau, seconds, runs) in &case.all {
                let chosen = u8::from(*tau == case.chosen);
                let (name, rank, mode) = (device.name().replace(',', " "), case.rank, case.mode);
                text += &format!("{name},{dims},{},{rank},{mode},{tau},{seconds},{runs},{chosen}\n", args.dtype);
            }
        }
        std::fs::write(path, text).map_err(|e| Failure::io(path, &e))?;
    }
    Ok(())
}

/// Modes to look at.
fn modes(args: &Args, dims: &[usize]) -> Vec<usize> {
    if args.modes.is_empty() { (0..dims.len()).collect() } else { args.modes.clone() }
}

/// Widths worth a measurement for these dims of the other modes.
fn widths(args: &Args, others: &[usize], chosen: usize) -> Vec<usize> {
    let largest = others.iter().copied().max().unwrap_or(1);
    let mut all: Vec<usize> = if args.taus.is_empty() {
        let steps = (1..=8).chain((12..=32).step_by(4)).chain((48..=128).step_by(16));
        steps.chain(others.iter().copied().filter(|&dim| dim <= 128)).collect()
    } else {
        args.taus.clone()
    };
    all.push(chosen);
    all.retain(|&tau| tau <= largest);
    // The chosen one first, which the others are held against.
    all.sort_unstable_by_key(|&tau| (tau != chosen, tau));
    all.dedup();
    all
}

fn sweep<T: Real>(
    args: &Args,
    device: &Device,
    dims: &[usize],
    start: Instant,
    out: &mut Out,
) -> Result<Vec<Case>, AnyError> {
    let has_time = || args.budget.is_none_or(|budget| start.elapsed().as_secs_f64() < budget);
    if !has_time() {
        return Ok(Vec::new());
    }
    let x = data::random::<T>(dims, 1)?;
    let xd = device.upload_tensor(x.view())?;
    let effort = Effort { warm_up: args.seconds / 2.0, seconds: args.seconds };
    let mut warm_up = WARM_UP.max(effort.warm_up);
    let mut cases = Vec::new();
    for &rank in &args.ranks {
        let factors = data::factors::<T>(dims, rank)?;
        let views: Vec<_> = factors.iter().map(|f| f.view()).collect();
        let u = device.upload_factors(None, &views)?;
        for mode in modes(args, dims) {
            if !has_time() {
                return Ok(cases);
            }
            let options = PlanOptions::default().method(Method::Tile).dtype(T::DTYPE);
            let chosen = MttkrpPlan::new(dims, mode, rank, &options, device.caps())?.tile();
            let others: Vec<usize> = (0..dims.len()).filter(|&m| m != mode).map(|m| dims[m]).collect();
            let mut case = Case { dims: dims.to_vec(), rank, mode, chosen, all: Vec::new() };
            for tau in widths(args, &others, chosen) {
                let plan = MttkrpPlan::new(dims, mode, rank, &options.clone().tile(tau), device.caps())?;
                if plan.tile() != tau {
                    continue;
                }
                let mut g = Array2::zeros((dims[mode], rank));
                let effort = Effort { warm_up: std::mem::replace(&mut warm_up, effort.warm_up), ..effort };
                let mut time = |effort| timer::mttkrp(device, effort, &plan, &xd, &u, &mut g);
                match measure(effort, case.best().1, &mut time) {
                    Ok(timed) => case.all.push((tau, timed.seconds, timed.runs)),
                    Err(error) => warn(&format!("tau {tau} of {} is left out: {error}", show(dims))),
                }
            }
            case.all.sort_unstable_by_key(|&(tau, ..)| tau);
            if !args.quiet {
                for (tau, seconds, _) in &case.all {
                    let mark = if *tau == chosen { "  chosen" } else { "" };
                    let what = format!("{} R {rank} mode {mode} tau {tau}", show(dims));
                    out.line(format_args!("{what}: {} s{mark}", number(*seconds)));
                }
            }
            cases.push(case);
        }
    }
    Ok(cases)
}

/// A first run, and the others where that is not far from the best so far (NaN for none).
fn measure(
    effort: Effort,
    best: f64,
    time: &mut impl FnMut(Effort) -> Result<Timed, AnyError>,
) -> Result<Timed, AnyError> {
    if !best.is_nan() {
        let mut first = time(Effort::ONCE)?;
        // A single short run may be far off.
        if first.seconds < 2.0 * HOPELESS * best {
            let second = time(Effort::ONCE)?;
            first.seconds = first.seconds.min(second.seconds);
        }
        if first.seconds > HOPELESS * best {
            return Ok(first);
        }
    }
    time(effort)
}
