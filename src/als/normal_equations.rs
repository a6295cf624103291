//! The small dense part of CP-ALS, in f64: grams, their Hadamard product V, and A V = G.

use super::cholesky;
use crate::{Error, Real, Result};
use faer::diag::Diag;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::evd::{ComputeEigenvectors, self_adjoint_evd, self_adjoint_evd_scratch};
use faer::linalg::matmul::matmul;
use faer::linalg::triangular_solve::{solve_lower_triangular_in_place, solve_upper_triangular_in_place};
use faer::{Accum, Mat, MatMut, MatRef, Par};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis, Zip, s};
use rayon::prelude::*;
use std::borrow::Cow;

/// Entries of a block of a factor's rows, and multiply-adds of a block of equations, about. Blocks are one thread's work and
/// have sums of their own, added in order: the bits do not depend on the number of threads.
const BLOCK: (usize, usize) = (1 << 16, 1 << 20);
/// Most blocks with grams of their own, and fewest rows of one.
const GRAMS: (usize, usize) = (16, 1024);
/// Columns of a strip of a gram.
const STRIP: usize = 32;

/// `work` on every index below `count`, in order, shared out or here: to wake a thread takes longer than small work.
fn each<R: Send>(count: usize, share: bool, work: impl Fn(usize) -> R + Sync + Send) -> Vec<R> {
    if share { (0..count).into_par_iter().map(work).collect() } else { (0..count).map(work).collect() }
}

/// The sum of the `term` of each number, in lanes: a single chain takes several times as long.
pub(super) fn in_lanes<T: Copy>(numbers: &[T], term: impl Fn(T) -> f64) -> f64 {
    const LANES: usize = 8;
    let (mut sums, whole) = ([0.0; LANES], numbers.chunks_exact(LANES));
    let rest: f64 = whole.remainder().iter().map(|&v| term(v)).sum();
    whole.for_each(|chunk| sums.iter_mut().zip(chunk).for_each(|(sum, &v)| *sum += term(v)));
    rest + sums.iter().sum::<f64>()
}

/// `A^T A`.
pub(super) fn gram<T: Real>(a: &Array2<T>) -> Array2<f64> {
    let (rows, rank) = a.dim();
    let wide: Vec<f64> = a.iter().map(|v| v.f64()).collect();
    let a = MatRef::from_row_major_slice(&wide, rows, rank);
    let blocks = (rows / GRAMS.1.max(rank)).clamp(1, GRAMS.0);
    let strips = rank.div_ceil(STRIP);
    // The lower half of a strip's columns, summed over a block's rows.
    let part = |task: usize| {
        let (block, first) = (task / strips, task % strips * STRIP);
        let (from, to) = (block * rows / blocks, (block + 1) * rows / blocks);
        let a = a.submatrix(from, first, to - from, rank - first);
        let own = a.subcols(0, STRIP.min(rank - first));
        let mut strip = Mat::zeros(rank - first, own.ncols());
        matmul(strip.as_mut(), Accum::Replace, a.transpose(), own, 1.0, Par::Seq);
        strip
    };
    let parts = each(blocks * strips, rows * rank * rank > BLOCK.1, part);
    let mut gram = Array2::zeros((rank, rank));
    for (task, strip) in parts.iter().enumerate() {
        let first = task % strips * STRIP;
        for (j, column) in strip.col_iter().enumerate() {
            let row = gram.slice_mut(s![first + j, first + j..]);
            row.into_iter().zip(column.iter().skip(j)).for_each(|(sum, v)| *sum += v);
        }
    }
    // Symmetric to the last bit.
    for i in 1..rank {
        let (above, mut own) = gram.view_mut().split_at(Axis(0), i);
        own.slice_mut(s![0, ..i]).assign(&above.column(i));
    }
    gram
}

