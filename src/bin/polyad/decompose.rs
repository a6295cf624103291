//! `polyad decompose`: CP-ALS of a tensor in a file.

use crate::args::{Kept, Ranks, Work, at_least_one, every};
use crate::device::{Choice, choose, start_threads};
use crate::failure::Failure;
use crate::forecast::Question;
use crate::progress::{self, Progress};
use crate::report;
use crate::report::{Out, components, number, show, warn};
use ndarray::ArrayViewD;
use polyad::io::{self, TensorFile};
use polyad::plan::{DeviceCaps, MttkrpPlan};
use polyad::{
    Backend, Checkpoint, CpAlsOptions, CpAlsResult, Dtype, Error, Every, Init, MAX_ORDER, Real, Seconds, Shape, Sweep,
    cp_als_with,
};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Decompose a tensor into R components by alternating least squares
///
/// Writes weights.npy, factor_0.npy, factor_1.npy, ... (row-major, dim x R) and summary.json into the folder of
/// --output, or prints the components where no folder is given. Ctrl-C stops after the sweep at work and keeps the
/// result so far.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The tensor: .npy, .npz (FILE.npz:NAME where it holds more than one array) or Tensor Toolbox text
    input: PathBuf,
    /// Number of components, or a range such as 1..6 (both ends included), for each of which fit and core consistency are
    /// printed
    #[arg(short, long, value_name = "R", allow_negative_numbers = true)]
    rank: Ranks,
    /// Folder for the result; made if it is missing. For a range of ranks it gets folders rank_1, rank_2, ...
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    work: Work,
    /// Most sweeps over all modes
    #[arg(long, value_name = "N", default_value_t = 100, allow_negative_numbers = true)]
    sweeps: usize,
    /// Stop when the fit changes by less than this from one sweep to the next; 0 does all sweeps
    #[arg(long, value_name = "T", default_value = "1e-6", allow_negative_numbers = true)]
    tol: f64,
    /// Seed of the random start
    #[arg(long, value_name = "S", default_value_t = 0, allow_negative_numbers = true)]
    seed: u64,
    /// The start: random (uniform in [0, 1)), normal, nvecs (leading singular vectors of each unfolding), or a folder with
    /// a model
    #[arg(long, value_name = "random|normal|nvecs|DIR", default_value = "random")]
    init: String,
    #[command(flatten)]
    kept: Kept,
    /// Go on along what a sweep changed, where that lowers the error: fewer sweeps on collinear data; not
    /// with --fix, --nonneg, --starts, --ridge or --checkpoint
    #[arg(long)]
    line_search: bool,
    /// Run that many starts as one batch, with the seeds that follow, and keep the best
    #[arg(long, value_name = "K", default_value_t = 1, allow_negative_numbers = true)]
    starts: usize,
    /// Modes whose factors stay as the start has them, such as 0,2
    #[arg(long, value_name = "MODES", value_delimiter = ',')]
    fix: Vec<usize>,
    /// Modes whose factors have no negative entry, such as 0,2; all of them where none are named
    #[arg(long, value_name = "MODES", value_delimiter = ',', num_args = 0..=1)]
    nonneg: Option<Vec<usize>>,
    /// Ridge: this times the squared norms of the components is minimised too, which bounds the weights
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    ridge: f64,
    /// Begin no further sweep after this many seconds
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    max_seconds: Option<f64>,
    /// Save the state in this folder as the run goes on
    #[arg(long, value_name = "DIR")]
    checkpoint: Option<PathBuf>,
    /// Save after every N sweeps, or every N seconds (30s)
    #[arg(long, value_name = "N|Ns", default_value = "60s", value_parser = every, requires = "checkpoint")]
    checkpoint_every: Every,
    /// Go on from the state in the folder of --checkpoint, if there is one
    #[arg(long, requires = "checkpoint")]
    resume: bool,
    /// Where the GPU fails, go on on the CPU: from the checkpoint, if there is one, else from the start
    #[arg(long)]
    or_on_cpu: bool,
    /// Print every N-th sweep
    #[arg(long, value_name = "N", default_value_t = 1)]
    print_every: usize,
    /// Print the plan and what it costs first (see `polyad plan`)
    #[arg(long)]
    explain: bool,
    /// Print nothing but warnings and errors
    #[arg(short, long)]
    quiet: bool,
    /// Print the summary as JSON, and nothing else, on stdout
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  polyad decompose tensor.npy --rank 3
  polyad decompose data.npz:X --rank 8 --device gpu --method tile --output model
  polyad decompose tensor.npy --rank 8 --init model --tol 1e-9 --sweeps 500 --output better
  polyad decompose tensor.npy --rank 8 --init model --fix 0,2
  polyad decompose tensor.npy --rank 1..6
  polyad decompose tensor.npy --rank 8 --nonneg --starts 5 --checkpoint run --checkpoint-every 30s --resume
  polyad decompose tensor.npy --rank 3 --json > summary.json";

