//! Cases by name, random data that is the same on every machine, and the exact result on sampled entries.

use crate::AnyError;
use ndarray::{Array2, ArrayD};
use polyad::{Real, Shape};
use rayon::prelude::*;

/// `--case all`.
pub const CASES: [&str; 6] = ["cube1024", "160^4", "401x201x5x501", "60^5", "48x4800x4800", "2000x50x50"];
/// `--ranks all`.
pub const RANKS: [usize; 14] = [1, 4, 8, 10, 16, 32, 50, 64, 128, 200, 256, 512, 1024, 2000];
/// Most rows and columns of a result that are checked.
const SAMPLES: (usize, usize) = (8, 64);

/// Dims of a case: `cube1024`, `160^4` or `401x201x5x501`.
pub fn dims(case: &str) -> Result<Vec<usize>, AnyError> {
    let number = |text: &str| text.parse::<usize>().map_err(|error| format!("case {case}: {text:?}: {error}"));
    let parsed = match (case.strip_prefix("cube"), case.split_once('^')) {
        (Some(dim), _) => vec![number(dim)?; 3],
        (_, Some((dim, order))) => vec![number(dim)?; number(order)?.min(polyad::MAX_ORDER + 1)],
        _ => case.split('x').map(number).collect::<Result<_, _>>()?,
    };
    Ok(Shape::new(&parsed)?.to_vec())
}

/// Some rows and columns of an MTTKRP in f64, straight from its definition.
pub struct Exact {
    rows: Vec<usize>,
    columns: Vec<usize>,
    values: Array2<f64>,
}

/// Up to `most` of `0..count`, evenly spread, the first and the last among them.
fn spread(count: usize, most: usize) -> Vec<usize> {
    let samples = count.min(most);
    (0..samples).map(|s| s * (count - 1) / (samples - 1).max(1)).collect()
}

impl Exact {
    pub fn new<T: Real>(x: &ArrayD<T>, factors: &[Array2<T>], mode: usize) -> Result<Self, AnyError> {
        let shape = Shape::new(x.shape())?;
        let x = x.as_slice().ok_or("the tensor is not contiguous")?;
        let (rows, columns) = (spread(shape[mode], SAMPLES.0), spread(factors[mode].ncols(), SAMPLES.1));
        let mut values = Array2::zeros((rows.len(), columns.len()));
        let factors: Vec<Vec<f64>> = factors
            .iter()
            .map(|f| f.rows().into_iter().flat_map(|r| columns.iter().map(move |&c| r[c].f64())).collect())
            .collect();
        let mut outer: Vec<usize> = (0..shape.order()).filter(|&m| m != mode).collect();
        let inner = outer.pop();
        let fibers: usize = outer.iter().map(|&m| shape[m]).product();
        let chunk = fibers.div_ceil(64);
        let width = columns.len();
        for (&row, mut value) in rows.iter().zip(values.rows_mut()) {
            let parts: Vec<Vec<f64>> = (0..fibers.div_ceil(chunk))
                .into_par_iter()
                .map(|part| {
                    let (mut sum, mut fiber_sum, mut weight) = (vec![0.0; width], vec![0.0; width], vec![1.0; width]);
                    for fiber in part * chunk..fibers.min((part + 1) * chunk) {
                        weight.fill(1.0);
                        let (mut rest, mut at) = (fiber, row * shape.right(mode));
                        for &m in outer.iter().rev() {
                            let i = rest % shape[m];
                            rest /= shape[m];
                            at += i * shape.right(m);
                            weight.iter_mut().zip(&factors[m][i * width..]).for_each(|(w, f)| *w *= f);
                        }
                        match inner {
                            None => fiber_sum.fill(x[at].f64()),
                            Some(m) => {
                                fiber_sum.fill(0.0);
                                for (j, f) in factors[m].chunks(width).enumerate() {
                                    let v = x[at + j * shape.right(m)].f64();
                                    fiber_sum.iter_mut().zip(f).for_each(|(s, f)| *s += v * f);
                                }
                            }
                        }
                        sum.iter_mut().zip(&fiber_sum).zip(&weight).for_each(|((s, f), w)| *s += f * w);
                    }
                    sum
                })
                .collect();
            parts.iter().for_each(|part| value.iter_mut().zip(part).for_each(|(v, p)| *v += p));
        }
        Ok(Self { rows, columns, values })
    }

    /// Frobenius norm of the difference over that of the exact values, both over the sampled entries.
    pub fn relative_error<T: Real>(&self, g: &Array2<T>) -> f64 {
        let (mut difference, mut norm) = (0.0, 0.0);
        for (&i, exact) in self.rows.iter().zip(self.values.rows()) {
            for (&r, &e) in self.columns.iter().zip(exact) {
                difference += (g[[i, r]].f64() - e).powi(2);
                norm += e * e;
            }
        }
        (difference / norm).sqrt()
    }
}
