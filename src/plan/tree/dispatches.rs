//! The dispatches of a kept product, and of the MTTKRPs that follow from it.

use super::super::fused::{Kernel, View, add_pieces, first_of_rows, kernel, reduce_chain};
use super::super::kernel::{Dispatch, FusedParams, KernelSpec, MultiTtvParams, Params, ReduceParams, Slot};
use super::super::memory::{Slab, column_stride, group_scale_row, weights_row};
use super::super::{Problem, entrywise::per_mode, fold_grid, tuning};
use super::Asked;
use crate::{Error, Result, Shape};
use std::borrow::Cow;
use std::ops::Range;

/// Most slabs that one dispatch reads (`fused_load_slabs`).
const READ_TOGETHER: usize = 3;

/// The product with a group's factors, and what comes of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Product {
    pub contraction: Contraction,
    /// By mode; empty for those of the group.
    pub results: Vec<Vec<Dispatch>>,
    /// By mode: longest chain of additions.
    pub chains: Vec<u64>,
    /// Bytes of the pieces of results.
    pub scratch: u64,
}

/// How the product is made, and how it lies in its buffers: each holds some columns of the product of a slab, or of all where one
/// kernel reads them; all columns where they fit.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Contraction {
    /// One a buffer.
    pub dispatches: Vec<Dispatch>,
    layouts: Vec<Layout>,
    /// Bytes of each buffer.
    pub bytes: Vec<u64>,
    pub chain: u64,
    pub f16: bool,
    /// Fewest workgroups of a dispatch.
    pub workgroups: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Layout {
    slab: usize,
    /// First column, and how many: a multiple of 4.
    column0: usize,
    columns: usize,
    /// Rows from one index of the modes left of the group to the next.
    part: usize,
    stride: usize,
    /// Columns and X are scaled.
    scaled: bool,
}

