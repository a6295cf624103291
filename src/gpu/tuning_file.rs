//! Tuning files: where they lie, what is in them, and which are believed.

use super::Gpu;
use crate::io::Staged;
use crate::plan::{DeviceCaps, Tile, TileChoice, Tuning};
use crate::{Backend, Error, Result};
use etcetera::BaseStrategy;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// Version of what is in a file. A change of the kernels that makes old tiles meaningless raises it too.
const FORMAT: u64 = 1;

/// More than any tuning file has.
const MAX_BYTES: u64 = 1 << 20;

/// Which tuning file a `Gpu` reads when it is opened.
#[derive(Debug, Clone, Default)]
pub(super) enum Source {
    /// The adapter's file in the user's cache folder, if there is one that can be used.
    #[default]
    Cache,
    /// This one, which has to be usable.
    File(PathBuf),
    /// None.
    Off,
}

/// What a file is for: tiles are worth nothing on another adapter, and little on another driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    pub adapter: String,
    pub driver: String,
}

impl Identity {
    pub fn of(info: &wgpu::AdapterInfo) -> Self {
        let driver = format!("{} {} {}", info.backend.to_str(), info.driver, info.driver_info);
        Self { adapter: info.name.clone(), driver: crate::error::one_line(&driver) }
    }

    /// `tuning-ADAPTER-DRIVER.json` with nothing in it that a file system minds.
    fn file_name(&self) -> String {
        format!("tuning-{}-{}.json", safe(&self.adapter), safe(&self.driver))
    }

    /// Its file in the user's cache folder; `None` where the system tells of none.
    pub fn path(&self) -> Option<PathBuf> {
        let cache = etcetera::choose_base_strategy().ok()?.cache_dir();
        Some(cache.join("polyad").join(self.file_name()))
    }
}

/// Small letters, digits and single dashes, at most 80 of them.
fn safe(text: &str) -> String {
    let words: Vec<String> =
        text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty()).map(str::to_lowercase).collect();
    let mut name = words.join("-");
    name.truncate(80);
    if name.is_empty() { "unknown".into() } else { name }
}

/// A tile that was faster than the built-in one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Faster {
    #[serde(flatten)]
    pub choice: TileChoice,
    pub seconds: f64,
    pub built_in: Tile,
    pub built_in_seconds: f64,
}

/// A whole file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Content {
    format: u64,
    /// Version of this crate that measured.
    polyad: String,
    #[serde(flatten)]
    identity: Identity,
    tiles: Vec<Faster>,
}

impl Content {
    pub fn new(identity: Identity, tiles: Vec<Faster>) -> Self {
        Self { format: FORMAT, polyad: env!("CARGO_PKG_VERSION").into(), identity, tiles }
    }

    /// Writes it whole or not at all; the folder is made if it is missing.
    pub fn write(&self, path: &Path) -> Result<()> {
        if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(|e| Error::io(folder, e))?;
        }
        let text = serde_json::to_string_pretty(self).map_err(|e| Error::format(path, e))?;
        Staged::write(path, |out| out.write_all(format!("{text}\n").as_bytes()))?.commit()
    }
}

/// The tiles of a file.
pub(super) fn read(path: &Path, identity: &Identity, caps: &DeviceCaps) -> Result<Tuning> {
    let meta = fs::metadata(path).map_err(|e| Error::io(path, e))?;
    if !meta.is_file() {
        return Err(Error::format(path, "is not a regular file"));
    }
    if meta.len() > MAX_BYTES {
        return Err(Error::format(path, format!("{} bytes are too many for a tuning file", meta.len())));
    }
    let text = fs::read_to_string(path).map_err(|e| Error::io(path, e))?;
    // The version first: what else there is depends on it.
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|e| Error::format(path, e))?;
    match value.get("format").and_then(serde_json::Value::as_u64) {
        Some(FORMAT) => {}
        Some(other) => return Err(Error::format(path, format!("has format {other}, this version reads {FORMAT}"))),
        None => return Err(Error::format(path, "is no tuning file: it has no format")),
    }
    let content: Content = serde_json::from_value(value).map_err(|e| Error::format(path, e))?;
    let theirs = &content.identity;
    if theirs != identity {
        let reason = format!(
            "is for {} with driver {}, this is {} with {}",
            theirs.adapter, theirs.driver, identity.adapter, identity.driver
        );
        return Err(Error::format(path, reason));
    }
    let choices = content.tiles.iter().map(|faster| faster.choice).collect();
    Tuning::new(&path.display().to_string(), choices, caps).map_err(|e| Error::format(path, e))
}

/// The tuning that a source gives, or a warning that says why there is none.
///
/// # Errors
/// Where a file was named that cannot be used.
pub(super) fn load(
    source: &Source,
    identity: &Identity,
    caps: &DeviceCaps,
) -> Result<(Option<Tuning>, Option<String>)> {
    match source {
        Source::Off => Ok((None, None)),
        Source::File(path) => Ok((Some(read(path, identity, caps)?), None)),
        Source::Cache => {
            let Some(path) = identity.path().filter(|path| fs::symlink_metadata(path).is_ok()) else {
                return Ok((None, None));
            };
            Ok(match read(&path, identity, caps) {
                Ok(tuning) => (Some(tuning), None),
                Err(error) => (None, Some(format!("the tuning file is ignored: {error}"))),
            })
        }
    }
}

