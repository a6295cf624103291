//! Dispatches of FUSED: a matrix product whose Khatri-Rao operand is formed a block at a time where it is used, split
//! along its reduction into pieces that a second kernel adds in a fixed order, or that add to the result atomically.

mod jobs;

use self::jobs::{Job, blocks};
use super::entrywise::{atomic, per_mode};
use super::kernel::{Dispatch, FusedParams, KernelSpec, Params, ReduceParams, Slot};
use super::memory::{Slab, column_stride};
use super::{DeviceCaps, Precision, Problem, Reduction, fold_grid, tuning};
use crate::{Dtype, Result};

/// How X lies in a slab, seen from the mode.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    pub rows: usize,
    pub reduction: usize,
    /// Equal parts that the reduction falls into without being added up: 1 but for partial products in a dimension tree.
    pub batch: usize,
    pub right: usize,
    /// The last other dim: within a run of it, k differs in one index only.
    last: usize,
    /// Neighbouring entries are neighbours along the mode, not along the reduction.
    pub cols: bool,
    /// Slabs behind the first that the reduction goes on in, where the kernel can do that.
    pub more: usize,
}

impl View {
    fn new(mode: usize, slab: &Slab) -> Self {
        Self::of(&slab.dims, mode, 1)
    }

    /// Of a row-major tensor with these dims.
    pub fn of(dims: &[usize], mode: usize, batch: usize) -> Self {
        let rows = dims[mode];
        let reduction = dims.iter().product::<usize>() / rows;
        let right = dims[mode + 1..].iter().product();
        // A single row makes the reduction contiguous whatever the mode.
        let right = if rows == 1 { reduction } else { right };
        let last = (0..dims.len()).rev().find(|&m| m != mode).map_or(1, |m| dims[m]);
        Self { rows, reduction, batch, right, last, cols: right == 1 && rows > 1, more: 0 }
    }

    /// Whether steps of that length stay within runs of the last other mode without much padding.
    fn runs(&self, step: usize) -> bool {
        // Steps that cross runs would cross parts.
        self.batch > 1 || self.last.next_multiple_of(step) * 4 <= self.last * 5
    }

    /// Length of a run.
    pub fn run(&self, runs: bool) -> usize {
        if runs { self.last } else { self.reduction }
    }

    /// Entries of X in one load: 4 where every one lies within a run and starts at a whole vec4, else 1.
    fn vec(&self, runs: bool) -> u32 {
        let whole = if self.cols { self.rows } else { self.run(runs) };
        if whole.is_multiple_of(4) && (self.cols || self.right.is_multiple_of(4)) { 4 } else { 1 }
    }
}

/// A kernel with its constants and what the plan has to know of them.
pub(super) struct Kernel {
    pub spec: KernelSpec,
    /// Rows and columns of a tile.
    pub bm: usize,
    pub bn: usize,
    /// k of a step.
    pub step: usize,
    /// Steps stay within runs of the last other mode.
    pub runs: bool,
    /// Column tiles lie along z, else they are folded into x.
    pub along_z: bool,
    /// A step is a whole run, and a workgroup works on a block of `step` of it.
    pub held: bool,
    /// Works on f16 matrix units, so that its operands have to be scaled.
    pub f16: bool,
    /// Its tile comes from a tuning file.
    tuned: bool,
    /// Workgroups wanted.
    groups: usize,
    /// Additions behind one entry of a piece of that many steps.
    pub chain: fn(&Kernel, usize) -> usize,
}

impl Kernel {
    /// Slabs behind the first that it reads.
    pub fn more(&self) -> usize {
        self.find("MORE").unwrap_or(0)
    }

    fn constant(&self, name: &str) -> usize {
        self.find(name).unwrap_or(1)
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.spec.consts.iter().find(|(known, _)| *known == name).map(|&(_, value)| value as usize)
    }
}

