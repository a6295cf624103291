//! Figures: what is in the SVG, odd models, and paths that cannot be written.
#![cfg(feature = "cli")]

use ndarray::{Array1, Array2, array};
use polyad::{CpTensor, Error, plot};

/// Smooth columns of different heights; weights fall with the component.
fn model(dims: &[usize], rank: usize) -> CpTensor<f64> {
    let bump = |i: usize, r: usize, rows: usize| {
        let (at, centre) = (i as f64 / rows as f64, (r as f64 + 0.5) / rank as f64);
        (-((at - centre) * 6.0).powi(2)).exp()
    };
    let factors = dims.iter().map(|&d| Array2::from_shape_fn((d, rank), |(i, r)| bump(i, r, d))).collect();
    let mut model = CpTensor::new(Array1::from_shape_fn(rank, |r| 100.0 / (r + 1) as f64), factors).unwrap();
    model.arrange();
    model
}

fn svg(model: &CpTensor<f64>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("factors.svg");
    plot::factors(model, &path).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
    assert!(!text.contains("NaN") && !text.contains("inf"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside the figure");
    text
}

#[test]
fn every_mode_has_labelled_axes() {
    let text = svg(&model(&[5, 201, 61], 3));
    for mode in 0..3 {
        assert!(text.contains(&format!("index in mode {mode}")));
    }
    assert!(text.contains("loading") && text.contains("rank 3, dims 5 x 201 x 61"));
    assert!(!text.contains("more"));
}

#[test]
fn orders_one_to_eight() {
    for order in 1..=8 {
        let dims: Vec<usize> = (0..order).map(|n| 2 + n).collect();
        assert!(svg(&model(&dims, 2)).contains(&format!("index in mode {}", order - 1)));
    }
}

#[test]
fn a_mode_of_one_row_is_bars() {
    let text = svg(&model(&[4, 1, 3], 3));
    assert!(text.contains("mode 1 has one row") && !text.contains("index in mode 1"));
}

#[test]
fn many_components_cut_the_legend_and_long_modes_are_thinned() {
    let text = svg(&model(&[300, 20_000, 4], 300));
    assert!(text.contains("more") && text.len() < 8 << 20, "{} bytes", text.len());
}

#[test]
fn a_peak_of_one_entry_survives_thinning() {
    let mut long = Array2::zeros((100_000, 1));
    let flat = svg(&CpTensor::new(array![1.0], vec![long.clone()]).unwrap());
    long[[77_777, 0]] = 1.0;
    assert_ne!(svg(&CpTensor::new(array![1.0], vec![long]).unwrap()), flat);
}

#[test]
fn extreme_and_zero_values_can_be_drawn() {
    for scale in [f64::MAX, -f64::MAX, f64::MIN_POSITIVE, 5e-324, 0.0, 1e-17] {
        svg(&CpTensor::new(array![scale, -1.0], vec![array![[scale, -scale], [0.0, scale]], array![[1.0, scale]]])
            .unwrap());
    }
    svg(&CpTensor::new(array![1.0], vec![array![[1e15], [1e15 + 1.0]], array![[0.3], [0.3]]]).unwrap());
}

#[test]
fn paths_that_cannot_be_written_are_io_errors() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no").join("factors.svg");
    for path in [missing.as_path(), folder.path(), std::path::Path::new("/"), std::path::Path::new("")] {
        let error = plot::factors(&model(&[2, 2], 1), path).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_reference_is_drawn_and_must_have_the_same_dims() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("beside.svg");
    plot::factors_beside(&model(&[5, 61], 2), &model(&[5, 61], 3), &path).unwrap();
    assert!(std::fs::read_to_string(&path).unwrap().contains("reference"));
    plot::factors_beside(&model(&[5, 1], 50), &model(&[5, 1], 50), &path).unwrap();
    let error = plot::factors_beside(&model(&[5, 61], 2), &model(&[5, 60], 2), &path).unwrap_err();
    let (expected, found) = (vec![5, 61], vec![5, 60]);
    assert_eq!(error, Error::DimsMismatch { what: "the reference model", expected, found });
}
