//! How a command fails: the exit code and the one line on stderr.

use crate::report::one_line;
use polyad::Error;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Why a command did not succeed.
#[derive(Debug)]
pub enum Failure {
    /// The command line asks for something that makes no sense: exit code 2.
    Usage(String),
    /// Bad input, or something that did not work: exit code 1.
    Failed(String),
}

impl Failure {
    /// A file-system failure with its path.
    pub fn io(path: &Path, error: &std::io::Error) -> Self {
        Self::Failed(format!("{}: {error}", path.display()))
    }

    /// Prints the line and gives the exit code.
    pub fn report(&self) -> ExitCode {
        let (code, message) = match self {
            Self::Usage(message) => (2, message),
            Self::Failed(message) => (1, message),
        };
        // With stderr closed there is nowhere left to complain to.
        let _ = writeln!(std::io::stderr(), "error: {}", one_line(message));
        ExitCode::from(code)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::ModeOutOfRange { .. } | Error::UnknownAdapter { .. } | Error::Option { .. } => Self::Usage(message),
            _ => Self::Failed(message),
        }
    }
}
