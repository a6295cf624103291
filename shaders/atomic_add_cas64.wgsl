//! atomic_add_cas64 - put in front of f64 kernels that share entries of G.
//! Computes   g[index] += value, by compare-exchange on the f64's bits until nobody came between
//! Bindings   G_BINDING of the kernel g read_write atomic<u64> [rows, stride], the bits of f64
//! Spec       -
//! Grid       -
//! Order      the order in which invocations succeed: not repeatable
//! Twin       -
//! Reference  arXiv 2510.14891 sec. III (atomic reduction)
@group(0) @binding(G_BINDING) var<storage, read_write> g: array<atomic<u64>>;

fn g_add(index: u32, value: f64) {
    var seen = atomicLoad(&g[index]);
    loop {
        let sum = bitcast<u64>(bitcast<f64>(seen) + value);
        let result = atomicCompareExchangeWeak(&g[index], seen, sum);
        if result.exchanged {
            break;
        }
        seen = result.old_value;
    }
}
