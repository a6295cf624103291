//! Every shader file against what its header says, by naga, without a GPU.
#![cfg(feature = "gpu")]

mod common {
    pub mod kernels;
}

use common::kernels::{Kernel, apple, devices, parsed, planned};
use naga::valid::{Capabilities, ValidationFlags, Validator};
use polyad::Dtype;
use polyad::plan::{
    AtomicAdd, EntryParams, FusedParams, GemmParams, KernelSpec, KhatriRaoParams, Method, MttkrpPlan, MultiTtvParams,
    MultiplySumParams, PlanOptions, ReduceParams, UpdateParams,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("shaders")
}

/// Files by name without `.wgsl`.
fn files() -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(folder()).unwrap().map(|e| e.unwrap().path());
    let read = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read_to_string(path).unwrap())
    };
    entries.filter(|p| p.extension().is_some_and(|e| e == "wgsl")).map(read).collect()
}

/// Header lines by their first word; the first line is under "".
fn header(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().map_while(|line| line.strip_prefix("//! "));
    let mut fields = BTreeMap::new();
    for (index, line) in lines.enumerate() {
        let (word, rest) = line.split_once(' ').unwrap();
        let word = if index == 0 { "" } else { word };
        fields.insert(word.to_owned(), if index == 0 { line.to_owned() } else { rest.trim().to_owned() });
    }
    fields
}

fn is_front(name: &str) -> bool {
    name.starts_with("atomic_add")
}

/// Files that only mean something behind the kernels whose `With` line names them; `A or B` is two, `A if NAME` one.
fn parts(text: &str) -> Vec<String> {
    let name = |part: &str| part.split(" if ").next().unwrap_or_default().to_owned();
    let names = |line: &String| line.split(", ").flat_map(|part| part.split(" or ")).map(name).collect();
    header(text).get("With").map_or(Vec::new(), names)
}

/// The file as it lies with the files it names; entry-wise kernels that add atomically get the f32 file in front. A
/// kernel that may add atomically, but need not, does not.
fn parse(name: &str, files: &BTreeMap<String, String>) -> naga::Module {
    let mut text = files[name].clone();
    if text.contains("g_add(") {
        text = format!("{}\n{text}", files["atomic_add_f32"]);
    }
    for part in parts(&files[name]).iter().filter(|part| *part != "fused_add") {
        let line = format!("// @insert {part}\n");
        if text.contains(&line) {
            text = text.replace(&line, &files[part].replace("//!", "//"));
        } else {
            text = format!("{text}\n{}", files[part]);
        }
    }
    naga::front::wgsl::parse_str(&text).unwrap_or_else(|e| panic!("{name}: {}", e.emit_to_string(&text)))
}

fn validate(module: &naga::Module, what: &str) -> naga::valid::ModuleInfo {
    let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
    validator.validate(module).unwrap_or_else(|e| panic!("{what}: {e:?}"))
}

/// `index name access` of a module's bindings; access is uniform, read or read_write.
fn bindings(module: &naga::Module) -> BTreeSet<(u32, String, &'static str)> {
    let all = module.global_variables.iter().filter_map(|(_, v)| {
        let access = match v.space {
            naga::AddressSpace::Uniform => "uniform",
            naga::AddressSpace::Storage { access } if access.contains(naga::StorageAccess::STORE) => "read_write",
            naga::AddressSpace::Storage { .. } => "read",
            _ => return None,
        };
        Some((v.binding?.binding, v.name.clone()?, access))
    });
    all.collect()
}

/// The same from a header: `0 p uniform EntryParams | 1 x read Real [..] | ..`.
fn declared(line: &str) -> BTreeSet<(u32, String, &'static str)> {
    let one = |part: &str| {
        let mut words = part.split([' ', ',']).filter(|w| !w.is_empty());
        let index = words.next().unwrap().parse().unwrap();
        let name = words.next().unwrap().to_owned();
        let access = ["uniform", "read", "read_write"].into_iter().find(|a| Some(*a) == words.clone().next());
        (index, name, access.unwrap_or_else(|| panic!("no access in {part:?}")))
    };
    line.split(" | ").map(one).collect()
}

