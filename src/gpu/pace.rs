//! Dispatches that would take too long are done in parts. A watchdog resets a device whose dispatch takes some seconds, and
//! a display waits for it meanwhile.
//!
//! How long a kernel takes is measured once (again where that was too little work to tell), on a part of its first dispatch: first so small a one that any device does it
//! in time, then larger ones until the clock can be trusted and the device is full. A part is a range of the grid's
//! workgroups. They do not depend on each other, so parts change no bit of a result. A single workgroup is never divided,
//! and those that a device works on at the same time stay together, because they take as long as one.
//!
//! Where slabs are worked on side by side, their dispatches share the device, and each may take as many times longer as there
//! are: the target is divided by that number.

use super::Inner;
use super::record::Prepared;
use crate::Result;
use crate::plan::{Dispatch, KernelSpec, Params, Slot};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Multiplications and additions per second that any device is trusted to do.
const SLOW: f64 = 2e9;

/// Share of the target that parts aim at, where there have to be several: kernels are not always as fast as when they were
/// measured.
const AIM: f64 = 0.5;

/// Seconds that a trial may take at worst, and as a multiple of the target: as long as one before where the device is not
/// full, and longer in proportion where it is. Watchdogs wait for two seconds or more.
const WORST: (f64, f64) = (1.0, 10.0);

/// What is known of a kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Known {
    /// Multiplications and additions per second.
    rate: f64,
    /// Workgroups that take about as long as a few of them.
    together: u64,
    /// Work that was too little to fill the device or to be timed: with much more, the kernel is measured again.
    too_little: Option<f64>,
}

impl Known {
    /// Most workgroups of a part, of a grid of `all` that does so much work.
    fn most(self, work: f64, all: u64, target: f64) -> u64 {
        let seconds = work / self.rate;
        if seconds <= target { all } else { ((all as f64 * AIM * target / seconds) as u64).max(self.together) }
    }

    /// Whether that much work is known well enough.
    fn will_do(self, work: f64) -> bool {
        self.too_little.is_none_or(|little| work <= 4.0 * little)
    }
}

/// What is known of kernels, as measured.
#[derive(Debug, Default)]
pub(super) struct Pace {
    known: Mutex<HashMap<KernelSpec, Known>>,
}

impl Pace {
    fn of(&self, spec: &KernelSpec) -> Option<Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(spec).copied()
    }

    fn learn(&self, spec: &KernelSpec, known: Known) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(spec.clone(), known);
    }

    fn forget(&self, spec: &KernelSpec) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(spec);
    }
}

/// Tries parts of growing size of a grid of `all` workgroups that does so much work. `time` runs a part of at most so many
/// workgroups and returns how many they were, and the seconds.
fn measured(work: f64, all: u64, target: f64, mut time: impl FnMut(u64) -> Result<(u64, f64)>) -> Result<Known> {
    let worst = WORST.0.min(WORST.1 * target);
    let mut count = (all as f64 * SLOW * target / work).max(1.0);
    // The first run of a kernel brings its code to the device.
    time(count as u64)?;
    let (mut before, mut together): (Option<(u64, f64)>, u64) = (None, 1);
    loop {
        let (part, mut seconds) = time(count as u64)?;
        // How much longer it takes than the part before, by how many more workgroups it has: about 1 where more of them run
        // one after the other, less where they fill what was idle. Parts of nearly one size tell nothing.
        let compared = |seconds: f64| {
            let before = before.filter(|&(less, _)| part >= 2 * less);
            before.map(|(less, shorter)| (seconds / shorter, seconds / shorter * less as f64 / part as f64))
        };
        // Whether the device was full, and the clock can be trusted; whether it took too long to go on.
        let ends = |seconds: f64| {
            let full = compared(seconds).is_some_and(|(_, share)| share > 0.75);
            (full, full && seconds >= target / 8.0, 2.0 * seconds > worst)
        };
        let (_, trusted, long) = ends(seconds);
        if (part == all || trusted || long) && seconds * all as f64 > target * part as f64 {
            // Something else may have held the device or the host up. Only what takes that long twice has its kernel cut.
            seconds = seconds.min(time(part)?.1);
        }
        let (longer, (full, trusted, long)) = (compared(seconds), ends(seconds));
        if longer.is_some_and(|(times, _)| times <= 1.25) {
            together = part;
        }
        if part == all || trusted || long {
            let too_little = (!trusted && !long).then_some(work);
            return Ok(Known { rate: work * part as f64 / all as f64 / seconds, together, too_little });
        }
        let factor = match longer {
            Some(_) if full => AIM * target / seconds,
            Some(_) => worst / seconds,
            None => 2.0,
        };
        before = Some((part, seconds));
        count = part as f64 * factor.clamp(2.0, 16.0);
    }
}

