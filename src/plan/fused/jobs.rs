//! How slabs are cut into pieces of the reduction, and which of them are in work at the same time.

use super::super::memory::{Slab, column_stride};
use super::super::{DeviceCaps, Problem};
use super::{Kernel, View, held, kernel};
use crate::{Error, Result};

/// How a slab is cut: steps and pieces of the reduction, and column tiles that share one partial buffer.
pub(super) struct Cut {
    pub run: usize,
    pub run_steps: usize,
    pub steps: usize,
    /// In steps, which are whole runs where rows of the last factor are held.
    pub piece: usize,
    /// There, one for every block of a run too.
    pub pieces: usize,
    pub m_tiles: usize,
    /// Column tiles of one dispatch.
    pub n_tiles: usize,
    pub bytes: u64,
}

/// What the partial results of a block of columns may take at most, in entries, whatever the shape: the columns in whole
/// tiles times the sum of the dims, and a tile for each workgroup wanted.
fn bound(kernel: &Kernel, stride: usize, sum_of_dims: usize) -> u64 {
    let columns = stride.next_multiple_of(kernel.bn) as u64;
    columns * sum_of_dims as u64 + (kernel.groups * kernel.bm * kernel.bn) as u64
}

/// Where pieces would have fewer steps than this, a quarter of the workgroups wanted is enough: 2000 x 50 x 50 at R = 16 took
/// 0.85 to 0.9 times as long with them.
const SHORT: usize = 2;

/// Cuts a slab so that its partial results stay within `limit` bytes. Several pieces are made only as long as there are
/// fewer workgroups than wanted, which is the second part of the bound; one piece is a result of the mode's rows, the first
/// part, and of the last tile's surplus rows, the second; where rows of the last factor are held, one for every block of a run,
/// which `held` asks to be no more than the workgroups wanted. Columns of more tiles than that are cut. No limit: nothing is
/// stored.
fn cut(kernel: &Kernel, view: View, width: usize, element: u64, limit: Option<u64>) -> Result<Cut> {
    let (m_tiles, all_n) = (view.rows.div_ceil(kernel.bm), width.div_ceil(kernel.bn));
    let run = view.run(kernel.runs);
    let blocks = run.div_ceil(kernel.step);
    // Blocks of a run are steps of one workgroup, or have workgroups of their own.
    let (run_steps, blocks) = if kernel.held { (1, blocks) } else { (blocks, 1) };
    let steps = view.reduction / run * run_steps;
    let tile_bytes = |pieces: usize| (pieces * blocks * m_tiles * kernel.bm * kernel.bn) as u64 * element;
    let wanted = (kernel.groups / (m_tiles * all_n * blocks)).clamp(1, steps);
    let wanted = if steps < SHORT * wanted { wanted.div_ceil(4) } else { wanted };
    let Some(limit) = limit else {
        let piece = steps.div_ceil(wanted);
        let pieces = steps.div_ceil(piece) * blocks;
        return Ok(Cut { run, run_steps, steps, piece, pieces, m_tiles, n_tiles: all_n, bytes: 0 });
    };
    let fitting = (limit / tile_bytes(1)) as usize;
    if fitting == 0 {
        return Err(Error::LimitTooSmall {
            limit: "max_storage_buffer_binding_size",
            what: format!("a partial result of {} rows and {} columns", view.rows, kernel.bn),
            needed: tile_bytes(1),
            available: limit,
        });
    }
    let piece = steps.div_ceil(wanted.min(fitting));
    let pieces = steps.div_ceil(piece);
    let n_tiles = ((limit / tile_bytes(pieces)) as usize).clamp(1, all_n);
    let (bytes, pieces) = (tile_bytes(pieces) * n_tiles as u64, pieces * blocks);
    Ok(Cut { run, run_steps, steps, piece, pieces, m_tiles, n_tiles, bytes })
}

/// A slab, its kernel and how it is cut.
pub(super) struct Job<'a> {
    pub index: usize,
    pub slab: &'a Slab,
    pub view: View,
    pub kernel: Kernel,
    pub cut: Cut,
    /// Of the partial results of all slabs that are in work with it, in bytes.
    bound: u64,
}

