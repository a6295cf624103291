//! Where CP-ALS starts.

use super::normal_equations::{length, normalize};
use super::nvecs::nvecs;
use super::starts::side_by_side;
use super::{CpAlsOptions, Init};
use crate::{CpTensor, Error, Real, Result, Shape};
use ndarray::{Array1, Array2, ArrayViewD, Axis};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

/// A start as CP-ALS works with it: `sum_r weights[r] * factors[0][.., r] o factors[1][.., r] o ..`.
pub(super) struct Start<T> {
    /// Columns of unit 2-norm. Those of fixed modes are scaled to about that by powers of two, which changes no digit.
    pub factors: Vec<Array2<T>>,
    /// Weights for these factors.
    pub weights: Array1<f64>,
    /// The factors of fixed modes as they were given.
    pub fixed: Vec<Option<Array2<T>>>,
    /// The product of the powers of two that were taken out of a component's fixed columns.
    pub powers: Array1<f64>,
}

/// The start that the options ask for. The options' own model is left as it is.
pub(super) fn start<T: Real>(x: ArrayViewD<'_, T>, shape: &Shape, options: &CpAlsOptions) -> Result<Start<T>> {
    let (mut weights, columns) = columns(&x, shape, options)?;
    let mut powers = Array1::ones(weights.len());
    let (mut factors, mut fixed) = (Vec::new(), Vec::new());
    for (mode, factor) in columns.into_iter().enumerate() {
        if options.fixed.contains(&mode) {
            let given = factor.mapv(T::of);
            if let Some(((i, r), _)) = given.indexed_iter().find(|(_, v)| !v.is_finite()) {
                let (what, index) = (format!("factor {mode} of the start"), vec![i, r]);
                return Err(Error::Overflow { what, dtype: T::DTYPE.name(), index });
            }
            let power = given.map_axis(Axis(0), |column| match length(column) {
                0.0 => 1.0,
                length => length.log2().round().clamp(-1000.0, 1000.0).exp2(),
            });
            factors.push((given.mapv(Real::f64) / &power).mapv(T::of));
            fixed.push(Some(given));
            powers *= &power;
        } else {
            let (norms, unit) = normalize(factor)?;
            weights *= &norms;
            factors.push(unit);
            fixed.push(None);
        }
    }
    Ok(Start { weights: weights * &powers, factors, fixed, powers })
}

/// Weights and factors in f64 of all starts, side by side.
fn columns<T: Real>(
    x: &ArrayViewD<'_, T>,
    shape: &Shape,
    options: &CpAlsOptions,
) -> Result<(Array1<f64>, Vec<Array2<f64>>)> {
    let parts = (0..options.starts).map(|start| one(x, shape, options, start)).collect::<Result<Vec<_>>>()?;
    let mode = |mode: usize| {
        let parts: Vec<Array2<f64>> = parts.iter().map(|(_, factors)| factors[mode].clone()).collect();
        side_by_side(&parts)
    };
    let weights = parts.iter().flat_map(|(weights, _)| weights).copied().collect();
    Ok((weights, (0..shape.order()).map(mode).collect()))
}

/// Weights and factors of one start: the first is what `init` says, the others are random.
fn one<T: Real>(
    x: &ArrayViewD<'_, T>,
    shape: &Shape,
    options: &CpAlsOptions,
    start: usize,
) -> Result<(Array1<f64>, Vec<Array2<f64>>)> {
    let rank = options.rank;
    let rng = |seed: u64| ChaCha8Rng::seed_from_u64(seed.wrapping_add(start as u64));
    let random = |mut rng: ChaCha8Rng| -> Vec<Array2<f64>> {
        shape.iter().map(|&rows| Array2::from_shape_simple_fn((rows, rank), || rng.random())).collect()
    };
    let mut factors = match &options.init {
        Init::Random { seed } => random(rng(*seed)),
        Init::Normal { seed } => {
            let mut rng = rng(*seed);
            let mut numbers = || normal(&mut rng);
            shape.iter().map(|&rows| Array2::from_shape_simple_fn((rows, rank), &mut numbers)).collect()
        }
        Init::Nvecs { seed } if start == 0 => {
            let mut rng = rng(*seed);
            (0..shape.order()).map(|n| nvecs(x, shape, n, rank, &mut rng)).collect::<Result<Vec<_>>>()?
        }
        Init::Nvecs { seed } => random(rng(*seed)),
        Init::Model(model) => {
            check_model(model, shape, options)?;
            if start == 0 {
                return Ok((model.weights().clone(), model.factors().to_vec()));
            }
            // What is fixed is the same for all.
            let mut factors = random(rng(0));
            options.fixed.iter().for_each(|&mode| factors[mode].assign(&model.factors()[mode]));
            factors
        }
    };
    if matches!(options.init, Init::Nvecs { .. } | Init::Normal { .. }) {
        options.nonneg.iter().for_each(|&mode| longer_part(&mut factors[mode]));
    }
    Ok((Array1::ones(rank), factors))
}

/// A number from the standard normal distribution, by the polar method (Marsaglia and Bray, SIAM Review 6, 1964).
fn normal(rng: &mut ChaCha8Rng) -> f64 {
    loop {
        let (u, v) = (2.0 * rng.random::<f64>() - 1.0, 2.0 * rng.random::<f64>() - 1.0);
        let square = u * u + v * v;
        if square > 0.0 && square < 1.0 {
            return u * (-2.0 * square.ln() / square).sqrt();
        }
    }
}

/// Whether sweeps can start from this model.
fn check_model(model: &CpTensor<f64>, shape: &Shape, options: &CpAlsOptions) -> Result<()> {
    if model.dims() != shape.dims() {
        let (expected, found) = (shape.dims().to_vec(), model.dims());
        return Err(Error::DimsMismatch { what: "the initial model", expected, found });
    }
    if model.rank() != options.rank {
        let (value, requirement) = (model.rank().to_string(), format!("the rank asked for is {}", options.rank));
        return Err(Error::Option { name: "rank of the initial model", value, requirement });
    }
    for &mode in &options.nonneg {
        if let Some(((i, r), v)) = model.factors()[mode].indexed_iter().find(|(_, v)| **v < 0.0) {
            let value = format!("a model whose factor {mode} has {v} at index ({i}, {r})");
            let requirement = "that mode is to have no negative entry".into();
            return Err(Error::Option { name: "init", value, requirement });
        }
    }
    // A zero factor stays zero, unless it is the first to be replaced: by what the others allow.
    let zero = |mode: usize| model.factors()[mode].iter().all(|&v| v == 0.0);
    let Some(first) = (0..shape.order()).find(|mode| !options.fixed.contains(mode)) else { return Ok(()) };
    let counts = |&mode: &usize| mode != first || shape.order() == 1;
    if let Some(mode) = (0..shape.order()).filter(counts).find(|&mode| zero(mode)) {
        let value = format!("a model whose factor {mode} is zero");
        let requirement = "every update would be zero: start from something else".into();
        return Err(Error::Option { name: "init", value, requirement });
    }
    Ok(())
}

/// Of each column the positive entries, or the magnitudes of the negative ones if these are the longer part.
fn longer_part(factor: &mut Array2<f64>) {
    for mut column in factor.columns_mut() {
        let square = |sign: f64| column.iter().map(|v| (sign * v).max(0.0).powi(2)).sum::<f64>();
        let sign = if square(-1.0) > square(1.0) { -1.0 } else { 1.0 };
        column.mapv_inplace(|v| (sign * v).max(0.0));
    }
}
