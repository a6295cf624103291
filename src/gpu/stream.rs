//! A tensor that stays on the host and passes through the device slab by slab, in every MTTKRP.
//!
//! A device has one queue here, whose submissions run one after the other, so two copies of a slab on the device would win
//! nothing. What overlaps is the host's part: while the device computes on a slab, the host writes the next one into mapped
//! memory, all of it if there is time. On a device whose memory is mapped that is the transfer over the bus; where mapped
//! memory is the host's, the queue copies a piece while the host writes another.

use super::Inner;
use super::ledger::Ticket;
use super::record::Prepared;
use super::scope::{create_buffer, scoped};
use super::timing::Stopwatch;
use crate::error::one_line;
use crate::plan::{Slab, Streaming};
use crate::{Error, Real, Result};
use std::borrow::Cow;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};
use wgpu::{BufferAsyncError, BufferUsages};

/// Bytes that one thread writes at a time.
const SHARE: usize = 1 << 20;

/// Where the slabs of a tensor come from and what they are sent through.
#[derive(Debug)]
pub(super) struct Stream<'a, T: Clone> {
    /// Row-major.
    data: Cow<'a, [T]>,
    streaming: Streaming,
    /// The slab that is on the device.
    slab: wgpu::Buffer,
    /// Held for a whole pass: there is one slab for all threads.
    pieces: Mutex<Pieces>,
    _memory: Vec<Ticket>,
}

/// Mapped memory, in turns.
#[derive(Debug)]
struct Pieces {
    buffers: Vec<Piece>,
    next: usize,
}

#[derive(Debug)]
struct Piece {
    buffer: wgpu::Buffer,
    /// The copy that empties it, and word that it may be written again.
    emptied: Option<(wgpu::SubmissionIndex, Receiver<std::result::Result<(), BufferAsyncError>>)>,
}

impl<'a, T: Real> Stream<'a, T> {
    pub fn new(inner: &Inner, data: Cow<'a, [T]>, streaming: Streaming) -> Result<Self> {
        let mut memory = Vec::new();
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_DST;
        let (slab, held) = create_buffer(inner, "x.slab", streaming.slab_bytes, usage)?;
        memory.push(held);
        let mut buffers = Vec::new();
        for index in 0..streaming.pieces() {
            let usage = BufferUsages::MAP_WRITE | BufferUsages::COPY_SRC;
            let (buffer, held) = create_buffer(inner, &format!("x.piece.{index}"), streaming.piece_bytes(), usage)?;
            memory.push(held);
            buffers.push(Piece { emptied: None, buffer });
        }
        let mut pieces = Pieces { buffers, next: 0 };
        for piece in &mut pieces.buffers {
            // Nothing is in it yet, so that any submission will do to wait for.
            let submission = scoped(&inner.device, DURING, || Ok(inner.queue.submit([])))?;
            piece.empty_after(inner, submission)?;
        }
        Ok(Self { data, streaming, slab, pieces: Mutex::new(pieces), _memory: memory })
    }

    /// The buffer that every slab is bound from.
    pub fn buffer(&self) -> &wgpu::Buffer {
        &self.slab
    }

    pub fn streaming(&self) -> &Streaming {
        &self.streaming
    }

