//! `polyad plan`: memory and times before anything is run; `decompose --explain`, and what it refuses.

use super::support::{Folder, devices, only_software_warnings, rank_two};
use serde_json::{Value, json};

/// As `polyad devices --json` describes a card that is not here.
fn card() -> Value {
    let feature = |name: &str| json!({"name": name, "present": true, "used_for": "tests"});
    json!({
        "name": "Some Card", "backend": "vulkan", "kind": "discrete GPU", "memory": 80_000_000_000u64,
        "driver": "1", "pci_bus_id": null, "threads": null,
        "limits": {
            "max_binding_bytes": 2147483644u64, "max_buffer_bytes": 4292870144u64, "max_storage_buffers": 8,
            "max_workgroup_invocations": 1024, "max_workgroup_memory": 49152, "max_workgroups_per_dim": 65535,
            "uniform_alignment": 64, "subgroup_size": 32,
        },
        "features": [feature("SHADER_F64"), feature("SHADER_FLOAT32_ATOMIC"), feature("SHADER_INT64")],
        "matrix_units": ["f16 16x16x16"], "tuning": null, "warnings": [],
    })
}

fn plan(folder: &Folder, args: &[&str]) -> Value {
    folder.run(&[&["plan", "--json"], args].concat()).ok().json()
}

#[test]
fn a_profile_is_planned_for() {
    let folder = Folder::new();
    folder.write("card.json", card().to_string());
    let args = ["--dims", "1024x1024x1024", "--rank", "2000", "--profile", "card.json"];
    let found = plan(&folder, &args);
    assert_eq!((&found["chosen"], &found["device"]), (&json!("fused"), &json!("Some Card")));
    assert!(found["reason"].as_str().unwrap().contains("f16 matrix units"), "{found}");
    let kernel = found["plans"][0]["kernel"].as_str().unwrap();
    assert!(kernel.starts_with("fused_coop_rows") && found["plans"].as_array().unwrap().len() == 3, "{kernel}");
    for (name, method) in found["methods"].as_object().unwrap() {
        let bytes = |what: &str| method[format!("{what}_bytes")].as_u64().unwrap();
        assert_eq!(bytes("tensor"), 4 << 30, "{name}");
        let parts = ["tensor", "factors", "result", "scratch", "tree", "algebra", "other"].map(bytes);
        assert_eq!(bytes("peak"), parts.iter().sum::<u64>(), "{name}");
        assert_eq!((&method["fits"], &method["cards"]), (&json!(true), &json!(1)), "{name}");
        assert_eq!((bytes("scratch") > 0), matches!(name.as_str(), "gemm" | "fused"), "{name}");
    }
    // Smaller cards, and one mode alone.
    let peak = found["methods"]["tile"]["peak_bytes"].as_u64().unwrap();
    let small = plan(&folder, &[&args[..], &["--card-memory", "1500MB"]].concat());
    let tile = &small["methods"]["tile"];
    let resident = tile["streams"]["resident_bytes"].as_u64().unwrap();
    // Parameters of more slabs are all that differs.
    assert!(resident.abs_diff(peak) < peak / 1000 && tile["fits"] == true, "{tile}, {peak}");
    assert_eq!(tile["streams"]["sweep_bytes"], 3u64 << 32);
    assert_eq!(tile["cards"], resident.div_ceil(1_500_000_000));
    assert!(
        tile["peak_bytes"].as_u64().unwrap() <= 1_500_000_000 && found["methods"]["tile"]["streams"].is_null(),
        "{tile}"
    );
    let none = plan(&folder, &[&args[..], &["--card-memory", "100MB"]].concat());
    assert_eq!(none["methods"]["tile"]["fits"], false);
    let one = plan(&folder, &[&args[..], &["--mode", "1"]].concat());
    assert!(one["methods"]["tile"]["peak_bytes"].as_u64().unwrap() < peak && one["mode"] == 1, "{one}");
}

