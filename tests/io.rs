//! Files: what is read equals what was written, and broken files give errors with numbers.

use ndarray::{Array, Array1, Array2, ArrayD, IxDyn, ShapeBuilder, array};
use ndarray_npy::{NpzWriter, write_npy};
use polyad::io::*;
use polyad::{CpTensor, Dtype, Error, Real};
use proptest::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::{TempDir, tempdir};

/// A .npy file byte by byte, with a header of any length modulo 16.
fn npy(descr: &str, fortran: bool, dims: &str, data: &[u8], pad: usize) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let mut text = format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {dims}, }}");
    while (10 + text.len() + 1) % 64 != pad {
        text.push(' ');
    }
    text.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.extend(data);
    bytes
}

fn le(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(self.0.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn read<T: Real>(path: impl AsRef<Path>) -> polyad::Result<ArrayD<T>> {
    Ok(TensorFile::open(path)?.read()?.into_array())
}

/// The reason in a format error; panics on anything else.
fn reason<T: std::fmt::Debug>(result: polyad::Result<T>) -> String {
    match result.unwrap_err() {
        Error::Format { reason, .. } => reason,
        other => panic!("not a format error: {other:?}"),
    }
}

fn counting(dims: &[usize]) -> ArrayD<f64> {
    let n = dims.iter().product::<usize>();
    ArrayD::from_shape_vec(dims, (0..n).map(|i| i as f64 - 2.5).collect()).unwrap()
}

#[test]
fn c_and_fortran_files_give_the_same_tensor_and_are_mapped() {
    let dir = Folder::new();
    for dims in [vec![7], vec![2, 3], vec![4, 1, 3], vec![2, 3, 2, 2]] {
        let x = counting(&dims);
        let mut f = ArrayD::zeros(IxDyn(&dims).f());
        f.assign(&x);
        write_npy(dir.path("c.npy"), &x).unwrap();
        write_npy(dir.path("f.npy"), &f).unwrap();
        for name in ["c.npy", "f.npy"] {
            let file = TensorFile::open(dir.path(name)).unwrap();
            assert_eq!((file.dims(), file.stored_dtype()), (dims.as_slice(), "f64"));
            let data = file.read::<f64>().unwrap();
            assert!(data.is_mapped());
            assert_eq!(data.view(), x.view());
            let single = file.read::<f32>().unwrap();
            assert!(!single.is_mapped());
            assert_eq!(single.view(), x.mapv(|v| v as f32).view());
        }
    }
    // The Fortran file is viewed as it lies: the first index has stride 1.
    assert_eq!(TensorFile::open(dir.path("f.npy")).unwrap().read::<f64>().unwrap().view().strides(), [1, 2, 6, 12]);
}

#[test]
fn unaligned_and_big_endian_data_are_copied() {
    let dir = Folder::new();
    let values = [1.5, -2.0, 3.25];
    let odd = dir.file("odd.npy", npy("'<f8'", false, "(3,)", &le(&values), 3));
    let big: Vec<u8> = values.iter().flat_map(|v| v.to_be_bytes()).collect();
    let big = dir.file("big.npy", npy("'>f8'", false, "(3,)", &big, 0));
    for path in [odd, big] {
        let file = TensorFile::open(path).unwrap();
        assert_eq!((file.stored_dtype(), file.natural_dtype()), ("f64", Dtype::F64));
        let data = file.read::<f64>().unwrap();
        assert!(!data.is_mapped());
        assert_eq!(data.view(), array![1.5, -2.0, 3.25].into_dyn());
    }
}

#[test]
fn integers_and_bools_are_converted() {
    let dir = Folder::new();
    macro_rules! check {
        ($($t:ty, $code:literal, $name:literal);*) => {$(
            let values = [<$t>::MIN, 1, 7, <$t>::MAX];
            for big in [false, true] {
                let bytes = |v: &$t| if big { v.to_be_bytes().to_vec() } else { v.to_le_bytes().to_vec() };
                let data: Vec<u8> = values.iter().flat_map(bytes).collect();
                let descr = format!("'{}{}'", if big { '>' } else { '<' }, $code);
                let path = dir.file("x.npy", npy(&descr, false, "(2, 2)", &data, 0));
                let file = TensorFile::open(&path).unwrap();
                assert_eq!((file.stored_dtype(), file.natural_dtype()), ($name, Dtype::F64));
                assert_eq!(read::<f64>(&path).unwrap().into_raw_vec_and_offset().0, values.map(|v| v as f64));
                assert_eq!(read::<f32>(&path).unwrap().into_raw_vec_and_offset().0, values.map(|v| v as f32));
            }
        )*};
    }
    check!(u8, "u1", "u8"; u16, "u2", "u16"; u32, "u4", "u32"; u64, "u8", "u64";
           i8, "i1", "i8"; i16, "i2", "i16"; i32, "i4", "i32"; i64, "i8", "i64");
    let path = dir.file("b.npy", npy("'|b1'", true, "(1, 3)", &[1, 0, 1], 0));
    assert_eq!(TensorFile::open(&path).unwrap().stored_dtype(), "bool");
    assert_eq!(read::<f32>(path).unwrap(), array![[1.0, 0.0, 1.0]].into_dyn());
}

#[test]
fn other_dtypes_are_refused_by_name() {
    let dir = Folder::new();
    let cases = [("'<c16'", "complex"), ("'|O'", "Python objects"), ("'<U5'", "strings"), ("'|S3'", "byte strings")];
    for (descr, word) in cases.into_iter().chain([("'<f2'", "float width"), ("'<M8[ns]'", "dates")]) {
        let message = reason(TensorFile::open(dir.file("x.npy", npy(descr, false, "(1,)", &[0; 16], 0))));
        assert!(message.contains(descr.trim_matches('\'')) && message.contains(word), "{message}");
    }
    let message = reason(TensorFile::open(dir.file("x.npy", npy("[('a', '<f8')]", false, "(1,)", &[0; 8], 0))));
    assert!(message.contains("structured dtype ([('a', '<f8')]"), "{message}");
}

#[test]
fn wrong_lengths_are_errors_with_both_numbers() {
    let dir = Folder::new();
    let open = |bytes: Vec<u8>| TensorFile::open(dir.file("x.npy", bytes));
    let short = reason(open(npy("'<f8'", false, "(2, 3)", &[0; 47], 0)));
    assert!(short.contains("cut short") && short.contains("48 bytes, 47 follow"), "{short}");
    let long = reason(open(npy("'<f4'", false, "(2, 3)", &[0; 25], 0)));
    assert!(long.contains("trail") && long.contains("24 bytes, 25 follow"), "{long}");
    // Nothing of this size can have been allocated.
    let huge = reason(open(npy("'<f8'", false, "(1000000, 1000000000)", &[0; 8], 0)));
    assert!(huge.contains("8000000000000000 bytes, 8 follow"), "{huge}");
    let whole = npy("'<f8'", false, "(1,)", &[0; 8], 0);
    for n in 0..whole.len() {
        assert!(matches!(open(whole[..n].to_vec()).unwrap_err(), Error::Format { .. }), "cut to {n} bytes");
    }
    let mut long_header = b"\x93NUMPY\x02\x00".to_vec();
    long_header.extend(u32::MAX.to_le_bytes());
    assert!(reason(open(long_header)).contains("needs 4294967307 bytes, the file has 12"));
}

#[test]
fn dims_are_checked_as_everywhere_else() {
    let dir = Folder::new();
    let open = |dims: &str| TensorFile::open(dir.file("x.npy", npy("'<f8'", false, dims, &[], 0))).unwrap_err();
    assert_eq!(open("()"), Error::Order { found: 0, max: 8 });
    assert_eq!(open("(1, 1, 1, 1, 1, 1, 1, 1, 1)"), Error::Order { found: 9, max: 8 });
    assert_eq!(open("(3, 0)"), Error::EmptyDim { mode: 1, dims: vec![3, 0] });
    assert!(matches!(open("(4294967296, 4294967296)"), Error::TooManyElements { .. }));
    let text = |t: &str| TensorFile::open(dir.file("x.txt", t)).unwrap_err();
    assert_eq!(text("tensor\n0\n\n"), Error::Order { found: 0, max: 8 });
    assert_eq!(text("tensor\n9000000000\n"), Error::Order { found: 9_000_000_000, max: 8 });
    assert_eq!(text("tensor\n2\n0 3\n"), Error::EmptyDim { mode: 0, dims: vec![0, 3] });
}

#[test]
fn f32_overflow_names_index_and_value() {
    let dir = Folder::new();
    let overflow = |path: &Path, value: &str, index: &[usize]| {
        let what = format!("{}: the value {value}", path.display());
        assert_eq!(read::<f32>(path).unwrap_err(), Error::Overflow { what, dtype: "f32", index: index.into() });
        assert!(read::<f64>(path).is_ok());
    };
    let bytes = le(&[f64::INFINITY, f64::NAN, 0.0, -3.5e38, 5.0, 1e300]);
    overflow(&dir.file("c.npy", npy("'<f8'", false, "(2, 3)", &bytes, 0)), "-3.5e38", &[1, 0]);
    overflow(&dir.file("f.npy", npy("'<f8'", true, "(2, 3)", &bytes, 0)), "-3.5e38", &[1, 1]);
    overflow(&dir.file("x.txt", "tensor\n2\n2 3\n1 2 3 4 5 1e39\n"), "\"1e39\"", &[1, 2]);
    // Beyond one piece of the parallel conversion, the first of several.
    let mut x = vec![1.0; 200_000];
    (x[150_000], x[199_999]) = (1e200, 1e201);
    overflow(&dir.file("l.npy", npy("'<f8'", false, "(2, 100000)", &le(&x), 0)), "1e200", &[1, 50_000]);
    // Infinity itself is no overflow.
    let inf = read::<f32>(dir.file("i.npy", npy("'<f8'", false, "(1,)", &le(&[f64::INFINITY]), 0))).unwrap();
    assert_eq!(inf[[0]], f32::INFINITY);
}

#[test]
fn npz_archives_hold_one_array_or_need_a_name() {
    let dir = Folder::new();
    let x = counting(&[3, 100, 700]);
    for compressed in [false, true] {
        let path = dir.path("one.npz");
        let file = fs::File::create(&path).unwrap();
        let mut npz = if compressed { NpzWriter::new_compressed(file) } else { NpzWriter::new(file) };
        npz.add_array("x", &x).unwrap();
        npz.finish().unwrap();
        assert_eq!(read::<f64>(&path).unwrap(), x);
        assert_eq!(read::<f32>(dir.path("one.npz:x")).unwrap(), x.mapv(|v| v as f32));
        assert_eq!(TensorFile::open(dir.path("one.npz:x.npy")).unwrap().dims(), [3, 100, 700]);
        let damaged = dir.path("damaged.npz");
        let mut bytes = fs::read(&path).unwrap();
        bytes[5000] ^= 1;
        fs::write(&damaged, bytes).unwrap();
        assert!(read::<f64>(&damaged).is_err(), "the checksum is not looked at");
    }
    let mut npz = NpzWriter::new(fs::File::create(dir.path("two.npz")).unwrap());
    npz.add_array("a", &array![1u8, 2]).unwrap();
    npz.add_array("b", &array![[1e300]]).unwrap();
    npz.finish().unwrap();
    assert_eq!(reason(TensorFile::open(dir.path("two.npz"))), "2 arrays in it (a, b): name one as FILE.npz:NAME");
    assert_eq!(reason(TensorFile::open(dir.path("two.npz:c"))), "no array \"c\" among its 2 (a, b)");
    assert_eq!(read::<f64>(dir.path("two.npz:a")).unwrap(), array![1.0, 2.0].into_dyn());
    assert!(read::<f32>(dir.path("two.npz:b")).unwrap_err().to_string().contains("two.npz:b: the value 1e300"));
    NpzWriter::new(fs::File::create(dir.path("none.npz")).unwrap()).finish().unwrap();
    assert_eq!(reason(TensorFile::open(dir.path("none.npz"))), "the archive is empty");
    write_npy(dir.path("x.npy"), &x).unwrap();
    assert!(reason(TensorFile::open(dir.path("x.npy:x"))).contains("not a .npz archive"));
    // A file whose own name has a colon is opened as it is.
    let colon = dir.file("x.npy:x", npy("'<f8'", false, "(1,)", &le(&[4.0]), 0));
    assert_eq!(read::<f64>(colon).unwrap(), array![4.0].into_dyn());
}

#[test]
fn files_that_are_none() {
    let dir = Folder::new();
    for path in [dir.path("absent.npy"), dir.path("absent.npz:x"), dir.0.path().into()] {
        assert!(matches!(TensorFile::open(&path).unwrap_err(), Error::Io { .. }), "{path:?}");
    }
    assert_eq!(reason(TensorFile::open(dir.file("e", ""))), "the file is empty");
    // A file that another one replaces between opening and reading.
    let path = dir.file("x.npy", npy("'<f8'", false, "(2,)", &[0; 16], 0));
    let file = TensorFile::open(&path).unwrap();
    fs::write(&path, npy("'<f8'", false, "(1,)", &[0; 8], 0)).unwrap();
    assert!(reason(file.read::<f64>()).contains("changed"));
}

#[test]
fn text_tensors_are_column_major() {
    let dir = Folder::new();
    let text = "// a comment with 3 words\r\n\r\n//\r\ntensor of order 2\r\n2\r\n2 3\r\n8.0e-001 -2\n// between 1 2\n3.\n\n+4 NaN\n-Inf";
    let x = read::<f64>(dir.file("x.txt", text)).unwrap();
    assert_eq!(x.slice(ndarray::s![.., ..2]), array![[0.8, 3.0], [-2.0, 4.0]]);
    assert!(x[[0, 2]].is_nan() && x[[1, 2]] == f64::NEG_INFINITY);
    let file = TensorFile::open(dir.path("x.txt")).unwrap();
    assert_eq!((file.stored_dtype(), file.natural_dtype()), ("text", Dtype::F64));
    let cube = read::<f32>(dir.file("c.txt", "tensor\n3\n2 1 2\n1\n2\n3\n4\n")).unwrap();
    assert_eq!(cube, array![[[1.0, 3.0]], [[2.0, 4.0]]].into_dyn());
}

#[test]
fn long_text_is_read_whole_wherever_the_buffer_ends() {
    let dir = Folder::new();
    let x = counting(&[10_007]).mapv(|v| v.sin() / 3.0);
    let numbers: Vec<String> = x.iter().map(|v| format!("{v:e}")).collect();
    for (n, between) in ["\n", "  \r\n", " // c 1\n", "\n//\n\n"].iter().enumerate() {
        let text = format!("// {}\ntensor\n1\n10007\n{}", "/ 9 ".repeat(20_000 + n), numbers.join(between));
        assert_eq!(read::<f64>(dir.file("x.txt", text)).unwrap(), x);
    }
}

#[test]
fn text_errors_have_numbers() {
    let dir = Folder::new();
    let fault = |text: &str| reason(read::<f64>(dir.file("x.txt", text)));
    let dims = "a tensor with dims (2, 2) must have 4 values";
    assert_eq!(fault("tensor\n2\n2 2\n1\n2\n3\n"), format!("{dims}, the file ends after 3"));
    assert_eq!(fault("tensor\n2\n2 2\n1 2 3 4\n5\n6"), format!("{dims}, the file has 6 (from line 5 on)"));
    assert_eq!(fault("tensor\n2\n2 2\n1\n// c\n2,5\n"), "line 6: \"2,5\" is not a number");
    assert_eq!(fault("tensor\n2\n2 2 2\n1\n"), "line 3: 3 dims where the order is 2");
    assert_eq!(fault("tensor\n2\n2\n2\n1\n"), "line 3: 1 dims where the order is 2");
    assert_eq!(fault("tensor\ntwo\n"), "line 2: \"two\" is not the order (a whole number)");
    assert_eq!(fault("tensor\n2\n2 -2\n"), "line 3: \"-2\" is not a dim (a whole number)");
    assert_eq!(fault("tensor\n2\n"), "the file ends before the dims");
    assert_eq!(fault("\n\nspam 1"), "line 3: the header is \"spam\", not \"tensor\"");
    assert_eq!(fault("// only\n"), "the file ends before the header \"tensor\"");
    assert!(fault("sptensor\n3\n").contains("export_data(full(X))"));
    assert!(fault("ktensor\n3\n").contains("not a dense tensor"));
    assert!(fault("tensor\n2\n1000000 1000000000\n1\n").ends_with("1000000000000000 values, the file ends after 1"));
    assert!(fault(&format!("tensor\n1\n1\n{}\n", "1".repeat(2000))).contains("is not a number"));
    assert!(matches!(read::<f64>(dir.file("x.txt", "tensor\n1\n1\n1e400")).unwrap_err(), Error::Overflow { .. }));
}

#[test]
fn ktensor_text_is_what_export_data_writes() {
    let dir = Folder::new();
    let model = CpTensor::new(array![2.0, 0.5], vec![array![[1.0, 2.0], [3.0, 4.0], [5.0, -0.0]], array![[1e-3, 1.0]]]);
    let model = model.unwrap();
    write_ktensor(dir.path("m.txt"), &model).unwrap();
    let expected =
        "ktensor\n2\n3 1\n2\n2e0 5e-1\nmatrix\n2\n3 2\n1e0 2e0\n3e0 4e0\n5e0 -0e0\nmatrix\n2\n1 2\n1e-3 1e0\n";
    assert_eq!(fs::read_to_string(dir.path("m.txt")).unwrap(), expected);
    assert_eq!(read_ktensor(dir.path("m.txt")).unwrap(), model);
    let fault = |from: &str, to: &str| reason(read_ktensor::<f64>(dir.file("b.txt", expected.replacen(from, to, 1))));
    assert_eq!(fault("ktensor", "tensor"), "line 1: the header is \"tensor\", not \"ktensor\"");
    assert_eq!(fault("3 2\n", "2 3\n"), "factor 0 has dims (2, 3), expected (3, 2)");
    assert_eq!(fault("4e0\n", "\n"), "line 12: \"matrix\" is not a number");
    assert_eq!(fault(" 1e0\n", "\n"), "factor 1 must have 2 values, the file ends after 1");
    assert_eq!(fault(" 1e0\n", " 1e0 7\n"), "the model must have 10 values, the file has 11 (from line 15 on)");
    assert_eq!(fault("matrix", "facmatrix"), "line 6: the header is \"facmatrix\", not \"matrix\"");
    let zero = read_ktensor::<f64>(dir.file("z.txt", "ktensor\n1\n2\n0\nmatrix\n2\n2 0\n")).unwrap_err();
    assert_eq!(zero, Error::RankZero);
    let huge = reason(read_ktensor::<f64>(dir.file("h.txt", "ktensor\n1\n2\n18446744073709551615\n1 2 3")));
    assert_eq!(huge, "the weights must have 18446744073709551615 values, the file ends after 3");
}

fn model(dims: &[usize], rank: usize) -> CpTensor<f64> {
    let factor = |(n, &rows): (usize, &usize)| {
        Array::from_shape_fn((rows, rank).f(), |(i, r)| (n + 1) as f64 * (i as f64 - 0.3 * r as f64))
    };
    CpTensor::new(Array1::from_elem(rank, 1.5), dims.iter().enumerate().map(factor).collect()).unwrap()
}

#[test]
fn models_go_through_folders() {
    let dir = Folder::new();
    let big = model(&[3, 4, 2, 5], 2);
    write_model(dir.0.path(), &big).unwrap();
    assert_eq!(dir.names(), ["factor_0.npy", "factor_1.npy", "factor_2.npy", "factor_3.npy", "weights.npy"]);
    assert_eq!(read_model(dir.0.path()).unwrap(), big);
    // Row-major on disk, though the factors in memory are not.
    assert!(fs::read(dir.path("factor_0.npy")).unwrap().windows(22).any(|w| w == b"'fortran_order': False"));
    // A smaller model in the same folder does not inherit factors of the larger.
    let small = model(&[3, 4], 3);
    write_model(dir.0.path(), &small).unwrap();
    assert_eq!(dir.names(), ["factor_0.npy", "factor_1.npy", "weights.npy"]);
    assert_eq!(read_model(dir.0.path()).unwrap(), small);
    let nested = dir.path("a/b/c");
    write_model(&nested, &small).unwrap();
    let single = read_model::<f32>(&nested).unwrap();
    assert_eq!(single.factors()[1], small.factors()[1].mapv(|v| v as f32));
    fs::remove_file(nested.join("weights.npy")).unwrap();
    assert_eq!(read_model::<f64>(&nested).unwrap().weights(), Array1::<f64>::ones(3));
}

#[test]
fn incomplete_models_are_refused() {
    let dir = Folder::new();
    let folder = dir.0.path();
    assert!(matches!(read_model::<f64>(dir.path("absent")).unwrap_err(), Error::Io { .. }));
    assert_eq!(reason(read_model::<f64>(folder)), "factor_0.npy is missing: the folder holds no model");
    write_model(folder, &model(&[2, 3, 4], 2)).unwrap();
    fs::remove_file(dir.path("factor_1.npy")).unwrap();
    assert_eq!(reason(read_model::<f64>(folder)), "factor_1.npy is missing, though factor_2.npy is there");
    write_npy(dir.path("factor_1.npy"), &array![1.0, 2.0]).unwrap();
    assert_eq!(reason(read_model::<f64>(folder)), "not a matrix: its dims are (2)");
    write_npy(dir.path("factor_1.npy"), &array![[1.0, 2.0, 3.0]]).unwrap();
    let wrong = Error::FactorShape { mode: 1, expected: (1, 2), found: (1, 3) };
    assert_eq!(read_model::<f64>(folder).unwrap_err(), wrong);
    write_npy(dir.path("factor_1.npy"), &array![[1.0, 2.0]]).unwrap();
    write_npy(dir.path("weights.npy"), &array![1.0]).unwrap();
    assert_eq!(read_model::<f64>(folder).unwrap_err(), Error::WeightsLength { expected: 2, found: 1 });
}

#[test]
fn failed_writes_leave_nothing() {
    let dir = Folder::new();
    let x = Array2::<f32>::ones((2, 3));
    fs::create_dir(dir.path("weights.npy")).unwrap();
    let error = write_model(dir.0.path(), &model(&[2, 3], 1)).unwrap_err().to_string();
    assert!(error.ends_with("weights.npy: is a directory, not a file"), "{error}");
    assert_eq!(dir.names(), ["weights.npy"]);
    let file = dir.file("file", "x");
    for path in [dir.path("absent/x.npy"), file.join("x.npy"), dir.path("weights.npy"), dir.path("..")] {
        assert!(matches!(write_matrix(&path, x.view()).unwrap_err(), Error::Io { .. }), "{path:?}");
        assert!(matches!(check_output_file(&path).unwrap_err(), Error::Io { .. }), "{path:?}");
    }
    for path in [file.clone(), file.join("a/b")] {
        assert!(matches!(write_model(&path, &model(&[2], 1)).unwrap_err(), Error::Io { .. }), "{path:?}");
        assert!(matches!(check_output_dir(&path).unwrap_err(), Error::Io { .. }), "{path:?}");
    }
    assert_eq!(dir.names(), ["file", "weights.npy"]);
    check_output_dir(&dir.path("p/q/r")).unwrap();
    check_output_dir(dir.0.path()).unwrap();
    check_output_file(&dir.path("new.npy")).unwrap();
    check_output_file(&file).unwrap();
    assert_eq!((dir.names(), fs::read(&file).unwrap()), (vec!["file".into(), "weights.npy".into()], b"x".to_vec()));
    write_matrix(&file, x.view()).unwrap();
    assert_eq!(read_matrix::<f32>(&file).unwrap(), x);
    assert_eq!(dir.names(), ["file", "weights.npy"]);
}

#[cfg(unix)]
#[test]
fn links_and_devices_stay() {
    let dir = Folder::new();
    let target = dir.file("target", "x");
    std::os::unix::fs::symlink(&target, dir.path("link")).unwrap();
    write_matrix(dir.path("link"), array![[1.0f64]].view()).unwrap();
    assert!(fs::symlink_metadata(dir.path("link")).unwrap().is_symlink());
    assert_eq!(read_matrix::<f64>(&target).unwrap(), array![[1.0]]);
    assert!(write_matrix("/dev/null", array![[1.0f64]].view()).is_err());
}

/// A device may never end and a pipe may never begin: neither is opened.
#[cfg(unix)]
#[test]
fn only_regular_files_are_read() {
    let dir = Folder::new();
    let pipe = dir.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [Path::new("/dev/zero"), &pipe] {
        let expected = format!("{}: is not a regular file", path.display());
        assert_eq!(TensorFile::open(path).unwrap_err().to_string(), expected);
        assert_eq!(read_ktensor::<f64>(path).unwrap_err().to_string(), expected);
        assert_eq!(read_vector::<f64>(path).unwrap_err().to_string(), expected);
    }
    let error = TensorFile::open(dir.0.path()).unwrap_err().to_string();
    assert!(error.ends_with(": is a directory, not a file"), "{error}");
}

#[test]
fn non_finite_entries_are_found_in_row_major_order() {
    let first = |x: &ArrayD<f64>| first_non_finite(x.view()).map(|(i, _)| i);
    let n = 1 << 16;
    for place in [0, 1, n - 1, n, n + 1, 3 * n] {
        let mut x = Array1::from_elem(3 * n + 1, f64::MAX);
        x[0] = -0.0;
        x[1] = 5e-324;
        assert_eq!(first_non_finite(x.view().into_dyn()), None);
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            x[place] = bad;
            x[3 * n] = bad;
            let (index, value) = first_non_finite(x.view().into_dyn()).unwrap();
            assert_eq!((index, value.to_bits()), (vec![place], bad.to_bits()));
            let y = x.mapv(|v| if v.is_finite() { f32::MIN } else { v as f32 });
            assert_eq!(first_non_finite(y.view().into_dyn()).unwrap().0, [place]);
        }
    }
    // Column-major: (1, 0) lies before (0, 1) in memory, but comes after it in row-major order.
    let mut f = ArrayD::<f64>::zeros(IxDyn(&[2, 2]).f());
    (f[[1, 0]], f[[0, 1]]) = (f64::NAN, f64::INFINITY);
    assert_eq!(first(&f), Some(vec![0, 1]));
    let error = check_finite("x", f.view()).unwrap_err();
    assert_eq!(error, Error::NonFinite { what: "x".into(), index: vec![0, 1], value: f64::INFINITY });
    // Every second entry, backwards: the bad one in between is not part of the view.
    let mut x = counting(&[4, 5]);
    x[[1, 3]] = f64::NAN;
    let (index, value) = first_non_finite(x.slice(ndarray::s![..;-2, ..]).into_dyn()).unwrap();
    assert!(index == [1, 3] && value.is_nan());
    assert_eq!(first_non_finite(x.slice(ndarray::s![..;2, ..]).into_dyn()), None);
}

proptest! {
    #[test]
    fn ktensors_round_trip_to_the_bit(
        bits in prop::collection::vec(any::<u64>(), 8),
        special in prop::sample::select(vec![-0.0, 5e-324, -2.2e-308, f64::MAX, f64::MIN_POSITIVE, 0.1]),
    ) {
        let mut v: Vec<f64> = bits.iter().map(|&b| f64::from_bits(b)).map(|v| if v.is_finite() { v } else { 1.0 / 3.0 }).collect();
        v[0] = special;
        let wide = CpTensor::new(array![v[0], v[1]], vec![array![[v[2], v[3]], [v[4], v[5]]], array![[v[6], v[7]]]]).unwrap();
        let dir = Folder::new();
        write_ktensor(dir.path("m"), &wide).unwrap();
        let all = |m: &CpTensor<f64>| -> Vec<u64> {
            m.weights().iter().chain(m.factors().iter().flatten()).map(|v| v.to_bits()).collect()
        };
        prop_assert_eq!(all(&read_ktensor(dir.path("m")).unwrap()), all(&wide));
        let f: Vec<f32> = bits.iter().map(|&b| f32::from_bits(b as u32)).map(|v| if v.is_finite() { v } else { 0.1 }).collect();
        let narrow = CpTensor::new(array![f[0]], vec![array![[f[1]], [f[2]]], array![[f[3]]]]).unwrap();
        write_ktensor(dir.path("n"), &narrow).unwrap();
        let all = |m: &CpTensor<f32>| -> Vec<u32> {
            m.weights().iter().chain(m.factors().iter().flatten()).map(|v| v.to_bits()).collect()
        };
        prop_assert_eq!(all(&read_ktensor(dir.path("n")).unwrap()), all(&narrow));
    }

    #[test]
    fn first_non_finite_equals_the_plain_search(
        dims in prop::collection::vec(1..5usize, 1..5),
        bad in prop::collection::vec(any::<prop::sample::Index>(), 0..3),
        turn in any::<bool>(),
        step in prop::sample::select(vec![1isize, -1, 2]),
    ) {
        let mut x = counting(&dims);
        for place in bad {
            *x.iter_mut().nth(place.index(dims.iter().product())).unwrap() = f64::NEG_INFINITY;
        }
        let mut view = if turn { x.view().reversed_axes() } else { x.view() };
        view.slice_axis_inplace(ndarray::Axis(0), ndarray::Slice::new(0, None, step));
        let plain = view.indexed_iter().find(|(_, v)| !v.is_finite()).map(|(i, v)| (ndarray::Dimension::slice(&i).to_vec(), *v));
        prop_assert_eq!(first_non_finite(view.view()), plain);
    }
}