/// How many of these dispatches may share the device: those that write to places of their own.
pub(super) fn side_by_side(dispatches: &[Dispatch]) -> usize {
    let slots = dispatches.iter().flat_map(|dispatch| &dispatch.slots);
    slots.filter(|slot| matches!(slot, Slot::Partial(_))).collect::<HashSet<_>>().len().max(1)
}

/// Workgroups of a grid's first two dimensions.
fn groups(grid: [u32; 3]) -> u64 {
    u64::from(grid[0]) * u64::from(grid[1])
}

/// A grid in parts of at most so many workgroups: parameters and grid of each. Every workgroup is in exactly one.
fn parts(params: Params, grid: [u32; 3], most: u64, width: u32) -> Vec<(Params, [u32; 3])> {
    let [x, y, z] = grid;
    let all = groups(grid);
    if most >= all {
        return vec![(params, grid)];
    }
    let rows = most / u64::from(x);
    // Whole rows of the grid, or less than one.
    let (step, row) = if rows > 0 { (rows * u64::from(x), x) } else { (most.clamp(1, u64::from(width)), 0) };
    let mut made = Vec::new();
    let mut first = 0;
    while first < all {
        let count = step.min(all - first);
        let part = if row > 0 { [row, (count / u64::from(row)) as u32, z] } else { [count as u32, 1, z] };
        made.push((params.part(first as u32, part[0]), part));
        first += count;
    }
    debug_assert!(made.iter().map(|(_, grid)| groups(*grid)).sum::<u64>() == u64::from(x) * u64::from(y));
    made
}

impl Inner {
    /// The parts of a dispatch, one of so many that share the device, by what is known of its kernel.
    pub(super) fn parts(&self, dispatch: &Dispatch, params: Params, together: usize) -> Vec<(Params, [u32; 3])> {
        let (work, grid) = (params.work(), dispatch.grid);
        let target = self.caps.dispatch_target.as_secs_f64() / together as f64;
        let most = match self.pace.of(&dispatch.spec).filter(|_| work > SLOW * target) {
            Some(known) => known.most(work, groups(grid), target),
            None => u64::MAX,
        };
        parts(params, grid, most, self.caps.max_workgroups_per_dim)
    }

    /// Measures the kernels of dispatches that may be long and were not measured yet. `prepare` is given one part; what it
    /// computes is of no use, and has to be overwritten or cleared afterwards.
    pub(super) fn measure_pace(
        &self,
        dispatches: &[Dispatch],
        prepare: impl Fn(Dispatch) -> Result<Prepared>,
    ) -> Result<()> {
        let target = self.caps.dispatch_target.as_secs_f64() / side_by_side(dispatches) as f64;
        for dispatch in dispatches {
            let (work, all) = (dispatch.params.work(), groups(dispatch.grid));
            if work <= SLOW * target || self.pace.of(&dispatch.spec).is_some_and(|known| known.will_do(work)) {
                continue;
            }
            // Trials are not cut by what was known.
            self.pace.forget(&dispatch.spec);
            let known = measured(work, all, target, |count| {
                let (params, grid) = parts(dispatch.params, dispatch.grid, count, self.caps.max_workgroups_per_dim)[0];
                let prepared = prepare(Dispatch { params, grid, ..dispatch.clone() })?;
                Ok((groups(grid), self.time(&prepared)?.as_secs_f64().max(1e-9)))
            })?;
            self.pace.learn(&dispatch.spec, known);
        }
        Ok(())
    }

