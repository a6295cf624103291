//! Dispatches of GEMM, the baseline: explicit Khatri-Rao rows, a matrix product, and for middle modes a second,
//! element-wise contraction. Every large operand is made in pieces that fit a buffer.

use super::entrywise::per_mode;
use super::kernel::{Dispatch, GemmParams, KernelSpec, KhatriRaoParams, MultiplySumParams, Params, Slot};
use super::memory::{Slab, column_stride};
use super::{DeviceCaps, Problem, fold_grid, tuning};
use crate::Result;
use std::ops::Range;

const WG: u32 = 64;

/// Length of the panels that a long sum is cut into on a CPU.
pub(crate) const PANEL: usize = 1024;

/// Most parts of a sum on a CPU where its bits are not to depend on the number of threads, as those over kept products.
pub(crate) const FIXED_PARTS: usize = 16;

/// Whether a product on a CPU, of a matrix with few rows and long sums, is cut into panels that threads share, with a sum
/// of its own for each part.
pub(crate) fn in_panels(rows: usize, sum: usize) -> bool {
    sum >= PANEL.max(rows.saturating_mul(4))
}

/// Which side of the mode the matrix product contracts, for one slab.
struct Sides {
    /// Rows of the product, strides of its reduction.
    m: usize,
    k: usize,
    stride_m: usize,
    stride_k: usize,
    /// Modes of the Khatri-Rao operand.
    inner: u32,
    /// The second contraction of a middle mode: its length, strides and modes.
    outer: Option<(usize, usize, usize, u32)>,
}

impl Sides {
    fn new(mode: usize, slab: &Slab) -> Self {
        let (left, right) =
            (slab.dims[..mode].iter().product::<usize>(), slab.dims[mode + 1..].iter().product::<usize>());
        let rows = slab.dims[mode];
        let bits = |modes: Range<usize>| modes.fold(0, |bits, m| bits | 1 << m);
        let (left_modes, right_modes) = (bits(0..mode), bits(mode + 1..slab.dims.len()));
        let (to_right, to_left) = ((right, right, 1), (left, 1, rows * right));
        // One side of length 1 leaves nothing to contract afterwards; otherwise the smaller intermediate wins.
        let (outer, inner, (k, stride_m, stride_k), m) = if left == 1 {
            (None, left_modes | right_modes, to_right, rows)
        } else if right == 1 {
            (None, left_modes | right_modes, to_left, rows)
        } else if left <= right {
            (Some((left, rows, 1, left_modes)), right_modes, to_right, left * rows)
        } else {
            (Some((right, 1, right, right_modes)), left_modes, to_left, rows * right)
        };
        Self { m, k, stride_m, stride_k, inner, outer }
    }
}