/// Most slabs in work at the same time, each with partial results of its own.
const TOGETHER: usize = 8;

/// The batches of every block of columns, and the bound of their partial results in bytes, which all blocks share.
pub(super) fn blocks<'a>(
    problem: &Problem,
    caps: &DeviceCaps,
    slabs: &'a [Slab],
    limit: Option<u64>,
) -> Result<(Vec<Batches<'a>>, u64)> {
    let widths = || problem.columns.windows(2).map(|ends| ends[1] - ends[0]);
    let all = |together: bool| -> Result<(Vec<Batches<'a>>, u64)> {
        let blocks = widths().map(|width| batches(problem, caps, slabs, width, limit, together));
        let blocks = blocks.collect::<Result<Vec<_>>>()?;
        let bound = blocks.iter().flatten().flatten().map(|job| job.bound).max().unwrap_or(0);
        Ok((blocks, bound))
    };
    let (together, bound) = all(true)?;
    // The last block is narrower: its places may be larger than those of the others where theirs are smaller.
    if bytes(together.iter().flatten()) <= bound { Ok((together, bound)) } else { all(false) }
}

/// What the places of batches take together: each serves one slab of every batch.
fn bytes<'a, 'b: 'a>(batches: impl Iterator<Item = &'a Vec<Job<'b>>> + Clone) -> u64 {
    let place = |at: usize| batches.clone().filter_map(|batch| batch.get(at)).map(|job| job.cut.bytes).max();
    (0..TOGETHER).filter_map(place).sum()
}

/// Slabs that are in work at the same time, in order.
pub(super) type Batches<'a> = Vec<Vec<Job<'a>>>;

/// The slabs in batches, for one block of columns. Kernels of one batch run side by side, as nothing that one writes is
/// read or written by another: the device stays full from slab to slab, and they share the workgroups wanted. Batches are
/// single slabs where that takes more scratch than one slab after the other may, where columns are cut, or where it is not
/// asked for.
fn batches<'a>(
    problem: &Problem,
    caps: &DeviceCaps,
    slabs: &'a [Slab],
    width: usize,
    limit: Option<u64>,
    together: bool,
) -> Result<Batches<'a>> {
    let (element, sum_of_dims) = (problem.options.sums().bytes(), problem.shape.iter().sum());
    let stride = column_stride(width);
    let batch_of = |from: usize, batch: &'a [Slab], entries: usize| -> Result<Vec<Job<'a>>> {
        let job = |(place, slab): (usize, &'a Slab)| {
            let view = View::new(problem.mode, slab);
            // Of u64, as entries can be many.
            let share = |groups: usize| (groups as u64 * slab.len() as u64).div_ceil(entries as u64) as usize;
            let mut kernel = held(problem, view, width, share).unwrap_or_else(|| kernel(problem, view, width, caps));
            let bound = if limit.is_some() { bound(&kernel, stride, sum_of_dims) * element } else { 0 };
            kernel.groups = share(kernel.groups);
            let cut = cut(&kernel, view, stride, element, limit.map(|limit| limit.min(bound)))?;
            Ok(Job { index: from + place, slab, view, kernel, cut, bound })
        };
        batch.iter().enumerate().map(job).collect()
    };
    let in_batches = |length: usize| -> Result<Batches<'a>> {
        // All share by the largest, so that no place gets more room than the bound has.
        let entries = |batch: &[Slab]| batch.iter().map(Slab::len).sum::<usize>();
        let most = slabs.chunks(length).map(entries).max().unwrap_or(1);
        let all = slabs.chunks(length).enumerate();
        all.map(|(at, batch)| batch_of(at * length, batch, if length == 1 { entries(batch) } else { most })).collect()
    };
    if together && limit.is_some() && slabs.len() > 1 {
        // Batches of about one length: a slab alone would leave most of the device idle.
        let all = in_batches(slabs.len().div_ceil(slabs.len().div_ceil(TOGETHER)))?;
        let bytes = bytes(all.iter());
        let fits = |job: &Job| job.cut.n_tiles * job.kernel.bn >= stride && bytes <= job.bound;
        if all.iter().flatten().all(fits) {
            return Ok(all);
        }
    }
    in_batches(1)
}
