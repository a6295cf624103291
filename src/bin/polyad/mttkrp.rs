//! `polyad mttkrp`: one MTTKRP of a tensor and factors in files.

use crate::args::{Work, at_least_one};
use crate::device::{Choice, choose, start_threads};
use crate::failure::Failure;
use crate::report::{Out, number, warn};
use ndarray::{Array1, Array2, ArrayView2};
use polyad::io::{self, TensorFile};
use polyad::plan::Footprint;
use polyad::{Backend, CpTensor, Dtype, Error, Method, MttkrpPlan, Real, Shape};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Compute one MTTKRP: the unfolding of a tensor times the Khatri-Rao product of factors
///
/// G[i, r] = weights[r] * the sum over all entries with index i in mode N of the tensor times the product over the
/// other modes m of factor_m[i_m, r]. The factors are factor_0.npy, factor_1.npy, ... in the folder of --factors;
/// weights.npy there is not read.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The tensor: .npy, .npz (FILE.npz:NAME where it holds more than one array) or Tensor Toolbox text
    input: PathBuf,
    /// Folder with factor_0.npy, factor_1.npy, ... (dim x R each)
    #[arg(short, long, value_name = "DIR")]
    factors: PathBuf,
    /// The mode whose factor is left out, from 0
    #[arg(short, long, value_name = "N", allow_negative_numbers = true)]
    mode: usize,
    /// Weights of the R columns [default: ones]
    #[arg(short, long, value_name = "FILE")]
    weights: Option<PathBuf>,
    #[command(flatten)]
    work: Work,
    /// Tile width of method tile [default: chosen for the device and the shape]
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    tile: Option<usize>,
    /// File for the result, dim of mode N x R
    #[arg(short, long, value_name = "G.npy")]
    output: PathBuf,
    /// Print nothing but warnings and errors
    #[arg(short, long)]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  polyad mttkrp tensor.npy --factors model --mode 0 --output g.npy
  polyad mttkrp tensor.npy --factors model --weights model/weights.npy --mode 2 --method tile --tile 4 -o g.npy";

/// Runs the command.
pub fn run(args: &Args, out: &mut Out) -> Result<(), Failure> {
    if let Some(tile) = args.tile {
        at_least_one("--tile", tile)?;
    }
    if args.quiet {
        out.silence();
    }
    io::check_output_file(&args.output)?;
    if let (Ok(input), Ok(output)) = (args.input.canonicalize(), args.output.canonicalize())
        && input == output
    {
        return Err(Failure::Usage(format!("--output {} is the input", args.output.display())));
    }
    start_threads(args.work.threads)?;
    let file = TensorFile::open(&args.input)?;
    let shape = Shape::new(file.dims())?;
    shape.check_mode(args.mode)?;
    // The rank decides where the work is done; it is the first factor's, the others are checked when they are read.
    let rank = io::read_matrix::<f64>(&factor_path(&args.factors, 0))?.ncols();
    let choice = choose(&args.work, &shape, rank, file.natural_dtype())?;
    match choice.dtype {
        Dtype::F32 => mttkrp::<f32>(args, &file, &shape, &choice, out),
        Dtype::F64 => mttkrp::<f64>(args, &file, &shape, &choice, out),
    }
}

fn factor_path(dir: &Path, mode: usize) -> PathBuf {
    dir.join(format!("factor_{mode}.npy"))
}

fn mttkrp<T: Real>(
    args: &Args,
    file: &TensorFile,
    shape: &Shape,
    choice: &Choice,
    out: &mut Out,
) -> Result<(), Failure> {
    let model = read_factors::<T>(args, shape)?;
    let factors: Vec<ArrayView2<'_, T>> = model.factors().iter().map(|f| f.view()).collect();
    let rank = model.rank();
    let mut options = args.work.plan(T::DTYPE);
    if let Some(tile) = args.tile {
        options = options.tile(tile);
    }
    let device = &choice.device;
    let plan = MttkrpPlan::new(shape, args.mode, rank, &options, device.caps())?;
    plan.warnings().iter().for_each(|w| warn(w));
    let need = Footprint::mttkrp(&plan, device.caps())?;
    let memory = device.caps().memory;
    if let Some(available) = memory.filter(|&memory| need.peak() > memory) {
        let what = "this MTTKRP".into();
        return Err(Error::LimitTooSmall { limit: "device memory", what, needed: need.peak(), available }.into());
    }
    let data = file.read::<T>()?;
    io::check_finite("the tensor", data.view().view())?;

    let start = Instant::now();
    let x = device.place_tensor(need, data.view())?;
    let u = device.upload_factors(Some(model.weights().view()), &factors)?;
    let uploaded = start.elapsed();
    let mut g = Array2::zeros((shape.rows(args.mode), rank));
    let time = device.mttkrp_into(&plan, &x, &u, g.view_mut())?;
    if time.fallback {
        warn("the range of the numbers is too wide for f16 matrix units: the f32 kernels were used");
    }
    if let Some((index, _)) = g.indexed_iter().find(|(_, v)| !v.is_finite()) {
        let index = vec![index.0, index.1];
        return Err(Error::Overflow { what: "the result".into(), dtype: T::DTYPE.name(), index }.into());
    }
    io::write_matrix(&args.output, g.view())?;

    let tile = if plan.method() == Method::Tile { format!(" (tile {})", plan.tile()) } else { String::new() };
    let tuning = plan.tuning().map_or(String::new(), |name| format!(" (tuning file {name})"));
    let streams = need.streaming.map_or(String::new(), |streaming| {
        format!(" (streaming {} slabs, {} bytes)", streaming.slabs, streaming.pass_bytes)
    });
    out.line(format_args!(
        "{} ({}), {}{tile}{tuning}{streams} in {}: {} seconds, transfer {}, written to {}",
        device.name(),
        choice.why,
        plan.method(),
        T::DTYPE,
        number(time.compute.as_secs_f64()),
        number((uploaded + time.transfer).as_secs_f64()),
        args.output.display()
    ));
    Ok(())
}

/// The factors of `--factors` with the weights of `--weights`, of the right shapes and finite.
fn read_factors<T: Real>(args: &Args, shape: &Shape) -> Result<CpTensor<T>, Failure> {
    // One factor too many is a model of another tensor.
    let more = factor_path(&args.factors, shape.order());
    if more.exists() {
        let order = shape.order();
        return Err(Failure::Failed(format!("{} is there, but the tensor has order {order}", more.display())));
    }
    let read = |mode| io::read_matrix::<T>(factor_path(&args.factors, mode));
    let factors = (0..shape.order()).map(read).collect::<Result<Vec<_>, Error>>()?;
    let sizes: Vec<_> = factors.iter().map(Array2::dim).collect();
    let rank = shape.check_factors(&sizes, None)?;
    let weights = match &args.weights {
        Some(path) => io::read_vector::<T>(path)?,
        None => Array1::ones(rank),
    };
    Ok(CpTensor::new(weights, factors)?)
}
