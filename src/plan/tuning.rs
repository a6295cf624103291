//! Tables: device class and regime to block sizes. The only file of the plan that may name vendors.

mod measured;

#[cfg(feature = "gpu")]
pub(crate) use measured::candidates;
pub use measured::{Tile, TileChoice, TileColumns, TileKernel, TileLayout, Tuning};

use super::{DeviceCaps, DeviceKind};
use crate::Dtype;

/// Workgroups wanted by every fused kernel: eight for each of the 132 compute units of the card measured on.
pub(crate) const DEFAULT_GROUPS: u32 = 1056;

/// Block sizes of the entry-wise kernels (ELEM, SLICE, TILE) on one device class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntrywiseBlocks {
    /// Largest column block F.
    pub column_block: usize,
    /// Invocations of a workgroup, as near as F allows.
    pub workgroup: usize,
}

/// The block sizes for a device.
pub(super) fn entrywise(caps: &DeviceCaps) -> EntrywiseBlocks {
    match caps.kind {
        DeviceKind::Cpu => EntrywiseBlocks { column_block: 64, workgroup: 1 },
        _ => EntrywiseBlocks { column_block: 32, workgroup: 128 },
    }
}

/// TILE's tau on CPUs by order. Few threads: large tiles, so that a tile's factor rows are reused from cache often.
pub(super) fn cpu_tile(order: usize) -> usize {
    [256, 32, 16, 8][order.clamp(2, 5) - 2]
}

/// What the parts of TILE's kernel take on a GPU, in units of the time of a subgroup of 32 for one entry.
pub(super) struct TileCosts {
    /// A workgroup, whatever it does.
    pub start: f64,
    /// A factor row, staged.
    pub row: f64,
    /// A run of entries, for each of its factor rows that are multiplied first.
    pub run: f64,
    /// An entry of a run that the end of a mode cuts.
    pub cut: f64,
    /// Workgroups that share the work at any time.
    pub groups: f64,
    /// Bytes of workgroup memory that a subgroup may have before cached data suffer; beyond, time grows by a square root.
    pub bytes: f64,
}

/// Fitted to times of 64 shapes, ranks and modes by all widths (benches/figures/tile-widths.csv), to 6 % root mean square.
/// Two workgroups for each of the 132 multiprocessors of the card measured on.
pub(super) const TILE_COSTS: TileCosts =
    TileCosts { start: 40.0, row: 3.0, run: 4.5, cut: 1.8, groups: 264.0, bytes: 1875.0 };

/// Tile of the GEMM kernel (BM, BN, BK) and of each invocation (TM, TN): 256 invocations.
pub(super) const GEMM_TILE: [(&str, u32); 5] = [("BM", 64), ("BN", 64), ("BK", 16), ("TM", 4), ("TN", 4)];

/// Workgroups of a GEMM that its long sums are cut for, four for each of 132 multiprocessors, and the least length of a piece.
pub(super) const GEMM_SPLIT: (usize, usize) = (528, 512);

/// Blocks of the fused kernels for small ranks.
pub(super) struct FusedSmall {
    /// vec4s of ranks of an invocation.
    pub rv: u32,
    /// Rows of an invocation, invocations along the reduction and along the mode (X contiguous along the reduction).
    pub tm: u32,
    pub kl: u32,
    pub ml: u32,
    /// k of an invocation in a step, where X is read one entry at a time.
    pub ek: u32,
    /// Invocations of a workgroup, and k of each of them for a staged block of the Khatri-Rao product (last mode).
    pub cols_wg: u32,
    pub steps: u32,
    /// Workgroups wanted, for X contiguous along the reduction and along the mode.
    pub groups: usize,
    pub cols_groups: usize,
}

