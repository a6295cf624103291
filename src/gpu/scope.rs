//! Errors of wgpu as values: error scopes around everything, nothing left to the default handler, which panics.

use super::Inner;
use super::ledger::Ticket;
use crate::error::one_line;
use crate::plan::buffer_bytes;
use crate::{Error, Result};

/// Runs `work` inside error scopes of this thread; what wgpu complains of becomes an error.
pub(super) fn scoped<R>(device: &wgpu::Device, during: &str, work: impl FnOnce() -> Result<R>) -> Result<R> {
    let scopes = [wgpu::ErrorFilter::Validation, wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Internal]
        .map(|filter| device.push_error_scope(filter));
    let result = work();
    let mut seen = None;
    for scope in scopes.into_iter().rev() {
        seen = pollster::block_on(scope.pop()).or(seen);
    }
    match seen {
        Some(error) => Err(Error::Gpu { during: during.into(), message: one_line(&error.to_string()) }),
        None => result,
    }
}

/// Creates a buffer, or says which one did not fit. It counts as held as long as its ticket lives.
pub(super) fn create_buffer(
    inner: &Inner,
    label: &str,
    bytes: u64,
    usage: wgpu::BufferUsages,
) -> Result<(wgpu::Buffer, Ticket)> {
    let device = &inner.device;
    let label = format!("polyad.{label}");
    let size = buffer_bytes(bytes);
    let mut out_of_memory = false;
    let buffer = scoped(device, &format!("creation of {label}"), || {
        // The innermost scope gets the error.
        let memory = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let descriptor = wgpu::BufferDescriptor { label: Some(&label), size, usage, mapped_at_creation: false };
        let buffer = device.create_buffer(&descriptor);
        out_of_memory = pollster::block_on(memory.pop()).is_some() || !inner.ledger.has_room(size);
        Ok(buffer)
    });
    if out_of_memory {
        return Err(Error::OutOfDeviceMemory { buffer: label, bytes: size });
    }
    Ok((buffer?, inner.ledger.hold(size)))
}
