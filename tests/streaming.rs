//! Tensors larger than the memory that may be used: the bits of a resident run, and no more memory than was said.
#![cfg(feature = "gpu")]

mod common {
    pub mod adapter;
    #[path = "mod.rs"]
    pub mod compare;
}

use common::adapter::or_skip;
use common::compare::{Numbers, Reference, assert_within_bound};
use ndarray::{Array2, ArrayD, ArrayView2, ArrayViewD, ShapeBuilder};
use polyad::plan::{Footprint, Method, MttkrpPlan, PlanOptions, TreePlan, slab_limit};
use polyad::{Backend, CpAlsOptions, Dtype, Error, Gpu, GpuBuilder, Real, Tree, cp_als, io};

/// The memory of a card into which the tensor does not fit: what it takes to stream it, and room for slabs as they are.
fn tight(gpu: &Gpu, need: impl Fn(&Gpu) -> Footprint) -> (Gpu, Footprint) {
    let whole = need(gpu);
    assert!(whole.streaming.is_none(), "all of it fits the adapter");
    let streams = need(&gpu.with_memory_budget(whole.peak() - 1));
    let streaming = streams.streaming.unwrap_or_else(|| panic!("does not stream: {streams:?}, whole {whole:?}"));
    assert_eq!(streaming.resident_bytes, whole.peak());
    let budget = streams.peak().max(3 * gpu.caps().max_slab_bytes);
    let small = gpu.with_memory_budget(budget);
    let need = need(&small);
    assert!(need.streaming.is_some() && need.peak() <= budget, "{need:?}");
    (small, need)
}

fn open(dtype: Dtype, builder: GpuBuilder) -> Option<Gpu> {
    let gpu = or_skip(builder.build().map_err(|e| e.to_string()))?;
    if dtype == Dtype::F64 && !gpu.caps().f64 {
        println!("skipped: no f64");
        return None;
    }
    Some(gpu)
}

struct Problem<T> {
    x: ArrayD<T>,
    factors: Vec<Array2<T>>,
}

impl<T: Real> Problem<T> {
    fn new(dims: &[usize], rank: usize) -> Self {
        let mut numbers = Numbers::new(rank as u64);
        Self { x: numbers.tensor(dims), factors: dims.iter().map(|&d| numbers.matrix(d, rank)).collect() }
    }

    fn views(&self) -> Vec<ArrayView2<'_, T>> {
        self.factors.iter().map(|f| f.view()).collect()
    }

    fn plan(&self, gpu: &Gpu, mode: usize, method: Method) -> polyad::Result<MttkrpPlan> {
        let options = PlanOptions::default().method(method).dtype(T::DTYPE);
        MttkrpPlan::new(self.x.shape(), mode, self.factors[0].ncols(), &options, gpu.caps())
    }

    /// Twice, as what is left in buffers by the first must not matter.
    fn run(&self, gpu: &Gpu, x: ArrayViewD<'_, T>, plan: &MttkrpPlan) -> Array2<T> {
        let x = gpu.place_tensor(Footprint::mttkrp(plan, gpu.caps()).unwrap(), x).unwrap();
        assert_eq!(x.streaming().is_some(), plan.streaming().is_some(), "{plan}");
        let u = gpu.upload_factors(None, &self.views()).unwrap();
        let mut g = Array2::zeros((plan.shape().rows(plan.mode()), plan.rank()));
        gpu.mttkrp_into(plan, &x, &u, g.view_mut()).unwrap();
        let first = g.clone();
        gpu.mttkrp_into(plan, &x, &u, g.view_mut()).unwrap();
        if !matches!(plan.method(), Method::Elem | Method::Tile) {
            assert_eq!(g, first);
        }
        g
    }
}

