//! `polyad tune`: measures the tiles of the fused kernels on one adapter and writes a tuning file.

use std::path::PathBuf;

/// Measure which tiles of the fused kernels are fastest on a GPU, and keep them in a tuning file
///
/// The file goes into the user's cache folder, where the other commands find it (--no-tuning ignores it), or to
/// --output. Every tile's result is compared with that of the built-in tile first; the file holds those that are clearly
/// faster. Takes some minutes, with --quick about one.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The adapter: gpu (the best), or part of its name or its PCI id (see `polyad devices`)
    #[arg(long, value_name = "gpu|NAME", default_value = "gpu")]
    device: String,
    /// Try only a few tiles for each kernel, on a small tensor
    #[arg(long)]
    quick: bool,
    /// File for the result [default: the adapter's own in the user's cache folder]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print nothing but warnings and errors
    #[arg(short, long)]
    quiet: bool,
    /// Print what was measured as JSON, and nothing else, on stdout
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  polyad tune
  polyad tune --device radeon --quick --output mine.json
  polyad decompose tensor.npy --rank 16 --device radeon --tuning mine.json";

#[cfg(not(feature = "gpu"))]
pub fn run(_args: &Args, _out: &mut crate::report::Out) -> Result<(), crate::failure::Failure> {
    Err(crate::failure::Failure::Usage("tune: this polyad was built without GPU support (feature \"gpu\")".into()))
}

#[cfg(feature = "gpu")]
pub use measure::run;

#[cfg(feature = "gpu")]
mod measure {
    use super::Args;
    use crate::device::open_gpu;
    use crate::failure::Failure;
    use crate::report::{Out, number, show, warn};
    use polyad::plan::{DeviceKind, Tile};
    use polyad::{Backend, TuneOptions, TunedRegime, io};
    use serde::Serialize;
    use std::path::Path;

    #[derive(Debug, Serialize)]
    struct Summary<'a> {
        adapter: &'a str,
        driver: &'a str,
        file: String,
        regimes: Vec<Regime<'a>>,
    }

    #[derive(Debug, Serialize)]
    struct Regime<'a> {
        kernel: &'static str,
        layout: &'static str,
        columns: &'static str,
        dims: &'a [usize],
        rank: usize,
        built_in: Tile,
        built_in_seconds: f64,
        chosen: Tile,
        seconds: f64,
        tried: usize,
        rejected: &'a [String],
    }

    impl<'a> From<&'a TunedRegime> for Regime<'a> {
        fn from(r: &'a TunedRegime) -> Self {
            Self {
                kernel: r.kernel.name(),
                layout: r.layout.name(),
                columns: r.columns.name(),
                dims: &r.dims,
                rank: r.rank,
                built_in: r.built_in,
                built_in_seconds: r.built_in_seconds,
                chosen: r.chosen,
                seconds: r.seconds,
                tried: r.tried,
                rejected: &r.rejected,
            }
        }
    }

    /// Runs the command.
    pub fn run(args: &Args, out: &mut Out) -> Result<(), Failure> {
        if args.quiet || args.json {
            out.silence();
        }
        let name = match args.device.to_ascii_lowercase().as_str() {
            "cpu" => return Err(Failure::Usage("--device cpu: there is nothing to tune on the CPU".into())),
            "" => return Err(Failure::Usage("--device is empty: it must be gpu or an adapter's name".into())),
            "gpu" | "auto" => None,
            _ => Some(args.device.as_str()),
        };
        let gpu = open_gpu(name, |builder| builder.no_tuning())?;
        let path = match &args.output {
            Some(path) => {
                io::check_output_file(path)?;
                path.clone()
            }
            None => {
                let path = gpu.tuning_path();
                let path =
                    path.ok_or_else(|| Failure::Failed("no cache folder is known: --output is needed".into()))?;
                io::check_output_dir(path.parent().unwrap_or(Path::new("")))?;
                path
            }
        };
        if gpu.caps().kind == DeviceKind::Software {
            warn(&format!("{} is a software adapter, not a GPU", gpu.name()));
        }
        out.line(format_args!("device   {}", gpu.name()));
        let report = gpu.tune(&TuneOptions::default().quick(args.quick), |regime| line(regime, out))?;
        // Stdout that could not be written is a failure, and after a failure nothing is left behind.
        out.check()?;
        if args.json {
            let (adapter, driver) = (&report.adapter, &report.driver);
            let regimes = report.regimes.iter().map(Regime::from).collect();
            out.json(&Summary { adapter, driver, file: path.display().to_string(), regimes })?;
            out.check()?;
        }
        report.write(&path)?;
        let (all, faster) = (report.regimes.len(), report.regimes.iter().filter(|r| r.chosen != r.built_in).count());
        out.line(format_args!(
            "written  {faster} of {all} tiles that differ from the built-in ones, in {}",
            path.display()
        ));
        Ok(())
    }

    fn line(r: &TunedRegime, out: &mut Out) {
        for rejected in &r.rejected {
            warn(&format!("{} {} {}: rejected {rejected}", r.kernel.name(), r.layout.name(), r.columns.name()));
        }
        let what = format!("{} {} {}", r.kernel.name(), r.layout.name(), r.columns.name());
        let built_in = format!("{} seconds with {}", number(r.built_in_seconds), r.built_in);
        let chosen = if r.chosen == r.built_in {
            format!("the best of {}", r.tried)
        } else {
            format!("{} with {}, the best of {}", number(r.seconds), r.chosen, r.tried)
        };
        out.line(format_args!("{what:<24} {} R {}: {built_in}; {chosen}", show(&r.dims), r.rank));
    }
}
