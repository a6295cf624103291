//! The line search: never a larger error, and far fewer sweeps where components are nearly parallel.

mod common {
    #[cfg(feature = "gpu")]
    pub mod adapter;
    #[path = "mod.rs"]
    pub mod compare;
}

use common::compare::Numbers;
use ndarray::{Array1, Array2, ArrayD};
use polyad::{CpAlsOptions, CpAlsResult, CpTensor, Cpu, Init, Tree, cp_als};

/// A model whose columns have about that cosine in every mode.
fn collinear(dims: &[usize], rank: usize, cosine: f64, seed: u64) -> ArrayD<f64> {
    let mut numbers = Numbers::new(seed);
    let share = (1.0 / cosine - 1.0).sqrt();
    let factor = |&rows: &usize| {
        let common: Array2<f64> = numbers.matrix(rows, 1);
        let own: Array2<f64> = numbers.matrix(rows, rank);
        Array2::from_shape_fn((rows, rank), |(i, r)| common[[i, 0]] + share * own[[i, r]])
    };
    let factors: Vec<_> = dims.iter().map(factor).collect();
    CpTensor::new(Array1::ones(rank), factors).unwrap().to_full().unwrap()
}

fn run(x: &ArrayD<f64>, rank: usize, seed: u64, search: bool) -> CpAlsResult<f64> {
    let options = CpAlsOptions::new(rank).max_sweeps(3000).fit_tolerance(1e-8).init(Init::Random { seed });
    cp_als(&Cpu::with_threads(2).unwrap(), x.view(), &options.line_search(search).tree(Tree::None)).unwrap()
}

#[test]
fn fewer_sweeps_on_collinear_data() {
    let (mut plain, mut searched) = (0, 0);
    for seed in 0..6 {
        let x = collinear(&[20, 18, 16], 4, 0.9, 40 + seed);
        let [a, b] = [false, true].map(|search| run(&x, 4, seed, search));
        // Sweeps until the error is as small as what the plain run ended with.
        let reached = b.fits.iter().position(|&fit| fit >= a.fit).map_or(b.sweeps, |at| at + 1);
        println!(
            "seed {seed}: plain {} sweeps, fit {:.9}; searched {} sweeps, fit {:.9}, there after {reached}",
            a.sweeps, a.fit, b.sweeps, b.fit
        );
        assert!(b.fits.windows(2).all(|f| f[1] >= f[0] - 1e-9), "the error rose: {:?}", b.fits);
        plain += a.sweeps;
        searched += reached;
    }
    println!("plain {plain} sweeps, searched {searched}");
    assert!(2 * searched < plain, "plain {plain} sweeps, searched {searched}");
}

#[test]
fn the_error_never_rises() {
    for seed in 0..8 {
        let dims = [3 + seed as usize, 5, 7 - seed as usize % 3];
        let x: ArrayD<f64> = Numbers::new(20 + seed).tensor(&dims);
        for tree in [Tree::None, Tree::MultiSweep] {
            let options = CpAlsOptions::new(1 + seed as usize % 4).max_sweeps(80).fit_tolerance(0.0);
            let options = options.init(Init::Random { seed }).tree(tree).line_search(true);
            let result = cp_als(&Cpu::with_threads(2).unwrap(), x.view(), &options).unwrap();
            assert!(result.fits.windows(2).all(|f| f[1] >= f[0] - 1e-12), "{dims:?} {tree}: {:?}", result.fits);
        }
    }
}

#[test]
fn what_it_does_not_go_with_is_refused() {
    let x: ArrayD<f64> = Numbers::new(2).tensor(&[5, 4, 3]);
    let options = CpAlsOptions::new(2).line_search(true);
    for (with, options) in [
        ("fixed modes [0, 2]", options.clone().fix([0, 2])),
        ("nonneg modes [1]", options.clone().nonneg([1])),
        ("starts 3", options.clone().starts(3)),
        ("ridge 1e-2", options.clone().ridge(1e-2)),
        ("a checkpoint", options.clone().checkpoint(polyad::Checkpoint::new("run"))),
    ] {
        let error = cp_als(&Cpu::new(), x.view(), &options).unwrap_err();
        assert!(matches!(error, polyad::Error::Option { name: "line_search", .. }), "{error}");
        assert!(error.to_string().contains(&format!("cannot be combined with {with}: ")), "{error}");
    }
}

#[cfg(feature = "gpu")]
#[test]
fn the_gpu_takes_the_same_steps() {
    use polyad::Backend;
    let Some(gpu) = common::adapter::gpu().filter(|gpu| gpu.caps().f64) else { return };
    let x = collinear(&[9, 8, 7], 2, 0.8, 3);
    for tree in [Tree::None, Tree::MultiSweep] {
        let options = CpAlsOptions::new(2).max_sweeps(12).fit_tolerance(0.0).line_search(true).tree(tree);
        let (a, b) = (cp_als(&gpu, x.view(), &options).unwrap(), cp_als(&Cpu::new(), x.view(), &options).unwrap());
        assert!(a.fits.iter().zip(&b.fits).all(|(a, b)| (a - b).abs() < 1e-9), "{tree}: {:?} and {:?}", a.fits, b.fits);
    }
}
