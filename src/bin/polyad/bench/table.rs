//! The numbers of a figure: as CSV and on the screen.

use crate::report::{number, table};

/// A cell.
pub enum Cell {
    Text(String),
    Number(f64),
    Count(u64),
}

impl Cell {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }
}

/// Rows under names.
pub struct Table {
    pub head: Vec<&'static str>,
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    pub fn new(head: &[&'static str]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new() }
    }

    /// CSV with the command in a comment line, all digits kept.
    pub fn csv(&self, command: &str) -> String {
        let quoted = |text: &str| match text.contains([',', '"', '\n']) {
            true => format!("\"{}\"", text.replace('"', "\"\"")),
            false => text.to_owned(),
        };
        let cell = |cell: &Cell| match cell {
            Cell::Text(text) => quoted(text),
            Cell::Number(value) => value.to_string(),
            Cell::Count(count) => count.to_string(),
        };
        let mut lines = vec![
            format!("# {}", command.replace('\n', " ")),
            self.head.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(","),
        ];
        lines.extend(self.rows.iter().map(|row| row.iter().map(cell).collect::<Vec<_>>().join(",")));
        lines.join("\n") + "\n"
    }

    /// For people.
    pub fn shown(&self) -> String {
        let cell = |cell: &Cell| match cell {
            Cell::Text(text) => text.clone(),
            Cell::Number(value) => number(*value),
            Cell::Count(count) => count.to_string(),
        };
        let mut rows = vec![self.head.iter().map(ToString::to_string).collect::<Vec<_>>()];
        rows.extend(self.rows.iter().map(|row| row.iter().map(cell).collect()));
        table(&rows)
    }
}
