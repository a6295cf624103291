//! The table of shader files and the one way to specialise them.

use super::unroll::unroll;
use crate::plan::KernelSpec;
use crate::{Error, Result};

macro_rules! shaders {
    ($($name:literal),* $(,)?) => {
        /// Every file under `shaders/`, by name without `.wgsl`.
        pub(crate) const SHADERS: &[(&str, &str)] = &[$(($name, include_str!(concat!("../../shaders/", $name, ".wgsl")))),*];
    };
}

shaders![
    "als_column_sum",
    "als_columns",
    "als_gram",
    "als_gram_sum",
    "als_norm",
    "als_normalize",
    "als_norms",
    "als_params",
    "als_product",
    "als_scales",
    "atomic_add_cas32",
    "atomic_add_cas64",
    "atomic_add_f32",
    "fused_add",
    "fused_cols",
    "fused_coop8_cols",
    "fused_coop8_rows",
    "fused_coop_cols",
    "fused_coop_halves",
    "fused_coop_products",
    "fused_coop_rows",
    "fused_group",
    "fused_held_rows",
    "fused_load_cols",
    "fused_load_rows",
    "fused_load_slabs",
    "fused_next",
    "fused_operand",
    "fused_params",
    "fused_place",
    "fused_rows",
    "fused_small_cols",
    "fused_small_rows",
    "fused_start",
    "fused_store",
    "fused_stream_rows",
    "gemm",
    "khatri_rao",
    "mttkrp_elem",
    "mttkrp_slice",
    "mttkrp_tile",
    "multi_ttv",
    "multiply_sum",
    "reduce_partials",
];

fn source(name: &str) -> Result<&'static str> {
    let found = SHADERS.iter().find(|(known, _)| *known == name);
    found.map(|(_, text)| *text).ok_or_else(|| broken(name, "there is no such file"))
}

fn broken(shader: &str, reason: &str) -> Error {
    Error::Gpu { during: format!("specialising shader {shader}"), message: reason.into() }
}

impl KernelSpec {
    /// The WGSL of this kernel: its file with the numbers of its `// @spec` lines and its element type replaced and its
    /// `// @unroll` loops unrolled, behind the file of its atomic addition and before those its `//! With` line names, or
    /// around them where a line says `// @insert NAME`.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the file is unknown, if a constant has no `// @spec` line, or if a line gets no constant.
    ///
    /// ```
    /// use polyad::{plan::KernelSpec, Dtype};
    /// let wgsl = KernelSpec::new("khatri_rao", Dtype::F64, None, &[("WG", 128)]).wgsl().unwrap();
    /// assert!(wgsl.contains("const WG: u32 = 128u;") && wgsl.contains("alias Real = f64;"));
    /// assert!(KernelSpec::new("khatri_rao", Dtype::F64, None, &[("BM", 128)]).wgsl().is_err());
    /// ```
    pub fn wgsl(&self) -> Result<String> {
        let mut out = String::new();
        if let Some(atomic) = self.atomic {
            push_code(&mut out, source(atomic.shader())?);
        }
        let main = source(self.shader)?;
        let mut body = String::new();
        for line in main.lines() {
            match line.split_once("// @insert ") {
                Some((indentation, part)) => push_indented(&mut body, source(part)?, indentation),
                None => push_indented(&mut body, line, ""),
            }
        }
        // Order does not matter at module scope, but `enable` has to come first: the other parts go behind.
        for part in self.parts(main).filter(|part| !main.contains(&format!("// @insert {part}\n"))) {
            push_code(&mut body, source(part)?);
        }
        let mut used = 0;
        for line in body.lines() {
            match line.split_once(" // @spec") {
                Some((code, _)) if code.starts_with("alias Real = ") => {
                    out.push_str(&format!("alias Real = {};\n", self.dtype));
                }
                Some((code, _)) if code.starts_with("alias Stored = ") => {
                    out.push_str(&format!("alias Stored = {};\n", self.stored));
                }
                Some((code, _)) => {
                    let name = code.strip_prefix("const ").and_then(|c| c.split_once(':')).map(|(name, _)| name);
                    let name = name.ok_or_else(|| broken(self.shader, &format!("cannot read {line:?}")))?;
                    let value = self.consts.iter().find(|(known, _)| *known == name);
                    let (_, value) = value.ok_or_else(|| broken(self.shader, &format!("{name} was not given")))?;
                    used += 1;
                    out.push_str(&format!("const {name}: u32 = {value}u;\n"));
                }
                None => {
                    out.push_str(line);
                    out.push('\n');
                }
            }
        }
        if used != self.consts.len() {
            return Err(broken(self.shader, &format!("it has no line for some of {:?}", self.consts)));
        }
        unroll(&out).map_err(|reason| broken(self.shader, &reason))
    }

    /// The files that a shader's `//! With` line names: code that several kernels share. Of `A or B` the second is for
    /// kernels that add to the result atomically, `A if NAME` is for those whose constant of that name is not 0.
    fn parts<'a>(&self, text: &'a str) -> impl Iterator<Item = &'a str> {
        let line = text.lines().find_map(|line| line.strip_prefix("//! With "));
        let parts = line.into_iter().flat_map(|line| line.split(',').map(str::trim));
        parts.filter_map(move |part| match (part.split_once(" or "), part.split_once(" if ")) {
            (Some((plain, adding)), _) => Some(if self.atomic.is_some() { adding } else { plain }),
            (None, Some((part, name))) => {
                self.consts.iter().any(|&(known, value)| known == name && value > 0).then_some(part)
            }
            (None, None) => Some(part),
        })
    }
}

/// Everything but the `//!` header, which only reads well at the top of a file.
fn push_code(out: &mut String, text: &str) {
    push_indented(out, text, "");
}

fn push_indented(out: &mut String, text: &str, indentation: &str) {
    for line in text.lines().filter(|line| !line.starts_with("//!")) {
        out.push_str(indentation);
        out.push_str(line);
        out.push('\n');
    }
}
