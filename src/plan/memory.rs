//! Slabs and column blocks: how a problem is cut so that every buffer fits one binding.

use super::DeviceCaps;
use crate::{Dtype, Error, Result, Shape};

/// A contiguous part of a row-major tensor: leading modes fixed, one mode a range, trailing modes whole.
///
/// ```
/// use polyad::{plan::slabs, Dtype, Shape};
/// let cut = slabs(&Shape::new(&[2, 5, 4]).unwrap(), Dtype::F32, 64).unwrap();
/// assert_eq!(cut.len(), 4);
/// assert_eq!((cut[1].start, &cut[1].dims[..], &cut[1].offsets[..]), (12, &[1, 2, 4][..], &[0, 3, 0][..]));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Slab {
    /// Row-major position of its first entry.
    pub start: usize,
    /// Its dims, as many as the tensor's.
    pub dims: Vec<usize>,
    /// Its first index along each mode.
    pub offsets: Vec<usize>,
}

impl Slab {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Never: a slab has at least one entry.
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// The largest buffer a plan will use, in bytes: a binding, a buffer, and indices that fit 31 bits.
///
/// ```
/// use polyad::{plan::{buffer_limit, DeviceCaps}, Dtype};
/// assert_eq!(buffer_limit(&DeviceCaps::webgpu_minimum("test"), Dtype::F32), 128 << 20);
/// ```
pub fn buffer_limit(caps: &DeviceCaps, dtype: Dtype) -> u64 {
    let limit = caps.max_binding_bytes.min(caps.max_buffer_bytes).min(dtype.bytes() << 31);
    limit / 16 * 16
}

/// Bytes of a buffer that has to hold that many: bindings of `vec4<f64>` count in 32 bytes, and no buffer is empty.
pub(crate) fn buffer_bytes(bytes: u64) -> u64 {
    bytes.next_multiple_of(32).max(32)
}

/// Cuts a tensor into slabs of at most `limit` bytes, in row-major order.
///
/// # Errors
/// [`Error::LimitTooSmall`] if not even one entry fits.
pub fn slabs(shape: &Shape, dtype: Dtype, limit: u64) -> Result<Vec<Slab>> {
    let most = usize::try_from(limit / dtype.bytes()).unwrap_or(usize::MAX);
    if most == 0 {
        return Err(too_small("one entry of the tensor", dtype.bytes(), limit));
    }
    // The cut mode is the first whose single index, with all modes right of it, fits.
    let cut = (0..shape.order()).find(|&m| shape.right(m) <= most).unwrap_or(shape.order() - 1);
    let (rows, right) = (shape.rows(cut), shape.right(cut));
    let fitting = (most / right).min(rows);
    let even = rows.div_ceil(rows.div_ceil(fitting));
    // Whole tiles where there is room for them: a tile that is cut by a slab's end costs as much as a whole one.
    let whole = [128, 64, 32, 16, 8, 4].into_iter().map(|tile| (tile, even.next_multiple_of(tile)));
    let whole = whole.into_iter().find(|&(tile, whole)| tile <= even && whole <= fitting);
    let length = whole.map_or(even, |(_, whole)| whole);
    let mut all = Vec::with_capacity(shape.left(cut) * rows.div_ceil(length));
    for leading in 0..shape.left(cut) {
        let mut rest = leading;
        let mut offsets = vec![0; shape.order()];
        for m in (0..cut).rev() {
            offsets[m] = rest % shape.rows(m);
            rest /= shape.rows(m);
        }
        for from in (0..rows).step_by(length) {
            let to = rows.min(from + length);
            let mut dims = vec![1; cut];
            dims.push(to - from);
            dims.extend_from_slice(&shape.dims()[cut + 1..]);
            offsets[cut] = from;
            all.push(Slab { start: (leading * rows + from) * right, dims, offsets: offsets.clone() });
        }
    }
    Ok(all)
}

/// Row stride of factors and results on a GPU: columns padded to whole `vec4`s, the padding being zeros.
///
/// ```
/// assert_eq!(polyad::plan::column_stride(5), 8);
/// ```
pub fn column_stride(columns: usize) -> usize {
    columns.next_multiple_of(4)
}

/// Rows of a factor buffer: all factors, one row of weights, and for the kernels on f16 matrix units the power-of-two
/// scales of the columns and what undoes them, two rows for each mode's MTTKRP and two for each group of a dimension tree
/// (see `GpuFactors`).
pub(crate) fn factor_rows(shape: &Shape) -> usize {
    weights_row(shape) + 1 + 4 * shape.order()
}

/// Row of a factor buffer that scales the columns of a group of modes, by the group's first mode.
pub(crate) fn group_scale_row(shape: &Shape, first: usize) -> usize {
    weights_row(shape) + 1 + 2 * (shape.order() + first)
}

/// Row of a factor buffer that holds the weights: the one behind the rows of all factors.
pub(crate) fn weights_row(shape: &Shape) -> usize {
    shape.iter().sum()
}

/// Cuts `rank` columns into blocks, of a multiple of 4 but for the last, so that the factors' block fits `limit` bytes.
/// Returns the first column of each block and, last, the rank.
///
/// # Errors
/// [`Error::LimitTooSmall`] if not even four columns fit.
///
/// ```
/// use polyad::{plan::column_blocks, Dtype, Shape};
/// let blocks = column_blocks(&Shape::new(&[9, 10]).unwrap(), 11, Dtype::F32, 600).unwrap();
/// assert_eq!(blocks, [0, 4, 8, 11]);
/// ```
pub fn column_blocks(shape: &Shape, rank: usize, dtype: Dtype, limit: u64) -> Result<Vec<usize>> {
    let four = factor_rows(shape) as u64 * 4 * dtype.bytes();
    let most = (limit / four).min(rank.div_ceil(4) as u64) as usize * 4;
    if most == 0 {
        return Err(too_small("four columns of the factors", four, limit));
    }
    let blocks = rank.div_ceil(most);
    let width = column_stride(rank.div_ceil(blocks));
    Ok((0..=rank.div_ceil(width)).map(|b| (b * width).min(rank)).collect())
}

fn too_small(what: &str, needed: u64, available: u64) -> Error {
    Error::LimitTooSmall { limit: "max_storage_buffer_binding_size", what: what.into(), needed, available }
}