/// The kernel that holds rows of the last factor in registers, where it is the better one and that many workgroups are
/// enough for every block of the last other mode.
fn held(problem: &Problem, view: View, width: usize, share: impl Fn(usize) -> usize) -> Option<Kernel> {
    let (dtype, order) = (problem.options.sums(), problem.shape.order());
    let runs = view.reduction / view.last;
    let blocks = tuning::fused_held(width, view.rows, view.last, runs, dtype)?;
    let (bm, step) = ((blocks.ml * blocks.tm) as usize, (blocks.kl * blocks.ek) as usize);
    if view.cols || order < 3 || view.last.div_ceil(step) * view.rows.div_ceil(bm) > share(blocks.groups) {
        return None;
    }
    let mut consts =
        vec![("ORDER", order as u32), ("RUNS", 1), ("KL", blocks.kl), ("ML", blocks.ml), ("CL", blocks.cl)];
    consts.extend([("EK", blocks.ek), ("TM", blocks.tm), ("RV", blocks.rv)]);
    Some(Kernel {
        spec: KernelSpec::new("fused_held_rows", dtype, None, &consts),
        bm,
        bn: 4 * (blocks.rv * blocks.cl) as usize,
        step,
        runs: true,
        along_z: true,
        held: true,
        f16: false,
        tuned: false,
        groups: blocks.groups,
        chain: |kernel, runs| kernel.constant("EK") * runs + kernel.constant("KL"),
    })
}

