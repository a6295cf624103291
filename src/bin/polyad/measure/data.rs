//! Random data that are the same on every machine.

use super::AnyError;
use ndarray::{Array2, ArrayD, IxDyn};
use polyad::Real;
use rayon::prelude::*;

/// Uniform in (-1, 1), by a hash of the position: the same on every machine.
fn noise<T: Real>(position: u64) -> T {
    let mut z = position.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    T::of((z >> 11) as f64 / (1u64 << 52) as f64 - 1.0)
}

/// A tensor of noise.
pub fn random<T: Real>(dims: &[usize], seed: u64) -> Result<ArrayD<T>, AnyError> {
    let len = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).ok_or("too many entries")?;
    let mut data = Vec::new();
    data.try_reserve_exact(len).map_err(|e| format!("a tensor of {len} entries: {e}"))?;
    // Written once, by all threads: zeros first, by one of them, would take longer than the numbers.
    (0..len).into_par_iter().map(|i| noise(i as u64 ^ seed << 48)).collect_into_vec(&mut data);
    Ok(ArrayD::from_shape_vec(IxDyn(dims), data)?)
}

/// Factors of noise.
pub fn factors<T: Real>(dims: &[usize], rank: usize) -> Result<Vec<Array2<T>>, AnyError> {
    let factor = |(m, &d): (usize, &usize)| Ok(random::<T>(&[d, rank], 7 + m as u64)?.into_dimensionality()?);
    dims.iter().enumerate().map(factor).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn threads_change_nothing() {
        use super::{noise, random};
        let all = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| random::<f32>(&[7, 1000, 3], 5).unwrap())
        };
        assert_eq!(all(1), all(3));
        assert!(all(2).iter().enumerate().all(|(i, &v)| v == noise::<f32>(i as u64 ^ 5 << 48)));
    }
}
