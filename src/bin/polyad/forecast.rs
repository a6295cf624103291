//! What a problem costs on a device, method by method: what `polyad plan` prints and `polyad decompose` refuses by.

use crate::args::Kept;
use crate::report::{Out, bytes, number, show, table};
use polyad::plan::{CostModel, DeviceCaps, Footprint, Machine, PlanOptions, Reuse, TreePlan};
use polyad::{Dtype, Error, Method, MttkrpPlan};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// More slabs than this are no plan that anyone runs.
const MAX_SLABS: u64 = 1 << 18;

/// A value, or the word "unknown".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known<T> {
    Yes(T),
    No,
}

impl<T: Copy> Known<T> {
    fn of(value: Option<T>) -> Self {
        value.map_or(Self::No, Self::Yes)
    }
}

impl<T: Serialize> Serialize for Known<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Yes(value) => value.serialize(serializer),
            Self::No => serializer.serialize_str("unknown"),
        }
    }
}

impl<T: std::fmt::Display> std::fmt::Display for Known<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Yes(value) => value.fmt(f),
            Self::No => f.write_str("unknown"),
        }
    }
}

/// The whole forecast; its JSON is that of `polyad plan --json`.
#[derive(Debug, Serialize)]
pub struct Forecast {
    pub dims: Vec<usize>,
    pub rank: usize,
    /// Side by side, each of that rank.
    pub starts: usize,
    /// `null` for CP-ALS over all modes.
    pub mode: Option<usize>,
    pub dtype: &'static str,
    pub device: String,
    /// Of one card.
    pub card_memory_bytes: Known<u64>,
    /// Bytes and flops per second that times are predicted with; `null` without them.
    pub bandwidth: Option<f64>,
    pub peak: Option<f64>,
    pub chosen: &'static str,
    pub reason: String,
    pub methods: BTreeMap<&'static str, Cost>,
    /// The chosen method, mode by mode.
    pub plans: Vec<ModePlan>,
    /// How the MTTKRPs of a sweep share passes over the tensor, by the chosen method; `null` for one MTTKRP.
    pub tree: Option<Sharing>,
    pub warnings: Vec<String>,
}

/// Memory and time of one method. Of a method that the device cannot do, `error` says why and the rest is `null`.
#[derive(Debug, Default, Serialize)]
pub struct Cost {
    pub error: Option<String>,
    pub tensor_bytes: Option<u64>,
    pub factors_bytes: Option<u64>,
    pub result_bytes: Option<u64>,
    pub scratch_bytes: Option<u64>,
    pub tree_bytes: Option<u64>,
    pub algebra_bytes: Option<u64>,
    pub other_bytes: Option<u64>,
    pub peak_bytes: Option<u64>,
    /// Streaming or not.
    pub fits: Option<Known<bool>>,
    /// Set where the tensor does not fit beside the rest and streams.
    pub streams: Option<Streams>,
    pub cards: Option<Known<u64>>,
    /// Of all modes together (or the one asked for).
    pub flops: Option<f64>,
    /// Seconds by model, of all modes together.
    pub seconds: Option<BTreeMap<&'static str, f64>>,
    /// Words moved by model, as formulas.
    pub words: Option<BTreeMap<&'static str, &'static str>>,
    /// What bounds T_inf, mode by mode.
    pub bounds: Option<Vec<&'static str>>,
}

/// How the tensor passes through the device.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Streams {
    pub slabs: usize,
    /// Of the largest.
    pub slab_bytes: u64,
    /// Moved over the bus by a sweep (by the one MTTKRP, if that is what was asked).
    pub sweep_bytes: u64,
    /// What would be needed with all of the tensor on the device.
    pub resident_bytes: u64,
}

impl std::fmt::Display for Streams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { slabs, slab_bytes, sweep_bytes, resident_bytes } = *self;
        write!(
            f,
            "{slabs} slabs of at most {} from the host, {} in all; without that {} would be needed",
            bytes(slab_bytes),
            bytes(sweep_bytes),
            bytes(resident_bytes)
        )
    }
}

