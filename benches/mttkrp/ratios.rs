//! FUSED against the best of the other methods, case by case and rank by rank.

use polyad::plan::Method;
use std::collections::BTreeMap;

/// Seconds by method, as it was asked for, of one mode.
type Mode = BTreeMap<String, (Method, f64)>;

/// Every measured row of the run, in the order of the run.
#[derive(Default)]
pub struct Ratios {
    cases: Vec<(String, usize, BTreeMap<usize, Mode>)>,
}

/// The best of a method's variants in one mode: its name and seconds. Atomics count for FUSED only where nothing else does.
fn best(mode: &Mode, method: Method) -> Option<(&str, f64)> {
    let all = mode.iter().filter(|(_, (resolved, _))| *resolved == method);
    let plain = all.clone().filter(|(name, _)| !name.ends_with(":atomics")).min_by(|a, b| a.1.1.total_cmp(&b.1.1));
    let best = plain.or_else(|| all.min_by(|a, b| a.1.1.total_cmp(&b.1.1)));
    best.map(|(name, (_, seconds))| (name.as_str(), *seconds))
}

impl Ratios {
    pub fn add(&mut self, case: &str, rank: usize, mode: usize, name: &str, resolved: Method, seconds: f64) {
        let known = self.cases.iter_mut().find(|(known, at, _)| known == case && *at == rank);
        let modes = match known {
            Some((_, _, modes)) => modes,
            None => {
                self.cases.push((case.into(), rank, BTreeMap::new()));
                let Some((_, _, modes)) = self.cases.last_mut() else { return };
                modes
            }
        };
        modes.entry(mode).or_default().insert(name.into(), (resolved, seconds));
    }

    /// One line for each case and rank where FUSED was run beside TILE, SLICE or GEMM.
    pub fn print(&self) {
        let lines: Vec<_> = self.cases.iter().filter_map(|(case, rank, modes)| line(case, *rank, modes)).collect();
        if !lines.is_empty() {
            println!("# how many times the time of FUSED the others take, mean over the modes that both were run in:");
            lines.iter().for_each(|line| println!("{line}"));
        }
        if let Some((ratio, line)) = self.worst() {
            println!("# the mode in which another method comes closest to FUSED, or is ahead: {ratio:.2}x, {line}");
        }
    }

    /// The smallest ratio of the best other method's time to FUSED's in one mode, and where that is.
    fn worst(&self) -> Option<(f64, String)> {
        let modes =
            self.cases.iter().flat_map(|(case, rank, modes)| modes.iter().map(move |(n, mode)| (case, rank, n, mode)));
        let each = modes.filter_map(|(case, rank, n, mode)| {
            let fused = best(mode, Method::Fused)?.1;
            let others = [Method::Elem, Method::Tile, Method::Slice, Method::Gemm].map(|method| best(mode, method));
            let (name, other) = others.into_iter().flatten().min_by(|a, b| a.1.total_cmp(&b.1))?;
            Some((other / fused, format!("{case} R {rank} mode {n}, {name}")))
        });
        each.min_by(|a, b| a.0.total_cmp(&b.0))
    }
}

fn line(case: &str, rank: usize, modes: &BTreeMap<usize, Mode>) -> Option<String> {
    let mut parts = Vec::new();
    for method in [Method::Tile, Method::Slice, Method::Gemm] {
        let both: Vec<_> =
            modes.values().filter_map(|mode| Some((best(mode, Method::Fused)?.1, best(mode, method)?))).collect();
        if both.is_empty() {
            continue;
        }
        let (fused, other): (f64, f64) =
            both.iter().fold((0.0, 0.0), |(f, o), (fused, (_, seconds))| (f + fused, o + seconds));
        let mut names: Vec<_> = both.iter().map(|(_, (name, _))| *name).collect();
        names.sort_unstable();
        names.dedup();
        let name = if names == [method.name()] { method.name().into() } else { names.join(" and ") };
        parts.push(format!(
            "{name} {:.2}x ({:.3} ms, {} modes)",
            other / fused,
            1e3 * other / both.len() as f64,
            both.len()
        ));
    }
    let fused: Vec<_> =
        modes.values().filter_map(|mode| best(mode, Method::Fused)).map(|(_, seconds)| seconds).collect();
    let mean = 1e3 * fused.iter().sum::<f64>() / fused.len() as f64;
    (!parts.is_empty()).then(|| format!("ratios {case} R {rank}: fused {mean:.3} ms; {}", parts.join("; ")))
}
