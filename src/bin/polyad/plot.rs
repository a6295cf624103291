//! `polyad plot`: the factors of a model as an SVG figure.

use crate::failure::Failure;
use crate::report::Out;
use polyad::io;
use std::path::PathBuf;

/// Draw the factors of a model as an SVG figure
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  polyad plot model -o factors.svg")]
pub struct Args {
    /// Folder with weights.npy, factor_0.npy, ..., as decompose writes it
    dir: PathBuf,
    /// The figure
    #[arg(short, long, value_name = "FILE.svg")]
    output: PathBuf,
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
    let model = io::read_model::<f64>(&args.dir)?;
    polyad::plot::factors(&model, &args.output)?;
    out.line(format_args!(
        "{} components of {} factors drawn in {}",
        model.rank(),
        model.factors().len(),
        args.output.display()
    ));
    Ok(())
}
