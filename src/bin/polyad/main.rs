//! `polyad`, the command line: argument parsing, progress and printing. All computing is in the library.
//!
//! Exit code 0 is success, 2 bad use, 1 bad input or a failure. An error is one line on stderr.

mod args;
mod bench;
mod chart;
mod decompose;
mod device;
mod devices;
mod failure;
mod forecast;
mod info;
#[allow(dead_code, reason = "the benchmark uses the rest of it")]
mod measure;
mod mttkrp;
mod plan;
mod plot;
mod profile;
mod progress;
mod reconstruct;
mod report;
mod score;
mod sweep_tile;
mod tune;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use failure::Failure;
use report::Out;
use std::process::ExitCode;

/// CP (CANDECOMP/PARAFAC) decomposition of dense tensors, on any GPU or on the CPU.
#[derive(Parser)]
#[command(name = "polyad", version, propagate_version = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  polyad info tensor.npy
  polyad decompose tensor.npy --rank 3
  polyad decompose data.npz:X --rank 8 --device gpu --output model
  polyad plot model -o factors.svg
  polyad score model truth
  polyad reconstruct model -o xhat.npy
  polyad mttkrp tensor.npy --factors model --mode 0 --output g.npy
  polyad devices
  polyad tune
  polyad plan --dims 1024x1024x1024 --rank 2000 --card-memory 80GB

Tensors are .npy, .npz (FILE.npz:NAME where it holds more than one array) or Tensor Toolbox text.
Exit code: 0 success, 1 bad input or a failure, 2 bad use.";

#[derive(Subcommand)]
enum Command {
    Decompose(decompose::Args),
    Mttkrp(mttkrp::Args),
    Plan(plan::Args),
    Plot(plot::Args),
    Score(score::Args),
    Reconstruct(reconstruct::Args),
    Devices(devices::Args),
    Tune(tune::Args),
    SweepTile(sweep_tile::Args),
    Bench(bench::Args),
    Info(info::Args),
}

fn main() -> ExitCode {
    keep_drivers_quiet();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return parse_failure(&error),
    };
    let mut out = Out::new();
    let done = match cli.command {
        Command::Decompose(args) => decompose::run(&args, &mut out),
        Command::Mttkrp(args) => mttkrp::run(&args, &mut out),
        Command::Plan(args) => plan::run(&args, &mut out),
        Command::Plot(args) => plot::run(&args, &mut out),
        Command::Score(args) => score::run(&args, &mut out),
        Command::Reconstruct(args) => reconstruct::run(&args, &mut out),
        Command::Devices(args) => devices::run(&args, &mut out),
        Command::Tune(args) => tune::run(&args, &mut out),
        Command::SweepTile(args) => sweep_tile::run(&args, &mut out),
        Command::Bench(args) => bench::run(&args, &mut out),
        Command::Info(args) => info::run(&args, &mut out),
    };
    match done.and_then(|()| out.check()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Keeps stderr to this program's own lines: where there is no desktop session, Mesa's Vulkan layer that looks for the
/// desktop's card prints that `XDG_RUNTIME_DIR` is missing. The layer only reorders adapters.
fn keep_drivers_quiet() {
    let unset = |name| std::env::var_os(name).is_none();
    if cfg!(target_os = "linux") && unset("XDG_RUNTIME_DIR") && unset("MESA_VK_DEVICE_SELECT") {
        // SAFETY: the first thing main does, so no other thread reads or writes the environment.
        unsafe { std::env::set_var("NODEVICE_SELECT", "1") };
    }
}

/// Help and version go out as clap formats them; a usage error becomes one line, as every other error is.
fn parse_failure(error: &clap::Error) -> ExitCode {
    use ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    if matches!(error.kind(), DisplayHelp | DisplayVersion | DisplayHelpOnMissingArgumentOrSubcommand) {
        // A reader that closed the pipe has seen all it wanted.
        let _ = error.print();
        return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
    }
    let text = error.render().to_string();
    let end = ["\n\nUsage:", "\n\nFor more information"].iter().filter_map(|tail| text.find(tail)).min();
    let message = text[..end.unwrap_or(text.len())].trim_start_matches("error:");
    Failure::Usage(format!("{} (--help shows the usage)", message.trim())).report()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_argument_definitions_are_consistent() {
        super::Cli::command().debug_assert();
    }
}
