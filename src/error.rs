//! The one error type. Every variant carries the numbers a caller needs to see what was wrong.

use std::path::{Path, PathBuf};

/// What every fallible function of this crate returns.
///
/// ```
/// fn first_dim(dims: &[usize]) -> polyad::Result<usize> {
///     Ok(polyad::Shape::new(dims)?.dims()[0])
/// }
/// assert_eq!(first_dim(&[3, 4]).unwrap(), 3);
/// ```
pub type Result<T> = std::result::Result<T, Error>;

/// Everything that can go wrong, with the numbers in it. Messages are one line.
///
/// ```
/// use polyad::{Error, Shape};
/// assert_eq!(
///     Shape::new(&[3, 0, 2]).unwrap_err(),
///     Error::EmptyDim { mode: 1, dims: vec![3, 0, 2] }
/// );
/// ```
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The order (number of modes) is outside 1..=8.
    #[error("a tensor of order {found} is not supported: the order must be 1 to {max}")]
    Order {
        /// Number of modes given.
        found: usize,
        /// Largest number of modes supported.
        max: usize,
    },
    /// A dim is zero.
    #[error("mode {mode} of a tensor with dims {} is empty", show(.dims))]
    EmptyDim {
        /// The first empty mode.
        mode: usize,
        /// The dims given.
        dims: Vec<usize>,
    },
    /// A product of dims does not fit the address space.
    #[error("{what} with dims {} has more elements than can be addressed", show(.dims))]
    TooManyElements {
        /// What would be that large.
        what: &'static str,
        /// The dims given.
        dims: Vec<usize>,
    },
    /// A mode that the tensor does not have.
    #[error("mode {mode} is out of range for a tensor of order {order} (modes are 0 to {})", .order - 1)]
    ModeOutOfRange {
        /// The mode asked for.
        mode: usize,
        /// The order of the tensor.
        order: usize,
    },
    /// Rank zero.
    #[error("rank 0 is not a decomposition: the rank must be at least 1")]
    RankZero,
    /// Number of factor matrices differs from the order.
    #[error("{found} factor matrices were given for a tensor of order {expected}")]
    FactorCount {
        /// The order of the tensor.
        expected: usize,
        /// How many factors were given.
        found: usize,
    },
    /// A factor matrix of the wrong shape.
    #[error("factor {mode} is {} x {}, expected {} x {}", .found.0, .found.1, .expected.0, .expected.1)]
    FactorShape {
        /// The mode whose factor it is.
        mode: usize,
        /// Rows and columns expected.
        expected: (usize, usize),
        /// Rows and columns found.
        found: (usize, usize),
    },
    /// A weights vector of the wrong length.
    #[error("{found} weights were given for rank {expected}")]
    WeightsLength {
        /// The rank.
        expected: usize,
        /// How many weights were given.
        found: usize,
    },
    /// An output matrix of the wrong shape.
    #[error("the output is {} x {}, expected {} x {}", .found.0, .found.1, .expected.0, .expected.1)]
    OutputShape {
        /// Rows and columns expected.
        expected: (usize, usize),
        /// Rows and columns found.
        found: (usize, usize),
    },
    /// Something whose dims differ from those it has to match.
    #[error("{what} has dims {}, expected {}", show(.found), show(.expected))]
    DimsMismatch {
        /// What has the wrong dims.
        what: &'static str,
        /// The dims expected.
        expected: Vec<usize>,
        /// The dims found.
        found: Vec<usize>,
    },
    /// NaN or infinity where only finite numbers make sense.
    #[error("{what} has {value} at index {}", show(.index))]
    NonFinite {
        /// Which array.
        what: String,
        /// 0-based index of the first bad entry in row-major order.
        index: Vec<usize>,
        /// The entry: NaN, inf or -inf.
        value: f64,
    },
    /// A result left the range of its dtype.
    #[error("{what} overflowed {dtype}{}: scale the data or use a wider dtype", at(.index))]
    Overflow {
        /// What overflowed.
        what: String,
        /// `f32` or `f64`.
        dtype: &'static str,
        /// 0-based index of the first bad entry; empty for a single number, such as a norm.
        index: Vec<usize>,
    },
    /// An option whose value makes no sense.
    #[error("{name} is {value}: {requirement}")]
    Option {
        /// The option's name.
        name: &'static str,
        /// The value given.
        value: String,
        /// What it must be.
        requirement: String,
    },
    /// Two things that must be of one dtype are not.
    #[error("{what} is for {expected}, the data are {found}")]
    DtypeMismatch {
        /// What was made for another dtype.
        what: &'static str,
        /// The dtype it was made for.
        expected: &'static str,
        /// The dtype found.
        found: &'static str,
    },
    /// A plan made for something else than it was used with.
    #[error("the plan does not fit: {reason}")]
    PlanMismatch {
        /// What differs, with both values.
        reason: String,
    },
    /// A file could not be opened, read or written.
    #[error("{}: {message}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        message: String,
    },
    /// A file whose content is not what its format promises.
    #[error("{}: {reason}", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line or byte numbers where they help.
        reason: String,
    },
    /// No GPU adapter at all.
    #[error("no GPU adapter was found (backends tried: {backends})")]
    NoAdapter {
        /// The backends looked at.
        backends: String,
    },
    /// No adapter of that name.
    #[error("no adapter matches {name:?}; adapters seen: {}", list(.seen))]
    UnknownAdapter {
        /// What was asked for.
        name: String,
        /// The names of all adapters seen.
        seen: Vec<String>,
    },
    /// The adapter or device lacks a feature that this work needs.
    #[error("{adapter} lacks {feature}, which {needed_for} needs")]
    MissingFeature {
        /// The device's name.
        adapter: String,
        /// The missing feature, in wgpu's words.
        feature: &'static str,
        /// What needs it.
        needed_for: String,
    },
    /// A limit of the device is too small.
    #[error("{limit} is {available} on this device, {what} needs {needed}")]
    LimitTooSmall {
        /// The limit's name, in wgpu's words.
        limit: &'static str,
        /// What needs more.
        what: String,
        /// How much it needs.
        needed: u64,
        /// What the device allows.
        available: u64,
    },
    /// The device ran out of memory for a named buffer.
    #[error("out of device memory: {buffer} of {bytes} bytes could not be allocated")]
    OutOfDeviceMemory {
        /// The buffer's label.
        buffer: String,
        /// Its size in bytes.
        bytes: u64,
    },
    /// The device failed: lost, a validation error, a timeout.
    #[error("the GPU failed during {during}: {message}")]
    Gpu {
        /// What was being done.
        during: String,
        /// What wgpu said, on one line.
        message: String,
    },
    /// A linear solve or an eigenvalue decomposition did not succeed.
    #[error("{what} failed: {reason}")]
    Linalg {
        /// Which computation.
        what: &'static str,
        /// Why.
        reason: String,
    },
}

