//! Device memory, which WebGPU does not tell but Vulkan does.

/// Bytes of the largest device-local heap; `None` where the backend does not say.
#[cfg(any(windows, all(unix, not(target_vendor = "apple"))))]
pub(super) fn device_memory(adapter: &wgpu::Adapter) -> Option<u64> {
    // SAFETY: the handles are only read, for the length of this function, and the adapter outlives it.
    let heaps = unsafe { heaps(adapter) }?;
    heaps.into_iter().max()
}

/// Sizes of the device-local heaps.
#[cfg(any(windows, all(unix, not(target_vendor = "apple"))))]
unsafe fn heaps(adapter: &wgpu::Adapter) -> Option<Vec<u64>> {
    // SAFETY: the caller keeps the adapter alive and nothing is destroyed through these handles.
    let properties = unsafe {
        let vulkan = adapter.as_hal::<wgpu::hal::api::Vulkan>()?;
        let instance = vulkan.shared_instance().raw_instance();
        instance.get_physical_device_memory_properties(vulkan.raw_physical_device())
    };
    // Flag 1 is VK_MEMORY_HEAP_DEVICE_LOCAL_BIT.
    let local = properties.memory_heaps_as_slice().iter().filter(|heap| heap.flags.as_raw() & 1 == 1);
    Some(local.map(|heap| heap.size).collect())
}

#[cfg(not(any(windows, all(unix, not(target_vendor = "apple")))))]
pub(super) fn device_memory(_adapter: &wgpu::Adapter) -> Option<u64> {
    None
}