/// All dispatches, and the bytes of the three scratch buffers (Khatri-Rao, partial, outer).
pub(super) fn dispatches(
    problem: &Problem,
    caps: &DeviceCaps,
    slabs: &[Slab],
    limit: u64,
) -> Result<(Vec<Dispatch>, [u64; 3])> {
    let dtype = problem.dtype();
    let spec = |shader, consts: &[_]| KernelSpec::new(shader, dtype, None, consts);
    let (krp_spec, sum_spec) = (spec("khatri_rao", &[("WG", WG)]), spec("multiply_sum", &[("WG", WG)]));
    let gemm_spec = spec("gemm", &tuning::GEMM_TILE);
    let [(_, bm), (_, bn), ..] = tuning::GEMM_TILE;
    let mut all = Vec::new();
    let mut scratch = [0u64; 3];
    for (block, ends) in problem.columns.windows(2).enumerate() {
        let width = column_stride(ends[1] - ends[0]);
        let rank = width as u32;
        // Rows of a scratch buffer: what fits a binding, and what one folded grid can cover.
        let most = usize::try_from(limit / dtype.bytes()).unwrap_or(usize::MAX) / width;
        let bytes = |rows: usize| (rows * width) as u64 * dtype.bytes();
        let mut make_rows = |all: &mut Vec<Dispatch>, index: usize, modes, q: &Range<usize>, with_weights, slot| {
            let slab = &slabs[index];
            let [x, y] = fold_grid(((q.len() * width) as u64).div_ceil(u64::from(WG)), caps)?;
            let params = KhatriRaoParams {
                rows: q.len() as u32,
                rank,
                q0: q.start as u32,
                modes,
                weights_row: problem.weights_row(),
                with_weights,
                grid_x: x,
                order: problem.shape.order() as u32,
                dims: per_mode(slab.dims.iter().map(|&d| d as u32)),
                row0: problem.row0(slab),
            };
            let used = if slot == Slot::KhatriRao { 0 } else { 2 };
            scratch[used] = scratch[used].max(bytes(q.len()));
            all.push(Dispatch {
                spec: krp_spec.clone(),
                params: Params::KhatriRao(params),
                slots: vec![Slot::Factors(block), slot],
                grid: [x, y, 1],
                slab: index,
            });
            Ok::<_, crate::Error>(())
        };
        let mut partial = 0;
        for (index, slab) in slabs.iter().enumerate() {
            let sides = Sides::new(problem.mode, slab);
            let rows0 = slab.offsets[problem.mode] as u32;
            for k in pieces(sides.k, most) {
                make_rows(&mut all, index, sides.inner, &k, 1, Slot::KhatriRao)?;
                for m in pieces(sides.m, most) {
                    let (target, c_row0) = if sides.outer.is_some() {
                        (Slot::Partial(0), 0)
                    } else {
                        (Slot::G(block), rows0 + m.start as u32)
                    };
                    let [x, y] = fold_grid(m.len().div_ceil(bm as usize) as u64, caps)?;
                    let params = GemmParams {
                        m: m.len() as u32,
                        rank,
                        k: k.len() as u32,
                        a0: (m.start * sides.stride_m + k.start * sides.stride_k) as u32,
                        stride_m: sides.stride_m as u32,
                        stride_k: sides.stride_k as u32,
                        c_row0,
                        accumulate: u32::from(sides.outer.is_none()),
                        grid_x: x,
                        group0: 0,
                        pad: [0; 2],
                    };
                    all.push(Dispatch {
                        spec: gemm_spec.clone(),
                        params: Params::Gemm(params),
                        slots: vec![Slot::X(index), Slot::KhatriRao, target],
                        grid: [x, y, width.div_ceil(bn as usize) as u32],
                        slab: index,
                    });
                    let Some((length, stride_q, stride_i, modes)) = sides.outer else { continue };
                    partial = partial.max(bytes(m.len()));
                    for q in pieces(length, most) {
                        make_rows(&mut all, index, modes, &q, 0, Slot::Outer)?;
                        let rows = slab.dims[problem.mode];
                        let [x, y] = fold_grid(((rows * width) as u64).div_ceil(u64::from(WG)), caps)?;
                        let params = MultiplySumParams {
                            rows: rows as u32,
                            rank,
                            g_row0: rows0,
                            q0: q.start as u32,
                            q1: q.end as u32,
                            stride_q: stride_q as u32,
                            stride_i: stride_i as u32,
                            m0: m.start as u32,
                            m1: m.end as u32,
                            grid_x: x,
                            pad: [0; 2],
                        };
                        all.push(Dispatch {
                            spec: sum_spec.clone(),
                            params: Params::MultiplySum(params),
                            slots: vec![Slot::Outer, Slot::Partial(0), Slot::G(block)],
                            grid: [x, y, 1],
                            slab: index,
                        });
                    }
                }
            }
        }
        scratch[1] = scratch[1].max(partial);
    }
    Ok((all, scratch))
}

/// The longest chain of additions: one side inside the product, the other outside, and one addition per piece.
pub(super) fn chain(problem: &Problem, slabs: &[Slab], limit: u64) -> u64 {
    let width = problem.columns.windows(2).map(|w| column_stride(w[1] - w[0])).max().unwrap_or(1);
    let most = usize::try_from(limit / problem.dtype().bytes()).unwrap_or(usize::MAX) / width;
    slabs
        .iter()
        .map(|slab| {
            let sides = Sides::new(problem.mode, slab);
            let length = sides.outer.map_or(0, |(length, ..)| length);
            let added = sides.k.div_ceil(most) * length.max(1).div_ceil(most) * sides.m.div_ceil(most);
            (sides.k + length + added) as u64
        })
        .sum()
}

/// Cuts `0..length` into even pieces of at most `most`.
fn pieces(length: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let count = length.div_ceil(most.max(1));
    (0..count).map(move |c| c * length / count..(c + 1) * length / count)
}
