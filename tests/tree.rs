//! CP-ALS with products of the tensor kept for several modes, against one MTTKRP a mode: the same sweeps but for rounding.

mod common {
    #[cfg(feature = "gpu")]
    pub mod adapter;
    #[path = "mod.rs"]
    pub mod compare;
}

use common::compare::Numbers;
use ndarray::ArrayD;
use polyad::{Backend, CpAlsOptions, CpAlsResult, Cpu, Init, Method, PlanOptions, Real, Tree, cp_als};

/// Uniform numbers, so that components are far from orthogonal, as in real data.
fn tensor<T: Real>(dims: &[usize]) -> ArrayD<T> {
    Numbers::new(dims.iter().product::<usize>() as u64).tensor::<T>(dims).mapv(|v| v.abs())
}

fn options(rank: usize, tree: Tree) -> CpAlsOptions {
    CpAlsOptions::new(rank).max_sweeps(6).fit_tolerance(0.0).init(Init::Random { seed: 3 }).tree(tree)
}

/// Largest difference of fits, sweep by sweep, and of the entries of the models.
fn difference<T: Real>(a: &CpAlsResult<T>, b: &CpAlsResult<T>) -> (f64, f64) {
    assert_eq!(a.sweeps, b.sweeps);
    let fits = a.fits.iter().zip(&b.fits).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let factors = a.model.factors().iter().zip(b.model.factors());
    let entries = factors.flat_map(|(a, b)| a.iter().zip(b).map(|(a, b)| (a.f64() - b.f64()).abs()));
    (fits, entries.fold(0.0, f64::max))
}

/// Every kind of tree, for this element type; passes are counted too.
fn agree<T: Real>(backend: &impl Backend, dims: &[usize], rank: usize, [fits, models]: [f64; 2]) {
    let x: ArrayD<T> = tensor(dims);
    let plain = cp_als(backend, x.view(), &options(rank, Tree::None)).unwrap();
    assert_eq!(plain.passes, 6 * dims.len());
    for (tree, passes) in [(Tree::Two, 12), (Tree::MultiSweep, 9)] {
        let kept = cp_als(backend, x.view(), &options(rank, tree)).unwrap();
        let (fit, model) = difference(&plain, &kept);
        println!("{dims:?} R {rank} {} {}: fits {fit:.1e}, models {model:.1e}", T::DTYPE, kept.tree);
        assert!(fit <= fits && model <= models, "{dims:?} R {rank} {tree}: {:?} and {:?}", plain.fits, kept.fits);
        assert!(kept.passes <= passes, "{dims:?} R {rank} {tree}: {} passes", kept.passes);
        assert_eq!(kept.warnings, plain.warnings);
        let again = cp_als(backend, x.view(), &options(rank, tree)).unwrap();
        assert_eq!((&again.model, &again.fits), (&kept.model, &kept.fits), "{dims:?} R {rank} {tree}");
    }
}

const CASES: [(&[usize], usize); 11] = [
    // Long enough for matrix units, where the device has some.
    (&[12, 260, 270], 17),
    (&[3, 9, 4], 2),
    (&[9, 8, 7], 3),
    (&[30, 4, 25], 1),
    (&[1, 6, 8], 2),
    (&[7, 5, 1], 2),
    (&[6, 5, 4, 7], 5),
    (&[3, 40, 2, 9], 4),
    (&[4, 5, 3, 4, 3], 2),
    (&[70, 40, 30], 17),
    (&[16, 20, 24], 33),
];

#[test]
fn the_cpu_finds_the_same() {
    for (dims, rank) in CASES {
        agree::<f64>(&Cpu::with_threads(3).unwrap(), dims, rank, [1e-12, 1e-9]);
        agree::<f32>(&Cpu::with_threads(2).unwrap(), dims, rank, [2e-6, 1e-3]);
    }
}