/// The blocks for that many columns and rows; `None` where register tiles are better.
pub(super) fn fused_small(width: usize, rows: usize, last: usize, dtype: Dtype) -> Option<FusedSmall> {
    // More columns than these only where a tile of many rows would be mostly empty.
    if width > 16 && rows > 8 {
        return None;
    }
    let rv = match width {
        0..=4 => 1,
        5..=8 => 2,
        _ => 4,
    };
    // As many rows as measured best, and no more than there are; invocations of a workgroup.
    let few = rv == 4 && rows <= 8 && dtype == Dtype::F32;
    let (tm, wg) = match (rv, dtype) {
        (1, Dtype::F64) => (8, 128),
        (2, Dtype::F64) => (8, 64),
        (4, Dtype::F64) => (4, 64),
        _ if few => (rows.div_ceil(rows.div_ceil(5)) as u32, 32 * rows.div_ceil(5) as u32),
        _ => (4, 128),
    };
    let tm = tm.min(rows as u32);
    // Few invocations along k where runs of the last other mode are short: a step should not reach far beyond one.
    let kl = [32, 16, 8].into_iter().find(|&kl| last.next_multiple_of(4 * kl) * 8 <= last * 9).unwrap_or(32);
    let most = if dtype == Dtype::F64 && rv > 1 { 32 / rv } else { 32 };
    let ml = (rows as u32).div_ceil(tm).min(wg / most.min(kl as u32));
    let kl = 1 << (wg / ml).ilog2();
    let (steps, times) = match (rv, dtype) {
        (1, Dtype::F32) => (8, 8),
        (1, Dtype::F64) => (8, 4),
        _ if few => (16, 4),
        _ => (16, 2),
    };
    let (groups, cols_groups) = (times * DEFAULT_GROUPS as usize, DEFAULT_GROUPS as usize);
    Some(FusedSmall { rv, tm, kl, ml, ek: if few { 2 } else { 4 }, cols_wg: 256, steps, groups, cols_groups })
}

/// Blocks of the kernel that holds rows of the last factor in registers.
pub(super) struct FusedHeld {
    /// vec4s of ranks and rows of an invocation, and its rows of the last factor.
    pub rv: u32,
    pub tm: u32,
    pub ek: u32,
    /// Invocations along the last other mode, along the mode, and along the columns.
    pub kl: u32,
    pub ml: u32,
    pub cl: u32,
    /// Workgroups wanted.
    pub groups: usize,
}

/// The blocks for that many columns and rows, with the last other mode so long and so many runs of it; `None` where the
/// kernels that form rows in workgroup memory are as good: where more entries share a row, with up to 8 columns, with
/// fewer than 64 runs, or where runs do not fill blocks of 8.
pub(super) fn fused_held(width: usize, rows: usize, last: usize, runs: usize, dtype: Dtype) -> Option<FusedHeld> {
    let few = rows <= 8 && dtype == Dtype::F32;
    if width <= 8 || !(few || width <= 16 && dtype == Dtype::F64) || runs < 64 {
        return None;
    }
    let suits = |&(kl, ek): &(u32, u32)| last.next_multiple_of((kl * ek) as usize) * 4 <= last * 5;
    let blocks: &[_] =
        if few { &[(32, 4), (32, 2), (32, 1), (16, 1), (8, 1)] } else { &[(16, 4), (16, 2), (16, 1), (8, 1)] };
    let &(kl, ek) = blocks.iter().find(|blocks| suits(blocks))?;
    let tm = if few { rows.div_ceil(rows.div_ceil(5)) } else { rows.min(4) } as u32;
    let ml = (rows as u32).div_ceil(tm).min(4);
    // Two invocations share the columns where one would need too many registers.
    let (rv, cl, times) = if few { (4, 1, 1) } else { (2, 2, 8) };
    Some(FusedHeld { rv, tm, ek, kl, ml, cl, groups: times * DEFAULT_GROUPS as usize })
}

/// Blocks of `multi_ttv`: invocations of a workgroup along columns, reduction and rows, rows of each invocation, and
/// workgroups wanted.
pub(super) struct MultiTtv {
    pub columns: usize,
    pub lanes: usize,
    pub rows: usize,
    pub tm: usize,
    pub groups: usize,
}

