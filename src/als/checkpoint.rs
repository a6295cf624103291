//! Checkpoints: everything that the sweeps to come depend on, in one file that is replaced at once.

use super::starts::Trace;
use super::{AlsSteps, CpAlsOptions, Init};
use crate::io::{Staged, TensorFile, check_output_dir};
use crate::{Error, Real, Result, Shape};
use ndarray::{Array, Array1, Array2, Dimension};
use ndarray_npy::NpzWriter;
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// When a checkpoint is due.
///
/// ```
/// assert_ne!(polyad::Every::Sweeps(10), polyad::Every::Seconds(10.0));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Every {
    /// After each so many sweeps, at least 1.
    Sweeps(usize),
    /// After the first sweep that ends so many seconds after the last checkpoint.
    Seconds(f64),
}

/// Where and how often CP-ALS saves what it has: see [`CpAlsOptions::checkpoint`].
///
/// ```
/// use polyad::{Checkpoint, Every};
/// let checkpoint = Checkpoint::new("run").every(Every::Sweeps(10)).resume(true);
/// assert_eq!(checkpoint.file(), std::path::Path::new("run/checkpoint.npz"));
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Checkpoint {
    /// Folder of `checkpoint.npz`, of one run alone; made if it is missing.
    pub dir: PathBuf,
    /// How often (60 seconds). One more is written when the sweeps end.
    pub every: Every,
    /// Whether to go on from the checkpoint that is there (no). Without one the run starts from the beginning.
    pub resume: bool,
}

impl Checkpoint {
    /// In this folder every 60 seconds, from the beginning.
    ///
    /// ```
    /// assert!(!polyad::Checkpoint::new("run").resume);
    /// ```
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), every: Every::Seconds(60.0), resume: false }
    }

    /// How often.
    ///
    /// ```
    /// use polyad::{Checkpoint, Every};
    /// assert_eq!(Checkpoint::new("run").every(Every::Sweeps(3)).every, Every::Sweeps(3));
    /// ```
    pub fn every(mut self, every: Every) -> Self {
        self.every = every;
        self
    }

    /// Whether to go on from the checkpoint that is there.
    ///
    /// ```
    /// assert!(polyad::Checkpoint::new("run").resume(true).resume);
    /// ```
    pub fn resume(mut self, resume: bool) -> Self {
        self.resume = resume;
        self
    }

    /// The file.
    ///
    /// ```
    /// assert!(polyad::Checkpoint::new("run").file().ends_with("checkpoint.npz"));
    /// ```
    pub fn file(&self) -> PathBuf {
        self.dir.join("checkpoint.npz")
    }

    pub(super) fn check(&self) -> Result<()> {
        let (value, requirement) = match self.every {
            Every::Sweeps(0) => ("0 sweeps".to_string(), "at least one sweep has to lie between checkpoints"),
            Every::Seconds(s) if !(s >= 0.0 && s.is_finite()) => {
                (format!("{s} seconds"), "it must be a finite number of at least 0")
            }
            _ => return Ok(()),
        };
        Err(Error::Option { name: "checkpoint interval", value, requirement: requirement.into() })
    }
}

/// What the sweeps to come depend on.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct State<T> {
    pub factors: Vec<Array2<T>>,
    pub grams: Vec<Array2<f64>>,
    pub weights: Array1<f64>,
    pub trace: Trace,
    /// Passes over the tensor so far.
    pub passes: usize,
    /// Group of a tree whose product is at hand: a run that resumes makes it again, of the same factors.
    pub kept: Option<usize>,
    pub initial_fit: Option<f64>,
    pub warnings: Vec<String>,
}

/// Writes the checkpoints of a run.
pub(super) struct Saver<'a> {
    checkpoint: &'a Checkpoint,
    /// What a checkpoint has to be for, a line each: a word, then its value.
    about: String,
    device: String,
    last: Instant,
    failed: bool,
}