/// The kernel for a slab and a block of columns.
pub(super) fn kernel(problem: &Problem, view: View, width: usize, caps: &DeviceCaps) -> Kernel {
    let dtype = problem.options.sums();
    let mut consts = vec![("ORDER", problem.shape.order() as u32)];
    let layout = |step: u32| {
        let runs = view.runs(step as usize);
        let snug = view.run(runs).is_multiple_of(step as usize);
        (runs, [("RUNS", u32::from(runs)), ("SNUG", u32::from(snug)), ("VEC", view.vec(runs))])
    };
    let split = problem.options.precision == Precision::Float32;
    let f16 = tuning::fused_f16(width, view.cols, split, view.rows, view.last, view.reduction / view.batch, caps);
    let f16 = if view.more > 0 { f16.and_then(|tile| tile.over_slabs(caps)) } else { f16 };
    if let Some(tile) = f16.filter(|_| dtype == Dtype::F32) {
        let (runs, layout) = layout(tile.bk);
        consts.extend(layout);
        consts.extend([("BM", tile.bm), ("BN", tile.bn), ("BK", tile.bk), ("SM", tile.sm), ("SN", tile.sn)]);
        consts.extend([("LANES", caps.subgroup_size), ("SPLIT", u32::from(split)), ("FLUSH", tile.flush)]);
        if view.cols {
            consts.push(("MORE", view.more as u32));
        }
        let shader = if view.cols { "fused_coop_cols" } else { "fused_coop_rows" };
        return Kernel {
            spec: KernelSpec::new(shader, dtype, None, &consts),
            bm: tile.bm as usize,
            bn: tile.bn as usize,
            step: tile.bk as usize,
            runs,
            along_z: false,
            held: false,
            f16: true,
            tuned: tile.tuned,
            groups: tile.groups,
            chain: |kernel, steps| {
                let k = steps * kernel.step;
                k + k.checked_div(kernel.constant("FLUSH")).map_or(0, |sums| sums + 1 + kernel.more())
            },
        };
    }
    let coop8 = tuning::fused_coop8(width, view.rows, view.reduction / view.batch, caps);
    if let Some(tile) = coop8.filter(|_| dtype == Dtype::F32) {
        let (runs, layout) = layout(tile.bk);
        consts.extend(layout);
        consts.extend([("BM", tile.bm), ("BN", tile.bn), ("BK", tile.bk), ("SM", tile.sm), ("SN", tile.sn)]);
        consts.push(("LANES", caps.subgroup_size));
        let shader = if view.cols { "fused_coop8_cols" } else { "fused_coop8_rows" };
        return Kernel {
            spec: KernelSpec::new(shader, dtype, None, &consts),
            bm: tile.bm as usize,
            bn: tile.bn as usize,
            step: tile.bk as usize,
            runs,
            along_z: false,
            held: false,
            f16: false,
            tuned: false,
            groups: tile.groups,
            chain: |kernel, steps| steps * kernel.step,
        };
    }
    if let Some(small) = tuning::fused_small(width, view.rows, view.last, dtype) {
        let rv = small.rv;
        // vec4s of workgroup memory.
        let room = caps.max_workgroup_memory / (4 * dtype.bytes() as u32);
        let bn = 4 * rv as usize;
        if view.cols {
            // Whole rows of X where they fit: what a workgroup reads is then contiguous.
            let lx = (view.rows.div_ceil(4).next_multiple_of(4) as u32).min(small.cols_wg);
            let lk = small.cols_wg / lx;
            let steps = [small.steps, small.steps / 2, small.steps / 4, 1];
            let fits = |steps: &u32| lk * steps * rv + lx * lk <= room;
            let bk = lk * steps.into_iter().find(fits).unwrap_or(1);
            let (runs, layout) = layout(bk);
            consts.extend(layout);
            consts.extend([("LX", lx), ("LK", lk), ("RV", rv), ("BK", bk)]);
            return Kernel {
                spec: KernelSpec::new("fused_small_cols", dtype, None, &consts),
                bm: 4 * lx as usize,
                bn,
                step: bk as usize,
                runs,
                along_z: true,
                held: false,
                f16: false,
                tuned: false,
                groups: small.cols_groups,
                chain: |kernel, steps| steps * kernel.step / kernel.constant("LK") + kernel.constant("LK"),
            };
        }
        if rv == 1 && view.vec(false) == 4 && view.last.is_multiple_of(4) {
            // Steps as long as runs allow.
            let longest = small.kl * small.ml;
            let wg =
                [longest, longest / 2, longest / 4].into_iter().find(|wg| view.last.is_multiple_of(4 * *wg as usize));
            let wg = wg.unwrap_or(longest);
            let runs = view.runs(4 * wg as usize);
            let snug = view.run(runs).is_multiple_of(4 * wg as usize);
            consts.extend([("RUNS", u32::from(runs)), ("SNUG", u32::from(snug)), ("WG", wg), ("TM", small.tm)]);
            return Kernel {
                spec: KernelSpec::new("fused_stream_rows", dtype, None, &consts),
                bm: small.tm as usize,
                bn,
                step: 4 * wg as usize,
                runs,
                along_z: true,
                held: false,
                f16: false,
                tuned: false,
                groups: small.groups,
                chain: |kernel, steps| 4 * steps + kernel.constant("WG").div_ceil(32) + 32,
            };
        }
        let fits = |kl: &u32| 4 * rv * (kl + 1) + kl * small.ml <= room;
        let kl = [small.kl, small.kl / 2, small.kl / 4].into_iter().find(fits).unwrap_or(1);
        // Loads of one vec4 bring four.
        let ek = if view.vec(view.runs(4 * kl as usize)) == 4 { 4 } else { small.ek };
        let (runs, layout) = layout(ek * kl);
        consts.extend(layout);
        consts.extend([("KL", kl), ("ML", small.ml), ("EK", ek), ("TM", small.tm), ("RV", rv)]);
        return Kernel {
            spec: KernelSpec::new("fused_small_rows", dtype, None, &consts),
            bm: (small.ml * small.tm) as usize,
            bn,
            step: (ek * kl) as usize,
            runs,
            along_z: true,
            held: false,
            f16: false,
            tuned: false,
            groups: small.groups,
            chain: |kernel, steps| kernel.constant("EK") * steps + kernel.constant("KL"),
        };
    }
    let tile = tuning::fused_tile(width, view.cols, dtype, caps);
    let (runs, layout) = layout(tile.bk);
    consts.extend(layout);
    consts.extend([("BM", tile.bm), ("BN", tile.bn), ("BK", tile.bk), ("TM", tile.tm), ("TN", tile.tn)]);
    Kernel {
        spec: KernelSpec::new(if view.cols { "fused_cols" } else { "fused_rows" }, dtype, None, &consts),
        bm: tile.bm as usize,
        bn: tile.bn as usize,
        step: tile.bk as usize,
        runs,
        along_z: false,
        held: false,
        f16: false,
        tuned: tile.tuned,
        groups: tile.groups,
        chain: |kernel, steps| steps * kernel.step,
    }
}

/// Invocations that share the pieces of one output, and outputs of a workgroup, in `reduce_partials`.
fn reduce_shape(pieces: usize) -> (usize, usize) {
    if pieces >= 16 { (8, 32) } else { (1, 64) }
}

/// The longest chain of additions of [`add_pieces`], that to what is in the result included.
pub(super) fn reduce_chain(pieces: usize) -> usize {
    let (lanes, _) = reduce_shape(pieces);
    pieces.div_ceil(lanes) + lanes + 1
}

