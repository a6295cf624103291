//! Tensor Toolbox text models: `ktensor`, order, dims, rank, weights, then one `matrix` per mode, row by row.

use super::output::Staged;
use super::text::Words;
use crate::{CpTensor, Error, Real, Result, Shape};
use ndarray::{Array1, Array2};
use std::io::Write;
use std::path::Path;

/// Reads a model from a Tensor Toolbox text file (`export_data` of a ktensor there and in pyttb).
///
/// The factors are `I_n x R`, the weights have length R, both as the file says.
///
/// # Errors
/// [`Error::Io`], [`Error::Format`] with the line, [`Error::Overflow`] for a number beyond the range of `T`, and
/// what [`CpTensor::new`] says.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("model.txt");
/// std::fs::write(&path, "ktensor\n2\n2 1\n1\n3.0\nmatrix\n2\n2 1\n1.0\n2.0\nmatrix\n2\n1 1\n4.0\n").unwrap();
/// let model = polyad::io::read_ktensor::<f64>(&path).unwrap();
/// assert_eq!((model.dims(), model.weights()[0]), (vec![2, 1], 3.0));
/// ```
pub fn read_ktensor<T: Real>(path: impl AsRef<Path>) -> Result<CpTensor<T>> {
    let path = path.as_ref();
    let mut words = Words::open(path)?;
    words.header("ktensor")?;
    let shape = Shape::new(&words.dims()?)?;
    let rank = words.whole_number("the rank")?;
    let mut total = rank;
    let weights = words.values("the weights", rank, |place| vec![place])?;
    let mut factors = Vec::with_capacity(shape.order());
    for (mode, &rows) in shape.dims().iter().enumerate() {
        words.header("matrix")?;
        let found = words.dims()?;
        if found != [rows, rank] {
            let (found, expected) = (crate::error::show(&found), crate::error::show(&[rows, rank]));
            return Err(words.fault(format!("factor {mode} has dims {found}, expected {expected}")));
        }
        // With rank 0 the values are none; CpTensor::new then refuses.
        let count = rows.checked_mul(rank).ok_or(Error::TooManyElements { what: "a factor", dims: found })?;
        let values = words.values(&format!("factor {mode}"), count, |place| vec![place / rank, place % rank])?;
        factors.push(Array2::from_shape_vec((rows, rank), values).map_err(|e| words.fault(e))?);
        total += count;
    }
    words.end("the model", total)?;
    CpTensor::new(Array1::from(weights), factors)
}

/// Writes a model as Tensor Toolbox text, each value in the fewest digits that read back to the same bits.
///
/// The file appears whole or not at all: it is written under a temporary name and renamed.
///
/// # Errors
/// [`Error::Io`].
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("model.txt");
/// use ndarray::array;
/// let model = polyad::CpTensor::new(array![0.1], vec![array![[1.0], [-0.0]], array![[5e-324]]]).unwrap();
/// polyad::io::write_ktensor(&path, &model).unwrap();
/// assert_eq!(polyad::io::read_ktensor(&path).unwrap(), model);
/// ```
pub fn write_ktensor<T: Real>(path: impl AsRef<Path>, model: &CpTensor<T>) -> Result<()> {
    let path = path.as_ref();
    let staged = Staged::write(path, |out| {
        writeln!(out, "ktensor\n{}", model.factors().len())?;
        write_row(out, model.dims())?;
        writeln!(out, "{}", model.rank())?;
        write_row(out, model.weights().iter().map(|v| format!("{v:e}")))?;
        for factor in model.factors() {
            writeln!(out, "matrix\n2\n{} {}", factor.nrows(), factor.ncols())?;
            for row in factor.rows() {
                write_row(out, row.iter().map(|v| format!("{v:e}")))?;
            }
        }
        Ok(())
    })?;
    staged.commit()
}

fn write_row<I: std::fmt::Display>(out: &mut dyn Write, items: impl IntoIterator<Item = I>) -> std::io::Result<()> {
    for (i, item) in items.into_iter().enumerate() {
        let space = if i == 0 { "" } else { " " };
        write!(out, "{space}{item}")?;
    }
    writeln!(out)
}
