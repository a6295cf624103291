//! Kernel times from the device's own clock.

use super::Inner;
use super::ledger::Ticket;
use super::scope::{create_buffer, scoped};
use crate::Result;
use std::time::Duration;
use wgpu::BufferUsages;

/// Two timestamps around each of a number of passes.
#[derive(Debug)]
pub(super) struct Stopwatch {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    passes: u32,
    _memory: Ticket,
}

impl Stopwatch {
    /// `None` where the device has no timestamps.
    pub fn new(inner: &Inner, passes: u32) -> Result<Option<Self>> {
        if !inner.caps.timestamps {
            return Ok(None);
        }
        let usage = BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC;
        let (resolved, _memory) = create_buffer(inner, "timestamps", 16 * u64::from(passes), usage)?;
        let queries = scoped(&inner.device, "creation of timestamps", || {
            Ok(inner.device.create_query_set(&wgpu::QuerySetDescriptor {
                label: Some("polyad.timestamps"),
                ty: wgpu::QueryType::Timestamp,
                count: 2 * passes,
            }))
        })?;
        Ok(Some(Self { queries, resolved, passes, _memory }))
    }

    /// What a pass has to write.
    pub fn writes(&self, pass: u32) -> wgpu::ComputePassTimestampWrites<'_> {
        wgpu::ComputePassTimestampWrites {
            query_set: &self.queries,
            beginning_of_pass_write_index: Some(2 * pass),
            end_of_pass_write_index: Some(2 * pass + 1),
        }
    }

    /// The same for a pass that is recorded in several: the first begins it, the last ends it.
    pub fn writes_at(&self, pass: u32, first: bool, last: bool) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        let all = self.writes(pass);
        (first || last).then(|| wgpu::ComputePassTimestampWrites {
            beginning_of_pass_write_index: all.beginning_of_pass_write_index.filter(|_| first),
            end_of_pass_write_index: all.end_of_pass_write_index.filter(|_| last),
            ..all
        })
    }

    /// Makes the timestamps readable, after the passes, and gives the buffer they are in.
    pub fn resolve(&self, encoder: &mut wgpu::CommandEncoder) -> &wgpu::Buffer {
        encoder.resolve_query_set(&self.queries, 0..2 * self.passes, &self.resolved, 0);
        &self.resolved
    }

    /// Time of the first pass, once the submission has ended.
    pub fn elapsed(&self, inner: &Inner) -> Result<Duration> {
        let ticks = inner.read_buffer::<u64>(&self.resolved, 2)?;
        Ok(between(inner, ticks[0], ticks[1]))
    }
}

/// Time between two timestamps.
pub(super) fn between(inner: &Inner, from: u64, to: u64) -> Duration {
    let nanoseconds = to.saturating_sub(from) as f64 * f64::from(inner.queue.get_timestamp_period());
    Duration::from_nanos(nanoseconds as u64)
}
