//! One part of the work: blocks of KR are made, and the rows of X that the part has are multiplied by each.

use super::kr::Make;
use super::tile::{Sums, along_factor, along_k, along_rows, none};
use crate::MAX_ORDER;
use crate::cpu::job::Job;
use crate::cpu::simd::{Element, lanes, vectors_of, zero};
use crate::plan::{Cut, Side, Walk};
use bytemuck::{Pod, Zeroable};
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Most rows of a tile.
const ROWS: usize = 8;

/// Memory that is aligned for any vector.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(super) struct Line([u8; 64]);

/// What a thread needs beside the operands; kept from part to part.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    kr: Vec<Line>,
}

/// Some rows of a part: adds to `g`, which has these rows of the result.
pub(super) struct Part<'a, T> {
    pub job: &'a Job<'a, T>,
    pub walk: &'a Walk,
    pub part: usize,
    pub rows: Range<usize>,
    pub g: &'a mut [T],
    pub scratch: &'a mut Scratch,
}

impl<T: Element> WithSimd for Part<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        // As many rows and vectors as there are registers for, with some left for X and KR.
        match S::REGISTER_COUNT {
            32.. => self.run::<S, 8, 4, 3>(s),
            16.. => self.run::<S, 6, 3, 2>(s),
            _ => self.run::<S, 2, 2, 1>(s),
        }
    }
}

/// Where the sums of a tile's rows go: for every row the position of its row in `g`, then, for every weight mode, that of
/// its factor row.
type Places = [[usize; ROWS]; MAX_ORDER];

/// The rows of the matrix in order, and where each belongs.
struct Rows<'a> {
    dims: &'a [usize],
    /// The result's mode among them.
    mode: usize,
    index: [usize; MAX_ORDER],
    rank: usize,
    first_row: usize,
}

impl Rows<'_> {
    fn seek(&mut self, row: usize) {
        let mut rest = row;
        for (i, &d) in self.index[..self.dims.len()].iter_mut().zip(self.dims).rev() {
            *i = rest % d;
            rest /= d;
        }
    }

    /// The next rows' places.
    fn next(&mut self, places: &mut Places, rows: Range<usize>) {
        for row in rows {
            places[0][row] = (self.index[self.mode] - self.first_row) * self.rank;
            let mut weight = 0;
            for (m, &i) in self.index[..self.dims.len()].iter().enumerate() {
                if m != self.mode {
                    weight += 1;
                    places[weight][row] = i * self.rank;
                }
            }
            for (i, &d) in self.index[..self.dims.len()].iter_mut().zip(self.dims).rev() {
                *i += 1;
                if *i < d {
                    break;
                }
                *i = 0;
            }
        }
    }
}

/// A block of KR that has been made, and what it is multiplied with.
#[derive(Clone)]
pub(super) struct Block {
    /// Ranks.
    pub columns: Range<usize>,
    /// Runs, and entries of each.
    pub runs: Range<usize>,
    pub entries: Range<usize>,
}

impl Block {
    #[inline]
    pub fn len(&self) -> usize {
        self.runs.len() * self.entries.len()
    }
}

/// Vectors in groups of at most `most`, as even as can be.
#[inline]
pub(super) fn groups(vectors: usize, most: usize) -> impl Iterator<Item = Range<usize>> + Clone {
    let count = vectors.div_ceil(most);
    let (size, larger) = (vectors / count.max(1), vectors % count.max(1));
    let start = move |g: usize| g * size + g.saturating_sub(count - larger);
    (0..count).map(move |g| start(g)..start(g + 1))
}