/// The dispatch that adds pieces up in a fixed order; its grid is set here.
pub(super) fn add_pieces(
    params: ReduceParams,
    sums: Dtype,
    stored: Dtype,
    slots: Vec<Slot>,
    slab: usize,
    caps: &DeviceCaps,
) -> Result<Dispatch> {
    let (lanes, outputs) = reduce_shape(params.pieces as usize);
    let count = params.rows as usize * params.columns4 as usize;
    let [x, y] = fold_grid(count.div_ceil(outputs) as u64, caps)?;
    let consts = [("LANES", lanes as u32), ("OUTPUTS", outputs as u32)];
    Ok(Dispatch {
        spec: KernelSpec::new("reduce_partials", sums, None, &consts).stored(stored),
        params: Params::Reduce(ReduceParams { grid_x: x, ..params }),
        slots,
        grid: [x, y, 1],
        slab,
    })
}

/// What the fused planner hands back.
pub(super) struct Fused {
    pub dispatches: Vec<Dispatch>,
    /// Bytes of the partial buffers, one for each slab that is in work at the same time.
    pub partial_bytes: Vec<u64>,
    /// What they are at most, together.
    pub partial_bound: u64,
    /// Longest chain of additions.
    pub chain: u64,
    /// Some kernel works on f16 matrix units.
    pub f16: bool,
    /// Some tile comes from the device's tuning file.
    pub tuned: bool,
    /// Which kernels, for people.
    pub why: String,
}

/// Whether no slab before this one has rows of the result in common with it: their ranges along the mode are equal or
/// disjoint, because one mode is cut and those before it have single indices.
pub(super) fn first_of_rows(slabs: &[Slab], mode: usize, index: usize) -> bool {
    slabs[..index].iter().all(|slab| slab.offsets[mode] != slabs[index].offsets[mode])
}

/// All dispatches of the method. Where measured tiles need more scratch than there is, the table's are taken.
pub(super) fn dispatches(problem: &Problem, caps: &DeviceCaps, slabs: &[Slab], limit: u64) -> Result<Fused> {
    if problem.options.reduction == Reduction::Atomics {
        let without = DeviceCaps { f16_matrix_units: false, f32_matrix_units: false, ..caps.clone() };
        let mut fused = with_tiles_of(problem, &without, slabs, limit)?;
        let units = (caps.f16_matrix_units || caps.f32_matrix_units) && problem.dtype() == Dtype::F32;
        fused.why = format!(
            "; pieces are added atomically, which is not repeatable{}",
            if units { ", and without matrix units, which cannot do that" } else { "" }
        );
        return Ok(fused);
    }
    let fused = with_tiles_of(problem, caps, slabs, limit);
    if fused.is_err() && caps.tuning.is_some() {
        return with_tiles_of(problem, &DeviceCaps { tuning: None, ..caps.clone() }, slabs, limit);
    }
    fused
}

