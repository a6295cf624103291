//! Cholesky factors, and their inverses, of systems so large that one thread is too slow: in tiles, each of which is one
//! thread's work from beginning to end, so that the bits do not depend on the number of threads.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{cholesky_in_place, cholesky_in_place_scratch};
use faer::linalg::matmul::matmul;
use faer::linalg::triangular_solve::solve_lower_triangular_in_place;
use faer::reborrow::IntoConst;
use faer::{Accum, Mat, MatMut, MatRef, Par};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Largest system that one thread does as a whole.
const ALONE: usize = 128;
/// Rows and columns of a tile.
const TILE: usize = 64;
/// Columns of an inverse that are made at a time.
const STRIP: usize = 32;
/// How often a thread looks for a tile before it lets others have its core.
const SPINS: usize = 200;

/// Writes L of a symmetric matrix, and the inverse of L; whether the matrix is positive definite. What is above the diagonal
/// of L becomes anything; what is above that of the inverse has to be zeros and stays so.
pub(super) fn factor(v: MatRef<'_, f64>, mut l: MatMut<'_, f64>, inverse: Option<MatMut<'_, f64>>) -> bool {
    if v.nrows() > ALONE {
        return Tiles::new(v, l, inverse).work_together();
    }
    l.copy_from(v);
    let done = whole(l.as_mut());
    if let Some(inverse) = inverse.filter(|_| done) {
        whole_inverse(l.as_ref(), inverse);
    }
    done
}

fn whole(a: MatMut<'_, f64>) -> bool {
    let mut memory = MemBuffer::new(cholesky_in_place_scratch::<f64>(a.nrows(), Par::Seq, Default::default()));
    cholesky_in_place(a, Default::default(), Par::Seq, MemStack::new(&mut memory), Default::default()).is_ok()
}

/// Some columns at a time: those of a triangular matrix begin with zeros, which take no work.
fn whole_inverse(l: MatRef<'_, f64>, mut inverse: MatMut<'_, f64>) {
    let size = l.nrows();
    for first in (0..size).step_by(STRIP) {
        let end = size.min(first + STRIP);
        let mut columns = inverse.as_mut().get_mut(first.., first..end);
        columns.fill(0.0);
        (0..end - first).for_each(|i| columns[(i, i)] = 1.0);
        solve_lower_triangular_in_place(l.get(first.., first..), columns, Par::Seq);
    }
}

/// A tile of L, or of its inverse, by its row and column among them.
#[derive(Clone, Copy)]
enum Task {
    Factor(usize, usize),
    Invert(usize, usize),
}

/// A matrix in tiles, by columns of them. Each is taken by who works on it, and is there for everyone when it is done.
struct Grid<'a> {
    open: Vec<Mutex<Option<MatMut<'a, f64>>>>,
    done: Vec<OnceLock<MatRef<'a, f64>>>,
}

impl<'a> Grid<'a> {
    fn new(mut a: MatMut<'a, f64>) -> Self {
        let mut open = Vec::new();
        while a.ncols() > 0 {
            let width = TILE.min(a.ncols());
            let (mut columns, right) = a.split_at_col_mut(width);
            while columns.nrows() > 0 {
                let height = TILE.min(columns.nrows());
                let (tile, below) = columns.split_at_row_mut(height);
                open.push(Mutex::new(Some(tile)));
                columns = below;
            }
            a = right;
        }
        let done = open.iter().map(|_| OnceLock::new()).collect();
        Self { open, done }
    }

    fn take(&self, at: usize) -> Option<MatMut<'a, f64>> {
        self.open[at].lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Work for any number of threads. They take tasks in order, and a task needs none but those before it: who waits for a
/// tile waits for a thread that is at work on it.
struct Tiles<'a> {
    /// Tiles along a side.
    side: usize,
    v: MatRef<'a, f64>,
    l: Grid<'a>,
    inverse: Option<Grid<'a>>,
    tasks: Vec<Task>,
    next: AtomicUsize,
    /// Not positive definite, or a thread panicked: nothing will be done any more.
    failed: AtomicBool,
}