#[test]
fn headers_say_what_the_modules_are() {
    let files = files();
    assert!(files.len() >= 9);
    for (name, text) in &files {
        let fields = header(text);
        assert!(fields[""].starts_with(&format!("{name} - ")), "{name}: first line");
        for word in ["Computes", "Bindings", "Spec", "Grid", "Order", "Twin", "Reference"] {
            assert!(fields.get(word).is_some_and(|f| !f.is_empty()), "{name}: no {word}");
        }
        if is_front(name) || files.values().any(|text| parts(text).contains(name)) {
            continue;
        }
        let module = parse(name, &files);
        validate(&module, name);
        assert_eq!(bindings(&module), declared(&fields["Bindings"]), "{name}: bindings");
        let constants = text.lines().filter(|l| l.starts_with("const ") && l.ends_with("// @spec"));
        for line in constants {
            let constant = line["const ".len()..].split(':').next().unwrap();
            let said = fields["Spec"].split([' ', ',', ';']).any(|word| word == constant);
            assert!(said, "{name}: {constant} is not in the Spec line");
        }
        for path in [&fields["Twin"], &fields["Grid"]] {
            if let Some(path) = path.split_whitespace().find(|w| w.starts_with("src/")) {
                assert!(folder().parent().unwrap().join(path).exists(), "{name}: {path} does not exist");
            }
        }
        assert_eq!(module.entry_points.len(), 1, "{name}: one entry point");
        assert_eq!(module.entry_points[0].name, "main", "{name}");
    }
}

/// The check above can fail: a binding that the header does not have is seen.
#[test]
fn a_wrong_header_is_noticed() {
    let files = files();
    let module = parse("gemm", &files);
    let line = header(&files["gemm"])["Bindings"].replace("2 b read ", "2 b read_write ");
    assert_ne!(bindings(&module), declared(&line));
}

/// Parameter blocks have one size on both sides.
#[test]
fn parameter_blocks_match() {
    let files = files();
    let sizes = [
        ("mttkrp_elem", "EntryParams", size_of::<EntryParams>()),
        ("mttkrp_slice", "EntryParams", size_of::<EntryParams>()),
        ("mttkrp_tile", "EntryParams", size_of::<EntryParams>()),
        ("khatri_rao", "KhatriRaoParams", size_of::<KhatriRaoParams>()),
        ("gemm", "GemmParams", size_of::<GemmParams>()),
        ("multiply_sum", "MultiplySumParams", size_of::<MultiplySumParams>()),
        ("fused_cols", "FusedParams", size_of::<FusedParams>()),
        ("fused_rows", "FusedParams", size_of::<FusedParams>()),
        ("fused_small_cols", "FusedParams", size_of::<FusedParams>()),
        ("fused_small_rows", "FusedParams", size_of::<FusedParams>()),
        ("fused_stream_rows", "FusedParams", size_of::<FusedParams>()),
        ("fused_held_rows", "FusedParams", size_of::<FusedParams>()),
        ("fused_coop_rows", "FusedParams", size_of::<FusedParams>()),
        ("fused_coop_cols", "FusedParams", size_of::<FusedParams>()),
        ("fused_coop8_rows", "FusedParams", size_of::<FusedParams>()),
        ("fused_coop8_cols", "FusedParams", size_of::<FusedParams>()),
        ("multi_ttv", "MultiTtvParams", size_of::<MultiTtvParams>()),
        ("reduce_partials", "ReduceParams", size_of::<ReduceParams>()),
        ("als_product", "UpdateParams", size_of::<UpdateParams>()),
    ];
    for (file, name, size) in sizes {
        assert_eq!(struct_size(&parse(file, &files), name), size, "{file}: {name}");
    }
}

fn struct_size(module: &naga::Module, name: &str) -> usize {
    let (_, ty) = module.types.iter().find(|(_, t)| t.name.as_deref() == Some(name)).unwrap();
    let naga::TypeInner::Struct { span, .. } = ty.inner else { panic!("{name} is no struct") };
    span as usize
}

/// The check above can fail: a block with one more number is seen.
#[test]
fn a_longer_parameter_block_is_noticed() {
    let text = files()["gemm"].replace("struct GemmParams {", "struct GemmParams {\n    more: u32,");
    let module = naga::front::wgsl::parse_str(&text).unwrap();
    assert_ne!(struct_size(&module, "GemmParams"), size_of::<GemmParams>());
}