/// Fixed modes, factors without negative entries, several starts, a ridge and a given start, which has a fit of its own.
fn agree_with_other_options(backend: &impl Backend, dims: &[usize]) {
    let x: ArrayD<f64> = tensor(dims);
    let last = dims.len() - 1;
    let start = cp_als(backend, x.view(), &options(2, Tree::None).nonneg([0, last])).unwrap().model.to_f64();
    let given = |options: CpAlsOptions| options.init(Init::Model(Box::new(start.clone())));
    let with: [(&str, &dyn Fn(CpAlsOptions) -> CpAlsOptions); 7] = [
        ("fix 0", &|options| options.fix([0])),
        ("all but the last fixed", &|options| options.fix(0..last)),
        ("nonneg", &|options| options.nonneg([0, last])),
        ("starts", &|options| options.starts(3)),
        ("ridge, fix, nonneg, starts", &|options| options.ridge(1e-2).fix([last]).nonneg([0, 1]).starts(2)),
        ("a given start", &given),
        ("a given start, nonneg, fix", &|options| given(options).nonneg([last]).fix([1])),
    ];
    for (what, with) in with {
        let plain = cp_als(backend, x.view(), &with(options(2, Tree::None))).unwrap();
        for tree in [Tree::Two, Tree::MultiSweep] {
            let kept = cp_als(backend, x.view(), &with(options(2, tree))).unwrap();
            let (fit, model) = difference(&plain, &kept);
            println!("{dims:?} {what}, {}: fits {fit:.1e}, models {model:.1e}, {} passes", kept.tree, kept.passes);
            assert!(!kept.tree.contains("one MTTKRP a mode"), "{}", kept.tree);
            assert!(fit <= 1e-10 && model <= 1e-7, "{dims:?} {what} {tree}: {:?} and {:?}", plain.fits, kept.fits);
            assert!(kept.passes <= plain.passes, "{dims:?} {what} {tree}: {} passes", kept.passes);
            match (plain.initial_fit, kept.initial_fit) {
                (Some(a), Some(b)) => assert!((a - b).abs() < 1e-10, "{dims:?} {what} {tree}: {a} and {b}"),
                (a, b) => assert_eq!(a, b),
            }
        }
    }
}

#[test]
fn other_options_find_the_same() {
    for dims in [&[9, 8, 7][..], &[6, 5, 4, 7], &[4, 5, 3, 4, 3]] {
        agree_with_other_options(&Cpu::with_threads(2).unwrap(), dims);
    }
}

/// The factors of the fixed modes stay, and so do products with them alone.
#[test]
fn products_with_fixed_factors_last() {
    let x: ArrayD<f64> = tensor(&[9, 8, 7]);
    let run = |tree| cp_als(&Cpu::new(), x.view(), &options(2, tree).fix([0, 1])).unwrap().passes;
    assert_eq!(run(Tree::None), 6);
    assert_eq!(run(Tree::MultiSweep), 1);
}

/// The comparison can fail: another start is seen.
#[test]
fn another_start_is_noticed() {
    let x: ArrayD<f64> = tensor(&[9, 8, 7]);
    let other = options(3, Tree::Two).init(Init::Random { seed: 4 });
    let (a, b) = [options(3, Tree::None), other].map(|o| cp_als(&Cpu::new(), x.view(), &o).unwrap()).into();
    let (fits, models) = difference(&a, &b);
    assert!(fits > 1e-6 && models > 1e-3);
}

#[test]
fn what_was_done_is_said_and_why() {
    let x: ArrayD<f64> = tensor(&[9, 8, 7]);
    let tree = |options: &CpAlsOptions| cp_als(&Cpu::new(), x.view(), options).unwrap().tree;
    assert_eq!(tree(&options(2, Tree::None)), "3 passes a sweep, one MTTKRP a mode: asked for");
    assert!(
        tree(&options(2, Tree::MultiSweep))
            .starts_with("1.50 passes a sweep, multi-sweep dimension tree of modes 0 | 1 | 2: asked for")
    );
    // The smallest product of a tree of two is 8 x 7, at two columns of 8 bytes.
    assert!(tree(&options(2, Tree::Two).memory_budget(896)).contains("of modes 0 | 1 2"));
    let small = tree(&options(2, Tree::Two).memory_budget(895));
    assert!(small.ends_with("kept products take 896 bytes, the memory budget is 895"), "{small}");
    let by_tile = options(2, Tree::Auto).plan(PlanOptions::default().method(Method::Tile));
    assert!(tree(&by_tile).contains("method tile was asked for"));
    assert!(tree(&options(2, Tree::Auto)).contains("about"));
}

