//! A row-major .npy file of the element type is worked on where it lies in the page cache: no copy of it is made. Linux counts
//! the memory that a process writes, but not the pages of a file that it reads, against `ulimit -d`.

use super::support::{Folder, Ran};
use ndarray::{Array2, Array3};
use ndarray_npy::write_npy;

const DIM: usize = 256;

/// Runs the program with so much memory of its own, in KiB.
fn within(folder: &Folder, kib: usize, args: &str) -> Ran {
    let polyad = env!("CARGO_BIN_EXE_polyad");
    let output = std::process::Command::new("sh")
        .args(["-c", &format!("ulimit -d {kib} && exec {polyad} {args} --device cpu --threads 2")])
        .current_dir(folder.path("."))
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Ran { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

/// A tensor of 64 MiB in less memory than that, by MTTKRP and by CP-ALS; converted to f64, which takes a copy, it fails.
#[test]
fn a_mapped_tensor_is_not_copied() {
    let folder = Folder::new();
    let x = Array3::from_shape_fn((DIM, DIM, DIM), |(i, j, k)| ((3 * i + 5 * j + 7 * k) % 13) as f32);
    write_npy(folder.path("x.npy"), &x).unwrap();
    drop(x);
    std::fs::create_dir(folder.path("u")).unwrap();
    for mode in 0..3 {
        let factor = Array2::from_shape_fn((DIM, 4), |(i, r)| (i + r) as f32);
        write_npy(folder.path(&format!("u/factor_{mode}.npy")), &factor).unwrap();
    }
    let kib = 4 * DIM * DIM * DIM / 1024 / 2;
    for mode in 0..3 {
        within(&folder, kib, &format!("mttkrp x.npy --factors u --mode {mode} -o g{mode}.npy")).ok();
    }
    // Ones with kept products are made by a library that reserves 64 MiB for each thread, of which it writes little.
    within(&folder, kib, "decompose x.npy --rank 1 --sweeps 2 --tree none --output model --quiet").ok();
    let converted = within(&folder, kib, "mttkrp x.npy --factors u --mode 0 -o h.npy --dtype f64");
    assert_ne!(converted.code, Some(0), "{converted:?}");
    within(&folder, 8 * kib, "mttkrp x.npy --factors u --mode 0 -o h.npy --dtype f64").ok();
}
