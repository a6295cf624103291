//! Bad use and bad input: the exit code, one line with the numbers on stderr, and nothing left behind.

use super::support::{Folder, npy, put_factors, rank_two};
use ndarray::{Array1, Array2, Array3, Ix3};
use ndarray_npy::NpzWriter;

/// Bad use.
const USE: i32 = 2;
/// Bad input, or a failure.
const INPUT: i32 = 1;

/// The folder with all the bad files. `x.npy` is a good tensor of 2 x 3 x 4, `u` has good factors of rank 2.
fn folder() -> Folder {
    let folder = Folder::new();
    let x = rank_two(&[2, 3, 4]).into_dimensionality::<Ix3>().unwrap();
    folder.put("x.npy", &x);
    let with = |value: f64, at: [usize; 3]| {
        let mut bad = x.clone();
        bad[at] = value;
        bad
    };
    folder.put("nan.npy", &with(f64::NAN, [0, 1, 3]));
    folder.put("inf.npy", &with(f64::NEG_INFINITY, [1, 2, 0]).mapv(|v| v as f32));
    folder.put("large.npy", &with(1e300, [1, 0, 2]));
    folder.put("empty.npy", &Array3::<f64>::zeros((3, 0, 2)));
    let whole = std::fs::read(folder.path("x.npy")).unwrap();
    folder.write("truncated.npy", &whole[..whole.len() - 8]);
    folder.write("header.npy", &whole[..20]);
    folder.write("complex.npy", npy("<c16", "(2,)", &[0; 32]));
    folder.write("scalar.npy", npy("<f8", "()", &[0; 8]));
    folder.write("nine.npy", npy("<f8", "(1, 1, 1, 1, 1, 1, 1, 1, 1)", &[0; 8]));
    folder.write("huge.npy", npy("<f8", "(4294967296, 4294967296, 4294967296)", &[0; 8]));
    folder.write("few.tns", "tensor\n2\n2 3\n1\n2\n3\n4\n5\n");
    folder.write("many.tns", "tensor\n2\n2 3\n1\n2\n3\n4\n5\n6\n7\n");
    folder.write("sparse.tns", "sptensor\n2\n2 3\n1\n1 1 5.0\n");
    folder.write("nothing", "");
    folder.write("folder/notes.txt", "mine");
    let mut npz = NpzWriter::new(std::fs::File::create(folder.path("two.npz")).unwrap());
    npz.add_array("first", &x).unwrap();
    npz.add_array("second", &x).unwrap();
    npz.finish().unwrap();

    let good = || [2, 3, 4].map(|rows| Array2::<f64>::ones((rows, 2)));
    put_factors(&folder, "u", &good());
    let mut wrong = good();
    wrong[1] = Array2::ones((5, 2));
    put_factors(&folder, "wrong_rows", &wrong);
    wrong = good();
    wrong[2] = Array2::ones((4, 3));
    put_factors(&folder, "wrong_rank", &wrong);
    wrong = good();
    wrong[2][[3, 1]] = f64::NAN;
    put_factors(&folder, "bad_factor", &wrong);
    put_factors(&folder, "too_few", &good()[..2]);
    put_factors(&folder, "too_many", &[2, 3, 4, 5].map(|rows| Array2::<f64>::ones((rows, 2))));
    put_factors(&folder, "no_columns", &[2, 3, 4].map(|rows| Array2::<f64>::ones((rows, 0))));
    put_factors(&folder, "too_large", &good().map(|f| f * 1e30));
    folder.put("three.npy", &Array1::<f64>::ones(3));
    folder.put("large_x.npy", &(x * 1e10));
    // After all the work the result cannot be put where this folder is.
    folder.write("taken/weights.npy/notes.txt", "mine");
    // An older result there stays as it was.
    put_factors(&folder, "taken", &good());
    folder.write("taken/summary.json", "{}");
    folder
}

