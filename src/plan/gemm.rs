//! Dispatches of GEMM, the baseline: explicit Khatri-Rao rows, a matrix product, and for middle modes a second,
//! element-wise contraction. Every large operand is made in pieces that fit a buffer.

use super::entrywise::per_mode;
use super::fused::{add_pieces, reduce_chain};
use super::kernel::{Dispatch, GemmParams, KernelSpec, KhatriRaoParams, MultiplySumParams, Params, ReduceParams, Slot};
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

/// The scratch buffers.
pub(super) const SCRATCH: [Slot; 4] = [Slot::KhatriRao, Slot::Partial(0), Slot::Outer, Slot::Pieces];

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

/// Length of the pieces of a sum over `k`: few tiles of the result would leave most of a device idle. Their results take
/// `most` rows of scratch at most.
fn piece(rows: usize, width: usize, k: usize, most: usize) -> usize {
    let [(_, bm), (_, bn), (_, bk), ..] = tuning::GEMM_TILE.map(|(name, n)| (name, n as usize));
    let (groups, least) = tuning::GEMM_SPLIT;
    let pieces = (groups / (rows.div_ceil(bm) * width.div_ceil(bn))).min(k / least).min(most / rows);
    k.div_ceil(pieces.max(1)).next_multiple_of(bk).min(k)
}

/// All dispatches, and the bytes of the scratch buffers ([`SCRATCH`]).
pub(super) fn dispatches(
    problem: &Problem,
    caps: &DeviceCaps,
    slabs: &[Slab],
    limit: u64,
) -> Result<(Vec<Dispatch>, [u64; SCRATCH.len()])> {
    let dtype = problem.dtype();
    let spec = |shader, consts: &[_]| KernelSpec::new(shader, dtype, None, consts);
    let (krp_spec, sum_spec) = (spec("khatri_rao", &[("WG", WG)]), spec("multiply_sum", &[("WG", WG)]));
    let gemm_spec = spec("gemm", &tuning::GEMM_TILE);
    let [(_, bm), (_, bn), ..] = tuning::GEMM_TILE;
    let mut all = Vec::new();
    let mut scratch = [0u64; SCRATCH.len()];
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
        let (mut partial, mut of_pieces) = (0, 0);
        for (index, slab) in slabs.iter().enumerate() {
            let sides = Sides::new(problem.mode, slab);
            let rows0 = slab.offsets[problem.mode] as u32;
            for k in pieces(sides.k, most) {
                // The sum of a product's pieces gets the weights, where there are several.
                let piece = piece(sides.m, width, k.len(), most);
                let count = k.len().div_ceil(piece);
                make_rows(&mut all, index, sides.inner, &k, u32::from(count == 1), Slot::KhatriRao)?;
                for m in pieces(sides.m, most) {
                    let (target, c_row0) = if sides.outer.is_some() {
                        (Slot::Partial(0), 0)
                    } else {
                        (Slot::G(block), rows0 + m.start as u32)
                    };
                    let [x, y] = fold_grid((m.len().div_ceil(bm as usize) * count) as u64, caps)?;
                    let accumulate = u32::from(sides.outer.is_none());
                    let own = count == 1;
                    let params = GemmParams {
                        m: m.len() as u32,
                        rank,
                        k: k.len() as u32,
                        a0: (m.start * sides.stride_m + k.start * sides.stride_k) as u32,
                        stride_m: sides.stride_m as u32,
                        stride_k: sides.stride_k as u32,
                        c_row0: if own { c_row0 } else { 0 },
                        accumulate: if own { accumulate } else { 0 },
                        grid_x: x,
                        group0: 0,
                        piece: piece as u32,
                        pad: 0,
                    };
                    all.push(Dispatch {
                        spec: gemm_spec.clone(),
                        params: Params::Gemm(params),
                        slots: vec![Slot::X(index), Slot::KhatriRao, if own { target } else { Slot::Pieces }],
                        grid: [x, y, width.div_ceil(bn as usize) as u32],
                        slab: index,
                    });
                    if !own {
                        of_pieces = of_pieces.max(bytes(count * m.len()));
                        let sum = ReduceParams {
                            rows: m.len() as u32,
                            columns4: rank / 4,
                            pieces: count as u32,
                            partial_rows: m.len() as u32,
                            partial_stride4: rank / 4,
                            stride4: rank / 4,
                            g_row0: c_row0,
                            column0: 0,
                            scale_row: problem.weights_row(),
                            grid_x: 0,
                            unscale: 1.0,
                            add: accumulate,
                        };
                        let slots = vec![Slot::Pieces, Slot::Factors(block), target];
                        all.push(add_pieces(sum, dtype, dtype, slots, index, caps)?);
                    }
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
        scratch[3] = scratch[3].max(of_pieces);
    }
    Ok((all, scratch))
}

/// The longest chain of additions: one side inside the product, the other outside, and one addition per piece.
pub(super) fn chain(problem: &Problem, slabs: &[Slab], limit: u64) -> u64 {
    let one = |slab: &Slab, width: usize| {
        let most = usize::try_from(limit / problem.dtype().bytes()).unwrap_or(usize::MAX) / width;
        let sides = Sides::new(problem.mode, slab);
        let length = sides.outer.map_or(0, |(length, ..)| length);
        let product = |k: Range<usize>| {
            let piece = piece(sides.m, width, k.len(), most);
            let count = k.len().div_ceil(piece);
            if count == 1 { piece } else { piece + reduce_chain(count) }
        };
        let added = sides.k.div_ceil(most) * length.max(1).div_ceil(most) * sides.m.div_ceil(most);
        (pieces(sides.k, most).map(product).sum::<usize>() + length + added) as u64
    };
    let block = |ends: &[usize]| slabs.iter().map(|slab| one(slab, column_stride(ends[1] - ends[0]))).sum();
    problem.columns.windows(2).map(block).max().unwrap_or(0)
}

/// Cuts `0..length` into even pieces of at most `most`.
fn pieces(length: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let count = length.div_ceil(most.max(1));
    (0..count).map(move |c| c * length / count..(c + 1) * length / count)
}