/// Starts side by side are columns of one run: so are their bytes.
#[test]
fn starts_are_planned_for() {
    let folder = Folder::new();
    let bytes = |rank: &str, starts: &str| {
        let found = plan(&folder, &["--dims", "30x20x10", "--rank", rank, "--starts", starts, "--device", "cpu"]);
        assert_eq!((&found["rank"].to_string()[..], &found["starts"].to_string()[..]), (rank, starts));
        found["methods"]["fused"]["peak_bytes"].as_u64().unwrap()
    };
    assert_eq!(bytes("4", "5"), bytes("20", "1"));
    assert!(bytes("4", "1") < bytes("4", "5"));
    folder.put("x.npy", &rank_two(&[20, 30, 25]));
    let args = ["decompose", "x.npy", "--rank", "2", "--starts", "3", "--device", "cpu", "--sweeps", "2", "--explain"];
    let ran = folder.run(&args).ok();
    assert!(ran.stdout.contains("at rank 2, 3 starts side by side"), "{}", ran.stdout);
}

/// What is forecast with `--card-memory` is what is run, on a CPU too.
#[test]
fn kept_products_stay_within_the_card_memory() {
    let folder = Folder::new();
    folder.put("x.npy", &rank_two(&[20, 30, 25]));
    for device in devices().into_iter().filter(|device| device.f64) {
        let tree = |memory: &[&str]| {
            let problem = ["--rank", "2", "--tree", "two", "--device", device.word, "--dtype", "f64"];
            let forecast =
                folder.run(&[&["plan", "--json", "--dims", "20x30x25"], &problem[..], memory].concat()).json();
            let run = ["decompose", "x.npy", "--sweeps", "2", "--json"];
            let ran = folder.run(&[&run[..], &problem, memory].concat());
            assert_eq!(ran.code, Some(0), "{ran:?}");
            let summary = ran.json();
            let kept = summary["tree"].as_str().unwrap().contains("dimension tree");
            assert_eq!(kept, forecast["tree"]["passes"] == 2.0, "{}: {summary} and {forecast}", device.word);
            (kept, forecast["methods"]["fused"]["peak_bytes"].as_u64().unwrap())
        };
        let (kept, peak) = tree(&[]);
        assert!(kept, "{}", device.word);
        let less = (peak - 1000).to_string();
        assert!(!tree(&["--card-memory", &less]).0, "{}: {peak}", device.word);
    }
}

#[test]
fn what_is_not_known_is_called_unknown() {
    let folder = Folder::new();
    let found = plan(&folder, &["--dims", "30x20x10", "--rank", "4", "--device", "cpu"]);
    let tile = &found["methods"]["tile"];
    assert_eq!((&found["card_memory_bytes"], &tile["fits"]), (&json!("unknown"), &json!("unknown")));
    assert_eq!((&tile["cards"], &tile["seconds"]), (&json!("unknown"), &json!(null)));
    let args = ["--dims", "30x20x10", "--rank", "4", "--device", "cpu", "--bandwidth", "1e10", "--peak", "1e11"];
    let seconds = plan(&folder, &args)["methods"]["slice"]["seconds"].clone();
    let times = ["T_0", "T_0,LM(a)", "T_0,LM(b)", "T_inf"].map(|name| seconds[name].as_f64().unwrap());
    assert!(times.windows(2).all(|pair| pair[0] >= pair[1]) && times[3] > 0.0, "{seconds}");
    let text = folder.run(&[&["plan"], &args[..]].concat()).ok().stdout;
    assert!(text.contains("N [ceil(R/F) + R d] + 2 I_n R") && text.contains("unknown"), "{text}");
}