/// How one mode is computed.
#[derive(Debug, Serialize)]
pub struct ModePlan {
    pub mode: usize,
    /// The kernel that does the product, with its constants; `null` on the CPU.
    pub kernel: Option<String>,
    /// Of that kernel's first dispatch.
    pub grid: Option<[u32; 3]>,
    /// Of all dispatches.
    pub workgroups: u64,
    pub dispatches: usize,
    pub slabs: usize,
    pub column_blocks: usize,
    /// TILE's tau; `null` for other methods.
    pub tile: Option<usize>,
    pub column_block: usize,
    pub scratch_bytes: u64,
}

/// Products of the tensor that are kept for several modes.
#[derive(Debug, Serialize)]
pub struct Sharing {
    /// Modes of each group; none where every mode has an MTTKRP of its own.
    pub groups: Vec<Vec<usize>>,
    /// Passes over the tensor a sweep.
    pub passes: f64,
    /// Of the product that is kept.
    pub bytes: u64,
    pub reason: String,
    /// All of it, for people.
    #[serde(skip)]
    text: String,
}

/// What is asked.
pub struct Question<'a> {
    pub dims: &'a [usize],
    pub rank: usize,
    /// Starts side by side.
    pub starts: usize,
    pub mode: Option<usize>,
    pub options: PlanOptions,
    pub kept: Kept,
    /// With the memory that may be used.
    pub caps: &'a DeviceCaps,
    pub machine: Option<Machine>,
}