/// Every kernel that plans emit is valid WGSL once specialised, and binds what the plan hands it: the parameters, then
/// one buffer after the other, of which the last is written.
#[test]
fn every_kernel_of_a_plan_is_valid() {
    let all = planned(&devices());
    for (name, Kernel { spec, buffers }) in &all {
        let module = parsed(name, spec);
        validate(&module, name);
        let found: Vec<_> = bindings(&module).into_iter().map(|(index, _, access)| (index, access)).collect();
        let expected = (0..=*buffers).map(|index| match index {
            0 => (0, "uniform"),
            last if last == *buffers => (last, "read_write"),
            index => (index, "read"),
        });
        assert!(found.iter().all(|found| expected.clone().any(|e| e == *found)), "{name}: {found:?}");
        assert_eq!(found.last().unwrap().0, *buffers, "{name}");
    }
    let adding = all.values().filter(|kernel| kernel.spec.shader.starts_with("fused") && kernel.spec.atomic.is_some());
    // Four are what a device is asked for when it is opened; only a kernel that reads several slabs has more, where it can.
    let most = |several: bool| {
        let kernels = all
            .values()
            .filter(|kernel| kernel.spec.consts.iter().any(|&(name, n)| name == "MORE" && n > 0) == several);
        kernels.map(|kernel| kernel.buffers).max()
    };
    assert_eq!((most(false), most(true)), (Some(4), Some(6)));
    println!("{} kernels, {} of FUSED by atomics", all.len(), adding.clone().count());
    assert!(all.len() > 200 && adding.count() > 20);
}

/// The kernels on f32 matrix units, which no machine of the tests has, in Metal's language: fragments of 8x8 floats,
/// loaded by pointers to floats, since a pointer to vectors would be an error of types there.
#[test]
fn kernels_on_f32_matrix_units_translate_to_metal() {
    use naga::back::msl;
    let mut shaders = BTreeSet::new();
    for (mode, rank, dims) in
        [(0, 16, [64, 40, 12]), (2, 16, [64, 40, 12]), (1, 40, [9, 33, 40]), (2, 100, [31, 20, 50])]
    {
        let options = PlanOptions::default().method(Method::Fused);
        let plan = MttkrpPlan::new(&dims, mode, rank, &options, &apple()).unwrap();
        assert!(plan.reason().contains("on f32 matrix units") && plan.fallback().is_none(), "{plan}");
        let spec = &plan.dispatches()[0].spec;
        shaders.insert(spec.shader);
        let module = parsed(spec.shader, spec);
        let info = validate(&module, spec.shader);
        let options = msl::Options { lang_version: (2, 4), fake_missing_bindings: true, ..Default::default() };
        let (text, _) = msl::write_string(&module, &info, &options, &msl::PipelineOptions::default()).unwrap();
        let load = "metal::simdgroup_float8x8 NagaCooperativeLoad(const threadgroup float* ptr, int stride,";
        assert_eq!(text.matches(load).count(), 1, "{text}");
        assert!(text.contains("simdgroup_multiply_accumulate(d,a,b,c)"), "{text}");
        let constant = |name| spec.consts.iter().find(|(known, _)| *known == name).unwrap().1 as usize;
        let fragments = constant("BM") * constant("BN") / constant("SM") / constant("SN") / 64;
        assert_eq!(text.matches("simdgroup_store(").count(), fragments, "{text}");
        assert_eq!(text.matches("NagaCooperativeMultiplyAdd(").count(), 1 + fragments * constant("BK") / 8, "{text}");
    }
    assert_eq!(shaders, BTreeSet::from(["fused_coop8_cols", "fused_coop8_rows"]));
}

/// wgpu does not look at it, other implementations and drivers refuse.
#[test]
fn workgroup_memory_stays_within_the_limit() {
    let mut failures = Vec::new();
    for caps in devices() {
        let mut most = 0;
        for (name, kernel) in planned(std::slice::from_ref(&caps)) {
            let module = parsed(&name, &kernel.spec);
            let shared = module.global_variables.iter().filter(|(_, v)| v.space == naga::AddressSpace::WorkGroup);
            let bytes = |(_, v): (_, &naga::GlobalVariable)| {
                module.types[v.ty].inner.size(module.to_ctx()).next_multiple_of(16)
            };
            let bytes = shared.map(bytes).sum::<u32>();
            most = most.max(bytes);
            if bytes > caps.max_workgroup_memory {
                failures.push(format!("{name}: {bytes} of {} bytes on {}", caps.max_workgroup_memory, caps.name));
            }
        }
        println!("{}: at most {most} of {} bytes", caps.name, caps.max_workgroup_memory);
    }
    assert!(failures.is_empty(), "{}:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn an_unknown_constant_is_an_error() {
    let spec = KernelSpec::new("mttkrp_elem", Dtype::F32, Some(AtomicAdd::F32), &[("ORDER", 3), ("F", 4)]);
    assert!(spec.wgsl().unwrap_err().to_string().contains("WG was not given"));
    assert!(KernelSpec::new("mttkrp_none", Dtype::F32, None, &[]).wgsl().is_err());
}
