//! Models as folders of .npy files, and single matrices and vectors.

use super::TensorFile;
use super::folder::write_folder;
use super::output::Staged;
use crate::{CpTensor, Error, Real, Result};
use ndarray::{Array1, Array2, ArrayBase, ArrayView, ArrayView2, Data, Dimension};
use ndarray_npy::WriteNpyExt;
use std::fs;
use std::path::Path;

/// Reads a model from a folder: `factor_0.npy`, `factor_1.npy`, .. (`I_n x R` each) and `weights.npy` (length R).
///
/// Without `weights.npy` all weights are 1. Files of another dtype are converted as [`TensorFile::read`] does.
///
/// # Errors
/// [`Error::Io`], [`Error::Format`] (also for a missing factor), [`Error::Overflow`], and what [`CpTensor::new`] says.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use ndarray::array;
/// polyad::io::write_matrix(dir.path().join("factor_0.npy"), array![[1.0, 2.0]].view()).unwrap();
/// polyad::io::write_matrix(dir.path().join("factor_1.npy"), array![[3.0, 4.0], [5.0, 6.0]].view()).unwrap();
/// let model = polyad::io::read_model::<f32>(dir.path()).unwrap();
/// assert_eq!((model.dims(), model.weights()), (vec![1, 2], &array![1.0, 1.0]));
/// ```
pub fn read_model<T: Real>(dir: impl AsRef<Path>) -> Result<CpTensor<T>> {
    let dir = dir.as_ref();
    let numbers = factor_numbers(dir)?;
    if let Some(gap) = (0..=numbers.len()).find(|n| numbers.get(*n) != Some(n)) {
        let reason = match (numbers.get(gap), gap) {
            (Some(next), _) => Some(format!("{} is missing, though {} is there", factor_name(gap), factor_name(*next))),
            (None, 0) => Some("factor_0.npy is missing: the folder holds no model".into()),
            (None, _) => None,
        };
        if let Some(reason) = reason {
            return Err(Error::format(dir, reason));
        }
    }
    let factors = numbers.iter().map(|&n| read_matrix(dir.join(factor_name(n)))).collect::<Result<Vec<_>>>()?;
    let weights_path = dir.join("weights.npy");
    let weights = if weights_path.exists() { read_vector(weights_path)? } else { Array1::ones(factors[0].ncols()) };
    CpTensor::new(weights, factors)
}

/// Writes a model to a folder, made if need be: `factor_n.npy` (`I_n x R`, row-major) and `weights.npy` (length R).
///
/// The files of a model that is there already are replaced, and factors of modes that this model lacks are removed.
/// After a failure none of the new files is left, and those of the older model are as they were.
///
/// # Errors
/// [`Error::Io`].
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use ndarray::array;
/// let model = polyad::CpTensor::new(array![2.0], vec![array![[1.0], [2.0]], array![[3.0]]]).unwrap();
/// polyad::io::write_model(dir.path().join("model"), &model).unwrap();
/// assert_eq!(polyad::io::read_model(dir.path().join("model")).unwrap(), model);
/// ```
pub fn write_model<T: Real>(dir: impl AsRef<Path>, model: &CpTensor<T>) -> Result<()> {
    let dir = dir.as_ref();
    write_folder(dir, |staging| {
        for (n, factor) in model.factors().iter().enumerate() {
            stage(&staging.join(factor_name(n)), factor)?.commit()?;
        }
        stage(&staging.join("weights.npy"), model.weights())?.commit()
    })?;
    // A factor left over from a model of higher order would be read as part of this one.
    for n in factor_numbers(dir)?.into_iter().filter(|&n| n >= model.factors().len()) {
        let path = dir.join(factor_name(n));
        fs::remove_file(&path).map_err(|e| Error::io(&path, e))?;
    }
    Ok(())
}

