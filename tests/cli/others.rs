//! `polyad info`, `plot`, `devices`, help and version; a reader that goes away.

use super::support::{Folder, npy, put_factors, rank_two};
use ndarray::{Array1, Array2, arr2};
use serde_json::json;
use std::process::Stdio;

#[test]
fn info_tells_what_is_in_a_file() {
    let folder = Folder::new();
    folder.put("x.npy", &arr2(&[[3.0f32, 0.0, 0.0], [0.0, -4.0, 0.0]]));
    let info = folder.run(&["info", "x.npy", "--json"]).ok().json();
    let expected = json!({
        "file": "x.npy", "dims": [2, 3], "order": 2, "dtype": "f32", "natural_dtype": "f32", "entries": 6,
        "norm": 5.0, "min": -4.0, "max": 3.0, "zeros": 4, "bad": 0, "first_bad": null,
    });
    assert_eq!(info, expected);
    let text = folder.run(&["info", "x.npy"]).ok().stdout;
    for line in ["dims     (2, 3)", "norm     5", "min      -4", "zeros    4", "bad      0"] {
        assert!(text.lines().any(|l| l == line), "{line:?} is not in:\n{text}");
    }
}

#[test]
fn info_of_other_formats() {
    let folder = Folder::new();
    folder.write("x.tns", "tensor\n2\n2 2\n1\n2\n3\n4\n");
    assert_eq!(folder.run(&["info", "x.tns", "--json"]).ok().json()["dtype"], "text");
    folder.put("i.npy", &Array1::from(vec![i64::from(i32::MIN), 0, 7]));
    let info = folder.run(&["info", "i.npy", "--json"]).ok().json();
    assert_eq!((&info["natural_dtype"], &info["min"]), (&json!("f64"), &json!(f64::from(i32::MIN))));
    // Squares of these leave the range of f64.
    folder.put("large.npy", &Array1::from(vec![3e200, 4e200]));
    let norm = folder.run(&["info", "large.npy", "--json"]).ok().json()["norm"].as_f64().unwrap();
    assert!((norm / 5e200 - 1.0).abs() < 1e-15, "{norm:e}");
}

#[test]
fn info_succeeds_on_bad_values() {
    let folder = Folder::new();
    folder.put("x.npy", &arr2(&[[3.0, 1.0], [f64::NAN, -4.0], [f64::INFINITY, 0.0]]));
    let info = folder.run(&["info", "x.npy", "--json"]).ok().json();
    assert_eq!((&info["bad"], &info["first_bad"], &info["max"]), (&json!(2), &json!([1, 0]), &json!(3.0)));
    let text = folder.run(&["info", "x.npy"]).ok().stdout;
    assert!(text.contains("bad      2 of NaN or infinity, the first is NaN at (1, 0)"), "{text}");
    folder.write("nan.npy", npy("<f8", "(1,)", &f64::NAN.to_le_bytes()));
    assert_eq!(folder.run(&["info", "nan.npy", "--json"]).ok().json()["min"], json!(null));
}

#[test]
fn plot_draws_a_model() {
    let folder = Folder::new();
    put_factors(&folder, "m", &[Array2::<f64>::ones((4, 2)), Array2::ones((9, 2))]);
    folder.put("m/weights.npy", &Array1::from(vec![2.0, 1.0]));
    let ran = folder.run(&["plot", "m", "-o", "factors.svg"]).ok();
    assert_eq!(ran.stdout, "2 components of 2 factors drawn in factors.svg\n");
    let svg = std::fs::read_to_string(folder.path("factors.svg")).unwrap();
    assert!(svg.contains("<svg") && svg.trim_end().ends_with("</svg>"));
    assert_eq!(folder.names("."), ["factors.svg", "m"]);
    assert_eq!(folder.run(&["plot", "m", "-q", "-o", "factors.svg"]).ok().stdout, "");
}

#[test]
fn devices_lists_the_cpu_and_every_adapter() {
    let folder = Folder::new();
    let listed = folder.run(&["devices", "--json"]).ok().json();
    let listed = listed.as_array().unwrap();
    assert_eq!(
        (&listed[0]["name"], &listed[0]["backend"], &listed[0]["kind"]),
        (&json!("CPU"), &json!("cpu"), &json!("CPU"))
    );
    assert!(listed[0]["threads"].as_u64().unwrap() > 0);
    let text = folder.run(&["devices"]).ok().stdout;
    assert!(text.lines().all(|line| !line.contains("MATRIXyes") && !line.contains("MATRIXno")), "{text}");
    for device in listed {
        assert!(text.contains(device["name"].as_str().unwrap()), "{text}");
        assert!(device["memory"].is_null() || device["memory"].is_u64(), "{device}");
        if device["backend"] != "cpu" {
            assert!(device["limits"]["max_binding_bytes"].as_u64().unwrap() > 0, "{device}");
            assert!(!device["features"].as_array().unwrap().is_empty(), "{device}");
        }
    }
    assert!(text.contains("memory") && text.contains("threads"), "{text}");
}

#[test]
fn help_and_version() {
    let folder = Folder::new();
    assert_eq!(folder.run(&["--version"]).ok().stdout, format!("polyad {}\n", env!("CARGO_PKG_VERSION")));
    assert!(folder.run(&["--help"]).ok().stdout.contains("Examples:"));
    for command in ["decompose", "mttkrp", "plan", "plot", "devices", "info", "tune", "sweep-tile", "bench"] {
        assert!(folder.run(&[command, "--help"]).ok().stdout.contains("Usage: polyad"), "{command}");
    }
    for command in ["decompose", "mttkrp"] {
        let help = folder.run(&[command, "--help"]).ok().stdout;
        assert!(help.contains("auto, elem, slice, tile, gemm, fused") && help.contains("float32, fast"), "{help}");
    }
    assert_eq!(folder.run(&[]).code, Some(2));
}

#[test]
fn a_closed_pipe_is_no_error() {
    let folder = Folder::new();
    folder.put("x.npy", &rank_two(&[4, 5, 6]));
    let decompose = ["decompose", "x.npy", "--rank", "2", "--device", "cpu", "--output", "out"];
    let commands: [&[&str]; 5] =
        [&["info", "x.npy"], &["info", "x.npy", "--json"], &["devices"], &["--help"], &decompose];
    for args in commands {
        let mut child = folder.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
    }
    assert!(folder.path("out/summary.json").exists(), "what was asked for is still done");
}

/// A full disk is an error, and after an error nothing is left behind.
#[cfg(target_os = "linux")]
#[test]
fn a_stdout_that_cannot_be_written_is_an_error() {
    let folder = Folder::new();
    folder.put("x.npy", &rank_two(&[4, 5, 6]));
    let decompose = ["decompose", "x.npy", "--rank", "2", "--device", "cpu", "--output", "out"];
    let json = [&decompose[..], &["--json"]].concat();
    for args in [&["info", "x.npy"][..], &decompose, &json] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = folder.command(args).stdout(full).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
        assert!(stderr.starts_with("error: stdout: ") && stderr.lines().count() == 1, "{stderr}");
    }
    assert_eq!(folder.names("."), ["x.npy"]);
}
