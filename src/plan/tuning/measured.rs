//! Tiles of FUSED that were measured on one machine and take the place of the table's, and what every tile has to be.

use super::super::DeviceCaps;
#[cfg(feature = "gpu")]
use super::super::DeviceKind;
use super::{DEFAULT_GROUPS, FLUSH};
use crate::{Dtype, Error, Result};
use std::fmt;

/// The fused kernels that have tiles to choose.
///
/// ```
/// assert_eq!(polyad::plan::TileKernel::CoopFast.name(), "coop_fast");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "gpu", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum TileKernel {
    /// f16 matrix units, three products for the accuracy of f32.
    CoopFloat32,
    /// f16 matrix units, one product.
    CoopFast,
    /// Register tiles in f32.
    RegistersF32,
    /// Register tiles in f64.
    RegistersF64,
}

impl TileKernel {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::CoopFloat32, Self::CoopFast, Self::RegistersF32, Self::RegistersF64];

    /// Its word in a tuning file.
    pub fn name(self) -> &'static str {
        match self {
            Self::CoopFloat32 => "coop_float32",
            Self::CoopFast => "coop_fast",
            Self::RegistersF32 => "registers_f32",
            Self::RegistersF64 => "registers_f64",
        }
    }

    /// Whether it works on f16 matrix units.
    pub fn on_matrix_units(self) -> bool {
        matches!(self, Self::CoopFloat32 | Self::CoopFast)
    }

    /// Element type of the tensor.
    pub fn dtype(self) -> Dtype {
        if self == Self::RegistersF64 { Dtype::F64 } else { Dtype::F32 }
    }
}

/// Along what X is contiguous.
///
/// ```
/// assert_eq!(polyad::plan::TileLayout::Cols.name(), "cols");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "gpu", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum TileLayout {
    /// The reduction: every mode but the last.
    Rows,
    /// The mode itself: the last one.
    Cols,
}

impl TileLayout {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Rows, Self::Cols];

    /// Its word in a tuning file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Cols => "cols",
        }
    }
}

/// Classes of ranks (columns of a block) that share a tile.
///
/// ```
/// use polyad::plan::TileColumns;
/// assert_eq!((TileColumns::of(40), TileColumns::of(65)), (TileColumns::UpTo64, TileColumns::More));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "gpu", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum TileColumns {
    /// At most 16.
    #[cfg_attr(feature = "gpu", serde(rename = "1-16"))]
    UpTo16,
    /// 17 to 32.
    #[cfg_attr(feature = "gpu", serde(rename = "17-32"))]
    UpTo32,
    /// 33 to 64.
    #[cfg_attr(feature = "gpu", serde(rename = "33-64"))]
    UpTo64,
    /// 65 and more.
    #[cfg_attr(feature = "gpu", serde(rename = "65-"))]
    More,
}

impl TileColumns {
    /// All of them, ascending.
    pub const ALL: [Self; 4] = [Self::UpTo16, Self::UpTo32, Self::UpTo64, Self::More];

    /// The class of that many columns.
    pub fn of(columns: usize) -> Self {
        match columns {
            0..=16 => Self::UpTo16,
            17..=32 => Self::UpTo32,
            33..=64 => Self::UpTo64,
            _ => Self::More,
        }
    }

    /// Its word in a tuning file.
    pub fn name(self) -> &'static str {
        match self {
            Self::UpTo16 => "1-16",
            Self::UpTo32 => "17-32",
            Self::UpTo64 => "33-64",
            Self::More => "65-",
        }
    }
}

/// A tile: rows, columns and reduction of a workgroup, how it is shared out, and the workgroups wanted.
///
/// ```
/// use polyad::plan::Tile;
/// assert_eq!(Tile::new([64, 32, 16, 4, 4], 1056).to_string(), "64x32x16, 4x4, 1056 groups");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "gpu", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Tile {
    /// Rows.
    pub bm: u32,
    /// Columns.
    pub bn: u32,
    /// Length of a step along the reduction.
    pub bk: u32,
    /// Along the rows: subgroups on matrix units, rows of an invocation in registers.
    pub m: u32,
    /// The same along the columns.
    pub n: u32,
    /// Workgroups wanted: the reduction is split into pieces until there are about so many.
    pub groups: u32,
    /// k between roundings of what a matrix unit sums, 0 for none; register tiles have no use for it.
    #[cfg_attr(feature = "gpu", serde(default))]
    pub flush: u32,
}

