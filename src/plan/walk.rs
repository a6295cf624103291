//! How FUSED walks X on a CPU: which modes are summed by the micro-kernel, in blocks of what size, and how the work is
//! cut into parts. Parts that share rows of the result follow from the dims, the rank and the element type, never from
//! the number of threads, so that neither do the bits of the result. Cuts between rows change no bits and fit the threads.

use crate::{Dtype, Shape};
use std::fmt;
use std::ops::Range;

/// The modes that the micro-kernel sums over: those behind the split, those before it, or all but the result's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// X is a row-major matrix of the modes before the split (rows) and those from it on (summed).
    Right,
    /// X is a row-major matrix of the modes before the split (summed) and those from it on (rows).
    Left,
    /// The result's mode alone gives the rows.
    Both,
}

/// What parts that share rows of the result divide between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The row modes before the result's.
    Before,
    /// The row modes behind the result's.
    After,
    /// What the micro-kernel sums over.
    Sum,
}

/// FUSED on a CPU. With the modes in three groups, those that are summed (k), the result's (i) and the rest (a before
/// it, b behind it): `G[i, r] += W[a, b, r] * sum_k X[a, i, b, k] KR[k, r]`, W being the rest's Khatri-Rao product.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Walk {
    pub side: Side,
    /// First mode right of the split.
    pub split: usize,
    /// Entries of the group that is summed, for one index of what is left of the mode (`Both`) or in all.
    pub run: usize,
    /// Runs: what is left of the mode for `Both`, else 1.
    pub runs: usize,
    /// Length of the last mode that is summed.
    pub last: usize,
    /// Entries of a run in one block of KR; of whole runs, how many.
    pub step: usize,
    pub steps: usize,
    /// Product of the row modes before the result's mode, its own, and of those behind it.
    pub before: usize,
    pub rows: usize,
    pub after: usize,
    /// Ranks of one block of KR.
    pub columns: usize,
    pub cut: Cut,
    /// Parts with a result of their own; 1 where nothing is cut but rows.
    pub parts: usize,
    /// Most pieces of the rows of each part: there is no point in more.
    pub pieces: usize,
}

/// Bytes of a block of KR: half of the smallest second-level cache there is.
const BLOCK_BYTES: usize = 128 << 10;
/// Most entries along k of a block.
const STEP: usize = 384;
/// The same where neighbours along k are a row apart, each in a cache line of its own.
const LEFT_STEP: usize = 192;
/// Fewest entries along k for which blocks are made narrower instead.
const LEAST_STEP: usize = 128;
/// Rows of all for which making KR is not worth it, and entries of the last summed mode from which on it is not needed.
const DIRECT: (usize, usize) = (4, 32);
/// Blocks of ranks are whole multiples of it, and work is counted in vectors of so many.
const LANES: usize = 16;
/// Bytes of a vector and of a cache line, for the estimates.
const LINE: usize = 64;
/// Fewest vector operations worth a part of its own: some tens of microseconds.
const PART_WORK: usize = 1 << 17;
/// Most parts that share rows. Those of a sum have a KR of their own each; the others would make the same one again.
const PARTS: usize = 96;
/// Parts that are enough: beyond, one cut is no better than another for having more.
const ENOUGH: usize = 32;
/// Fewest bytes of X with which no cache is counted on.
const CACHE: usize = 16 << 20;
/// Bytes in one go after which the processor has begun to fetch what comes next by itself.
const FETCHED: usize = 512;
/// Most elements of all partial results together, beyond the first four.
const PARTIALS: usize = 1 << 19;

impl Walk {
    /// Most bytes of X that are fetched ahead of a block, so that they stay in the second-level cache.
    pub const AHEAD_BYTES: usize = 448 << 10;

    /// The walk and the cut with the least estimated time. The order of the shape is at least 2.
    pub fn new(shape: &Shape, mode: usize, rank: usize, dtype: Dtype) -> Self {
        let all = Self::all(shape, mode, rank, dtype).flat_map(|walk| walk.cuts(shape, rank));
        let best = all.map(|walk| (walk.time(rank, dtype), walk)).min_by(|a, b| a.0.total_cmp(&b.0));
        best.map_or_else(|| Self::of(shape, mode, rank, dtype, Side::Right, shape.order()), |(_, walk)| walk)
    }

