//! Times every MTTKRP method on one device over named cases, against the measured limits of the device, and checks
//! every result on the way. README.md beside this folder says what the columns mean.
//!
//! `cargo bench --bench mttkrp -- --case cube1024,160^4 --ranks 16,64 --methods auto,gemm,tile:8 --csv out.csv`

mod als;
mod case;
mod collinear;
#[allow(dead_code, reason = "the program uses the rest of it")]
#[path = "../../src/bin/polyad/measure/mod.rs"]
mod measure;
mod ratios;
mod report;

use clap::Parser;
pub use measure::AnyError;
use measure::data;
use measure::roofline::Roofline;
use measure::timer::{Effort, Timed, Timer, mttkrp};
use ndarray::{Array2, ArrayD};
use polyad::plan::{Method, MttkrpPlan, PlanOptions};
use polyad::{Backend, CpAlsOptions, Cpu, Device, DeviceFactors, DeviceTensor, Dtype, Gpu, Real, Tree};
use ratios::Ratios;
use report::{Report, Row};
use std::cell::{Cell, RefCell};
use std::time::Instant;

#[derive(Parser)]
struct Args {
    /// Cases: cubeN, D^ORDER or AxBxC, or all (cube1024, 160^4, 401x201x5x501, 60^5, 48x4800x4800, 2000x50x50).
    #[arg(long, visible_alias = "dims", default_value = "128x128x128", value_delimiter = ',')]
    case: Vec<String>,
    /// Ranks, or all.
    #[arg(long, default_value = "32", value_delimiter = ',')]
    ranks: Vec<String>,
    /// Modes; all by default.
    #[arg(long, value_delimiter = ',')]
    modes: Vec<usize>,
    /// Methods by name, TILE as tile:TAU or tile:TAU:F, FUSED by atomics as fused:atomics; `none` for no MTTKRP.
    #[arg(long, default_value = "auto,elem,slice,tile:1,tile:2,tile:4,tile:8,gemm", value_delimiter = ',')]
    methods: Vec<String>,
    /// Time CP-ALS sweeps with the default method at these ranks.
    #[arg(long, value_delimiter = ',')]
    als: Vec<usize>,
    /// Trees that those sweeps use: none, two, multi, auto; the first is what the others are compared with.
    #[arg(long, default_value = "none,auto", value_delimiter = ',')]
    trees: Vec<String>,
    /// Most bytes of the products that a tree keeps [default: those of the tensor].
    #[arg(long)]
    memory_budget: Option<u64>,
    /// Count sweeps with and without the line search instead, on data of these ranks whose columns have these cosines; in f64.
    #[arg(long, value_delimiter = ',', requires = "als")]
    collinear: Vec<f64>,
    #[arg(long, default_value = "f32")]
    dtype: Dtype,
    /// What products of f32 numbers may be rounded to.
    #[arg(long, default_value = "float32")]
    precision: String,
    /// cpu, gpu or a part of an adapter's name.
    #[arg(long, default_value = "gpu")]
    device: String,
    /// Measured time of each row.
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Time before it, in which clocks come up.
    #[arg(long, default_value_t = 0.3)]
    warm_up: f64,
    /// No row is started after this many seconds; each case has an equal share of what its predecessors left.
    #[arg(long)]
    budget: Option<f64>,
    /// CSV file to append to.
    #[arg(long)]
    csv: Option<std::path::PathBuf>,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Args {
    fn effort(&self) -> Effort {
        Effort { warm_up: self.warm_up, seconds: self.seconds }
    }

    fn cases(&self) -> Vec<&str> {
        if self.case == ["all"] { case::CASES.into() } else { self.case.iter().map(String::as_str).collect() }
    }

    fn ranks(&self) -> Result<Vec<usize>, AnyError> {
        if self.ranks == ["all"] {
            return Ok(case::RANKS.into());
        }
        Ok(self.ranks.iter().map(|r| r.parse()).collect::<Result<_, _>>()?)
    }

    fn methods(&self) -> &[String] {
        if self.methods == ["none"] { &[] } else { &self.methods }
    }

    /// A method's name, with TILE's tau and column block or FUSED's reduction, as options of a plan.
    fn plan_options(&self, method: &str) -> Result<PlanOptions, AnyError> {
        let mut parts = method.split(':');
        let mut options = PlanOptions::default().dtype(self.dtype).method(parts.next().unwrap_or_default().parse()?);
        match parts.next() {
            Some(reduction) if options.method == Method::Fused => options = options.reduction(reduction.parse()?),
            Some(tau) => options = options.tile(tau.parse()?),
            None => {}
        }
        if let Some(f) = parts.next() {
            options = options.column_block(f.parse()?);
        }
        Ok(options.precision(self.precision.parse()?))
    }
}

/// A device with its clock and its limits.
struct Bench<'a> {
    args: &'a Args,
    device: Device,
    roofline: Option<Roofline>,
    start: Instant,
    /// Seconds after the start from which on the case at hand starts no row.
    deadline: Cell<Option<f64>>,
    ratios: RefCell<Ratios>,
}