impl Question<'_> {
    fn plans(&self, options: &PlanOptions) -> Result<Vec<MttkrpPlan>, Error> {
        let modes = self.mode.map_or(0..self.dims.len(), |mode| mode..mode + 1);
        // All starts are columns of the same factors.
        let columns = self.rank.saturating_mul(self.starts);
        modes.map(|mode| MttkrpPlan::new(self.dims, mode, columns, options, self.caps)).collect()
    }

    fn tree(&self, plans: &[MttkrpPlan], options: &PlanOptions) -> Result<TreePlan, Error> {
        TreePlan::of(plans, self.kept.tree, self.kept.budget(), options, self.caps)
    }

    fn footprint(&self, plans: &[MttkrpPlan], options: &PlanOptions) -> Result<Footprint, Error> {
        match self.mode {
            Some(_) => Footprint::mttkrp(&plans[0], self.caps),
            None => Footprint::cp_als(plans, &self.tree(plans, options)?, self.caps),
        }
    }

    fn cost(&self, plans: &[MttkrpPlan], options: &PlanOptions) -> Result<Cost, Error> {
        let bytes = self.footprint(plans, options)?;
        let memory = self.caps.memory;
        let models: Vec<CostModel> = plans.iter().map(CostModel::of).collect();
        let sum = |reuse: Reuse, machine: &Machine| {
            models.iter().map(|model| model.predict(reuse, machine).seconds).sum::<f64>()
        };
        Ok(Cost {
            error: None,
            tensor_bytes: Some(bytes.tensor),
            factors_bytes: Some(bytes.factors),
            result_bytes: Some(bytes.result),
            scratch_bytes: Some(bytes.scratch),
            tree_bytes: Some(bytes.tree),
            algebra_bytes: Some(bytes.algebra),
            other_bytes: Some(bytes.other),
            peak_bytes: Some(bytes.peak()),
            fits: Some(Known::of(memory.map(|memory| bytes.peak() <= memory))),
            streams: bytes.streaming.map(|s| Streams {
                slabs: s.slabs,
                slab_bytes: s.slab_bytes,
                sweep_bytes: s.pass_bytes.saturating_mul(plans.len() as u64),
                resident_bytes: s.resident_bytes,
            }),
            cards: Some(Known::of(memory.and_then(|memory| bytes.cards(memory)))),
            flops: Some(models.iter().map(CostModel::flops).sum()),
            seconds: self.machine.map(|machine| Reuse::ALL.map(|reuse| (reuse.name(), sum(reuse, &machine))).into()),
            words: models.first().map(|model| Reuse::ALL.map(|reuse| (reuse.name(), model.formula(reuse))).into()),
            bounds: self.machine.map(|machine| {
                models.iter().map(|model| model.predict(Reuse::Everything, &machine).bound.name()).collect()
            }),
        })
    }

    /// Errors where the tensor would be in so many slabs that the plan itself has no room.
    fn check_slabs(&self) -> Result<(), Error> {
        let shape = polyad::Shape::new(self.dims)?;
        if let Some(mode) = self.mode {
            shape.check_mode(mode)?;
        }
        let limit = polyad::plan::slab_limit(self.caps, self.options.dtype);
        let needed = (shape.len() as u64).saturating_mul(self.options.dtype.bytes());
        let most = limit.saturating_mul(MAX_SLABS);
        if self.caps.kind != polyad::plan::DeviceKind::Cpu && needed > most {
            let what = format!("the tensor in at most {MAX_SLABS} slabs");
            return Err(Error::LimitTooSmall {
                limit: "max_storage_buffer_binding_size",
                what,
                needed,
                available: most,
            });
        }
        Ok(())
    }

    /// The forecast.
    pub fn answer(&self) -> Result<Forecast, Error> {
        self.check_slabs()?;
        let chosen = self.plans(&self.options)?;
        let first = &chosen[0];
        let mut methods = BTreeMap::new();
        for method in Method::ALL {
            let cost = if method == first.method() {
                self.cost(&chosen, &self.options)
            } else {
                let options = self.options.clone().method(method);
                self.plans(&options).and_then(|plans| self.cost(&plans, &options))
            };
            let failed = |error: Error| Cost { error: Some(error.to_string()), ..Cost::default() };
            methods.insert(method.name(), cost.unwrap_or_else(failed));
        }
        let tree = if self.mode.is_none() { Some(self.tree(&chosen, &self.options)?) } else { None };
        let mut warnings: Vec<String> = Vec::new();
        for warning in chosen.iter().flat_map(|plan| plan.warnings()) {
            if !warnings.contains(warning) {
                warnings.push(warning.clone());
            }
        }
        Ok(Forecast {
            dims: self.dims.to_vec(),
            rank: self.rank,
            starts: self.starts,
            mode: self.mode,
            dtype: self.options.dtype.name(),
            device: self.caps.name.clone(),
            card_memory_bytes: Known::of(self.caps.memory),
            bandwidth: self.machine.map(|machine| machine.bandwidth),
            peak: self.machine.map(|machine| machine.peak),
            chosen: first.method().name(),
            reason: first.reason().to_owned(),
            methods,
            plans: chosen.iter().map(mode_plan).collect(),
            tree: tree.as_ref().map(sharing),
            warnings,
        })
    }

    /// Why the problem cannot be run, where that is known, and what could be.
    pub fn refusal(&self, forecast: &Forecast) -> Option<String> {
        let cost = forecast.methods.get(forecast.chosen)?;
        let (memory, peak) = (self.caps.memory?, cost.peak_bytes?);
        if peak <= memory {
            return None;
        }
        let fitting: Vec<String> = forecast
            .methods
            .iter()
            .filter(|(_, cost)| cost.fits == Some(Known::Yes(true)))
            .map(|(name, cost)| format!("--method {name} ({})", bytes(cost.peak_bytes.unwrap_or(0))))
            .collect();
        let mut would: Vec<String> = Vec::new();
        if !fitting.is_empty() {
            would.push(fitting.join(", "));
        }
        if self.options.dtype == Dtype::F64 {
            let options = self.options.clone().dtype(Dtype::F32);
            let halved = self.plans(&options).and_then(|plans| self.footprint(&plans, &options));
            if let Some(halved) = halved.ok().filter(|halved| halved.peak() <= memory) {
                would.push(format!("--dtype f32 ({})", bytes(halved.peak())));
            }
        }
        let lower = self.largest_rank(memory);
        if let Some(rank) = lower {
            would.push(format!("rank {rank}"));
        }
        let would = match would.len() {
            0 => "nothing here would fit: the tensor itself is too large".into(),
            _ => format!("what would fit: {}", would.join("; ")),
        };
        Some(format!(
            "{} of {} at {} in {} needs {} on the device, and {} has {}; {would}",
            forecast.chosen,
            show(self.dims),
            ranks(self.rank, self.starts),
            forecast.dtype,
            bytes(peak),
            forecast.device,
            bytes(memory),
        ))
    }

    /// The largest rank at which the options asked for fit.
    fn largest_rank(&self, memory: u64) -> Option<usize> {
        let fits = |rank: usize| {
            let smaller = Question {
                rank,
                starts: self.starts,
                options: self.options.clone(),
                kept: self.kept,
                dims: self.dims,
                mode: self.mode,
                caps: self.caps,
                machine: None,
            };
            let bytes = smaller.plans(&smaller.options).and_then(|plans| smaller.footprint(&plans, &smaller.options));
            bytes.is_ok_and(|bytes| bytes.peak() <= memory)
        };
        let (mut good, mut bad) = (0, self.rank);
        while bad - good > 1 {
            let middle = good + (bad - good) / 2;
            if fits(middle) { good = middle } else { bad = middle }
        }
        (good > 0).then_some(good)
    }
}