/// MTTKRPs of all modes, streamed and not.
fn check_mttkrp<T: Real>(dims: &[usize], rank: usize, slab: u64, binding: Option<u64>, methods: &[Method]) {
    let problem = Problem::<T>::new(dims, rank);
    let mut columns = 1;
    for &method in methods {
        for mode in 0..dims.len() {
            let builder = Gpu::builder().max_slab_bytes(slab);
            let builder = binding.map_or(builder.clone(), |bytes| builder.max_binding_bytes(bytes));
            let Some(gpu) = open(T::DTYPE, builder) else { return };
            let what = format!("{method} of {dims:?} mode {mode} R {rank} {}", T::DTYPE);
            let plan = problem.plan(&gpu, mode, method).unwrap();
            columns = columns.max(plan.columns().len() - 1);
            let resident = problem.run(&gpu, problem.x.view(), &plan);
            let (small, need) =
                tight(&gpu, |gpu| Footprint::mttkrp(&problem.plan(gpu, mode, method).unwrap(), gpu.caps()).unwrap());
            let streamed_plan = problem.plan(&small, mode, method).unwrap();
            assert!(streamed_plan.dispatches() == plan.dispatches(), "{streamed_plan}, not {plan}");
            let slabs = format!("streams {} slabs of at most", plan.slabs().len());
            assert!(plan.slabs().len() >= 5 && streamed_plan.to_string().contains(&slabs), "{streamed_plan}");
            let streamed = problem.run(&small, problem.x.view(), &streamed_plan);
            let (took, budget) = (small.memory().peak, small.caps().memory.unwrap());
            println!("{what}: {} slabs, budget {budget}, took {took}", plan.slabs().len());
            assert!(took <= budget, "{what}: {took} bytes were taken of {budget}");
            assert!(took * 100 >= need.peak() * 99, "{what}: {need:?}, took {took}");
            if matches!(method, Method::Elem | Method::Tile) {
                // Not repeatable by themselves.
                let reference = Reference::new(problem.x.view(), None, &problem.views(), mode);
                assert_within_bound(streamed.view(), &reference, plan.chain() as usize, &what);
            } else {
                assert_eq!(streamed, resident, "{what}");
            }
        }
    }
    assert_eq!(columns > 1, binding.is_some(), "blocks of columns");
}

#[test]
fn mttkrps_of_order_3_have_the_same_bits() {
    check_mttkrp::<f32>(&[60, 44, 52], 5, 60 << 10, None, &Method::ALL);
}

#[test]
fn mttkrps_of_order_4_have_the_same_bits() {
    check_mttkrp::<f32>(&[13, 18, 15, 33], 20, 50 << 10, None, &[Method::Fused, Method::Slice]);
    check_mttkrp::<f32>(&[2, 40, 21, 53], 3, 28 << 10, None, &[Method::Fused, Method::Gemm]);
}

#[test]
fn mttkrps_in_f64_have_the_same_bits() {
    check_mttkrp::<f64>(&[60, 44, 52], 5, 150 << 10, None, &[Method::Fused, Method::Slice, Method::Gemm]);
    check_mttkrp::<f64>(&[13, 18, 15, 33], 7, 90 << 10, None, &[Method::Fused]);
}

/// All blocks of columns are done with a slab before the next one comes.
#[test]
fn blocks_of_columns_share_a_pass() {
    check_mttkrp::<f32>(&[40, 30, 35], 70, 12 << 10, Some(16 << 10), &[Method::Slice, Method::Gemm]);
}

/// A memory of less than three slabs has finer ones, and a run in those has the same bits.
#[test]
fn small_memories_have_small_slabs() {
    let Some(gpu) = open(Dtype::F32, Gpu::builder()) else { return };
    let problem = Problem::<f32>::new(&[60, 44, 52], 5);
    let small = gpu.with_memory_budget(300 << 10);
    let slab = slab_limit(small.caps(), Dtype::F32);
    assert_eq!(slab, 3 * (300 << 10) / 8);
    let Some(gpu) = open(Dtype::F32, Gpu::builder().max_slab_bytes(slab)) else { return };
    for mode in 0..3 {
        let plans = [&small, &gpu].map(|gpu| problem.plan(gpu, mode, Method::Fused).unwrap());
        assert!(plans[0].streaming().is_some() && plans[1].streaming().is_none());
        let streamed = problem.run(&small, problem.x.view(), &plans[0]);
        assert_eq!(streamed, problem.run(&gpu, problem.x.view(), &plans[1]), "mode {mode}");
    }
}

