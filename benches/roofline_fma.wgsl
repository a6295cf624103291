//! roofline_fma - how fast multiply-adds go: eight chains of vec4, 32 numbers in registers, no memory traffic.
//! Computes   each number v = v * m + s, 4 times a round; out[0] is written only if the sum equals p.never (it does not)
//! Flops      128 multiply-adds = 256 flops a round and invocation
//! Bindings   0 p read FmaParams | 1 out read_write Real [1]
//! Spec       Real f32|f64
//! Grid       (any number of workgroups, 1, 1)
alias Real = f32; // @spec f32|f64

struct FmaParams {
    multiply: Real,
    add: Real,
    never: Real,
    rounds: u32,
}

@group(0) @binding(0) var<storage, read> p: FmaParams;
@group(0) @binding(1) var<storage, read_write> out: array<Real>;

@compute @workgroup_size(256, 1, 1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let m = vec4<Real>(p.multiply);
    let s = vec4<Real>(p.add);
    var a = vec4<Real>(Real(id.x & 255u));
    var b = a + s;
    var c = b + s;
    var d = c + s;
    var e = d + s;
    var f = e + s;
    var g = f + s;
    var h = g + s;
    for (var round = 0u; round < p.rounds; round++) {
        a = fma(a, m, s);
        b = fma(b, m, s);
        c = fma(c, m, s);
        d = fma(d, m, s);
        e = fma(e, m, s);
        f = fma(f, m, s);
        g = fma(g, m, s);
        h = fma(h, m, s);
        a = fma(a, m, s);
        b = fma(b, m, s);
        c = fma(c, m, s);
        d = fma(d, m, s);
        e = fma(e, m, s);
        f = fma(f, m, s);
        g = fma(g, m, s);
        h = fma(h, m, s);
        a = fma(a, m, s);
        b = fma(b, m, s);
        c = fma(c, m, s);
        d = fma(d, m, s);
        e = fma(e, m, s);
        f = fma(f, m, s);
        g = fma(g, m, s);
        h = fma(h, m, s);
        a = fma(a, m, s);
        b = fma(b, m, s);
        c = fma(c, m, s);
        d = fma(d, m, s);
        e = fma(e, m, s);
        f = fma(f, m, s);
        g = fma(g, m, s);
        h = fma(h, m, s);
    }
    let sum = ((a + b) + (c + d)) + ((e + f) + (g + h));
    if sum.x + sum.y + sum.z + sum.w == p.never {
        out[0] = sum.x;
    }
}
