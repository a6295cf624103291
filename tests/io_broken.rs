//! Broken files: whatever the bytes are, an error and never a panic.

use ndarray::array;
use ndarray_npy::NpzWriter;
use polyad::CpTensor;
use polyad::io::*;
use proptest::prelude::*;
use std::fs;
use std::path::Path;
use tempfile::tempdir;

/// Whatever the bytes are: a result or an error, but no panic.
fn try_everything(dir: &Path, bytes: impl AsRef<[u8]>) {
    let path = &dir.join("x");
    fs::write(path, bytes).unwrap();
    if let Ok(file) = TensorFile::open(path) {
        let _ = file.read::<f32>().map(|x| first_non_finite(x.view()));
        let _ = file.read::<f64>().map(|x| first_non_finite(x.view()));
    }
    let _ = (read_ktensor::<f32>(path), read_matrix::<f64>(path), read_vector::<f64>(path));
}

/// One valid file of each kind.
fn valid_files() -> Vec<Vec<u8>> {
    let dir = tempdir().unwrap();
    let mut npz = NpzWriter::new_compressed(fs::File::create(dir.path().join("a")).unwrap());
    npz.add_array("x", &array![[1.0, 2.0], [3.0, 4.0]]).unwrap();
    npz.finish().unwrap();
    let mut stored = NpzWriter::new(fs::File::create(dir.path().join("b")).unwrap());
    stored.add_array("x", &array![1u8, 2, 3]).unwrap();
    stored.finish().unwrap();
    let model = CpTensor::new(array![1.0], vec![array![[1.0], [2.0]], array![[-3.0]]]).unwrap();
    write_ktensor(dir.path().join("c"), &model).unwrap();
    write_matrix(dir.path().join("d"), array![[1.0, 2.0]].view()).unwrap();
    ndarray_npy::write_npy(dir.path().join("e"), &array![[1i32, 2], [3, 4]].reversed_axes()).unwrap();
    let mut files: Vec<_> = ["a", "b", "c", "d", "e"].map(|n| fs::read(dir.path().join(n)).unwrap()).into();
    files.push(b"// c\ntensor\n2\n2 2\n1e0 2\n-3.5\nNaN\n".to_vec());
    files
}

#[test]
fn truncated_files_never_panic() {
    let dir = tempdir().unwrap();
    for bytes in valid_files() {
        try_everything(dir.path(), &bytes);
        for n in 0..bytes.len() {
            try_everything(dir.path(), &bytes[..n]);
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(kind in 0..5usize, bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let dir = tempdir().unwrap();
        let start: [&[u8]; 5] = [b"", b"\x93NUMPY\x01\x00", b"PK\x03\x04", b"tensor\n", b"ktensor\n1\n"];
        try_everything(dir.path(), [start[kind], &bytes].concat());
    }

    #[test]
    fn mutated_files_never_panic(
        kind in 0..6usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let dir = tempdir().unwrap();
        let mut bytes = valid_files().swap_remove(kind);
        for (place, value) in changes {
            let n = bytes.len();
            bytes[place.index(n)] = value;
        }
        try_everything(dir.path(), bytes);
    }
}
