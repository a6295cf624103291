//! `polyad decompose`: files in, model and summary out.

use super::support::{Folder, devices, only_software_warnings, rank_two};
use ndarray::{Array1, Array2, Array3, ShapeBuilder};
use ndarray_npy::{NpzWriter, read_npy};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

const DIMS: [usize; 3] = [5, 7, 6];

fn fit(summary: &Value) -> f64 {
    summary["fit"].as_f64().unwrap()
}

#[test]
fn every_format_gives_the_same_answer() {
    let folder = Folder::new();
    let x = rank_two(&DIMS).into_dimensionality::<ndarray::Ix3>().unwrap();
    folder.put("c.npy", &x);
    let mut columns = Array3::zeros(DIMS.f());
    columns.assign(&x);
    folder.put("fortran.npy", &columns);
    let mut npz = NpzWriter::new_compressed(fs::File::create(folder.path("one.npz")).unwrap());
    npz.add_array("x", &x).unwrap();
    npz.finish().unwrap();
    let mut npz = NpzWriter::new(fs::File::create(folder.path("two.npz")).unwrap());
    npz.add_array("other", &Array1::<f64>::zeros(3)).unwrap();
    npz.add_array("x", &x).unwrap();
    npz.finish().unwrap();
    // Tensor Toolbox text is column-major.
    let entries: Vec<String> = x.t().iter().map(|v| format!("{v:e}")).collect();
    folder.write("x.tns", format!("tensor\n3\n5 7 6\n{}\n", entries.join("\n")));

    let run = |input: &str| {
        let ran = folder.run(&["decompose", input, "--rank", "2", "--device", "cpu", "--json"]).ok();
        let summary = ran.json();
        assert_eq!(summary["dtype"], "f64", "{input}");
        assert!(fit(&summary) > 0.99, "{input}: {summary}");
        summary["fits"].clone()
    };
    let fits = run("c.npy");
    for input in ["fortran.npy", "one.npz", "one.npz:x", "two.npz:x", "x.tns"] {
        assert_eq!(run(input), fits, "{input}");
    }
}

#[test]
fn dtypes_are_the_files_unless_asked_otherwise() {
    let folder = Folder::new();
    let x = rank_two(&DIMS);
    folder.put("f64.npy", &x);
    folder.put("f32.npy", &x.mapv(|v| v as f32));
    folder.put("i32.npy", &x.mapv(|v| (1000.0 * v) as i32));
    folder.put("u8.npy", &x.mapv(|v| (20.0 * v) as u8));
    let cases: [(&str, &[&str], &str); 6] = [
        ("f64.npy", &[], "f64"),
        ("f32.npy", &[], "f32"),
        ("i32.npy", &[], "f64"),
        ("u8.npy", &["--dtype", "f32"], "f32"),
        ("f64.npy", &["--dtype", "f32"], "f32"),
        ("f32.npy", &["--dtype", "f64"], "f64"),
    ];
    for (input, more, dtype) in cases {
        let mut args = vec!["decompose", input, "--rank", "2", "--device", "cpu", "--output", "out"];
        args.extend(more);
        folder.run(&args).ok();
        assert_eq!(folder.json("out/summary.json")["dtype"], dtype, "{input} {more:?}");
        for (mode, dim) in DIMS.iter().enumerate() {
            let path = folder.path(&format!("out/factor_{mode}.npy"));
            let found = match dtype {
                "f32" => read_npy::<_, Array2<f32>>(&path).unwrap().dim(),
                _ => read_npy::<_, Array2<f64>>(&path).unwrap().dim(),
            };
            assert_eq!(found, (*dim, 2));
            let bytes = fs::read(&path).unwrap();
            let header = String::from_utf8_lossy(&bytes[..128]).into_owned();
            assert!(header.contains("'fortran_order': False"), "row-major on disk: {header}");
        }
    }
}

