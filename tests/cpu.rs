//! The CPU backend: every method against the f64 definition, known values, layouts, repeatability, errors.

mod common;

use common::known::{known_values, mttkrp};
use common::{Numbers, Reference, assert_within_bound, share_of_bound};
use ndarray::{Array1, Array2, ArrayD, Axis, IxDyn, Slice, array, s};
use polyad::plan::{DeviceCaps, Method, MttkrpPlan, PlanOptions};
use polyad::{Backend, CpAlsOptions, Cpu, Error, Init, Real, cp_als};

const TAU: usize = 4;

/// Sizes around the tile, orders 1 to 8.
fn shapes() -> Vec<Vec<usize>> {
    let mut shapes: Vec<Vec<usize>> = [1, 2, TAU - 1, TAU, TAU + 1, 13, 70].iter().map(|&i| vec![i]).collect();
    shapes.extend([vec![1, 1], vec![1, 7], vec![TAU, TAU], vec![TAU + 1, TAU - 1], vec![13, 11], vec![40, 3]]);
    shapes.extend([vec![1, 1, 1], vec![TAU; 3], vec![TAU + 1, TAU, TAU - 1], vec![5, 7, 3], vec![1, 13, 2]]);
    shapes.extend([vec![17, 2, 11], vec![2, 3, 33], vec![70, 3, 2], vec![3, 70, 2], vec![2, 3, 70]]);
    shapes.extend([vec![2, 3, 4, 5], vec![TAU + 1, 1, TAU - 1, TAU], vec![7, 2, 5, 3], vec![3; 4]]);
    shapes.extend([vec![2, 3, 4, 5, 3], vec![TAU + 1, 2, 1, TAU, 3], vec![1; 5], vec![3, 2, 5, 2, 7]]);
    shapes.extend([vec![2, 3, 1, 5, 2, 3], vec![2, 1, 3, 2, 2, 2, 3], vec![2; 8], vec![5, 1, 2, 1, 2, 3, 1, 2]]);
    // Sums long enough for GEMM to cut them into panels.
    shapes.extend([vec![2, 33, 32], vec![1030, 3], vec![3, 1500]]);
    shapes
}

/// Returns the largest share of the bound over all cases, and the cases that broke it.
fn conformance<T: Real>(method: Method, threads: usize) -> (f64, Vec<String>) {
    let cpu = Cpu::with_threads(threads).unwrap();
    let (mut worst, mut failures) = (0f64, Vec::new());
    for (seed, dims) in shapes().into_iter().enumerate() {
        for rank in if method == Method::Fused { &[1, 2, 3, 4, 5, 6, 7, 8, 16, 17, 35][..] } else { &[1, 3, 16, 17] } {
            let rank = *rank;
            let mut numbers = Numbers::new(seed as u64);
            let x: ArrayD<T> = numbers.tensor(&dims);
            let factors: Vec<Array2<T>> = dims.iter().map(|&i| numbers.matrix(i, rank)).collect();
            let factors: Vec<_> = factors.iter().map(|f| f.view()).collect();
            let lambda: Array1<T> = numbers.vector(rank);
            for mode in 0..dims.len() {
                for (weights, tau, block) in [(None, TAU, 32), (Some(lambda.view()), TAU, 5), (None, 1, 16)] {
                    let options = PlanOptions::default().method(method).tile(tau).column_block(block);
                    let what = format!("{method} {} {dims:?} mode {mode} R {rank} tau {tau} F {block}", T::DTYPE);
                    let reference = Reference::new(x.view(), weights, &factors, mode);
                    match mttkrp(&cpu, x.view(), weights, &factors, mode, &options) {
                        Ok(g) => {
                            let share = share_of_bound(g.view(), &reference, reference.chain, dims.len());
                            if share > 1.0 {
                                failures.push(format!("{what}: {share} of the bound"));
                            }
                            worst = worst.max(share);
                        }
                        Err(e) => failures.push(format!("{what}: {e}")),
                    }
                }
            }
        }
    }
    (worst, failures)
}