impl Tile {
    /// From `[bm, bn, bk, m, n]` and the workgroups wanted; no roundings.
    pub fn new([bm, bn, bk, m, n]: [u32; 5], groups: u32) -> Self {
        Self { bm, bn, bk, m, n, groups, flush: 0 }
    }

    /// With roundings of what a matrix unit sums.
    ///
    /// ```
    /// assert_eq!(polyad::plan::Tile::new([64, 32, 16, 2, 2], 9).flush(512).to_string(), "64x32x16, 2x2, 9 groups, flush 512");
    /// ```
    pub fn flush(mut self, k: u32) -> Self {
        self.flush = k;
        self
    }

    /// Without the groups, as the table has it.
    pub(super) fn blocks(self) -> (u32, u32, u32, u32, u32, u32) {
        (self.bm, self.bn, self.bk, self.m, self.n, self.flush)
    }
}

impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bm, bn, bk, m, n, groups, flush } = self;
        write!(f, "{bm}x{bn}x{bk}, {m}x{n}, {groups} groups")?;
        if *flush > 0 { write!(f, ", flush {flush}") } else { Ok(()) }
    }
}

/// A tile and where it is used.
///
/// ```
/// use polyad::plan::{Tile, TileChoice, TileColumns, TileKernel, TileLayout, DeviceCaps};
/// let tile = Tile::new([64, 32, 16, 4, 4], 1056);
/// let choice = TileChoice::new(TileKernel::RegistersF32, TileLayout::Rows, TileColumns::UpTo32, tile);
/// assert!(choice.check(&DeviceCaps::webgpu_minimum("any GPU")).is_ok());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "gpu", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct TileChoice {
    /// The kernel.
    pub kernel: TileKernel,
    /// Its layout of X.
    pub layout: TileLayout,
    /// Columns of a block.
    pub columns: TileColumns,
    /// The tile.
    pub tile: Tile,
}

/// Rows and columns of a fragment.
const FRAGMENT: u32 = 16;

/// Most workgroups wanted: each may have a tile of scratch.
const MAX_GROUPS: u32 = 8 * DEFAULT_GROUPS;

impl TileChoice {
    /// A choice, not yet checked.
    pub fn new(kernel: TileKernel, layout: TileLayout, columns: TileColumns, tile: Tile) -> Self {
        Self { kernel, layout, columns, tile }
    }

    /// What the kernels and the device ask of a tile.
    ///
    /// # Errors
    /// [`Error::Option`] with the tile and the first rule that it breaks.
    ///
    /// ```
    /// use polyad::plan::{Tile, TileChoice, TileColumns, TileKernel, TileLayout, DeviceCaps};
    /// let tile = Tile::new([64, 32, 15, 4, 4], 1056);
    /// let choice = TileChoice::new(TileKernel::RegistersF32, TileLayout::Rows, TileColumns::UpTo32, tile);
    /// let error = choice.check(&DeviceCaps::webgpu_minimum("any GPU")).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "tile is 64x32x15, 4x4, 1056 groups (registers_f32 rows 17-32): the reduction must be a multiple of 4"
    /// );
    /// ```
    pub fn check(&self, caps: &DeviceCaps) -> Result<()> {
        self.broken_rule(caps).map_or(Ok(()), |requirement| {
            let Self { kernel, layout, columns, tile } = self;
            let value = format!("{tile} ({} {} {})", kernel.name(), layout.name(), columns.name());
            Err(Error::Option { name: "tile", value, requirement })
        })
    }