#[test]
fn bad_profiles_say_what_is_wrong() {
    let folder = Folder::new();
    let mut small = card();
    small["limits"]["max_workgroup_memory"] = json!(0);
    let mut other = card();
    other["kind"] = json!("toaster");
    let cases = [
        ("[]".to_owned(), "list of 0 devices"),
        ("{".to_owned(), "EOF"),
        ("{}".to_owned(), "missing field"),
        (small.to_string(), "max_workgroup_memory is 0: it must be at least 16384"),
        (other.to_string(), "toaster"),
    ];
    for (text, expected) in cases {
        folder.write("card.json", &text);
        let ran = folder.run(&["plan", "--dims", "3x4", "--rank", "2", "--profile", "card.json"]);
        assert!(ran.code == Some(1) && ran.stderr.contains(expected), "{text}: {ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1);
    }
    folder.write("card.json", card().to_string());
    let huge = ["plan", "--dims", "3000000x3000000x3000", "--rank", "2", "--profile", "card.json"];
    assert_eq!(folder.run(&huge).code, Some(1));
    for bad in [["--mode", "2"], ["--card-memory", "0"], ["--bandwidth", "1"], ["--device", "cpu"]] {
        let args = ["plan", "--dims", "3x4", "--rank", "2", "--profile", "card.json", bad[0], bad[1]];
        assert_eq!(folder.run(&args).code, Some(2), "{bad:?}");
    }
}

/// A tensor of 549,120 bytes on a card of 400,000: its slabs come from the host.
#[test]
fn a_small_card_streams() {
    let folder = Folder::new();
    folder.put("x.npy", &rank_two(&[60, 44, 52]).mapv(|v| v as f32));
    for device in devices().into_iter().filter(|device| device.word != "cpu") {
        let run = |more: &[&str]| {
            let args = ["decompose", "x.npy", "--rank", "2", "--device", device.word, "--sweeps", "3", "--tol", "0"];
            let ran = folder.run(&[&args[..], more].concat());
            assert!(ran.code == Some(0) && only_software_warnings(&ran.stderr), "{ran:?}");
            ran.stdout
        };
        let fit = |dir: &str| folder.json(&format!("{dir}/summary.json"))["fit"].as_f64().unwrap();
        let whole = run(&["--output", "whole"]);
        let streamed = run(&["--card-memory", "400000", "--explain", "--output", "streamed"]);
        assert!(streamed.contains("streams  4 slabs of at most") && !whole.contains("streams"), "{streamed}");
        assert!(streamed.contains("1647360 bytes") && streamed.contains("every sweep"), "{streamed}");
        assert!((fit("whole") - fit("streamed")).abs() < 1e-5);
        let args = ["mttkrp", "x.npy", "--factors", "whole", "--mode", "1", "--device", device.word, "-o", "g.npy"];
        let ran = folder.run(&[&args[..], &["--card-memory", "400000"]].concat());
        assert!(ran.code == Some(0) && ran.stdout.contains("(streaming 4 slabs, 549120 bytes)"), "{ran:?}");
        let refused = folder.run(&[&args[..], &["--card-memory", "4000"]].concat());
        assert!(refused.code == Some(1) && refused.stderr.contains("device memory is 4000"), "{refused:?}");
    }
}

#[test]
fn decompose_explains_and_refuses() {
    let folder = Folder::new();
    folder.put("x.npy", &rank_two(&[20, 30, 25]));
    for device in devices() {
        let run = |more: &[&str]| {
            let args = ["decompose", "x.npy", "--rank", "2", "--device", device.word, "--sweeps", "2"];
            folder.run(&[&args[..], more].concat())
        };
        let explained = run(&["--explain"]);
        assert!(explained.code == Some(0) && explained.stdout.contains("bytes on the device"), "{explained:?}");
        // A tensor of 120,000 bytes in f64. A GPU would stream it, but for FUSED's scratch and parameters there is no room.
        let card = match (device.word, device.f64) {
            ("cpu", _) => "100000",
            (_, true) => "47000",
            (_, false) => "43000",
        };
        let refused = run(&["--card-memory", card, "--output", "out"]);
        let error = refused.stderr.lines().last().unwrap();
        assert!(refused.code == Some(1) && error.contains("what would fit"), "{refused:?}");
        assert!(error.contains("--dtype f32") || !device.f64, "{error}");
        assert!(!folder.path("out").exists());
        let other: Vec<_> = refused.stderr.lines().filter(|line| !line.starts_with("error: ")).collect();
        assert!(only_software_warnings(&other.join("\n")));
        let impossible = run(&["--card-memory", "1kB"]);
        assert!(impossible.stderr.contains("nothing here would fit"), "{impossible:?}");
    }
    let gemm = ["decompose", "x.npy", "--rank", "200", "--device", "cpu", "--method", "gemm", "--card-memory", "1.5MB"];
    let refused = folder.run(&gemm);
    assert!(refused.code == Some(1) && refused.stderr.contains("--method tile"), "{refused:?}");
}
