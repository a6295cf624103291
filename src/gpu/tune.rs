//! Measures which tiles of FUSED this adapter likes best. Every tile's result is compared with the built-in one's first.

mod check;

use super::buffers::{GpuFactors, GpuMatrix, GpuTensor};
use super::timing::Stopwatch;
use super::tuning_file::{Content, Faster};
use super::{Gpu, scope};
use crate::plan::{
    DEFAULT_GROUPS, DeviceCaps, DeviceKind, Method, MttkrpPlan, PlanOptions, Precision, Tile, TileChoice, TileColumns,
    TileKernel, TileLayout, Tuning, buffer_limit, candidates,
};
use crate::{Backend, Dtype, Error, Real, Result};
use check::{Check, ODD, factor, same, tensor};
use ndarray::Array2;
use std::path::Path;
use std::time::Instant;

/// How [`Gpu::tune`] measures.
///
/// ```
/// assert!(polyad::TuneOptions::default().quick(true).quick);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TuneOptions {
    /// A few tiles near the built-in one for each kernel, on a small tensor.
    pub quick: bool,
}

impl TuneOptions {
    /// A few tiles near the built-in one for each kernel, on a small tensor.
    pub fn quick(mut self, quick: bool) -> Self {
        self.quick = quick;
        self
    }
}

/// What was measured for one kernel, layout and class of ranks. Seconds are those of one MTTKRP.
///
/// ```no_run
/// let gpu = polyad::Gpu::new()?;
/// gpu.tune(&polyad::TuneOptions::default(), |regime| println!("{} {}", regime.built_in, regime.chosen))?;
/// # Ok::<(), polyad::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TunedRegime {
    /// The kernel.
    pub kernel: TileKernel,
    /// Along what X is contiguous.
    pub layout: TileLayout,
    /// The class of ranks.
    pub columns: TileColumns,
    /// The tensor's dims.
    pub dims: Vec<usize>,
    /// The rank measured at.
    pub rank: usize,
    /// The built-in tile.
    pub built_in: Tile,
    /// Seconds with it.
    pub built_in_seconds: f64,
    /// The fastest tile; the built-in one unless another is clearly faster.
    pub chosen: Tile,
    /// Seconds with it.
    pub seconds: f64,
    /// Tiles measured, the built-in one included.
    pub tried: usize,
    /// Tiles that were not measured because they failed or gave another result, with the reason.
    pub rejected: Vec<String>,
}

/// All that [`Gpu::tune`] measured.
///
/// ```no_run
/// let gpu = polyad::Gpu::new()?;
/// let report = gpu.tune(&polyad::TuneOptions::default().quick(true), |_| ())?;
/// if let Some(path) = gpu.tuning_path() {
///     report.write(&path)?;
/// }
/// # Ok::<(), polyad::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TuneReport {
    /// The adapter's name.
    pub adapter: String,
    /// Its backend, driver and the driver's version.
    pub driver: String,
    /// One for each kernel, layout and class of ranks that the device has.
    pub regimes: Vec<TunedRegime>,
}

impl TuneReport {
    /// Writes the tiles that were faster than the built-in ones as a tuning file, whole or not at all. The folder is made
    /// if it is missing.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&self, path: &Path) -> Result<()> {
        let identity = super::tuning_file::Identity { adapter: self.adapter.clone(), driver: self.driver.clone() };
        let faster = self.regimes.iter().filter(|r| r.chosen != r.built_in).map(|r| Faster {
            choice: TileChoice::new(r.kernel, r.layout, r.columns, r.chosen),
            seconds: r.seconds,
            built_in: r.built_in,
            built_in_seconds: r.built_in_seconds,
        });
        Content::new(identity, faster.collect()).write(path)
    }
}

/// A tile has to be faster than the built-in one by this factor, or the difference may be noise.
const CLEARLY: f64 = 0.97;

/// Seconds before the first measurement of a kernel, in which clocks come up.
const WARM_UP: f64 = 0.3;

