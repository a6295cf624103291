//! Every instruction set that this machine has, every walk and every cut, the portable kernels among them, against the
//! f64 definition.

use super::fused;
use crate::cpu::job::Job;
use crate::cpu::simd::Isa;
use crate::plan::{Cut, DeviceCaps, MttkrpPlan, PlanOptions, Walk};
use crate::reference::{mttkrp_reference, mttkrp_scale};
use crate::{Real, Shape};
use ndarray::{Array2, ArrayD, IxDyn};

/// Numbers in (-1, 1) that are the same in every run.
fn noise<T: Real>(seed: &mut u64) -> T {
    *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    T::of((*seed >> 11) as f64 / (1u64 << 52) as f64 - 1.0)
}

/// For every walk, cut and instruction set the largest share of the bound `(K + d + 1) eps S`, K = N / I_n; the smallest
/// and the largest of those. With `perturb` an operand is off by a thousandth.
fn shares<T: Real>(dims: &[usize], rank: usize, mode: usize, perturb: bool) -> (f64, f64) {
    let shape = Shape::new(dims).unwrap();
    let mut seed = (shape.len() * 31 + rank) as u64;
    let x = ArrayD::from_shape_simple_fn(IxDyn(dims), || noise::<T>(&mut seed));
    let factors: Vec<Array2<T>> =
        dims.iter().map(|&d| Array2::from_shape_simple_fn((d, rank), || noise::<T>(&mut seed))).collect();
    let exact: Vec<Array2<f64>> = factors.iter().map(|f| f.mapv(Real::f64)).collect();
    let views: Vec<_> = exact.iter().map(|f| f.view()).collect();
    let reference = mttkrp_reference(x.mapv(Real::f64).view(), None, &views, mode);
    let scale = mttkrp_scale(x.mapv(Real::f64).view(), None, &views, mode);
    let chain = shape.len() / shape.rows(mode) + dims.len() + 1;
    let mut operand = factors.clone();
    if perturb {
        let other = usize::from(mode == 0);
        operand[other].mapv_inplace(|v| v * T::of(1.0 + 1e-3));
    }
    let plan = MttkrpPlan::new(dims, mode, rank, &PlanOptions::default().dtype(T::DTYPE), &DeviceCaps::cpu(1)).unwrap();
    let slices = operand.iter().map(|f| f.as_slice().unwrap()).collect();
    let job = Job::new(&plan, x.as_slice().unwrap(), slices);
    let (mut least, mut most) = (f64::INFINITY, 0f64);
    let share = |walk: &Walk, isa| {
        let empty = if walk.once() { T::of(f64::NAN) } else { T::zero() };
        let mut g = Array2::<T>::from_elem((shape.rows(mode), rank), empty);
        fused(&job, walk, isa, g.as_slice_mut().unwrap());
        let each = g.iter().zip(&reference).zip(&scale).map(|((g, r), s)| {
            let bound = chain as f64 * <T as num_traits::Float>::epsilon().f64() * s;
            let difference = (g.f64() - r).abs();
            let share = if difference == 0.0 { 0.0 } else { difference / bound };
            if share.is_nan() { f64::INFINITY } else { share }
        });
        each.fold(0.0, f64::max)
    };
    let threads = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    for walk in Walk::all(&shape, mode, rank, T::DTYPE).chain(plan.walk().cloned()) {
        for (step, columns) in [(walk.step, walk.columns), (5, 32)] {
            for (cut, parts, pieces) in [
                (walk.cut, walk.parts, walk.pieces),
                (Cut::Sum, 1, 5),
                (Cut::Before, 3, 1),
                (Cut::After, 3, 2),
                (Cut::Sum, 3, 4),
            ] {
                let pieces = pieces.min(walk.rows);
                let walk = Walk { step, columns, cut, parts, pieces, ..walk.clone() };
                for isa in Isa::all() {
                    let share = threads.install(|| share(&walk, isa));
                    (least, most) = (least.min(share), most.max(share));
                }
            }
        }
    }
    (least, most)
}

/// Shapes with sizes around the tiles of 2, 3, 4, 6 and 8 rows.
const SHAPES: [&[usize]; 15] = [
    &[3, 70, 2],
    &[3, 5, 40],
    &[2, 33, 4],
    &[1, 1],
    &[2, 3],
    &[9, 17],
    &[33, 5],
    &[8, 6, 7],
    &[3, 25, 2],
    &[13, 1, 11],
    &[5, 4, 3, 6],
    &[2, 9, 1, 3],
    &[3, 2, 3, 2, 4],
    &[2, 3, 1, 2, 2, 3],
    &[2, 1, 2, 3, 2, 1, 2, 2],
];

fn all<T: Real>() {
    let mut worst = 0f64;
    for (number, dims) in SHAPES.iter().enumerate() {
        // Around whole vectors and groups of them, a part of the list for each shape.
        let ranks = [1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 48, 49, 65, 97];
        for rank in ranks.into_iter().skip(number % 3).step_by(3) {
            for mode in 0..dims.len() {
                let (_, share) = shares::<T>(dims, rank, mode, false);
                assert!(share <= 1.0, "{} {dims:?} R {rank} mode {mode}: {share} of the bound", T::DTYPE);
                worst = worst.max(share);
            }
        }
    }
    println!("{}: at most {worst:.3} of the bound", T::DTYPE);
}

#[test]
fn every_kernel_agrees_with_the_definition_in_f32() {
    all::<f32>();
}

#[test]
fn every_kernel_agrees_with_the_definition_in_f64() {
    all::<f64>();
}

/// Rows of the result that stay in a cache while other modes run, and some more: the loop over such groups of rows has a
/// second step for each instruction set.
#[test]
fn groups_of_resident_rows_agree_with_the_definition() {
    for (dims, rank, mode) in [(&[3, 700, 2][..], 97, 1), (&[2, 3, 350], 193, 2)] {
        assert!(shares::<f32>(dims, rank, mode, false).1 <= 1.0, "{dims:?}");
        assert!(shares::<f64>(dims, rank, mode, false).1 <= 1.0, "{dims:?}");
    }
}

/// By every walk, every cut and every instruction set.
#[test]
fn an_operand_that_is_off_is_noticed() {
    for (dims, rank, mode) in [(&[8, 6, 7][..], 9, 1), (&[8, 6, 7], 9, 0), (&[5, 4, 3, 6], 33, 2)] {
        assert!(shares::<f32>(dims, rank, mode, true).0 > 1.0, "{dims:?} mode {mode}");
        assert!(shares::<f64>(dims, rank, mode, true).0 > 1.0, "{dims:?} mode {mode}");
    }
}
