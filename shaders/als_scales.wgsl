//! als_scales - the rows of a factor buffer that scale columns of the Khatri-Rao product into the range of f16 and back.
//! Computes   factors[weights_row + 1 + 2 n, r] = 2^e, factors[weights_row + 2 + 2 n, r] = weights[r] 2^-e with e = 15 - sum over m != n of (1 + exponent of the largest of mode m's column r), and the same with the sum over the modes of a group, at order + its first mode instead of n
//! Bindings   0 p uniform UpdateParams | 1 state read f64 [order, rank^2 + 4 rank] | 2 factors read_write Real [rows of all modes, ..; stride]
//! With       als_params
//! Spec       WG 64
//! Grid       (rank / WG, folded over y, 1)          src/plan/update.rs
//! Order      -
//! Twin       src/gpu/range.rs
//! Reference  -
alias Real = f32; // @spec f32
const WG: u32 = 64u; // @spec

@group(0) @binding(1) var<storage, read> state: array<f64>;
@group(0) @binding(2) var<storage, read_write> factors: array<Real>;

// Every magnitude of the column is below 2 to this; 0 for a column of zeros.
fn top(mode: u32, r: u32) -> i32 {
    let largest = f32(state[column_at(mode, LARGEST, r)]);
    return select(i32(bitcast<u32>(largest) >> 23u) - 126, 0, largest == 0.0);
}

fn write(slot: u32, r: u32, exponent: i32, weight: f32) {
    let e = clamp(exponent, -115, 115);
    let row = p.weights_row + 1u + 2u * slot;
    factors[row * p.stride + r] = bitcast<f32>(u32(e + 127) << 23u);
    factors[(row + 1u) * p.stride + r] = weight * bitcast<f32>(u32(127 - e) << 23u);
}

@compute @workgroup_size(WG, 1, 1)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) li: u32) {
    let r = (wg.y * p.grid_x + wg.x) * WG + li;
    if r >= p.rank {
        return;
    }
    var all = 0;
    for (var m = 0u; m < p.order; m++) {
        all += top(m, r);
    }
    let weight = factors[p.weights_row * p.stride + r];
    for (var n = 0u; n < p.order; n++) {
        write(n, r, 15 - all + top(n, r), weight);
    }
    // Groups are runs of modes; the last one ends with the last mode.
    var sum = 0;
    for (var back = 0u; back < p.order; back++) {
        let m = p.order - 1u - back;
        sum += top(m, r);
        if ((p.groups >> m) & 1u) == 1u {
            write(p.order + m, r, 15 - sum, weight);
            sum = 0;
        }
    }
}