impl<'a> Saver<'a> {
    /// For a tensor of this norm, as CP-ALS works with it.
    pub fn new<T: Real>(options: &'a CpAlsOptions, shape: &Shape, norm: f64, device: String) -> Result<Option<Self>> {
        let Some(checkpoint) = &options.checkpoint else { return Ok(None) };
        check_output_dir(&checkpoint.dir)?;
        remove_leftovers(&checkpoint.dir);
        let init = match &options.init {
            Init::Model(model) => {
                let numbers = model.factors().iter().flatten().chain(model.weights());
                // FNV-1a over the words.
                let hash =
                    numbers.fold(0xcbf2_9ce4_8422_2325u64, |h, v| (h ^ v.to_bits()).wrapping_mul(0x100_0000_01b3));
                format!("a model with hash {hash:016x}")
            }
            other => format!("{other:?}"),
        };
        let about = format!(
            "dims {:?}\nrank {}\nstarts {}\ndtype {}\nnorm {norm:e}\ninit {init}\nfixed {:?}\nnonneg {:?}\nridge {:e}\nplan {:?}\ntree {}, budget {:?}",
            shape.dims(),
            options.rank,
            options.starts,
            T::DTYPE,
            options.fixed,
            options.nonneg,
            options.ridge,
            options.plan,
            options.tree,
            options.memory_budget,
        );
        Ok(Some(Self { checkpoint, about, device, last: Instant::now(), failed: false }))
    }

    /// Whether one is due after this many sweeps.
    pub fn due(&self, sweeps: usize) -> bool {
        match self.checkpoint.every {
            Every::Sweeps(n) => sweeps.is_multiple_of(n),
            Every::Seconds(s) => self.last.elapsed().as_secs_f64() >= s,
        }
    }

    /// Saves; what goes wrong is a warning, once: the run is worth more than its checkpoint.
    pub fn save<T: Real>(&mut self, steps: &mut dyn AlsSteps<T>, mut state: State<T>) -> Option<String> {
        self.last = Instant::now();
        let saved = match steps.snapshot() {
            Ok(factors) => {
                (state.factors, state.kept) = (factors, steps.kept());
                self.write(&state)
            }
            Err(error) => Err(error),
        };
        let error = saved.err()?;
        (!std::mem::replace(&mut self.failed, true)).then(|| format!("a checkpoint could not be written: {error}"))
    }

    fn write<T: Real>(&self, state: &State<T>) -> Result<()> {
        let path = self.checkpoint.file();
        let bytes = self.pack(state).map_err(|e| Error::io(&path, e))?;
        let made = fs::create_dir_all(&self.checkpoint.dir);
        made.map_err(|e| Error::io(&self.checkpoint.dir, e))?;
        let staged = Staged::write(&path, |out| out.write_all(&bytes))?;
        staged.sync()?;
        staged.commit()
    }

    fn pack<T: Real>(&self, state: &State<T>) -> std::result::Result<Vec<u8>, ndarray_npy::WriteNpzError> {
        // Arrays must not be empty: every text ends with a line's end.
        let text = |text: String| Array1::from((text + "\n").into_bytes());
        let mut npz = NpzWriter::new(Cursor::new(Vec::new()));
        npz.add_array("about", &text(self.about.clone()))?;
        npz.add_array("device", &text(self.device.clone()))?;
        npz.add_array("warnings", &text(state.warnings.join("\n")))?;
        for (mode, (factor, gram)) in state.factors.iter().zip(&state.grams).enumerate() {
            npz.add_array(format!("factor_{mode}"), factor)?;
            npz.add_array(format!("gram_{mode}"), gram)?;
        }
        npz.add_array("weights", &state.weights)?;
        let starts = state.trace.fits.first().map_or(0, Vec::len);
        let fits =
            Array2::from_shape_fn((state.trace.sweeps(), starts), |(sweep, start)| state.trace.fits[sweep][start]);
        npz.add_array("fits", &fits)?;
        npz.add_array("passes", &Array1::from(vec![state.passes as f64]))?;
        npz.add_array("kept", &Array1::from(vec![state.kept.map_or(-1.0, |group| group as f64)]))?;
        let initial = state.initial_fit.map_or([0.0, 0.0], |fit| [1.0, fit]);
        npz.add_array("initial_fit", &Array1::from(initial.to_vec()))?;
        Ok(npz.finish()?.into_inner())
    }