    fn broken_rule(&self, caps: &DeviceCaps) -> Option<String> {
        let Tile { bm, bn, bk, m, n, groups, flush } = self.tile;
        let rule = |holds: bool, text: &str| (!holds).then(|| text.to_owned());
        if [bm, bn, bk, m, n].iter().any(|v| !(1..=1024).contains(v)) || !(1..=MAX_GROUPS).contains(&groups) {
            return Some(format!("sizes must be 1 to 1024 and groups 1 to {MAX_GROUPS}"));
        }
        let cols = self.layout == TileLayout::Cols;
        let (step, group, bytes);
        if self.kernel.on_matrix_units() {
            let (rows, columns) = (m * FRAGMENT, n * FRAGMENT);
            let whole = bm.is_multiple_of(rows) && bn.is_multiple_of(columns);
            // More do not stay in registers.
            if !whole || bm / rows * (bn / columns) > 16 {
                return Some("a subgroup must have whole fragments of 16x16, at most 16 of them".into());
            }
            // What a matrix unit sums is truncated: the float32 bound counts on a rounding every 512 k at least.
            let flushes = flush <= FLUSH && flush.is_multiple_of(bk) && (flush / bk).is_power_of_two();
            if !flushes && (self.kernel == TileKernel::CoopFloat32 || flush > 0) {
                return Some(format!(
                    "flush must be {bk} times a power of two, up to {FLUSH}, or 0 where precision is fast"
                ));
            }
            // Rows are 8 halves longer than they are, and the arrays of low parts 8 where they are not used.
            let x = if cols { bk * (bm + 8) } else { bm * (bk + 8) };
            let split = if self.kernel == TileKernel::CoopFloat32 { 2 } else { 1 };
            (step, group) = (FRAGMENT, m * n * caps.subgroup_size);
            bytes = 2 * ((x + bk * (bn + 8)) * split + 32);
        } else {
            let registers = m * n * self.kernel.dtype().bytes() as u32 / 4;
            if !(m.is_multiple_of(4) && n.is_multiple_of(4) && registers <= 64) {
                return Some("an invocation must have multiples of 4 by 4, in at most 64 registers".into());
            }
            if !(bm.is_multiple_of(m) && bn.is_multiple_of(n)) {
                return Some("rows and columns must be multiples of an invocation's".into());
            }
            (step, group) = (4, (bm / m) * (bn / n));
            let x = if cols { bk * bm } else { bm * (bk + 4) };
            bytes = (x + bk * bn) * self.kernel.dtype().bytes() as u32;
        }
        rule(bk.is_multiple_of(step), &format!("the reduction must be a multiple of {step}")).or_else(|| {
            if group == 0 || group > caps.max_workgroup_invocations {
                return Some(format!("{group} invocations, and the device has {}", caps.max_workgroup_invocations));
            }
            if bytes > caps.max_workgroup_memory {
                return Some(format!(
                    "{bytes} bytes of workgroup memory, the device has {}",
                    caps.max_workgroup_memory
                ));
            }
            let shared = |rows: u32| (rows * bk / 4).is_multiple_of(group);
            // An invocation stays in one column of vec4s.
            let columns = |n: u32| n.is_multiple_of(4) && group.is_multiple_of(n / 4);
            let aligned = columns(bn) && (!cols || columns(bm));
            rule(shared(bm) && shared(bn) && aligned, &format!("its vec4s must be whole shares of {group} invocations"))
        })
    }
}

/// Tiles measured on one machine, from a file. [`DeviceCaps`] carries them; where there is one for a kernel and a rank, a
/// plan takes it instead of the built-in one and says so.
///
/// ```
/// use polyad::plan::{DeviceCaps, MttkrpPlan, PlanOptions, Tile, TileChoice, TileColumns, TileKernel, TileLayout, Tuning};
/// let mut caps = DeviceCaps::webgpu_minimum("any GPU");
/// let tile = Tile::new([32, 32, 16, 4, 4], 64);
/// let choice = TileChoice::new(TileKernel::RegistersF32, TileLayout::Rows, TileColumns::UpTo32, tile);
/// caps.tuning = Some(Tuning::new("mine.json", vec![choice], &caps)?);
/// let plan = MttkrpPlan::new(&[100, 100, 100], 0, 32, &PlanOptions::default(), &caps)?;
/// assert!(plan.dispatches()[0].spec.consts.contains(&("BM", 32)));
/// assert_eq!(plan.tuning(), Some("mine.json"));
/// # Ok::<(), polyad::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tuning {
    name: String,
    choices: Vec<TileChoice>,
}

