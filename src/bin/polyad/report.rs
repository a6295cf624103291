//! Printing: stdout that survives a closed pipe, warnings, and how numbers and tables look.

use crate::failure::Failure;
use polyad::{CpTensor, Real};
use std::fmt::Display;
use std::io::{ErrorKind, Write};

/// Stdout. Once a write fails it stays silent: a closed pipe is no error, anything else is one at the end.
#[derive(Debug)]
pub struct Out {
    quiet: bool,
    closed: bool,
    error: Option<String>,
}

impl Out {
    /// Stdout, not quiet.
    pub fn new() -> Self {
        Self { quiet: false, closed: false, error: None }
    }

    /// Drops every [`line`](Self::line) from now on.
    pub fn silence(&mut self) {
        self.quiet = true;
    }

    /// A line for people: not printed when silenced.
    pub fn line(&mut self, text: impl Display) {
        if !self.quiet {
            self.always(text);
        }
    }

    /// A line that was asked for by name (`--json`).
    pub fn always(&mut self, text: impl Display) {
        if self.closed {
            return;
        }
        let mut stdout = std::io::stdout().lock();
        if let Err(error) = writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
            self.closed = true;
            if error.kind() != ErrorKind::BrokenPipe {
                self.error = Some(error.to_string());
            }
        }
    }

    /// A value as JSON, indented.
    pub fn json(&mut self, value: &impl serde::Serialize) -> Result<(), Failure> {
        self.always(json(value)?);
        Ok(())
    }

    /// Whether stdout failed otherwise than by a reader that went away.
    pub fn check(&self) -> Result<(), Failure> {
        match &self.error {
            Some(error) => Err(Failure::Failed(format!("stdout: {error}"))),
            None => Ok(()),
        }
    }
}

/// A value as indented JSON, without a line end.
pub fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(value).map_err(|e| Failure::Failed(format!("JSON: {e}")))
}

/// A warning on stderr.
pub fn warn(text: &str) {
    let _ = writeln!(std::io::stderr(), "warning: {}", one_line(text));
}

/// Collapses a text to one line.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Dims and indices as `(3, 4, 5)`, as the library's errors show them.
pub fn show(values: &[usize]) -> String {
    let parts: Vec<String> = values.iter().map(ToString::to_string).collect();
    format!("({})", parts.join(", "))
}

/// Six significant digits, in the shorter of the two notations.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    if !(1e-4..1e7).contains(&size) {
        return format!("{value:.5e}");
    }
    let before = size.log10().floor() as i32 + 1;
    let decimals = (6 - before).clamp(0, 9) as usize;
    format!("{value:.decimals$}")
}

/// Bytes, exact and in the unit people use.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if n == u64::MAX {
        return "no limit".into();
    }
    let mut size = n as f64;
    let mut unit = None;
    for name in UNITS {
        if size < 1024.0 {
            break;
        }
        size /= 1024.0;
        unit = Some(name);
    }
    match unit {
        Some(unit) => format!("{n} bytes ({} {unit})", (size * 10.0).round() / 10.0),
        None => format!("{n} bytes"),
    }
}

/// Rows of cells, right-aligned in columns. All rows have the length of the first one or less.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| rows.iter().filter_map(|row| row.get(c)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|c| width(c).unwrap_or(0)).collect();
    let lines = rows.iter().map(|row| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, &w)| format!("{cell:>w$}")).collect();
        cells.join("  ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The weights and the first few entries of each factor, one row a component.
pub fn components<T: Real>(model: &CpTensor<T>) -> String {
    /// More components than this are counted, not shown.
    const ROWS: usize = 20;
    /// Entries shown of each factor column.
    const ENTRIES: usize = 5;
    let rank = model.rank();
    let shown = rank.min(ROWS);
    let mut rows = vec![vec!["component".to_string(), "weight".to_string()]];
    rows.extend((0..shown).map(|r| vec![r.to_string(), number(model.weights()[r].f64())]));
    let mut blocks = vec![table(&rows)];
    for (mode, factor) in model.factors().iter().enumerate() {
        let entries = factor.nrows().min(ENTRIES);
        let mut rows = vec![vec!["component".to_string()]];
        rows[0].extend((0..entries).map(|i| format!("[{i}]")));
        for r in 0..shown {
            let mut row = vec![r.to_string()];
            row.extend((0..entries).map(|i| number(factor[[i, r]].f64())));
            rows.push(row);
        }
        let more = if entries < factor.nrows() { format!(", first {entries} rows") } else { String::new() };
        blocks.push(format!("factor {mode}: {} x {rank}{more}\n{}", factor.nrows(), table(&rows)));
    }
    if shown < rank {
        blocks.push(format!("and {} more components", rank - shown));
    }
    blocks.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array1, Array2};

    #[test]
    fn numbers_keep_six_digits() {
        let cases = [
            (0.0, "0"),
            (1.0, "1.00000"),
            (-0.974951, "-0.974951"),
            (47991.96, "47992.0"),
            (123456.7, "123457"),
            (0.0012345678, "0.00123457"),
            (1.5e9, "1.50000e9"),
            (-2.5e-7, "-2.50000e-7"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text, "{value:e}");
        }
    }

    #[test]
    fn bytes_show_both() {
        assert_eq!(bytes(17), "17 bytes");
        assert_eq!(bytes(2 << 30), "2147483648 bytes (2 GiB)");
        assert_eq!(bytes(u64::MAX), "no limit");
    }

    #[test]
    fn tables_line_up() {
        let rows = [vec!["a".to_string(), "bb".into()], vec!["10".into(), "2".into()]];
        assert_eq!(table(&rows), " a  bb\n10   2");
    }

    #[test]
    fn components_are_counted_where_not_shown() {
        let model = CpTensor::<f64>::new(Array1::ones(25), vec![Array2::ones((7, 25)), Array2::ones((2, 25))]).unwrap();
        let text = components(&model);
        assert!(text.contains("factor 0: 7 x 25, first 5 rows"), "{text}");
        assert!(text.contains("factor 1: 2 x 25\n"), "{text}");
        assert!(text.ends_with("and 5 more components"), "{text}");
    }
}
