//! One array of a .npz archive, which is a zip file of .npy files.

use super::npy::Header;
use crate::{Error, Result};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use zip::ZipArchive;

/// No deflate stream is longer than this many times its compressed size.
const MAX_RATIO: u64 = 1032;

/// Runs `work` on the array `name` (or on the only one), positioned behind its header.
/// `work` gets the archive's path with the array's name, for messages.
pub(super) fn with_entry<R>(
    path: &Path,
    name: Option<&str>,
    work: impl FnOnce(&Path, &str, Header, &mut dyn Read) -> Result<R>,
) -> Result<R> {
    let (file, file_bytes) = super::open(path)?;
    let zip_fault = |e: zip::result::ZipError| Error::format(path, format!("not a readable .npz archive: {e}"));
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(zip_fault)?;
    let index = choose(path, &archive, name)?;
    let name = array_name(archive.name_for_index(index).unwrap_or_default()).to_owned();
    let label = PathBuf::from(format!("{}:{name}", path.display()));
    let mut entry = archive.by_index(index).map_err(zip_fault)?;
    // The archive's own numbers decide how much is allocated, so they are held against the file's size.
    let (packed, unpacked) = (entry.compressed_size(), entry.size());
    if packed > file_bytes || unpacked > packed.saturating_mul(MAX_RATIO).saturating_add(64) {
        let reason = format!("{unpacked} bytes cannot come out of {packed} in an archive of {file_bytes} bytes");
        return Err(Error::format(&label, reason));
    }
    let header = Header::read(&label, &mut entry, unpacked)?;
    let result = work(&label, &name, header, &mut entry)?;
    Ok(result)
}

fn choose(path: &Path, archive: &ZipArchive<BufReader<File>>, name: Option<&str>) -> Result<usize> {
    let names = || {
        let mut names: Vec<&str> = archive.file_names().map(array_name).collect();
        names.truncate(20);
        names.join(", ")
    };
    if let Some(name) = name {
        let index = archive.index_for_name(name).or_else(|| archive.index_for_name(&format!("{name}.npy")));
        return index.ok_or_else(|| {
            Error::format(path, format!("no array {name:?} among its {} ({})", archive.len(), names()))
        });
    }
    match archive.len() {
        0 => Err(Error::format(path, "the archive is empty")),
        1 => Ok(0),
        n => Err(Error::format(path, format!("{n} arrays in it ({}): name one as FILE.npz:NAME", names()))),
    }
}

fn array_name(entry: &str) -> &str {
    entry.strip_suffix(".npy").unwrap_or(entry)
}
