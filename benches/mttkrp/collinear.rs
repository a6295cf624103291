//! Sweeps that CP-ALS needs on data whose components are nearly parallel, with and without the line search.

use crate::AnyError;
use crate::measure::data;
use ndarray::{Array1, Array2, ArrayD, s};
use polyad::{CpAlsOptions, CpTensor, Device, Init, cp_als};
use std::time::Instant;

/// What the model's relative error has to come down to.
const ERROR: f64 = 1e-8;

/// Starts.
const SEEDS: u64 = 5;

/// More sweeps than this are not tried.
const MOST: usize = 1 << 14;

/// A model of that rank whose columns have about that cosine in every mode.
fn tensor(dims: &[usize], rank: usize, cosine: f64) -> Result<ArrayD<f64>, AnyError> {
    let share = (1.0 / cosine - 1.0).sqrt();
    // The first column is what the others have in common.
    let factor = |all: Array2<f64>| {
        let own = all.slice(s![.., 1..]).to_owned() * share;
        own + all.slice(s![.., ..1])
    };
    let factors = data::factors::<f64>(dims, rank + 1)?.into_iter().map(factor).collect();
    Ok(CpTensor::new(Array1::ones(rank), factors)?.to_full()?)
}

/// The fewest sweeps after which the model is within the error of the tensor, of the model itself and not by the formula of
/// the fit, which is rounded at that; and the seconds of a run of so many. `None` where it takes too many.
fn sweeps(device: &Device, x: &ArrayD<f64>, options: &CpAlsOptions) -> Result<Option<(usize, f64)>, AnyError> {
    let norm = x.iter().map(|v| v * v).sum::<f64>().sqrt();
    let mut seconds = 0.0;
    let mut reached = |count: usize| -> Result<bool, AnyError> {
        let clock = Instant::now();
        let model = cp_als(device, x.view(), &options.clone().max_sweeps(count))?.model;
        seconds = clock.elapsed().as_secs_f64();
        let left = (model.to_full()? - x).iter().map(|v| v * v).sum::<f64>().sqrt();
        Ok(left <= ERROR * norm)
    };
    let mut enough = 1;
    while !reached(enough)? {
        enough *= 2;
        if enough > MOST {
            return Ok(None);
        }
    }
    let mut few = enough / 2;
    while enough - few > 1 {
        let middle = few + (enough - few) / 2;
        if reached(middle)? { enough = middle } else { few = middle }
    }
    reached(enough)?;
    Ok(Some((enough, seconds)))
}

/// One rank and cosine, several starts, a line each.
pub fn run(device: &Device, dims: &[usize], options: &CpAlsOptions, cosine: f64) -> Result<(), AnyError> {
    let x = tensor(dims, options.rank, cosine)?;
    println!("# sweeps to a relative error of {ERROR:e}, rank {}, cosine {cosine}", options.rank);
    println!("{:>5} {:>9} {:>9} {:>9} {:>9} {:>7}", "seed", "plain", "ms", "searched", "ms", "ratio");
    for seed in 0..SEEDS {
        let options = options.clone().fit_tolerance(0.0).init(Init::Random { seed });
        let [plain, searched] = [false, true].map(|search| sweeps(device, &x, &options.clone().line_search(search)));
        let (plain, searched) = (plain?, searched?);
        let ratio = match (plain, searched) {
            (Some((plain, _)), Some((searched, _))) => format!("{:.2}", plain as f64 / searched as f64),
            _ => "-".into(),
        };
        let [plain, searched] = [plain, searched].map(|found| match found {
            Some((sweeps, seconds)) => format!("{sweeps:>9} {:>9.1}", 1e3 * seconds),
            None => format!("{:>9} {:>9}", format!("> {MOST}"), "-"),
        });
        println!("{seed:>5} {plain} {searched} {ratio:>7}");
    }
    Ok(())
}
