//! Tables: device class and regime to block sizes. The only file of the plan that may name vendors.

use super::{DeviceCaps, DeviceKind};
use crate::Dtype;

/// Block sizes of the entry-wise kernels (ELEM, SLICE, TILE) on one device class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntrywiseBlocks {
    /// Default tau by order of the tensor, from order 2 on; the last entry serves all higher orders.
    pub tile: [usize; 4],
    /// Largest column block F.
    pub column_block: usize,
    /// Invocations of a workgroup, as near as F allows.
    pub workgroup: usize,
}

/// The block sizes for a device.
pub(super) fn entrywise(caps: &DeviceCaps) -> EntrywiseBlocks {
    match caps.kind {
        // Few threads: large tiles, so that a tile's factor rows are reused from cache often.
        DeviceKind::Cpu => EntrywiseBlocks { tile: [256, 32, 16, 8], column_block: 64, workgroup: 1 },
        _ => EntrywiseBlocks { tile: [64, 32, 8, 4], column_block: 32, workgroup: 128 },
    }
}

/// Tile of the GEMM kernel (BM, BN, BK) and of each invocation (TM, TN): 256 invocations.
pub(super) const GEMM_TILE: [(&str, u32); 5] = [("BM", 64), ("BN", 64), ("BK", 16), ("TM", 4), ("TN", 4)];

/// Blocks of the fused kernels for small ranks.
pub(super) struct FusedSmall {
    /// vec4s of ranks of an invocation.
    pub rv: u32,
    /// Rows of an invocation and invocations of a workgroup (X contiguous along the reduction).
    pub tm: u32,
    pub wg: u32,
    /// Invocations of a workgroup, and k of each of them for a staged block of the Khatri-Rao product (last mode).
    pub cols_wg: u32,
    pub steps: u32,
    /// Workgroups wanted.
    pub groups: usize,
}

/// The blocks for that many columns; `None` where register tiles are better.
pub(super) fn fused_small(width: usize, dtype: Dtype) -> Option<FusedSmall> {
    let rv = match width {
        0..=4 => 1,
        5..=8 => 2,
        9..=16 => 4,
        _ => return None,
    };
    // About 64 registers of sums.
    let tm = 16 / rv * 4 / dtype.bytes() as u32;
    Some(FusedSmall {
        rv,
        tm: tm.min(if dtype == Dtype::F64 { 4 } else { 8 }),
        wg: 128,
        cols_wg: 256,
        steps: 8,
        groups: 2112,
    })
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
}

/// The tile for that many columns: the largest that the device's workgroup memory takes.
pub(super) fn fused_tile(width: usize, dtype: Dtype, caps: &DeviceCaps) -> FusedTile {
    let table = [(128, 128, 16, 8, 8), (128, 64, 16, 8, 8), (128, 32, 16, 8, 4), (64, 32, 16, 4, 4)];
    let double = [(64, 64, 16, 4, 8), (64, 32, 16, 4, 4)];
    let fits = |&&(bm, bn, bk, ..): &&(u32, u32, u32, u32, u32)| {
        let words = bm * (bk + 4) + bk * bn;
        words * dtype.bytes() as u32 <= caps.max_workgroup_memory && (bn as usize) < 2 * width.max(32)
    };
    let table: &[_] = if dtype == Dtype::F64 { &double } else { &table };
    let &(bm, bn, bk, tm, tn) = table.iter().find(fits).unwrap_or(&(64, 32, 16, 4, 4));
    FusedTile { bm, bn, bk, tm, tn, groups: 1056 }
}