/// What `summary.json` holds.
#[derive(Debug, serde::Serialize)]
struct Summary<'a> {
    dims: &'a [usize],
    rank: usize,
    device: &'a str,
    algebra: &'a str,
    method: &'static str,
    /// How MTTKRPs shared passes over the tensor, and how many there were in all sweeps.
    tree: &'a str,
    passes: usize,
    /// The tuning file that tiles come from; `null` where all are built-in ones.
    tuning: Option<&'a str>,
    dtype: &'static str,
    seed: u64,
    sweeps: usize,
    stop: &'static str,
    /// The fit of a given start, else `null`.
    initial_fit: Option<f64>,
    fit: f64,
    fits: &'a [f64],
    /// The last fit of every start, and which of them the model is.
    start_fits: &'a [f64],
    best_start: usize,
    fixed: &'a [usize],
    nonneg: &'a [usize],
    ridge: f64,
    /// In percent; for a range of ranks only, else `null`.
    core_consistency: Option<f64>,
    seconds: Seconds,
    warnings: Vec<String>,
}

/// Runs the command.
pub fn run(args: &Args, out: &mut Out) -> Result<(), Failure> {
    check(args)?;
    if args.quiet || args.json {
        out.silence();
    }
    if let Some(dir) = &args.output {
        io::check_output_dir(dir)?;
        (args.rank.first..=args.rank.last)
            .try_for_each(|rank| check_input_stays(&args.input, &args.place(dir, rank)))?;
    }
    start_threads(args.work.threads)?;
    let file = TensorFile::open(&args.input)?;
    let shape = Shape::new(file.dims())?;
    args.fix.iter().chain(args.nonneg.iter().flatten()).try_for_each(|&mode| shape.check_mode(mode))?;
    let start = start(args, &shape)?;
    let columns = args.rank.last.saturating_mul(args.starts);
    check_memory(&shape, columns)?;
    let work = &args.work;
    let choice = choose(work, &shape, columns, file.natural_dtype())?;
    out.line(format_args!("tensor   {}, {}", show(&shape), file.stored_dtype()));
    out.line(format_args!("device   {}: {}", choice.device.name(), choice.why));
    foresee(args, &shape, &choice, out)?;
    match choice.dtype {
        Dtype::F32 => decompose::<f32>(args, &file, start, choice, out),
        Dtype::F64 => decompose::<f64>(args, &file, start, choice, out),
    }
}

impl Args {
    /// The folder in `dir` for what belongs to a rank: `dir` itself unless there are several.
    fn place(&self, dir: &Path, rank: usize) -> PathBuf {
        if self.rank.is_range() { dir.join(format!("rank_{rank}")) } else { dir.into() }
    }

    /// The modes of `--nonneg`.
    fn nonneg_modes(&self, order: usize) -> Vec<usize> {
        match &self.nonneg {
            Some(modes) if modes.is_empty() => (0..order).collect(),
            Some(modes) => modes.clone(),
            None => Vec::new(),
        }
    }
}