/// Decompositions in the slabs of the budget: a whole run has the same bits.
fn check_cp_als<T: Real>(dims: &[usize], rank: usize, slab: u64, options: &CpAlsOptions) {
    let problem = Problem::<T>::new(dims, rank);
    let Some(gpu) = open(T::DTYPE, Gpu::builder().max_slab_bytes(slab)) else { return };
    let resident = cp_als(&gpu, problem.x.view(), options).unwrap();
    let (small, _) = tight(&gpu, |gpu| {
        let plan = |mode| problem.plan(gpu, mode, options.plan.method).unwrap();
        let plans: Vec<_> = (0..dims.len()).map(plan).collect();
        let tree = TreePlan::of(&plans, Tree::None, None, &options.plan, gpu.caps()).unwrap();
        Footprint::cp_als(&plans, &tree, gpu.caps()).unwrap()
    });
    let streamed = cp_als(&small, problem.x.view(), options).unwrap();
    assert_eq!((&streamed.fits, &streamed.algebra), (&resident.fits, &resident.algebra));
    assert_eq!(streamed.model.weights(), resident.model.weights());
    assert_eq!(streamed.model.factors(), resident.model.factors());
    let (took, budget) = (small.memory().peak, small.caps().memory.unwrap());
    assert!(took <= budget, "{took} bytes were taken of {budget}");
    println!("CP-ALS of {dims:?} R {rank} {}: budget {budget}, took {took}, {}", T::DTYPE, streamed.algebra);
}

#[test]
fn decompositions_have_the_same_bits() {
    let options = CpAlsOptions::new(4).max_sweeps(3).fit_tolerance(0.0);
    check_cp_als::<f32>(&[60, 44, 52], 4, 60 << 10, &options);
    check_cp_als::<f64>(&[13, 18, 15, 33], 4, 90 << 10, &options);
    let gemm = PlanOptions::default().method(Method::Gemm);
    check_cp_als::<f32>(&[60, 44, 52], 4, 60 << 10, &options.plan(gemm));
}

/// Without f64 kernels the host solves, and every MTTKRP is a call of its own.
#[test]
fn decompositions_by_the_host_stream_too() {
    let Some(gpu) = common::adapter::minimal_gpu(polyad::wgpu::Features::empty()) else { return };
    let problem = Problem::<f32>::new(&[60, 44, 52], 4);
    let small = gpu.with_memory_budget(400 << 10);
    let options = CpAlsOptions::new(4).max_sweeps(2);
    let streamed = cp_als(&small, problem.x.view(), &options).unwrap();
    assert!(streamed.algebra.starts_with("on the host"), "{}", streamed.algebra);
    assert!(small.memory().peak <= 400 << 10, "{:?}", small.memory());
    let resident = cp_als(&gpu, problem.x.view(), &options).unwrap();
    approx::assert_abs_diff_eq!(streamed.fit, resident.fit, epsilon = 1e-4);
}

/// From a memory-mapped file, in either order.
#[test]
fn a_mapped_file_streams() {
    let Some(gpu) = open(Dtype::F32, Gpu::builder().max_slab_bytes(60 << 10)) else { return };
    let problem = Problem::<f32>::new(&[60, 44, 52], 5);
    let dir = tempfile::tempdir().unwrap();
    for fortran in [false, true] {
        let path = dir.path().join("x.npy");
        let mut x = ArrayD::zeros(problem.x.raw_dim().set_f(fortran));
        x.assign(&problem.x);
        std::fs::write(&path, npy(&x, fortran)).unwrap();
        let data = io::TensorFile::open(&path).unwrap().read::<f32>().unwrap();
        assert!(data.is_mapped() && data.view() == problem.x);
        for mode in 0..3 {
            let plan = problem.plan(&gpu, mode, Method::Fused).unwrap();
            let small = gpu.with_memory_budget(Footprint::mttkrp(&plan, gpu.caps()).unwrap().peak() - 1);
            let streamed_plan = problem.plan(&small, mode, Method::Fused).unwrap();
            assert!(streamed_plan.streaming().is_some());
            let streamed = problem.run(&small, data.view(), &streamed_plan);
            assert_eq!(streamed, problem.run(&gpu, problem.x.view(), &plan), "mode {mode}");
        }
    }
}

