//! Progress of CP-ALS: a bar on a terminal, one line a sweep elsewhere. Ctrl-C.

use crate::report::Out;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use polyad::Sweep;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static WRITING: AtomicBool = AtomicBool::new(false);

/// From now on the first Ctrl-C is noted and the second one ends the program, unless it is writing the result.
pub fn catch_interrupts() {
    // Where no handler can be set Ctrl-C ends the program at once; nothing has been written then.
    let _ = ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Ordering::SeqCst) && !WRITING.load(Ordering::SeqCst) {
            std::process::exit(130);
        }
        let mut stderr = std::io::stderr();
        if stderr.is_terminal() {
            let _ = writeln!(stderr, "stopping after this sweep; Ctrl-C again ends at once");
        }
    });
}

/// Whether Ctrl-C was pressed.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// From now on Ctrl-C ends nothing.
pub fn writing() {
    WRITING.store(true, Ordering::SeqCst);
}

/// Shows sweeps as they end.
#[derive(Debug)]
pub enum Progress {
    /// Nothing (`--quiet`, `--json`).
    Silent,
    /// One line every so many sweeps.
    Lines(usize),
    /// A bar that is gone in the end.
    Bar(ProgressBar),
}

impl Progress {
    /// What stdout can show.
    pub fn new(silent: bool, sweeps: usize, every: usize) -> Self {
        if silent {
            return Self::Silent;
        }
        if !std::io::stdout().is_terminal() {
            return Self::Lines(every);
        }
        let bar = ProgressBar::with_draw_target(Some(sweeps as u64), ProgressDrawTarget::stdout());
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} sweeps  {msg}  {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message("starting");
        bar.tick();
        Self::Bar(bar)
    }

    /// One more sweep.
    pub fn sweep(&self, sweep: &Sweep, out: &mut Out) {
        let change = sweep.fit_change.map_or(String::new(), |c| format!("  change {c:+.1e}"));
        match self {
            Self::Silent => {}
            Self::Lines(every) if !sweep.number.is_multiple_of(*every) => {}
            Self::Lines(_) => out.line(format_args!("sweep {:>4}  fit {:.8}{change}", sweep.number, sweep.fit)),
            Self::Bar(bar) => {
                bar.set_message(format!("fit {:.8}{change}", sweep.fit));
                bar.set_position(sweep.number as u64);
            }
        }
    }

    /// Takes the bar away, so that what follows starts on a clean line.
    pub fn finish(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}
