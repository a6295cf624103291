//! What a plan is made of: which kernel, with which constants, on which buffers, over which grid.

mod params;

pub use params::{
    EntryParams, FusedParams, GemmParams, KhatriRaoParams, MultiTtvParams, MultiplySumParams, Params, PerMode,
    ReduceParams, UpdateParams,
};

use crate::Dtype;
use std::fmt;

/// How kernels that share output entries add to them.
///
/// ```
/// assert_eq!(polyad::plan::AtomicAdd::F32.shader(), "atomic_add_f32");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AtomicAdd {
    /// The adapter's own f32 atomic addition.
    F32,
    /// A compare-exchange loop on 32-bit words.
    CompareExchange32,
    /// A compare-exchange loop on 64-bit words.
    CompareExchange64,
}

impl AtomicAdd {
    /// The shader file (without `.wgsl`) that is put in front of the kernel.
    pub fn shader(self) -> &'static str {
        match self {
            Self::F32 => "atomic_add_f32",
            Self::CompareExchange32 => "atomic_add_cas32",
            Self::CompareExchange64 => "atomic_add_cas64",
        }
    }
}

/// One specialised kernel: the plan's output, the pipeline cache's key and the pipeline's label.
///
/// ```
/// use polyad::{plan::{DeviceCaps, KernelSpec}, Dtype};
/// let spec = KernelSpec::new("khatri_rao", Dtype::F32, None, &[("WG", 64)]);
/// assert_eq!(spec.to_string(), "khatri_rao f32 WG=64");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct KernelSpec {
    /// File name under `shaders/`, without `.wgsl`.
    pub shader: &'static str,
    /// Element type of sums and results.
    pub dtype: Dtype,
    /// Element type of the tensor and the factors, where a kernel tells them apart: f32 data may be summed in f64.
    pub stored: Dtype,
    /// How it adds to shared output entries, if it has to.
    pub atomic: Option<AtomicAdd>,
    /// The numbers put into its `// @spec` lines.
    pub consts: Vec<(&'static str, u32)>,
}

impl KernelSpec {
    /// A specification.
    pub fn new(shader: &'static str, dtype: Dtype, atomic: Option<AtomicAdd>, consts: &[(&'static str, u32)]) -> Self {
        Self { shader, dtype, stored: dtype, atomic, consts: consts.to_vec() }
    }

    /// With tensor and factors in another element type than sums.
    pub(super) fn stored(mut self, dtype: Dtype) -> Self {
        self.stored = dtype;
        self
    }
}

impl fmt::Display for KernelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.shader, self.dtype)?;
        if self.stored != self.dtype {
            write!(f, " of {}", self.stored)?;
        }
        if let Some(atomic) = self.atomic {
            write!(f, " {}", atomic.shader())?;
        }
        self.consts.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

/// A buffer that a dispatch binds.
///
/// ```
/// assert_ne!(polyad::plan::Slot::X(0), polyad::plan::Slot::X(1));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Slot {
    /// A slab of the tensor.
    X(usize),
    /// Factor rows and, in the last row, the weights, of one block of columns.
    Factors(usize),
    /// The result's columns of one block.
    G(usize),
    /// Scratch: Khatri-Rao rows that a matrix product reads.
    KhatriRao,
    /// Scratch: the one-sided product of a middle mode (GEMM, 0 only), pieces of the result (FUSED by partial results, one
    /// for each slab that is in work at the same time).
    Partial(usize),
    /// Scratch: Khatri-Rao rows of the other side of a middle mode.
    Outer,
    /// Scratch: a matrix product's pieces of a long sum (GEMM).
    Pieces,
    /// The product of a slab, or of several, with the factors of some modes, kept for the others ([`TreePlan`](super::TreePlan)), or some of its
    /// columns where all exceed a binding.
    Tree(usize),
    /// A root F of the inverse of the normal equations, `R x R` in f64 ([`UpdatePlan`](super::UpdatePlan) from here on).
    Root,
    /// Scratch: `G F` in f64.
    Product,
    /// Scratch: the solution `G F F^T` in f64.
    Solution,
    /// Scratch: sums over pieces of the solution's and the factor's columns.
    ColumnSums,
    /// Scratch: pieces of a gram.
    GramPieces,
    /// The grams of all modes in f64, and for every column its norm before it was scaled, its share of the inner product
    /// with the tensor, its largest and its mean magnitude.
    State,
}

/// One dispatch of a plan.
///
/// ```
/// use polyad::plan::{DeviceCaps, Method, MttkrpPlan, PlanOptions};
/// # let mut caps = polyad::plan::DeviceCaps::webgpu_minimum("test");
/// let plan = MttkrpPlan::new(&[4, 5, 6], 0, 2, &PlanOptions::default().method(Method::Slice), &caps).unwrap();
/// assert_eq!(plan.dispatches()[0].spec.shader, "mttkrp_slice");
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Dispatch {
    /// The kernel.
    pub spec: KernelSpec,
    /// Its parameters, bound at 0.
    pub params: Params,
    /// Storage buffers at bindings 1, 2, ..; the last one is written.
    pub slots: Vec<Slot>,
    /// Workgroups along x, y and z.
    pub grid: [u32; 3],
    /// The slab that it works on, or that it makes something for. Those of one slab do not need those of a later one, so that
    /// slabs may come one after the other, whatever the order of dispatches; only products kept of a tensor on the device may be of
    /// several.
    pub slab: usize,
}
