//! Dispatches of ELEM, SLICE and TILE.

use super::kernel::{AtomicAdd, Dispatch, EntryParams, KernelSpec, Params, PerMode, Slot};
use super::memory::{Slab, column_stride};
use super::{DeviceCaps, DeviceKind, Method, Problem, fold_grid, tile_width, tuning};
use crate::{Dtype, Error, Result};
use std::fmt::Display;

/// Blocks of an entry-wise method, resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Blocks {
    /// Tau, at most the largest dim of the other modes.
    pub tile: usize,
    /// F.
    pub columns: usize,
    /// Groups in a workgroup (ELEM, SLICE), entry lanes of a group (TILE).
    pub lanes: usize,
}

/// Resolves tau and F. A tau that was not asked for is chosen on GPUs (`tile_width`), from a table on CPUs. When the factor
/// rows of one that was asked for exceed workgroup memory F shrinks first, then tau, with a warning.
pub(super) fn blocks(problem: &Problem, method: Method, caps: &DeviceCaps, warnings: &mut Vec<String>) -> Blocks {
    let table = tuning::entrywise(caps);
    let options = problem.options;
    let order = problem.shape.order();
    let largest = problem.other_modes().map(|m| problem.shape.rows(m)).max().unwrap_or(1);
    let on_cpu = caps.kind == DeviceKind::Cpu;
    let asked = options.tile.unwrap_or_else(|| if on_cpu { tuning::cpu_tile(order) } else { 1 });
    let mut tile = asked.min(largest);
    let most = if caps.threads > 1 || table.workgroup == 1 { usize::MAX } else { table.workgroup };
    let width = problem.columns.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(1);
    let default = width.min(table.column_block).next_power_of_two().min(table.column_block);
    let mut columns = options.column_block.map_or(default, |f| f.min(width)).min(most);
    let entry_lanes = |columns: usize, tile: usize| {
        let outer = tile.saturating_pow(order.saturating_sub(2) as u32);
        let lanes = (table.workgroup / columns).clamp(1, outer.max(1));
        if method == Method::Tile { 1 << lanes.ilog2() } else { (table.workgroup / columns).max(1) }
    };
    if method == Method::Tile && table.workgroup > 1 {
        let words = caps.max_workgroup_memory as usize / problem.dtype().bytes() as usize;
        let fits = |columns: usize, tile: usize| {
            let rows = order.saturating_sub(1).max(1).saturating_mul(tile);
            rows.saturating_mul(columns).saturating_add(columns * entry_lanes(columns, tile)) <= words
        };
        if options.tile.is_none() {
            tile = tile_width::choose(problem, columns, |tau| entry_lanes(columns, tau), |tau| fits(columns, tau));
        }
        while columns > 1 && !fits(columns, tile) {
            columns = columns.div_ceil(2);
        }
        if !fits(columns, tile) {
            while !fits(columns, tile) {
                tile -= 1;
            }
            let memory = caps.max_workgroup_memory;
            warnings
                .push(format!("tile width {asked} does not fit {memory} bytes of workgroup memory: {tile} is used"));
        }
    }
    Blocks { tile, columns, lanes: entry_lanes(columns, tile) }
}

/// The atomic addition that ELEM, TILE and FUSED without partial results need.
pub(super) fn atomic(dtype: Dtype, what: impl Display, caps: &DeviceCaps) -> Result<AtomicAdd> {
    match dtype {
        Dtype::F32 if caps.f32_atomics => Ok(AtomicAdd::F32),
        Dtype::F32 => Ok(AtomicAdd::CompareExchange32),
        Dtype::F64 if caps.u64_atomics => Ok(AtomicAdd::CompareExchange64),
        Dtype::F64 => Err(Error::MissingFeature {
            adapter: caps.name.clone(),
            feature: "SHADER_INT64_ATOMIC_ALL_OPS",
            needed_for: format!("{what} in f64"),
        }),
    }
}