/// Rank and starts, for people.
fn ranks(rank: usize, starts: usize) -> String {
    if starts == 1 { format!("rank {rank}") } else { format!("rank {rank}, {starts} starts side by side") }
}

fn mode_plan(plan: &MttkrpPlan) -> ModePlan {
    let helpers = ["khatri_rao", "reduce_partials", "multiply_sum"];
    let main = plan.dispatches().iter().find(|dispatch| !helpers.contains(&dispatch.spec.shader));
    let groups = |grid: [u32; 3]| grid.iter().map(|&n| u64::from(n)).product::<u64>();
    ModePlan {
        mode: plan.mode(),
        kernel: main.map(|dispatch| dispatch.spec.to_string()),
        grid: main.map(|dispatch| dispatch.grid),
        workgroups: plan.dispatches().iter().map(|dispatch| groups(dispatch.grid)).sum(),
        dispatches: plan.dispatches().len(),
        slabs: plan.slabs().len().max(1),
        column_blocks: plan.columns().len() - 1,
        tile: (plan.method() == Method::Tile).then(|| plan.tile()),
        column_block: plan.column_block(),
        scratch_bytes: plan.total_scratch_bytes(),
    }
}

fn sharing(tree: &TreePlan) -> Sharing {
    Sharing {
        groups: tree.groups().iter().map(|group| group.clone().collect()).collect(),
        passes: tree.passes(),
        bytes: tree.bytes(),
        reason: tree.reason().to_owned(),
        text: tree.to_string(),
    }
}

impl Forecast {
    /// How the tensor passes through the device with the chosen method, if it does.
    pub fn streams(&self) -> Option<Streams> {
        self.methods.get(self.chosen)?.streams
    }

