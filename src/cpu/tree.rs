//! Products of the tensor with the factors of a group of modes, kept for the others: see `plan/tree.rs`.
//!
//! With X seen as L x C x M (dims left of the group, its own, right of it), `T[l, m, r] = sum_c X[l, c, m] KR[c, r]` is one
//! matrix product where L or M is 1, else one for every l. An MTTKRP of a mode that is left follows from T by
//! `G[i, r] = sum over the other kept indices o of T[i, o, r] prod A_m[o_m, r]`.
//! Order: that of faer's product on one thread, then chains over up to BLOCK o in each part, and over these, parts in
//! order: the same bits for any number of threads.

use super::gemm::{khatri_rao, repeatable_product, scratch};
use super::job::{Job, add, advance, in_given_parts};
use super::simd::Isa;
use super::{Cpu, mismatch};
use crate::plan::{FIXED_PARTS, Kept, TreePlan};
use crate::{MAX_ORDER, Real, Result, Shape};
use faer::MatRef;
use ndarray::{Array2, ArrayViewMut2, CowArray, IxDyn};
use pulp::{Simd, WithSimd};
use rayon::prelude::*;
use std::ops::Range;

/// The kept product, and which it is.
pub(crate) struct CpuTree<'a, T> {
    cpu: &'a Cpu,
    plan: &'a TreePlan,
    shape: Shape,
    x: &'a [T],
    t: Vec<T>,
    kept: Kept,
}

impl<'a, T: Real> CpuTree<'a, T> {
    /// Room for the plan's products; `None` where it keeps none.
    pub fn new(cpu: &'a Cpu, plan: &'a TreePlan, x: &'a CowArray<'_, T, IxDyn>, rank: usize) -> Result<Option<Self>> {
        if plan.groups().is_empty() {
            return Ok(None);
        }
        let shape = Shape::new(x.shape())?;
        let x = x.as_slice().ok_or_else(|| mismatch("the tensor is not contiguous"))?;
        let groups = plan.groups().iter().enumerate().filter(|&(g, _)| plan.keeps(g));
        let rows = groups.map(|(_, group)| shape.len() / shape[group.clone()].iter().product::<usize>()).max();
        let t = scratch("polyad.cpu.tree", &[rows.unwrap_or(0), rank])?;
        Ok(Some(Self { cpu, plan, shape, x, t, kept: Kept::default() }))
    }

    /// The MTTKRP of a mode with unit weights and the passes over the tensor that it took; `None` where no product is
    /// kept for that mode.
    pub fn mttkrp(&mut self, factors: &[Array2<T>], mode: usize, mut g: ArrayViewMut2<'_, T>) -> Result<Option<usize>> {
        let Some((index, at_hand)) = self.kept.group(self.plan, mode) else { return Ok(None) };
        let group = self.plan.groups()[index].clone();
        let slices: Option<Vec<&[T]>> = factors.iter().map(|f| f.as_slice()).collect();
        let factors = slices.ok_or_else(|| mismatch("a factor is not contiguous"))?;
        let g = g.as_slice_mut().ok_or_else(|| mismatch("the output is not contiguous"))?;
        let rank = g.len() / self.shape[mode];
        let job = Job { x: self.x, shape: &self.shape, factors, mode, rank, tile: 1, block: rank };
        let (t, kept) = (&mut self.t, &mut self.kept);
        self.cpu.install(|| {
            if !at_hand {
                *kept = Kept::default();
                contract(&job, &group, t)?;
                *kept = Kept::of(index);
            }
            g.fill(T::zero());
            multi_ttv(&job, &group, t, g);
            Ok(Some(usize::from(!at_hand)))
        })
    }

    /// The group whose product is at hand.
    pub fn kept(&self) -> Option<usize> {
        self.kept.at_hand()
    }

    /// Has the product of this group made first.
    pub fn keep(&mut self, group: usize) {
        self.kept = Kept::again(self.plan, group);
    }

    /// A mode's factor has changed.
    pub fn changed(&mut self, mode: usize) {
        self.kept.changed(self.plan, mode);
    }
}