/// Seconds of one sample, where one MTTKRP is shorter, and samples that the median is of.
const SAMPLE: f64 = 2e-3;
const SAMPLES: usize = 7;

/// Tiles measured for each kernel by a quick run, beside the built-in one.
const QUICK: usize = 3;

/// A tensor and factors on the device.
struct Problem<'a, T: Real> {
    gpu: &'a Gpu,
    dims: [usize; 3],
    rank: usize,
    x: &'a GpuTensor<'a, T>,
    u: GpuFactors<T>,
}

impl Gpu {
    /// Measures this adapter's best tiles for the fused kernels; `progress` is called after each kernel, layout and class
    /// of ranks. [`TuneReport::write`] makes a tuning file of the report. This takes minutes; on a software adapter only
    /// the quick form is worth the time.
    ///
    /// Kernels on matrix units are left out on a software adapter. Tensors take at most 1 GiB, an eighth of the device's memory and one binding.
    ///
    /// # Errors
    /// [`Error::OutOfDeviceMemory`], [`Error::Gpu`] where a built-in tile fails; other tiles are then merely rejected.
    ///
    /// See [`TuneReport`] for an example.
    pub fn tune(&self, options: &TuneOptions, mut progress: impl FnMut(&TunedRegime)) -> Result<TuneReport> {
        let mut regimes = Vec::new();
        self.tune_dtype::<f32>(*options, &mut regimes, &mut progress)?;
        if self.caps().f64 {
            self.tune_dtype::<f64>(*options, &mut regimes, &mut progress)?;
        }
        let identity = self.identity();
        Ok(TuneReport { adapter: identity.adapter, driver: identity.driver, regimes })
    }

    fn tune_dtype<T: Real>(
        &self,
        options: TuneOptions,
        regimes: &mut Vec<TunedRegime>,
        progress: &mut impl FnMut(&TunedRegime),
    ) -> Result<()> {
        let dims = self.dims_to_measure(options);
        let [x, small, large] = [dims, ODD[0], ODD[1]].map(|dims| tensor::<T>(&dims));
        let [x, small, large] =
            [self.upload_tensor(x.view())?, self.upload_tensor(small.view())?, self.upload_tensor(large.view())?];
        for columns in TileColumns::ALL {
            let rank = self.rank_to_measure(columns);
            let measured = Problem::new(self, dims, rank, &x)?;
            let odd = [Problem::new(self, ODD[0], rank - 3, &small)?, Problem::new(self, ODD[1], rank - 3, &large)?];
            // Matrix units in software are for tests: they take seconds to compile and are no faster.
            let skipped = |kernel: TileKernel| kernel.on_matrix_units() && self.caps().kind == DeviceKind::Software;
            for kernel in TileKernel::ALL.into_iter().filter(|&k| k.dtype() == T::DTYPE && !skipped(k)) {
                for layout in TileLayout::ALL {
                    let regime = TileChoice::new(kernel, layout, columns, Tile::new([0; 5], 0));
                    if let Some(found) = tune_regime(&measured, &odd, regime, options)? {
                        progress(&found);
                        regimes.push(found);
                    }
                }
            }
        }
        Ok(())
    }

    /// Equal dims, multiples of 256 (the rows of the largest tile) or, where there is no room, of 64, as large as the device
    /// takes without cutting the tensor. In software a small tensor.
    fn dims_to_measure(&self, options: TuneOptions) -> [usize; 3] {
        let caps = self.caps();
        if caps.kind == DeviceKind::Software {
            return [128, 64, 128];
        }
        let memory = caps.memory.unwrap_or(1 << 30) / 8;
        let entries = buffer_limit(caps, Dtype::F64).min(memory).min(1 << 30) / Dtype::F64.bytes();
        let most = if options.quick { 256 } else { 512 };
        let side = (entries as f64).cbrt() as usize;
        let step = if side >= 256 { 256 } else { 64 };
        [(side / step * step).clamp(64, most); 3]
    }