impl Asked<'_> {
    /// FUSED over the group's modes, one row of T for every index of the kept ones. Where modes are kept on both sides,
    /// every index of those on the left is a part of the reduction with a result of its own: a piece that is not added up.
    pub fn contraction(&self, group: &Range<usize>) -> Result<Contraction> {
        let (shape, order) = (self.shape, self.shape.order());
        let (left, right) = (group.start > 0, group.end < order);
        let stride = column_stride(self.rank);
        let mut all = Contraction {
            dispatches: Vec::new(),
            layouts: Vec::new(),
            bytes: Vec::new(),
            chain: 0,
            f16: false,
            workgroups: f64::INFINITY,
        };
        // The index of a mode begins anew with every part where the kernel counts it modulo its dim, which it does of
        // none or of several modes but the last. One alone gets company: a mode with one row, the weights, which are ones.
        let ones = usize::from(left && right && group.len() == 2);
        let one_by_one = || {
            self.slabs.iter().map(|slab| {
                let (view, kernel) = self.kernel(group, slab, ones, 0)?;
                Ok((Cow::Borrowed(slab), view, kernel))
            })
        };
        let units = match self.over_slabs(group, ones)? {
            Some(all) => vec![all],
            None => one_by_one().collect::<Result<_>>()?,
        };
        for (index, (slab, view, kernel)) in units.into_iter().enumerate() {
            let batch = view.batch;
            let run = view.run(kernel.runs);
            let run_steps = run.div_ceil(kernel.step);
            let steps = view.reduction / run * run_steps;
            let (m_tiles, n_tiles) = (view.rows.div_ceil(kernel.bm), stride.div_ceil(kernel.bn));
            let part = m_tiles * kernel.bm;
            // Columns of tiles that fit a binding together, shared out evenly.
            let sizes = [batch, part, kernel.bn].map(|n| n as u64);
            let one_tile = sizes.into_iter().fold(self.options.dtype.bytes(), u64::saturating_mul);
            let fitting = (self.limit / one_tile).min(n_tiles as u64) as usize;
            if fitting == 0 {
                let (columns, first, last) = (kernel.bn.min(stride), group.start, group.end - 1);
                return Err(Error::LimitTooSmall {
                    limit: "max_storage_buffer_binding_size",
                    what: format!("{columns} columns of the product with the factors of modes {first} to {last}"),
                    needed: one_tile,
                    available: self.limit,
                });
            }
            let together = n_tiles.div_ceil(n_tiles.div_ceil(fitting));
            let row0 = |m: usize| (shape[..m].iter().sum::<usize>() + slab.offsets[m]) as u32;
            let mut modes = vec![(1, weights_row(shape) as u32); ones];
            modes.extend(group.clone().map(|m| (slab.dims[m] as u32, row0(m))));
            let piece = steps / batch;
            all.chain = all.chain.max((kernel.chain)(&kernel, piece) as u64);
            all.f16 |= kernel.f16;
            for column0 in (0..stride).step_by(together * kernel.bn) {
                let columns = (stride - column0).min(together * kernel.bn);
                let n_tiles = columns.div_ceil(kernel.bn);
                let pitch = n_tiles * kernel.bn;
                let folded = m_tiles * batch * if kernel.along_z { 1 } else { n_tiles };
                let [x, y] = fold_grid(folded as u64, self.caps)?;
                let params = FusedParams {
                    rows: view.rows as u32,
                    right: view.right as u32,
                    reduction: view.reduction as u32,
                    stride4: (stride / 4) as u32,
                    run: run as u32,
                    run_steps: run_steps as u32,
                    steps: steps as u32,
                    piece: piece as u32,
                    pieces: batch as u32,
                    m_tiles: m_tiles as u32,
                    column0: column0 as u32,
                    partial_rows: part as u32,
                    partial_stride4: (pitch / 4) as u32,
                    grid_x: x,
                    scale_row: group_scale_row(shape, group.start) as u32,
                    x_scale: 1.0,
                    last_row0: modes.last().map_or(0, |&(_, row)| row),
                    // One run has no next; over several slabs it might not fit.
                    run_stride: if kernel.more() > 0 {
                        0
                    } else {
                        (if view.cols { run * view.rows } else { run }) as u32
                    },
                    turn_runs: u32::MAX,
                    turn_stride: 0,
                    g_row0: 0,
                    weights_row: weights_row(shape) as u32,
                    group0: 0,
                    slab_steps: if kernel.more() > 0 { self.slabs[0].dims[group.start] / kernel.step } else { 0 }
                        as u32,
                    dims: per_mode(modes.iter().map(|&(dim, _)| dim)),
                    row0: per_mode(modes.iter().map(|&(_, row)| row)),
                };
                all.workgroups = all.workgroups.min((m_tiles * batch * n_tiles) as f64);
                // A single row is as many rows apart as there are parts.
                let apart = if right { part } else { 1 };
                let buffer = all.layouts.len();
                all.layouts.push(Layout {
                    slab: index,
                    column0,
                    columns,
                    part: apart,
                    stride: pitch,
                    scaled: kernel.f16,
                });
                all.bytes.push(one_tile * n_tiles as u64);
                let mut slots = vec![Slot::X(index), Slot::X(index), Slot::Factors(0)];
                if kernel.more() > 0 {
                    slots.extend([1, kernel.more()].map(Slot::X));
                }
                slots.push(Slot::Tree(buffer));
                all.dispatches.push(Dispatch {
                    spec: kernel.spec.clone(),
                    params: Params::Fused(params),
                    slots,
                    grid: [x, y, if kernel.along_z { n_tiles as u32 } else { 1 }],
                    slab: index,
                });
            }
        }
        Ok(all)
    }

    /// The tensor as one, and a kernel that goes through its slabs, so that each entry of T is written once and not once a slab:
    /// where they cut nothing but the group, a single mode, all of them have the same rows of T.
    fn over_slabs(&self, group: &Range<usize>, ones: usize) -> Result<Option<(Cow<'_, Slab>, View, Kernel)>> {
        let (slabs, first) = (&self.slabs, &self.slabs[0]);
        let whole = |slab: &Slab| (0..self.shape.order()).all(|m| group.contains(&m) || slab.dims[m] == self.shape[m]);
        let even = slabs.windows(2).all(|pair| pair[0].len() == first.len() && pair[1].len() <= first.len());
        let suits = (2..=READ_TOGETHER).contains(&slabs.len()) && group.len() == 1;
        if !(suits && even && slabs.iter().all(whole) && self.caps.max_storage_buffers >= 6) {
            return Ok(None);
        }
        let all = Slab { start: 0, dims: self.shape.dims().to_vec(), offsets: vec![0; self.shape.order()] };
        let (view, kernel) = self.kernel(group, &all, ones, slabs.len() - 1)?;
        let vec4 = kernel.spec.consts.contains(&("VEC", 4));
        let reads = kernel.more() > 0 && vec4 && first.dims[group.start].is_multiple_of(kernel.step);
        Ok(reads.then_some((Cow::Owned(all), view, kernel)))
    }

    /// X of a slab as a kernel sees it, and the kernel; `ones` modes are there for company, `more` slabs behind this one are
    /// part of it.
    fn kernel(&self, group: &Range<usize>, slab: &Slab, ones: usize, more: usize) -> Result<(View, Kernel)> {
        let (left, right) = (group.start > 0, group.end < self.shape.order());
        let (l, t) = (slab.dims[..group.start].iter().product(), slab.dims[group.end..].iter().product());
        let inner = &slab.dims[group.clone()];
        let dims: Vec<usize> =
            left.then_some(l).into_iter().chain(inner.iter().copied()).chain(right.then_some(t)).collect();
        let virtual_mode = if right { dims.len() - 1 } else { 0 };
        let batch = if left && right { l } else { 1 };
        let mut view = View::of(&dims, virtual_mode, batch);
        view.more = more;
        // As many modes as it multiplies the factors of, and the one of the rows.
        let counted = Shape::new(&vec![1; ones + group.len() + 1])?;
        let problem = Problem { shape: &counted, mode: 0, options: self.options, columns: vec![0, self.rank] };
        Ok((view, kernel(&problem, view, self.rank, self.caps)))
    }

    pub fn product(&self, group: &Range<usize>) -> Result<Product> {
        let contraction = self.contraction(group)?;
        let order = self.shape.order();
        let (mut results, mut chains, mut scratch) = (Vec::new(), Vec::new(), 0);
        for mode in 0..order {
            let mut dispatches = Vec::new();
            // Over slabs it adds up, columns have chains of their own.
            let mut of_slabs = vec![0; self.slabs.len()];
            if !group.contains(&mode) {
                for (buffer, layout) in contraction.layouts.iter().enumerate() {
                    let (pair, additions, bytes) = self.result(group, *layout, mode, buffer)?;
                    dispatches.extend(pair);
                    of_slabs[layout.slab] = (contraction.chain + additions).max(of_slabs[layout.slab]);
                    scratch = bytes.max(scratch);
                }
            }
            results.push(dispatches);
            chains.push(of_slabs.iter().sum());
        }
        Ok(Product { contraction, results, chains, scratch })
    }

    /// A mode's MTTKRP of what a buffer holds of T: the dispatches, the additions and the bytes of its pieces.
    fn result(
        &self,
        group: &Range<usize>,
        layout: Layout,
        mode: usize,
        buffer: usize,
    ) -> Result<([Dispatch; 2], u64, u64)> {
        let (shape, index) = (self.shape, layout.slab);
        let slab = &self.slabs[index];
        let dtype = self.options.dtype;
        // Rows of T from one index of a kept mode to the next.
        let apart = |m: usize| match m < group.start {
            true => slab.dims[m + 1..group.start].iter().product::<usize>() * layout.part,
            false => slab.dims[m + 1..].iter().product(),
        };
        let others: Vec<usize> = (0..shape.order()).filter(|m| *m != mode && !group.contains(m)).collect();
        let (rows, reduction) = (slab.dims[mode], others.iter().map(|&m| slab.dims[m]).product::<usize>());
        let (stride4, columns4) = (column_stride(self.rank) / 4, layout.columns / 4);
        let blocks = tuning::multi_ttv(columns4, reduction, others.iter().all(|&m| m < mode));
        let (row_tiles, column_tiles) = (rows.div_ceil(blocks.rows * blocks.tm), columns4.div_ceil(blocks.columns));
        let one = (rows * columns4 * 4) as u64 * dtype.bytes();
        if one > self.limit {
            return Err(Error::LimitTooSmall {
                limit: "max_storage_buffer_binding_size",
                what: format!("a partial result of mode {mode}"),
                needed: one,
                available: self.limit,
            });
        }
        let wanted = (blocks.groups / (row_tiles * column_tiles)).min(reduction.div_ceil(4 * blocks.lanes));
        let piece = reduction.div_ceil(wanted.min((self.limit / one) as usize).max(1));
        let pieces = reduction.div_ceil(piece);
        let row0 = |m: usize| (shape[..m].iter().sum::<usize>() + slab.offsets[m]) as u32;
        let [x, y] = fold_grid((row_tiles * column_tiles * pieces) as u64, self.caps)?;
        let params = MultiTtvParams {
            rows: rows as u32,
            stride4: stride4 as u32,
            t_stride4: (layout.stride / 4) as u32,
            row_stride: apart(mode) as u32,
            reduction: reduction as u32,
            piece: piece as u32,
            pieces: pieces as u32,
            row_tiles: row_tiles as u32,
            column_tiles: column_tiles as u32,
            grid_x: x,
            column0: (layout.column0 / 4) as u32,
            columns4: columns4 as u32,
            group0: 0,
            pad: [0; 3],
            dims: per_mode(others.iter().map(|&m| slab.dims[m] as u32)),
            row0: per_mode(others.iter().map(|&m| row0(m))),
            strides: per_mode(others.iter().map(|&m| apart(m) as u32)),
        };
        let consts = [
            ("OTHERS", others.len() as u32),
            ("COLUMNS", blocks.columns as u32),
            ("LANES", blocks.lanes as u32),
            ("ROWS", blocks.rows as u32),
            ("TM", blocks.tm as u32),
        ];
        let sum = Dispatch {
            spec: KernelSpec::new("multi_ttv", dtype, None, &consts),
            params: Params::MultiTtv(params),
            slots: vec![Slot::Tree(buffer), Slot::Factors(0), Slot::Partial(0)],
            grid: [x, y, 1],
            slab: index,
        };
        let reduce = ReduceParams {
            rows: rows as u32,
            columns4: columns4 as u32,
            pieces: pieces as u32,
            partial_rows: rows as u32,
            partial_stride4: columns4 as u32,
            stride4: stride4 as u32,
            g_row0: slab.offsets[mode] as u32,
            column0: layout.column0 as u32,
            scale_row: if layout.scaled { group_scale_row(shape, group.start) + 1 } else { weights_row(shape) } as u32,
            grid_x: 0,
            unscale: 1.0,
            add: u32::from(!first_of_rows(&self.slabs, mode, index)),
        };
        let slots = vec![Slot::Partial(0), Slot::Factors(0), Slot::G(0)];
        let reduce = add_pieces(reduce, dtype, dtype, slots, index, self.caps)?;
        let additions = piece.div_ceil(blocks.lanes) + blocks.lanes + reduce_chain(pieces);
        Ok(([sum, reduce], additions as u64, one * pieces as u64))
    }
}