fn main() -> std::process::ExitCode {
    match run(&Args::parse()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), AnyError> {
    // What cannot be read is said before anything is measured.
    args.methods().iter().try_for_each(|m| args.plan_options(m).map(drop))?;
    args.cases().iter().try_for_each(|c| case::dims(c).map(drop))?;
    args.trees.iter().try_for_each(|tree| tree.parse::<Tree>().map(drop))?;
    let device = match args.device.as_str() {
        "cpu" => Device::Cpu(Cpu::new()),
        "gpu" => Device::Gpu(Gpu::new()?),
        name => Device::Gpu(Gpu::builder().adapter_name(name).build()?),
    };
    let start = Instant::now();
    if let Some(tuning) = &device.caps().tuning {
        println!("# tiles from tuning file {}", tuning.name());
    }
    println!("# {} | command: {}", device.name(), std::env::args().skip(1).collect::<Vec<_>>().join(" "));
    println!(
        "# flop model 2 N R, N entries; GB/s counts the tensor once; error against f64 on sampled rows and columns"
    );
    let mut roofline = None;
    if let Device::Gpu(gpu) = &device {
        let clock = Timer::new(gpu);
        if args.dtype == Dtype::F64 && !gpu.caps().f64 {
            return Err(format!("{} lacks f64", gpu.name()).into());
        }
        let dtypes = if gpu.caps().f64 { vec![Dtype::F32, Dtype::F64] } else { vec![Dtype::F32] };
        for dtype in dtypes {
            let measured = Roofline::measure(gpu, &clock, dtype, args.effort())?;
            println!(
                "# roofline: read {:.1} GB/s ({} MiB), multiply-add {:.3} TFLOP/s {dtype}",
                measured.read / 1e9,
                measured.bytes >> 20,
                measured.flops / 1e12
            );
            if dtype == args.dtype {
                roofline = Some(measured);
            }
        }
    }
    let (deadline, ratios) = Default::default();
    let bench = Bench { args, device, roofline, start, deadline, ratios };
    let cases = args.cases();
    for (index, case) in cases.iter().enumerate() {
        let now = start.elapsed().as_secs_f64();
        bench.deadline.set(args.budget.map(|budget| now + (budget - now) / (cases.len() - index) as f64));
        match args.dtype {
            Dtype::F32 => bench.case::<f32>(case)?,
            Dtype::F64 => bench.case::<f64>(case)?,
        }
    }
    bench.ratios.borrow().print();
    println!("# {:.0} s in all", start.elapsed().as_secs_f64());
    Ok(())
}

impl Bench<'_> {
    fn time_is_up(&self) -> bool {
        self.deadline.get().is_some_and(|deadline| self.start.elapsed().as_secs_f64() > deadline)
    }

    fn case<T: Real>(&self, case: &str) -> Result<(), AnyError> {
        if self.time_is_up() {
            println!("# {case} skipped: time is up");
            return Ok(());
        }
        let args = self.args;
        let dims = case::dims(case)?;
        let report = Report {
            csv: args.csv.clone(),
            device: self.device.name(),
            case: case.into(),
            dims: dims.clone(),
            dtype: args.dtype,
            precision: if args.dtype == Dtype::F64 { "f64".into() } else { args.precision.clone() },
            roofline: self.roofline,
        };
        if !args.collinear.is_empty() {
            println!("# case {case}");
            for (&rank, &cosine) in args.als.iter().flat_map(|rank| args.collinear.iter().map(move |c| (rank, c))) {
                collinear::run(&self.device, &dims, &self.als_options(rank, "none")?, cosine)?;
            }
            return Ok(());
        }
        report.head();
        let start = Instant::now();
        let x = data::random::<T>(&dims, 1)?;
        let made = start.elapsed().as_secs_f64();
        if !args.methods().is_empty() {
            let xd = match self.device.upload_tensor(x.view()) {
                Ok(xd) => xd,
                Err(error) => {
                    println!("# {case} skipped: {error}");
                    return Ok(());
                }
            };
            println!("# tensor made in {made:.2} s, uploaded in {:.2} s", start.elapsed().as_secs_f64() - made);
            for rank in args.ranks()? {
                let factors = data::factors::<T>(&dims, rank)?;
                let views: Vec<_> = factors.iter().map(|f| f.view()).collect();
                let u = self.device.upload_factors(None, &views)?;
                let all: Vec<usize> = (0..dims.len()).collect();
                for &mode in if args.modes.is_empty() { &all } else { &args.modes } {
                    if mode >= dims.len() || self.time_is_up() {
                        println!(
                            "{rank:>5} {mode:>5} skipped: {}",
                            if mode < dims.len() { "time is up" } else { "no such mode" }
                        );
                        continue;
                    }
                    let exact = case::Exact::new(&x, &factors, mode)?;
                    for method in args.methods() {
                        if let Err(error) = self.row(&report, &xd, &u, &exact, (rank, mode, method)) {
                            println!("{rank:>5} {mode:>5} {method:>11} {error}");
                        }
                    }
                }
            }
        }
        for &rank in &args.als {
            // Seconds of the first tree, which the others are compared with.
            let mut first: Option<(&str, f64)> = None;
            for tree in &args.trees {
                match if self.time_is_up() { Err("time is up".into()) } else { self.sweep(&report, &x, rank, tree) } {
                    Ok(seconds) => match first {
                        Some((name, base)) => println!("#     {:.2} times the speed of tree {name}", base / seconds),
                        None => first = Some((tree, seconds)),
                    },
                    Err(error) => println!("{rank:>5} sweep, tree {tree}: {error}"),
                }
            }
        }
        Ok(())
    }

    /// Seconds of a CP-ALS sweep.
    fn sweep<T: Real>(&self, report: &Report, x: &ArrayD<T>, rank: usize, tree: &str) -> Result<f64, AnyError> {
        let on_cpu = self.device.caps().kind == polyad::plan::DeviceKind::Cpu;
        let effort = if on_cpu { self.args.effort() } else { self.args.effort().waking() };
        als::run(report, &self.device, x, self.als_options(rank, tree)?, effort.warm_up)
    }

    fn als_options(&self, rank: usize, tree: &str) -> Result<CpAlsOptions, AnyError> {
        let mut options = CpAlsOptions::new(rank).plan(self.args.plan_options("auto")?).tree(tree.parse()?);
        options.memory_budget = self.args.memory_budget;
        Ok(options)
    }

    fn row<T: Real>(
        &self,
        report: &Report,
        x: &DeviceTensor<'_, T>,
        u: &DeviceFactors<T>,
        exact: &case::Exact,
        (rank, mode, method): (usize, usize, &str),
    ) -> Result<(), AnyError> {
        let options = self.args.plan_options(method)?;
        let plan = MttkrpPlan::new(&report.dims, mode, rank, &options, self.device.caps())?;
        let mut g = Array2::zeros((report.dims[mode], rank));
        self.device.mttkrp_into(&plan, x, u, g.view_mut())?;
        let Timed { seconds, runs } = mttkrp(&self.device, self.args.effort(), &plan, x, u, &mut g)?;
        let (error, scratch, resolved) = (exact.relative_error(&g), plan.total_scratch_bytes(), plan.method().name());
        self.ratios.borrow_mut().add(&report.case, rank, mode, method, plan.method(), seconds);
        report.row(&Row { rank, mode, method, resolved, seconds, runs, error, scratch })
    }
}
