//! Tensor data, owned or memory-mapped.

use super::dtype::{self, at};
use super::npy::Header;
use crate::{Error, Real, Result};
use memmap2::Mmap;
use ndarray::{ArrayD, ArrayViewD, IxDyn, ShapeBuilder};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The entries of a tensor: an array of its own, or a memory-mapped .npy file.
///
/// Dims and indices are those that NumPy shows; the strides follow the file (C or Fortran order).
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("x.npy");
/// polyad::io::write_matrix(&path, ndarray::array![[1.0, 2.0], [3.0, 4.0]].view()).unwrap();
/// let data = polyad::io::TensorFile::open(&path).unwrap().read::<f64>().unwrap();
/// assert_eq!(data.view(), ndarray::array![[1.0, 2.0], [3.0, 4.0]].into_dyn());
/// ```
#[derive(Debug)]
pub struct TensorData<T> {
    inner: Inner<T>,
}

#[derive(Debug)]
enum Inner<T> {
    Owned(ArrayD<T>),
    Mapped { map: Mmap, header: Header },
}

impl<T: Real> TensorData<T> {
    /// The entries. Has the dims of the file it was read from.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("x.txt");
    /// std::fs::write(&path, "tensor\n2\n2 1\n5\n6\n").unwrap();
    /// let data = polyad::io::TensorFile::open(&path).unwrap().read::<f32>().unwrap();
    /// assert_eq!(data.view(), ndarray::array![[5.0], [6.0]].into_dyn());
    /// ```
    pub fn view(&self) -> ArrayViewD<'_, T> {
        match &self.inner {
            Inner::Owned(array) => array.view(),
            Inner::Mapped { map, header } => {
                // Both were checked before this value was made.
                let entries = mapped_entries(map, header).expect("checked in from_npy");
                ArrayViewD::from_shape(layout(header), entries).expect("checked in Header::read")
            }
        }
    }

    /// Whether the entries are those of a memory-mapped file rather than a copy.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("x.npy");
    /// polyad::io::write_matrix(&path, ndarray::array![[1.0f64, 2.0]].view()).unwrap();
    /// let file = polyad::io::TensorFile::open(&path).unwrap();
    /// assert!(file.read::<f64>().unwrap().is_mapped());
    /// assert!(!file.read::<f32>().unwrap().is_mapped());
    /// ```
    pub fn is_mapped(&self) -> bool {
        matches!(self.inner, Inner::Mapped { .. })
    }

    /// The entries as an array of their own; copies only if they are memory-mapped.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("x.npy");
    /// polyad::io::write_matrix(&path, ndarray::array![[1.0f64, 2.0]].view()).unwrap();
    /// let array = polyad::io::TensorFile::open(&path).unwrap().read::<f64>().unwrap().into_array();
    /// assert_eq!(array.shape(), [1, 2]);
    /// ```
    pub fn into_array(self) -> ArrayD<T> {
        match self.inner {
            Inner::Owned(array) => array,
            Inner::Mapped { .. } => self.view().to_owned(),
        }
    }

    /// Column-major values, as text files hold them.
    pub(super) fn from_column_major(path: &Path, dims: &[usize], values: Vec<T>) -> Result<Self> {
        owned(path, IxDyn(dims).f(), values)
    }

    /// Maps the file if its bytes are those of `T` in memory, else converts them.
    pub(super) fn from_npy(path: &Path, file: &File, header: Header) -> Result<Self> {
        // SAFETY: the map is read-only and private to this value. If another process changes the file meanwhile,
        // values change or a read past a new end raises SIGBUS; the documentation of `TensorFile::read` says so.
        let map = at(path, unsafe { Mmap::map(file) })?;
        // Not usable as it lies: another dtype or byte order, or a header whose length leaves the data unaligned.
        if header.stored.is::<T>() && mapped_entries::<T>(&map, &header).is_some() {
            return Ok(Self { inner: Inner::Mapped { map, header } });
        }
        let Some(bytes) = map.get(header.start as usize..).filter(|b| b.len() as u64 == header.data_bytes()) else {
            return Err(Error::format(path, "the file changed while it was being read"));
        };
        let values = dtype::convert_slice(header.stored, bytes);
        Self::from_converted(path, &header, values)
    }

    /// Converts what `reader` has after the header.
    pub(super) fn from_stream(path: &Path, mut reader: impl Read, header: &Header) -> Result<Self> {
        let values = at(path, dtype::convert_stream(header.stored, &mut reader, header.shape.len()))?;
        // The read that meets the end is the one that checks the archive's checksum.
        let mut more = [0];
        if at(path, reader.read(&mut more))? > 0 {
            return Err(Error::format(path, format!("more than {} bytes of data", header.data_bytes())));
        }
        Self::from_converted(path, header, values)
    }

    fn from_converted(path: &Path, header: &Header, values: std::result::Result<Vec<T>, (usize, f64)>) -> Result<Self> {
        let values = values.map_err(|(place, v)| dtype::overflow::<T>(path, format!("{v:e}"), header.index(place)))?;
        owned(path, layout(header), values)
    }
}

fn layout(header: &Header) -> ndarray::StrideShape<IxDyn> {
    IxDyn(&header.shape).set_f(header.fortran).into()
}

fn owned<T: Real>(
    path: &Path,
    layout: impl Into<ndarray::StrideShape<IxDyn>>,
    values: Vec<T>,
) -> Result<TensorData<T>> {
    let array = ArrayD::from_shape_vec(layout, values).map_err(|e| Error::format(path, e))?;
    Ok(TensorData { inner: Inner::Owned(array) })
}

/// The entries as they lie in the map, if their place and number allow it.
fn mapped_entries<'a, T: Real>(map: &'a Mmap, header: &Header) -> Option<&'a [T]> {
    let bytes = map.get(usize::try_from(header.start).ok()?..)?;
    bytemuck::try_cast_slice(bytes).ok().filter(|entries| entries.len() == header.shape.len())
}
