//! The comparison that every kernel of every backend has to stand, and deterministic test data.

#![allow(dead_code, reason = "each test binary uses a part of it")]

pub mod devices;
pub mod known;
pub mod wrapped;

use ndarray::{Array1, Array2, ArrayD, ArrayView1, ArrayView2, ArrayViewD, IxDyn, Zip};
use polyad::Real;
use polyad::reference::{mttkrp_reference, mttkrp_scale};

/// The f64 reference of one MTTKRP, and its scale: the same of absolute values.
pub struct Reference {
    pub g: Array2<f64>,
    pub scale: Array2<f64>,
    /// Additions behind each of its entries.
    pub chain: usize,
    pub order: usize,
}

impl Reference {
    /// From operands of the kernel's own dtype, taken over exactly.
    pub fn new<T: Real>(
        x: ArrayViewD<'_, T>,
        weights: Option<ArrayView1<'_, T>>,
        factors: &[ArrayView2<'_, T>],
        mode: usize,
    ) -> Self {
        let (chain, order) = (x.len() / x.shape()[mode], x.ndim());
        let x = x.mapv(Real::f64);
        let weights = weights.map(|w| w.mapv(Real::f64));
        let weights = weights.as_ref().map(|w| w.view());
        let factors: Vec<Array2<f64>> = factors.iter().map(|f| f.mapv(Real::f64)).collect();
        let factors: Vec<_> = factors.iter().map(|f| f.view()).collect();
        let g = mttkrp_reference(x.view(), weights, &factors, mode);
        Self { g, scale: mttkrp_scale(x.view(), weights, &factors, mode), chain, order }
    }
}

/// Largest share of the error bound that an entry of `g` takes; above 1 it is wrong, and NaN counts as infinity.
///
/// Claim: `|g - exact| <= (K + d + 1) eps S` entry by entry, S being the scale, d the order (d - 1 products and the
/// weight), K = `chain` the longest chain of additions of the method, eps the spacing of T at 1. Each rounding is at
/// most eps / 2, so there is room for the second-order terms and no free constant. The reference is itself computed in
/// f64, and is off by at most the same formula with its own chain and the f64 eps, which is allowed for: for f32 it is
/// nothing, for f64 it is as much as the kernel's own.
pub fn share_of_bound<T: Real>(g: ArrayView2<'_, T>, reference: &Reference, chain: usize, order: usize) -> f64 {
    assert_eq!(g.dim(), reference.g.dim(), "shape of G");
    let eps = <T as num_traits::Float>::epsilon().f64();
    let own: f64 = (chain + order + 1) as f64 * eps;
    let its: f64 = (reference.chain + reference.order + 1) as f64 * f64::EPSILON;
    let mut largest = 0f64;
    Zip::from(g).and(&reference.g).and(&reference.scale).for_each(|&g, &expected, &scale| {
        let (error, bound) = ((g.f64() - expected).abs(), (own + its) * scale);
        let share = if error == 0.0 { 0.0 } else { error / bound };
        largest = if share.is_nan() { f64::INFINITY } else { share.max(largest) };
    });
    largest
}

/// Panics with `what` unless `g` is within the bound; returns the share of it.
pub fn assert_within_bound<T: Real>(g: ArrayView2<'_, T>, reference: &Reference, chain: usize, what: &str) -> f64 {
    let share = share_of_bound(g, reference, chain, reference.order);
    assert!(share <= 1.0, "{what}: error is {share} of its bound\ngot {g}\nexpected {}", reference.g);
    share
}

/// Reproducible numbers in (-1, 1) with many bits set, none of them zero.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let magnitude = ((self.0 >> 33) as f64 + 0.5) / (1u64 << 31) as f64;
        if self.0 >> 32 & 1 == 0 { magnitude } else { -magnitude }
    }

    pub fn tensor<T: Real>(&mut self, dims: &[usize]) -> ArrayD<T> {
        ArrayD::from_shape_simple_fn(IxDyn(dims), || T::of(self.next()))
    }

    pub fn matrix<T: Real>(&mut self, rows: usize, columns: usize) -> Array2<T> {
        Array2::from_shape_simple_fn((rows, columns), || T::of(self.next()))
    }

    pub fn vector<T: Real>(&mut self, len: usize) -> Array1<T> {
        Array1::from_shape_simple_fn(len, || T::of(self.next()))
    }
}