    /// Sends the slabs one by one and the kernels of each behind it; `last` may add to the last submission.
    pub fn pass(
        &self,
        inner: &Inner,
        slabs: &[Slab],
        prepared: &Prepared,
        stopwatch: Option<&Stopwatch>,
        last: impl FnOnce(&mut wgpu::CommandEncoder),
    ) -> Result<wgpu::SubmissionIndex> {
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut last, mut submission) = (Some(last), None);
        for (index, slab) in slabs.iter().enumerate() {
            self.send(inner, &mut pieces, bytemuck::cast_slice(&self.data[slab.start..slab.start + slab.len()]))?;
            let end = index + 1 == slabs.len();
            // All kernels of a slab in one submission: scratch is shared with other work on the queue.
            submission = Some(scoped(&inner.device, &format!("an MTTKRP, slab {index} of {}", slabs.len()), || {
                let mut encoder = inner.encoder("mttkrp");
                let times = stopwatch.and_then(|stopwatch| stopwatch.writes_at(0, index == 0, end));
                prepared.encode(&mut encoder, Some(index), times);
                if let Some(last) = last.take_if(|_| end) {
                    last(&mut encoder);
                }
                Ok(inner.queue.submit([encoder.finish()]))
            })?);
        }
        submission.ok_or_else(|| failed("a tensor without slabs"))
    }

    /// Brings bytes to the device, behind what is on the queue.
    fn send(&self, inner: &Inner, pieces: &mut Pieces, bytes: &[u8]) -> Result<()> {
        let length = self.streaming.piece_bytes() as usize;
        for (part, bytes) in bytes.chunks(length).enumerate() {
            let count = pieces.buffers.len();
            let piece = &mut pieces.buffers[pieces.next];
            pieces.next = (pieces.next + 1) % count;
            piece.wait(inner)?;
            // A slab is whole numbers of 4 bytes, as every element is.
            let size = bytes.len() as u64;
            let submission = scoped(&inner.device, DURING, || {
                {
                    let mut view =
                        piece.buffer.get_mapped_range_mut(0..size).map_err(|error| failed(error.to_string()))?;
                    copy(view.slice(..), bytes);
                }
                piece.buffer.unmap();
                let mut encoder = inner.encoder("stream");
                encoder.copy_buffer_to_buffer(&piece.buffer, 0, &self.slab, (part * length) as u64, size);
                Ok(inner.queue.submit([encoder.finish()]))
            })?;
            piece.empty_after(inner, submission)?;
        }
        Ok(())
    }
}

const DURING: &str = "streaming the tensor";

fn failed(message: impl AsRef<str>) -> Error {
    Error::Gpu { during: DURING.into(), message: one_line(message.as_ref()) }
}

impl Piece {
    /// Asks to be mapped once a submission has ended.
    fn empty_after(&mut self, inner: &Inner, submission: wgpu::SubmissionIndex) -> Result<()> {
        let (sender, receiver) = channel();
        scoped(&inner.device, DURING, || {
            self.buffer.map_async(wgpu::MapMode::Write, .., move |result| {
                let _ = sender.send(result);
            });
            Ok(())
        })?;
        self.emptied = Some((submission, receiver));
        Ok(())
    }

    /// Until it may be written. After a failure it may never be again.
    fn wait(&mut self, inner: &Inner) -> Result<()> {
        let (submission, receiver) = self.emptied.take().ok_or_else(|| failed("an earlier pass has failed"))?;
        scoped(&inner.device, DURING, || inner.wait(Some(submission), DURING))?;
        receiver.recv().map_err(|e| failed(e.to_string()))?.map_err(|e| failed(e.to_string()))
    }
}

/// Copies into mapped memory by several threads: one alone fills a bus only to a part. They are not rayon's: one of those that
/// waits may begin another task, which may want the stream that this one holds.
fn copy(to: wgpu::WriteOnly<'_, [u8]>, from: &[u8]) {
    let (shares, mut end) = to.into_chunks::<SHARE>();
    let (whole, rest) = from.split_at(shares.len() * SHARE);
    let mut shares: Vec<_> = shares.into_iter().zip(whole.chunks(SHARE)).collect();
    let each = shares.len().div_ceil(rayon::current_num_threads().max(1));
    std::thread::scope(|scope| {
        while !shares.is_empty() {
            let mine = shares.split_off(shares.len().saturating_sub(each));
            scope.spawn(|| {
                mine.into_iter().for_each(|(to, from)| wgpu::WriteOnly::<[u8]>::from(to).copy_from_slice(from))
            });
        }
        end.copy_from_slice(rest);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_whole() {
        for length in [0, 1, SHARE - 1, SHARE, 5 * SHARE + 77] {
            let from: Vec<u8> = (0..length).map(|at| (at * 31 % 251) as u8).collect();
            let mut to = vec![0; length];
            copy(wgpu::WriteOnly::from_mut(&mut to[..]), &from);
            assert!(to == from, "{length} bytes");
        }
    }
}
