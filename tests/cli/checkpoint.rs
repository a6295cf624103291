//! A run that is killed, again and again: what it left can be read, and the result is that of a run left alone.

use super::support::{Folder, rank_two};
use std::fs;
use std::time::{Duration, Instant};

const FILES: [&str; 4] = ["weights.npy", "factor_0.npy", "factor_1.npy", "factor_2.npy"];

#[test]
fn a_run_killed_many_times_ends_with_the_same_bits() {
    let folder = Folder::new();
    folder.put("x.npy", &rank_two(&[30, 28, 26]).mapv(|v| v as f32));
    let sweeps = 3000;
    let count = sweeps.to_string();
    let args = ["decompose", "x.npy", "--rank", "4", "--device", "cpu", "--tol", "0", "--sweeps", &count, "--quiet"];
    let clock = Instant::now();
    folder.run(&[&args[..], &["-o", "whole"]].concat());
    let alone = clock.elapsed();

    let saving = ["--checkpoint", "run", "--checkpoint-every", "1", "--resume", "-o", "killed"];
    let (mut kills, mut before) = (0, 0);
    let mut wait = Duration::from_millis(3);
    loop {
        let mut child =
            folder.command(&[&args[..], &saving[..]].concat()).stderr(std::process::Stdio::null()).spawn().unwrap();
        let until = Instant::now() + wait;
        let ended = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status);
            }
            if Instant::now() >= until {
                break None;
            }
            std::thread::sleep(Duration::from_micros(500));
        };
        if let Some(status) = ended {
            assert!(status.success());
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
        // Of odd lengths, so that kills fall anywhere in the work.
        wait += wait / 7 + Duration::from_micros(777);
        // Whatever was there when the process died can be read, and no sweep that was saved is lost.
        let file = folder.path("run/checkpoint.npz");
        if file.exists() {
            let fits = ndarray_npy::NpzReader::new(fs::File::open(&file).unwrap())
                .unwrap()
                .by_name::<ndarray::OwnedRepr<f64>, ndarray::Ix2>("fits");
            let done = fits.unwrap().nrows();
            assert!(done >= before, "{done} sweeps after {before}");
            before = done;
        }
        // A kill may fall between the result, which is there as a whole or not at all, and the exit.
        if folder.path("killed").exists() {
            break;
        }
    }
    println!("{kills} kills; alone the run took {alone:?}");
    assert!(kills >= 10, "{kills} kills only");
    for name in FILES {
        let bytes = |dir: &str| fs::read(folder.path(&format!("{dir}/{name}"))).unwrap();
        assert_eq!(bytes("whole"), bytes("killed"), "{name}");
    }
    assert_eq!(folder.names("run"), ["checkpoint.npz"], "nothing of a killed write is left");
    let (whole, killed) = (folder.json("whole/summary.json"), folder.json("killed/summary.json"));
    assert_eq!((&whole["fits"], &killed["sweeps"]), (&killed["fits"], &sweeps.into()));
}

#[test]
fn resuming_needs_a_folder_and_says_where_it_begins() {
    let folder = Folder::new();
    folder.put("x.npy", &rank_two(&[5, 4, 3]));
    let args = ["decompose", "x.npy", "--rank", "2", "--device", "cpu", "--quiet"];
    assert_eq!(folder.run(&[&args[..], &["--resume"]].concat()).code, Some(2));
    assert_eq!(folder.run(&[&args[..], &["--checkpoint", "run", "--checkpoint-every", "0"]].concat()).code, Some(2));
    let ran = folder.run(&[&args[..], &["--checkpoint", "run", "--resume"]].concat());
    assert!(ran.code == Some(0) && ran.stderr.contains("starting from the beginning"), "{ran:?}");
    folder.run(&[&args[..], &["--checkpoint", "run", "--resume"]].concat()).ok();
    let ran = folder.run(&[&args[..], &["--checkpoint", "run", "--resume", "--ridge", "0.5"]].concat());
    assert!(ran.code == Some(1) && ran.stderr.contains("another run"), "{ran:?}");
}