impl<T: Element> Part<'_, T> {
    /// M and HALF rows of a tile (2 and 1 where there are fewer), N vectors of ranks. What works on vectors is entered by
    /// `vectorize`: only in there does the compiler use the instructions of S.
    fn run<S: Simd, const M: usize, const HALF: usize, const N: usize>(mut self, s: S) {
        let (walk, job) = (self.walk, self.job);
        let (runs, entries) = match walk.side {
            Side::Both => (walk.range(Cut::Sum, walk.runs, self.part), 0..walk.run),
            _ => (0..1, walk.range(Cut::Sum, walk.summed(), self.part)),
        };
        let before = walk.range(Cut::Before, walk.before, self.part);
        let rows = self.rows.clone();
        let after = walk.range(Cut::After, walk.after, self.part);
        // Rows of the result that are visited again and again should stay in a cache.
        let resident = if before.len() > 1 { (G_BYTES / (job.rank * size_of::<T>())).max(ROWS) } else { rows.len() };
        for c in (0..job.rank).step_by(walk.columns) {
            let columns = c..job.rank.min(c + walk.columns);
            for l in runs.clone().step_by(walk.steps) {
                for t in entries.clone().step_by(walk.step) {
                    let runs = l..runs.end.min(l + walk.steps);
                    let block = Block { columns: columns.clone(), runs, entries: t..entries.end.min(t + walk.step) };
                    if !walk.direct() {
                        self.make::<S, N>(s, &block);
                    }
                    for i in rows.clone().step_by(resident.max(1)) {
                        let rows = i..rows.end.min(i + resident);
                        self.each_run(&before, &rows, &after, |part, run| {
                            part.multiply::<S, M, HALF, N>(s, &block, run);
                        });
                    }
                }
            }
        }
    }

    /// Calls `work` for every range of neighbouring rows.
    fn each_run(
        &mut self,
        before: &Range<usize>,
        rows: &Range<usize>,
        after: &Range<usize>,
        mut work: impl FnMut(&mut Self, Range<usize>),
    ) {
        let (all_rows, all_after) = (self.walk.rows, self.walk.after);
        if after.len() < all_after {
            for a in before.clone() {
                for i in rows.clone() {
                    let first = (a * all_rows + i) * all_after;
                    work(self, first + after.start..first + after.end);
                }
            }
        } else if rows.len() < all_rows {
            for a in before.clone() {
                let first = a * all_rows;
                work(self, (first + rows.start) * all_after..(first + rows.end) * all_after);
            }
        } else {
            let each = all_rows * all_after;
            work(self, before.start * each..before.end * each);
        }
    }

    /// Makes a block of KR.
    fn make<S: Simd, const N: usize>(&mut self, s: S, block: &Block) {
        let vectors = block.columns.len().div_ceil(lanes::<T, S>());
        let lines = vectors * block.len() * size_of::<T::V<S>>() / size_of::<Line>() + 1;
        if self.scratch.kr.len() < lines {
            self.scratch.kr.resize(lines, Line::zeroed());
        }
        s.vectorize(Make::<T, N> { job: self.job, walk: self.walk, block, kr: &mut self.scratch.kr });
    }

    /// Multiplies neighbouring rows of X by the block, in tiles.
    fn multiply<S: Simd, const M: usize, const HALF: usize, const N: usize>(
        &mut self,
        s: S,
        block: &Block,
        run: Range<usize>,
    ) {
        let (walk, job) = (self.walk, self.job);
        let modes = match walk.side {
            Side::Right => 0..walk.split,
            Side::Left => walk.split..job.shape.order(),
            Side::Both => job.mode..job.mode + 1,
        };
        let mut weights = [&[][..]; MAX_ORDER];
        let count = modes.len() - 1;
        for (w, m) in weights.iter_mut().zip(modes.clone().filter(|&m| m != job.mode)) {
            *w = job.factors[m];
        }
        let weights = &weights[..count];
        let mut rows = Rows {
            dims: &job.shape[modes.clone()],
            mode: job.mode - modes.start,
            index: [0; MAX_ORDER],
            rank: job.rank,
            first_row: self.rows.start,
        };
        rows.seek(run.start);
        let mut at = run.start;
        let mut places = [[0; ROWS]; MAX_ORDER];
        while at < run.end {
            let left = run.end - at;
            let m = match left {
                _ if left >= M => M,
                _ if left > HALF && run.len() >= M => M,
                _ if left >= HALF => HALF,
                3 if M > 3 => 3,
                _ if left > 2 && run.len() >= HALF => HALF,
                _ if left >= 2 || run.len() >= 2 => 2,
                _ => 1,
            };
            // The last tile starts early enough to be whole; the rows it has in common with the one before are dropped.
            let first = at.min(run.end.saturating_sub(m).max(run.start));
            let skip = at - first;
            rows.next(&mut places, skip..m);
            if m == M {
                self.tile::<S, M, N>(s, block, first, skip, &places, weights);
            } else if m == HALF {
                self.tile::<S, HALF, N>(s, block, first, skip, &places, weights);
            } else if m == 3 {
                self.tile::<S, 3, N>(s, block, first, skip, &places, weights);
            } else if m == 2 {
                self.tile::<S, 2, N>(s, block, first, skip, &places, weights);
            } else {
                self.tile::<S, 1, N>(s, block, first, skip, &places, weights);
            }
            at = first + m;
        }
    }

    /// M rows from `first` on times all vectors of the block.
    fn tile<S: Simd, const M: usize, const N: usize>(
        &mut self,
        s: S,
        block: &Block,
        first: usize,
        skip: usize,
        places: &Places,
        weights: &[&[T]],
    ) {
        let vectors = block.columns.len().div_ceil(lanes::<T, S>());
        for group in groups(vectors, N) {
            let vector = group.start;
            let (job, walk, kr) = (self.job, self.walk, &self.scratch.kr[..]);
            let product = Product { job, walk, block, kr, first, skip, vector, places, weights, g: &mut *self.g };
            match group.len() {
                1 => s.vectorize(OfSize::<T, M, 1>(product)),
                2 => s.vectorize(OfSize::<T, M, 2>(product)),
                _ => s.vectorize(OfSize::<T, M, 3>(product)),
            }
        }
    }
}