impl Gpu {
    /// Where this adapter's tuning file is looked for: `polyad/tuning-ADAPTER-DRIVER.json` in the user's cache folder;
    /// `None` where the system tells of none.
    ///
    /// ```
    /// if let Ok(gpu) = polyad::Gpu::new() {
    ///     println!("{:?}", gpu.tuning_path());
    /// }
    /// ```
    pub fn tuning_path(&self) -> Option<PathBuf> {
        self.identity().path()
    }

    /// The same device with the tiles of a file. What was uploaded before belongs to the other `Gpu`.
    ///
    /// A `Gpu` that opens its adapter reads the file of [`tuning_path`](Gpu::tuning_path) by itself; one on a borrowed
    /// device ([`Gpu::from_wgpu`]) reads what it is told here.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Format`] where the file cannot be read, is of another version, for another adapter or
    /// driver, or holds tiles that the kernels or the device do not allow.
    ///
    /// ```
    /// if let Ok(gpu) = polyad::Gpu::new() {
    ///     assert!(gpu.with_tuning_file("no such file".as_ref()).is_err());
    /// }
    /// ```
    pub fn with_tuning_file(&self, path: &Path) -> Result<Self> {
        let tuning = read(path, &self.identity(), self.caps())?;
        Ok(self.with_tuning(Some(tuning)))
    }

    /// The same device with the built-in tiles. What was uploaded before belongs to the other `Gpu`.
    ///
    /// ```
    /// use polyad::Backend;
    /// if let Ok(gpu) = polyad::Gpu::new() {
    ///     assert!(gpu.without_tuning().caps().tuning.is_none());
    /// }
    /// ```
    pub fn without_tuning(&self) -> Self {
        self.with_tuning(None)
    }

    /// What the user should know of this device, one line each: a tuning file that could not be used.
    ///
    /// ```
    /// if let Ok(gpu) = polyad::Gpu::new() {
    ///     gpu.warnings().iter().for_each(|w| println!("warning: {w}"));
    /// }
    /// ```
    pub fn warnings(&self) -> &[String] {
        &self.inner.warnings
    }

    fn with_tuning(&self, tuning: Option<Tuning>) -> Self {
        let caps = DeviceCaps { tuning, ..self.caps().clone() };
        Self::on(self.inner.device.clone(), self.inner.queue.clone(), caps, Vec::new())
    }

    pub(super) fn identity(&self) -> Identity {
        Identity::of(&self.inner.device.adapter_info())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{TileColumns, TileKernel, TileLayout};

    fn identity() -> Identity {
        Identity { adapter: "Card (TM) 9/x".into(), driver: "vulkan Maker 1.2.3".into() }
    }

    fn content(tile: Tile) -> Content {
        let choice = TileChoice::new(TileKernel::RegistersF32, TileLayout::Rows, TileColumns::UpTo32, tile);
        let faster = Faster { choice, seconds: 1e-3, built_in: tile, built_in_seconds: 2e-3 };
        Content::new(identity(), vec![faster])
    }

    #[test]
    fn names_are_safe() {
        assert_eq!(identity().file_name(), "tuning-card-tm-9-x-vulkan-maker-1-2-3.json");
        assert_eq!(safe("../../\u{e9}"), "unknown");
        assert_eq!(safe(&"x".repeat(500)).len(), 80);
    }

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/folder/t.json");
        let tile = Tile::new([64, 32, 16, 4, 4], 99);
        content(tile).write(&path).unwrap();
        let tuning = read(&path, &identity(), &DeviceCaps::webgpu_minimum("card")).unwrap();
        assert_eq!((tuning.choices()[0].tile, tuning.name()), (tile, path.to_str().unwrap()));
    }

    #[test]
    fn what_cannot_be_used_says_which_file_and_why() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.json");
        let good = serde_json::to_string(&content(Tile::new([64, 32, 16, 4, 4], 99))).unwrap();
        let cases = [
            (String::new(), "EOF"),
            ("{".into(), "EOF"),
            ("[1, 2]".into(), "it has no format"),
            ("{\"format\": 1}".into(), "missing field"),
            (good.replace("\"format\":1", "\"format\":7"), "has format 7, this version reads 1"),
            (good.replace("Maker 1.2.3", "Maker 1.2.4"), "is for Card (TM) 9/x with driver vulkan Maker 1.2.4"),
            (good.replace("registers_f32", "registers_f16"), "unknown variant"),
            (good.replace("\"bm\":64", "\"bm\":-64"), "invalid value"),
            (good.replace("\"bm\":64", "\"bm\":63"), "rows and columns must be multiples"),
            (good.replace("\"bm\":64", "\"bm\":0"), "sizes must be 1 to 1024"),
            (good.replace("\"bm\":64", "\"bm\":4294967295"), "sizes must be 1 to 1024"),
            (good.replace("\"bk\":16", "\"bk\":1024"), "bytes of workgroup memory"),
            ("x".repeat(2 << 20), "too many"),
        ];
        for (text, reason) in cases {
            fs::write(&path, &text).unwrap();
            let error = read(&path, &identity(), &DeviceCaps::webgpu_minimum("card")).unwrap_err().to_string();
            let shown = path.display().to_string();
            assert!(error.starts_with(&shown) && error.contains(reason) && error.lines().count() == 1, "{error}");
        }
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(read(&path, &identity(), &DeviceCaps::webgpu_minimum("card")).is_err());
        assert!(read(dir.path(), &identity(), &DeviceCaps::webgpu_minimum("card")).is_err());
    }
}
