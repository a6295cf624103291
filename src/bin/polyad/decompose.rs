//! `polyad decompose`: CP-ALS of a tensor in a file.

use crate::args::{Work, at_least_one};
use crate::device::{Choice, choose};
use crate::failure::Failure;
use crate::progress::{self, Progress};
use crate::report;
use crate::report::{Out, components, number, show, warn};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use polyad::io::{self, TensorFile};
use polyad::plan::{DeviceCaps, MttkrpPlan};
use polyad::{
    Backend, CpAlsOptions, CpAlsResult, Dtype, Error, Init, MAX_ORDER, Real, Seconds, Shape, Tree, cp_als_with,
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
    /// Number of components
    #[arg(short, long, value_name = "R", allow_negative_numbers = true)]
    rank: usize,
    /// Folder for the result; made if it is missing
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
    /// The start: random, nvecs (leading singular vectors of each unfolding), or a folder with a model
    #[arg(long, value_name = "random|nvecs|DIR", default_value = "random")]
    init: String,
    /// Whether products of the tensor are kept for several modes: none for one pass over the tensor a mode, two for two
    /// passes a sweep, multi for fewer still; the result is the same but for rounding
    #[arg(long, default_value = "auto", value_parser = trees())]
    tree: Tree,
    /// Most bytes that such products may take on the device [default: as many as the tensor, at least 64 MiB]
    #[arg(long, value_name = "BYTES")]
    memory_budget: Option<u64>,
    /// Go on along what a sweep changed, where that lowers the error: fewer sweeps on collinear data
    #[arg(long)]
    line_search: bool,
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
  polyad decompose tensor.npy --rank 3 --json > summary.json";

fn trees() -> impl TypedValueParser<Value = Tree> {
    PossibleValuesParser::new(["auto", "none", "two", "multi"]).try_map(|word| word.parse::<Tree>())
}

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
    fit: f64,
    fits: &'a [f64],
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
        check_input_stays(&args.input, dir)?;
    }
    let file = TensorFile::open(&args.input)?;
    let shape = Shape::new(file.dims())?;
    let start = start(args, &shape)?;
    check_memory(&shape, args.rank)?;
    let work = &args.work;
    let choice = choose(work, &shape, args.rank, file.natural_dtype())?;
    out.line(format_args!("tensor   {}, {}", show(&shape), file.stored_dtype()));
    out.line(format_args!("device   {}: {}", choice.device.name(), choice.why));
    match choice.dtype {
        Dtype::F32 => decompose::<f32>(args, &file, start, choice, out),
        Dtype::F64 => decompose::<f64>(args, &file, start, choice, out),
    }
}

/// What can be said of the options before anything is opened.
fn check(args: &Args) -> Result<(), Failure> {
    at_least_one("--rank", args.rank)?;
    at_least_one("--sweeps", args.sweeps)?;
    if !(args.tol >= 0.0 && args.tol.is_finite()) {
        return Err(Failure::Usage(format!("--tol is {}: it must be a finite number of at least 0", args.tol)));
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
        "nvecs" => return Ok(Init::Nvecs { seed }),
        _ => {}
    }
    let dir = Path::new(&args.init);
    if !dir.is_dir() {
        return Err(Failure::Failed(format!("--init {}: neither random, nvecs nor a folder", args.init)));
    }
    let model = io::read_model::<f64>(dir)?;
    if model.dims() != shape.dims() {
        let (expected, found) = (shape.dims().to_vec(), model.dims());
        return Err(Error::DimsMismatch { what: "the model of --init", expected, found }.into());
    }
    if model.rank() != args.rank {
        let (found, rank) = (model.rank(), args.rank);
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
    let options = CpAlsOptions::new(args.rank)
        .max_sweeps(args.sweeps)
        .fit_tolerance(args.tol)
        .init(start)
        .plan(args.work.plan(T::DTYPE))
        .tree(args.tree)
        .line_search(args.line_search);
    let options = match args.memory_budget {
        Some(bytes) => options.memory_budget(bytes),
        None => options,
    };
    progress::catch_interrupts();
    let progress = Progress::new(args.quiet || args.json, args.sweeps);
    let result = cp_als_with(&choice.device, x.view(), &options, |sweep| {
        progress.sweep(sweep, out);
        if progress::interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    progress.finish();
    let result = result?;
    result.warnings.iter().for_each(|w| warn(w));
    // Stdout that could not be written is a failure, and after a failure nothing is left behind.
    out.check()?;

    let mut warnings = choice.warnings;
    warnings.extend_from_slice(&result.warnings);
    let tuning = tuning_used(x.shape(), args, T::DTYPE, choice.device.caps());
    let summary = Summary {
        dims: x.shape(),
        rank: args.rank,
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
        fit: result.fit,
        fits: &result.fits,
        seconds: result.seconds,
        warnings,
    };
    if args.json {
        // Before the files are put in place, for the same reason.
        out.json(&summary)?;
        out.check()?;
    }
    if let Some(dir) = &args.output {
        progress::writing();
        write(dir, &result, &summary)?;
    }
    if args.json {
        return Ok(());
    }
    if args.output.is_none() {
        out.line(format_args!("\n{}\n", components(&result.model)));
    }
    let s = result.seconds;
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
    if let Some(dir) = &args.output {
        let last = x.ndim() - 1;
        out.line(format_args!(
            "written  weights.npy, factor_0.npy to factor_{last}.npy, summary.json in {}",
            dir.display()
        ));
    }
    Ok(())
}

/// The tuning file that the plans of some mode take tiles from. Plans are values: these are those of the sweeps.
fn tuning_used(dims: &[usize], args: &Args, dtype: Dtype, caps: &DeviceCaps) -> Option<String> {
    let plan = |mode| MttkrpPlan::new(dims, mode, args.rank, &args.work.plan(dtype), caps).ok();
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