/// The blocks for that many vec4s of columns and that long a reduction; `fastest`: the mode's rows are neighbours.
pub(super) fn multi_ttv(columns4: usize, reduction: usize, fastest: bool) -> MultiTtv {
    const WG: usize = 256;
    let columns = columns4.next_power_of_two().min(32);
    // Neighbours read at least 128 bytes in a row where they can.
    let beside = if fastest { (8 / columns).max(1) } else { 1 };
    let lanes = (WG / columns / beside).min(reduction.next_power_of_two());
    MultiTtv { columns, lanes, rows: WG / columns / lanes, tm: 4, groups: DEFAULT_GROUPS as usize }
}

/// What work takes on a device class, roughly: only the choice of a dimension tree depends on it.
pub(super) struct Rates {
    /// Of FUSED, and of a matrix product on a CPU, a second.
    pub flops: f64,
    /// Bytes read or written a second.
    pub bytes: f64,
    /// Seconds of one more step, whatever it does.
    pub step: f64,
    /// Workgroups that fill the device.
    pub groups: f64,
}

/// The rates of the devices measured on (benches/RESULTS.md); where others differ, so do flops and bytes alike. On a CPU
/// bytes are those of sums over a kept product.
pub(super) fn rates(caps: &DeviceCaps, dtype: Dtype) -> Rates {
    match (caps.kind, caps.f16_matrix_units, dtype) {
        // Of two threads, whatever their number: a choice by it would change the bits with it.
        (DeviceKind::Cpu, ..) => {
            Rates { flops: 1.4e11 / (dtype.bytes() / 4) as f64, bytes: 8e9, step: 5e-5, groups: 0.0 }
        }
        (_, true, Dtype::F32) => Rates { flops: 9e13, bytes: 3.5e12, step: 5e-6, groups: 132.0 },
        (_, false, Dtype::F32) => Rates { flops: 4e13, bytes: 3.5e12, step: 5e-6, groups: 132.0 },
        (_, _, Dtype::F64) => Rates { flops: 2e13, bytes: 3.5e12, step: 5e-6, groups: 132.0 },
    }
}

/// Most k between roundings of what a matrix unit sums.
const FLUSH: u32 = 512;

/// Tile of the fused kernels on f16 matrix units.
pub(super) struct FusedF16 {
    pub bm: u32,
    pub bn: u32,
    pub bk: u32,
    /// Subgroups along m and n.
    pub sm: u32,
    pub sn: u32,
    /// k between roundings of what the matrix unit sums, 0 for none.
    pub flush: u32,
    /// Workgroups wanted.
    pub groups: usize,
    /// It comes from a tuning file.
    pub tuned: bool,
}

impl FusedF16 {
    /// The same for a reduction over several slabs of the last mode's layout, each of which has a loop of its own. With all
    /// registers of a subgroup full of sums, as the largest tile has them, three loops do not keep them there (1024^3, R = 512
    /// on an H200: 41 ms, and 14 by twice as many subgroups; one product a slab takes 16 and 2 more to read). `None` where
    /// more subgroups are not to be had either: then slabs are better taken one by one.
    pub fn over_slabs(self, caps: &DeviceCaps) -> Option<Self> {
        // Sums of a subgroup, those since the last rounding and the rounded ones.
        let sums = |tile: &Self| tile.bm * tile.bn / (tile.sm * tile.sn) * (1 + tile.flush.min(1));
        let loops_keep = |tile: &Self| sums(tile) <= 2048;
        if loops_keep(&self) {
            return Some(self);
        }
        let more = Self { sm: 4, sn: 4, ..self };
        let group = 16 * caps.subgroup_size;
        let whole = more.bm.is_multiple_of(64)
            && more.bn.is_multiple_of(64)
            && loads_evenly([more.bm, more.bn, more.bk], group, true);
        (whole && group <= caps.max_workgroup_invocations && loops_keep(&more)).then_some(more)
    }
}

