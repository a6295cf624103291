//! The kernels that plans emit for devices of all kinds, without any device.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use polyad::plan::{
    DeviceCaps, DeviceKind, KernelSpec, Method, MttkrpPlan, PlanOptions, Precision, Reduction, TreePlan, UpdatePlan,
};
use polyad::{Dtype, Tree};
use std::collections::BTreeMap;

/// A kernel and how many storage buffers its dispatches bind.
pub struct Kernel {
    pub spec: KernelSpec,
    pub buffers: u32,
}

/// A GPU with f32 matrix units, as wgpu sees those of Apple.
pub fn apple() -> DeviceCaps {
    let mut caps = DeviceCaps::webgpu_minimum("Apple M1");
    caps.f32_matrix_units = true;
    caps.f32_atomics = true;
    caps.subgroup_size = 32;
    caps.max_workgroup_memory = 32768;
    caps
}

/// From the smallest that WebGPU allows to one with matrix units; features and limits that choose kernels, alone and
/// together.
pub fn devices() -> Vec<DeviceCaps> {
    let smallest = DeviceCaps::webgpu_minimum("smallest");
    let atomics = with(&smallest, "f32 atomics", |caps| caps.f32_atomics = true);
    let double = with(&smallest, "f64", |caps| caps.f64 = true);
    let all = with(&double, "f64 and all atomics", |caps| {
        (caps.f32_atomics, caps.u64_atomics) = (true, true);
        caps.max_workgroup_memory = 32768;
    });
    let units = with(&all, "f16 matrix units", |caps| {
        caps.f16_matrix_units = true;
        caps.subgroup_size = 32;
        caps.max_workgroup_memory = 49152;
        caps.max_workgroup_invocations = 1024;
        caps.kind = DeviceKind::DiscreteGpu;
    });
    let small_units = with(&units, "with 16 KiB", |caps| caps.max_workgroup_memory = 16384);
    let large_units = with(&units, "with 99 KiB", |caps| caps.max_workgroup_memory = 101_376);
    let software = with(&units, "in software", |caps| (caps.kind, caps.subgroup_size) = (DeviceKind::Software, 8));
    vec![smallest, atomics, double, all, units, small_units, large_units, software, apple()]
}

fn with(caps: &DeviceCaps, name: &str, change: impl FnOnce(&mut DeviceCaps)) -> DeviceCaps {
    let mut caps = caps.clone();
    caps.name = name.into();
    change(&mut caps);
    caps
}

/// Options that change kernels.
fn options(caps: &DeviceCaps) -> Vec<PlanOptions> {
    let dtypes = [Dtype::F32, Dtype::F64].into_iter().filter(|d| *d == Dtype::F32 || caps.f64);
    let of = |dtype| {
        let of = move |method| PlanOptions::default().method(method).dtype(dtype);
        let mut all: Vec<_> = Method::ALL.map(of).into();
        all.push(of(Method::Tile).tile(1));
        all.push(of(Method::Fused).precision(Precision::Fast));
        all.push(of(Method::Fused).reduction(Reduction::Atomics));
        all
    };
    dtypes.flat_map(of).collect()
}

/// All kernels of these devices, by name. What a device cannot do (f64 sums without 64-bit atomics) has none.
pub fn planned(devices: &[DeviceCaps]) -> BTreeMap<String, Kernel> {
    let mut all = BTreeMap::new();
    let mut keep = |spec: &KernelSpec, buffers: usize| {
        all.insert(spec.to_string(), Kernel { spec: spec.clone(), buffers: buffers as u32 });
        // f32 data summed in f64: plans that only CP-ALS makes.
        if spec.dtype == Dtype::F64
            && spec.atomic.is_none()
            && (spec.shader.contains("fused") || spec.shader == "reduce_partials")
        {
            let mut wide = spec.clone();
            wide.stored = Dtype::F32;
            all.insert(wide.to_string(), Kernel { spec: wide, buffers: buffers as u32 });
        }
    };
    let shapes = [
        &[7][..],
        &[4, 5],
        &[3, 4, 5],
        &[64, 40, 64],
        &[130, 33, 40],
        &[9, 20, 52],
        &[2, 3, 4, 5],
        &[70, 5, 64],
        &[6, 9, 8, 40],
        &[8, 8, 8, 8],
        &[2, 1, 2, 3, 1, 2, 2, 3],
    ];
    for caps in devices {
        // A product over three slabs.
        let cut = with(caps, "in slabs", |caps| caps.max_slab_bytes = 128 * 96 * 4);
        for (rank, options) in [17, 33, 130, 300]
            .into_iter()
            .flat_map(|rank| options(&cut).into_iter().map(move |options| (rank, options)))
        {
            let plan = TreePlan::new(&[290, 8, 12], rank, Tree::MultiSweep, None, &options, &cut).unwrap();
            plan.dispatches().for_each(|dispatch| keep(&dispatch.spec, dispatch.slots.len()));
        }
        for dims in shapes {
            let trees = [Tree::Two, Tree::MultiSweep].into_iter().flat_map(|tree| [1, 17, 33, 130].map(|r| (tree, r)));
            for ((tree, rank), options) in
                trees.flat_map(|t| options(caps).into_iter().map(move |options| (t, options)))
            {
                let plan = TreePlan::new(dims, rank, tree, None, &options, caps).unwrap();
                for dispatch in plan.dispatches() {
                    keep(&dispatch.spec, dispatch.slots.len());
                }
            }
            for (mode, rank) in (0..dims.len()).flat_map(|m| [1, 7, 16, 17, 33, 65, 130, 300].map(|rank| (m, rank))) {
                for options in options(caps) {
                    let Ok(plan) = MttkrpPlan::new(dims, mode, rank, &options, caps) else {
                        let adds = options.method == Method::Fused && options.reduction == Reduction::Atomics;
                        let adds = adds || matches!(options.method, Method::Elem | Method::Tile);
                        assert!(adds && options.dtype == Dtype::F64 && !caps.u64_atomics, "{options:?} on {caps:?}");
                        continue;
                    };
                    let update = caps.f64.then(|| UpdatePlan::new(&plan, caps).unwrap());
                    let update = update.iter().flat_map(|update| update.dispatches());
                    let fallback = plan.fallback().into_iter().flat_map(MttkrpPlan::dispatches);
                    for dispatch in plan.dispatches().iter().chain(fallback).chain(update) {
                        keep(&dispatch.spec, dispatch.slots.len());
                    }
                }
            }
        }
    }
    all
}

/// The module of a kernel.
pub fn parsed(name: &str, spec: &KernelSpec) -> naga::Module {
    let wgsl = spec.wgsl().unwrap_or_else(|e| panic!("{name}: {e}"));
    naga::front::wgsl::parse_str(&wgsl).unwrap_or_else(|e| panic!("{name}: {}", e.emit_to_string(&wgsl)))
}
