//! `polyad mttkrp`: reference values, by every method, dtype and device.

use super::support::{Folder, TestDevice, devices, only_software_warnings, put_factors};
use ndarray::{Array1, Array2, Array3, ArrayD, IxDyn, ShapeBuilder};
use ndarray_npy::{ReadableElement, read_npy};

const METHODS: [&str; 5] = ["elem", "slice", "tile", "gemm", "fused"];

/// Runs one MTTKRP and reads its result, in f64. `None` where the device lacks f64 and says so.
fn mttkrp(
    folder: &Folder,
    device: &TestDevice,
    dtype: &str,
    method: &str,
    mode: usize,
    more: &[&str],
) -> Option<Array2<f64>> {
    let mode = mode.to_string();
    let args = ["mttkrp", "x.npy", "--factors", "u", "--device", device.word, "--dtype", dtype];
    let args = [&args[..], &["--method", method, "--mode", &mode, "--output", "g.npy"], more].concat();
    let ran = folder.run(&args);
    if dtype == "f64" && !device.f64 {
        assert!(ran.code == Some(1) && ran.stderr.contains("SHADER_F64"), "{ran:#?}");
        return None;
    }
    assert!(ran.code == Some(0) && only_software_warnings(&ran.stderr), "{args:?}: {ran:#?}");
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert!(lines.len() == 1 && lines[0].contains(method) && lines[0].contains("seconds"), "{ran:#?}");
    let g = match dtype {
        "f32" => read::<f32>(folder).mapv(f64::from),
        _ => read::<f64>(folder),
    };
    std::fs::remove_file(folder.path("g.npy")).unwrap();
    Some(g)
}

fn read<T: ReadableElement>(folder: &Folder) -> Array2<T> {
    read_npy(folder.path("g.npy")).unwrap()
}

/// Calls a check with every device, dtype and method that go together.
fn each(mut check: impl FnMut(&TestDevice, &str, &str)) {
    for device in devices() {
        for dtype in ["f32", "f64"] {
            for method in METHODS {
                check(&device, dtype, method);
            }
        }
    }
}

/// X of 2 x 3 x 4 with X(0,0,0) = X(1,2,3) = 1: rows of G are products of two factor rows. All integers, so exact.
#[test]
fn unit_entries_pick_factor_rows() {
    let folder = Folder::new();
    let mut x = Array3::<f64>::zeros((2, 3, 4));
    x[[0, 0, 0]] = 1.0;
    x[[1, 2, 3]] = 1.0;
    folder.put("x.npy", &x);
    let factor = |rows: usize, first: usize| Array2::from_shape_fn((rows, 5), |(i, j)| ((first + i) * (j + 1)) as f64);
    put_factors(&folder, "u", &[factor(2, 10), factor(3, 12), factor(4, 15)]);
    let rows = [(180.0, 252.0), (150.0, 198.0), (120.0, 154.0)];
    each(|device, dtype, method| {
        for (mode, &(first, last)) in rows.iter().enumerate() {
            let Some(g) = mttkrp(&folder, device, dtype, method, mode, &[]) else { continue };
            let mut expected = Array2::zeros((mode + 2, 5));
            for j in 0..5 {
                let square = ((j + 1) * (j + 1)) as f64;
                expected[[0, j]] = first * square;
                expected[[mode + 1, j]] = last * square;
            }
            assert_eq!(g, expected, "{} {dtype} {method} mode {mode}", device.word);
        }
    });
}

/// Whether a sum of 105 positive terms is as exact as it has to be.
///
/// Its relative error is at most (K + d + 1) eps with K = 105 entries and d = 3; the two factors were themselves
/// rounded, which adds two halves of eps.
fn close(sum: f64, expected: f64, eps: f64) -> bool {
    (sum - expected).abs() <= (105.0 + 3.0 + 1.0 + 1.0) * eps * expected
}

#[test]
fn close_is_not_far() {
    for eps in [f64::EPSILON, f64::from(f32::EPSILON)] {
        assert!(close(2856.0, 2856.0, eps));
        assert!(!close(2856.0 * (1.0 + 120.0 * eps), 2856.0, eps));
        // Without the smallest of the terms that are not zero.
        assert!(!close(2856.0 - 0.1, 2856.0, eps));
        assert!(!close(f64::NAN, 2856.0, eps));
    }
}

