//! The program `polyad` as a user meets it: arguments in; files, stdout, stderr and the exit code out.
#![cfg(feature = "cli")]

mod bad_input;
mod bench;
mod checkpoint;
mod decompose;
#[cfg(target_os = "linux")]
mod mapped;
mod models;
mod mttkrp;
mod others;
mod plan;
mod support;
mod tune;
