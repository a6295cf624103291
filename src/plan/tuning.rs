//! Tables: device class and regime to block sizes. The only file of the plan that may name vendors.

use super::{DeviceCaps, DeviceKind};

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