/// Whether every invocation loads as many vec4s, always of the same columns, and in the last mode rows.
fn loads_evenly([bm, bn, bk]: [u32; 3], group: u32, cols: bool) -> bool {
    let shared = |vectors: u32| vectors.is_multiple_of(group);
    let same = |edge: u32| group.is_multiple_of(edge / 4);
    shared(bm * bk / 4) && shared(bk * bn / 4) && same(bn) && (!cols || same(bm))
}

/// BM, BN, BK, subgroups along m and n, and k between roundings.
type Blocks = (u32, u32, u32, u32, u32, u32);

/// A tile, its relative time and its share of workgroups.
type Choice = (Blocks, f32, u32);

/// The tile for that many columns; `None` where other kernels are better: so few columns that memory is the limit, a
/// product too small to fill a tile, or too little workgroup memory.
pub(super) fn fused_f16(
    width: usize,
    cols: bool,
    split: bool,
    rows: usize,
    last: usize,
    k: usize,
    caps: &DeviceCaps,
) -> Option<FusedF16> {
    // Below these widths f32 kernels are as fast, memory being the limit.
    let narrow = if split { 8 } else { 4 };
    if !caps.f16_matrix_units || caps.subgroup_size == 0 || width <= narrow || rows <= 8 || k < 256 {
        return None;
    }
    // Each tile with its time on whole tiles, relative to the first, and how many times the default number of workgroups
    // keeps the device full.
    let table: &[Choice] = match (width, cols, split) {
        // A software driver compiles every fragment to hundreds of instructions in one block: few of them, for tests.
        (0..=16, ..) if caps.kind == DeviceKind::Software => &[((32, 16, 16, 2, 1, 512), 1.0, 1)],
        (0..=32, ..) if caps.kind == DeviceKind::Software => &[((32, 32, 16, 2, 1, 512), 1.0, 1)],
        _ if caps.kind == DeviceKind::Software => &[((32, 64, 16, 2, 2, 512), 1.0, 1)],
        (0..=16, false, true) => &[
            ((64, 16, 64, 4, 1, 64), 1.0, 1),
            ((128, 16, 32, 4, 1, 32), 1.04, 1),
            ((64, 16, 32, 4, 1, 32), 1.13, 1),
            ((32, 16, 32, 2, 1, 32), 1.15, 8),
            ((16, 16, 64, 1, 1, 64), 2.1, 8),
        ],
        (0..=16, true, true) => &[((64, 16, 32, 4, 1, 128), 1.0, 1)],
        (0..=32, false, true) => &[((64, 32, 32, 2, 2, 128), 1.0, 4), ((32, 32, 32, 2, 1, 128), 1.4, 4)],
        (0..=32, true, true) => &[((128, 32, 32, 4, 2, 512), 1.0, 2), ((64, 32, 32, 2, 2, 512), 1.1, 4)],
        (0..=64, false, true) => {
            &[((64, 64, 32, 4, 2, 512), 1.0, 1), ((64, 64, 32, 2, 2, 512), 1.06, 2), ((32, 64, 32, 2, 2, 512), 1.6, 2)]
        }
        (0..=64, true, true) => &[((64, 64, 32, 4, 2, 256), 1.0, 2), ((64, 64, 32, 2, 2, 256), 1.01, 2)],
        (_, false, true) => &[
            ((128, 128, 32, 4, 2, 512), 1.0, 1),
            ((160, 128, 32, 2, 4, 512), 1.02, 1),
            ((64, 64, 32, 2, 2, 512), 1.5, 2),
            ((32, 128, 32, 2, 4, 512), 1.5, 1),
            ((16, 128, 32, 1, 4, 512), 3.4, 1),
        ],
        (_, true, true) => &[
            ((128, 128, 32, 2, 4, 512), 1.0, 1),
            ((64, 64, 32, 2, 2, 512), 1.5, 2),
            ((32, 128, 32, 2, 4, 512), 1.5, 1),
        ],
        // One product needs half of the workgroup memory, so that BK may be twice as long.
        (0..=16, _, false) => &[((64, 16, 64, 4, 1, 512), 1.0, 1), ((64, 16, 32, 4, 1, 512), 1.1, 1)],
        (0..=32, _, false) => &[((64, 32, 64, 2, 2, 512), 1.0, 1), ((64, 32, 32, 2, 2, 512), 1.1, 1)],
        (0..=64, _, false) => &[((64, 64, 64, 2, 2, 512), 1.0, 1), ((64, 64, 32, 2, 2, 512), 1.1, 1)],
        (0..=128, _, false) => {
            &[((128, 128, 64, 2, 4, 512), 1.0, 1), ((64, 64, 64, 2, 2, 512), 1.5, 1), ((64, 64, 32, 2, 2, 512), 1.6, 1)]
        }
        // Where it means no more padding.
        _ if width.next_multiple_of(256) == width.next_multiple_of(128) => {
            &[((128, 256, 32, 2, 4, 0), 1.0, 1), ((128, 128, 32, 2, 4, 512), 1.2, 1), ((64, 64, 32, 2, 2, 512), 1.8, 1)]
        }
        _ => &[
            ((128, 128, 64, 2, 4, 512), 1.0, 1),
            ((128, 128, 32, 2, 4, 512), 1.1, 1),
            ((64, 64, 32, 2, 2, 512), 1.6, 1),
        ],
    };
    let fits = |&&((bm, bn, bk, sm, sn, _), ..): &&Choice| {
        let padded = if cols { bk * (bm + 8) } else { bm * (bk + 8) };
        let halves = (padded + bk * (bn + 8)) * if split { 2 } else { 1 } + 8;
        let group = sm * sn * caps.subgroup_size;
        let fit = halves * 2 <= caps.max_workgroup_memory && group <= caps.max_workgroup_invocations;
        fit && loads_evenly([bm, bn, bk], group, cols)
    };
    // A measured tile comes first; it is as good as the table's best, or it would not be there.
    let kernel = if split { TileKernel::CoopFloat32 } else { TileKernel::CoopFast };
    let measured = measured::tile(caps, kernel, cols, width);
    let first = measured.map(|tile| (tile.blocks(), 1.0, 1));
    // Rows are padded to whole tiles, runs of the last other mode to whole steps, which cost as much as full ones.
    let cost = |&&((bm, _, bk, ..), time, _): &&Choice| {
        let padding = |count: usize, whole: u32| count.next_multiple_of(whole as usize) as f32 / count as f32;
        time * padding(rows, bm) * padding(last, bk).min(1.5)
    };
    let &(blocks, _, times) = first.iter().chain(table).filter(fits).min_by(|a, b| cost(a).total_cmp(&cost(b)))?;
    let (bm, bn, bk, sm, sn, flush) = blocks;
    let measured = measured.filter(|tile| tile.blocks() == blocks);
    let groups = measured.map_or(times * DEFAULT_GROUPS, |tile| tile.groups) as usize;
    Some(FusedF16 { bm, bn, bk, sm, sn, flush, groups, tuned: measured.is_some() })
}

