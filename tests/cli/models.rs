//! `polyad score`, `polyad reconstruct`, ranges of ranks, and the options of `decompose` that work on given models.

use super::support::{Folder, devices, put_factors, rank_two};
use ndarray::{Array1, Array2, ArrayD, array};
use ndarray_npy::read_npy;
use serde_json::Value;

const DIMS: [usize; 3] = [5, 7, 6];

/// A folder with a tensor of rank two, `x.npy`, and its decomposition, `model`.
fn folder() -> Folder {
    let folder = Folder::new();
    folder.put("x.npy", &rank_two(&DIMS));
    let args =
        ["decompose", "x.npy", "--rank", "2", "--device", "cpu", "--sweeps", "500", "--tol", "1e-12", "-o", "model"];
    folder.run(&args).ok();
    folder
}

#[test]
fn a_model_scores_one_with_itself_reordered() {
    let folder = folder();
    let factors: Vec<Array2<f64>> =
        (0..3).map(|m| read_npy(folder.path(&format!("model/factor_{m}.npy"))).unwrap()).collect();
    let weights: Array1<f64> = read_npy(folder.path("model/weights.npy")).unwrap();
    // Components swapped, two columns negated.
    let mut swapped: Vec<Array2<f64>> = factors.iter().map(|f| f.select(ndarray::Axis(1), &[1, 0])).collect();
    swapped[0].column_mut(0).mapv_inplace(|v| -v);
    swapped[2].column_mut(0).mapv_inplace(|v| -v);
    put_factors(&folder, "swapped", &swapped);
    folder.put("swapped/weights.npy", &array![weights[1], weights[0]]);
    let ran = folder.run(&["score", "model", "swapped", "--json"]).ok().json();
    assert!((ran["score"].as_f64().unwrap() - 1.0).abs() < 1e-12, "{ran}");
    assert_eq!(ran["permutation"], serde_json::json!([1, 0]));
    // Half the weight: half the score, unless weights do not count.
    folder.put("swapped/weights.npy", &array![weights[1] / 2.0, weights[0] / 2.0]);
    let ran = folder.run(&["score", "model", "swapped"]).ok();
    assert!(ran.stdout.starts_with("score    0.50000"), "{ran:?}");
    let ran = folder.run(&["score", "swapped", "model", "--no-weight-penalty", "--json"]).ok().json();
    assert!((ran["score"].as_f64().unwrap() - 1.0).abs() < 1e-12, "{ran}");
    let ran = folder.run(&["score", "model", "nowhere"]);
    assert!(ran.code == Some(1) && ran.stderr.starts_with("error: ") && ran.stderr.lines().count() == 1, "{ran:?}");
}

#[test]
fn a_model_becomes_its_tensor() {
    let folder = folder();
    folder.run(&["reconstruct", "model", "-o", "xhat.npy"]).ok();
    let (x, xhat): (ArrayD<f64>, ArrayD<f64>) = (rank_two(&DIMS), read_npy(folder.path("xhat.npy")).unwrap());
    let error = (&x - &xhat).mapv(|v| v * v).sum().sqrt() / x.mapv(|v| v * v).sum().sqrt();
    let fit = folder.json("model/summary.json")["fit"].as_f64().unwrap();
    assert!((1.0 - error - fit).abs() < 1e-7, "{error} {fit}");
    folder.run(&["reconstruct", "model", "-o", "xhat32.npy", "--dtype", "f32", "--quiet"]).ok();
    assert_eq!(read_npy::<_, ArrayD<f32>>(folder.path("xhat32.npy")).unwrap().shape(), DIMS);
    let before = folder.snapshot();
    let ran = folder.run(&["reconstruct", "model", "-o", "model/factor_0.npy"]);
    assert_eq!((ran.code, folder.snapshot()), (Some(2), before));
}

