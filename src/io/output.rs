//! Writing so that a failure leaves nothing behind, and checking beforehand that writing will work.

use crate::{Error, Result};
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A file written under a temporary name beside its target. Removed unless committed.
pub(crate) struct Staged {
    temporary: PathBuf,
    target: PathBuf,
}

impl Staged {
    /// Writes the content to a temporary file in the folder of `path`.
    pub fn write(path: &Path, content: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<Self> {
        let target = resolve(path)?;
        let (file, temporary) = create_temporary(&target).map_err(|e| Error::io(path, e))?;
        // From here on dropping it removes the temporary file.
        let staged = Self { temporary, target };
        let mut out = BufWriter::new(file);
        content(&mut out).and_then(|()| out.flush()).map_err(|e| Error::io(path, e))?;
        Ok(staged)
    }

    /// Waits until the content is on the disk, so that not even a crash of the machine leaves an empty file in its place.
    pub fn sync(&self) -> Result<()> {
        let file = OpenOptions::new().write(true).open(&self.temporary);
        file.and_then(|file| file.sync_all()).map_err(|e| Error::io(&self.target, e))
    }

    /// Puts the file in its place.
    pub fn commit(self) -> Result<()> {
        fs::rename(&self.temporary, &self.target).map_err(|e| Error::io(&self.target, e))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // After a commit there is nothing under this name, and the error is of no interest.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// What a path stands for: links are followed, so that a link stays a link. Devices and folders are refused,
/// because a rename would replace them.
fn resolve(path: &Path) -> Result<PathBuf> {
    match fs::metadata(path) {
        Ok(meta) => {
            super::regular(path, &meta)?;
            fs::canonicalize(path).map_err(|e| Error::io(path, e))
        }
        Err(_) if path.file_name().is_none() => Err(Error::io(path, "is not a file name")),
        Err(_) => Ok(path.into()),
    }
}

/// A new file of a name that nobody uses, in the folder of `target`.
fn create_temporary(target: &Path) -> std::io::Result<(File, PathBuf)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut tries = 0;
    loop {
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = target.with_file_name(format!(".polyad-{}-{n}.tmp", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((file, path)),
            // Left over from a process that had the same id.
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && tries < 100 => tries += 1,
            Err(e) => return Err(e),
        }
    }
}

/// Folders made for a purpose, removed again (where empty) unless kept.
pub(super) struct NewFolders {
    made: Vec<PathBuf>,
}

impl NewFolders {
    /// Makes `dir` and what it lacks above it.
    pub fn make(dir: &Path) -> Result<Self> {
        let missing: Vec<&Path> =
            dir.ancestors().take_while(|d| !d.as_os_str().is_empty() && fs::symlink_metadata(d).is_err()).collect();
        let mut folders = Self { made: Vec::new() };
        for folder in missing.into_iter().rev() {
            match fs::create_dir(folder) {
                Ok(()) => folders.made.push(folder.into()),
                // Someone else was quicker, or the path has a `..` in it.
                Err(_) if folder.is_dir() => {}
                Err(e) => return Err(Error::io(folder, e)),
            }
        }
        match fs::metadata(here(dir)) {
            Ok(meta) if meta.is_dir() => Ok(folders),
            Ok(_) => Err(Error::io(dir, "is not a directory")),
            Err(e) => Err(Error::io(dir, e)),
        }
    }

    pub fn keep(mut self) {
        self.made.clear();
    }
}

impl Drop for NewFolders {
    fn drop(&mut self) {
        for folder in self.made.iter().rev() {
            let _ = fs::remove_dir(folder);
        }
    }
}

fn here(dir: &Path) -> &Path {
    if dir.as_os_str().is_empty() { Path::new(".") } else { dir }
}

fn probe(dir: &Path) -> Result<()> {
    let (_, path) = create_temporary(&here(dir).join("probe")).map_err(|e| Error::io(here(dir), e))?;
    fs::remove_file(&path).map_err(|e| Error::io(&path, e))
}

/// Checks that files can be written into a folder, which need not exist yet. Nothing it makes stays.
///
/// Meant to be called before long work whose result goes there.
///
/// # Errors
/// [`Error::Io`] with the path and the system's reason.
///
/// ```
/// let dir = tempfile::tempdir().unwrap();
/// let new = dir.path().join("a/b");
/// polyad::io::check_output_dir(&new).unwrap();
/// assert!(!dir.path().join("a").exists());
/// ```
pub fn check_output_dir(dir: &Path) -> Result<()> {
    let _removed_again = NewFolders::make(dir)?;
    probe(dir)
}

/// Checks that a file can be written: its folder exists and is writable, and no folder has its name. Makes nothing.
///
/// # Errors
/// [`Error::Io`] with the path and the system's reason.
///
/// ```
/// let dir = tempfile::tempdir().unwrap();
/// polyad::io::check_output_file(&dir.path().join("g.npy")).unwrap();
/// assert!(polyad::io::check_output_file(dir.path()).is_err());
/// ```
pub fn check_output_file(path: &Path) -> Result<()> {
    let target = resolve(path)?;
    probe(target.parent().unwrap_or(Path::new("")))
}
