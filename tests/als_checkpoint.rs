//! Checkpoints: a run that goes on from one ends with the bits of a run that was never interrupted.

mod common;

use common::Numbers;
use common::devices::everywhere;
use ndarray::ArrayD;
use polyad::{
    Backend, Checkpoint, CpAlsOptions, Cpu, Device, Error, Every, Init, Method, PlanOptions, Real, Stop, Tree, cp_als,
    cp_als_with,
};
use std::ops::ControlFlow;

fn resumes<T: Real>(device: &Device) {
    let x: ArrayD<T> = Numbers::new(3).tensor(&[9, 8, 7]);
    let plain = CpAlsOptions::new(3).max_sweeps(13).fit_tolerance(0.0);
    let model = cp_als(device, x.view(), &plain.clone().max_sweeps(2)).unwrap().model.to_f64();
    let cases = [
        plain.clone(),
        plain.clone().nonneg([0, 2]).ridge(1e-3).starts(2),
        plain.clone().init(Init::Model(Box::new(model))).fix([1]),
        plain.clone().nonneg([0]).starts(2).tree(Tree::Two),
        plain.clone().tree(Tree::MultiSweep),
        plain.clone().nonneg([1]).starts(2).tree(Tree::MultiSweep),
    ];
    for (case, options) in cases.into_iter().enumerate() {
        let what = format!("case {case} {} {}", T::DTYPE, device.name());
        let whole = cp_als(device, x.view(), &options).unwrap();
        for stop_at in [1, 4, 12] {
            let dir = tempfile::tempdir().unwrap();
            let checkpoint = Checkpoint::new(dir.path().join("run")).every(Every::Sweeps(2));
            // Interrupted by a callback, as by Ctrl-C, and then by the limit on sweeps.
            let first = options.clone().checkpoint(checkpoint.clone());
            let stopped = cp_als_with(device, x.view(), &first, |sweep| match sweep.number == stop_at {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            });
            assert_eq!(stopped.unwrap().sweeps, stop_at);
            let again = options.clone().checkpoint(checkpoint.clone().resume(true));
            let mut numbers = Vec::new();
            let resumed = cp_als_with(device, x.view(), &again, |sweep| {
                numbers.push(sweep.number);
                ControlFlow::Continue(())
            });
            let resumed = resumed.unwrap();
            assert_eq!(numbers, (stop_at + 1..=13).collect::<Vec<_>>(), "{what}");
            assert_eq!((&resumed.model, &resumed.fits), (&whole.model, &whole.fits), "{what} from {stop_at}");
            assert_eq!((&resumed.start_fits, resumed.initial_fit), (&whole.start_fits, whole.initial_fit), "{what}");
            assert_eq!((resumed.sweeps, &resumed.warnings), (13, &whole.warnings), "{what}");
            // The product at hand of more than two groups is made again.
            let more = usize::from(options.tree == Tree::MultiSweep);
            assert!((whole.passes..=whole.passes + more).contains(&resumed.passes), "{what} from {stop_at}");
            // Once more: nothing is left to do.
            let done = cp_als_with(device, x.view(), &again, |_| panic!("a sweep")).unwrap();
            assert_eq!((&done.model, done.stop, done.sweeps), (&whole.model, Stop::MaxSweeps, 13), "{what}");
            let names: Vec<_> =
                std::fs::read_dir(dir.path().join("run")).unwrap().map(|e| e.unwrap().file_name()).collect();
            assert_eq!(names, ["checkpoint.npz"]);
        }
    }
}

#[test]
fn a_resumed_run_ends_with_the_same_bits() {
    everywhere(resumes::<f32>, resumes::<f64>);
}