#[test]
fn a_range_of_ranks_is_scanned() {
    let folder = folder();
    let args =
        ["decompose", "x.npy", "--rank", "1..3", "--device", "cpu", "--sweeps", "300", "--tol", "1e-10", "--json"];
    let found = folder.run(&args).json();
    let found: Vec<&Value> = found.as_array().unwrap().iter().collect();
    let number = |r: usize, name: &str| found[r][name].as_f64().unwrap();
    assert_eq!(found.iter().map(|s| s["rank"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
    // Two components, and no more: the third one has nothing to model.
    assert!((number(0, "core_consistency") - 100.0).abs() < 1e-3 && number(0, "fit") < 0.99);
    assert!(number(1, "core_consistency") > 99.0 && number(1, "fit") > 0.999);
    assert!(number(2, "core_consistency") < 90.0 && number(2, "fit") > 0.999);
    let ran = folder.run(&["decompose", "x.npy", "--rank", "1..2", "--device", "cpu", "-o", "scan"]).ok();
    assert_eq!(ran.stdout.lines().filter(|line| line.contains("core consistency")).count(), 2, "{ran:?}");
    assert_eq!(folder.names("scan"), ["rank_1", "rank_2"]);
    assert_eq!(folder.json("scan/rank_2/summary.json")["rank"], 2);
    assert_eq!(folder.run(&["decompose", "x.npy", "--rank", "3..1"]).code, Some(2));
}

#[test]
fn given_starts_fixed_modes_and_the_rest() {
    let folder = folder();
    for device in devices() {
        let dtype = if device.f64 { "f64" } else { "f32" };
        let run = |more: &[&str]| {
            let mut args = vec!["decompose", "x.npy", "--rank", "2", "--device", device.word, "--dtype", dtype];
            args.extend(["--sweeps", "5", "--tol", "0", "--json", "--output", "out"]);
            args.extend(more);
            let ran = folder.run(&args);
            assert_eq!(ran.code, Some(0), "{ran:?}");
            ran.json()
        };
        let fixed = run(&["--init", "model", "--fix", "0,2"]);
        let fit = folder.json("model/summary.json")["fit"].as_f64().unwrap();
        assert!((fixed["initial_fit"].as_f64().unwrap() - fit).abs() < 1e-5, "{fixed}");
        if device.f64 {
            for mode in ["factor_0.npy", "factor_2.npy"] {
                let bytes = |dir: &str| std::fs::read(folder.path(&format!("{dir}/{mode}"))).unwrap();
                assert_eq!(bytes("out"), bytes("model"), "{mode}");
            }
        }
        let all = run(&["--init", "model", "--fix", "0,1,2"]);
        assert_eq!((&all["sweeps"], &all["stop"]), (&0.into(), &"all_fixed".into()));
        let random = run(&["--nonneg", "--ridge", "0.001", "--starts", "3", "--init", "normal"]);
        assert_eq!((random["initial_fit"].clone(), &random["nonneg"]), (Value::Null, &serde_json::json!([0, 1, 2])));
        assert_eq!(random["start_fits"].as_array().unwrap().len(), 3);
        let best = random["best_start"].as_u64().unwrap() as usize;
        assert_eq!(random["start_fits"][best], random["fit"]);
        assert!(random["algebra"].as_str().unwrap().contains("HALS"), "{random}");
        assert_eq!(run(&["--nonneg", "1"])["nonneg"], serde_json::json!([1]));
        assert_eq!(run(&["--max-seconds", "0"])["stop"], "max_seconds");
    }
    // Printing every third sweep changes what is printed and nothing else.
    let run = |every: &str| {
        let args =
            ["decompose", "x.npy", "--rank", "2", "--device", "cpu", "--sweeps", "7", "--tol", "0", "--print-every"];
        folder.run(&[&args[..], &[every, "-o", every]].concat()).ok().stdout
    };
    let (one, three) = (run("1"), run("3"));
    let sweeps = |text: &str| text.lines().filter(|line| line.starts_with("sweep")).count();
    assert_eq!((sweeps(&one), sweeps(&three)), (7, 2));
    for name in ["weights.npy", "factor_0.npy", "factor_1.npy", "factor_2.npy"] {
        let bytes = |dir: &str| std::fs::read(folder.path(&format!("{dir}/{name}"))).unwrap();
        assert_eq!(bytes("1"), bytes("3"), "{name}");
    }
    for bad in
        [&["--fix", "3"][..], &["--nonneg", "7"], &["--ridge", "-1"], &["--max-seconds", "nan"], &["--starts", "0"]]
    {
        let ran = folder.run(&[&["decompose", "x.npy", "--rank", "2"], bad].concat());
        assert!(ran.code == Some(2) && ran.stderr.lines().count() == 1, "{bad:?}: {ran:?}");
    }
}