fn with_tiles_of(problem: &Problem, caps: &DeviceCaps, slabs: &[Slab], limit: u64) -> Result<Fused> {
    let sums = problem.options.sums();
    let adds = problem.options.reduction == Reduction::Atomics;
    let atomic = adds.then(|| atomic(sums, "a reduction by atomics", caps)).transpose()?;
    let limit = (!adds).then_some(limit);
    let (blocks, partial_bound) = blocks(problem, caps, slabs, limit)?;
    let mut fused = Fused {
        dispatches: Vec::new(),
        partial_bytes: Vec::new(),
        partial_bound,
        chain: 0,
        f16: false,
        tuned: false,
        why: String::new(),
    };
    for (block, (ends, batches)) in problem.columns.windows(2).zip(blocks).enumerate() {
        let stride = column_stride(ends[1] - ends[0]);
        let mut chain = 0;
        for batch in batches {
            fused.partial_bytes.resize(batch.len().max(fused.partial_bytes.len()), 0);
            let mut reductions = Vec::new();
            for (place, Job { index, slab, view, kernel, cut, .. }) in batch.into_iter().enumerate() {
                fused.partial_bytes[place] = fused.partial_bytes[place].max(cut.bytes);
                chain += (kernel.chain)(&kernel, cut.piece);
                chain += if adds { cut.pieces } else { reduce_chain(cut.pieces) };
                let others = || problem.other_modes();
                let all_row0 = problem.row0(slab);
                let partial_rows = cut.m_tiles * kernel.bm;
                // Two rows for each mode behind the weights: the scale of its columns, and what undoes it.
                let scale_row = |mode: usize| problem.weights_row() + 1 + 2 * mode as u32;
                fused.f16 |= kernel.f16;
                fused.tuned |= kernel.tuned;
                for column0 in (0..stride).step_by(cut.n_tiles * kernel.bn) {
                    let columns = (stride - column0).min(cut.n_tiles * kernel.bn);
                    let n_tiles = columns.div_ceil(kernel.bn);
                    let folded = cut.m_tiles * cut.pieces * if kernel.along_z { 1 } else { n_tiles };
                    let [x, y] = fold_grid(folded as u64, caps)?;
                    // Runs left of the mode begin anew at another place of X.
                    let turns = kernel.runs && !view.cols && view.right < view.reduction;
                    let params = FusedParams {
                        rows: view.rows as u32,
                        right: view.right as u32,
                        reduction: view.reduction as u32,
                        stride4: (stride / 4) as u32,
                        run: cut.run as u32,
                        run_steps: cut.run_steps as u32,
                        steps: cut.steps as u32,
                        piece: cut.piece as u32,
                        pieces: cut.pieces as u32,
                        m_tiles: cut.m_tiles as u32,
                        column0: column0 as u32,
                        partial_rows: partial_rows as u32,
                        partial_stride4: (n_tiles * kernel.bn / 4) as u32,
                        grid_x: x,
                        scale_row: scale_row(problem.mode),
                        x_scale: 1.0,
                        last_row0: others().next_back().map_or(0, |m| all_row0[m]),
                        run_stride: (if view.cols { cut.run * view.rows } else { cut.run }) as u32,
                        turn_runs: if turns { (view.right / cut.run) as u32 } else { u32::MAX },
                        turn_stride: ((view.rows - 1) * view.right) as u32,
                        g_row0: slab.offsets[problem.mode] as u32,
                        weights_row: problem.weights_row(),
                        group0: 0,
                        slab_steps: 0,
                        dims: per_mode(others().map(|m| slab.dims[m] as u32)),
                        row0: per_mode(others().map(|m| all_row0[m])),
                    };
                    let out = if adds { Slot::G(block) } else { Slot::Partial(place) };
                    fused.dispatches.push(Dispatch {
                        spec: KernelSpec { atomic, ..kernel.spec.clone().stored(problem.dtype()) },
                        params: Params::Fused(params),
                        slots: vec![Slot::X(index), Slot::X(index), Slot::Factors(block), out],
                        grid: [x, y, if kernel.along_z { n_tiles as u32 } else { 1 }],
                        slab: index,
                    });
                    if adds {
                        continue;
                    }
                    let reduce = ReduceParams {
                        rows: view.rows as u32,
                        columns4: (columns / 4) as u32,
                        pieces: cut.pieces as u32,
                        partial_rows: partial_rows as u32,
                        partial_stride4: params.partial_stride4,
                        stride4: (stride / 4) as u32,
                        g_row0: slab.offsets[problem.mode] as u32,
                        column0: column0 as u32,
                        scale_row: if kernel.f16 { scale_row(problem.mode) + 1 } else { problem.weights_row() },
                        grid_x: 0,
                        unscale: 1.0,
                        add: u32::from(!first_of_rows(slabs, problem.mode, index)),
                    };
                    let slots = vec![Slot::Partial(place), Slot::Factors(block), Slot::G(block)];
                    let reduction = add_pieces(reduce, sums, problem.dtype(), slots, index, caps)?;
                    // Where columns are cut, the partial results of one tile are added before those of the next are written.
                    let together = cut.n_tiles * kernel.bn >= stride;
                    let list = if together { &mut reductions } else { &mut fused.dispatches };
                    list.push(reduction);
                }
            }
            fused.dispatches.append(&mut reductions);
        }
        fused.chain = fused.chain.max(chain as u64);
    }
    let on_f32_units = fused.dispatches.iter().any(|d| d.spec.shader.starts_with("fused_coop8"));
    fused.why = match (fused.f16, problem.options.precision, problem.dtype()) {
        (true, Precision::Float32, _) => "; on f16 matrix units, three products for the accuracy of f32",
        (true, Precision::Fast, _) => "; on f16 matrix units, one product",
        (false, _, _) if on_f32_units => "; on f32 matrix units",
        (false, Precision::Fast, Dtype::F32) => "; in f32, without matrix units that would be faster",
        _ => "",
    }
    .into();
    Ok(fused)
}