/// `t[l, m, :] = sum_c X[l, c, m] KR[c, :]`.
fn contract<T: Real>(job: &Job<'_, T>, group: &Range<usize>, t: &mut [T]) -> Result<()> {
    let dims = job.shape.dims();
    let [left, inner, right] =
        [0..group.start, group.clone(), group.end..dims.len()].map(|modes| dims[modes].iter().product::<usize>());
    let kr = khatri_rao(job, group.clone())?;
    let t = &mut t[..left * right * job.rank];
    if right == 1 {
        t.fill(T::zero());
        repeatable_product(t, MatRef::from_row_major_slice(job.x, left, inner), &kr, job.rank);
    } else {
        let (rows, slice) = (right * job.rank, inner * right);
        let one = |(t, x): (&mut [T], &[T])| {
            t.fill(T::zero());
            repeatable_product(t, MatRef::from_row_major_slice(x, inner, right).transpose(), &kr, job.rank);
        };
        t.par_chunks_mut(rows).zip(job.x.par_chunks(slice)).for_each(one);
    }
    Ok(())
}

/// Leaves the job's MTTKRP in `g`, which is zero before.
fn multi_ttv<T: Real>(job: &Job<'_, T>, group: &Range<usize>, t: &[T], g: &mut [T]) {
    let kept: Vec<usize> = (0..job.shape.order()).filter(|m| !group.contains(m)).collect();
    let others: Vec<usize> = kept.iter().copied().filter(|&m| m != job.mode).collect();
    // Rows of T from one index of a kept mode to the next.
    let apart = |m: usize| kept.iter().filter(|&&k| k > m).map(|&k| job.shape[k]).product::<usize>();
    let (dims, strides): (Vec<_>, Vec<_>) = others.iter().map(|&m| (job.shape[m], apart(m))).unzip();
    let (others, dims, strides, row_stride) = (&others[..], &dims[..], &strides[..], apart(job.mode));
    let isa = Isa::best::<T>(job.rank);
    // Parts of the rows change no bit.
    let parts = (job.shape[job.mode] < 4 * FIXED_PARTS).then_some(FIXED_PARTS);
    in_given_parts(g, job.rank, dims.iter().product(), parts, |rows, items, sum| {
        isa.run(Sums { job, t, others, dims, strides, row_stride, rows, items, sum });
    });
}

/// Columns summed in registers.
const LANES: usize = 16;

/// Most of the other indices whose factor rows are multiplied beforehand.
const BLOCK: usize = 64;

/// Rows, and indices of the other kept modes, of one thread.
struct Sums<'a, T> {
    job: &'a Job<'a, T>,
    t: &'a [T],
    others: &'a [usize],
    dims: &'a [usize],
    strides: &'a [usize],
    row_stride: usize,
    rows: Range<usize>,
    items: Range<usize>,
    sum: &'a mut [T],
}

impl<T: Real> WithSimd for Sums<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { job, t, others, dims, strides, row_stride, rows, items, sum } = self;
        let (rank, columns) = (job.rank, 0..job.rank);
        let mut index = [0; MAX_ORDER];
        let index = &mut index[..dims.len()];
        let mut rest = items.start;
        for (i, &d) in index.iter_mut().zip(dims).rev() {
            (*i, rest) = (rest % d, rest / d);
        }
        let mut products = vec![T::zero(); BLOCK.min(items.len()) * rank];
        let mut places = [0; BLOCK];
        for first in items.clone().step_by(BLOCK) {
            let count = BLOCK.min(items.end - first);
            for (product, place) in products.chunks_mut(rank).zip(&mut places).take(count) {
                product.fill(<T as num_traits::One>::one());
                *place = 0;
                for ((&m, &i), &stride) in others.iter().zip(&*index).zip(strides) {
                    product.iter_mut().zip(job.row(m, i, &columns)).for_each(|(p, &a)| *p *= a);
                    *place += i * stride;
                }
                advance(index, dims);
            }
            let (products, places) = (&products[..count * rank], &places[..count]);
            if row_stride == 1 {
                // Rows are neighbours in T.
                for (product, place) in products.chunks(rank).zip(places) {
                    let t = &t[(place + rows.start) * rank..][..rows.len() * rank];
                    for (sum, t) in sum.chunks_mut(rank).zip(t.chunks(rank)) {
                        sum.iter_mut().zip(t).zip(product).for_each(|((sum, &t), &p)| *sum += t * p);
                    }
                }
                continue;
            }
            for (i, sum) in rows.clone().zip(sum.chunks_mut(rank)) {
                for (lane, sum) in sum.chunks_mut(LANES).enumerate() {
                    let mut total = [T::zero(); LANES];
                    for (product, place) in products.chunks(rank).zip(places) {
                        let t = &t[(place + i * row_stride) * rank + lane * LANES..][..sum.len()];
                        let product = &product[lane * LANES..][..sum.len()];
                        total.iter_mut().zip(t).zip(product).for_each(|((total, &t), &p)| *total += t * p);
                    }
                    add(sum, &total[..sum.len()]);
                }
            }
        }
    }
}