/// Invocations of a subgroup where the adapter gives a range of them; 0 where that can be anything in it. Metal gives the
/// same wide range for every GPU; Apple's own have 32.
#[cfg(feature = "gpu")]
pub(crate) fn subgroup_size(adapter: &str, least: u32, most: u32) -> u32 {
    match (least == most, adapter.starts_with("Apple ")) {
        (true, _) => most,
        (false, true) => 32,
        (false, false) => 0,
    }
}

/// Tile of the fused kernels on f32 matrix units.
pub(super) struct FusedCoop8 {
    pub bm: u32,
    pub bn: u32,
    pub bk: u32,
    /// Subgroups along m and n.
    pub sm: u32,
    pub sn: u32,
    /// Workgroups wanted.
    pub groups: usize,
}

/// The tile for that many columns; `None` where other kernels are better. Not measured: no such device was at hand.
pub(super) fn fused_coop8(width: usize, rows: usize, k: usize, caps: &DeviceCaps) -> Option<FusedCoop8> {
    if !caps.f32_matrix_units || caps.subgroup_size == 0 || width <= 8 || rows <= 8 || k < 256 {
        return None;
    }
    let (bm, bn, bk, sm, sn): (u32, u32, u32, u32, u32) = match width {
        _ if caps.kind == DeviceKind::Software => (32, 16, 16, 2, 1),
        0..=16 => (64, 16, 32, 4, 1),
        17..=32 => (64, 32, 16, 2, 2),
        _ => (64, 64, 16, 2, 2),
    };
    // The larger of both layouts.
    let words = (bm * (bk + 4)).max(bk * (bm + 4)) + bk * (bn + 4);
    let fits = words * 4 <= caps.max_workgroup_memory && sm * sn * caps.subgroup_size <= caps.max_workgroup_invocations;
    fits.then_some(FusedCoop8 { bm, bn, bk, sm, sn, groups: DEFAULT_GROUPS as usize })
}

