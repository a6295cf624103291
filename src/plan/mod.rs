//! Plans: pure arithmetic that decides everything about an MTTKRP before a device is touched.

mod caps;
mod options;

pub use caps::{DeviceCaps, DeviceKind};
pub use options::{Method, PlanOptions};

use crate::{Result, Shape};

/// How one MTTKRP will be computed on one device.
#[derive(Debug, Clone, PartialEq)]
pub struct MttkrpPlan {
    shape: Shape,
    mode: usize,
    rank: usize,
    options: PlanOptions,
}

impl MttkrpPlan {
    /// Plans.
    ///
    /// # Errors
    /// Shapes, modes and limits.
    pub fn new(dims: &[usize], mode: usize, rank: usize, options: &PlanOptions, _caps: &DeviceCaps) -> Result<Self> {
        let shape = Shape::new(dims)?;
        shape.check_mode(mode)?;
        Ok(Self { shape, mode, rank, options: options.clone() })
    }

    /// The tensor's shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The mode whose factor the result updates.
    pub fn mode(&self) -> usize {
        self.mode
    }

    /// R.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The method, resolved: never `Auto`.
    pub fn method(&self) -> Method {
        self.options.method
    }

    /// The element type.
    pub fn dtype(&self) -> crate::Dtype {
        self.options.dtype
    }

    /// Tile width tau.
    pub fn tile(&self) -> usize {
        self.options.tile.unwrap_or(8)
    }

    /// Column block F.
    pub fn column_block(&self) -> usize {
        self.options.column_block.unwrap_or(32)
    }

    /// Why this method.
    pub fn reason(&self) -> &str {
        ""
    }

    /// What the user should know.
    pub fn warnings(&self) -> &[String] {
        &[]
    }
}