#[test]
fn the_summary_has_exactly_these_keys() {
    let folder = Folder::new();
    folder.put("x.npy", &rank_two(&DIMS));
    folder.write("out/notes.txt", "mine");
    let args = ["decompose", "x.npy", "--rank", "2", "--device", "cpu", "--seed", "3", "--sweeps", "7", "--tol", "0"];
    let ran = folder.run(&[&args[..], &["--method", "slice", "--precision", "fast", "--output", "out"]].concat()).ok();
    assert!(ran.stdout.contains("sweep    7  fit 0."), "{}", ran.stdout);
    let files = ["factor_0.npy", "factor_1.npy", "factor_2.npy", "notes.txt", "summary.json", "weights.npy"];
    assert_eq!(folder.names("out"), files);
    assert_eq!(read_npy::<_, Array1<f64>>(folder.path("out/weights.npy")).unwrap().len(), 2);

    let summary = folder.json("out/summary.json");
    let keys: BTreeSet<&str> = summary.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = [
        "dims",
        "rank",
        "device",
        "algebra",
        "method",
        "tree",
        "passes",
        "tuning",
        "dtype",
        "seed",
        "sweeps",
        "stop",
        "initial_fit",
        "fit",
        "fits",
        "start_fits",
        "best_start",
        "fixed",
        "nonneg",
        "ridge",
        "core_consistency",
        "seconds",
        "warnings",
    ];
    assert_eq!(keys, BTreeSet::from(expected));
    assert_eq!(summary["dims"], serde_json::json!(DIMS));
    assert!(summary["tuning"].is_null(), "{summary}");
    let word = |key: &str| summary[key].as_str().unwrap_or_else(|| panic!("{key}: {summary}")).to_string();
    let words = ["device", "method", "dtype", "stop"].map(word);
    assert_eq!(words, ["CPU", "slice", "f64", "max_sweeps"]);
    assert_eq!(["rank", "seed", "sweeps"].map(|key| summary[key].as_u64()), [Some(2), Some(3), Some(7)]);
    let fits: Vec<f64> = summary["fits"].as_array().unwrap().iter().map(|f| f.as_f64().unwrap()).collect();
    assert_eq!((fits.len(), fits.last().copied()), (7, summary["fit"].as_f64()));
    assert_eq!(summary["warnings"], serde_json::json!([]));
    let seconds = summary["seconds"].as_object().unwrap();
    let keys: BTreeSet<&str> = seconds.keys().map(String::as_str).collect();
    assert_eq!(keys, BTreeSet::from(["mttkrp", "algebra", "gram", "solve", "fit", "transfer", "wait", "total"]));
    assert!(seconds.values().all(|s| s.as_f64().is_some_and(|s| s >= 0.0)), "{seconds:?}");
}

#[test]
fn json_is_all_that_json_prints() {
    let folder = Folder::new();
    folder.put("x.npy", &rank_two(&DIMS));
    let args = ["decompose", "x.npy", "--rank", "2", "--device", "cpu", "--json"];
    let printed = folder.run(&args).ok().json();
    assert_eq!(folder.names("."), ["x.npy"]);
    let both = folder.run(&[&args[..], &["--quiet", "--output", "out"]].concat()).ok().json();
    assert_eq!(folder.json("out/summary.json"), both);
    assert_eq!(printed["fits"], both["fits"]);
}

#[test]
fn quiet_is_silent() {
    let folder = Folder::new();
    folder.put("x.npy", &rank_two(&DIMS));
    let ran = folder.run(&["decompose", "x.npy", "--rank", "2", "--device", "cpu", "--quiet", "-o", "out"]).ok();
    assert_eq!(ran.stdout, "");
    assert!(folder.path("out/summary.json").exists());
}

#[test]
fn without_a_folder_the_components_are_printed() {
    let folder = Folder::new();
    folder.put("x.npy", &rank_two(&DIMS));
    let ran = folder.run(&["decompose", "x.npy", "--rank", "2", "--device", "cpu"]).ok();
    for part in ["component", "weight", "factor 1: 7 x 2, first 5 rows", "[4]", "fit      0.99", "CPU", "seconds  "] {
        assert!(ran.stdout.contains(part), "{part:?} is not in:\n{}", ran.stdout);
    }
    assert_eq!(folder.names("."), ["x.npy"]);
}

/// Ten entries are not worth a GPU's start-up, wherever this runs.
#[test]
fn the_device_is_named_with_the_reason() {
    let folder = Folder::new();
    folder.put("x.npy", &rank_two(&[2, 5]));
    let stdout = folder.run(&["decompose", "x.npy", "--rank", "1", "-o", "out"]).ok().stdout;
    let line = stdout.lines().find_map(|line| line.strip_prefix("device   CPU: "));
    assert!(line.is_some_and(|reason| !reason.is_empty()), "{stdout}");
    assert_eq!(folder.json("out/summary.json")["device"], "CPU");
}

/// Counts that only a loop could use up.
#[test]
fn the_largest_counts_are_accepted() {
    let folder = Folder::new();
    folder.put("x.npy", &rank_two(&[3, 4]));
    let most = u64::MAX.to_string();
    let args = ["decompose", "x.npy", "--rank", "1", "--device", "cpu", "--sweeps", &most, "--seed", &most, "--json"];
    assert_eq!(folder.run(&args).ok().json()["seed"], u64::MAX);
    super::support::put_factors(&folder, "u", &[Array2::<f64>::ones((3, 1)), Array2::ones((4, 1))]);
    let args = ["mttkrp", "x.npy", "-f", "u", "-m", "0", "--device", "cpu", "--method", "tile", "-o", "g.npy"];
    let ran = folder.run(&[&args[..], &["--tile", &usize::MAX.to_string()]].concat());
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    assert!(ran.stderr.lines().all(|line| line.starts_with("warning: ")), "{ran:#?}");
}

