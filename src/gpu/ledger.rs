//! How much device memory this crate's buffers take.

use super::Gpu;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of buffers now, and the most there were.
///
/// ```
/// let memory = polyad::DeviceMemory::default();
/// assert_eq!((memory.current, memory.peak), (0, 0));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DeviceMemory {
    /// Held now.
    pub current: u64,
    /// The most that was held at a time.
    pub peak: u64,
}

/// The account of one `Gpu`.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    current: AtomicU64,
    peak: AtomicU64,
}

impl Ledger {
    /// Counts bytes until the ticket is dropped.
    pub fn hold(self: &Arc<Self>, bytes: u64) -> Ticket {
        let before = self.current.fetch_add(bytes, Ordering::Relaxed);
        self.peak.fetch_max(before + bytes, Ordering::Relaxed);
        Ticket { ledger: self.clone(), bytes }
    }

    /// What is held, and the most that was.
    pub fn read(&self) -> DeviceMemory {
        DeviceMemory { current: self.current.load(Ordering::Relaxed), peak: self.peak.load(Ordering::Relaxed) }
    }
}

/// Lives as long as the buffer that it counts.
#[derive(Debug)]
pub(super) struct Ticket {
    ledger: Arc<Ledger>,
    bytes: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.ledger.current.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Gpu {
    /// Bytes of all buffers that were made through this `Gpu` and its clones: tensors, factors, results, scratch, and what
    /// is made for the length of a call. What the driver adds, and wgpu's staging of uploads, is not counted.
    ///
    /// ```
    /// use polyad::{Backend, Gpu};
    /// # let Ok(gpu) = Gpu::new() else { return };
    /// let ones = ndarray::Array2::<f32>::ones((8, 8));
    /// let x = gpu.upload_tensor(ones.view()).unwrap();
    /// assert_eq!(gpu.memory().current, 8 * 8 * 4);
    /// drop(x);
    /// assert_eq!((gpu.memory().current, gpu.memory().peak), (0, 8 * 8 * 4));
    /// ```
    pub fn memory(&self) -> DeviceMemory {
        self.inner.ledger.read()
    }
}
