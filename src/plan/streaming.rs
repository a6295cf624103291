//! Tensors that do not fit a device: how their slabs pass through it.

use super::memory::{Slab, buffer_bytes, buffer_limit};
use super::{DeviceCaps, DeviceKind};
use crate::Dtype;

/// Pieces of mapped memory that a slab is sent through. The host fills one while the device empties another, and has all of
/// the next slab in them at most while the device computes on this one.
const PIECES: u64 = 8;

/// What a tensor that does not fit beside what is needed with it costs: its slabs come from the host one after the other, in
/// every MTTKRP. The result is that of a resident tensor in the same slabs, bit for bit.
///
/// ```
/// use polyad::plan::{DeviceCaps, MttkrpPlan, PlanOptions};
/// let mut caps = DeviceCaps::webgpu_minimum("any GPU");
/// caps.memory = Some(300 << 20);
/// let plan = MttkrpPlan::new(&[1000, 1000, 100], 0, 2, &PlanOptions::default(), &caps).unwrap();
/// let streaming = plan.streaming().unwrap();
/// assert_eq!((streaming.slabs, streaming.pass_bytes), (plan.slabs().len(), 400_000_000));
/// assert!(streaming.device_bytes <= 300 << 20 && streaming.resident_bytes > 300 << 20);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Streaming {
    /// Slabs that the tensor is cut into.
    pub slabs: usize,
    /// Bytes of the largest.
    pub slab_bytes: u64,
    /// Bytes that one MTTKRP moves to the device: those of the tensor. A sweep of CP-ALS has one for each mode.
    pub pass_bytes: u64,
    /// Bytes of the slab on the device and of the mapped memory that it is sent through. Where the device shares the
    /// host's memory, or all of its own is mapped, both are its memory; where not, the second part is the host's.
    pub device_bytes: u64,
    /// What would be needed with all of the tensor on the device.
    pub resident_bytes: u64,
}

impl Streaming {
    /// Of a tensor in these slabs; `None` where it is a single one, with which nothing is won.
    pub(crate) fn new(slabs: &[Slab], dtype: Dtype) -> Option<Self> {
        let bytes = |slab: &Slab| slab.len() as u64 * dtype.bytes();
        let slab_bytes = slabs.iter().map(bytes).max().filter(|_| slabs.len() > 1)?;
        let device_bytes = buffer_bytes(slab_bytes) + PIECES * buffer_bytes(piece_bytes(slab_bytes));
        let pass_bytes = slabs.iter().map(bytes).sum();
        Some(Self { slabs: slabs.len(), slab_bytes, pass_bytes, device_bytes, resident_bytes: 0 })
    }

    /// Pieces of mapped memory.
    #[cfg(feature = "gpu")]
    pub(crate) fn pieces(&self) -> usize {
        PIECES as usize
    }

    /// Bytes of such a piece.
    #[cfg(feature = "gpu")]
    pub(crate) fn piece_bytes(&self) -> u64 {
        piece_bytes(self.slab_bytes)
    }
}

fn piece_bytes(slab_bytes: u64) -> u64 {
    buffer_bytes(slab_bytes.div_ceil(PIECES))
}

/// The largest slab, in bytes: a buffer ([`buffer_limit`]), what was asked for ([`DeviceCaps::max_slab_bytes`]), and on a GPU whose memory is known three eighths of that, so that
/// it fits twice and leaves a quarter for the rest. Slabs do not depend on whether the tensor streams.
///
/// ```
/// use polyad::{plan::{slab_limit, DeviceCaps}, Dtype};
/// let mut caps = DeviceCaps::webgpu_minimum("test");
/// assert_eq!(slab_limit(&caps, Dtype::F32), 128 << 20);
/// caps.memory = Some(64 << 20);
/// assert_eq!(slab_limit(&caps, Dtype::F32), 24 << 20);
/// ```
pub fn slab_limit(caps: &DeviceCaps, dtype: Dtype) -> u64 {
    let limit = buffer_limit(caps, dtype).min(caps.max_slab_bytes / 16 * 16);
    match caps.memory {
        Some(memory) if caps.kind != DeviceKind::Cpu => limit.min((memory / 8).saturating_mul(3) / 16 * 16),
        _ => limit,
    }
}
