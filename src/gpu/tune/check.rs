//! Whether a tile gives the result that the built-in one gives, to the last bit where that can be.

use super::Problem;
use crate::plan::{MttkrpPlan, TileChoice};
use crate::{Error, Real, Result};
use ndarray::{Array2, ArrayD, IxDyn};

/// Dims of the problems whose sizes fit no tile, and whose runs are just short of whole steps. Where padding is so much
/// that the plan takes smaller tiles, a tile is checked on the second, whose rows are just short of whole tiles of any size.
pub(super) const ODD: [[usize; 3]; 2] = [[67, 61, 61], [255, 61, 255]];

/// A problem with what the built-in tile makes of it.
pub(super) struct Check<'a, T: Real> {
    problem: &'a Problem<'a, T>,
    expected: Array2<T>,
}

/// Errors unless the tile gives the result that the built-in one gave, on the first of the problems whose plan takes it.
pub(super) fn same<T: Real>(checks: &[Check<'_, T>], choice: TileChoice) -> Result<()> {
    for check in checks {
        let plan = check.problem.plan(choice, Some(choice.tile))?;
        if plan.tuning().is_some() {
            return check.same(&plan);
        }
    }
    let all: Vec<_> = checks.iter().map(|check| format!("{:?}", check.problem.dims)).collect();
    Err(Error::PlanMismatch { reason: format!("{} does not take it", all.join(" or ")) })
}

impl<'a, T: Real> Check<'a, T> {
    pub(super) fn new(problem: &'a Problem<'a, T>, regime: TileChoice) -> Result<Self> {
        Ok(Self { problem, expected: problem.result(&problem.plan(regime, None)?)? })
    }

    /// Errors unless the plan gives the expected result.
    fn same(&self, plan: &MttkrpPlan) -> Result<()> {
        let Self { problem, expected } = self;
        let wrong = |reason: String| Err(Error::PlanMismatch { reason });
        let g = problem.result(plan)?;
        let terms = (problem.dims.iter().product::<usize>() / g.nrows()) as f64;
        // Twice the bound of a single result: the products of long numbers stay below 2^24.
        let bound = 2.0 * (plan.chain() as f64 + 4.0) * T::epsilon().f64() * terms * LONG * LONG;
        for ((index, found), expected) in g.indexed_iter().zip(expected) {
            let most = if is_exact(index) { 0.0 } else { bound };
            if (found.f64() - expected.f64()).abs() > most {
                return wrong(format!("{found} at {index:?} of {:?} where {expected} is right", problem.dims));
            }
        }
        Ok(())
    }
}

// Whole numbers whose sums are exact in f32 in whatever order, so that results have to be equal to the last bit. Long
// ones have twelve bits, one more than a f16, so that both parts of a split number are used. Two long ones in a product
// are not exact: they meet where both the row and the column of the result have them.

/// Long numbers are smaller than this.
const LONG: f64 = 4096.0;

/// Whether an entry of the result has no product of two long numbers behind it.
fn is_exact((row, column): (usize, usize)) -> bool {
    row % 2 == 1 || column % 2 == 0
}

/// Twelve odd bits, or 1; of either sign.
fn whole<T: Real>(position: u64, long: bool) -> T {
    let mut z = position.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let magnitude = if long { LONG / 2.0 + ((z >> 20) % 1024) as f64 * 2.0 + 1.0 } else { 1.0 };
    T::of(if z >> 63 == 0 { magnitude } else { -magnitude })
}

/// Long where the indices of the first and of the last mode are both even: rows of either mode alternate.
pub(super) fn tensor<T: Real>(dims: &[usize; 3]) -> ArrayD<T> {
    let mut position = 0;
    ArrayD::from_shape_fn(IxDyn(dims), |index| {
        position += 1;
        whole(position, index[0] % 2 == 0 && index[2] % 2 == 0)
    })
}

/// Long in odd columns of the middle mode.
pub(super) fn factor<T: Real>(mode: usize, rows: usize, rank: usize) -> Array2<T> {
    let position = |i: usize, r: usize| (mode + 1) as u64 * 0x0100_0000_0000 + (i * rank + r) as u64;
    Array2::from_shape_fn((rows, rank), |(i, r)| whole(position(i, r), mode == 1 && r % 2 == 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Tile, TileColumns, TileKernel, TileLayout};
    use crate::reference::mttkrp_reference;
    use crate::{Backend, Gpu};

    /// What is claimed to be exact is: the f64 sums of the largest magnitudes met stay whole in f32.
    #[test]
    fn sums_of_exact_entries_stay_whole_in_f32() {
        let dims = [32, 32, 32];
        let x = tensor::<f64>(&dims);
        let factors: Vec<Array2<f64>> = (0..3).map(|m| factor(m, 32, 6)).collect();
        let views: Vec<_> = factors.iter().map(|f| f.view()).collect();
        for mode in [0, 2] {
            let g = mttkrp_reference(x.view(), None, &views, mode);
            for (index, v) in g.indexed_iter().filter(|(index, _)| is_exact(*index)) {
                // 256 times as many terms with random signs in the largest problem: 16 times as large.
                assert!(v.fract() == 0.0 && v.abs() * 16.0 < 2f64.powi(24), "{v} at {index:?}");
            }
        }
        assert!(x.iter().any(|v| v.abs() > LONG / 2.0) && x.iter().any(|v| v.abs() == 1.0));
    }

    /// The comparison bites: a last bit in an exact entry, and a wrong sign in another, reject a tile.
    #[test]
    fn a_wrong_result_rejects_a_tile() {
        let Ok(gpu) = Gpu::builder().no_tuning().build() else { return };
        let x = tensor::<f32>(&ODD[0]);
        let x = gpu.upload_tensor(x.view()).unwrap();
        let problem = Problem::new(&gpu, ODD[0], 29, &x).unwrap();
        let tile = Tile::new([32, 32, 16, 4, 4], 100);
        let choice = TileChoice::new(TileKernel::RegistersF32, TileLayout::Rows, TileColumns::UpTo32, tile);
        let mut check = [Check::new(&problem, choice).unwrap()];
        same(&check, choice).unwrap();
        let expected = check[0].expected.clone();
        for (index, change) in [([66, 28], 1.0), ([0, 2], 1.0), ([0, 1], expected[[0, 1]])] {
            check[0].expected = expected.clone();
            check[0].expected[index] += change;
            let error = same(&check, choice).unwrap_err().to_string();
            assert!(error.contains(&format!("at ({}, {})", index[0], index[1])), "{error}");
        }
    }
}