/// Runs every case, all of them even if some fail.
fn check(cases: &[(&str, i32, &str)]) {
    let folder = folder();
    let before = folder.snapshot();
    let mut failures = Vec::new();
    for &(line, code, fragment) in cases {
        let args: Vec<&str> = line.split(' ').map(|arg| if arg == "''" { "" } else { arg }).collect();
        let ran = folder.run(&args);
        let one_line = ran.stderr.starts_with("error: ") && ran.stderr.lines().count() == 1;
        if ran.code != Some(code) || !one_line || !ran.stderr.contains(fragment) {
            failures.push(format!("polyad {line}\n  expected {code}, one line with {fragment:?}\n  {ran:?}"));
        }
        if folder.snapshot() != before {
            failures.push(format!("polyad {line} changed files"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn bad_use() {
    check(&[
        ("decompose x.npy --rank 0", USE, "--rank is 0"),
        ("decompose x.npy --rank -1", USE, "'-1'"),
        ("decompose x.npy", USE, "--rank"),
        ("decompose x.npy --rank 2 --sweeps 0 -o out", USE, "--sweeps is 0"),
        ("decompose x.npy --rank 2 --tol -0.5", USE, "--tol is -0.5"),
        ("decompose x.npy --rank 2 --tol nan", USE, "--tol is NaN"),
        ("decompose x.npy --rank 2 --method fast", USE, "auto, elem, slice, tile, gemm, fused"),
        ("decompose x.npy --rank 2 --precision f16", USE, "float32, fast"),
        ("mttkrp x.npy --factors u --mode 0 --precision f16 -o g.npy", USE, "float32, fast"),
        ("decompose x.npy --rank 2 --reduction sums", USE, "partials, atomics"),
        ("decompose x.npy --rank 2 --dtype f16", USE, "f32, f64"),
        ("decompose x.npy --rank 2 --device ''", USE, "--device is empty"),
        ("decompose x.npy --rank 2 --seed -3", USE, "'-3'"),
        ("decompose x.npy --rank 2 --frobnicate", USE, "--frobnicate"),
        ("frobnicate", USE, "frobnicate"),
        ("mttkrp x.npy --factors u --mode 3 -o g.npy", USE, "mode 3 is out of range for a tensor of order 3"),
        ("mttkrp x.npy --factors u --mode -1 -o g.npy", USE, "'-1'"),
        ("mttkrp x.npy --factors u --mode 0 --tile 0 -o g.npy", USE, "--tile is 0"),
        ("mttkrp x.npy --factors u --mode 0 -o x.npy", USE, "x.npy is the input"),
        ("mttkrp x.npy --factors u --mode 0", USE, "--output"),
        ("decompose u/factor_1.npy --rank 2 -o u", USE, "would replace the input"),
        ("decompose u/../u/factor_2.npy --rank 2 -o ./u", USE, "would replace the input"),
        ("plot u", USE, "--output"),
    ]);
}

#[test]
fn bad_tensors() {
    check(&[
        ("decompose nan.npy --rank 2 -o out", INPUT, "NaN at index (0, 1, 3)"),
        ("decompose inf.npy --rank 2 -o out", INPUT, "-inf at index (1, 2, 0)"),
        ("decompose large.npy --rank 2 --dtype f32 -o out", INPUT, "overflowed f32 at index (1, 0, 2)"),
        ("decompose empty.npy --rank 2 -o out", INPUT, "mode 1 of a tensor with dims (3, 0, 2) is empty"),
        ("decompose truncated.npy --rank 2 -o out/deep/er", INPUT, "192"),
        ("decompose header.npy --rank 2 -o out", INPUT, "header.npy"),
        ("decompose complex.npy --rank 2", INPUT, "c16"),
        ("decompose scalar.npy --rank 2", INPUT, "order 0"),
        ("decompose nine.npy --rank 2", INPUT, "order 9"),
        ("decompose huge.npy --rank 2", INPUT, "4294967296"),
        ("decompose few.tns --rank 2 -o out", INPUT, "5"),
        ("decompose many.tns --rank 2 -o out", INPUT, "6"),
        ("decompose sparse.tns --rank 2 -o out", INPUT, "sparse"),
        ("decompose nothing --rank 2 -o out", INPUT, "empty"),
        ("decompose folder --rank 2 -o out", INPUT, "folder: "),
        ("decompose missing.npy --rank 2 -o out", INPUT, "missing.npy: "),
        ("decompose two.npz --rank 2", INPUT, "second"),
        ("decompose two.npz:third --rank 2", INPUT, "third"),
        ("mttkrp nan.npy --factors u --mode 0 -o g.npy", INPUT, "NaN at index (0, 1, 3)"),
        ("mttkrp missing.npy --factors u --mode 0 -o g.npy", INPUT, "missing.npy: "),
        ("info missing.npy", INPUT, "missing.npy: "),
        ("info folder", INPUT, "folder: "),
        ("info truncated.npy --json", INPUT, "192"),
        ("info empty.npy", INPUT, "(3, 0, 2)"),
    ]);
}

#[test]
fn no_threads() {
    check(&[
        ("decompose x.npy --rank 2 --threads 0 -o out", USE, "--threads is 0: it must be at least 1"),
        ("mttkrp x.npy --factors u --mode 0 --threads x -o g.npy", USE, "--threads"),
    ]);
}

#[cfg(unix)]
#[test]
fn devices_are_no_tensors() {
    check(&[
        ("info /dev/zero", INPUT, "/dev/zero: is not a regular file"),
        ("decompose /dev/zero --rank 2 -o out", INPUT, "/dev/zero: is not a regular file"),
    ]);
}

#[test]
fn bad_factors_and_starts() {
    check(&[
        ("mttkrp x.npy --factors wrong_rows --mode 0 -o g.npy", INPUT, "factor 1 is 5 x 2, expected 3 x 2"),
        ("mttkrp x.npy --factors wrong_rank --mode 0 -o g.npy", INPUT, "factor 2 is 4 x 3, expected 4 x 2"),
        ("mttkrp x.npy --factors no_columns --mode 0 -o g.npy", INPUT, "(2, 0)"),
        ("mttkrp x.npy --factors too_few --mode 0 -o g.npy", INPUT, "factor_2.npy"),
        ("mttkrp x.npy --factors bad_factor --mode 0 -o g.npy", INPUT, "factor 2 has NaN at index (3, 1)"),
        (
            "mttkrp x.npy --factors too_many --mode 0 -o g.npy",
            INPUT,
            "factor_3.npy is there, but the tensor has order 3",
        ),
        ("mttkrp x.npy --factors missing --mode 0 -o g.npy", INPUT, "missing"),
        ("mttkrp x.npy --factors u --weights three.npy --mode 0 -o g.npy", INPUT, "3 weights were given for rank 2"),
        ("mttkrp x.npy --factors u --weights x.npy --mode 0 -o g.npy", INPUT, "not a vector"),
        (
            "mttkrp large_x.npy --factors too_large --mode 1 --dtype f32 --device cpu -o g.npy",
            INPUT,
            "overflowed f32 at index (0, 0)",
        ),
        (
            "decompose x.npy --rank 2 --init missing -o out",
            INPUT,
            "--init missing: neither random, normal, nvecs nor a folder",
        ),
        ("decompose x.npy --rank 2 --init folder -o out", INPUT, "folder: "),
        ("decompose x.npy --rank 2 --init x.npy -o out", INPUT, "--init x.npy: "),
        ("decompose x.npy --rank 2 --init too_few -o out", INPUT, "dims (2, 3), expected (2, 3, 4)"),
        ("decompose x.npy --rank 3 --init u -o out", INPUT, "rank 2, --rank is 3"),
        ("decompose x.npy --rank 2 --init bad_factor -o out", INPUT, "NaN at index (3, 1)"),
        ("decompose x.npy --rank 1000000000000 -o out", INPUT, "rank 1000000000000"),
        ("plot folder -o f.svg", INPUT, "folder: "),
        ("plot missing -o f.svg", INPUT, "missing: "),
    ]);
}

#[test]
fn outputs_that_cannot_be() {
    check(&[
        // The output is looked at before the input.
        ("decompose nan.npy --rank 2 -o x.npy/out", INPUT, "x.npy"),
        ("decompose x.npy --rank 2 -o x.npy", INPUT, "x.npy"),
        ("decompose x.npy --rank 2 --device cpu --quiet -o taken", INPUT, "weights.npy"),
        ("mttkrp nan.npy --factors u --mode 0 -o x.npy/g.npy", INPUT, "x.npy: "),
        ("mttkrp x.npy --factors u --mode 0 -o folder", INPUT, "folder"),
        ("mttkrp x.npy --factors u --mode 0 -o missing/g.npy", INPUT, "missing"),
        ("plot u -o x.npy/f.svg", INPUT, "x.npy: "),
    ]);
}

#[cfg(feature = "gpu")]
#[test]
fn unknown_adapters() {
    let listed = Folder::new().run(&["devices", "--json"]).json();
    let names: Vec<_> = listed.as_array().unwrap().iter().filter(|d| d["backend"] != "cpu").collect();
    let seen = names.first().map_or("adapters seen: none", |d| d["name"].as_str().unwrap());
    check(&[
        ("decompose x.npy --rank 2 --device no-such-card -o out", USE, "\"no-such-card\""),
        ("decompose x.npy --rank 2 --device no-such-card -o out", USE, seen),
        ("mttkrp x.npy --factors u --mode 0 --device no-such-card -o g.npy", USE, seen),
    ]);
}

#[cfg(not(feature = "gpu"))]
#[test]
fn adapters_without_the_feature() {
    check(&[
        ("decompose x.npy --rank 2 --device gpu -o out", USE, "without GPU support"),
        ("decompose x.npy --rank 2 --device NVIDIA -o out", USE, "--device NVIDIA"),
    ]);
}
