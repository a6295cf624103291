//! The cost models: identities that hold for any shape, and numbers worked out by hand.

use polyad::plan::{Bound, CostModel, DeviceCaps, Machine, Method, ModelBlocks, MttkrpPlan, PlanOptions, Reuse};
use polyad::{Dtype, Shape};
use proptest::prelude::*;

fn dims() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![Just(1usize), 2usize..9, 9usize..200], 1..=8)
}

fn blocks() -> impl Strategy<Value = ModelBlocks> {
    (1usize..100, 1usize..300, 1usize..130, 1usize..130, 1usize..50, any::<bool>()).prop_map(
        |(tile, column_block, bm, bn, pieces, runs)| ModelBlocks {
            tile,
            column_block,
            product: [bm, bn],
            pieces,
            runs,
        },
    )
}

/// Equal up to the rounding of sums of a few terms.
fn same(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12 * a.abs().max(b.abs())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn tiles_of_one_entry_are_elem(dims in dims(), mode in 0usize..8, rank in 1usize..3000, blocks in blocks()) {
        let shape = Shape::new(&dims).unwrap();
        let mode = mode % dims.len();
        let blocks = ModelBlocks { tile: 1, ..blocks };
        let model = |method| CostModel::new(method, &shape, mode, rank, Dtype::F32, blocks);
        let (elem, tile) = (model(Method::Elem), model(Method::Tile));
        prop_assert!(same(elem.flops(), tile.flops()));
        for reuse in Reuse::ALL {
            prop_assert!(same(elem.words(reuse), tile.words(reuse)), "{reuse:?}");
        }
    }

    #[test]
    fn one_tile_a_slice_is_slice(dims in dims(), mode in 0usize..8, rank in 1usize..3000, blocks in blocks()) {
        let shape = Shape::new(&dims).unwrap();
        let mode = mode % dims.len();
        let whole = ModelBlocks { tile: dims.iter().copied().max().unwrap(), ..blocks };
        let model = |method| CostModel::new(method, &shape, mode, rank, Dtype::F32, whole);
        let (slice, tile) = (model(Method::Slice), model(Method::Tile));
        prop_assert!(same(slice.flops(), tile.flops()));
        for reuse in Reuse::ALL {
            prop_assert!(same(slice.words(reuse), tile.words(reuse)), "{reuse:?}");
        }
    }

    #[test]
    fn wider_tiles_move_no_more(dims in dims(), mode in 0usize..8, rank in 1usize..3000, tau in 1usize..60) {
        let shape = Shape::new(&dims).unwrap();
        let mode = mode % dims.len();
        let words = |tile, reuse| {
            let blocks = ModelBlocks { tile, column_block: 32, ..Default::default() };
            CostModel::new(Method::Tile, &shape, mode, rank, Dtype::F32, blocks).words(reuse)
        };
        // A multiple, so that every tile is a union of narrower ones.
        for reuse in Reuse::ALL {
            prop_assert!(words(2 * tau, reuse) <= words(tau, reuse) * (1.0 + 1e-12), "{reuse:?}");
        }
    }

    #[test]
    fn reuse_only_helps(
        dims in dims(),
        mode in 0usize..8,
        rank in 1usize..3000,
        blocks in blocks(),
        bandwidth in 1e9..1e13f64,
        peak in 1e9..1e15f64,
    ) {
        let shape = Shape::new(&dims).unwrap();
        let mode = mode % dims.len();
        let machine = Machine::new(bandwidth, peak);
        for method in Method::ALL {
            let model = CostModel::new(method, &shape, mode, rank, Dtype::F64, blocks);
            let words = Reuse::ALL.map(|reuse| model.words(reuse));
            let times = Reuse::ALL.map(|reuse| model.predict(reuse, &machine).seconds);
            for pair in [words, times].iter().flat_map(|all| all.windows(2)) {
                prop_assert!(pair[1] <= pair[0] * (1.0 + 1e-12), "{method}: {words:?}, {times:?}");
            }
            prop_assert!(times.iter().all(|t| t.is_finite() && *t > 0.0));
            prop_assert!(model.flops() >= 2.0 * shape.len() as f64 * rank as f64);
        }
    }
}

