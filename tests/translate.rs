//! Every kernel that plans emit, in the languages of the backends: SPIR-V, Metal's and HLSL, by naga, without a GPU.
#![cfg(feature = "gpu")]

mod common {
    pub mod kernels;
}

use common::kernels::{devices, parsed, planned};
use naga::back::{hlsl, msl, spv};
use naga::valid::{Capabilities, ValidationFlags, Validator};
use polyad::Dtype;
use polyad::plan::{AtomicAdd, KernelSpec};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};

/// What naga and wgpu have for a backend of the features that kernels may need.
fn capabilities(target: &str) -> Capabilities {
    let f16_units = Capabilities::SHADER_FLOAT16 | Capabilities::COOPERATIVE_MATRIX;
    let double = Capabilities::FLOAT64 | Capabilities::SHADER_INT64 | Capabilities::SHADER_INT64_ATOMIC_ALL_OPS;
    match target {
        "spirv" => f16_units | double | Capabilities::SHADER_FLOAT32_ATOMIC,
        "msl" => f16_units | Capabilities::SHADER_FLOAT32_ATOMIC,
        "hlsl" => double | Capabilities::SHADER_FLOAT16,
        _ => unreachable!(),
    }
}

/// Those that replace a factor always compute in f64.
fn needs_f64(spec: &KernelSpec) -> bool {
    spec.dtype == Dtype::F64 || spec.stored == Dtype::F64 || spec.shader.starts_with("als_")
}

/// Whether a kernel is for that backend at all: plans emit no other for a device of it.
fn is_for(target: &str, spec: &KernelSpec) -> bool {
    let double = needs_f64(spec);
    let units = spec.shader.starts_with("fused_coop");
    match target {
        "spirv" => true,
        // Its matrix units are 8x8x8.
        "msl" => !double && (!units || spec.shader.starts_with("fused_coop8")),
        "hlsl" => !units && spec.atomic != Some(AtomicAdd::F32),
        _ => unreachable!(),
    }
}

/// The module, validated with what the target has and no more.
fn validated(target: &str, name: &str, spec: &KernelSpec) -> Result<(naga::Module, naga::valid::ModuleInfo), String> {
    let module = parsed(name, spec);
    let mut validator = Validator::new(ValidationFlags::all(), capabilities(target));
    let info = validator.validate(&module).map_err(|e| format!("{name} for {target}: {e:?}"))?;
    Ok((module, info))
}

/// Translates all kernels for a target; returns how many, and fails with all failures at once.
fn translate(
    target: &str,
    mut write: impl FnMut(&KernelSpec, &naga::Module, &naga::valid::ModuleInfo) -> Result<(), String>,
) -> usize {
    let (mut failures, mut count) = (Vec::new(), 0);
    for (name, kernel) in planned(&devices()) {
        let spec = &kernel.spec;
        if !is_for(target, spec) {
            continue;
        }
        count += 1;
        let written = validated(target, &name, spec)
            .and_then(|(module, info)| write(spec, &module, &info).map_err(|e| format!("{name} to {target}: {e}")));
        failures.extend(written.err());
    }
    assert!(failures.is_empty(), "{} of {count}:\n{}", failures.len(), failures.join("\n"));
    println!("{count} kernels to {target}");
    count
}

#[test]
fn to_metal() {
    let options = msl::Options { lang_version: (2, 4), fake_missing_bindings: true, ..Default::default() };
    let count = translate("msl", |_, module, info| {
        let text = msl::write_string(module, info, &options, &Default::default()).map_err(|e| e.to_string())?.0;
        if text.contains("kernel void") { Ok(()) } else { Err(format!("no kernel in {text}")) }
    });
    assert!(count > 100);
}

#[test]
fn to_hlsl() {
    let mut models = BTreeMap::new();
    let count = translate("hlsl", |spec, module, info| {
        // f32 as FXC takes it, which is what wgpu uses where there is no DXC; f64 and its atomics need a newer model.
        let (shader_model, name) =
            if needs_f64(spec) { (hlsl::ShaderModel::V6_6, "6.6") } else { (hlsl::ShaderModel::V5_1, "5.1") };
        *models.entry(name).or_insert(0) += 1;
        let options = hlsl::Options { shader_model, fake_missing_bindings: true, ..Default::default() };
        let mut text = String::new();
        let pipeline = hlsl::PipelineOptions::default();
        hlsl::Writer::new(&mut text, &options, &pipeline).write(module, info, None).map_err(|e| e.to_string())?;
        if text.contains("[numthreads(") { Ok(()) } else { Err(format!("no entry point in {text}")) }
    });
    println!("by shader model: {models:?}");
    assert!(count > 100 && models.len() == 2);
}

/// Also through spirv-val, where it is installed: standard kernels with the version's rules, those on matrix units only
/// where it knows them.
#[test]
fn to_spirv() {
    let tool = Command::new("spirv-val").arg("--version").output().ok();
    let version = tool.map(|output| String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or("").to_owned());
    println!("spirv-val: {}", version.as_deref().unwrap_or("not installed, not checked"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernel.spv");
    let mut checked = 0;
    let count = translate("spirv", |spec, module, info| {
        let units = spec.shader.starts_with("fused_coop");
        let options = spv::Options {
            lang_version: if units { (1, 6) } else { (1, 3) },
            fake_missing_bindings: true,
            force_loop_bounding: false,
            ..Default::default()
        };
        let words = spv::write_vec(module, info, &options, None).map_err(|e| e.to_string())?;
        // Debian's spirv-val may be older than the extension.
        if version.is_none() || units {
            return if words.first() == Some(&0x0723_0203) { Ok(()) } else { Err("no SPIR-V".into()) };
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        std::fs::write(&path, bytes).map_err(|e| e.to_string())?;
        let mut command = Command::new("spirv-val");
        let run = command.args(["--target-env", "vulkan1.1"]).arg(&path).stdin(Stdio::null());
        let output = run.output().map_err(|e| e.to_string())?;
        checked += 1;
        let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        if output.status.success() { Ok(()) } else { Err(said) }
    });
    println!("{checked} accepted by spirv-val");
    assert!(count > 100);
}

/// The checks above can fail: what a backend lacks is refused there, before any translation.
#[test]
fn what_a_backend_lacks_is_refused() {
    let mut refused = BTreeMap::new();
    for (name, kernel) in planned(&devices()) {
        for target in ["msl", "hlsl"] {
            let spec = &kernel.spec;
            let lacks = match target {
                "msl" => needs_f64(spec),
                _ => !is_for(target, spec),
            };
            if lacks {
                assert!(validated(target, &name, spec).is_err(), "{name} passed for {target}");
                *refused.entry(target).or_insert(0) += 1;
            }
        }
    }
    println!("refused: {refused:?}");
    assert_eq!(refused.len(), 2);
}