/// Rows from `first` on times some vectors of the block from `vector` on, added to G but for the first `skip` rows.
struct Product<'a, T> {
    job: &'a Job<'a, T>,
    walk: &'a Walk,
    block: &'a Block,
    kr: &'a [Line],
    first: usize,
    skip: usize,
    vector: usize,
    places: &'a Places,
    weights: &'a [&'a [T]],
    g: &'a mut [T],
}

/// M rows and N vectors.
struct OfSize<'a, T, const M: usize, const N: usize>(Product<'a, T>);

impl<T: Element, const M: usize, const N: usize> WithSimd for OfSize<'_, T, M, N> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let Product { job, walk, block, kr, first, skip, vector, places, weights, g } = self.0;
        let mut sums = none::<T, S, M, N>();
        let kr: &[T::V<S>] = bytemuck::cast_slice(kr);
        let kr = if walk.direct() { &[][..] } else { kr[vector * block.len()..][..N * block.len()].as_chunks::<N>().0 };
        if walk.direct() {
            sums = direct::<T, S, M, N>(s, job, walk, block, first, vector);
        } else if walk.side == Side::Left {
            let all = walk.before * walk.rows * walk.after;
            // The same rows' share of the next block where that is contiguous and fits, else the tile after the next.
            let bytes = block.entries.len() * all * size_of::<T>();
            let ahead = if bytes <= Walk::AHEAD_BYTES {
                (block.entries.len() * (all + first) - first, M)
            } else {
                (2 * M, all)
            };
            sums = along_rows::<T, S, M, N>(s, sums, &job.x[block.entries.start * all + first..], all, ahead, kr);
        } else {
            for (l, kr) in block.runs.clone().zip(kr.chunks_exact(block.entries.len())) {
                let row = |m: usize| (l * walk.rows + first + m) * walk.run + block.entries.start;
                let rows = std::array::from_fn(|m| &job.x[row(m)..][..block.entries.len()]);
                sums = along_k::<T, S, M, N>(s, sums, rows, M * walk.run, kr);
            }
        }
        let (start, whole) = (block.columns.start + vector * lanes::<T, S>(), N * lanes::<T, S>());
        let width = whole.min(block.columns.end - start);
        let add = Add { places, weights, skip, start, width, once: walk.once() };
        if width == whole { add.sums::<S, M, N, true>(s, &sums, g) } else { add.sums::<S, M, N, false>(s, &sums, g) }
    }
}