#[test]
fn a_seed_decides_every_bit() {
    let folder = Folder::new();
    folder.put("x.npy", &rank_two(&DIMS));
    for (out, seed) in [("a", "5"), ("b", "5"), ("c", "6")] {
        let args = ["decompose", "x.npy", "--rank", "3", "--device", "cpu", "--sweeps", "4", "--method", "slice"];
        folder.run(&[&args[..], &["--seed", seed, "-o", out]].concat()).ok();
    }
    let bytes = |dir: &str, name: &str| fs::read(folder.path(dir).join(name)).unwrap();
    for name in ["weights.npy", "factor_0.npy", "factor_1.npy", "factor_2.npy"] {
        assert_eq!(bytes("a", name), bytes("b", name), "{name}");
        assert_ne!(bytes("a", name), bytes("c", name), "{name}");
    }
    let fits = |dir: &str| folder.json(&format!("{dir}/summary.json"))["fits"].clone();
    assert_eq!(fits("a"), fits("b"));
}

#[test]
fn a_model_can_be_gone_on_from() {
    let folder = Folder::new();
    folder.put("x.npy", &rank_two(&DIMS));
    let args = ["decompose", "x.npy", "--rank", "2", "--device", "cpu"];
    folder.run(&[&args[..], &["--sweeps", "5", "-o", "model"]].concat()).ok();
    let first = folder.json("model/summary.json");
    // The result may go where the start came from.
    folder.run(&[&args[..], &["--init", "model", "--sweeps", "3", "-o", "model"]].concat()).ok();
    let second = folder.json("model/summary.json");
    assert!(second["fits"][0].as_f64().unwrap() >= fit(&first) - 1e-12, "{first} {second}");
    folder.run(&[&args[..], &["--init", "nvecs", "-q", "-o", "nvecs"]].concat()).ok();
    assert!(fit(&folder.json("nvecs/summary.json")) > 0.99);
}

#[test]
fn a_model_of_lower_order_replaces_all_of_an_older_one() {
    let folder = Folder::new();
    folder.put("four.npy", &rank_two(&[3, 4, 2, 3]));
    folder.put("two.npy", &rank_two(&[3, 4]));
    for input in ["four.npy", "two.npy"] {
        folder.run(&["decompose", input, "--rank", "1", "--device", "cpu", "-o", "out"]).ok();
    }
    assert_eq!(folder.names("out"), ["factor_0.npy", "factor_1.npy", "summary.json", "weights.npy"]);
}

#[test]
fn every_device_finds_the_components() {
    let folder = Folder::new();
    folder.put("x.npy", &rank_two(&DIMS).mapv(|v| v as f32));
    for device in devices() {
        for method in ["auto", "elem", "slice", "tile", "gemm", "fused"] {
            let args = ["decompose", "x.npy", "--rank", "2", "--json", "--device", device.word, "--method", method];
            let ran = folder.run(&args);
            assert!(ran.code == Some(0) && only_software_warnings(&ran.stderr), "{ran:#?}");
            assert!(fit(&ran.json()) > 0.99, "{} {method}: {}", device.word, ran.stdout);
        }
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_the_result_so_far() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let folder = Folder::new();
    folder.put("x.npy", &rank_two(&DIMS));
    let args = ["decompose", "x.npy", "--rank", "2", "--device", "cpu", "--tol", "0", "--sweeps", "100000000"];
    let mut child = folder.command(&[&args[..], &["--output", "out"]].concat()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.by_ref().any(|line| line.unwrap().starts_with("sweep")));
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(child.wait().unwrap().success());
    assert!(rest.iter().any(|line| line.contains("interrupted")), "{:?}", rest.last());
    let summary = folder.json("out/summary.json");
    assert_eq!(summary["stop"], "interrupted");
    assert_eq!(summary["fits"].as_array().unwrap().len() as u64, summary["sweeps"].as_u64().unwrap());
}

#[test]
fn trees_and_their_budget_are_options() {
    let folder = Folder::new();
    folder.put("x.npy", &rank_two(&DIMS));
    let args = ["decompose", "x.npy", "--rank", "2", "--device", "cpu", "--sweeps", "4", "--tol", "0", "--json"];
    let ran = |more: &[&str]| -> serde_json::Value {
        serde_json::from_str(&folder.run(&[&args[..], more].concat()).ok().stdout).unwrap()
    };
    let multi = ran(&["--tree", "multi", "--line-search"]);
    assert!(multi["tree"].as_str().unwrap().contains("multi-sweep dimension tree"), "{multi}");
    let plain = ran(&["--tree", "none"]);
    assert_eq!(plain["passes"], 12);
    let none = ran(&["--tree", "two", "--memory-budget", "10"]);
    assert!(none["tree"].as_str().unwrap().ends_with("the memory budget is 10"), "{none}");
    assert_eq!(none["fits"], plain["fits"]);
}
