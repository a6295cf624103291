//! Kernel times from the device's own clock.

use super::Inner;
use super::scope::{create_buffer, scoped};
use crate::Result;
use std::time::Duration;
use wgpu::BufferUsages;

/// Two timestamps around one pass.
pub(super) struct Stopwatch {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
}

impl Stopwatch {
    /// `None` where the device has no timestamps.
    pub fn new(inner: &Inner) -> Result<Option<Self>> {
        if !inner.caps.timestamps {
            return Ok(None);
        }
        let usage = BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC;
        let resolved = create_buffer(&inner.device, "timestamps", 16, usage)?;
        let queries = scoped(&inner.device, "creation of timestamps", || {
            Ok(inner.device.create_query_set(&wgpu::QuerySetDescriptor {
                label: Some("polyad.timestamps"),
                ty: wgpu::QueryType::Timestamp,
                count: 2,
            }))
        })?;
        Ok(Some(Self { queries, resolved }))
    }

    /// What the pass has to write.
    pub fn writes(&self) -> wgpu::ComputePassTimestampWrites<'_> {
        wgpu::ComputePassTimestampWrites {
            query_set: &self.queries,
            beginning_of_pass_write_index: Some(0),
            end_of_pass_write_index: Some(1),
        }
    }

    /// Makes the timestamps readable, after the pass.
    pub fn resolve(&self, encoder: &mut wgpu::CommandEncoder) {
        encoder.resolve_query_set(&self.queries, 0..2, &self.resolved, 0);
    }

    /// Time between them, once the submission has ended.
    pub fn elapsed(&self, inner: &Inner) -> Result<Duration> {
        let ticks = inner.read_buffer::<u64>(&self.resolved, 2)?;
        let nanoseconds = ticks[1].saturating_sub(ticks[0]) as f64 * f64::from(inner.queue.get_timestamp_period());
        Ok(Duration::from_nanos(nanoseconds as u64))
    }
}