impl<'a> Tiles<'a> {
    fn new(v: MatRef<'a, f64>, l: MatMut<'a, f64>, inverse: Option<MatMut<'a, f64>>) -> Self {
        let side = v.nrows().div_ceil(TILE);
        let mut tasks = Vec::new();
        // Rows of the inverse fill the time that threads would wait for the next column of L.
        let row = |i: usize| (0..=i).map(move |j| Task::Invert(i, j));
        for column in 0..side {
            tasks.extend((column..side).map(|i| Task::Factor(i, column)));
            if inverse.is_some() && column > 0 {
                tasks.extend(row(column - 1));
            }
        }
        if inverse.is_some() {
            tasks.extend(row(side - 1));
        }
        let (l, inverse) = (Grid::new(l), inverse.map(Grid::new));
        Self { side, v, l, inverse, tasks, next: AtomicUsize::new(0), failed: AtomicBool::new(false) }
    }

    fn work_together(&self) -> bool {
        rayon::in_place_scope(|scope| {
            (1..rayon::current_num_threads().min(self.side)).for_each(|_| scope.spawn(|_| self.work()));
            self.work();
        });
        !self.failed.load(Ordering::Relaxed)
    }

    fn work(&self) {
        /// Others do not wait for a thread that panicked.
        struct Unfinished<'a>(&'a AtomicBool, bool);
        impl Drop for Unfinished<'_> {
            fn drop(&mut self) {
                self.0.fetch_or(self.1, Ordering::Relaxed);
            }
        }
        let mut unfinished = Unfinished(&self.failed, true);
        while let Some(&task) = self.tasks.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            if self.task(task).is_none() {
                return;
            }
        }
        unfinished.1 = false;
    }

    /// A tile that another thread has done or is working on. None: it will not be done.
    fn wait(&self, grid: &Grid<'a>, i: usize, j: usize) -> Option<MatRef<'a, f64>> {
        let tile = &grid.done[j * self.side + i];
        loop {
            for _ in 0..SPINS {
                if let Some(&tile) = tile.get() {
                    return Some(tile);
                }
                std::hint::spin_loop();
            }
            if self.failed.load(Ordering::Relaxed) {
                return None;
            }
            std::thread::yield_now();
        }
    }

    /// None where it failed, or another did.
    fn task(&self, task: Task) -> Option<()> {
        let less = |to: &mut MatMut<'a, f64>, accum: Accum, a: MatRef<'a, f64>, b: MatRef<'_, f64>| {
            matmul(to.as_mut(), accum, a, b, -1.0, Par::Seq);
        };
        let l = |i, j| self.wait(&self.l, i, j);
        let (grid, at, tile) = match task {
            Task::Factor(i, j) => {
                let at = j * self.side + i;
                let mut tile = self.l.take(at)?;
                let (rows, columns) = (tile.nrows(), tile.ncols());
                tile.copy_from(self.v.submatrix(i * TILE, j * TILE, rows, columns));
                for k in 0..j {
                    less(&mut tile, Accum::Add, l(i, k)?, l(j, k)?.transpose());
                }
                match i == j {
                    true => whole(tile.as_mut()).then_some(())?,
                    false => solve_lower_triangular_in_place(l(j, j)?, tile.as_mut().transpose_mut(), Par::Seq),
                }
                (&self.l, at, tile)
            }
            Task::Invert(i, j) => {
                let grid = self.inverse.as_ref()?;
                let at = j * self.side + i;
                let mut tile = grid.take(at)?;
                match i == j {
                    true => whole_inverse(l(i, i)?, tile.as_mut()),
                    false => {
                        for k in j..i {
                            let accum = if k == j { Accum::Replace } else { Accum::Add };
                            less(&mut tile, accum, l(i, k)?, self.wait(grid, k, j)?);
                        }
                        solve_lower_triangular_in_place(l(i, i)?, tile.as_mut(), Par::Seq);
                    }
                }
                (grid, at, tile)
            }
        };
        grid.done[at].set(tile.into_const()).ok()
    }
}