    fn rank_to_measure(&self, columns: TileColumns) -> usize {
        match columns {
            TileColumns::UpTo16 => 16,
            TileColumns::UpTo32 => 32,
            TileColumns::UpTo64 => 64,
            TileColumns::More if self.caps().kind == DeviceKind::Software => 128,
            TileColumns::More => 256,
        }
    }
}

/// The best tile for one kernel, layout and class of ranks; `None` where plans take another kernel there.
fn tune_regime<T: Real>(
    measured: &Problem<'_, T>,
    odd: &[Problem<'_, T>],
    regime: TileChoice,
    options: TuneOptions,
) -> Result<Option<TunedRegime>> {
    let caps = measured.caps(regime.kernel);
    let with = |tile| TileChoice { tile, ..regime };
    let plan = measured.plan(regime, None)?;
    let Some(built_in) = tile_of(&plan, regime) else { return Ok(None) };
    let full = [Check::new(measured, regime)?];
    // Padding is no matter to register tiles.
    let odd = &odd[..if regime.kernel.on_matrix_units() { odd.len() } else { 1 }];
    let odd = odd.iter().map(|problem| Check::new(problem, regime)).collect::<Result<Vec<_>>>()?;
    let out = measured.gpu.output::<T>(&plan)?;
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < WARM_UP {
        measured.seconds(&plan, &out, 1)?;
    }
    let built_in_seconds = measured.median(&plan, &out, f64::INFINITY)?;

    let mut tiles = candidates(regime.kernel, regime.layout, regime.columns, DEFAULT_GROUPS, &caps);
    // Roundings are a matter of accuracy, not of this machine.
    tiles.iter_mut().for_each(|tile| tile.flush = if built_in.flush > 0 { built_in.flush.max(tile.bk) } else { 0 });
    tiles.retain(|tile| *tile != built_in);
    if options.quick {
        let apart = |t: &Tile| {
            let [a, b] = [t, &built_in].map(|t| [t.bm, t.bn, t.bk, t.m, t.n]);
            a.iter().zip(b).map(|(a, b)| a.ilog2().abs_diff(b.ilog2())).sum::<u32>()
        };
        tiles.sort_by_key(apart);
        tiles.truncate(QUICK);
    }
    let (mut best, mut best_seconds, mut tried, mut rejected) = (built_in, built_in_seconds, 1, Vec::new());
    let mut attempt = |tile: Tile, best: f64| -> Option<f64> {
        let choice = with(tile);
        let seconds = same(&odd, choice)
            .and_then(|()| same(&full, choice))
            .and_then(|()| measured.plan(choice, Some(tile)).and_then(|plan| measured.median(&plan, &out, best)));
        match seconds {
            Ok(seconds) => {
                tried += 1;
                Some(seconds)
            }
            Err(error) => {
                rejected.push(format!("{tile}: {error}"));
                None
            }
        }
    };
    for tile in tiles {
        if let Some(seconds) = attempt(tile, best_seconds).filter(|&s| s < best_seconds) {
            (best, best_seconds) = (tile, seconds);
        }
    }
    // Then how many workgroups the reduction is split for, which asks for no other kernel.
    if !options.quick {
        for groups in [DEFAULT_GROUPS / 4, DEFAULT_GROUPS / 2, DEFAULT_GROUPS * 2] {
            let tile = Tile { groups, ..best };
            if let Some(seconds) = attempt(tile, best_seconds).filter(|&s| s < best_seconds) {
                (best, best_seconds) = (tile, seconds);
            }
        }
    }
    // Once more side by side: clocks drift, and the smallest of many medians is too good.
    let mut built_in_seconds = built_in_seconds;
    if best != built_in {
        let other = measured.plan(with(best), Some(best))?;
        let mut pairs = [(0.0, 0.0); 3];
        for pair in &mut pairs {
            let first = measured.median(&plan, &out, f64::INFINITY)?;
            *pair = (first, measured.median(&other, &out, f64::INFINITY)?);
        }
        pairs.sort_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
        (built_in_seconds, best_seconds) = pairs[1];
        if best_seconds > CLEARLY * built_in_seconds {
            (best, best_seconds) = (built_in, built_in_seconds);
        }
    }
    Ok(Some(TunedRegime {
        kernel: regime.kernel,
        layout: regime.layout,
        columns: regime.columns,
        dims: measured.dims.to_vec(),
        rank: measured.rank,
        built_in,
        built_in_seconds,
        chosen: best,
        seconds: best_seconds,
        tried,
        rejected,
    }))
}

impl<'a, T: Real> Problem<'a, T> {
    fn new(gpu: &'a Gpu, dims: [usize; 3], rank: usize, x: &'a GpuTensor<'a, T>) -> Result<Self> {
        let factors: Vec<Array2<T>> = (0..3).map(|mode| factor(mode, dims[mode], rank)).collect();
        let views: Vec<_> = factors.iter().map(|f| f.view()).collect();
        Ok(Self { gpu, dims, rank, x, u: gpu.upload_factors(None, &views)? })
    }

    /// The device as plans for that kernel should see it.
    fn caps(&self, kernel: TileKernel) -> DeviceCaps {
        caps_for(kernel, self.gpu.caps())
    }

    fn plan(&self, regime: TileChoice, tile: Option<Tile>) -> Result<MttkrpPlan> {
        plan_with(tile, regime, &self.dims, self.rank, self.gpu.caps())
    }

    fn result(&self, plan: &MttkrpPlan) -> Result<Array2<T>> {
        let mut g = Array2::from_elem((self.dims[plan.mode()], self.rank), T::zero());
        let time = self.gpu.mttkrp_into(plan, self.x, &self.u, g.view_mut())?;
        if time.fallback {
            return Err(Error::PlanMismatch { reason: "its fallback was run".into() });
        }
        Ok(g)
    }

    /// Seconds of one MTTKRP, the mean of several back to back.
    fn seconds(&self, plan: &MttkrpPlan, out: &GpuMatrix<T>, repeats: usize) -> Result<f64> {
        let inner = &*self.gpu.inner;
        let stopwatch = Stopwatch::new(inner, 1)?;
        let mut encoder = inner.encoder("tune");
        for repeat in 0..repeats {
            // From the beginning of the first pass to the end of the last.
            let writes = stopwatch.as_ref().map(|stopwatch| {
                let mut writes = stopwatch.writes(0);
                writes.beginning_of_pass_write_index = writes.beginning_of_pass_write_index.filter(|_| repeat == 0);
                writes.end_of_pass_write_index = writes.end_of_pass_write_index.filter(|_| repeat + 1 == repeats);
                writes
            });
            let writes = writes.filter(|_| repeat == 0 || repeat + 1 == repeats);
            inner.record(&mut encoder, plan, self.x, &self.u, out, writes)?;
        }
        if let Some(stopwatch) = &stopwatch {
            stopwatch.resolve(&mut encoder);
        }
        let start = Instant::now();
        scope::scoped(&inner.device, "measuring a tile", || {
            let submission = inner.queue.submit([encoder.finish()]);
            inner.wait(Some(submission), "measuring a tile")
        })?;
        let wall = start.elapsed();
        let elapsed = stopwatch.map_or(Ok(wall), |stopwatch| stopwatch.elapsed(inner))?;
        Ok(elapsed.as_secs_f64() / repeats as f64)
    }

    /// Median seconds of one MTTKRP; what takes twice as long as `best` is measured once.
    fn median(&self, plan: &MttkrpPlan, out: &GpuMatrix<T>, best: f64) -> Result<f64> {
        // The first run compiles, and clocks may have dropped meanwhile.
        self.seconds(plan, out, 1)?;
        let one = self.seconds(plan, out, 1)?;
        if one > 2.0 * best {
            return Ok(one);
        }
        let repeats = (SAMPLE / one.max(1e-7)).clamp(1.0, 50.0) as usize;
        let samples = if one > 0.02 { 3 } else { SAMPLES };
        let mut all = (0..samples).map(|_| self.seconds(plan, out, repeats)).collect::<Result<Vec<_>>>()?;
        all.sort_by(f64::total_cmp);
        Ok(all[samples / 2])
    }
}

/// The device as plans for that kernel should see it, without tiles of any file.
fn caps_for(kernel: TileKernel, caps: &DeviceCaps) -> DeviceCaps {
    let f16_matrix_units = caps.f16_matrix_units && kernel.on_matrix_units();
    DeviceCaps { f16_matrix_units, f32_matrix_units: false, tuning: None, ..caps.clone() }
}

/// The plan of a regime with that tile, where it takes it, or with the built-in one.
fn plan_with(
    tile: Option<Tile>,
    regime: TileChoice,
    dims: &[usize],
    rank: usize,
    caps: &DeviceCaps,
) -> Result<MttkrpPlan> {
    let mut caps = caps_for(regime.kernel, caps);
    if let Some(tile) = tile {
        caps.tuning = Some(Tuning::new("tune", vec![TileChoice { tile, ..regime }], &caps)?);
    }
    let fast = regime.kernel == TileKernel::CoopFast;
    let precision = if fast { Precision::Fast } else { Precision::Float32 };
    let options = PlanOptions::default().method(Method::Fused).dtype(regime.kernel.dtype()).precision(precision);
    let mode = if regime.layout == TileLayout::Cols { 2 } else { 0 };
    MttkrpPlan::new(dims, mode, rank, &options, &caps)
}

/// The tile of a plan's first kernel, if it is of that regime.
fn tile_of(plan: &MttkrpPlan, regime: TileChoice) -> Option<Tile> {
    let spec = &plan.dispatches().first()?.spec;
    let cols = regime.layout == TileLayout::Cols;
    let (shader, m, n) = match (regime.kernel.on_matrix_units(), cols) {
        (true, false) => ("fused_coop_rows", "SM", "SN"),
        (true, true) => ("fused_coop_cols", "SM", "SN"),
        (false, false) => ("fused_rows", "TM", "TN"),
        (false, true) => ("fused_cols", "TM", "TN"),
    };
    let constant = |name| spec.consts.iter().find(|(known, _)| *known == name).map(|&(_, value)| value);
    let sizes = [constant("BM")?, constant("BN")?, constant("BK")?, constant(m)?, constant(n)?];
    let flush = constant("FLUSH").unwrap_or(0);
    (spec.shader == shader).then_some(Tile::new(sizes, DEFAULT_GROUPS).flush(flush))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No candidate is rejected because no odd problem takes it, nor the one to be measured; rows are odd on both.
    #[test]
    fn every_candidate_is_checked() {
        let mut caps = DeviceCaps::webgpu_minimum("large");
        (caps.f16_matrix_units, caps.f64, caps.subgroup_size) = (true, true, 32);
        (caps.max_workgroup_memory, caps.max_workgroup_invocations) = (49152, 1024);
        let (mut first, mut count) = (0, 0);
        for kernel in TileKernel::ALL {
            for (columns, rank) in TileColumns::ALL.into_iter().zip([16, 32, 64, 256]) {
                // Register tiles are for more than 16 columns.
                if !kernel.on_matrix_units() && columns == TileColumns::UpTo16 {
                    continue;
                }
                for layout in TileLayout::ALL {
                    for tile in candidates(kernel, layout, columns, DEFAULT_GROUPS, &caps) {
                        let choice = TileChoice::new(kernel, layout, columns, tile);
                        let takes = |dims: &[usize], rank| {
                            plan_with(Some(tile), choice, dims, rank, &caps).unwrap().tuning().is_some()
                        };
                        let [small, large] = ODD.map(|dims| takes(&dims, rank - 3));
                        assert!(takes(&[256; 3], rank), "{choice:?}");
                        assert!(small || large && kernel.on_matrix_units(), "{choice:?}");
                        first += usize::from(small);
                        count += 1;
                    }
                }
            }
        }
        assert!(first < count && 2 * first > count, "{first} of {count} on the first");
    }
}
