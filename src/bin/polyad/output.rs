//! A folder of output that is there completely or not at all.

use crate::failure::Failure;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// How the names of folders start in which output is put together.
const STAGING: &str = ".polyad-";

/// Writes files into a folder inside `dir`, then moves all of them to `dir`. If anything fails, those moved and every
/// folder made here are removed again, and files that were replaced are put back.
pub fn folder(dir: &Path, write: impl FnOnce(&Path) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut undo = Undo::default();
    undo.create(dir)?;
    let staging = undo.stage(dir)?;
    write(&staging)?;
    let entries = fs::read_dir(&staging).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let old = staging.join("old");
    fs::create_dir(&old).map_err(|e| Failure::io(&old, &e))?;
    for entry in entries.map_err(|e| Failure::io(&staging, &e))? {
        let target = dir.join(entry.file_name());
        // A folder in the way is not replaced: the second rename refuses it.
        let replaced = fs::symlink_metadata(&target).is_ok_and(|meta| !meta.is_dir());
        let backup = replaced.then(|| old.join(entry.file_name()));
        if let Some(backup) = &backup {
            fs::rename(&target, backup).map_err(|e| Failure::io(&target, &e))?;
        }
        let moved = fs::rename(entry.path(), &target).map_err(|e| Failure::io(&target, &e));
        undo.files.push(Moved { target, new: moved.is_ok(), backup });
        moved?;
    }
    undo.keep();
    fs::remove_dir_all(&staging).map_err(|e| Failure::io(&staging, &e))
}

/// What to remove if the work does not finish.
#[derive(Debug, Default)]
struct Undo {
    folders: Vec<PathBuf>,
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
    /// Creates a folder with its missing parents and notes which ones are new.
    fn create(&mut self, dir: &Path) -> Result<(), Failure> {
        let missing = dir.ancestors().filter(|a| !a.as_os_str().is_empty()).take_while(|a| !a.exists());
        let missing: Vec<PathBuf> = missing.map(Path::to_path_buf).collect();
        for folder in missing.into_iter().rev() {
            match fs::create_dir(&folder) {
                Ok(()) => self.folders.push(folder),
                // A path with `..` in it names a folder twice.
                Err(_) if folder.is_dir() => {}
                Err(error) => return Err(Failure::io(&folder, &error)),
            }
        }
        Ok(())
    }

    /// Creates a folder in `dir` that was not there before.
    fn stage(&mut self, dir: &Path) -> Result<PathBuf, Failure> {
        for n in 0..100 {
            let folder = dir.join(format!("{STAGING}{}-{n}", std::process::id()));
            match fs::create_dir(&folder) {
                Ok(()) => {
                    self.folders.push(folder.clone());
                    return Ok(folder);
                }
                // Left over from a process of this id that was killed.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Failure::io(dir, &error)),
            }
        }
        Err(Failure::Failed(format!("{}: too many folders named {STAGING}*", dir.display())))
    }

    fn keep(&mut self) {
        self.folders.clear();
        self.files.clear();
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
        for folder in self.folders.iter().rev() {
            // The staging folder may hold files; any other only what somebody else put there meanwhile, which stays.
            let staged = folder.file_name().is_some_and(|n| n.to_string_lossy().starts_with(STAGING));
            let _ = if staged { fs::remove_dir_all(folder) } else { fs::remove_dir(folder) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(path: &Path, text: &str) -> Result<(), Failure> {
        fs::write(path, text).map_err(|e| Failure::io(path, &e))
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
        folder(&dir, |d| put(&d.join("one"), "1").and_then(|()| put(&d.join("two"), "2"))).unwrap();
        put(&dir.join("own"), "mine").unwrap();
        folder(&dir, |d| put(&d.join("one"), "new")).unwrap();
        assert_eq!(names(&dir), ["one", "own", "two"]);
        assert_eq!(fs::read_to_string(dir.join("one")).unwrap(), "new");
    }

    #[test]
    fn leftovers_of_a_killed_process_are_not_output() {
        let root = tempfile::tempdir().unwrap();
        let old = format!("{STAGING}{}-0", std::process::id());
        fs::create_dir(root.path().join(&old)).unwrap();
        put(&root.path().join(&old).join("stale"), "old").unwrap();
        folder(&root.path().join("new/.."), |d| put(&d.join("one"), "1")).unwrap();
        assert_eq!(names(root.path()), [old.as_str(), "new", "one"]);
    }

    #[test]
    fn a_failure_leaves_nothing_behind() {
        let root = tempfile::tempdir().unwrap();
        let fails = |d: &Path| {
            put(&d.join("one"), "1")?;
            Err(Failure::Failed("on purpose".into()))
        };
        assert!(folder(&root.path().join("a/b"), fails).is_err());
        assert_eq!(names(root.path()), [""; 0]);
        put(&root.path().join("own"), "mine").unwrap();
        assert!(folder(root.path(), fails).is_err());
        assert_eq!(names(root.path()), ["own"]);
    }

    #[test]
    fn a_failed_move_takes_the_others_back() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("two")).unwrap();
        let write = |d: &Path| ["one", "two", "zero"].iter().try_for_each(|n| put(&d.join(n), "1"));
        assert!(folder(root.path(), write).is_err());
        assert_eq!(names(root.path()), ["two"]);
        put(&root.path().join("one"), "old").unwrap();
        put(&root.path().join("zero"), "old").unwrap();
        assert!(folder(root.path(), write).is_err());
        assert_eq!(names(root.path()), ["one", "two", "zero"]);
        for name in ["one", "zero"] {
            assert_eq!(fs::read_to_string(root.path().join(name)).unwrap(), "old");
        }
    }
}