/// What becomes of a tile's sums: times the rows of the weight modes, added to G, `width` ranks from `start` on.
struct Add<'a, T> {
    places: &'a Places,
    weights: &'a [&'a [T]],
    skip: usize,
    start: usize,
    width: usize,
    once: bool,
}

impl<T: Element> Add<'_, T> {
    /// WHOLE where the ranks fill N vectors, which the compiler then knows.
    #[inline(always)]
    fn sums<S: Simd, const M: usize, const N: usize, const WHOLE: bool>(
        &self,
        s: S,
        sums: &Sums<T, S, M, N>,
        g: &mut [T],
    ) {
        let width = if WHOLE { N * lanes::<T, S>() } else { self.width };
        for (row, sums) in sums.iter().enumerate().skip(self.skip) {
            let g = &mut g[self.places[0][row] + self.start..][..width];
            let mut new = if self.once { [zero::<T, S>(); N] } else { vectors_of::<T, S, N>(s, g) };
            match self.weights {
                [] => {
                    for (new, &sum) in new.iter_mut().zip(sums) {
                        *new = T::plus(s, *new, sum);
                    }
                }
                [w] => {
                    let w = vectors_of::<T, S, N>(s, &w[self.places[1][row] + self.start..][..width]);
                    for ((new, &sum), w) in new.iter_mut().zip(sums).zip(w) {
                        *new = T::fma(s, sum, w, *new);
                    }
                }
                _ => {
                    let mut sums = *sums;
                    for (w, places) in self.weights.iter().zip(&self.places[1..]) {
                        let w = vectors_of::<T, S, N>(s, &w[places[row] + self.start..][..width]);
                        for (sum, w) in sums.iter_mut().zip(w) {
                            *sum = T::times(s, *sum, w);
                        }
                    }
                    for (new, sum) in new.iter_mut().zip(sums) {
                        *new = T::plus(s, *new, sum);
                    }
                }
            }
            for (to, new) in g.chunks_mut(lanes::<T, S>()).zip(new) {
                T::store(s, to, new);
            }
        }
    }
}

/// M rows from `first` on times N vectors of the block: along the last summed mode with its factor's rows for KR's, then
/// times the rows of the other summed modes.
#[inline(always)]
fn direct<T: Element, S: Simd, const M: usize, const N: usize>(
    s: S,
    job: &Job<'_, T>,
    walk: &Walk,
    block: &Block,
    first: usize,
    vector: usize,
) -> Sums<T, S, M, N> {
    let modes = match walk.side {
        Side::Left => 0..walk.split,
        _ => walk.split..job.shape.order(),
    };
    let last = modes.end - 1;
    let start = block.columns.start + vector * lanes::<T, S>();
    let columns = start..block.columns.end.min(start + N * lanes::<T, S>());
    // Along k and from row to row.
    let strides = if walk.side == Side::Left { (walk.before * walk.rows * walk.after, 1) } else { (1, walk.run) };
    let mut total = none::<T, S, M, N>();
    let rows = &job.factors[last][block.entries.start * job.rank..block.entries.end * job.rank];
    for index in 0..walk.run / walk.last {
        let at = index * walk.last + block.entries.start;
        let x = &job.x[at * strides.0 + first * strides.1..];
        let sums = along_factor::<T, S, M, N>(s, x, strides, rows, job.rank, &columns);
        let mut outer = [T::splat(s, T::one()); N];
        let mut rest = index;
        for m in modes.clone().rev().skip(1) {
            let row = job.row(m, rest % job.shape[m], &columns);
            rest /= job.shape[m];
            for (o, a) in outer.iter_mut().zip(vectors_of::<T, S, N>(s, row)) {
                *o = T::times(s, *o, a);
            }
        }
        for (total, sums) in total.iter_mut().zip(sums) {
            for ((t, sum), &o) in total.iter_mut().zip(sums).zip(&outer) {
                *t = T::fma(s, sum, o, *t);
            }
        }
    }
    total
}

/// Bytes of the result that are worked on while other modes run.
const G_BYTES: usize = 256 << 10;
