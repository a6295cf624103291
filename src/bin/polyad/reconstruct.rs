//! `polyad reconstruct`: the tensor that a model stands for.

use crate::args::dtypes;
use crate::failure::Failure;
use crate::report::{Out, show};
use polyad::io::{self, TensorFile};
use polyad::{Dtype, Real};
use std::path::PathBuf;

/// Write the full tensor that a model stands for
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  polyad reconstruct model -o xhat.npy")]
pub struct Args {
    /// Folder with weights.npy, factor_0.npy, ..., as decompose writes it
    dir: PathBuf,
    /// File for the tensor
    #[arg(short, long, value_name = "X.npy")]
    output: PathBuf,
    /// Element type of the tensor [default: that of factor_0.npy]
    #[arg(long, value_parser = dtypes())]
    dtype: Option<Dtype>,
    /// Print nothing but warnings and errors
    #[arg(short, long)]
    quiet: bool,
}

/// Runs the command.
pub fn run(args: &Args, out: &mut Out) -> Result<(), Failure> {
    if args.quiet {
        out.silence();
    }
    io::check_output_file(&args.output)?;
    if let (Ok(dir), Ok(output)) = (args.dir.canonicalize(), args.output.canonicalize())
        && output.starts_with(dir)
    {
        return Err(Failure::Usage(format!("--output {} is a file of the model", args.output.display())));
    }
    let dtype = match args.dtype {
        Some(dtype) => dtype,
        None => TensorFile::open(args.dir.join("factor_0.npy"))?.natural_dtype(),
    };
    match dtype {
        Dtype::F32 => reconstruct::<f32>(args, out),
        Dtype::F64 => reconstruct::<f64>(args, out),
    }
}

fn reconstruct<T: Real>(args: &Args, out: &mut Out) -> Result<(), Failure> {
    let model = io::read_model::<T>(&args.dir)?;
    let x = model.to_full()?;
    io::write_tensor(&args.output, x.view())?;
    out.line(format_args!(
        "{} in {} from {} components written to {}",
        show(x.shape()),
        T::DTYPE,
        model.rank(),
        args.output.display()
    ));
    Ok(())
}