/// 4 x 6 x 8 at rank 10, F = 4, tau = 2: tau divides every dim, so the printed formulas hold as they are.
#[test]
fn words_by_hand() {
    let shape = Shape::new(&[4, 6, 8]).unwrap();
    let blocks = ModelBlocks { tile: 2, column_block: 4, product: [2, 5], pieces: 3, runs: true };
    // FUSED and GEMM in three pieces.
    let words = |method, mode| {
        let model = CostModel::new(method, &shape, mode, 10, Dtype::F32, blocks);
        Reuse::ALL.map(|reuse| model.words(reuse))
    };
    let n = 192.0;
    let everything = n + 140.0 + 10.0 + 40.0;
    assert_eq!(words(Method::Elem, 0), [n * 53.0, n * 53.0, n * 53.0, everything]);
    let slice = [n * 33.0 + 80.0, n * 23.0 + 120.0, n * 3.0 + 40.0 * 14.0 + 120.0, everything];
    assert_eq!(words(Method::Slice, 0), slice);
    let tile = [n * (33.0 + 5.0), n * (23.0 + 7.5), n * (3.0 + 10.0 * (1.0 + 0.75)), everything];
    assert_eq!(words(Method::Tile, 0), tile);
    // The product has 48 rows of the operand, made of two factors, and 4 of G.
    let gemm = |product: f64| 48.0 * 10.0 * 3.0 + product + 2.0 * 3.0 * 40.0 + 40.0;
    let (none, staged) = (gemm(2.0 * n * 10.0), gemm(n * 2.0 + 2.0 * 480.0));
    assert_eq!(words(Method::Gemm, 0), [none, none, staged, everything]);
    // The middle mode contracts the last one (8) to 24 rows, then the first (4).
    let outer = 4.0 * 10.0 * 2.0 + 2.0 * 240.0 + 60.0;
    let middle = |product: f64| 8.0 * 10.0 * 2.0 + product + 2.0 * 3.0 * 240.0 + 240.0 + outer;
    assert_eq!(
        words(Method::Gemm, 1)[..3],
        [middle(2.0 * n * 10.0), middle(2.0 * n * 10.0), middle(n * 2.0 + 12.0 * 80.0)]
    );
    let rest = 10.0 + 40.0 * 7.0;
    let fused = [
        n * 30.0 + rest,
        n * 2.0 + 2.0 * 480.0 * 2.0 + rest,
        n * 2.0 + 2.0 * 480.0 * (1.0 + 1.0 / 8.0) + rest,
        everything,
    ];
    assert_eq!(words(Method::Fused, 0), fused);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// FUSED on a CPU: reuse only helps, and the products are done.
    #[test]
    fn a_cpu_plan_reuses_too(dims in dims(), mode in 0usize..8, rank in 1usize..600, doubles in any::<bool>()) {
        let mode = mode % dims.len();
        let dtype = if doubles { Dtype::F64 } else { Dtype::F32 };
        let options = PlanOptions::default().method(Method::Fused).dtype(dtype);
        let caps = DeviceCaps::cpu(4);
        let Ok(plan) = MttkrpPlan::new(&dims, mode, rank, &options, &caps) else { return Ok(()) };
        let model = CostModel::of(&plan);
        let words = Reuse::ALL.map(|reuse| model.words(reuse));
        prop_assert!(words.windows(2).all(|pair| pair[1] <= pair[0] * (1.0 + 1e-12)), "{plan}: {words:?}");
        prop_assert!(model.flops() >= 2.0 * plan.shape().len() as f64 * rank as f64);
    }
}

