//! Running the program, a folder to run it in, and tensors to give it.

use ndarray::{Array2, ArrayD, IxDyn};
use ndarray_npy::{WritableElement, write_npy};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// What a run left: exit code and both streams.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// Passes if the run succeeded without a warning.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert!(self.code == Some(0) && self.stderr.is_empty(), "{self:#?}");
        self
    }

    /// Stdout as JSON, which it has to be from end to end.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:#?}"))
    }
}

/// A temporary folder in which the program runs, so that arguments are plain names.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polyad"));
        command.args(args).current_dir(self.0.path()).stdin(Stdio::null());
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        let output = self.command(args).output().unwrap();
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub fn put<T: WritableElement>(&self, name: &str, array: &ndarray::ArrayRef<T, impl ndarray::Dimension>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        write_npy(path, &array.view()).unwrap();
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&std::fs::read(self.path(name)).unwrap()).unwrap()
    }

    pub fn names(&self, dir: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(dir)).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Every file and folder with its content, to see that a run changed nothing.
    pub fn snapshot(&self) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
        fn walk(dir: &Path, into: &mut BTreeMap<PathBuf, Option<Vec<u8>>>) {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(&path, into);
                    into.insert(path, None);
                } else {
                    into.insert(path.clone(), Some(std::fs::read(&path).unwrap()));
                }
            }
        }
        let mut all = BTreeMap::new();
        walk(self.0.path(), &mut all);
        all
    }
}

/// A tensor of rank 2 with positive entries.
pub fn rank_two(dims: &[usize]) -> ArrayD<f64> {
    let entry = |mode: usize, i: usize, r: usize| 1.0 + ((3 * mode + 5 * i + 7 * r * (i + 1)) as f64).sin() / 2.0;
    ArrayD::from_shape_fn(IxDyn(dims), |index| {
        (0..2).map(|r| (0..dims.len()).map(|m| entry(m, index[m], r)).product::<f64>()).sum::<f64>()
    })
}

/// A .npy file whose header says this; for what no array writes.
pub fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    // Magic, version, length and header together are a multiple of 64 bytes long.
    let length = (10 + header.len() + 1).next_multiple_of(64) - 10;
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend(u16::try_from(length).unwrap().to_le_bytes());
    file.extend(format!("{header:<width$}\n", width = length - 1).bytes());
    file.extend(data);
    file
}

/// Factors `factor_0.npy`, ... in a folder.
pub fn put_factors<T: WritableElement>(folder: &Folder, dir: &str, factors: &[Array2<T>]) {
    for (mode, factor) in factors.iter().enumerate() {
        folder.put(&format!("{dir}/factor_{mode}.npy"), factor);
    }
}

/// A word for `--device`, and whether it has f64.
pub struct TestDevice {
    pub word: &'static str,
    pub f64: bool,
}

/// The CPU, and the best adapter where there is one. Without one the GPU part is skipped, unless it is required.
pub fn devices() -> Vec<TestDevice> {
    let listed = Folder::new().run(&["devices", "--json"]).json();
    let adapters: Vec<&Value> = listed.as_array().unwrap().iter().filter(|d| d["backend"] != "cpu").collect();
    let mut devices = vec![TestDevice { word: "cpu", f64: true }];
    if adapters.is_empty() {
        let required = cfg!(feature = "gpu") && std::env::var_os("POLYAD_REQUIRE_GPU").is_some_and(|v| v == "1");
        assert!(!required, "no adapter, but one is required");
        println!("skipped: no adapter");
    } else {
        // With several adapters the best one is not known here; one that lacks f64 may be it.
        let has_f64 = |d: &&Value| d["features"].as_array().unwrap().iter().any(is_f64);
        devices.push(TestDevice { word: "gpu", f64: adapters.iter().all(has_f64) });
    }
    devices
}

fn is_f64(feature: &Value) -> bool {
    feature["name"].as_str().unwrap().contains("F64") && feature["present"] == true
}

/// Whether a line is the warning that a software adapter deserves.
pub fn only_software_warnings(stderr: &str) -> bool {
    stderr.lines().all(|line| line.starts_with("warning: ") && line.contains("software"))
}
