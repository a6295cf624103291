//! How alike two models are: the factor match score.

use super::CpTensor;
use super::scaled::Scaled;
use crate::{Error, Real, Result};
use ndarray::Array2;
use pathfinding::kuhn_munkres::kuhn_munkres;
use pathfinding::matrix::Matrix;

/// Congruences as integers for the assignment problem. Sums over 2^22 components fit i64.
const SCALE: f64 = (1u64 << 40) as f64;

/// Options of [`CpTensor::score_with`].
///
/// ```
/// let options = polyad::ScoreOptions::default().weight_penalty(false);
/// assert!(!options.weight_penalty);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScoreOptions {
    /// Whether a difference in weights lowers the score (true).
    pub weight_penalty: bool,
}

impl Default for ScoreOptions {
    fn default() -> Self {
        Self { weight_penalty: true }
    }
}

impl ScoreOptions {
    /// Whether a difference in weights lowers the score.
    ///
    /// ```
    /// assert!(polyad::ScoreOptions::default().weight_penalty(true).weight_penalty);
    /// ```
    pub fn weight_penalty(mut self, on: bool) -> Self {
        self.weight_penalty = on;
        self
    }
}

/// What [`CpTensor::score`] found. The vectors have one entry per component of the model of smaller rank (`self` where
/// the ranks are equal).
///
/// ```
/// use ndarray::{array, Array1};
/// let model = polyad::CpTensor::new(Array1::ones(2), vec![array![[1.0, 0.0], [0.0, 1.0]]]).unwrap();
/// let score = model.score(&model).unwrap();
/// assert_eq!((score.score, score.permutation), (1.0, vec![0, 1]));
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Score {
    /// Mean over the matched pairs of `penalty * |congruence|`: 1 for the same model, 0 for orthogonal ones.
    pub score: f64,
    /// `permutation[r]` is the component of the model of larger rank that component `r` of the other is matched with.
    pub permutation: Vec<usize>,
    /// Cosine of each matched pair of rank-one tensors: the product over modes of the cosines of the columns, and of the
    /// signs of the weights. Flips in pairs cancel; -1 is the same component with the sign of the whole reversed.
    pub congruences: Vec<f64>,
    /// `1 - |l1 - l2| / max(l1, l2)` for the weights of each matched pair, whether or not the score counts it.
    pub penalties: Vec<f64>,
}

impl<T: Real> CpTensor<T> {
    /// Factor match score with the weight penalty: how alike two models of the same dims are, from 0 to 1.
    ///
    /// Both models are taken with unit columns and weights l >= 0 (neither is changed). A pair of components scores
    /// `(1 - |l1 - l2| / max(l1, l2)) * prod_n |cos(a_n, b_n)|`, and the score is the mean over the matching that makes
    /// it largest (the Hungarian method, not a greedy choice). It is Tensor Toolbox's `score`.
    ///
    /// Signs: only the magnitude of each cosine counts, so flips in pairs, which change nothing, cost nothing;
    /// [`Score::congruences`] keeps the sign of the whole component. A zero column has cosine 0 with everything.
    ///
    /// Ranks may differ, either way round: every component of the model of smaller rank is matched and the mean is over
    /// these; further components of the other cost nothing.
    ///
    /// # Errors
    /// [`Error::DimsMismatch`] where the dims differ.
    ///
    /// ```
    /// use ndarray::array;
    /// use polyad::CpTensor;
    /// let a = CpTensor::new(array![2.0, 1.0], vec![array![[1.0, 0.0], [0.0, 1.0]], array![[1.0, 1.0]]]).unwrap();
    /// let b = CpTensor::new(array![1.0, 4.0], vec![array![[0.0, 1.0], [1.0, 0.0]], array![[1.0, 1.0]]]).unwrap();
    /// let score = a.score(&b).unwrap();
    /// assert_eq!(score.permutation, [1, 0]);
    /// assert_eq!(score.penalties, [0.5, 1.0]);
    /// assert_eq!(score.score, 0.75);
    /// ```
    pub fn score(&self, other: &Self) -> Result<Score> {
        self.score_with(other, &ScoreOptions::default())
    }

    /// [`score`](Self::score) with options.
    ///
    /// # Errors
    /// [`Error::DimsMismatch`] where the dims differ.
    ///
    /// ```
    /// use ndarray::array;
    /// use polyad::{CpTensor, ScoreOptions};
    /// let a = CpTensor::new(array![1.0], vec![array![[1.0], [2.0]]]).unwrap();
    /// let b = CpTensor::new(array![9.0], vec![array![[1.0], [2.0]]]).unwrap();
    /// let score = a.score_with(&b, &ScoreOptions::default().weight_penalty(false)).unwrap();
    /// assert!((score.score - 1.0).abs() < 1e-15);
    /// ```
    pub fn score_with(&self, other: &Self, options: &ScoreOptions) -> Result<Score> {
        let (expected, found) = (self.dims(), other.dims());
        if expected != found {
            return Err(Error::DimsMismatch { what: "the other model", expected, found });
        }
        let (few, many) = if self.rank() <= other.rank() { (self, other) } else { (other, self) };
        let (few, many) = (Scaled::new(few).into_unit(), Scaled::new(many).into_unit());

        let size = (few.weights.len(), many.weights.len());
        let sign = |r: usize, s: usize| few.weights[r].sign() * many.weights[s].sign();
        let mut congruences = Array2::from_shape_fn(size, |(r, s)| sign(r, s));
        for (a, b) in few.columns.iter().zip(&many.columns) {
            congruences *= &a.t().dot(b).mapv(|c| c.clamp(-1.0, 1.0));
        }
        let penalties = Array2::from_shape_fn(size, |(r, s)| few.weights[r].ratio(many.weights[s]));
        let counted = |r: usize, s: usize| if options.weight_penalty { penalties[[r, s]] } else { 1.0 };
        let value = |r: usize, s: usize| counted(r, s) * congruences[[r, s]].abs();

        let integers = Matrix::from_fn(size.0, size.1, |(r, s)| (value(r, s) * SCALE).round() as i64);
        let (_, permutation) = kuhn_munkres(&integers);
        let pairs = || permutation.iter().copied().enumerate();
        Ok(Score {
            score: pairs().map(|(r, s)| value(r, s)).sum::<f64>() / size.0 as f64,
            congruences: pairs().map(|p| congruences[p]).collect(),
            penalties: pairs().map(|p| penalties[p]).collect(),
            permutation: permutation.clone(),
        })
    }
}