    /// Every walk there is, not yet cut into parts.
    pub fn all(shape: &Shape, mode: usize, rank: usize, dtype: Dtype) -> impl Iterator<Item = Self> {
        let order = shape.order();
        let right = (mode + 1..order).map(|split| (Side::Right, split));
        let left = (1..=mode).map(|split| (Side::Left, split));
        let both = (mode > 0 && mode + 1 < order).then_some((Side::Both, mode));
        right.chain(left).chain(both).map(move |(side, split)| Self::of(shape, mode, rank, dtype, side, split))
    }

    fn of(shape: &Shape, mode: usize, rank: usize, dtype: Dtype, side: Side, split: usize) -> Self {
        let product = |modes: Range<usize>| shape[modes].iter().product::<usize>();
        let order = shape.order();
        let (runs, run) = match side {
            Side::Right => (1, product(split..order)),
            Side::Left => (1, product(0..split)),
            Side::Both => (product(0..mode), product(mode + 1..order)),
        };
        let (before, after) = match side {
            Side::Right => (product(0..mode), product(mode + 1..split)),
            Side::Left => (product(split..mode), product(mode + 1..order)),
            Side::Both => (1, 1),
        };
        let widest = BLOCK_BYTES / (LEAST_STEP * dtype.bytes() as usize);
        let columns = rank.div_ceil(rank.div_ceil(widest)).next_multiple_of(LANES);
        let longest = if side == Side::Left { LEFT_STEP } else { STEP };
        let most = (BLOCK_BYTES / (columns * dtype.bytes() as usize)).clamp(LEAST_STEP, longest);
        let step = run.div_ceil(run.div_ceil(most));
        let steps = (most / run).clamp(1, runs);
        let rows = shape.rows(mode);
        let last = match side {
            Side::Left => shape[split - 1],
            _ => shape[order - 1],
        };
        let (cut, parts, pieces) = (Cut::Sum, 1, 1);
        let mut walk =
            Self { side, split, run, runs, last, step, steps, before, rows, after, columns, cut, parts, pieces };
        if walk.direct() {
            // Rows of a factor that stay in a cache while the other summed modes run.
            let most = (BLOCK_BYTES / (rank * dtype.bytes() as usize)).max(LEAST_STEP);
            walk.step = last.div_ceil(last.div_ceil(most));
        }
        walk
    }

    /// Whether rows of the last summed mode's factor take the place of KR's, and the other summed modes weigh what has
    /// been summed along that mode: a row of KR would be used too few times. Blocks and parts are of the last mode then.
    pub fn direct(&self) -> bool {
        self.side != Side::Both && self.all_rows() <= DIRECT.0 && self.last >= DIRECT.1
    }

    /// What blocks and parts of a sum divide between them, of a run.
    pub fn summed(&self) -> usize {
        if self.direct() { self.last } else { self.run }
    }

    /// Rows of the matrix that the micro-kernel sees.
    fn all_rows(&self) -> usize {
        self.before * self.rows * self.after
    }

    /// Entries of the tensor.
    fn len(&self) -> f64 {
        self.all_rows() as f64 * self.run as f64 * self.runs as f64
    }

    /// Entries along k between two additions to G.
    fn k(&self) -> usize {
        let runs = if self.cut == Cut::Sum { (self.runs / self.parts).max(1) } else { self.runs };
        self.step * self.steps.min(runs)
    }

    /// Time for each multiply-add of a vector, roughly, in cycles of a thread: 1 for itself, the others are what is lost.
    /// What they cost was measured walk by walk with AVX-512, see benches/RESULTS.md.
    fn work(&self, rank: usize, dtype: Dtype) -> f64 {
        let bytes = dtype.bytes() as usize;
        let vectors = (rank * bytes).div_ceil(LINE) as f64;
        let weights = usize::from(self.before > 1) + usize::from(self.after > 1);
        // A row's sum is multiplied by its weights and added to G; before that a tile's rows are looked up.
        let flush = (12.0 + weights as f64 + 15.0 / vectors) / self.k() as f64;
        let form = self.form(rank, dtype);
        let partials = 3.0 * (self.parts - 1) as f64 * self.rows as f64 / self.len();
        // Runs lie apart and are entered anew.
        let enter = if self.side == Side::Both { 2.5 / self.step as f64 } else { 0.0 };
        let read = self.wait(bytes) / ((LINE / bytes) as f64 * vectors);
        1.0 + flush + form + partials + enter + read
    }