/// The Hadamard product of the grams of all modes but `without`, in the memory of `v` where it has the size.
pub(super) fn hadamard(grams: &[Array2<f64>], rank: usize, without: Option<usize>, v: Array2<f64>) -> Array2<f64> {
    let mut others = grams.iter().enumerate().filter(|&(m, _)| Some(m) != without).map(|(_, gram)| gram);
    let mut v = if v.dim() == (rank, rank) { v } else { Array2::zeros((rank, rank)) };
    match (others.next(), others.next()) {
        (Some(first), Some(second)) => Zip::from(&mut v).and(first).and(second).for_each(|v, a, b| *v = a * b),
        (Some(one), None) => v.assign(one),
        (None, _) => v.fill(1.0),
    }
    others.for_each(|gram| v *= gram);
    v
}

/// The normal equations A V = G of a mode, V symmetric and positive semidefinite with a diagonal of about ones (or
/// zeros: columns that became zero), ready to be solved.
///
/// By Cholesky, V = L L^T, where all pivots are above the cutoff: `min L_rr^2 > R eps max L_rr^2`. Otherwise, or if
/// Cholesky fails, by the pseudo-inverse from the eigenvalues of V: those up to `R eps lambda_max` count as zero, which
/// gives the smallest of the least-squares solutions. eps is that of G's type and not of f64, because G is known to no
/// more than that: an error of eps |X| in G along an eigenvector with eigenvalue l becomes eps |X| / sqrt(l) in the model.
///
/// Starts that run side by side have blocks of R columns each and a V of blocks on the diagonal: every block is a system of
/// its own, and `R` above is that of a block.
pub struct NormalEquations {
    blocks: Vec<Factored>,
    rank: usize,
    /// Empty where it was not asked for.
    root: Vec<f64>,
}

enum Factored {
    /// L.
    Cholesky(Mat<f64>),
    /// Eigenvectors, and the inverses of the eigenvalues that count.
    Spectral(Mat<f64>, Vec<f64>),
}

fn failed(mode: usize, rank: usize, reason: &str) -> Error {
    Error::Linalg { what: "the normal equations", reason: format!("mode {mode}, rank {rank}: {reason}") }
}

impl NormalEquations {
    /// Factors V, one system, for a G that is known to `eps`; with a root of that stride. `mode` is for messages.
    #[cfg(all(test, feature = "gpu"))]
    pub(crate) fn new(v: &Array2<f64>, eps: f64, stride: usize, mode: usize) -> Result<Self> {
        Self::blocks(v, v.nrows(), eps, Some(stride), mode, None)
    }

    /// Factors the diagonal blocks of V, of `rank` rows each, for a G that is known to `eps`. With a root whose rows have this
    /// `stride`, if there is one. `mode` is for messages. Equations that are not needed any more may leave their memory:
    /// new pages take as long as a good part of the work.
    pub(crate) fn blocks(
        v: &Array2<f64>,
        rank: usize,
        eps: f64,
        stride: Option<usize>,
        mode: usize,
        before: Option<Self>,
    ) -> Result<Self> {
        let v = v.as_standard_layout();
        let numbers = v.as_slice().unwrap_or_default();
        if !numbers.iter().fold(true, |finite, v| finite & v.is_finite()) {
            return Err(failed(mode, rank, "the product of the grams is not finite"));
        }
        let size = v.nrows() * stride.unwrap_or(0);
        // Above its diagonal a root by Cholesky is zeros, as a new one.
        let same = |before: &Self| before.rank == rank && before.root.len() == size && !before.deficient();
        let (memory, mut root) = match before.filter(same) {
            Some(before) => (before.blocks, before.root),
            None => (Vec::new(), vec![0.0; size]),
        };
        let (mut memory, mut rows) = (memory.into_iter(), root.chunks_mut(rank * stride.unwrap_or(1)));
        let mut blocks = Vec::new();
        // Symmetric: column-major as well.
        let v = MatRef::from_column_major_slice(numbers, v.nrows(), v.nrows());
        for first in (0..v.nrows()).step_by(rank) {
            let block = v.submatrix(first, first, rank, rank);
            let rows = rows.next().map(|rows| &mut rows[first..]).zip(stride);
            blocks.push(Factored::new(block, eps, rows, mode, memory.next())?);
        }
        Ok(Self { blocks, rank, root })
    }