impl Error {
    /// An I/O error with its path.
    pub(crate) fn io(path: &Path, error: impl std::fmt::Display) -> Self {
        Self::Io { path: path.into(), message: one_line(&error.to_string()) }
    }

    /// A failure of the device, with the sweep of CP-ALS that it came in.
    pub(crate) fn in_sweep(self, sweep: usize) -> Self {
        match self {
            Self::Gpu { during, message } => Self::Gpu { during: format!("{during} in sweep {sweep}"), message },
            Self::OutOfDeviceMemory { buffer, bytes } => {
                Self::OutOfDeviceMemory { buffer: format!("{buffer}, in sweep {sweep},"), bytes }
            }
            other => other,
        }
    }

    /// Whether it was the device that failed, and another might not.
    ///
    /// ```
    /// let error = polyad::Error::OutOfDeviceMemory { buffer: "polyad.x.0".into(), bytes: 1 << 40 };
    /// assert!(error.is_of_device() && !polyad::Error::RankZero.is_of_device());
    /// ```
    pub fn is_of_device(&self) -> bool {
        matches!(self, Self::Gpu { .. } | Self::OutOfDeviceMemory { .. })
    }

    /// A format error with its path.
    pub(crate) fn format(path: &Path, reason: impl std::fmt::Display) -> Self {
        Self::Format { path: path.into(), reason: one_line(&reason.to_string()) }
    }
}

/// Collapses a message to one line, because command-line errors are one line.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Dims and indices as `(3, 4, 5)`.
pub(crate) fn show(values: &[usize]) -> String {
    let parts: Vec<String> = values.iter().map(ToString::to_string).collect();
    format!("({})", parts.join(", "))
}

fn at(index: &[usize]) -> String {
    if index.is_empty() { String::new() } else { format!(" at index {}", show(index)) }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".into() } else { names.join("; ") }
}