/// Tile of the fused register-tile kernels.
pub(super) struct FusedTile {
    pub bm: u32,
    pub bn: u32,
    pub bk: u32,
    pub tm: u32,
    pub tn: u32,
    /// Workgroups wanted.
    pub groups: usize,
    /// It comes from a tuning file.
    pub tuned: bool,
}

/// The tile for that many columns: a measured one, else the largest that the device's workgroup memory takes.
pub(super) fn fused_tile(width: usize, cols: bool, dtype: Dtype, caps: &DeviceCaps) -> FusedTile {
    let kernel = if dtype == Dtype::F64 { TileKernel::RegistersF64 } else { TileKernel::RegistersF32 };
    if let Some(Tile { bm, bn, bk, m: tm, n: tn, groups, .. }) = measured::tile(caps, kernel, cols, width) {
        return FusedTile { bm, bn, bk, tm, tn, groups: groups as usize, tuned: true };
    }
    let table = [
        (128, 128, 32, 8, 8),
        (128, 64, 32, 8, 8),
        (128, 128, 16, 8, 8),
        (128, 64, 16, 8, 8),
        (128, 32, 16, 8, 4),
        (64, 32, 16, 4, 4),
    ];
    let double = [(64, 64, 16, 4, 8), (64, 32, 16, 4, 4)];
    let fits = |&&(bm, bn, bk, ..): &&(u32, u32, u32, u32, u32)| {
        let words = bm * (bk + 4) + bk * bn;
        words * dtype.bytes() as u32 <= caps.max_workgroup_memory && (bn as usize) < 2 * width.max(32)
    };
    let table: &[_] = if dtype == Dtype::F64 { &double } else { &table };
    let &(bm, bn, bk, tm, tn) = table.iter().find(fits).unwrap_or(&(64, 32, 16, 4, 4));
    FusedTile { bm, bn, bk, tm, tn, groups: DEFAULT_GROUPS as usize, tuned: false }
}

/// Blocks of the kernels that replace a factor in CP-ALS.
pub(super) struct Update {
    /// Edge of a tile of the products and of the gram.
    pub tile: usize,
    /// Columns of a workgroup for sums over columns.
    pub columns: usize,
    /// Workgroups wanted.
    pub groups: usize,
    /// Fewest rows of a piece, for sums over columns and for the gram.
    pub column_rows: usize,
    pub gram_rows: usize,
}