    /// Cycles for which a cache line of X is waited for where X is in no cache: the more, the less of X is read in one go.
    fn wait(&self, bytes: usize) -> f64 {
        if self.len() * (bytes as f64) < CACHE as f64 {
            return 0.0;
        }
        let parts = if self.cut == Cut::Sum && self.side == Side::Right { self.parts } else { 1 };
        let entered = (FETCHED as f64 / (self.run / parts * bytes) as f64).min(1.0);
        match self.side {
            Side::Right => 1.0 + 4.0 * entered,
            Side::Both => 1.0 + 11.0 * entered,
            // Neighbours along k are in a page of their own each, and lines are asked for one by one.
            Side::Left => 3.0,
        }
    }

    /// What making the rows of KR costs beside the products: each is made once and used for all rows, by every part that does
    /// not have rows of its own.
    fn form(&self, rank: usize, dtype: Dtype) -> f64 {
        let vectors = (rank * dtype.bytes() as usize).div_ceil(LINE) as f64;
        let each = if self.direct() { 0.5 } else { 5.0 + 1.0 / vectors };
        each / self.all_rows() as f64 * if self.cut == Cut::Sum { 1.0 } else { self.parts as f64 }
    }

    /// The work, and what threads lose by waiting for the last of them: less the more parts there are.
    fn time(&self, rank: usize, dtype: Dtype) -> f64 {
        let extent = match self.cut {
            Cut::Before => self.before,
            Cut::After => self.after,
            Cut::Sum if self.side == Side::Both => self.runs,
            Cut::Sum => self.summed(),
        };
        let longest = (extent.div_ceil(self.parts) * self.parts) as f64 / extent as f64;
        self.work(rank, dtype) * longest * (1.0 + 1.0 / (self.parts * self.pieces).min(ENOUGH) as f64)
    }

    /// The walk with its work cut into parts, in every way there is.
    fn cuts(self, shape: &Shape, rank: usize) -> Vec<Self> {
        let work = shape.len().saturating_mul(rank.div_ceil(LANES));
        let wanted = (work / PART_WORK).max(1);
        // Parts that share rows have partial results, which take room and have to be added.
        let len = self.rows * rank;
        let partials = (PARTIALS / len).max(4).min((shape.len() / self.rows / 16).max(1)).min(PARTS);
        let most = match self.side {
            Side::Both => self.runs / self.steps.min(16),
            _ => self.summed() / LEAST_STEP,
        };
        let narrow = if self.side == Side::Left { 256 } else { 16 };
        let pieces = (self.rows / (narrow / self.after).max(1)).clamp(1, wanted);
        // Where there are parts already, rows may be cut finer to make their number fit the threads.
        let finest = (self.rows / (16 / self.after).max(1)).max(1);
        let cut = |cut: Cut, most: usize| {
            // Even numbers, which suit most threads.
            let most = most.min(partials).min(wanted);
            let counts = (most.div_ceil(2).max(2)..=most).rev().filter(|parts| parts.is_multiple_of(2));
            let walk = self.clone();
            counts.map(move |parts| {
                let mut walk = Self { cut, parts, pieces: (wanted / parts).clamp(1, finest), ..walk.clone() };
                if cut == Cut::Sum && walk.side != Side::Both {
                    // Blocks of one length.
                    let len = walk.summed().div_ceil(parts);
                    walk.step = len.div_ceil(len.div_ceil(walk.step));
                }
                walk
            })
        };
        let before = cut(Cut::Before, self.before.min(ENOUGH));
        let after = cut(Cut::After, (self.after / narrow).min(ENOUGH));
        let sum = cut(Cut::Sum, most);
        let rows = Self { pieces, ..self.clone() };
        std::iter::once(rows).chain(sum).chain(before).chain(after).collect()
    }

    /// Whether every entry of the result is written once: by one block, and no other part has it.
    pub fn once(&self) -> bool {
        self.before * self.after == 1 && self.parts == 1 && self.runs <= self.steps && self.summed() <= self.step
    }

    /// Whether it is too little work to be shared out.
    pub fn alone(&self) -> bool {
        self.parts == 1 && self.pieces == 1
    }

    /// Ranges of the rows into which each part is cut for that many threads.
    pub fn row_pieces(&self, threads: usize, rank: usize, dtype: Dtype) -> impl Iterator<Item = Range<usize>> + Clone {
        let form = self.form(rank, dtype);
        // Rounds of all threads, a third of one lost as they do not end together; every piece makes KR anew and ends with a
        // tile that is not whole.
        let time = |pieces: usize| {
            let tasks = self.parts * pieces;
            (tasks.div_ceil(threads) as f64 + 0.3) / tasks as f64 * (1.0 + (form + 0.02) * pieces as f64)
        };
        let most = self.pieces.min(4 * threads);
        let pieces =
            if threads == 1 { 1 } else { (1..=most).min_by(|&a, &b| time(a).total_cmp(&time(b))).unwrap_or(1) };
        let rows = self.rows;
        (0..pieces).map(move |piece| share(rows, piece, pieces)..share(rows, piece + 1, pieces))
    }