/// Rank 16 on a CPU: blocks of Khatri-Rao rows serve all rows, or those of the last factor do and the first multiplies behind.
#[test]
fn fused_on_a_cpu_by_hand() {
    let model = |dims: [usize; 3], mode| {
        let plan = MttkrpPlan::new(&dims, mode, 16, &PlanOptions::default(), &DeviceCaps::cpu(2)).unwrap();
        let model = CostModel::of(&plan);
        (Reuse::ALL.map(|reuse| model.words(reuse)), model.flops())
    };
    let (n, r) = (1e6, 16.0);
    // Sums over the last two modes in 14 blocks, and over the outer two in 29, one part each.
    for (mode, rows, length, blocks) in [(0, 200.0, 5000.0, 14.0), (1, 100.0, 10000.0, 29.0)] {
        let (words, flops) = model([200, 100, 50], mode);
        let ends = r + rows * r;
        assert_eq!(words[0], 3.0 * n * r + ends);
        assert_eq!(words[1], n + length * 2.0 * r + blocks * rows * 2.0 * r + ends);
        assert_eq!(words[2], n + length * (1.0 + 1.0 / 50.0) * r + blocks * 2.0 * rows * r + ends);
        assert_eq!(flops, 2.0 * n * r + length * r + blocks * rows * r);
    }
    // Sums over the last mode in one block; twenty parts of the first mode, which multiplies behind them.
    let (n, (words, flops)) = (4e6, model([400, 50, 200], 1));
    let ends = r + 39.0 * 50.0 * r;
    assert_eq!(words[0], 3.0 * n * r + ends);
    assert_eq!(words[1], n + 20.0 * 200.0 * r + 400.0 * 50.0 * 3.0 * r + ends);
    assert_eq!(words[2], n + 20.0 * 200.0 * r + (2.0 * 50.0 + 400.0) * r + ends);
    assert_eq!(flops, 2.0 * n * r + 400.0 * 50.0 * 2.0 * r + 19.0 * 50.0 * r);
}

#[test]
fn flops_by_hand() {
    let shape = Shape::new(&[4, 6, 8]).unwrap();
    let blocks = ModelBlocks { tile: 2, product: [2, 5], ..Default::default() };
    let flops = |method| CostModel::new(method, &shape, 0, 10, Dtype::F32, blocks).flops();
    assert_eq!(flops(Method::Elem), 4.0 * 1920.0);
    assert_eq!(flops(Method::Tile), 3.0 * 1920.0);
    assert_eq!(flops(Method::Slice), 2.25 * 1920.0);
    assert_eq!(flops(Method::Gemm), 2.0 * 1920.0 + 480.0);
    assert_eq!(flops(Method::Fused), 2.0 * 1920.0 + 2.0 * 480.0);
}

/// A plan's blocks come from its own dispatches.
#[test]
fn a_plan_has_a_model() {
    let mut caps = DeviceCaps::webgpu_minimum("some GPU");
    caps.f16_matrix_units = true;
    caps.subgroup_size = 32;
    caps.max_workgroup_memory = 49152;
    let plan = |method: Method, tau| {
        let options = PlanOptions::default().method(method).tile(tau);
        MttkrpPlan::new(&[256, 128, 64], 0, 64, &options, &caps).unwrap()
    };
    let n = (256 * 128 * 64) as f64;
    let tile = CostModel::of(&plan(Method::Tile, 8)).words(Reuse::Nothing);
    assert_eq!(tile, n * (2.0 + 64.0 * 3.0 + 2.0 * 64.0 / 64.0));
    let gemm = CostModel::of(&plan(Method::Gemm, 8)).words(Reuse::Rows);
    // In 16 pieces of 512 sums.
    assert_eq!(gemm, 8192.0 * 64.0 * 3.0 + n + 4.0 * 8192.0 * 64.0 + (2.0 * 16.0 + 1.0) * 256.0 * 64.0);
    // Arithmetic of matrix units counts as free unless their peak is given.
    let fused = CostModel::of(&plan(Method::Fused, 8));
    let mut machine = Machine::new(1e12, 1.0);
    assert_eq!(fused.predict(Reuse::Everything, &machine).bound, Bound::Memory);
    machine.matrix_peak = Some(1.0);
    assert_eq!(fused.predict(Reuse::Everything, &machine).seconds, fused.flops());
}