/// The blocks for that many rows and columns: tiles as large as leaves every multiprocessor of a large GPU one.
pub(super) fn update(rows: usize, rank: usize) -> Update {
    let enough = |tile: usize| rows.div_ceil(tile) * rank.div_ceil(tile) >= 128;
    let tile = match rank {
        0..=16 => 16,
        17..=32 => 32,
        _ if enough(64) => 64,
        _ => 32,
    };
    let columns = if rank <= 4 { 4 } else { 16 };
    Update { tile, columns, groups: 264, column_rows: 64, gram_rows: 32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tiles for all rows and subgroups are whole shares: an invocation loads as many vec4s as every other.
    #[test]
    fn built_in_tiles_are_whole_shares() {
        let (mut seen, mut over_slabs) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
        for (width, rows) in
            [16, 32, 64, 512].into_iter().flat_map(|w| [9, 32, 60, 128, 160, 1000].map(|rows| (w, rows)))
        {
            for (cols, split, lanes) in [false, true].into_iter().flat_map(|cols| {
                [(cols, true), (cols, false)]
                    .into_iter()
                    .flat_map(|(c, s)| [8, 16, 32, 64, 128].map(|lanes| (c, s, lanes)))
            }) {
                let mut caps = DeviceCaps::webgpu_minimum("any");
                (caps.f16_matrix_units, caps.subgroup_size) = (true, lanes);
                (caps.max_workgroup_memory, caps.max_workgroup_invocations) = (99 << 10, 1024);
                caps.kind = DeviceKind::DiscreteGpu;
                let Some(tile) = fused_f16(width, cols, split, rows, 1000, 100_000, &caps) else {
                    continue;
                };
                let (bm, bn, group) = (tile.bm, tile.bn, tile.sm * tile.sn * lanes);
                for vectors in [bm * tile.bk / 4, tile.bk * bn / 4] {
                    assert!(vectors >= group && vectors % group == 0, "{bm} x {bn} by {group}");
                }
                assert!(group % (bn / 4) == 0 && (!cols || group % (bm / 4) == 0), "{bm} x {bn} by {group}");
                seen.insert((bm, bn));
                let Some(over) = tile.over_slabs(&caps).filter(|_| cols) else { continue };
                let (group, sums) = (over.sm * over.sn * lanes, over.bm * over.bn / over.sm / over.sn);
                assert!(
                    loads_evenly([over.bm, over.bn, over.bk], group, true) && group <= 1024,
                    "{bm} x {bn} by {group}"
                );
                assert!(over.bm % (16 * over.sm) == 0 && over.bn % (16 * over.sn) == 0, "{bm} x {bn} by {group}");
                assert!(sums * (1 + over.flush.min(1)) <= 2048 && (over.bm, over.bn) == (bm, bn), "{sums}");
                over_slabs.insert((bm, bn, over.sm * over.sn));
            }
        }
        assert!(seen.contains(&(160, 128)) && seen.contains(&(32, 128)), "{seen:?}");
        assert!(over_slabs.contains(&(128, 128, 16)) && over_slabs.contains(&(64, 64, 8)), "{over_slabs:?}");
        // What a tuning file may have: not in whole shares, rows left over, sums enough as it is, too many invocations.
        let mut caps = DeviceCaps::webgpu_minimum("any");
        (caps.subgroup_size, caps.max_workgroup_invocations) = (32, 1024);
        let over = |[bm, bn, bk, sm, sn]: [u32; 5], caps: &DeviceCaps| {
            let tile = FusedF16 { bm, bn, bk, sm, sn, flush: 512, groups: 1, tuned: true };
            tile.over_slabs(caps).map(|tile| (tile.sm, tile.sn))
        };
        assert_eq!(over([256, 64, 16, 4, 2], &caps), None);
        assert_eq!(over([160, 160, 32, 5, 2], &caps), None);
        assert_eq!(over([128, 128, 32, 8, 4], &caps), Some((8, 4)));
        assert_eq!(over([128, 128, 32, 2, 4], &caps), Some((4, 4)));
        caps.max_workgroup_invocations = 256;
        assert_eq!(over([128, 128, 32, 2, 4], &caps), None);
    }
}
