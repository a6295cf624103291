//! fused_coop_halves - part of the kernels on f16 matrix units: what a step has loaded, to workgroup memory in halves; statements, put into main
//! Computes   xh, xl of xv * x_scale, bh, bl of bv: the leading 11 bits and the rest, or all in one half without SPLIT
//! Bindings   -
//! Spec       -
//! Grid       -
//! Order      -
//! Twin       -
//! Reference  -
for (var part = 0u; part < BM * BK / 4u / WG; part++) { // @unroll
    let at = li + part * WG;
    let slot = (at / XE) * PX + at % XE;
    let value = xv[part] * p.x_scale;
    let top = high(value);
    if SPLIT == 1u {
        xh[slot] = Half(top);
        xl[slot] = Half(value - top);
    } else {
        xh[slot] = Half(value);
    }
}
for (var part = 0u; part < BK * BN / 4u / WG; part++) { // @unroll
    let at = li + part * WG;
    let slot = (at / (BN / 4u)) * PB + at % (BN / 4u);
    let top = high(bv[part]);
    if SPLIT == 1u {
        bh[slot] = Half(top);
        bl[slot] = Half(bv[part] - top);
    } else {
        bh[slot] = Half(bv[part]);
    }
}