    /// V was singular to the precision of G's dtype.
    pub(super) fn deficient(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block, Factored::Spectral(..)))
    }

    /// About the condition of V: its largest row sum times the 2-norm of its inverse, from a few steps of inverse
    /// iteration; that of the worst block. Infinite where V was singular. Where there is a root, which bounds that norm, and the
    /// bound shows the condition to be `harmless` or less, the bound: steps take longer.
    pub(super) fn condition(&self, v: &Array2<f64>, harmless: f64) -> f64 {
        let one = |(b, block): (usize, &Factored)| {
            let Factored::Cholesky(l) = block else { return f64::INFINITY };
            let first = b * self.rank;
            let v = v.slice(s![first..first + self.rank, first..first + self.rank]);
            // Symmetric: sums of columns are those of rows, and side by side.
            let mut sums = Array1::<f64>::zeros(self.rank);
            v.rows().into_iter().for_each(|row| sums.zip_mut_with(&row, |sum, v| *sum += v.abs()));
            let largest = sums.into_iter().fold(0.0, f64::max);
            let bound = largest * self.bound_of_inverse(b);
            if bound <= harmless {
                return bound;
            }
            // From a vector that is orthogonal to nothing in particular.
            let sign = |r: usize| if r.is_multiple_of(2) { 1.0 } else { -1.0 };
            let mut x: Vec<f64> = (0..v.nrows()).map(|r| sign(r) * (1.0 + ((r * 7919) % 101) as f64 / 101.0)).collect();
            let mut smallest = 0.0;
            for _ in 0..3 {
                let scale = length(ArrayView1::from(&x));
                x.iter_mut().for_each(|x| *x /= scale);
                cholesky::solve(l, &mut x);
                smallest = length(ArrayView1::from(&x));
            }
            largest * smallest
        };
        self.blocks.iter().enumerate().map(one).fold(0.0, f64::max)
    }

    /// No less than the 2-norm of the inverse of a block, F F^T: the largest row sum of F times that of F^T. Infinite without a root.
    fn bound_of_inverse(&self, block: usize) -> f64 {
        if self.root.is_empty() {
            return f64::INFINITY;
        }
        let stride = self.root.len() / (self.rank * self.blocks.len());
        let first = block * self.rank;
        let (mut most, mut columns) = (0.0f64, vec![0.0; self.rank]);
        for (r, row) in self.root.chunks(stride).skip(first).take(self.rank).enumerate() {
            // Zeros before the diagonal.
            let row = &row[first + r..first + self.rank];
            columns[r..].iter_mut().zip(row).for_each(|(sum, v)| *sum += v.abs());
            most = most.max(in_lanes(row, |v| v.abs()));
        }
        most * columns.into_iter().fold(0.0, f64::max)
    }

    /// A from G, `I x R`.
    pub(super) fn solve<T: Real>(&self, g: ArrayView2<'_, T>, mode: usize) -> Result<Array2<f64>> {
        let (rows, columns) = g.dim();
        let mut all: Vec<f64> = g.iter().map(|v| v.f64()).collect();
        let count = (rows * columns * self.rank).div_ceil(BLOCK.1).clamp(1, rows.max(1));
        let mut blocks: Vec<_> = all.chunks_mut((rows.div_ceil(count) * columns).max(1)).collect();
        let finite = |block: &[f64]| block.iter().fold(true, |finite, v| finite & v.is_finite());
        // Whether what came in and what comes out is finite.
        let work = |block: &mut [f64]| {
            let ok = finite(block);
            self.solve_rows(MatMut::from_column_major_slice_mut(block, columns, block.len() / columns));
            (ok, finite(block))
        };
        let done: Vec<_> = match &mut blocks[..] {
            [one] => vec![work(one)],
            more => more.par_iter_mut().map(|block| work(block)).collect(),
        };
        if done.iter().any(|(ok, _)| !ok)
            && let Some(error) = overflow(g, mode)
        {
            return Err(error);
        }
        if done.iter().any(|(_, ok)| !ok) {
            return Err(failed(mode, self.rank, "the solution is not finite"));
        }
        Array2::from_shape_vec((rows, columns), all).map_err(|e| failed(mode, self.rank, &e.to_string()))
    }

    /// The same for some rows of G, which are the columns here, in place.
    fn solve_rows(&self, mut all: MatMut<'_, f64>) {
        for (b, block) in self.blocks.iter().enumerate() {
            let mut a = all.as_mut().subrows_mut(b * self.rank, self.rank);
            match block {
                Factored::Cholesky(l) => {
                    solve_lower_triangular_in_place(l.as_ref(), a.as_mut(), Par::Seq);
                    solve_upper_triangular_in_place(l.transpose(), a, Par::Seq);
                }
                Factored::Spectral(vectors, inverse) => {
                    let mut parts = Mat::zeros(self.rank, a.ncols());
                    matmul(parts.as_mut(), Accum::Replace, vectors.transpose(), a.as_ref(), 1.0, Par::Seq);
                    for (r, inverse) in inverse.iter().enumerate() {
                        parts.row_mut(r).iter_mut().for_each(|a| *a = if *inverse == 0.0 { 0.0 } else { *a * inverse });
                    }
                    matmul(a, Accum::Replace, vectors, &parts, 1.0, Par::Seq);
                }
            }
        }
    }

    /// A root F of the inverse, `V^-1 = F F^T`, row-major with rows of `stride`: `A = (G F) F^T` is two products, which a
    /// GPU does well, where a triangular solve is not.
    ///
    /// `F = L^-T`, or `U_+ lambda_+^(-1/2)` from the eigenvalues that count. Two products with a root, and not one with
    /// `V^-1`: G F is X unfolded times an orthonormal basis of the Khatri-Rao product's columns, so nothing in it is larger
    /// than `|X|`, and rounding comes to `eps64 sqrt(cond V) |X|` in the model. That is what the triangular solves make,
    /// while `G V^-1` cancels and would make `eps64 cond V |X|`, as much as X itself where f64 data are ill-conditioned.
    ///
    /// Empty where none was asked for.
    #[cfg(feature = "gpu")]
    pub(crate) fn root(&self) -> &[f64] {
        &self.root
    }
}

