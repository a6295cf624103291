//! Which fluorescent substances are in these samples, how much of each, and what do their spectra look like?
//!
//! Five samples of three amino acids are measured at 201 emission and 61 excitation wavelengths, with 1 % noise. Each
//! substance adds (its concentration) x (its emission spectrum) x (its excitation spectrum), so a CP decomposition of
//! rank 3 takes the mixtures apart without knowing any of these. Here they are known, so the answer can be checked.
//!
//! cargo run --release --example fluorescence [FOLDER]     (default: fluorescence-out)

use ndarray::{Array1, Array2, ArrayD, array};
use polyad::{Backend, CpAlsOptions, CpTensor, Device, Dtype, Init, Shape, cp_als, io, plot};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use std::error::Error;
use std::path::PathBuf;

const NAMES: [&str; 3] = ["tryptophan", "tyrosine", "phenylalanine"];
const NOISE: f64 = 0.01;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).unwrap_or("fluorescence-out".into()));
    let mut truth = true_model()?;
    truth.normalize();
    let x = measure(&truth)?;

    let (device, reason) = Device::auto(&Shape::new(x.shape())?, NAMES.len(), Dtype::F32);
    println!("device  {} ({reason})", device.name());
    let options = CpAlsOptions::new(NAMES.len()).max_sweeps(500).init(Init::Random { seed: 1 });
    let result = cp_als(&device, x.view(), &options)?;
    println!("fit     {:.4} (the true model's: {:.4})", result.fit, 1.0 - NOISE);
    println!("sweeps  {} in {:.3} s", result.sweeps, result.seconds.total);

    // A model fixes neither the order of its components nor pairs of signs; spectra are positive.
    let mut model = result.model.to_f64();
    model.fix_signs();
    let score = model.score(&truth)?;
    println!("congruence of each recovered component with the true one (1 is equal):");
    for (&substance, &congruence) in score.permutation.iter().zip(&score.congruences) {
        println!("  {:<14}{congruence:.5}", NAMES[substance]);
    }

    io::write_model(&folder, &model)?;
    ndarray_npy::write_npy(folder.join("x.npy"), &x)?;
    plot::factors_beside(&model, &truth, &folder.join("factors.svg"))?;
    println!(
        "wrote   {0}: x.npy, weights.npy, factor_0.npy to factor_2.npy, factors.svg (dashed: truth)",
        folder.display()
    );

    if score.congruences.iter().all(|&c| c > 0.99) {
        println!("all three substances were recovered");
        Ok(())
    } else {
        Err(format!("a component is not above 0.99: {:?}", score.congruences).into())
    }
}

/// Samples x emission (250 to 450 nm) x excitation (240 to 300 nm): concentrations and spectra of three substances.
fn true_model() -> polyad::Result<CpTensor<f64>> {
    let concentrations = array![
        [2.7, 0.0, 0.0],
        [0.0, 13.4, 0.0],
        [0.0, 0.0, 900.0],
        [1.6, 5.4, 355.0],
        [0.9, 4.4, 297.0], // micromol per litre
    ];
    let emission = spectra(201, 250.0, [(357.0, 24.0, 34.0), (303.0, 11.0, 19.0), (282.0, 8.0, 16.0)]);
    let excitation = spectra(61, 240.0, [(279.0, 17.0, 9.0), (275.0, 13.0, 6.0), (258.0, 9.0, 5.0)]);
    // Phenylalanine is there in large amounts because it shines so weakly.
    CpTensor::new(array![100.0, 25.0, 0.4], vec![concentrations, emission, excitation])
}

/// One spectrum per column, 1 nm per row: a peak, its width on the short and on the long side.
fn spectra(rows: usize, start: f64, peaks: [(f64, f64, f64); 3]) -> Array2<f64> {
    Array2::from_shape_fn((rows, peaks.len()), |(i, r)| {
        let (peak, left, right) = peaks[r];
        let distance = start + i as f64 - peak;
        (-0.5 * (distance / if distance < 0.0 { left } else { right }).powi(2)).exp()
    })
}

/// The full tensor in f32, with normal noise of `NOISE` times its norm.
fn measure(truth: &CpTensor<f64>) -> polyad::Result<ArrayD<f32>> {
    let x = truth.to_full()?;
    let deviation = NOISE * truth.norm() / (x.len() as f64).sqrt();
    let mut rng = ChaCha8Rng::seed_from_u64(2024);
    // The sum of twelve uniform numbers, less 6, is close enough to a normal one of variance 1.
    let mut normal = || Array1::from_shape_simple_fn(12, || rng.random::<f64>()).sum() - 6.0;
    Ok(x.mapv(|v| (v + deviation * normal()) as f32))
}