#[test]
fn every_method_agrees_with_the_definition() {
    let mut failures = Vec::new();
    for method in Method::ALL {
        for threads in [1, 3] {
            for (dtype, (share, failed)) in
                [("f32", conformance::<f32>(method, threads)), ("f64", conformance::<f64>(method, threads))]
            {
                println!("{method} {dtype} on {threads} threads: at most {share:.3} of the error bound");
                failures.extend(failed);
            }
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// The check itself: an operand that is off by little more than rounding must not pass.
#[test]
fn the_check_bites() {
    fn perturbed<T: Real>(step: f64) -> f64 {
        let mut numbers = Numbers::new(5);
        // Positive operands, so that nothing cancels and S is the result.
        let x: ArrayD<T> = numbers.tensor(&[5, 4, 3]).mapv(|v: T| v.abs());
        let (a, b, mut c): (Array2<T>, Array2<T>, Array2<T>) =
            (Array2::ones((5, 3)), Array2::ones((4, 3)), Array2::ones((3, 3)));
        let reference = Reference::new(x.view(), None, &[a.view(), b.view(), c.view()], 0);
        c[[1, 2]] *= T::of(1.0 + step);
        let factors = [a.view(), b.view(), c.view()];
        let g = mttkrp(&Cpu::new(), x.view(), None, &factors, 0, &PlanOptions::default()).unwrap();
        share_of_bound(g.view(), &reference, reference.chain, 3)
    }
    assert!(perturbed::<f32>(0.0) <= 1.0 && perturbed::<f64>(0.0) <= 1.0);
    assert!(perturbed::<f32>(200.0 * f64::from(f32::EPSILON)) > 1.0);
    assert!(perturbed::<f64>(200.0 * f64::EPSILON) > 1.0);
    let reference = Reference::new(array![[1.0f64]].into_dyn().view(), None, &[array![[1.0]].view(); 2], 0);
    assert!(share_of_bound(array![[f64::NAN]].view(), &reference, 1, 2) > 1.0);
}

#[test]
#[should_panic(expected = "of its bound")]
fn the_assertion_panics() {
    let x = array![[1.0f64, 2.0]].into_dyn();
    let (a, b) = (array![[1.0]], array![[1.0], [1.0]]);
    let reference = Reference::new(x.view(), None, &[a.view(), b.view()], 0);
    assert_within_bound(array![[3.0 + 1e-10]].view(), &reference, 2, "three and a bit");
}

#[test]
fn any_memory_layout_will_do() {
    let mut numbers = Numbers::new(1);
    let big: ArrayD<f32> = numbers.tensor(&[10, 9, 8]);
    let mut strided = big.view();
    strided.slice_axis_inplace(Axis(0), Slice::new(1, None, 2));
    strided.slice_axis_inplace(Axis(2), Slice::new(0, None, -1));
    let fortran = {
        let mut f = ArrayD::zeros(ndarray::ShapeBuilder::f(IxDyn(&[10, 9, 8])));
        f.assign(&big);
        f
    };
    for x in [big.view(), strided, fortran.view(), big.view().permuted_axes(IxDyn(&[1, 2, 0]))] {
        let wide: Vec<Array2<f32>> = x.shape().iter().map(|&i| numbers.matrix(6, i)).collect();
        let factors: Vec<_> = wide.iter().map(|f| f.slice(s![1..;2, ..]).reversed_axes()).collect();
        for method in Method::ALL {
            for mode in 0..3 {
                let reference = Reference::new(x.view(), None, &factors, mode);
                let options = PlanOptions::default().method(method).tile(3);
                let g = mttkrp(&Cpu::new(), x.view(), None, &factors, mode, &options).unwrap();
                assert_within_bound(g.view(), &reference, reference.chain, method.name());
            }
        }
    }
    let cpu = Cpu::new();
    assert!(cpu.upload_tensor(big.view()).unwrap().is_view(), "row-major data are borrowed");
    assert!(!cpu.upload_tensor(fortran.view()).unwrap().is_view());
}

#[test]
fn the_output_may_be_strided() {
    let mut numbers = Numbers::new(2);
    let x: ArrayD<f64> = numbers.tensor(&[4, 5]);
    let (a, b): (Array2<f64>, Array2<f64>) = (numbers.matrix(4, 2), numbers.matrix(5, 2));
    let cpu = Cpu::new();
    let plan = MttkrpPlan::new(&[4, 5], 1, 2, &PlanOptions::default().dtype(polyad::Dtype::F64), cpu.caps()).unwrap();
    let (xd, u) = (cpu.upload_tensor(x.view()).unwrap(), cpu.upload_factors(None, &[a.view(), b.view()]).unwrap());
    let mut out = Array2::zeros((2, 5));
    cpu.mttkrp_into(&plan, &xd, &u, out.view_mut().reversed_axes()).unwrap();
    assert_eq!(out.t(), cpu.mttkrp(x.view(), &[a.view(), b.view()], 1).unwrap());
}

#[test]
fn known_values_of_every_method() {
    for method in Method::ALL {
        known_values::<f32>(&Cpu::new(), method);
        known_values::<f64>(&Cpu::new(), method);
    }
}

/// FUSED and SLICE: tensors large enough to be cut into parts in every way.
#[test]
fn any_number_of_threads_gives_the_same_bits() {
    for dims in [vec![9, 400, 131], vec![700, 30, 41], vec![30, 28, 26, 25], vec![5, 90000]] {
        let mut numbers = Numbers::new(9);
        let x: ArrayD<f32> = numbers.tensor(&dims);
        let factors: Vec<Array2<f32>> = dims.iter().map(|&i| numbers.matrix(i, 21)).collect();
        let factors: Vec<_> = factors.iter().map(|f| f.view()).collect();
        for method in [Method::Fused, Method::Slice] {
            for mode in 0..dims.len() {
                let options = PlanOptions::default().method(method);
                let run = |threads| {
                    let cpu = Cpu::with_threads(threads).unwrap();
                    mttkrp(&cpu, x.view(), None, &factors, mode, &options).unwrap()
                };
                let one = run(1);
                assert!([2, 3, 5, 24, 40].into_iter().all(|t| run(t) == one), "{method} {dims:?} mode {mode}");
            }
        }
    }
}

/// Inside a pool of the caller's that pool does the work: plans count its threads, and a process that does nothing else
/// has no more threads afterwards than before.
#[test]
fn a_callers_pool_does_the_work() {
    const ALONE: &str = "POLYAD_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        // Other tests have pools, so this one runs again in a process of its own.
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "a_callers_pool_does_the_work", "--test-threads=1"]).env(ALONE, "1");
        let output = again.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    // None where the system does not tell.
    let threads = || std::fs::read_dir("/proc/self/task").ok().map(Iterator::count);
    let mut numbers = Numbers::new(3);
    let x: ArrayD<f32> = numbers.tensor(&[60, 50, 40]);
    let factors: Vec<Array2<f32>> = [60, 50, 40].iter().map(|&i| numbers.matrix(i, 70)).collect();
    let factors: Vec<_> = factors.iter().map(|f| f.view()).collect();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    let (inside, before, after) = pool.install(|| {
        assert_eq!(Cpu::new().caps().threads, 3);
        let before = threads();
        let results: Vec<_> = Method::ALL
            .iter()
            .flat_map(|&method| (0..3).map(move |mode| (PlanOptions::default().method(method), mode)))
            .map(|(options, mode)| mttkrp(&Cpu::new(), x.view(), None, &factors, mode, &options).unwrap())
            .collect();
        cp_als(&Cpu::new(), x.view(), &CpAlsOptions::new(70).max_sweeps(2)).unwrap();
        cp_als(&Cpu::new(), x.view(), &CpAlsOptions::new(3).max_sweeps(1).init(Init::Nvecs { seed: 0 })).unwrap();
        (results, before, threads())
    });
    assert_eq!(before, after, "threads of the process");
    if let Some(before) = before {
        // The count sees a second pool.
        let _second = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        assert!(threads().unwrap() >= before + 2);
    }
    let fused = Method::ALL.iter().position(|&m| m == Method::Fused).unwrap();
    let own = Cpu::with_threads(2).unwrap();
    for mode in 0..3 {
        assert_eq!(inside[3 * fused + mode], own.mttkrp(x.view(), &factors, mode).unwrap());
    }
}

#[test]
fn the_same_threads_give_the_same_bits() {
    let mut numbers = Numbers::new(9);
    let x: ArrayD<f32> = numbers.tensor(&[9, 40, 31]);
    let factors: Vec<Array2<f32>> = [9, 40, 31].iter().map(|&i| numbers.matrix(i, 21)).collect();
    let factors: Vec<_> = factors.iter().map(|f| f.view()).collect();
    for threads in [1, 2, 5] {
        let cpu = Cpu::with_threads(threads).unwrap();
        for method in Method::ALL {
            for mode in 0..3 {
                let options = PlanOptions::default().method(method);
                let once = mttkrp(&cpu, x.view(), None, &factors, mode, &options).unwrap();
                for _ in 0..5 {
                    let again = mttkrp(&cpu, x.view(), None, &factors, mode, &options).unwrap();
                    assert_eq!(once, again, "{method} mode {mode} on {threads} threads");
                }
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_an_error_with_numbers() {
    let cpu = Cpu::new();
    let options = PlanOptions::default();
    let x = Array2::<f32>::ones((2, 3));
    let (a, b) = (Array2::<f32>::ones((2, 4)), Array2::<f32>::ones((3, 4)));
    let xd = cpu.upload_tensor(x.view()).unwrap();
    let mut u = cpu.upload_factors(None, &[a.view(), b.view()]).unwrap();
    let mut g = Array2::<f32>::zeros((2, 4));
    let plan = |dims: &[usize], rank, options: &PlanOptions| {
        MttkrpPlan::new(dims, 0, rank, options, &DeviceCaps::cpu(1)).unwrap()
    };
    let mut run = |plan: &MttkrpPlan| cpu.mttkrp_into(plan, &xd, &u, g.view_mut()).unwrap_err();
    assert!(matches!(run(&plan(&[2, 4], 4, &options)), Error::PlanMismatch { reason } if reason.contains("(2, 4)")));
    assert!(matches!(run(&plan(&[2, 3], 5, &options)), Error::PlanMismatch { reason } if reason.contains('5')));
    let wide = options.clone().dtype(polyad::Dtype::F64);
    assert_eq!(run(&plan(&[2, 3], 4, &wide)), Error::DtypeMismatch { what: "the plan", expected: "f64", found: "f32" });
    let mut wrong = Array2::zeros((3, 4));
    assert_eq!(
        cpu.mttkrp_into(&plan(&[2, 3], 4, &options), &xd, &u, wrong.view_mut()).unwrap_err(),
        Error::OutputShape { expected: (2, 4), found: (3, 4) }
    );
    assert_eq!(cpu.set_factor(&mut u, 2, a.view()).unwrap_err(), Error::ModeOutOfRange { mode: 2, order: 2 });
    assert_eq!(
        cpu.set_factor(&mut u, 1, a.view()).unwrap_err(),
        Error::FactorShape { mode: 1, expected: (3, 4), found: (2, 4) }
    );
    let mut bad = a.clone();
    bad[[1, 2]] = f32::INFINITY;
    let refused = Error::NonFinite { what: "factor 0".into(), index: vec![1, 2], value: f64::INFINITY };
    assert_eq!(cpu.set_factor(&mut u, 0, bad.view()).unwrap_err(), refused);
    assert_eq!(cpu.upload_factors(None, &[bad.view(), b.view()]).unwrap_err(), refused);
    assert_eq!(
        cpu.upload_factors(Some(array![1.0f32].view()), &[a.view(), b.view()]).unwrap_err(),
        Error::WeightsLength { expected: 4, found: 1 }
    );
    assert!(cpu.upload_tensor(Array2::<f32>::zeros((2, 0)).view()).is_err());
    assert!(cpu.mttkrp(x.view().into_dyn(), &[a.view(), b.view()], 2).is_err());
}

#[test]
fn a_sum_out_of_range_is_an_error_not_infinity() {
    let x = Array2::from_elem((2, 3), 1e30f32);
    let (a, mut b) = (Array2::<f32>::ones((2, 2)), Array2::<f32>::ones((3, 2)));
    b[[2, 1]] = 1e30;
    for method in Method::ALL {
        let options = PlanOptions::default().method(method);
        let factors = [a.view(), b.view()];
        let error = mttkrp(&Cpu::new(), x.view().into_dyn(), None, &factors, 0, &options).unwrap_err();
        assert_eq!(
            error,
            Error::Overflow { what: "MTTKRP of mode 0".into(), dtype: "f32", index: vec![0, 1] },
            "{method}"
        );
    }
}