impl Tuning {
    /// Tiles for a device, under a name (the file's) that plans print.
    ///
    /// # Errors
    /// As [`TileChoice::check`], for the first choice that the kernels or the device do not allow.
    pub fn new(name: &str, choices: Vec<TileChoice>, caps: &DeviceCaps) -> Result<Self> {
        choices.iter().try_for_each(|choice| choice.check(caps))?;
        Ok(Self { name: name.into(), choices })
    }

    /// The name it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it holds.
    pub fn choices(&self) -> &[TileChoice] {
        &self.choices
    }
}

/// The measured tile for that many columns, if the device has one and is still the device that it is for.
pub(super) fn tile(caps: &DeviceCaps, kernel: TileKernel, cols: bool, width: usize) -> Option<Tile> {
    let layout = if cols { TileLayout::Cols } else { TileLayout::Rows };
    let columns = TileColumns::of(width);
    let found =
        caps.tuning.as_ref()?.choices.iter().find(|c| (c.kernel, c.layout, c.columns) == (kernel, layout, columns));
    found.filter(|choice| choice.check(caps).is_ok()).map(|choice| choice.tile)
}

/// Every tile worth trying for a kernel: what the kernels and the device allow, without the plainly wasteful.
#[cfg(feature = "gpu")]
pub(crate) fn candidates(
    kernel: TileKernel,
    layout: TileLayout,
    columns: TileColumns,
    groups: u32,
    caps: &DeviceCaps,
) -> Vec<Tile> {
    let widths: &[u32] = match columns {
        TileColumns::UpTo16 => &[16],
        TileColumns::UpTo32 => &[32],
        TileColumns::UpTo64 => &[32, 64],
        TileColumns::More => &[64, 128, 256],
    };
    let shares: &[u32] = if kernel.on_matrix_units() { &[1, 2, 4, 8] } else { &[4, 8] };
    // A software driver compiles large tiles for minutes.
    let rows: &[u32] = if caps.kind == DeviceKind::Software { &[32, 64] } else { &[32, 64, 128, 256] };
    let mut all = Vec::new();
    for (&bm, &bn) in rows.iter().flat_map(|bm| widths.iter().map(move |bn| (bm, bn))) {
        for bk in [16, 32, 64] {
            for (&m, &n) in shares.iter().flat_map(|m| shares.iter().map(move |n| (m, n))) {
                let flush = match (kernel, columns) {
                    // Short sums cost registers only.
                    (TileKernel::CoopFloat32, TileColumns::UpTo16) => bk,
                    (TileKernel::CoopFloat32, _) => FLUSH,
                    // A second sum of large tiles does not fit the registers.
                    (TileKernel::CoopFast, _) if bm * bn / (m * n) > 2048 => 0,
                    (TileKernel::CoopFast, _) => FLUSH,
                    _ => 0,
                };
                let tile = Tile::new([bm, bn, bk, m, n], groups).flush(flush);
                // Less than two subgroups leave a compute unit's schedulers idle.
                let few = kernel.on_matrix_units() && m * n < 2 || !kernel.on_matrix_units() && bm / m * (bn / n) < 64;
                if !few && TileChoice::new(kernel, layout, columns, tile).check(caps).is_ok() {
                    all.push(tile);
                }
            }
        }
    }
    all
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::super::super::{Method, MttkrpPlan, PlanOptions, Precision};
    use super::*;
    use naga::valid::{Capabilities, ValidationFlags, Validator};

    fn devices() -> [DeviceCaps; 3] {
        let mut large = DeviceCaps::webgpu_minimum("large");
        (large.f16_matrix_units, large.f64, large.subgroup_size) = (true, true, 32);
        (large.max_workgroup_memory, large.max_workgroup_invocations) = (49152, 1024);
        let mut software = DeviceCaps { max_workgroup_memory: 32768, subgroup_size: 8, ..large.clone() };
        software.kind = DeviceKind::Software;
        [DeviceCaps::webgpu_minimum("smallest"), large, software]
    }

    fn plan(choice: TileChoice, rank: usize, caps: &DeviceCaps) -> MttkrpPlan {
        let precision = if choice.kernel == TileKernel::CoopFast { Precision::Fast } else { Precision::Float32 };
        let options = PlanOptions::default().method(Method::Fused).precision(precision).dtype(choice.kernel.dtype());
        let units = caps.f16_matrix_units && choice.kernel.on_matrix_units();
        let caps = DeviceCaps { f16_matrix_units: units, ..caps.clone() };
        MttkrpPlan::new(&[128; 3], if choice.layout == TileLayout::Cols { 2 } else { 0 }, rank, &options, &caps)
            .unwrap()
    }

    fn regimes(caps: &DeviceCaps) -> Vec<TileChoice> {
        let mut all = Vec::new();
        for kernel in TileKernel::ALL {
            let there = if kernel.on_matrix_units() { caps.f16_matrix_units } else { true };
            if there && (kernel.dtype() == Dtype::F32 || caps.f64) {
                for layout in TileLayout::ALL {
                    let tile = Tile::new([0; 5], 0);
                    all.extend(TileColumns::ALL.map(|columns| TileChoice::new(kernel, layout, columns, tile)));
                }
            }
        }
        all
    }

    fn rank(columns: TileColumns) -> usize {
        [16, 32, 64, 200][TileColumns::ALL.iter().position(|c| *c == columns).unwrap()]
    }

    /// The rules hold for what the table gives, so that they do not forbid more than they have to.
    #[test]
    fn built_in_tiles_keep_the_rules() {
        let mut checked = 0;
        for caps in devices() {
            for regime in regimes(&caps) {
                let plan = plan(regime, rank(regime.columns), &caps);
                let consts = &plan.dispatches()[0].spec.consts;
                let get = |name| consts.iter().find(|(known, _)| *known == name).map(|&(_, value)| value);
                let (m, n) = if regime.kernel.on_matrix_units() { ("SM", "SN") } else { ("TM", "TN") };
                let Some([bm, bn, bk, m, n]) =
                    get("BM").zip(get(n)).and_then(|(bm, n)| Some([bm, get("BN")?, get("BK")?, get(m)?, n]))
                else {
                    continue;
                };
                let tile = Tile::new([bm, bn, bk, m, n], DEFAULT_GROUPS).flush(get("FLUSH").unwrap_or(0));
                let choice = TileChoice { tile, ..regime };
                choice.check(&caps).unwrap();
                assert!(plan.tuning().is_none());
                checked += 1;
            }
        }
        assert!(checked >= 30, "{checked}");
    }

    /// What the tuner tries compiles, and is what the plan takes.
    #[test]
    fn candidates_are_valid_kernels() {
        let mut count = 0;
        for caps in devices() {
            for regime in regimes(&caps) {
                // Register tiles are for more than 16 columns.
                if !regime.kernel.on_matrix_units() && regime.columns == TileColumns::UpTo16 {
                    continue;
                }
                let all = candidates(regime.kernel, regime.layout, regime.columns, DEFAULT_GROUPS, &caps);
                assert!(!all.is_empty(), "{regime:?}");
                for tile in all.into_iter().step_by(5) {
                    let choice = TileChoice { tile, ..regime };
                    let tuning = Some(Tuning::new("test", vec![choice], &caps).unwrap());
                    let plan = plan(choice, rank(regime.columns), &DeviceCaps { tuning, ..caps.clone() });
                    assert_eq!(plan.tuning(), Some("test"), "{choice:?}");
                    let wgsl = plan.dispatches()[0].spec.wgsl().unwrap();
                    let module = naga::front::wgsl::parse_str(&wgsl).unwrap();
                    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
                    validator.validate(&module).unwrap_or_else(|e| panic!("{choice:?}: {e:?}"));
                    count += 1;
                }
            }
        }
        println!("{count} candidates");
        assert!(count > 60);
    }
}