    fn time(&self, prepared: &Prepared) -> Result<Duration> {
        // What was there before is not what is measured.
        super::scope::scoped(&self.device, "measuring a kernel", || {
            let before = self.queue.submit([]);
            self.wait(Some(before), "measuring a kernel")?;
            let mut encoder = self.encoder("pace");
            prepared.encode(&mut encoder, None, None);
            let start = Instant::now();
            let submission = self.queue.submit([encoder.finish()]);
            self.wait(Some(submission), "measuring a kernel")?;
            Ok(start.elapsed())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{DeviceCaps, Footprint, Method, MttkrpPlan, PlanOptions, TreePlan};
    use crate::{Backend, CpAlsOptions, Gpu, Real, Tree, cp_als};
    use ndarray::{Array2, ArrayD, IxDyn};

    /// Every workgroup once, whatever the sizes.
    #[test]
    fn parts_cover_a_grid() {
        let params = Params::Gemm(Default::default());
        for grid in [[1, 1, 1], [7, 1, 3], [7, 5, 2], [300, 40, 1]] {
            for most in [0, 1, 2, 6, 7, 8, 20, 34, 299, 300, 12000] {
                let mut seen = vec![0; (grid[0] * grid[1]) as usize];
                for (params, [x, y, z]) in parts(params, grid, most, 250) {
                    let Params::Gemm(p) = params else { panic!("{params:?}") };
                    assert!(z == grid[2] && (x <= 250 || x == grid[0]));
                    assert!(most == 0 || u64::from(x * y) <= most, "{grid:?} {most}: {x} x {y}");
                    for at in 0..x * y {
                        seen[(p.group0 + at / x * p.grid_x.max(x) + at % x) as usize] += 1;
                    }
                }
                assert!(seen.iter().all(|&times| times == 1), "{grid:?} by {most}: {seen:?}");
            }
        }
    }

    /// A device that works on `width` workgroups at a time, `each` seconds; its first run takes `late` seconds more. Returns
    /// what is known of it, and the longest run.
    fn device(width: u64, each: f64, late: f64, all: u64, target: f64) -> (Known, f64) {
        let (mut runs, mut longest) = (0, 0.0f64);
        let known = measured(1e12, all, target, |count| {
            let part = count.min(all);
            let seconds = part.div_ceil(width) as f64 * each + 1e-4 + if runs == 0 { late } else { 0.0 };
            (runs, longest) = (runs + 1, longest.max(seconds));
            assert!(runs < 40, "{part} of {all}");
            Ok((part, seconds))
        });
        (known.unwrap(), longest)
    }

    /// A run that the host or another program has held up does not make a kernel slow.
    #[test]
    fn one_that_was_held_up_is_no_rate() {
        for (width, each, all) in [(1056, 5e-4, 1044), (132, 1.3e-3, 352), (264, 2e-5, 9000)] {
            for held in 1..20 {
                let mut runs = 0;
                let known = measured(4e8, all, 0.1, |count| {
                    let part = count.min(all);
                    runs += 1;
                    let late = if runs == held { 0.7 } else { 0.0 };
                    Ok((part, part.div_ceil(width) as f64 * each + 1e-4 + late))
                })
                .unwrap();
                assert!(known.most(4e8, all, 0.1) >= all, "{known:?} of {width} at {each}, held in run {held}");
            }
        }
    }

    /// The rate is that of a full device, whatever the first run took and however long a workgroup takes, and holds for other
    /// sizes of the same kernel.
    #[test]
    fn a_rate_is_that_of_a_full_device() {
        for (width, each, all) in [
            (132, 1.3e-3, 352),
            (132, 1.3e-3, 20000),
            (1, 1e-3, 5000),
            (2112, 0.15, 1024),
            (132, 0.39, 16),
            (264, 2e-5, 9000),
        ] {
            let (known, longest) = device(width, each, 0.2, all, 0.1);
            let seconds = all.div_ceil(width) as f64 * each;
            assert!(known.rate * seconds >= 0.5e12, "{known:?} of {width} at {each}: {}", 1e12 / seconds);
            assert!(longest <= WORST.0, "{longest}");
            // Longer than the target only where one workgroup is.
            let most = known.most(1e12, all, 0.1).min(all);
            let part = most.div_ceil(width) as f64 * each;
            assert!(part <= f64::max(0.1, 1.3 * each), "{most} groups take {part}");
            // And not much shorter than it may be: the device is full or everything is one part.
            assert!(most == all || most >= width.min(all) / 2, "{most} of {width}, {all}");
            // Ten times as many workgroups, each ten times as long.
            if known.will_do(1e14) {
                let (all, each) = (10 * all, 10.0 * each);
                let part = known.most(1e14, all, 0.1).div_ceil(width) as f64 * each;
                assert!(part <= f64::max(0.1, 2.0 * each), "{known:?}: {part} of {width} at {each}");
            }
        }
        // The first trial has many more workgroups than fit: nothing is learned of how many do.
        let (known, _) = device(4, 2e-5, 0.0, 1 << 20, 10.0);
        assert_eq!(known.together, 1, "{known:?}");
        // All at once, and too short to tell.
        assert!(!device(132, 1e-4, 0.0, 64, 10.0).0.will_do(1e14));
    }

    fn array<T: Real>(dims: &[usize]) -> ArrayD<T> {
        let mut at = 7u64;
        ArrayD::from_shape_simple_fn(IxDyn(dims), || {
            at = at.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            T::of((at >> 40) as f64 / 16777216.0 - 0.5)
        })
    }

    /// All modes by repeatable methods, whole and in as many parts as there are, on the device and streamed.
    fn check<T: Real>(dims: &[usize], rank: usize, slab: u64) {
        let Ok(whole) = Gpu::builder().max_slab_bytes(slab).build() else { return println!("skipped: no adapter") };
        if T::DTYPE == crate::Dtype::F64 && !whole.caps().f64 {
            return println!("skipped: no f64");
        }
        let caps = DeviceCaps { dispatch_target: Duration::from_nanos(1), ..whole.caps().clone() };
        let hasty = Gpu::on(whole.inner.device.clone(), whole.inner.queue.clone(), caps, Vec::new());
        let x = array::<T>(dims);
        let factors: Vec<Array2<T>> =
            dims.iter().map(|&rows| array::<T>(&[rows, rank]).into_shape_with_order((rows, rank)).unwrap()).collect();
        let views: Vec<_> = factors.iter().map(|f| f.view()).collect();
        let mut most = 0;
        for method in [Method::Fused, Method::Slice, Method::Gemm] {
            for mode in 0..dims.len() {
                let options = PlanOptions::default().method(method).dtype(T::DTYPE);
                let run = |gpu: &Gpu| {
                    let plan = MttkrpPlan::new(dims, mode, rank, &options, gpu.caps()).unwrap();
                    let xd = gpu.place_tensor(Footprint::mttkrp(&plan, gpu.caps()).unwrap(), x.view()).unwrap();
                    let u = gpu.upload_factors(None, &views).unwrap();
                    let mut g = Array2::zeros((dims[mode], rank));
                    gpu.mttkrp_into(&plan, &xd, &u, g.view_mut()).unwrap();
                    let out = gpu.output::<T>(&plan).unwrap();
                    let prepared = gpu.inner.prepare_mttkrp(&plan, &xd, &u, &out).unwrap();
                    (g, prepared.len(), plan.dispatches().len(), xd.streaming().is_some())
                };
                let (expected, len, dispatches, _) = run(&whole);
                assert_eq!(len, dispatches, "nothing is long");
                // Too little for all of the tensor, and enough for slabs as they are.
                let plan = MttkrpPlan::new(dims, mode, rank, &options, whole.caps()).unwrap();
                let budget = Footprint::mttkrp(&plan, whole.caps()).unwrap().peak() - 1;
                for (gpu, streams) in [(&hasty, false), (&hasty.with_memory_budget(budget), true)] {
                    let (g, len, dispatches, streamed) = run(gpu);
                    assert_eq!((&g, streamed), (&expected, streams), "{method} mode {mode} in {len} parts");
                    assert!(len >= dispatches);
                    most = most.max(len / dispatches);
                }
            }
        }
        assert!(most >= 4, "{most} parts of a dispatch at most");
    }

    #[test]
    fn parts_change_no_bit() {
        check::<f32>(&[60, 44, 52], 5, 150 << 10);
        check::<f32>(&[13, 18, 15, 33], 20, 150 << 10);
    }

    #[test]
    fn parts_change_no_bit_in_f64() {
        check::<f64>(&[60, 44, 52], 20, 300 << 10);
    }

    /// The same of sums over kept products, where there is something to keep.
    #[test]
    fn parts_of_kept_products_change_no_bit() {
        let Ok(whole) = Gpu::builder().max_slab_bytes(150 << 10).build() else {
            return println!("skipped: no adapter");
        };
        if !whole.caps().f64 {
            return println!("skipped: no f64, so nothing is kept");
        }
        let caps = DeviceCaps { dispatch_target: Duration::from_nanos(1), ..whole.caps().clone() };
        let hasty = Gpu::on(whole.inner.device.clone(), whole.inner.queue.clone(), caps, Vec::new());
        for (dims, tree) in [(&[60, 44, 52][..], Tree::MultiSweep), (&[13, 18, 15, 33], Tree::Two)] {
            let x = array::<f32>(dims);
            let plan = |mode| MttkrpPlan::new(dims, mode, 6, &PlanOptions::default(), hasty.caps()).unwrap();
            let plans: Vec<_> = (0..dims.len()).map(plan).collect();
            let kept = TreePlan::of(&plans, tree, None, &PlanOptions::default(), hasty.caps()).unwrap();
            assert!(!kept.groups().is_empty());
            let groups = (0..kept.groups().len()).flat_map(|g| (0..dims.len()).map(move |mode| (g, mode)));
            let sums = groups.flat_map(|(g, mode)| kept.result(g, mode));
            let sums: Vec<_> = sums.filter(|d| matches!(d.params, Params::MultiTtv(_))).collect();
            // Measured on the way, which leaves a kept product as it is; and as if every workgroup took its time.
            let options = CpAlsOptions::new(6).max_sweeps(3).fit_tolerance(0.0).tree(tree);
            let (expected, found) = (cp_als(&whole, x.view(), &options), cp_als(&hasty, x.view(), &options));
            assert_eq!(found.unwrap().model.factors(), expected.unwrap().model.factors(), "{tree:?} of {dims:?}");
            sums.iter()
                .for_each(|d| hasty.inner.pace.learn(&d.spec, Known { rate: 1.0, together: 1, too_little: None }));
            let (expected, found) = (cp_als(&whole, x.view(), &options), cp_als(&hasty, x.view(), &options));
            let (expected, found) = (expected.unwrap(), found.unwrap());
            assert_eq!(found.model.factors(), expected.model.factors(), "{tree:?} of {dims:?}");
            let parts: Vec<_> = sums.iter().map(|d| hasty.inner.parts(d, d.params, 1).len() as u64).collect();
            println!("{parts:?} parts");
            assert!(parts.iter().any(|&parts| parts >= 3), "{parts:?}");
        }
    }

    /// A target of a tenth of what a kernel takes makes about ten parts or more.
    #[test]
    fn parts_follow_the_clock() {
        let Ok(gpu) = Gpu::new() else { return println!("skipped: no adapter") };
        let (dims, rank) = ([128, 96, 96], 64);
        let x = array::<f32>(&dims);
        let factors = dims.map(|rows| Array2::<f32>::ones((rows, rank)));
        let plan = MttkrpPlan::new(&dims, 0, rank, &PlanOptions::default(), gpu.caps()).unwrap();
        let xd = gpu.upload_tensor(x.view()).unwrap();
        let u = gpu.upload_factors(None, &factors.each_ref().map(|f| f.view())).unwrap();
        let mut g = Array2::zeros((dims[0], rank));
        gpu.mttkrp_into(&plan, &xd, &u, g.view_mut()).unwrap();
        let seconds = gpu.mttkrp_into(&plan, &xd, &u, g.view_mut()).unwrap().compute;
        // Any device is trusted with this much in a tenth of it.
        if plan.dispatches()[0].params.work() < SLOW * seconds.as_secs_f64() / 10.0 {
            return println!("skipped: slower than any device should be");
        }
        let hasty = gpu.with_dispatch_target(seconds / 10);
        let xd = hasty.upload_tensor(x.view()).unwrap();
        let u = hasty.upload_factors(None, &factors.each_ref().map(|f| f.view())).unwrap();
        let mut again = Array2::zeros((dims[0], rank));
        hasty.mttkrp_into(&plan, &xd, &u, again.view_mut()).unwrap();
        let out = hasty.output::<f32>(&plan).unwrap();
        let parts = hasty.inner.prepare_mttkrp(&plan, &xd, &u, &out).unwrap().len();
        println!("{parts} dispatches of {:?}, which took {seconds:?}", plan.dispatches().len());
        assert!(parts >= plan.dispatches().len() + 4, "{parts}");
        assert_eq!(again, g);
    }
}