/// X = 0..104 of 5 x 7 x 3, F_n[i, r] = (4 i + r) / 10: sums of the columns of G, without and with weights.
#[test]
fn column_sums() {
    let folder = Folder::new();
    folder.put("x.npy", &Array1::range(0.0, 105.0, 1.0).into_shape_with_order((5, 7, 3)).unwrap());
    let factors = [5, 7, 3].map(|rows| Array2::from_shape_fn((rows, 4), |(i, r)| (4 * i + r) as f64 / 10.0));
    put_factors(&folder, "u", &factors);
    folder.put("lambda.npy", &Array1::from(vec![1.0, 2.0, 3.0, 4.0]));
    let lambda: &[&str] = &["--weights", "lambda.npy"];
    let cases: [(usize, &[&str], [f64; 4]); 4] = [
        (0, &[], [2856.0, 3837.4, 4928.0, 6127.8]),
        (1, &[], [2475.2, 3364.2, 4362.4, 5469.8]),
        (2, &[], [7761.6, 9135.0, 10617.6, 12209.4]),
        (1, lambda, [2475.2, 6728.4, 13087.2, 21879.2]),
    ];
    each(|device, dtype, method| {
        let eps = if dtype == "f32" { f64::from(f32::EPSILON) } else { f64::EPSILON };
        for (mode, more, sums) in cases {
            // A tile that divides no dim, and one entry a tile.
            let tiles: &[&str] = if method == "tile" { &["4", "1"] } else { &[""] };
            for tile in tiles {
                let tile = if tile.is_empty() { vec![] } else { vec!["--tile", tile] };
                let more = [more, &tile].concat();
                let Some(g) = mttkrp(&folder, device, dtype, method, mode, &more) else { continue };
                for (sum, expected) in g.sum_axis(ndarray::Axis(0)).iter().zip(sums) {
                    let at = format!("{} {dtype} {method} mode {mode} {more:?}", device.word);
                    assert!(close(*sum, expected, eps), "{at}: {sum} is not {expected}");
                }
            }
        }
    });
}

/// X = 1..720 of 2 x 3 x 4 x 5 x 6 in column-major order, factors of ones: rows of G are sums of slices. All integers
/// below 2^24, so exact in f32 too.
#[test]
fn sums_of_slices_of_a_column_major_file() {
    let folder = Folder::new();
    let dims = [2, 3, 4, 5, 6];
    let values: Vec<f64> = (1..=720).map(f64::from).collect();
    folder.put("x.npy", &ArrayD::from_shape_vec(IxDyn(&dims).f(), values).unwrap());
    put_factors(&folder, "u", &dims.map(|rows| Array2::<f64>::ones((rows, 2))));
    let rows: [&[f64]; 5] = [
        &[129600.0, 129960.0],
        &[86040.0, 86520.0, 87000.0],
        &[63270.0, 64350.0, 65430.0, 66510.0],
        &[45000.0, 48456.0, 51912.0, 55368.0, 58824.0],
        &[7260.0, 21660.0, 36060.0, 50460.0, 64860.0, 79260.0],
    ];
    each(|device, dtype, method| {
        for (mode, rows) in rows.iter().enumerate() {
            let Some(g) = mttkrp(&folder, device, dtype, method, mode, &[]) else { continue };
            let expected = Array2::from_shape_fn((rows.len(), 2), |(i, _)| rows[i]);
            assert_eq!(g, expected, "{} {dtype} {method} mode {mode}", device.word);
        }
    });
}

#[test]
fn dtype_is_the_files_and_quiet_is_silent() {
    let folder = Folder::new();
    folder.put("x.npy", &Array2::<f32>::ones((2, 3)));
    // Factors of another dtype are converted.
    put_factors(&folder, "u", &[Array2::<f64>::ones((2, 1)), Array2::ones((3, 1))]);
    let args = ["mttkrp", "x.npy", "--factors", "u", "--mode", "1", "--device", "cpu", "-o", "g.npy", "--quiet"];
    let ran = folder.run(&args).ok();
    assert_eq!(ran.stdout, "");
    assert_eq!(read::<f32>(&folder), Array2::<f32>::from_elem((3, 1), 2.0));
    folder.run(&[&args[..], &["--precision", "fast", "--reduction", "atomics"]].concat()).ok();
    assert_eq!(read::<f32>(&folder), Array2::<f32>::from_elem((3, 1), 2.0));
}

/// f32 factors are converted as they are read, by threads that have to be those asked for.
#[test]
fn threads_are_there_before_files_are_read() {
    let folder = Folder::new();
    folder.put("x.npy", &Array3::<f32>::ones((2, 3, 4)));
    put_factors(&folder, "u", &[2, 3, 4].map(|rows| Array2::<f32>::ones((rows, 2))));
    let line = ["mttkrp", "x.npy", "--factors", "u", "--mode", "0", "--threads", "2", "--output", "g.npy"];
    let ran = folder.run(&line);
    assert!(ran.code == Some(0) && ran.stdout.contains("CPU"), "{ran:#?}");
    let line = ["decompose", "x.npy", "--rank", "2", "--init", "u", "--threads", "2", "--output", "model"];
    let ran = folder.run(&line);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
}