/// `(L L^T)^-1 x` in place of x. Of one vector, where a blocked solve is several times slower.
pub(super) fn solve(l: &Mat<f64>, x: &mut [f64]) {
    const LANES: usize = 8;
    for j in 0..x.len() {
        let column = &l.col_as_slice(j)[j..];
        let (own, below) = x[j..].split_at_mut(1);
        own[0] /= column[0];
        below.iter_mut().zip(&column[1..]).for_each(|(x, l)| *x -= own[0] * l);
    }
    for j in (0..x.len()).rev() {
        let column = &l.col_as_slice(j)[j..];
        let (own, below) = x[j..].split_at_mut(1);
        let (mut sums, whole) = ([0.0; LANES], below.chunks_exact(LANES));
        let rest: f64 =
            whole.remainder().iter().zip(column[1..].chunks_exact(LANES).remainder()).map(|(x, l)| x * l).sum();
        for (x, l) in whole.zip(column[1..].chunks_exact(LANES)) {
            (0..LANES).for_each(|lane| sums[lane] += x[lane] * l[lane]);
        }
        own[0] = (own[0] - rest - sums.iter().sum::<f64>()) / column[0];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Positive definite, with a condition of about its size.
    fn matrix(size: usize) -> Mat<f64> {
        let a = Mat::from_fn(size, size, |i, j| ((i * 7919 + j * 104729) % 1009) as f64 / 1009.0 - 0.5);
        &a * a.transpose() + Mat::from_fn(size, size, |i, j| if i == j { size as f64 / 50.0 } else { 0.0 })
    }

    fn lower(l: MatRef<'_, f64>) -> Mat<f64> {
        Mat::from_fn(l.nrows(), l.nrows(), |i, j| if i < j { 0.0 } else { l[(i, j)] })
    }

    fn on<R: Send>(threads: usize, work: impl FnOnce() -> R + Send) -> R {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
    }

    #[test]
    fn factors_and_inverses_are_right_and_the_same_for_any_threads() {
        for size in [1, 5, 64, 128, 129, 192, 320, 401] {
            let v = matrix(size);
            let stride = size + 3;
            let make = |threads| {
                let (mut l, mut inverse) = (Mat::zeros(size, size), vec![0.0; size * stride]);
                let mut out = MatMut::from_column_major_slice_with_stride_mut(&mut inverse, size, size, stride);
                assert!(on(threads, || factor(v.as_ref(), l.as_mut(), Some(out.as_mut()))));
                // What another has left makes no difference.
                let mut alone = Mat::full(size, size, 7.0);
                (0..size).for_each(|j| out.as_mut().col_mut(j).subrows_mut(j, size - j).fill(7.0));
                assert!(on(threads, || factor(v.as_ref(), alone.as_mut(), Some(out))));
                assert_eq!(lower(l.as_ref()), lower(alone.as_ref()), "{size}");
                assert!(on(threads, || factor(v.as_ref(), alone.as_mut(), None)));
                assert_eq!(lower(l.as_ref()), lower(alone.as_ref()), "{size}");
                (lower(l.as_ref()), inverse)
            };
            let (l, inverse) = make(1);
            for threads in [2, 5] {
                assert!(make(threads) == (l.clone(), inverse.clone()), "{size}, {threads} threads");
            }
            let error = (&l * l.transpose() - &v).norm_max();
            assert!(error <= 4.0 * size as f64 * f64::EPSILON * v.norm_max(), "{size}: {error:e}");
            let expected: Vec<f64> = (0..size).map(|i| 1.0 + (i % 7) as f64).collect();
            let mut x: Vec<f64> = (0..size).map(|i| (0..size).map(|j| v[(i, j)] * expected[j]).sum()).collect();
            solve(&l, &mut x);
            let error = x.iter().zip(&expected).map(|(x, e)| (x - e).abs()).fold(0.0, f64::max);
            assert!(error <= 1e-9, "{size}: {error:e}");
            let inverse = MatRef::from_column_major_slice_with_stride(&inverse, size, size, stride);
            let error = (&l * inverse - Mat::<f64>::identity(size, size)).norm_max();
            let bound = size as f64 * f64::EPSILON * l.norm_l2() * inverse.norm_l2();
            assert!(error <= bound && inverse == lower(inverse), "{size}: {error:e}, bound {bound:e}");
        }
    }

    #[test]
    fn what_is_not_positive_definite_is_noticed() {
        for size in [3, 300] {
            for bad in [0, size / 2, size - 1] {
                let mut v = matrix(size);
                v[(bad, bad)] = -1.0;
                let mut l = Mat::zeros(size, size);
                assert!(!on(3, || factor(v.as_ref(), l.as_mut(), None)), "{size}, {bad}");
            }
        }
    }
}