/// Reads a matrix (rows x columns as NumPy shows them) from any file that [`TensorFile`] opens.
///
/// # Errors
/// What [`TensorFile::open`] and [`TensorFile::read`] say, and [`Error::Format`] if the array is not of order 2.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("a.npy");
/// polyad::io::write_matrix(&path, ndarray::array![[1.0f32, 2.0]].view()).unwrap();
/// assert_eq!(polyad::io::read_matrix::<f64>(&path).unwrap(), ndarray::array![[1.0, 2.0]]);
/// ```
pub fn read_matrix<T: Real>(path: impl AsRef<Path>) -> Result<Array2<T>> {
    read_array(path.as_ref(), "a matrix")
}

/// Reads a vector (of any length) from any file that [`TensorFile`] opens.
///
/// # Errors
/// What [`TensorFile::open`] and [`TensorFile::read`] say, and [`Error::Format`] if the array is not of order 1.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("w.txt");
/// std::fs::write(&path, "tensor\n1\n2\n0.5\n0.25\n").unwrap();
/// assert_eq!(polyad::io::read_vector::<f64>(&path).unwrap(), ndarray::array![0.5, 0.25]);
/// ```
pub fn read_vector<T: Real>(path: impl AsRef<Path>) -> Result<Array1<T>> {
    read_array(path.as_ref(), "a vector")
}

/// Writes a matrix (rows x columns) as a row-major .npy file, which appears whole or not at all.
///
/// # Errors
/// [`Error::Io`].
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("g.npy");
/// polyad::io::write_matrix(&path, ndarray::array![[1.0, 2.0], [3.0, 4.0]].t()).unwrap();
/// assert_eq!(polyad::io::read_matrix::<f64>(&path).unwrap()[[0, 1]], 3.0);
/// ```
pub fn write_matrix<T: Real>(path: impl AsRef<Path>, matrix: ArrayView2<'_, T>) -> Result<()> {
    stage(path.as_ref(), &matrix)?.commit()
}

/// Writes a tensor of any order as a row-major .npy file, which appears whole or not at all.
///
/// # Errors
/// [`Error::Io`].
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("x.npy");
/// let x = ndarray::Array3::<f32>::from_shape_fn((2, 3, 4), |(i, j, k)| (i + j * k) as f32);
/// polyad::io::write_tensor(&path, x.view()).unwrap();
/// assert_eq!(polyad::io::TensorFile::open(&path).unwrap().dims(), [2, 3, 4]);
/// ```
pub fn write_tensor<T: Real, D: Dimension>(path: impl AsRef<Path>, x: ArrayView<'_, T, D>) -> Result<()> {
    stage(path.as_ref(), &x)?.commit()
}

fn factor_name(n: usize) -> String {
    format!("factor_{n}.npy")
}

/// The numbers of the factor files in a folder, ascending.
fn factor_numbers(dir: &Path) -> Result<Vec<usize>> {
    let io = |e| Error::io(dir, e);
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        let digits = name.to_str().and_then(|n| n.strip_prefix("factor_")?.strip_suffix(".npy"));
        // factor_01.npy is not ours.
        let number = digits.and_then(|d| d.parse().ok()).filter(|&n| name.to_str() == Some(&factor_name(n)));
        numbers.extend(number);
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn read_array<T: Real, D: Dimension>(path: &Path, what: &str) -> Result<ndarray::Array<T, D>> {
    let file = TensorFile::open(path)?;
    let order = file.dims().len();
    if D::NDIM != Some(order) {
        let reason = format!("not {what}: its dims are {}", crate::error::show(file.dims()));
        return Err(Error::format(path, reason));
    }
    file.read()?.into_array().into_dimensionality().map_err(|e| Error::format(path, e))
}

fn stage<T: Real, D: Dimension>(path: &Path, array: &ArrayBase<impl Data<Elem = T>, D>) -> Result<Staged> {
    let rows = array.as_standard_layout();
    Staged::write(path, |out| rows.write_npy(out).map_err(std::io::Error::other))
}
