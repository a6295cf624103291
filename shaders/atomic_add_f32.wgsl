//! atomic_add_f32 - put in front of kernels that share entries of G: the adapter's own f32 atomic addition.
//! Computes   g[index] += value, atomically
//! Bindings   G_BINDING of the kernel g read_write atomic<f32> [rows, stride]
//! Spec       -
//! Grid       -
//! Order      the order in which invocations arrive: not repeatable
//! Twin       -
//! Reference  arXiv 2510.14891 sec. III (atomic reduction)
@group(0) @binding(G_BINDING) var<storage, read_write> g: array<atomic<f32>>;

fn g_add(index: u32, value: f32) {
    atomicAdd(&g[index], value);
}
