//! Dims of a dense tensor and the one place where shapes are checked.

use crate::{Error, Result};
use std::ops::Deref;

/// Largest order (number of modes) supported.
///
/// ```
/// assert_eq!(polyad::MAX_ORDER, 8);
/// ```
pub const MAX_ORDER: usize = 8;

/// Dims of a dense tensor: order 1 to 8, no empty mode, a product that fits `usize`.
///
/// Derefs to its dims, so it can be passed where `&[usize]` is wanted.
///
/// ```
/// use polyad::Shape;
/// let shape = Shape::new(&[2, 3, 4]).unwrap();
/// assert_eq!((shape.left(1), shape.rows(1), shape.right(1)), (2, 3, 4));
/// assert_eq!(shape.len(), 24);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: Vec<usize>,
}

impl Shape {
    /// Checks dims.
    ///
    /// # Errors
    /// [`Error::Order`], [`Error::EmptyDim`] or [`Error::TooManyElements`].
    ///
    /// ```
    /// assert!(polyad::Shape::new(&[]).is_err());
    /// ```
    pub fn new(dims: &[usize]) -> Result<Self> {
        if dims.is_empty() || dims.len() > MAX_ORDER {
            return Err(Error::Order { found: dims.len(), max: MAX_ORDER });
        }
        if let Some(mode) = dims.iter().position(|&d| d == 0) {
            return Err(Error::EmptyDim { mode, dims: dims.into() });
        }
        let bytes = dims.iter().try_fold(8usize, |n, &d| n.checked_mul(d));
        if bytes.is_none_or(|b| b > isize::MAX as usize) {
            return Err(Error::TooManyElements { what: "a tensor", dims: dims.into() });
        }
        Ok(Self { dims: dims.into() })
    }

    /// The dims.
    ///
    /// ```
    /// assert_eq!(polyad::Shape::new(&[2, 3]).unwrap().dims(), [2, 3]);
    /// ```
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Number of modes.
    ///
    /// ```
    /// assert_eq!(polyad::Shape::new(&[2, 3]).unwrap().order(), 2);
    /// ```
    pub fn order(&self) -> usize {
        self.dims.len()
    }

    /// Number of entries: the product of the dims.
    ///
    /// ```
    /// assert_eq!(polyad::Shape::new(&[2, 3]).unwrap().len(), 6);
    /// ```
    #[allow(clippy::len_without_is_empty, reason = "a shape is never empty")]
    pub fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Product of the dims left of mode `n` (1 for the first mode).
    ///
    /// ```
    /// assert_eq!(polyad::Shape::new(&[2, 3, 4]).unwrap().left(2), 6);
    /// ```
    pub fn left(&self, n: usize) -> usize {
        self.dims[..n].iter().product()
    }

    /// The dim of mode `n`.
    ///
    /// ```
    /// assert_eq!(polyad::Shape::new(&[2, 3, 4]).unwrap().rows(1), 3);
    /// ```
    pub fn rows(&self, n: usize) -> usize {
        self.dims[n]
    }

    /// Product of the dims right of mode `n` (1 for the last mode).
    ///
    /// ```
    /// assert_eq!(polyad::Shape::new(&[2, 3, 4]).unwrap().right(0), 12);
    /// ```
    pub fn right(&self, n: usize) -> usize {
        self.dims[n + 1..].iter().product()
    }

    /// The index of the entry at a row-major position.
    ///
    /// ```
    /// assert_eq!(polyad::Shape::new(&[2, 3]).unwrap().index(4), [1, 1]);
    /// ```
    pub fn index(&self, position: usize) -> Vec<usize> {
        let mut rest = position;
        let mut index = vec![0; self.order()];
        for (i, &d) in index.iter_mut().zip(&self.dims).rev() {
            *i = rest % d;
            rest /= d;
        }
        index
    }

    /// Errors unless `mode` is one of the modes.
    ///
    /// # Errors
    /// [`Error::ModeOutOfRange`].
    ///
    /// ```
    /// assert!(polyad::Shape::new(&[2, 3]).unwrap().check_mode(2).is_err());
    /// ```
    pub fn check_mode(&self, mode: usize) -> Result<()> {
        if mode >= self.order() {
            return Err(Error::ModeOutOfRange { mode, order: self.order() });
        }
        Ok(())
    }

    /// Checks factor matrices (as rows and columns) and weights against this shape and returns the rank.
    ///
    /// # Errors
    /// [`Error::FactorCount`], [`Error::RankZero`], [`Error::FactorShape`] or [`Error::WeightsLength`].
    ///
    /// ```
    /// let shape = polyad::Shape::new(&[2, 3]).unwrap();
    /// assert_eq!(shape.check_factors(&[(2, 5), (3, 5)], None).unwrap(), 5);
    /// assert!(shape.check_factors(&[(2, 5), (4, 5)], None).is_err());
    /// ```
    pub fn check_factors(&self, factors: &[(usize, usize)], weights: Option<usize>) -> Result<usize> {
        if factors.len() != self.order() {
            return Err(Error::FactorCount { expected: self.order(), found: factors.len() });
        }
        let rank = factors[0].1;
        if rank == 0 {
            return Err(Error::RankZero);
        }
        for (mode, (&found, &rows)) in factors.iter().zip(&self.dims).enumerate() {
            if found != (rows, rank) {
                return Err(Error::FactorShape { mode, expected: (rows, rank), found });
            }
        }
        match weights {
            Some(found) if found != rank => Err(Error::WeightsLength { expected: rank, found }),
            _ => Ok(rank),
        }
    }
}

impl Deref for Shape {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.dims
    }
}