/// The bytes of a .npy file.
fn npy(x: &ArrayD<f32>, fortran: bool) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let header = format!("{{'descr': '<f4', 'fortran_order': {order}, 'shape': (60, 44, 52), }}");
    let header = format!("{header:<117}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(x.as_slice_memory_order().unwrap().iter().flat_map(|v| v.to_le_bytes()));
    bytes
}

/// Threads that stream one tensor take turns.
#[test]
fn threads_share_a_stream() {
    let Some(gpu) = open(Dtype::F32, Gpu::builder().max_slab_bytes(60 << 10)) else { return };
    let problem = Problem::<f32>::new(&[60, 44, 52], 5);
    let plans: Vec<_> = (0..3).map(|mode| problem.plan(&gpu, mode, Method::Fused).unwrap()).collect();
    let expected: Vec<_> = plans.iter().map(|plan| problem.run(&gpu, problem.x.view(), plan)).collect();
    let small = gpu.with_memory_budget(500 << 10);
    let x = small.upload_tensor(problem.x.view()).unwrap();
    let plans: Vec<_> = (0..3).map(|mode| problem.plan(&small, mode, Method::Fused).unwrap()).collect();
    assert!(x.streaming().is_some_and(|s| s.slabs == plans[0].slabs().len()), "by itself too large");
    std::thread::scope(|scope| {
        for (plan, expected) in plans.iter().zip(&expected) {
            let (small, x, problem) = (&small, &x, &problem);
            scope.spawn(move || {
                let u = small.upload_factors(None, &problem.views()).unwrap();
                for _ in 0..4 {
                    let mut g = Array2::zeros(expected.dim());
                    small.mttkrp_into(plan, x, &u, g.view_mut()).unwrap();
                    assert_eq!(g, expected, "mode {}", plan.mode());
                }
            });
        }
    });
}

#[test]
fn what_cannot_stream_says_so() {
    let Some(gpu) = open(Dtype::F32, Gpu::builder()) else { return };
    let problem = Problem::<f32>::new(&[60, 44, 52], 5);
    let bytes = 60 * 44 * 52 * 4;
    let small = gpu.with_memory_budget(400 << 10);
    let x = small.upload_tensor(problem.x.view()).unwrap();
    let u = small.upload_factors(None, &problem.views()).unwrap();
    let plan = problem.plan(&small, 0, Method::Fused).unwrap();
    let out = small.output::<f32>(&plan).unwrap();
    let (device, _) = small.device_and_queue();
    let mut encoder = device.create_command_encoder(&Default::default());
    let error = small.record_mttkrp(&mut encoder, &plan, &x, &u, &out).unwrap_err();
    let expected = format!(
        "device memory is {} on this device, a tensor whose MTTKRP is recorded, all of it at once, needs {bytes}",
        400 << 10
    );
    assert_eq!(error.to_string(), expected);
    // Room for slabs, but not for what a rank of 2000 needs.
    let large = Problem::<f32>::new(&[60, 44, 52], 2000);
    let plan = large.plan(&small, 0, Method::Slice).unwrap();
    let need = Footprint::mttkrp(&plan, small.caps()).unwrap();
    let error = small.place_tensor(need, large.x.view()).unwrap_err().to_string();
    let expected = format!(
        "device memory is {} on this device, the tensor with what is needed beside it needs {}",
        400 << 10,
        need.peak()
    );
    assert_eq!(error, expected);
    let error = cp_als(&small, large.x.view(), &CpAlsOptions::new(2000).max_sweeps(1)).unwrap_err().to_string();
    assert!(error.starts_with("device memory is 409600 on this device"), "{error}");
    // A card so small that no slab has room.
    let error = gpu.with_memory_budget(32).upload_tensor(problem.x.view()).unwrap_err();
    assert!(matches!(error, Error::LimitTooSmall { .. }), "{error}");
}
