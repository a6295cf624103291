//! Files: `.npy`, `.npz` and Tensor Toolbox text. Nothing else in this crate reads or writes any.
//!
//! [`TensorFile`] opens a dense tensor of whatever format and gives it as `f32` or `f64`. Models are folders of
//! `.npy` files ([`read_model`], [`write_model`]) or Tensor Toolbox text ([`read_ktensor`], [`write_ktensor`]).
//! No file, however broken, makes these functions panic or allocate more than a small multiple of the file's size
//! (for a compressed `.npz`, of what it can unpack to).
//!
//! ```
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("x.txt");
//! std::fs::write(&path, "tensor\n3\n2 1 2\n1\n2\n3\n4\n").unwrap();
//! let file = polyad::io::TensorFile::open(&path).unwrap();
//! assert_eq!((file.dims(), file.stored_dtype()), (&[2, 1, 2][..], "text"));
//! let x = file.read::<f64>().unwrap();
//! polyad::io::check_finite("x.txt", x.view()).unwrap();
//! assert_eq!(x.view()[[1, 0, 0]], 2.0);
//! ```

mod data;
mod dtype;
mod finite;
mod folder;
mod ktensor;
mod model;
mod npy;
mod npz;
mod output;
mod text;

pub use data::TensorData;
pub use finite::{check_finite, first_non_finite};
pub use folder::write_folder;
pub use ktensor::{read_ktensor, write_ktensor};
pub use model::{read_matrix, read_model, read_vector, write_matrix, write_model, write_tensor};
pub(crate) use output::Staged;
pub use output::{check_output_dir, check_output_file};

use crate::{Dtype, Error, Real, Result, Shape};
use dtype::{Kind, at};
use npy::Header;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// A dense tensor in a file, of which the dims and the dtype are known and the entries not yet read.
///
/// The format is told from the content: `.npy`, `.npz`, else Tensor Toolbox text.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("a.npy");
/// polyad::io::write_matrix(&path, ndarray::array![[1.0f32, 2.0, 3.0]].view()).unwrap();
/// let file = polyad::io::TensorFile::open(&path).unwrap();
/// assert_eq!((file.dims(), file.stored_dtype()), (&[1, 3][..], "f32"));
/// ```
#[derive(Debug, Clone)]
pub struct TensorFile {
    path: PathBuf,
    content: Content,
}

#[derive(Debug, Clone, PartialEq)]
enum Content {
    Npy(Header),
    Npz { name: String, header: Header },
    Text(Shape),
}

