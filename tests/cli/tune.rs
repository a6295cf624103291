//! `polyad tune`, and what the other commands make of its file.

use super::support::{Folder, Ran, devices, only_software_warnings, put_factors, rank_two};
use ndarray::{Array2, ArrayD};
use serde_json::Value;
use std::path::PathBuf;

/// Runs with a cache folder of the test's own.
fn run(folder: &Folder, args: &[&str]) -> Ran {
    let cache = folder.path("cache");
    let variables = ["XDG_CACHE_HOME", "LOCALAPPDATA"].map(|name| (name, &cache));
    let output = folder.command(args).envs(variables).output().unwrap();
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The one adapter of most machines that test; with more the file of the one tuned may not be that of the others.
fn has_gpu() -> bool {
    devices().iter().any(|device| device.word == "gpu")
}

fn file_in_cache(folder: &Folder) -> PathBuf {
    let dir = folder.path("cache/polyad");
    let names: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(names.len(), 1, "{names:?}");
    names[0].clone()
}

#[test]
fn bad_use_of_tune() {
    let folder = Folder::new();
    for (args, word) in [
        (&["tune", "--device", "cpu"][..], "cpu"),
        (&["tune", "--device", "no such card"], "no such card"),
        (&["decompose", "x.npy", "--rank", "2", "--tuning", "f", "--no-tuning"], "cannot be used with"),
    ] {
        let ran = run(&folder, args);
        let one_line = ran.stderr.lines().count() == 1 && ran.stderr.starts_with("error: ");
        assert!(ran.code == Some(2) && one_line && ran.stdout.is_empty(), "{ran:#?}");
        assert!(ran.stderr.contains(word) || !cfg!(feature = "gpu"), "{ran:#?}");
    }
    if has_gpu() {
        let ran = run(&folder, &["tune", "--quick", "--output", "no/such/folder.json"]);
        assert!(ran.code == Some(1) && ran.stderr.contains("no/such"), "{ran:#?}");
    }
    folder.put("x.npy", &rank_two(&[4, 5, 6]));
    let ran = run(&folder, &["decompose", "x.npy", "--rank", "1", "--device", "cpu", "--tuning", "f", "--quiet"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), "warning: --tuning has no use on the CPU\n"));
}

/// One run of the tuner (a minute in software), and every way to use or not to use what it wrote.
#[test]
fn what_tune_writes_is_used_and_named() {
    if !has_gpu() {
        return;
    }
    let folder = Folder::new();
    let ran = run(&folder, &["tune", "--quick", "--json"]);
    assert!(ran.code == Some(0) && only_software_warnings(&ran.stderr), "{ran:#?}");
    let report = ran.json();
    let path = file_in_cache(&folder);
    assert_eq!(report["file"].as_str(), path.to_str());
    let regimes = report["regimes"].as_array().unwrap();
    assert!(regimes.len() >= 6, "{report}");
    for regime in regimes {
        let (before, after) = (regime["built_in_seconds"].as_f64().unwrap(), regime["seconds"].as_f64().unwrap());
        assert!(before > 0.0 && after > 0.0 && after <= before, "{regime}");
        assert!(regime["tried"].as_u64().unwrap() > 1 && regime["rejected"] == serde_json::json!([]), "{regime}");
        assert_eq!(regime["chosen"] == regime["built_in"], before == after, "{regime}");
    }

    // Whatever was measured, from here on the file has one tile of the test's own.
    let mut content: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let tile = serde_json::json!({"bm": 32, "bn": 32, "bk": 16, "m": 4, "n": 4, "groups": 9});
    let mut tiles = Vec::new();
    for (kernel, layout) in ["registers_f32", "registers_f64"].iter().flat_map(|k| ["rows", "cols"].map(|l| (k, l))) {
        tiles.push(serde_json::json!({"kernel": kernel, "layout": layout, "columns": "17-32", "tile": tile,
            "seconds": 1.0, "built_in": tile, "built_in_seconds": 2.0}));
    }
    content["tiles"] = tiles.into();
    std::fs::write(&path, content.to_string()).unwrap();
    let shown = path.to_str().unwrap();

    // One row of matrix units would take the product: too short for them.
    let x: ArrayD<f32> = rank_two(&[12, 10, 20]).mapv(|v| v as f32);
    folder.put("x.npy", &x);
    put_factors(&folder, "u", &[12, 10, 20].map(|rows| Array2::<f32>::ones((rows, 20))));
    let mttkrp = ["mttkrp", "x.npy", "--factors", "u", "--mode", "0", "--device", "gpu", "-o", "g.npy"];
    let decompose = ["decompose", "x.npy", "--rank", "20", "--device", "gpu", "--sweeps", "1", "-o", "out"];
    let named = format!("tuning file {shown}");
    let ran = run(&folder, &mttkrp);
    assert!(ran.code == Some(0) && ran.stdout.contains(&named), "{ran:#?}");
    let ran = run(&folder, &decompose);
    assert!(ran.code == Some(0) && ran.stdout.contains(&format!("tuning   {shown}\n")), "{ran:#?}");
    assert_eq!(folder.json("out/summary.json")["tuning"].as_str(), Some(shown));
    let listed = run(&folder, &["devices", "--json"]).json();
    assert!(listed.as_array().unwrap().iter().any(|d| d["tuning"].as_str() == Some(shown)), "{listed}");
    assert!(run(&folder, &["devices"]).stdout.contains(shown));

    let ran = run(&folder, &[&mttkrp[..], &["--no-tuning"]].concat());
    assert!(ran.code == Some(0) && !ran.stdout.contains("tuning"), "{ran:#?}");
    let ran = run(&folder, &[&decompose[..], &["--no-tuning"]].concat());
    assert!(ran.code == Some(0) && !ran.stdout.contains("tuning"), "{ran:#?}");
    assert!(folder.json("out/summary.json")["tuning"].is_null());

    // Moved out of the cache it is used where it is named, and has to be there.
    std::fs::rename(&path, folder.path("mine.json")).unwrap();
    let ran = run(&folder, &mttkrp);
    assert!(ran.code == Some(0) && !ran.stdout.contains("tuning"), "{ran:#?}");
    let ran = run(&folder, &[&mttkrp[..], &["--tuning", "mine.json"]].concat());
    assert!(ran.code == Some(0) && ran.stdout.contains("tuning file mine.json"), "{ran:#?}");
    let ran = run(&folder, &[&mttkrp[..], &["--tuning", "none.json"]].concat());
    assert!(ran.code == Some(1) && ran.stderr.contains("none.json"), "{ran:#?}");

    // A file that cannot be used is named with the reason, and the run goes on.
    for (text, reason) in [("{\"format\": 1", "EOF"), ("{\"format\": 2}", "has format 2, this version reads 1")] {
        std::fs::write(&path, text).unwrap();
        let ran = run(&folder, &decompose);
        let warned = ran
            .stderr
            .lines()
            .any(|l| l.starts_with("warning: the tuning file is ignored: ") && l.contains(shown) && l.contains(reason));
        assert!(ran.code == Some(0) && warned && !ran.stdout.contains("tuning"), "{ran:#?}");
        let warnings = folder.json("out/summary.json")["warnings"].to_string();
        assert!(warnings.contains(reason), "{warnings}");
        let ran = run(&folder, &[&mttkrp[..], &["--no-tuning"]].concat());
        assert!(ran.code == Some(0) && only_software_warnings(&ran.stderr), "{ran:#?}");
        assert!(run(&folder, &["devices"]).stdout.contains(reason));
    }
}