/// All dispatches of an entry-wise method.
pub(super) fn dispatches(
    problem: &Problem,
    method: Method,
    blocks: Blocks,
    caps: &DeviceCaps,
    slabs: &[Slab],
) -> Result<Vec<Dispatch>> {
    let order = problem.shape.order() as u32;
    let (columns, lanes) = (blocks.columns as u32, blocks.lanes as u32);
    let mut consts = vec![("ORDER", order), ("F", columns)];
    let shader = match method {
        Method::Elem => {
            consts.push(("WG", columns * lanes));
            "mttkrp_elem"
        }
        Method::Slice => {
            consts.push(("WG", columns * lanes));
            "mttkrp_slice"
        }
        _ => {
            consts.extend([("LANES", lanes), ("TAU", blocks.tile as u32)]);
            "mttkrp_tile"
        }
    };
    let adds = (method != Method::Slice).then(|| atomic(problem.dtype(), format_args!("method {method}"), caps));
    let spec = KernelSpec::new(shader, problem.dtype(), adds.transpose()?, &consts);
    let mut all = Vec::with_capacity(slabs.len() * (problem.columns.len() - 1));
    for (block, ends) in problem.columns.windows(2).enumerate() {
        let width = ends[1] - ends[0];
        for (index, slab) in slabs.iter().enumerate() {
            let tiles = tiles(problem, blocks.tile, slab);
            let (groups, per_workgroup) = match method {
                Method::Elem => (slab.len(), blocks.lanes),
                Method::Slice => (slab.dims[problem.mode], blocks.lanes),
                _ => (tiles.iter().map(|&t| t as usize).product(), 1),
            };
            let [x, y] = fold_grid(groups.div_ceil(per_workgroup) as u64, caps)?;
            let z = width.div_ceil(blocks.columns) as u32;
            if z > caps.max_workgroups_per_dim {
                return Err(Error::LimitTooSmall {
                    limit: "max_compute_workgroups_per_dimension",
                    what: format!("{width} columns in blocks of {}", blocks.columns),
                    needed: u64::from(z),
                    available: u64::from(caps.max_workgroups_per_dim),
                });
            }
            let params = EntryParams {
                mode: problem.mode as u32,
                rank: width as u32,
                weights_row: problem.weights_row(),
                g_row0: slab.offsets[problem.mode] as u32,
                count: groups as u32,
                grid_x: x,
                stride: column_stride(width) as u32,
                group0: 0,
                dims: per_mode(slab.dims.iter().map(|&d| d as u32)),
                strides: strides(slab),
                row0: problem.row0(slab),
                tiles,
            };
            all.push(Dispatch {
                spec: spec.clone(),
                params: Params::Entry(params),
                slots: vec![Slot::X(index), Slot::Factors(block), Slot::G(block)],
                grid: [x, y, z],
                slab: index,
            });
        }
    }
    Ok(all)
}

/// The longest chain of additions into one entry of the result (see the headers of the kernels, Order).
pub(super) fn chain(problem: &Problem, method: Method, blocks: Blocks, slabs: usize) -> u64 {
    let shape = problem.shape;
    let slice = (shape.len() / shape.rows(problem.mode)) as u64;
    let inner_mode = problem.other_modes().next_back();
    let inner = inner_mode.map_or(1, |m| shape.rows(m)) as u64;
    match method {
        Method::Slice => inner + slice / inner + slabs as u64,
        Method::Tile => {
            let tau = blocks.tile as u64;
            let tiles: u64 = problem.other_modes().map(|m| shape.rows(m).div_ceil(blocks.tile) as u64).product();
            let rows: u64 = problem
                .other_modes()
                .filter(|&m| Some(m) != inner_mode)
                .map(|m| tau.min(shape.rows(m) as u64))
                .product();
            // Each slab may cut a tile of its own.
            tau.min(inner) + rows.div_ceil(blocks.lanes as u64) + blocks.lanes as u64 + tiles + slabs as u64
        }
        _ => slice,
    }
}

fn tiles(problem: &Problem, tau: usize, slab: &Slab) -> PerMode {
    per_mode(slab.dims.iter().enumerate().map(|(m, &d)| {
        let width = if m == problem.mode { 1 } else { tau };
        d.div_ceil(width) as u32
    }))
}

fn strides(slab: &Slab) -> PerMode {
    let dims = &slab.dims;
    per_mode((0..dims.len()).map(|m| dims[m + 1..].iter().product::<usize>() as u32))
}

/// Spreads per-mode numbers over the eight of a uniform; unused modes read 1.
pub(super) fn per_mode(values: impl Iterator<Item = u32>) -> PerMode {
    let mut all = [1; crate::MAX_ORDER];
    for (slot, value) in all.iter_mut().zip(values) {
        *slot = value;
    }
    all
}