/// Prints what the run will cost, where that was asked for, and errors where it is known not to fit.
fn foresee(args: &Args, shape: &Shape, choice: &Choice, out: &mut Out) -> Result<(), Failure> {
    let question = Question {
        dims: shape.dims(),
        rank: args.rank.last,
        starts: args.starts,
        mode: None,
        options: args.work.plan(choice.dtype),
        kept: args.kept,
        caps: choice.device.caps(),
        machine: None,
    };
    let forecast = question.answer()?;
    let refusal = question.refusal(&forecast);
    if let Some(streams) = forecast.streams().filter(|_| refusal.is_none() && !args.explain) {
        out.line(format_args!("streams  {streams}"));
    }
    if args.explain {
        out.line("");
        forecast.print(out);
        out.line("");
    }
    match refusal {
        Some(reason) => Err(Failure::Failed(reason)),
        None => Ok(()),
    }
}

/// What can be said of the options before anything is opened.
fn check(args: &Args) -> Result<(), Failure> {
    at_least_one("--rank", args.rank.first)?;
    at_least_one("--starts", args.starts)?;
    at_least_one("--sweeps", args.sweeps)?;
    at_least_one("--print-every", args.print_every)?;
    let numbers = [("--tol", args.tol), ("--ridge", args.ridge), ("--max-seconds", args.max_seconds.unwrap_or(0.0))];
    if let Some((option, value)) = numbers.into_iter().find(|(_, v)| !(*v >= 0.0 && v.is_finite())) {
        return Err(Failure::Usage(format!("{option} is {value}: it must be a finite number of at least 0")));
    }
    Ok(())
}

/// Errors where the result would replace the input, or remove it as a factor left over from an older model.
fn check_input_stays(input: &Path, dir: &Path) -> Result<(), Failure> {
    let (Ok(input), Ok(dir)) = (input.canonicalize(), dir.canonicalize()) else { return Ok(()) };
    let factors = (0..MAX_ORDER).map(|mode| format!("factor_{mode}.npy"));
    if factors.chain(["weights.npy".into(), "summary.json".into()]).any(|name| dir.join(name) == input) {
        return Err(Failure::Usage(format!("--output {} would replace the input", dir.display())));
    }
    Ok(())
}

/// The start of `--init`, checked against the tensor before its data are read.
fn start(args: &Args, shape: &Shape) -> Result<Init, Failure> {
    let seed = args.seed;
    match args.init.as_str() {
        "random" => return Ok(Init::Random { seed }),
        "normal" => return Ok(Init::Normal { seed }),
        "nvecs" => return Ok(Init::Nvecs { seed }),
        _ => {}
    }
    let dir = Path::new(&args.init);
    if !dir.is_dir() {
        return Err(Failure::Failed(format!("--init {}: neither random, normal, nvecs nor a folder", args.init)));
    }
    let model = io::read_model::<f64>(dir)?;
    if model.dims() != shape.dims() {
        let (expected, found) = (shape.dims().to_vec(), model.dims());
        return Err(Error::DimsMismatch { what: "the model of --init", expected, found }.into());
    }
    if [args.rank.first, args.rank.last] != [model.rank(); 2] {
        let (found, rank) = (model.rank(), &args.rank);
        return Err(Failure::Failed(format!("the model of --init has rank {found}, --rank is {rank}")));
    }
    Ok(Init::Model(Box::new(model)))
}

/// Errors where the factors and grams of this rank cannot be had: running out later would end the program.
fn check_memory(shape: &Shape, rank: usize) -> Result<(), Failure> {
    // A gram of each mode, and about six more in the solve; of each factor three copies.
    let grams = rank.checked_mul(shape.order() + 6);
    let rows = shape.iter().fold(0usize, |sum, &d| sum.saturating_add(d)).saturating_mul(3);
    let bytes = grams.and_then(|n| n.checked_add(rows)).and_then(|n| n.checked_mul(rank));
    let bytes = bytes.and_then(|n| n.checked_mul(size_of::<f64>()));
    let there = bytes.is_some_and(|n| Vec::<u8>::new().try_reserve_exact(n).is_ok());
    if !there {
        let need = bytes.map_or("more bytes than can be addressed".into(), |n| format!("{n} bytes"));
        return Err(Failure::Failed(format!(
            "rank {rank} for dims {} needs {need} for factors and grams, which this machine does not give",
            show(shape)
        )));
    }
    Ok(())
}

