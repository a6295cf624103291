//! The start from leading singular vectors.

use super::leading::leading;
use crate::{Error, Real, Result, Shape};
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par};
use ndarray::{Array2, ArrayView1, ArrayViewD, Axis};
use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use rayon::prelude::*;

/// Largest gram of which eigenvectors are computed.
const MAX_GRAM: usize = 8192;
/// Entries of an unfolding that are copied at a time: 1 MiB, little beside a tensor.
const BLOCK: usize = 1 << 17;

/// The leading left singular vectors of the unfolding of mode n, from the smaller of its two grams; random columns
/// where it has no more.
pub(super) fn nvecs<T: Real>(
    x: &ArrayViewD<'_, T>,
    shape: &Shape,
    n: usize,
    rank: usize,
    rng: &mut ChaCha8Rng,
) -> Result<Array2<f64>> {
    let rows = shape.rows(n);
    let columns = shape.len() / rows;
    if rows.min(columns) > MAX_GRAM {
        return Err(Error::Option {
            name: "init",
            value: "nvecs".into(),
            requirement: format!(
                "the unfolding of mode {n} is {rows} x {columns}, one side must be at most {MAX_GRAM}: use a random start"
            ),
        });
    }
    let largest = x.iter().fold(0.0, |m: f64, v| m.max(v.f64().abs()));
    let scale = if largest > 0.0 { largest } else { 1.0 };
    let vectors = if rows <= columns { own_gram(x, n, rank, scale) } else { other_gram(x, n, rank, scale) };
    let vectors = vectors
        .ok_or_else(|| Error::Linalg { what: "the nvecs start", reason: format!("mode {n}: no convergence") })?;
    let mut factor = Array2::zeros((rows, rank));
    for (r, mut column) in factor.columns_mut().into_iter().enumerate() {
        match vectors.get(r) {
            Some(vector) => column.iter_mut().zip(vector).for_each(|(to, from)| *to = *from),
            None => column.iter_mut().for_each(|to| *to = rng.random()),
        }
    }
    Ok(factor)
}

/// Eigenvectors of the rows x rows gram, summed over blocks of columns.
fn own_gram<T: Real>(x: &ArrayViewD<'_, T>, n: usize, rank: usize, scale: f64) -> Option<Vec<Vec<f64>>> {
    let rows = x.shape()[n];
    let mut gram = Mat::<f64>::zeros(rows, rows);
    let mut lanes = x.lanes(Axis(n)).into_iter();
    let mut block = Vec::new();
    loop {
        let lanes: Vec<ArrayView1<'_, T>> = lanes.by_ref().take((BLOCK / rows).max(64)).collect();
        if lanes.is_empty() {
            break;
        }
        block.resize(lanes.len() * rows, 0.0);
        block.par_chunks_mut(rows).zip(&lanes).for_each(|(to, lane)| {
            to.iter_mut().zip(lane).for_each(|(to, v)| *to = v.f64() / scale);
        });
        let b = MatRef::from_column_major_slice(&block, rows, lanes.len());
        matmul(gram.as_mut(), Accum::Add, b, b.transpose(), 1.0, Par::rayon(0));
    }
    // Room for the eigenvectors.
    drop(block);
    let vectors = leading(gram, rank.min(rows))?;
    Some(vectors.col_iter().map(|vector| vector.iter().copied().collect()).collect())
}

/// Left singular vectors `X v` from the eigenvectors v of the columns x columns gram, summed over blocks of rows.
fn other_gram<T: Real>(x: &ArrayViewD<'_, T>, n: usize, rank: usize, scale: f64) -> Option<Vec<Vec<f64>>> {
    let rows = x.shape()[n];
    let columns = x.len() / rows;
    let step = (BLOCK / columns).max(64).min(rows);
    let mut buffer = vec![0.0; step * columns];
    let mut block = |first: usize, work: &mut dyn FnMut(MatRef<'_, f64>)| {
        let count = step.min(rows - first);
        buffer[..count * columns].par_chunks_mut(columns).enumerate().for_each(|(i, to)| {
            let slice = x.index_axis(Axis(n), first + i);
            to.iter_mut().zip(slice.iter()).for_each(|(to, v)| *to = v.f64() / scale);
        });
        work(MatRef::from_row_major_slice(&buffer[..count * columns], count, columns));
    };
    let mut gram = Mat::<f64>::zeros(columns, columns);
    for first in (0..rows).step_by(step) {
        block(first, &mut |b| matmul(gram.as_mut(), Accum::Add, b.transpose(), b, 1.0, Par::rayon(0)));
    }
    let count = rank.min(columns);
    let lead = leading(gram, count)?;
    let mut vectors = vec![Vec::with_capacity(rows); count];
    for first in (0..rows).step_by(step) {
        block(first, &mut |b| {
            let part = b * &lead;
            vectors.iter_mut().enumerate().for_each(|(r, vector)| vector.extend(part.col(r).iter()));
        });
    }
    let length = |vector: &[f64]| vector.iter().map(|v| v * v).sum::<f64>().sqrt();
    let cutoff = columns as f64 * f64::EPSILON.sqrt() * vectors.first().map_or(0.0, |v| length(v));
    vectors.retain(|v| length(v) > cutoff);
    Some(vectors)
}
