//! The search for NaN and infinity, at the speed of memory.

use crate::{Dtype, Error, Real, Result};
use ndarray::{ArrayViewD, Dimension};
use rayon::prelude::*;

/// Entries in one piece of parallel work: small enough to stop early, large enough to cost nothing.
const PIECE: usize = 1 << 16;

/// The first entry in row-major order that is NaN or infinite: its index and value.
///
/// Takes a tensor of any dims. One parallel pass if all entries are finite, whatever the memory order.
///
/// ```
/// let x = ndarray::array![[1.0, 2.0], [f64::INFINITY, 4.0]].into_dyn();
/// assert_eq!(polyad::io::first_non_finite(x.view()), Some((vec![1, 0], f64::INFINITY)));
/// assert_eq!(polyad::io::first_non_finite(x.mapv(f64::cos).slice(ndarray::s![..1, ..]).into_dyn()), None);
/// ```
pub fn first_non_finite<T: Real>(x: ArrayViewD<'_, T>) -> Option<(Vec<usize>, f64)> {
    if let Some(values) = x.as_slice() {
        let piece = values.par_chunks(PIECE).position_first(has_non_finite)?;
        let place = piece * PIECE + values[piece * PIECE..].iter().position(|v| !v.is_finite())?;
        let mut rest = place;
        let mut index = vec![0; x.ndim()];
        for (i, &d) in index.iter_mut().zip(x.shape()).rev() {
            *i = rest % d;
            rest /= d;
        }
        return Some((index, values[place].f64()));
    }
    // In another memory order the first entry met is not the first in row-major order, so a quick pass
    // decides whether there is one at all.
    let any = match x.as_slice_memory_order() {
        Some(values) => values.par_chunks(PIECE).any(has_non_finite),
        None => x.view().into_par_iter().any(|v| !v.is_finite()),
    };
    if !any {
        return None;
    }
    x.indexed_iter().find(|(_, v)| !v.is_finite()).map(|(i, v)| (i.as_array_view().to_vec(), v.f64()))
}

/// Errors if a tensor (of any dims) has a NaN or an infinity; `what` names the tensor in the message.
///
/// # Errors
/// [`Error::NonFinite`] with the first such index in row-major order.
///
/// ```
/// let x = ndarray::array![1.0f32, f32::NAN].into_dyn();
/// let error = polyad::io::check_finite("x.npy", x.view()).unwrap_err();
/// assert_eq!(error.to_string(), "x.npy has NaN at index (1)");
/// ```
pub fn check_finite<T: Real>(what: &str, x: ArrayViewD<'_, T>) -> Result<()> {
    match first_non_finite(x) {
        None => Ok(()),
        Some((index, value)) => Err(Error::NonFinite { what: what.into(), index, value }),
    }
}

/// Without a branch per entry: adding one to an exponent of all ones carries into the sign bit.
fn has_non_finite<T: Real>(values: &[T]) -> bool {
    match T::DTYPE {
        Dtype::F32 => {
            let bits: &[u32] = bytemuck::cast_slice(values);
            bits.iter().fold(0, |seen, b| seen | ((b & 0x7f80_0000) + 0x0080_0000)) >> 31 == 1
        }
        Dtype::F64 => {
            let bits: &[u64] = bytemuck::cast_slice(values);
            bits.iter().fold(0, |seen, b| seen | ((b & 0x7ff0_0000_0000_0000) + 0x0010_0000_0000_0000)) >> 63 == 1
        }
    }
}
