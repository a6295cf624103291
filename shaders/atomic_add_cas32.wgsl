//! atomic_add_cas32 - put in front of kernels that share entries of G where there is no f32 atomic addition.
//! Computes   g[index] += value, by compare-exchange on the f32's bits until nobody came between
//! Bindings   G_BINDING of the kernel g read_write atomic<u32> [rows, stride], the bits of f32
//! Spec       -
//! Grid       -
//! Order      the order in which invocations succeed: not repeatable
//! Twin       -
//! Reference  arXiv 2510.14891 sec. III (atomic reduction)
@group(0) @binding(G_BINDING) var<storage, read_write> g: array<atomic<u32>>;

fn g_add(index: u32, value: f32) {
    var seen = atomicLoad(&g[index]);
    loop {
        let sum = bitcast<u32>(bitcast<f32>(seen) + value);
        let result = atomicCompareExchangeWeak(&g[index], seen, sum);
        if result.exchanged {
            break;
        }
        seen = result.old_value;
    }
}
