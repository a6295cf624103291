//! Rows of results: on the screen and as CSV.

use crate::AnyError;
use crate::measure::roofline::Roofline;
use polyad::Dtype;
use std::io::Write;
use std::path::PathBuf;

/// What all rows of a case have in common.
pub struct Report {
    pub csv: Option<PathBuf>,
    pub device: String,
    pub case: String,
    pub dims: Vec<usize>,
    pub dtype: Dtype,
    pub precision: String,
    pub roofline: Option<Roofline>,
}

/// One measured MTTKRP.
pub struct Row<'a> {
    pub rank: usize,
    pub mode: usize,
    /// As asked for.
    pub method: &'a str,
    /// As the plan has it.
    pub resolved: &'a str,
    pub seconds: f64,
    pub runs: usize,
    pub error: f64,
    pub scratch: u64,
}

/// Seconds of a CP-ALS sweep and its parts.
pub struct SweepRow<'a> {
    pub rank: usize,
    pub resolved: &'a str,
    pub tree: &'a str,
    /// Passes over the tensor of a sweep.
    pub passes: f64,
    pub sweeps: usize,
    pub seconds: f64,
    /// MTTKRP and algebra on the device; grams, solve, fit, transfer and wait on the host.
    pub parts: [f64; 7],
}

const COLUMNS: &str = "device,case,dims,dtype,precision,method,resolved,rank,mode,seconds,tflops,gbs,roofline_share,\
                       error,scratch_bytes,runs,read_gbs,fma_tflops,mttkrp_s,algebra_s,gram_s,solve_s,fit_s,transfer_s,wait_s,tree,passes";

impl Report {
    pub fn head(&self) {
        let dims: Vec<String> = self.dims.iter().map(usize::to_string).collect();
        let entries = self.entries();
        println!("# case {} = {} | {} | {entries} entries", self.case, dims.join("x"), self.dtype);
        println!(
            "{:>5} {:>5} {:>11} {:>11} {:>9} {:>9} {:>9} {:>9} {:>13} {:>5}",
            "R", "mode", "method", "ms", "TFLOP/s", "GB/s", "roofline", "error", "scratch B", "runs"
        );
    }

    fn entries(&self) -> f64 {
        self.dims.iter().product::<usize>() as f64
    }

    pub fn row(&self, row: &Row) -> Result<(), AnyError> {
        let (flops, bytes) = (2.0 * self.entries() * row.rank as f64, self.entries() * self.dtype.bytes() as f64);
        let (tflops, gbs) = (flops / row.seconds / 1e12, bytes / row.seconds / 1e9);
        let share = self.roofline.map(|r| r.seconds(bytes, flops) / row.seconds);
        let percent = share.map_or("-".into(), |share| format!("{:.1} %", 100.0 * share));
        let method = if row.method == "auto" { format!("auto={}", row.resolved) } else { row.method.into() };
        println!(
            "{:>5} {:>5} {method:>11} {:>11.4} {tflops:>9.3} {gbs:>9.1} {percent:>9} {:>9.1e} {:>13} {:>5}",
            row.rank,
            row.mode,
            row.seconds * 1e3,
            row.error,
            row.scratch,
            row.runs
        );
        let Row { rank, mode, method, resolved, seconds, runs, error, scratch } = row;
        let share = share.map_or(String::new(), |share| format!("{share:.4}"));
        self.write(&format!(
            "{method},{resolved},{rank},{mode},{seconds:e},{tflops:.4e},{gbs:.4e},{share},{error:.3e},{scratch},{runs},{},,,,,,,,,",
            self.limits()
        ))
    }

    pub fn sweep(&self, row: &SweepRow) -> Result<(), AnyError> {
        let SweepRow { rank, resolved, tree, passes, sweeps, seconds, parts } = row;
        let tflop = passes * 2.0 * self.entries() * *rank as f64 / 1e12;
        let [mttkrp, algebra, gram, solve, fit, transfer, wait] = parts.map(|part| format!("{:.3}", 1e3 * part));
        let beside = 100.0 * (1.0 - parts[0] / seconds);
        println!(
            "{rank:>5} sweep {resolved:>11} {:>11.3} ms, tree {tree}: {passes:.2} passes, {tflop:.3} TFLOP; {beside:.1} % \
             beside MTTKRP (mean of {sweeps}); device: mttkrp {mttkrp}, algebra {algebra}; host: grams {gram}, solve {solve}, fit {fit}, transfer {transfer}, wait {wait}",
            1e3 * seconds,
        );
        let parts = parts.map(|part| format!("{part:e}")).join(",");
        let limits = self.limits();
        self.write(&format!("auto,{resolved},{rank},sweep,{seconds:e},,,,,,{sweeps},{limits},{parts},{tree},{passes}"))
    }

    fn limits(&self) -> String {
        self.roofline.map_or(",".into(), |r| format!("{:.1},{:.3}", r.read / 1e9, r.flops / 1e12))
    }

    /// Appends to the file; a new one gets the header.
    fn write(&self, cells: &str) -> Result<(), AnyError> {
        let Some(path) = &self.csv else { return Ok(()) };
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
        if file.metadata()?.len() == 0 {
            writeln!(file, "{COLUMNS}")?;
        }
        let dims: Vec<String> = self.dims.iter().map(usize::to_string).collect();
        let device = self.device.replace('"', "'");
        writeln!(file, "\"{device}\",{},{},{},{},{cells}", self.case, dims.join("x"), self.dtype, self.precision)?;
        Ok(())
    }
}