impl Factored {
    /// `root`: where the rows of a root begin, and their stride. Before each row's diagonal there are zeros.
    fn new(
        v: MatRef<'_, f64>,
        eps: f64,
        mut root: Option<(&mut [f64], usize)>,
        mode: usize,
        before: Option<Self>,
    ) -> Result<Self> {
        let rank = v.nrows();
        let mut l = match before {
            Some(Self::Cholesky(l)) if l.nrows() == rank => l,
            _ => Mat::zeros(rank, rank),
        };
        // A row of the root is a column of the inverse of L.
        let inverse = root
            .as_mut()
            .map(|(rows, stride)| MatMut::from_column_major_slice_with_stride_mut(rows, rank, rank, *stride));
        if cholesky::factor(v, l.as_mut(), inverse) {
            let pivots = (0..rank).map(|r| l[(r, r)].powi(2));
            let (least, most) = pivots.fold((f64::INFINITY, 0.0), |(least, most), p| (p.min(least), p.max(most)));
            if least > rank as f64 * eps * most {
                return Ok(Self::Cholesky(l));
            }
        }
        let (mut vectors, mut lambda) = (Mat::zeros(rank, rank), Diag::zeros(rank));
        // By one thread, as bits would depend on their number.
        let scratch = self_adjoint_evd_scratch::<f64>(rank, ComputeEigenvectors::Yes, Par::Seq, Default::default());
        let mut memory = MemBuffer::new(scratch);
        let stack = MemStack::new(&mut memory);
        self_adjoint_evd(v, lambda.as_mut(), Some(vectors.as_mut()), Par::Seq, stack, Default::default())
            .map_err(|_| failed(mode, rank, "the eigenvalues did not converge"))?;
        let lambda: Vec<f64> = lambda.column_vector().iter().copied().collect();
        let cutoff = rank as f64 * eps * lambda.iter().copied().fold(0.0, f64::max);
        let inverse: Vec<f64> = lambda.into_iter().map(|l| if l > cutoff { 1.0 / l } else { 0.0 }).collect();
        if let Some((rows, stride)) = root {
            for (row, out) in rows.chunks_mut(stride).take(rank).enumerate() {
                let values = out.iter_mut().zip(vectors.row(row).iter()).zip(&inverse);
                values.for_each(|((out, v), inverse)| *out = v * inverse.sqrt());
            }
        }
        Ok(Self::Spectral(vectors, inverse))
    }
}

