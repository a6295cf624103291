//! A folder of output that is there completely or not at all.

use super::output::NewFolders;
use crate::{Error, Result};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// How the names of folders start in which output is put together.
const STAGING: &str = ".polyad-";

/// Fills a folder, made if need be: `write` puts files into a new folder inside `dir`, then all of them are moved to
/// `dir`. If anything fails, those moved and every folder made here are removed again, and files that were replaced are
/// put back.
///
/// # Errors
/// What `write` says, or [`Error::Io`].
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let out = dir.path().join("out");
/// polyad::io::write_folder(&out, |staging| {
///     polyad::io::write_matrix(staging.join("a.npy"), ndarray::array![[1.0f32]].view())
/// })
/// .unwrap();
/// assert!(out.join("a.npy").exists());
/// ```
pub fn write_folder<E: From<Error>>(
    dir: &Path,
    write: impl FnOnce(&Path) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let folders = NewFolders::make(dir)?;
    let mut undo = Undo::default();
    let staging = undo.stage(dir)?;
    write(&staging)?;
    undo.replace(&staging, dir)?;
    // From here on only the staging folder, with what was replaced, is removed.
    undo.files.clear();
    folders.keep();
    Ok(())
}

/// What to take back if the work does not finish.
#[derive(Debug, Default)]
struct Undo {
    staging: Option<PathBuf>,
    files: Vec<Moved>,
}

/// A file of the result: where it belongs, whether it got there, and where the one that it replaces is meanwhile.
#[derive(Debug)]
struct Moved {
    target: PathBuf,
    new: bool,
    backup: Option<PathBuf>,
}

impl Undo {
    /// Moves what is in `staging` to `dir`, with what it replaces kept in `staging` until then.
    fn replace(&mut self, staging: &Path, dir: &Path) -> Result<()> {
        let entries = fs::read_dir(staging).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
        let old = staging.join("old");
        fs::create_dir(&old).map_err(|e| Error::io(&old, e))?;
        for entry in entries.map_err(|e| Error::io(staging, e))? {
            let target = dir.join(entry.file_name());
            if let Ok(meta) = fs::metadata(&target) {
                super::regular(&target, &meta)?;
            }
            let replaced = fs::symlink_metadata(&target).is_ok();
            let backup = replaced.then(|| old.join(entry.file_name()));
            if let Some(backup) = &backup {
                fs::rename(&target, backup).map_err(|e| Error::io(&target, e))?;
            }
            let moved = fs::rename(entry.path(), &target).map_err(|e| Error::io(&target, e));
            self.files.push(Moved { target, new: moved.is_ok(), backup });
            moved?;
        }
        Ok(())
    }

    /// Creates a folder in `dir` that was not there before.
    fn stage(&mut self, dir: &Path) -> Result<PathBuf> {
        for n in 0..100 {
            let folder = dir.join(format!("{STAGING}{}-{n}", std::process::id()));
            match fs::create_dir(&folder) {
                Ok(()) => {
                    self.staging = Some(folder.clone());
                    return Ok(folder);
                }
                // Left over from a process of this id that was killed.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io(dir, error)),
            }
        }
        Err(Error::io(dir, format!("too many folders named {STAGING}*")))
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        for file in &self.files {
            if file.new {
                let _ = fs::remove_file(&file.target);
            }
            if let Some(backup) = &file.backup {
                let _ = fs::rename(backup, &file.target);
            }
        }
        if let Some(staging) = &self.staging {
            let _ = fs::remove_dir_all(staging);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(path: &Path, text: &str) -> Result<()> {
        fs::write(path, text).map_err(|e| Error::io(path, e))
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_folder_is_filled_beside_what_is_there() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("a/b");
        write_folder(&dir, |d| put(&d.join("one"), "1").and_then(|()| put(&d.join("two"), "2"))).unwrap();
        put(&dir.join("own"), "mine").unwrap();
        write_folder(&dir, |d| put(&d.join("one"), "new")).unwrap();
        assert_eq!(names(&dir), ["one", "own", "two"]);
        assert_eq!(fs::read_to_string(dir.join("one")).unwrap(), "new");
    }

    #[test]
    fn leftovers_of_a_killed_process_are_not_output() {
        let root = tempfile::tempdir().unwrap();
        let old = format!("{STAGING}{}-0", std::process::id());
        fs::create_dir(root.path().join(&old)).unwrap();
        put(&root.path().join(&old).join("stale"), "old").unwrap();
        write_folder(&root.path().join("new/.."), |d| put(&d.join("one"), "1")).unwrap();
        assert_eq!(names(root.path()), [old.as_str(), "new", "one"]);
    }

    #[test]
    fn a_failure_leaves_nothing_behind() {
        let root = tempfile::tempdir().unwrap();
        let fails = |d: &Path| {
            put(&d.join("one"), "1")?;
            Err(Error::io(d, "on purpose"))
        };
        assert!(write_folder(&root.path().join("a/b"), fails).is_err());
        assert_eq!(names(root.path()), [""; 0]);
        put(&root.path().join("own"), "mine").unwrap();
        assert!(write_folder(root.path(), fails).is_err());
        assert_eq!(names(root.path()), ["own"]);
    }

    #[test]
    fn a_failed_move_takes_the_others_back() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("two")).unwrap();
        let write = |d: &Path| ["one", "two", "zero"].iter().try_for_each(|n| put(&d.join(n), "1"));
        assert!(write_folder(root.path(), write).is_err());
        assert_eq!(names(root.path()), ["two"]);
        put(&root.path().join("one"), "old").unwrap();
        put(&root.path().join("zero"), "old").unwrap();
        assert!(write_folder(root.path(), write).is_err());
        assert_eq!(names(root.path()), ["one", "two", "zero"]);
        for name in ["one", "zero"] {
            assert_eq!(fs::read_to_string(root.path().join(name)).unwrap(), "old");
        }
    }
}