    /// For people.
    pub fn print(&self, out: &mut Out) {
        let what = self.mode.map_or("CP-ALS over all modes".into(), |mode| format!("one MTTKRP of mode {mode}"));
        let ranks = ranks(self.rank, self.starts);
        out.line(format_args!("problem  {} at {ranks}, {}: {what}", show(&self.dims), self.dtype));
        out.line(format_args!("device   {}", self.device));
        let memory = match self.card_memory_bytes {
            Known::Yes(memory) => bytes(memory),
            Known::No => "unknown (--card-memory tells)".into(),
        };
        out.line(format_args!("memory   {memory}"));
        out.line(format_args!("method   {}: {}", self.chosen, self.reason));
        for plan in &self.plans {
            let kernel = plan.kernel.as_deref().unwrap_or("on the CPU");
            let tile = plan.tile.map_or(String::new(), |tau| format!(", tile width {tau}"));
            let grid = plan.grid.map_or(String::new(), |[x, y, z]| format!(", grid {x} x {y} x {z}"));
            out.line(format_args!(
                "mode {}   {kernel}{tile}{grid}; {} slabs, {} dispatches, {} workgroups",
                plan.mode, plan.slabs, plan.dispatches, plan.workgroups
            ));
        }
        self.tree.iter().for_each(|tree| out.line(format_args!("sweep    {}", tree.text)));
        if let Some(streams) = self.streams() {
            let what = if self.mode.is_some() { "" } else { ", every sweep" };
            out.line(format_args!("streams  {streams}{what}"));
        }
        self.warnings.iter().for_each(|warning| out.line(format_args!("warning  {warning}")));
        out.line("\nbytes on the device");
        let head =
            ["method", "tensor", "factors", "results", "scratch", "kept", "algebra", "other", "peak", "fits", "cards"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for (name, cost) in self.methods.iter().filter(|(_, cost)| cost.error.is_none()) {
            let counts = [
                cost.tensor_bytes,
                cost.factors_bytes,
                cost.result_bytes,
                cost.scratch_bytes,
                cost.tree_bytes,
                cost.algebra_bytes,
                cost.other_bytes,
                cost.peak_bytes,
            ];
            let mut row = vec![(*name).to_owned()];
            row.extend(counts.map(|count| count.unwrap_or(0).to_string()));
            row.push(match cost.fits {
                Some(Known::Yes(true)) if cost.streams.is_some() => "streaming".into(),
                Some(Known::Yes(true)) => "yes".into(),
                Some(Known::Yes(false)) => "no".into(),
                _ => "unknown".into(),
            });
            row.push(cost.cards.unwrap_or(Known::No).to_string());
            rows.push(row);
        }
        out.line(table(&rows));
        for (name, cost) in &self.methods {
            if let Some(error) = &cost.error {
                out.line(format_args!("{name}: not here: {error}"));
            }
        }
        self.print_times(out);
    }

    fn print_times(&self, out: &mut Out) {
        let (Some(bandwidth), Some(peak)) = (self.bandwidth, self.peak) else {
            return out.line("\nno times without --bandwidth and --peak, or --measure");
        };
        out.line(format_args!(
            "\nseconds at {} GB/s and {} GFLOP/s, max(flops / peak, bytes / bandwidth)",
            number(bandwidth / 1e9),
            number(peak / 1e9)
        ));
        let mut head = vec!["method".to_owned(), "flops".into()];
        head.extend(Reuse::ALL.map(|reuse| reuse.name().to_owned()));
        head.push("T_inf bounded by".into());
        let mut rows = vec![head];
        for (name, cost) in &self.methods {
            let (Some(seconds), Some(bounds)) = (&cost.seconds, &cost.bounds) else { continue };
            let mut row = vec![(*name).to_owned(), number(cost.flops.unwrap_or(0.0))];
            row.extend(Reuse::ALL.map(|reuse| number(seconds[reuse.name()])));
            let mut bounds = bounds.clone();
            bounds.dedup();
            row.push(bounds.join(", "));
            rows.push(row);
        }
        out.line(table(&rows));
        out.line("\nwords moved");
        for (name, cost) in &self.methods {
            for reuse in Reuse::ALL {
                let Some(formula) = cost.words.as_ref().map(|words| words[reuse.name()]) else { continue };
                out.line(format_args!("{name:>6}  {:<9}  {formula}", reuse.name()));
            }
        }
    }
}