/// Zeroes what is outside the diagonal blocks: starts that run side by side have nothing to do with each other.
pub(super) fn keep_blocks(mut m: Array2<f64>, rank: usize) -> Array2<f64> {
    if m.nrows() <= rank {
        return m;
    }
    m.indexed_iter_mut().filter(|((i, j), _)| i / rank != j / rank).for_each(|(_, v)| *v = 0.0);
    m
}

/// V with a ridge: `ridge * diag(V)` more, which is `ridge * I` where all columns are of unit norm.
pub(super) fn with_ridge(v: &Array2<f64>, ridge: f64) -> Cow<'_, Array2<f64>> {
    let mut v = Cow::Borrowed(v);
    if ridge != 0.0 {
        v.to_mut().diag_mut().mapv_inplace(|v| v + ridge * v);
    }
    v
}

/// 2-norm without overflow.
pub(super) fn length<T: Real>(column: ArrayView1<'_, T>) -> f64 {
    let largest = column.iter().fold(0.0, |m: f64, v| m.max(v.f64().abs()));
    if largest == 0.0 {
        return 0.0;
    }
    largest * column.iter().map(|v| (v.f64() / largest).powi(2)).sum::<f64>().sqrt()
}

/// The first entry of an MTTKRP that is not finite, as an error.
pub(crate) fn overflow<T: Real>(g: ArrayView2<'_, T>, mode: usize) -> Option<Error> {
    // In most cases all are, which is quicker to see without an index.
    if g.iter().fold(true, |finite, v| finite & v.is_finite()) {
        return None;
    }
    let ((i, r), _) = g.indexed_iter().find(|(_, v)| !v.is_finite())?;
    Some(Error::Overflow { what: format!("MTTKRP of mode {mode}"), dtype: T::DTYPE.name(), index: vec![i, r] })
}

