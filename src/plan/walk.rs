//! How FUSED walks X on a CPU: which modes are summed by the micro-kernel, in blocks of what size, and how the work is
//! cut into parts. All of it follows from the dims, the rank and the element type, never from the number of threads,
//! so that neither do the bits of the result.

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

/// What the parts divide between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The result's rows: no part shares any with another.
    Rows,
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
    pub parts: usize,
}

/// Bytes of a block of KR: small beside the second-level cache.
const BLOCK_BYTES: usize = 128 << 10;
/// Most entries along k of a block.
const STEP: usize = 384;
/// The same where neighbours along k are a row apart, each in a cache line of its own.
const LEFT_STEP: usize = 192;
/// Most ranks of a block.
const COLUMNS: usize = 512;
/// Ranks of a vector, for the estimates.
const LANES: usize = 16;
/// Fewest vector operations worth a part of its own: some tens of microseconds.
const PART_WORK: usize = 1 << 17;
/// Most parts.
const PARTS: usize = 32;
/// Most elements of all partial results together, beyond the first four.
const PARTIALS: usize = 1 << 19;

impl Walk {
    /// Most bytes of X that are fetched ahead of a block, so that they stay in the second-level cache.
    pub const AHEAD_BYTES: usize = 448 << 10;

    /// The walk with the least estimated work. The order of the shape is at least 2.
    pub fn new(shape: &Shape, mode: usize, rank: usize, dtype: Dtype) -> Self {
        let best =
            Self::all(shape, mode, rank, dtype).min_by(|a, b| a.work(rank, dtype).total_cmp(&b.work(rank, dtype)));
        let mut walk = best.unwrap_or_else(|| Self::of(shape, mode, rank, dtype, Side::Right, shape.order()));
        walk.cut(shape, rank);
        walk
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
        let columns = rank.div_ceil(rank.div_ceil(COLUMNS)).next_multiple_of(LANES);
        let longest = if side == Side::Left { LEFT_STEP } else { STEP };
        let most = (BLOCK_BYTES / (columns * dtype.bytes() as usize)).clamp(64, longest);
        let step = run.div_ceil(run.div_ceil(most));
        let steps = (most / run).clamp(1, runs);
        let rows = shape.rows(mode);
        Self { side, split, run, runs, step, steps, before, rows, after, columns, cut: Cut::Rows, parts: 1 }
    }

    /// Rows of the matrix that the micro-kernel sees.
    fn all_rows(&self) -> usize {
        self.before * self.rows * self.after
    }

    /// Cycles for each multiply-add of a vector, roughly: 1 for itself, the others are what is lost.
    fn work(&self, rank: usize, dtype: Dtype) -> f64 {
        let vectors = rank.div_ceil(LANES) as f64;
        let weights = if self.before > 1 || self.after > 1 { 2.0 } else { 0.0 };
        // A row's sum is multiplied by its weights and added to G.
        let flush = (3.0 + weights + 12.0 / vectors) / (self.step * self.steps) as f64;
        // A row of KR is made once and used for all rows.
        let form = (2.0 + 4.0 / vectors) / self.all_rows() as f64;
        let block = self.step * self.all_rows() * dtype.bytes() as usize;
        let layout = match self.side {
            Side::Right => 0.0,
            // Runs lie apart and are entered anew often.
            Side::Both => 0.45 + 4.0 / self.step as f64 / vectors,
            // Neighbours along k are far apart: every one is in a page of its own.
            Side::Left if block > Self::AHEAD_BYTES => 0.35,
            Side::Left => 0.0,
        };
        1.0 + flush + form + layout
    }

    /// Cuts the work into parts.
    fn cut(&mut self, shape: &Shape, rank: usize) {
        let work = shape.len().saturating_mul(rank.div_ceil(LANES));
        let wanted = (work / PART_WORK).clamp(1, PARTS);
        // Parts that share rows have partial results, which take room and have to be added.
        let len = self.rows * rank;
        let partials = (PARTIALS / len).max(4).min((shape.len() / self.rows / 16).max(1));
        let (sum, least) = match self.side {
            Side::Both => (self.runs, self.steps.min(16)),
            Side::Right => (self.run, 64),
            Side::Left => (self.run, 128),
        };
        let narrow = if self.side == Side::Left { 256 } else { 16 };
        let choices = [
            (Cut::Before, self.before.min(partials)),
            (Cut::Rows, self.rows / (narrow / self.after).max(1)),
            (Cut::Sum, (sum / least).min(partials)),
            (Cut::After, (self.after / narrow).min(partials)),
        ];
        let order: [usize; 4] = match self.side {
            Side::Left => [2, 0, 1, 3],
            _ => [1, 0, 3, 2],
        };
        let mut best = (Cut::Rows, 1);
        for (cut, parts) in order.map(|c| choices[c]) {
            let parts = parts.min(wanted);
            if parts > best.1 {
                best = (cut, parts);
            }
        }
        (self.cut, self.parts) = best;
    }

    /// The range of that extent which part `part` has, if it is what is cut.
    pub fn range(&self, cut: Cut, extent: usize, part: usize) -> Range<usize> {
        if cut != self.cut {
            return 0..extent;
        }
        // Of any two extents below 2^64 the product fits 128 bits.
        let at = |part: usize| (extent as u128 * part as u128 / self.parts as u128) as usize;
        at(part)..at(part + 1)
    }
}

impl fmt::Display for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let modes = match self.side {
            Side::Right => format!("modes {} and on", self.split),
            Side::Left => format!("modes before {}", self.split),
            Side::Both => "all other modes".into(),
        };
        let cut = match self.cut {
            Cut::Rows => "rows",
            Cut::Before => "modes before the result's",
            Cut::After => "modes behind the result's",
            Cut::Sum => "the sum",
        };
        let k = self.step * self.steps;
        write!(f, "{modes} summed first, {k} entries at a time; {} parts of {cut}", self.parts)
    }
}