#[cfg(feature = "gpu")]
mod on_a_gpu {
    use super::*;
    use common::adapter::{gpu, gpu_with_binding, minimal_gpu};
    use polyad::plan::TreePlan;
    use polyad::wgpu;

    #[test]
    fn the_gpu_finds_the_same() {
        let Some(gpu) = gpu().filter(|gpu| gpu.caps().f64) else { return };
        // Compiling takes most of the time where the adapter is software.
        for (dims, rank) in CASES.into_iter().step_by(2) {
            agree::<f64>(&gpu, dims, rank, [1e-12, 1e-9]);
            agree::<f32>(&gpu, dims, rank, [2e-6, 1e-3]);
        }
    }

    #[test]
    fn other_options_find_the_same_on_the_gpu() {
        let Some(gpu) = gpu().filter(|gpu| gpu.caps().f64) else { return };
        agree_with_other_options(&gpu, &[9, 8, 7]);
    }

    /// Slabs along the first mode, and along the second.
    #[test]
    fn slabs_make_no_difference() {
        for bytes in [64 << 10, 4 << 10] {
            let Some(gpu) = gpu_with_binding(bytes).filter(|gpu| gpu.caps().f64) else { return };
            let dims: &[usize] = if bytes > 4 << 10 { &[40, 30, 50] } else { &[3, 40, 30] };
            let plan = polyad::MttkrpPlan::new(dims, 0, 4, &PlanOptions::default(), gpu.caps()).unwrap();
            assert!(plan.slabs().len() > 3);
            let x: ArrayD<f32> = tensor(dims);
            let plain = cp_als(&gpu, x.view(), &options(3, Tree::None)).unwrap();
            // Not one tile of the product with the factor of the mode that is cut into single indices fits a binding.
            let trees: &[Tree] = if dims[0] > 3 { &[Tree::Two, Tree::MultiSweep] } else { &[Tree::Two] };
            for &tree in trees {
                let kept = cp_als(&gpu, x.view(), &options(3, tree)).unwrap();
                println!("{}", kept.tree);
                assert!(kept.passes < plain.passes, "{}", kept.tree);
                let (fits, _) = difference(&plain, &kept);
                assert!(fits < 2e-5, "{dims:?} {tree}: {:?} and {:?}", plain.fits, kept.fits);
            }
        }
    }

    /// Each of two slabs fits a binding, its product does not: the columns are in several buffers.
    #[test]
    fn products_larger_than_a_binding_are_cut() {
        let Some(gpu) = gpu_with_binding(2400 << 10).filter(|gpu| gpu.caps().f64) else { return };
        let (dims, rank) = ([100, 70, 128], 68);
        let plan = TreePlan::new(&dims, rank, Tree::MultiSweep, None, &PlanOptions::default(), gpu.caps()).unwrap();
        assert!(plan.bytes() > 3 * (2400 << 10), "{plan}");
        agree::<f32>(&gpu, &dims, rank, [2e-6, 2e-3]);
    }

    #[test]
    fn where_the_host_replaces_factors_there_is_no_tree() {
        let Some(gpu) = minimal_gpu(wgpu::Features::empty()) else { return };
        let x: ArrayD<f32> = tensor(&[9, 8, 7]);
        let result = cp_als(&gpu, x.view(), &options(2, Tree::Two)).unwrap();
        assert_eq!(result.tree, "3 passes a sweep, one MTTKRP a mode: the host replaces the factors");
        assert_eq!(result.passes, 18);
    }
}