/// The 2-norms of the columns, and the columns divided by them. Columns of zeros stay, with norm 0.
pub(super) fn normalize<T: Real>(a: Array2<f64>) -> Result<(Array1<f64>, Array2<T>)> {
    let (rows, columns) = a.dim();
    let a = a.as_standard_layout();
    let a = a.as_slice().unwrap_or_default();
    let count = a.len().div_ceil(BLOCK.0).clamp(1, rows.max(1));
    let len = (rows.div_ceil(count) * columns).max(1);
    let count = a.len().div_ceil(len);
    let rows_of = |b: usize| a[b * len..a.len().min((b + 1) * len)].chunks_exact(columns);
    // By the largest entry first: squares of tiny or huge numbers leave the range of f64.
    let largest = each(count, count > 1, |b| {
        let mut largest = vec![0.0f64; columns];
        rows_of(b).for_each(|row| largest.iter_mut().zip(row).for_each(|(most, v)| *most = most.max(v.abs())));
        largest
    });
    let largest = largest.into_iter().reduce(|mut most, block| {
        most.iter_mut().zip(block).for_each(|(most, v)| *most = most.max(v));
        most
    });
    let mut largest = largest.unwrap_or_default();
    let zero: Vec<bool> = largest.iter().map(|&most| most == 0.0).collect();
    largest.iter_mut().filter(|most| **most == 0.0).for_each(|most| *most = 1.0);
    let squares = each(count, count > 1, |b| {
        let mut sums = vec![0.0; columns];
        for row in rows_of(b) {
            sums.iter_mut().zip(row).zip(&largest).for_each(|((sum, v), most)| *sum += (v / most) * (v / most));
        }
        sums
    });
    let squares = squares.into_iter().reduce(|mut sum, block| {
        sum.iter_mut().zip(block).for_each(|(sum, v)| *sum += v);
        sum
    });
    let mut lengths: Vec<f64> = squares.unwrap_or_default().into_iter().map(f64::sqrt).collect();
    let mut norms = Array1::zeros(columns);
    for (r, norm) in norms.iter_mut().enumerate().filter(|(r, _)| !zero[*r]) {
        *norm = largest[r] * lengths[r];
        if !norm.is_finite() {
            return Err(Error::Overflow { what: "the norm of a column".into(), dtype: "f64", index: vec![r] });
        }
    }
    lengths.iter_mut().zip(&zero).filter(|(_, zero)| **zero).for_each(|(length, _)| *length = 1.0);
    let mut unit = vec![T::zero(); a.len()];
    let scale = |to: &mut [T], from: &[f64]| {
        for (to, from) in to.chunks_exact_mut(columns).zip(from.chunks_exact(columns)) {
            let parts = from.iter().zip(&largest).zip(&lengths);
            to.iter_mut().zip(parts).for_each(|(to, ((v, most), length))| *to = T::of(v / most / length));
        }
    };
    match count {
        1 => scale(&mut unit, a),
        _ => unit.par_chunks_mut(len).zip(a.par_chunks(len)).for_each(|(to, from)| scale(to, from)),
    }
    let unit = Array2::from_shape_vec((rows, columns), unit);
    let unit = unit.map_err(|e| Error::Linalg { what: "the norms of a factor", reason: e.to_string() })?;
    Ok((norms, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of unit columns, with a cosine of about `c` between any two.
    fn v(rank: usize, c: f64) -> Array2<f64> {
        Array2::from_shape_fn((rank, rank), |(i, j)| if i == j { 1.0 } else { c + 1e-3 * ((i * j) % 7) as f64 / 7.0 })
    }

    /// `F F^T V = I` for every block, by Cholesky and by eigenvectors, for sizes of one tile and of several.
    #[test]
    fn a_root_is_one_of_the_inverse() {
        for (rank, starts, eps) in [(5, 1, 1e-7), (5, 3, 1e-7), (130, 2, 1e-7), (130, 2, 1e-2), (300, 1, 1e-12)] {
            let (all, stride) = (rank * starts, rank * starts + 3);
            let own: Vec<_> = (0..starts).map(|start| v(rank, 0.3 * start as f64)).collect();
            let blocks = Array2::from_shape_fn((all, all), |(i, j)| own[i / rank][[i % rank, j % rank]]);
            let blocks = keep_blocks(blocks, rank);
            let normal = NormalEquations::blocks(&blocks, rank, eps, Some(stride), 0, None).unwrap();
            assert_eq!(normal.deficient(), eps == 1e-2);
            let root = ArrayView2::from_shape((all, stride), &normal.root).unwrap();
            assert!(root.slice(s![.., all..]).iter().all(|&v| v == 0.0));
            let root = root.slice(s![.., ..all]);
            let product = root.dot(&root.t()).dot(&blocks);
            // Eigenvalues that do not count leave a projection.
            let once = if normal.deficient() { product.dot(&product) } else { Array2::eye(all) };
            let error = (&product - &once).iter().fold(0.0f64, |most, v| most.max(v.abs()));
            let condition = normal.condition(&blocks, 0.0);
            let bound = if condition.is_finite() { condition * rank as f64 * 1e-15 } else { 1e-10 };
            assert!(error <= bound, "R {rank}, {starts}: {error:e}, bound {bound:e}");
        }
    }

    /// What is said to be harmless is so: the bound is above the condition, and not by much where columns are independent.
    #[test]
    fn the_bound_is_one() {
        for rank in [1, 7, 140] {
            for c in [0.0, 0.5, 0.99] {
                let v = v(rank, c);
                let normal = NormalEquations::blocks(&v, rank, 1e-13, Some(rank), 0, None).unwrap();
                let (condition, bound) = (normal.condition(&v, 0.0), normal.condition(&v, f64::MAX));
                assert!(bound >= 0.999 * condition, "R {rank}, cosine {c}: {condition:e} and {bound:e}");
                assert!(bound <= 100.0 * condition, "R {rank}, cosine {c}: {condition:e} and {bound:e}");
                let without = NormalEquations::blocks(&v, rank, 1e-13, None, 0, None).unwrap();
                assert_eq!(without.condition(&v, f64::MAX), condition);
            }
        }
    }
}