impl TensorFile {
    /// Opens `FILE.npy`, `FILE.npz` with one array in it, `FILE.npz:NAME`, or Tensor Toolbox text with header
    /// `tensor`, and reads what comes before the entries.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] with the byte or line numbers, also for data that are too short or too long
    /// for the dims and for dtypes other than f32, f64, bool and integers of 8 to 64 bits; [`Error::Order`],
    /// [`Error::EmptyDim`] or [`Error::TooManyElements`] for dims that are no tensor's.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("x.txt");
    /// std::fs::write(&path, "sptensor\n3\n2 2 2\n1\n1 1 1 5.0\n").unwrap();
    /// assert!(polyad::io::TensorFile::open(&path).unwrap_err().to_string().contains("sparse"));
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if !path.exists()
            && let Some((archive, name)) = path.to_str().and_then(|p| p.rsplit_once(':'))
            && Path::new(archive).is_file()
        {
            let archive = Path::new(archive);
            return match probe(archive)? {
                Format::Npz => Self::open_npz(archive, Some(name)),
                _ => Err(Error::format(archive, format!("not a .npz archive, so it has no array {name:?}"))),
            };
        }
        let content = match probe(path)? {
            Format::Npz => return Self::open_npz(path, None),
            Format::Npy => Content::Npy(read_npy_header(path)?.1),
            Format::Text => Content::Text(text::read_shape(path)?),
        };
        Ok(Self { path: path.into(), content })
    }

    /// An array of a .npz archive, whatever characters the archive's path has.
    pub(crate) fn in_npz(path: &Path, name: &str) -> Result<Self> {
        Self::open_npz(path, Some(name))
    }

    fn open_npz(path: &Path, name: Option<&str>) -> Result<Self> {
        let (name, header) = npz::with_entry(path, name, |_, name, header, _| Ok((name.to_owned(), header)))?;
        Ok(Self { path: path.into(), content: Content::Npz { name, header } })
    }

    /// The dims, as NumPy and the Tensor Toolbox show them, whatever the memory order.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("x.txt");
    /// std::fs::write(&path, "tensor\n2\n2 3\n1 2 3 4 5 6\n").unwrap();
    /// assert_eq!(polyad::io::TensorFile::open(&path).unwrap().dims(), [2, 3]);
    /// ```
    pub fn dims(&self) -> &[usize] {
        match &self.content {
            Content::Npy(header) | Content::Npz { header, .. } => &header.shape,
            Content::Text(shape) => shape,
        }
    }

    /// The dtype in the file: `"bool"`, `"u8"` to `"u64"`, `"i8"` to `"i64"`, `"f32"`, `"f64"`, or `"text"`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("x.npy");
    /// ndarray_npy::write_npy(&path, &ndarray::array![1u8, 2]).unwrap();
    /// assert_eq!(polyad::io::TensorFile::open(&path).unwrap().stored_dtype(), "u8");
    /// ```
    pub fn stored_dtype(&self) -> &str {
        match &self.content {
            Content::Npy(header) | Content::Npz { header, .. } => header.stored.name(),
            Content::Text(_) => "text",
        }
    }

    /// The dtype to compute in if nothing else is asked for: f32 for f32, and f64 for all others.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("x.npy");
    /// ndarray_npy::write_npy(&path, &ndarray::array![1i64, 2]).unwrap();
    /// assert_eq!(polyad::io::TensorFile::open(&path).unwrap().natural_dtype(), polyad::Dtype::F64);
    /// ```
    pub fn natural_dtype(&self) -> Dtype {
        match &self.content {
            Content::Npy(header) | Content::Npz { header, .. } if header.stored.kind == Kind::F32 => Dtype::F32,
            _ => Dtype::F64,
        }
    }

    /// Reads the entries as `T`; the result has the dims of [`dims`](Self::dims).
    ///
    /// A `.npy` file whose entries are `T` in this machine's byte order is memory-mapped, and must not be changed
    /// while the result lives. Other entries are converted to the nearest `T` (integers of more than 24 or 53 bits
    /// are rounded); true is 1. NaN and infinity are let through: see [`check_finite`].
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Format`] with the byte or line numbers, and [`Error::Overflow`] with the index and the
    /// value of a finite entry that `T` cannot hold.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("x.npy");
    /// polyad::io::write_matrix(&path, ndarray::array![[1.0, 1e300]].view()).unwrap();
    /// let file = polyad::io::TensorFile::open(&path).unwrap();
    /// assert!(file.read::<f64>().is_ok());
    /// assert!(file.read::<f32>().unwrap_err().to_string().contains("1e300 overflowed f32 at index (0, 1)"));
    /// ```
    pub fn read<T: Real>(&self) -> Result<TensorData<T>> {
        let unchanged = |now: &Header, then: &Header| {
            let fault = || Error::format(&self.path, "the header changed since the file was opened");
            if now == then { Ok(()) } else { Err(fault()) }
        };
        match &self.content {
            Content::Npy(then) => {
                let (file, header) = read_npy_header(&self.path)?;
                unchanged(&header, then)?;
                TensorData::from_npy(&self.path, &file, header)
            }
            Content::Npz { name, header: then } => {
                npz::with_entry(&self.path, Some(name), |label, _, header, reader| {
                    unchanged(&header, then)?;
                    TensorData::from_stream(label, reader, &header)
                })
            }
            Content::Text(_) => text::read_tensor(&self.path),
        }
    }
}

enum Format {
    Npy,
    Npz,
    Text,
}

/// Opens a file for reading; with its length. Only a regular file: a device may never end, a pipe may never begin, and
/// neither can be read twice.
fn open(path: &Path) -> Result<(File, u64)> {
    // Before opening it, which waits for a writer if it is a pipe.
    regular(path, &at(path, std::fs::metadata(path))?)?;
    let file = at(path, File::open(path))?;
    let bytes = at(path, file.metadata())?.len();
    Ok((file, bytes))
}

/// Errors unless it is a regular file.
fn regular(path: &Path, meta: &std::fs::Metadata) -> Result<()> {
    match meta {
        meta if meta.is_file() => Ok(()),
        meta if meta.is_dir() => Err(Error::io(path, "is a directory, not a file")),
        _ => Err(Error::io(path, "is not a regular file")),
    }
}

/// Tells the format from the first bytes.
fn probe(path: &Path) -> Result<Format> {
    let mut magic = Vec::new();
    let (file, _) = open(path)?;
    at(path, file.take(npy::MAGIC.len() as u64).read_to_end(&mut magic))?;
    match magic.as_slice() {
        [] => Err(Error::format(path, "the file is empty")),
        npy::MAGIC => Ok(Format::Npy),
        // The second is an archive without entries.
        [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] => Ok(Format::Npz),
        _ => Ok(Format::Text),
    }
}

fn read_npy_header(path: &Path) -> Result<(File, Header)> {
    let (file, total) = open(path)?;
    let header = Header::read(path, &mut BufReader::new(&file), total)?;
    Ok((file, header))
}

/// The index of the entry at a column-major place.
fn column_major_index(shape: &Shape, place: usize) -> Vec<usize> {
    let mut rest = place;
    let index = |&d: &usize| {
        let i = rest % d;
        rest /= d;
        i
    };
    shape.dims().iter().map(index).collect()
}