    /// The range of that extent which part `part` has, if it is what is cut.
    pub fn range(&self, cut: Cut, extent: usize, part: usize) -> Range<usize> {
        if cut != self.cut {
            return 0..extent;
        }
        share(extent, part, self.parts)..share(extent, part + 1, self.parts)
    }
}

/// Where part `part` of an extent begins.
fn share(extent: usize, part: usize, parts: usize) -> usize {
    // Of any two extents below 2^64 the product fits 128 bits.
    (extent as u128 * part as u128 / parts as u128) as usize
}

impl fmt::Display for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let modes = match self.side {
            Side::Right => format!("modes {} and on", self.split),
            Side::Left => format!("modes before {}", self.split),
            Side::Both => "all other modes".into(),
        };
        let cut = match self.cut {
            Cut::Before => "modes before the result's",
            Cut::After => "modes behind the result's",
            Cut::Sum => "the sum",
        };
        let parts = match (self.parts, self.pieces) {
            (1, 1) => "1 part".to_string(),
            (1, pieces) => format!("up to {pieces} parts of rows"),
            (parts, 1) => format!("{parts} parts of {cut}"),
            (parts, pieces) => format!("{parts} parts of {cut}, each in up to {pieces} of rows"),
        };
        let k = self.step * self.steps;
        write!(f, "{modes} summed first, {k} entries at a time; {parts}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPES: [&[usize]; 8] = [
        &[200, 200, 200],
        &[400, 300, 200],
        &[60, 60, 60, 60],
        &[24, 24, 24, 24, 24],
        &[2000, 50, 50],
        &[3, 1000003, 3],
        &[1000003, 3, 3],
        &[5, 7],
    ];

    fn walks(ranks: &[usize]) -> Vec<(usize, Dtype, Walk, String)> {
        let mut walks = Vec::new();
        for dims in SHAPES {
            let shape = Shape::new(dims).unwrap();
            for (&rank, dtype) in ranks.iter().flat_map(|r| [(r, Dtype::F32), (r, Dtype::F64)]) {
                for mode in 0..dims.len() {
                    let walk = Walk::new(&shape, mode, rank, dtype);
                    walks.push((rank, dtype, walk, format!("{dims:?} R {rank} {dtype} mode {mode}")));
                }
            }
        }
        walks
    }

    #[test]
    fn a_block_of_kr_fits_the_second_level_cache() {
        let made = |(_, _, walk, _): &(usize, Dtype, Walk, String)| !walk.direct();
        for (_, dtype, walk, what) in walks(&[1, 8, 16, 100, 257, 512, 513, 3000]).into_iter().filter(made) {
            let bytes = walk.step * walk.steps * walk.columns * dtype.bytes() as usize;
            assert!(bytes <= BLOCK_BYTES, "{what}: {bytes} bytes, {walk}");
        }
    }

    /// Cuts between rows take every row once, however many threads there are, and the rest does not ask for threads.
    #[test]
    fn pieces_are_all_rows() {
        for (rank, dtype, walk, what) in walks(&[2, 64]) {
            for threads in [1, 2, 3, 24, 64, 1000] {
                let pieces: Vec<_> = walk.row_pieces(threads, rank, dtype).collect();
                let ends = pieces.iter().fold(0, |at, piece| if piece.start == at { piece.end } else { usize::MAX });
                assert_eq!(ends, walk.rows, "{what}, {threads} threads: {pieces:?}");
            }
        }
    }

    /// Where there is work for them, at most a quarter of the threads' time is lost to rounds that are not full.
    #[test]
    fn any_number_of_threads_is_kept_busy() {
        for (rank, dtype, walk, what) in walks(&[64]).into_iter().filter(|(.., what)| what.starts_with("[200")) {
            for threads in [1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48] {
                let tasks = walk.parts * walk.row_pieces(threads, rank, dtype).count();
                let busy = tasks as f64 / (tasks.div_ceil(threads) * threads) as f64;
                assert!(busy >= 0.75, "{what}: {tasks} tasks for {threads} threads, {walk}");
            }
        }
    }
}
