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
    /// For tests: buffers beyond that many bytes in all are refused, as a full device would; 0 for no such limit.
    #[cfg(test)]
    limit: AtomicU64,
}

impl Ledger {
    /// Whether a buffer may be made, as far as tests pretend that the device is full.
    pub fn has_room(&self, bytes: u64) -> bool {
        #[cfg(test)]
        if let limit @ 1.. = self.limit.load(Ordering::Relaxed) {
            return self.read().current + bytes <= limit;
        }
        let _ = bytes;
        true
    }

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

#[cfg(test)]
mod tests {
    use crate::plan::DeviceCaps;
    use crate::{Backend, Checkpoint, CpAlsOptions, Error, Every, Gpu, cp_als_with};
    use ndarray::Array3;
    use std::ops::ControlFlow;
    use std::sync::atomic::Ordering;

    /// Tensor and factors fit, then another program takes the rest of the memory within CP-ALS: whatever buffer a later sweep
    /// makes is named, with its bytes and the sweep, and the checkpoint is whole.
    #[test]
    fn a_device_that_is_full_in_a_sweep() {
        let Ok(gpu) = Gpu::new() else { return println!("skipped: no adapter") };
        let caps = DeviceCaps { f64: false, ..gpu.caps().clone() };
        let on_host = Gpu::on(gpu.inner.device.clone(), gpu.inner.queue.clone(), caps, Vec::new());
        let x = Array3::from_shape_fn((20, 18, 17), |(i, j, k)| ((7 * i + 5 * j + 3 * k) % 11) as f32);
        let start = CpAlsOptions::new(3).fit_tolerance(0.0).max_sweeps(6);
        // Results come to the host in every sweep: by an update on the host, and by one that keeps entries from being negative;
        // of 20 and of 18 rows, padded to 4 columns.
        let cases =
            [(&on_host, start.clone(), ("polyad.g.0", 320)), (&gpu, start.nonneg(vec![1]), ("polyad.staging", 288))];
        for (gpu, options, (buffer, size)) in cases {
            let whole = cp_als_with(gpu, x.view(), &options, |_| ControlFlow::Continue(())).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let checkpoint = Checkpoint::new(folder.path()).every(Every::Sweeps(2)).resume(true);
            let file = checkpoint.file();
            let options = options.checkpoint(checkpoint);
            let ledger = &gpu.inner.ledger;
            let mut saved = Vec::new();
            let full = cp_als_with(gpu, x.view(), &options, |sweep| {
                if sweep.number == 3 {
                    saved = std::fs::read(&file).unwrap();
                    // A little is left, too little for any buffer.
                    ledger.limit.store(ledger.read().current + 1, Ordering::Relaxed);
                }
                ControlFlow::Continue(())
            });
            ledger.limit.store(0, Ordering::Relaxed);
            let error = full.unwrap_err();
            println!("{error}");
            assert_eq!(error, Error::OutOfDeviceMemory { buffer: format!("{buffer}, in sweep 4,"), bytes: size });
            let text = format!("out of device memory: {buffer}, in sweep 4, of {size} bytes could not be allocated");
            assert_eq!(error.to_string(), text);
            assert!(!saved.is_empty() && saved == std::fs::read(&file).unwrap());
            // There is memory again.
            let mut first = 0;
            let resumed = cp_als_with(gpu, x.view(), &options, |sweep| {
                first = if first == 0 { sweep.number } else { first };
                ControlFlow::Continue(())
            });
            let resumed = resumed.unwrap();
            assert_eq!((first, &resumed.fits), (3, &whole.fits));
            assert_eq!(resumed.model.factors(), whole.model.factors());
        }
    }
}
