//! A plan as text.

use super::{Method, MttkrpPlan};
use std::fmt;

impl fmt::Display for MttkrpPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims = crate::error::show(&self.shape);
        writeln!(f, "MTTKRP of mode {} of {dims} at rank {}, {}", self.mode, self.rank, self.dtype)?;
        writeln!(f, "method {}: {}", self.method, self.reason)?;
        match &self.walk {
            Some(walk) => writeln!(f, "{walk}")?,
            None if self.method == Method::Tile => {
                writeln!(f, "tile {}, column block {}", self.tile, self.column_block)?
            }
            None => writeln!(f, "column block {}", self.column_block)?,
        }
        if !self.dispatches.is_empty() {
            let (slabs, blocks, count) = (self.slabs.len(), self.columns.len() - 1, self.dispatches.len());
            writeln!(f, "{slabs} slabs, {blocks} blocks of columns, {count} dispatches")?;
            let bound = self.scratch_bound.map_or(String::new(), |bound| format!(", for this shape at most {bound}"));
            writeln!(f, "scratch {} bytes{bound}", self.total_scratch_bytes())?;
            writeln!(f, "first kernel {}, grid {:?}", self.dispatches[0].spec, self.dispatches[0].grid)?;
        }
        if let Some(s) = &self.streaming {
            writeln!(f, "streams {} slabs of at most {} bytes, {} bytes in all", s.slabs, s.slab_bytes, s.pass_bytes)?;
        }
        self.warnings.iter().try_for_each(|w| writeln!(f, "warning: {w}"))
    }
}