    /// The state to go on from, and a warning where that may not give the same bits; `None` to start from the beginning.
    pub fn load<T: Real>(&self, shape: &Shape, columns: usize) -> Result<Option<(State<T>, Option<String>)>> {
        let path = self.checkpoint.file();
        if !self.checkpoint.resume || !path.exists() {
            return Ok(None);
        }
        let about = text(&path, "about")?;
        for (expected, found) in self.about.lines().zip(about.lines().chain(std::iter::repeat(""))) {
            if expected != found {
                let reason = format!("the checkpoint is of another run: it has {found:?}, this run {expected:?}");
                return Err(Error::format(&path, reason));
            }
        }
        let device = text(&path, "device")?;
        let warning = (device != self.device)
            .then(|| format!("the checkpoint is from {device}: on {} the last bits may differ", self.device));
        let sized = |name: String, found: (usize, usize), expected: (usize, usize)| {
            let reason = format!("{name} is {} x {}, expected {} x {}", found.0, found.1, expected.0, expected.1);
            if found == expected { Ok(()) } else { Err(Error::format(&path, reason)) }
        };
        let (mut factors, mut grams) = (Vec::new(), Vec::new());
        for (mode, &rows) in shape.iter().enumerate() {
            let factor: Array2<T> = array(&path, &format!("factor_{mode}"))?;
            sized(format!("factor_{mode}"), factor.dim(), (rows, columns))?;
            factors.push(factor);
            let gram: Array2<f64> = array(&path, &format!("gram_{mode}"))?;
            sized(format!("gram_{mode}"), gram.dim(), (columns, columns))?;
            grams.push(gram);
        }
        let weights: Array1<f64> = array(&path, "weights")?;
        sized("weights".into(), (weights.len(), 1), (columns, 1))?;
        let fits: Array2<f64> = array(&path, "fits")?;
        let trace = Trace { fits: fits.rows().into_iter().map(|row| row.to_vec()).collect() };
        let passes: Array1<f64> = array(&path, "passes")?;
        let passes = passes.first().map_or(0, |&passes| passes as usize);
        let kept: Array1<f64> = array(&path, "kept")?;
        let kept = kept.first().filter(|&&group| group >= 0.0).map(|&group| group as usize);
        let initial: Array1<f64> = array(&path, "initial_fit")?;
        let initial_fit = (initial.len() == 2 && initial[0] == 1.0).then(|| initial[1]);
        let warnings = text(&path, "warnings")?.lines().map(str::to_owned).collect();
        Ok(Some((State { factors, grams, weights, trace, passes, kept, initial_fit, warnings }, warning)))
    }
}

/// An array of the checkpoint, finite.
fn array<T: Real, D: Dimension>(path: &Path, name: &str) -> Result<Array<T, D>> {
    let array = TensorFile::in_npz(path, name)?.read::<T>()?.into_array();
    crate::io::check_finite(&format!("{}:{name}", path.display()), array.view())?;
    array.into_dimensionality().map_err(|e| Error::format(path, format!("{name}: {e}")))
}

/// A text of the checkpoint, without the line's end that closes it.
fn text(path: &Path, name: &str) -> Result<String> {
    let bytes: Array1<f32> = array(path, name)?;
    let text = String::from_utf8(bytes.iter().map(|&b| b as u8).collect());
    let text = text.map_err(|e| Error::format(path, format!("{name}: {e}")))?;
    Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
}

/// Removes what a process that was killed while it wrote has left.
fn remove_leftovers(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(".polyad-") && name.ends_with(".tmp")) {
            let _ = fs::remove_file(entry.path());
        }
    }
}