/// A comparison of bits can fail: from another checkpoint, or none, the trace is another.
#[test]
fn without_resume_a_run_begins_anew() {
    let x: ArrayD<f64> = Numbers::new(3).tensor(&[6, 5, 4]);
    let dir = tempfile::tempdir().unwrap();
    let checkpoint = Checkpoint::new(dir.path()).every(Every::Seconds(0.0));
    let options = CpAlsOptions::new(2).max_sweeps(3).fit_tolerance(0.0);
    let with =
        |checkpoint| cp_als(&Cpu::new(), x.view(), &options.clone().max_sweeps(6).checkpoint(checkpoint)).unwrap();
    let three = cp_als(&Cpu::new(), x.view(), &options.clone().checkpoint(checkpoint.clone())).unwrap();
    let mut first = Vec::new();
    let resumed = options.clone().max_sweeps(6).checkpoint(checkpoint.clone().resume(true));
    let six = cp_als_with(&Cpu::new(), x.view(), &resumed, |sweep| {
        first.push(sweep.number);
        ControlFlow::Continue(())
    });
    assert_eq!((first[0], &six.unwrap().fits[..3]), (4, &three.fits[..]));
    assert_eq!(with(checkpoint).sweeps, 6);
}

/// Bits of FUSED and SLICE do not depend on the number of threads, those of TILE may.
#[test]
fn other_threads_are_told_only_where_bits_depend_on_them() {
    let x: ArrayD<f64> = Numbers::new(3).tensor(&[30, 20, 10]);
    for (method, told) in [(Method::Fused, false), (Method::Slice, false), (Method::Tile, true)] {
        let dir = tempfile::tempdir().unwrap();
        let options = CpAlsOptions::new(3).fit_tolerance(0.0).plan(PlanOptions::default().method(method));
        let run = |threads, sweeps| {
            let checkpoint = Checkpoint::new(dir.path()).every(Every::Sweeps(1)).resume(true);
            let options = options.clone().max_sweeps(sweeps).checkpoint(checkpoint);
            cp_als(&Cpu::with_threads(threads).unwrap(), x.view(), &options).unwrap()
        };
        run(1, 3);
        let resumed = run(3, 6);
        assert_eq!(resumed.warnings.iter().any(|warning| warning.contains("last bits may differ")), told, "{method}");
        let whole = cp_als(&Cpu::with_threads(2).unwrap(), x.view(), &options.clone().max_sweeps(6)).unwrap();
        assert!(told || resumed.model == whole.model, "{method}");
    }
}

#[test]
fn a_checkpoint_of_another_run_is_refused() {
    let x: ArrayD<f64> = Numbers::new(3).tensor(&[6, 5, 4]);
    let dir = tempfile::tempdir().unwrap();
    let checkpoint = Checkpoint::new(dir.path()).every(Every::Sweeps(1));
    let options = CpAlsOptions::new(2).max_sweeps(3);
    cp_als(&Cpu::new(), x.view(), &options.clone().checkpoint(checkpoint.clone())).unwrap();
    let error = |x: &ArrayD<f64>, options: CpAlsOptions| {
        let options = options.checkpoint(checkpoint.clone().resume(true));
        cp_als(&Cpu::new(), x.view(), &options).unwrap_err().to_string()
    };
    assert!(error(&x, CpAlsOptions::new(3).max_sweeps(3)).contains(r#"it has "rank 2", this run "rank 3""#));
    assert!(error(&x, options.clone().ridge(0.5)).contains("ridge"));
    assert!(error(&x, options.clone().tree(Tree::Two)).contains("tree auto"));
    assert!(error(&x, options.clone().init(Init::Random { seed: 9 })).contains("seed: 0"));
    assert!(error(&(&x * 2.0), options.clone()).contains("norm"));
    // A file that is not a checkpoint, or not a whole one, is an error of one line.
    let file = checkpoint.file();
    let bytes = std::fs::read(&file).unwrap();
    for broken in [&b"nonsense"[..], &bytes[..bytes.len() / 2], &[]] {
        std::fs::write(&file, broken).unwrap();
        let error = error(&x, options.clone());
        assert!(error.contains("checkpoint.npz") && error.lines().count() == 1, "{error}");
    }
    for every in [Every::Sweeps(0), Every::Seconds(f64::NAN)] {
        let options = options.clone().checkpoint(checkpoint.clone().every(every));
        let error = cp_als(&Cpu::new(), x.view(), &options).unwrap_err();
        assert!(matches!(error, Error::Option { name: "checkpoint interval", .. }), "{error}");
    }
}
