//! fused_coop_products - part of the kernels on f16 matrix units: a step's products; statements, put into main
//! Computes   c += (xh + xl) (bh + bl) without xl bl, or xh bh without SPLIT; after FLUSH k s += c and c = 0
//! Bindings   -
//! Spec       -
//! Grid       -
//! Order      small products first: repeatable
//! Twin       -
//! Reference  -
for (var kk = 0u; kk < BK / 16u; kk++) { // @unroll
    var a: array<coop_mat16x16<f16, A>, FM>; // @named
    var b: array<coop_mat16x16<f16, B>, FN>; // @named
    for (var i = 0u; i < FM; i++) { // @unroll
        for (var rows = 0u; rows < BY_ROWS; rows++) { // @unroll
            a[i] = coopLoadT<coop_mat16x16<f16, A>>(&xh[(wm * FM + i) * 16u * PX + kk * 4u], PX);
        }
        for (var cols = 0u; cols < 1u - BY_ROWS; cols++) { // @unroll
            a[i] = coopLoad<coop_mat16x16<f16, A>>(&xh[kk * 16u * PX + (wm * FM + i) * 4u], PX);
        }
    }
    for (var j = 0u; j < FN; j++) { // @unroll
        b[j] = coopLoadT<coop_mat16x16<f16, B>>(&bh[kk * 16u * PB + (wn * FN + j) * 4u], PB);
    }
    for (var has = 0u; has < SPLIT; has++) { // @unroll
        // The small products first: high of X times low, low times high.
        var d: array<coop_mat16x16<f16, B>, FN>; // @named
        for (var j = 0u; j < FN; j++) { // @unroll
            d[j] = coopLoadT<coop_mat16x16<f16, B>>(&bl[kk * 16u * PB + (wn * FN + j) * 4u], PB);
        }
        for (var i = 0u; i < FM; i++) { // @unroll
            for (var j = 0u; j < FN; j++) { // @unroll
                c[i * FN + j] = coopMultiplyAdd(a[i], d[j], c[i * FN + j]);
            }
        }
        var e: array<coop_mat16x16<f16, A>, FM>; // @named
        for (var i = 0u; i < FM; i++) { // @unroll
            for (var rows = 0u; rows < BY_ROWS; rows++) { // @unroll
                e[i] = coopLoadT<coop_mat16x16<f16, A>>(&xl[(wm * FM + i) * 16u * PX + kk * 4u], PX);
            }
            for (var cols = 0u; cols < 1u - BY_ROWS; cols++) { // @unroll
                e[i] = coopLoad<coop_mat16x16<f16, A>>(&xl[kk * 16u * PX + (wm * FM + i) * 4u], PX);
            }
        }
        for (var i = 0u; i < FM; i++) { // @unroll
            for (var j = 0u; j < FN; j++) { // @unroll
                c[i * FN + j] = coopMultiplyAdd(e[i], b[j], c[i * FN + j]);
            }
        }
    }
    for (var i = 0u; i < FM; i++) { // @unroll
        for (var j = 0u; j < FN; j++) { // @unroll
            c[i * FN + j] = coopMultiplyAdd(a[i], b[j], c[i * FN + j]);
        }
    }
}
for (var has = 0u; has < ROUND; has++) { // @unroll
    // A count from 0 and a power of two: the driver unrolls the steps between two roundings, and overlaps them.
    if (step & (FLUSH / BK - 1u)) == FLUSH / BK - 1u {
        for (var f = 0u; f < FM * FN; f++) { // @unroll
            s[f] = s[f] + c[f];
            c[f] = coop_mat16x16<f32, C>();
        }
    }
}
