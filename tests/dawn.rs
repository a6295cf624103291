//! What a second WGSL front end is given: every kernel in standard WGSL, and a few MTTKRPs with their results. Written into the
//! folder of `POLYAD_DAWN_DIR` for `tests/dawn.mjs`, which runs them; `tests/dawn.sh` does both.
#![cfg(all(feature = "gpu", feature = "cli"))]

mod common {
    #[path = "mod.rs"]
    pub mod compare;
    pub mod kernels;
}

use common::compare::{Numbers, Reference};
use common::kernels::{devices, planned};
use ndarray::Array2;
use polyad::Dtype;
use polyad::plan::{AtomicAdd, DeviceCaps, KernelSpec, Method, MttkrpPlan, PlanOptions, Slot, column_stride};
use serde_json::{Value, json};

/// Whether a kernel needs nothing that WGSL does not have: no f64, no atomic f32 addition, no matrix units.
fn standard(spec: &KernelSpec) -> bool {
    let double = spec.dtype == Dtype::F64 || spec.stored == Dtype::F64 || spec.shader.starts_with("als_");
    let atomic = matches!(spec.atomic, None | Some(AtomicAdd::CompareExchange32));
    !double && atomic && !spec.shader.starts_with("fused_coop")
}

/// An MTTKRP as buffers and dispatches, and what has to come out.
fn case(dims: &[usize], mode: usize, rank: usize, method: Method) -> Value {
    let caps = DeviceCaps::webgpu_minimum("a browser");
    let plan = MttkrpPlan::new(dims, mode, rank, &PlanOptions::default().method(method), &caps).unwrap();
    let mut numbers = Numbers::new(rank as u64);
    let x = numbers.tensor::<f32>(dims);
    let factors: Vec<Array2<f32>> = dims.iter().map(|&d| numbers.matrix(d, rank)).collect();
    let weights = numbers.vector::<f32>(rank);
    let views: Vec<_> = factors.iter().map(|f| f.view()).collect();
    let reference = Reference::new(x.view(), Some(weights.view()), &views, mode);
    let (own, its) = ((plan.chain() as usize + dims.len() + 1) as f64, (reference.chain + dims.len() + 1) as f64);
    let eps = own * f64::from(f32::EPSILON) + its * f64::EPSILON;
    let stride = column_stride(rank);
    // Factors, then a row of weights and two of scales for each mode, which these kernels do not read.
    let mut rows = Vec::new();
    let all = factors.iter().flat_map(|f| f.outer_iter().map(|row| row.to_owned()));
    for row in all.chain([weights.clone()]) {
        rows.extend(row.iter().copied().chain(std::iter::repeat_n(0.0, stride - rank)));
    }
    rows.resize(rows.len() + 2 * dims.len() * stride, 0.0);
    let slot = |slot: &Slot| format!("{slot:?}");
    let scratch = [Slot::KhatriRao, Slot::Partial(0), Slot::Outer, Slot::Pieces];
    let scratch = scratch.iter().map(|s| (slot(s), json!({"bytes": plan.scratch_bytes(*s)})));
    let buffers: serde_json::Map<String, Value> = [
        (slot(&Slot::X(0)), json!({"f32": x.iter().collect::<Vec<_>>()})),
        (slot(&Slot::Factors(0)), json!({"f32": rows})),
        (slot(&Slot::G(0)), json!({"bytes": dims[mode] * stride * 4})),
    ]
    .into_iter()
    .chain(scratch)
    .collect();
    let dispatches: Vec<Value> = plan
        .dispatches()
        .iter()
        .map(|d| {
            let slots: Vec<_> = d.slots.iter().map(slot).collect();
            json!({"wgsl": d.spec.wgsl().unwrap(), "params": d.params.bytes(), "slots": slots, "grid": d.grid})
        })
        .collect();
    json!({
        "name": format!("{method} of {dims:?}, mode {mode}, rank {rank}: {}", plan.dispatches()[0].spec),
        "buffers": buffers, "dispatches": dispatches, "rank": rank, "stride": stride,
        "expected": reference.g.iter().collect::<Vec<_>>(),
        "bound": reference.scale.iter().map(|scale| eps * scale).collect::<Vec<_>>(),
    })
}

#[test]
fn what_dawn_is_given() {
    let kernels: Vec<Value> = planned(&devices())
        .into_iter()
        .filter(|(_, kernel)| standard(&kernel.spec))
        .map(|(name, kernel)| json!({"name": name, "wgsl": kernel.spec.wgsl().unwrap()}))
        .collect();
    assert!(kernels.len() > 100, "{}", kernels.len());
    let mut cases = Vec::new();
    for method in [Method::Fused, Method::Tile, Method::Gemm, Method::Slice, Method::Elem] {
        for mode in 0..3 {
            cases.push(case(&[30, 21, 16], mode, 7, method));
        }
    }
    cases.extend((0..3).map(|mode| case(&[40, 36, 64], mode, 40, Method::Fused)));
    cases.extend((0..3).map(|mode| case(&[13, 20, 24], mode, 3, Method::Fused)));
    cases.push(case(&[9, 8, 7, 11], 1, 20, Method::Fused));
    println!("{} kernels, {} MTTKRPs", kernels.len(), cases.len());
    let Ok(folder) = std::env::var("POLYAD_DAWN_DIR") else { return };
    let given = json!({"kernels": kernels, "cases": cases});
    std::fs::write(std::path::Path::new(&folder).join("given.json"), given.to_string()).unwrap();
}