fn decompose<T: Real>(
    args: &Args,
    file: &TensorFile,
    start: Init,
    choice: Choice,
    out: &mut Out,
) -> Result<(), Failure> {
    let data = file.read::<T>()?;
    let x = data.view();
    io::check_finite("the tensor", x.view())?;
    progress::catch_interrupts();
    let mut summaries = Vec::new();
    for rank in args.rank.first..=args.rank.last {
        if args.rank.is_range() && progress::interrupted() {
            break;
        }
        let found = one(args, rank, &x, &start, &choice, out)?;
        summaries.push(found);
    }
    if args.json && args.rank.is_range() {
        out.json(&summaries)?;
    }
    Ok(())
}

/// One rank.
fn one<T: Real>(
    args: &Args,
    rank: usize,
    x: &ArrayViewD<'_, T>,
    start: &Init,
    choice: &Choice,
    out: &mut Out,
) -> Result<serde_json::Value, Failure> {
    let range = args.rank.is_range();
    let nonneg = args.nonneg_modes(x.ndim());
    let mut options = CpAlsOptions::new(rank)
        .max_sweeps(args.sweeps)
        .fit_tolerance(args.tol)
        .init(start.clone())
        .starts(args.starts)
        .fix(args.fix.iter().copied())
        .nonneg(nonneg.iter().copied())
        .ridge(args.ridge)
        .plan(args.work.plan(T::DTYPE))
        .tree(args.kept.tree)
        .line_search(args.line_search);
    options.memory_budget = args.kept.budget();
    options.max_seconds = args.max_seconds;
    options.checkpoint = args
        .checkpoint
        .as_ref()
        .map(|dir| Checkpoint::new(args.place(dir, rank)).every(args.checkpoint_every).resume(args.resume));
    if let Some(checkpoint) = options.checkpoint.as_ref().filter(|c| c.resume && !c.file().exists()) {
        warn(&format!("{} is not there: starting from the beginning", checkpoint.file().display()));
    }
    let progress = Progress::new(range || args.quiet || args.json, args.sweeps, args.print_every);
    let callback = |sweep: &Sweep| {
        progress.sweep(sweep, out);
        if progress::interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let result = if args.or_on_cpu {
        choice.device.cp_als_or_on_cpu(x.view(), &options, callback)
    } else {
        cp_als_with(&choice.device, x.view(), &options, callback)
    };
    progress.finish();
    let result = result?;
    let mut warnings = choice.warnings.clone();
    warnings.extend_from_slice(&result.warnings);
    let core_consistency = match range.then(|| result.model.core_consistency(x.view())) {
        Some(Ok(percent)) => Some(percent),
        Some(Err(error)) => {
            warn(&error.to_string());
            warnings.push(error.to_string());
            None
        }
        None => None,
    };
    result.warnings.iter().for_each(|w| warn(w));
    // Stdout that could not be written is a failure, and after a failure nothing is left behind.
    out.check()?;

    let tuning = tuning_used(x.shape(), args, rank, T::DTYPE, choice.device.caps());
    let summary = Summary {
        dims: x.shape(),
        rank,
        device: &result.device,
        algebra: &result.algebra,
        method: result.method.name(),
        tree: &result.tree,
        passes: result.passes,
        tuning: tuning.as_deref(),
        dtype: T::DTYPE.name(),
        seed: args.seed,
        sweeps: result.sweeps,
        stop: result.stop.name(),
        initial_fit: result.initial_fit,
        fit: result.fit,
        fits: &result.fits,
        start_fits: &result.start_fits,
        best_start: result.best_start,
        fixed: &args.fix,
        nonneg: &nonneg,
        ridge: args.ridge,
        core_consistency,
        seconds: result.seconds,
        warnings,
    };
    if args.json && !range {
        // Before the files are put in place, for the same reason.
        out.json(&summary)?;
        out.check()?;
    }
    let dir = args.output.as_ref().map(|dir| args.place(dir, rank));
    if let Some(dir) = &dir {
        if !range {
            progress::writing();
        }
        write(dir, &result, &summary)?;
    }
    if range {
        let core = core_consistency.map_or("unknown".into(), number);
        out.line(format_args!(
            "rank {rank:>4}  fit {:.8}  core consistency {core:>12}  after {} sweeps ({})",
            result.fit, result.sweeps, summary.stop
        ));
    } else if !args.json {
        show_result(&result, &summary, dir.as_deref(), out);
    }
    serde_json::to_value(&summary).map_err(|e| Failure::Failed(format!("JSON: {e}")))
}

/// What was found, for people.
fn show_result<T: Real>(result: &CpAlsResult<T>, summary: &Summary<'_>, dir: Option<&Path>, out: &mut Out) {
    if dir.is_none() {
        out.line(format_args!("\n{}\n", components(&result.model)));
    }
    let s = result.seconds;
    if let Some(fit) = result.initial_fit {
        out.line(format_args!("start    fit {fit:.10}"));
    }
    if let [_, _, ..] = result.start_fits[..] {
        let fits: Vec<String> = result.start_fits.iter().map(|fit| format!("{fit:.8}")).collect();
        out.line(format_args!("starts   {}; the best is start {}", fits.join(", "), result.best_start));
    }
    out.line(format_args!("fit      {:.10} after {} sweeps ({})", result.fit, result.sweeps, summary.stop));
    out.line(format_args!("method   {} in {}", summary.method, summary.dtype));
    if let Some(name) = summary.tuning {
        out.line(format_args!("tuning   {name}"));
    }
    out.line(format_args!("passes   {} over the tensor: {}", summary.passes, summary.tree));
    out.line(format_args!("algebra  {}", summary.algebra));
    out.line(format_args!(
        "seconds  {}: mttkrp {}, algebra {}, gram {}, solve {}, fit {}, transfer {}, wait {}",
        number(s.total),
        number(s.mttkrp),
        number(s.algebra),
        number(s.gram),
        number(s.solve),
        number(s.fit),
        number(s.transfer),
        number(s.wait)
    ));
    if let Some(dir) = dir {
        let last = summary.dims.len() - 1;
        out.line(format_args!(
            "written  weights.npy, factor_0.npy to factor_{last}.npy, summary.json in {}",
            dir.display()
        ));
    }
}

/// The tuning file that the plans of some mode take tiles from. Plans are values: these are those of the sweeps.
fn tuning_used(dims: &[usize], args: &Args, rank: usize, dtype: Dtype, caps: &DeviceCaps) -> Option<String> {
    let columns = rank * args.starts;
    let plan = |mode| MttkrpPlan::new(dims, mode, columns, &args.work.plan(dtype), caps).ok();
    (0..dims.len()).filter_map(plan).find_map(|plan| plan.tuning().map(str::to_owned))
}

/// The model and its summary, all files or none.
fn write<T: Real>(dir: &Path, result: &CpAlsResult<T>, summary: &Summary<'_>) -> Result<(), Failure> {
    io::write_folder(dir, |staging| {
        io::write_model(staging, &result.model)?;
        let path = staging.join("summary.json");
        std::fs::write(&path, report::json(summary)? + "\n").map_err(|e| Failure::io(&path, &e))
    })?;
    // A factor left over from a model of higher order would be read as part of this one.
    for mode in summary.dims.len()..MAX_ORDER {
        let _ = std::fs::remove_file(dir.join(format!("factor_{mode}.npy")));
    }
    Ok(())
}
