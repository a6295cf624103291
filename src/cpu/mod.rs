//! The CPU backend: rayon over the cores of this machine. `reference` is the definition that all kernels are tested
//! against.

mod elem;
mod fused;
mod gemm;
mod job;
pub mod reference;
mod simd;
mod slice;
mod tile;
mod tree;

pub(crate) use tree::CpuTree;

use crate::als::{AlsSteps, HostSteps};
use crate::error::show;
use crate::plan::{DeviceCaps, Method, MttkrpPlan, TreePlan, Walk};
use crate::{Backend, Error, MttkrpTime, Real, Result, Shape};
use job::Job;
use ndarray::{
    Array1, Array2, ArrayView, ArrayView1, ArrayView2, ArrayViewD, ArrayViewMut2, CowArray, Dimension, IxDyn,
};
use rayon::prelude::*;
use simd::Isa;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The CPU backend: rayon over this machine's cores, in vectors of AVX-512, AVX2 or NEON where there are any. The same
/// plan on the same number of threads gives the same bits; with FUSED, the default, and SLICE on any number.
///
/// ```
/// use ndarray::{array, Array2};
/// use polyad::{Backend, Cpu};
/// let x = array![[1.0f32, 2.0], [3.0, 4.0]];
/// let (a, b) = (array![[1.0f32], [10.0]], Array2::ones((2, 1)));
/// let g = Cpu::new().mttkrp(x.view().into_dyn(), &[a.view(), b.view()], 1).unwrap();
/// assert_eq!(g, array![[31.0], [42.0]]);
/// ```
#[derive(Debug, Clone)]
pub struct Cpu {
    caps: DeviceCaps,
    pool: Option<Arc<rayon::ThreadPool>>,
}

impl Cpu {
    /// Uses rayon's current pool.
    ///
    /// ```
    /// use polyad::{Backend, Cpu};
    /// assert!(Cpu::new().caps().threads >= 1);
    /// ```
    pub fn new() -> Self {
        Self { caps: DeviceCaps::cpu(rayon::current_num_threads()), pool: None }
    }

    /// The same, of whose memory CP-ALS may take that many bytes: it keeps products of the tensor
    /// ([`CpAlsOptions::tree`](crate::CpAlsOptions::tree)) only where everything fits. Nothing else depends on it.
    ///
    /// ```
    /// use polyad::{Backend, Cpu};
    /// assert_eq!(Cpu::new().with_memory_budget(1 << 20).caps().memory, Some(1 << 20));
    /// ```
    pub fn with_memory_budget(&self, bytes: u64) -> Self {
        let memory = self.caps.memory.map_or(bytes, |memory| memory.min(bytes));
        Self { caps: DeviceCaps { memory: Some(memory), ..self.caps.clone() }, pool: self.pool.clone() }
    }

    /// Runs its kernels in a pool of its own with that many threads; clones share the pool. Work that is not the
    /// backend's, such as the small dense solves of CP-ALS, stays in rayon's current pool.
    ///
    /// # Errors
    /// [`Error::Option`] for zero threads, or where the system gives no threads.
    ///
    /// ```
    /// use polyad::{Backend, Cpu};
    /// assert_eq!(Cpu::with_threads(2).unwrap().caps().threads, 2);
    /// assert!(Cpu::with_threads(0).is_err());
    /// ```
    pub fn with_threads(threads: usize) -> Result<Self> {
        let refused = |requirement| Error::Option { name: "threads", value: threads.to_string(), requirement };
        if threads == 0 {
            return Err(refused("at least one is needed".into()));
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map_err(|e| refused(format!("the threads could not be started: {e}")))?;
        Ok(Self { caps: DeviceCaps::cpu(threads), pool: Some(Arc::new(pool)) })
    }

    fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }
}

impl Default for Cpu {
    fn default() -> Self {
        Self::new()
    }
}

/// Factors and weights held by the CPU backend.
///
/// ```
/// use ndarray::Array2;
/// use polyad::{Backend, Cpu, CpuFactors};
/// let a = Array2::<f32>::ones((3, 2));
/// let factors: CpuFactors<f32> = Cpu::new().upload_factors(None, &[a.view()]).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct CpuFactors<T> {
    weights: Array1<T>,
    factors: Vec<Array2<T>>,
}

impl Backend for Cpu {
    type Tensor<'a, T: Real> = CowArray<'a, T, IxDyn>;
    type Factors<T: Real> = CpuFactors<T>;

    fn name(&self) -> String {
        self.caps.name.clone()
    }

    fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    fn upload_tensor<'a, T: Real, D: Dimension>(&self, x: ArrayView<'a, T, D>) -> Result<Self::Tensor<'a, T>> {
        Shape::new(x.shape())?;
        if x.is_standard_layout() {
            return Ok(CowArray::from(x.into_dyn()));
        }
        Ok(CowArray::from(x.into_dyn().as_standard_layout().into_owned()))
    }

    fn upload_factors<T: Real>(
        &self,
        weights: Option<ArrayView1<'_, T>>,
        factors: &[ArrayView2<'_, T>],
    ) -> Result<Self::Factors<T>> {
        let dims: Vec<usize> = factors.iter().map(|f| f.nrows()).collect();
        let sizes: Vec<_> = factors.iter().map(|f| f.dim()).collect();
        let rank = Shape::new(&dims)?.check_factors(&sizes, weights.map(|w| w.len()))?;
        if let Some((r, v)) = weights.iter().flatten().enumerate().find(|(_, v)| !v.is_finite()) {
            return Err(Error::NonFinite { what: "the weights".into(), index: vec![r], value: v.f64() });
        }
        for (mode, &factor) in factors.iter().enumerate() {
            check_finite(mode, factor)?;
        }
        let weights = weights.map_or_else(|| Array1::ones(rank), |w| w.to_owned());
        let factors = factors.iter().map(|f| f.as_standard_layout().into_owned()).collect();
        Ok(CpuFactors { weights, factors })
    }

    fn set_factor<T: Real>(&self, u: &mut Self::Factors<T>, mode: usize, factor: ArrayView2<'_, T>) -> Result<()> {
        let order = u.factors.len();
        let held = u.factors.get_mut(mode).ok_or(Error::ModeOutOfRange { mode, order })?;
        if held.dim() != factor.dim() {
            return Err(Error::FactorShape { mode, expected: held.dim(), found: factor.dim() });
        }
        check_finite(mode, factor)?;
        held.assign(&factor);
        Ok(())
    }

    fn mttkrp_into<T: Real>(
        &self,
        plan: &MttkrpPlan,
        x: &Self::Tensor<'_, T>,
        u: &Self::Factors<T>,
        mut g: ArrayViewMut2<'_, T>,
    ) -> Result<MttkrpTime> {
        check(plan, x.shape(), u, g.dim())?;
        let start = Instant::now();
        // Both are in standard layout where this backend made them; a tensor that the caller made may not be.
        let x = x.as_standard_layout();
        let x = x.as_slice().ok_or_else(|| mismatch("the tensor is not contiguous"))?;
        let factors: Option<Vec<&[T]>> = u.factors.iter().map(|f| f.as_slice()).collect();
        let job = Job::new(plan, x, factors.ok_or_else(|| mismatch("a factor is not contiguous"))?);
        let weights: Vec<T> = u.weights.to_vec();
        // What is too little work for a second thread is done on this one: to wake another takes longer.
        let alone = plan.walk().is_some_and(Walk::alone) && g.len() <= SERIAL;
        let work = |g: &mut [T]| run(plan, &job, &weights, g);
        let run = |g: &mut [T]| if alone { work(g) } else { self.install(|| work(g)) };
        match g.as_slice_mut() {
            Some(g) => run(g)?,
            None => {
                let mut dense = vec![T::zero(); g.len()];
                run(&mut dense)?;
                g.iter_mut().zip(dense).for_each(|(to, from)| *to = from);
            }
        }
        Ok(MttkrpTime { compute: start.elapsed(), transfer: Duration::ZERO, fallback: false })
    }

    fn als_steps<'a, 'x: 'a, T: Real>(
        &'a self,
        plans: &'a [MttkrpPlan],
        tree: &'a TreePlan,
        x: &'a Self::Tensor<'x, T>,
        data: ArrayViewD<'a, T>,
        factors: Vec<Array2<T>>,
    ) -> Result<Box<dyn AlsSteps<T> + 'a>> {
        let made = CpuTree::new(self, tree, x, factors.first().map_or(0, |f| f.ncols()));
        Ok(Box::new(HostSteps::new(self, plans, x, data, factors, "on the host".into())?.with_tree(tree, made)))
    }
}

/// Most entries of a result that one thread finishes.
const SERIAL: usize = 1 << 14;

/// The kernel of the method, then the weights and the check that all of G is finite.
fn run<T: Real>(plan: &MttkrpPlan, job: &Job<'_, T>, weights: &[T], g: &mut [T]) -> Result<()> {
    if !plan.walk().is_some_and(Walk::once) {
        g.fill(T::zero());
    }
    let isa = Isa::best::<T>(job.rank);
    match plan.method() {
        // Without another mode the product is empty: G[i, r] = weights[r] X[i], whatever the method.
        _ if job.shape.order() == 1 => g.chunks_mut(job.rank).zip(job.x).for_each(|(row, &x)| row.fill(x)),
        Method::Elem => elem::elem(job, isa, g),
        Method::Slice => slice::slice(job, isa, g),
        Method::Tile => tile::tile(job, isa, g),
        Method::Gemm => gemm::gemm(job, g)?,
        // A plan is never Auto.
        Method::Auto | Method::Fused => match plan.walk() {
            Some(walk) => fused::fused(job, walk, isa, g),
            None => gemm::gemm(job, g)?,
        },
    }
    // Unit weights, as in CP-ALS, are not worth another pass that writes.
    let unit = weights.iter().all(|&w| w == <T as num_traits::One>::one());
    let finish = |(i, row): (usize, &mut [T])| {
        if !unit {
            row.iter_mut().zip(weights).for_each(|(g, &w)| *g *= w);
        }
        if row.iter().fold(true, |finite, v| finite & v.is_finite()) {
            return None;
        }
        row.iter().position(|v| !v.is_finite()).map(|r| vec![i, r])
    };
    let bad = if g.len() <= SERIAL {
        g.chunks_mut(job.rank).enumerate().find_map(finish)
    } else {
        g.par_chunks_mut(job.rank).enumerate().find_map_first(finish)
    };
    match bad {
        Some(index) => {
            Err(Error::Overflow { what: format!("MTTKRP of mode {}", job.mode), dtype: T::DTYPE.name(), index })
        }
        None => Ok(()),
    }
}

fn mismatch(reason: impl Into<String>) -> Error {
    Error::PlanMismatch { reason: reason.into() }
}

/// The plan against everything it is used with.
fn check<T: Real>(plan: &MttkrpPlan, dims: &[usize], u: &CpuFactors<T>, g: (usize, usize)) -> Result<()> {
    if plan.dtype() != T::DTYPE {
        let (expected, found) = (plan.dtype().name(), T::DTYPE.name());
        return Err(Error::DtypeMismatch { what: "the plan", expected, found });
    }
    if plan.shape().dims() != dims {
        return Err(mismatch(format!("it is for dims {}, the tensor has {}", show(plan.shape()), show(dims))));
    }
    let rows: Vec<usize> = u.factors.iter().map(|f| f.nrows()).collect();
    if rows != dims {
        return Err(mismatch(format!("it is for dims {}, the factors have {} rows", show(dims), show(&rows))));
    }
    if plan.rank() != u.weights.len() {
        return Err(mismatch(format!("it is for rank {}, the factors have {}", plan.rank(), u.weights.len())));
    }
    let expected = (plan.shape().rows(plan.mode()), plan.rank());
    if g != expected {
        return Err(Error::OutputShape { expected, found: g });
    }
    Ok(())
}

fn check_finite<T: Real>(mode: usize, factor: ArrayView2<'_, T>) -> Result<()> {
    // In most cases all are, which is quicker to see without an index.
    if factor.iter().fold(true, |finite, v| finite & v.is_finite()) {
        return Ok(());
    }
    match factor.indexed_iter().find(|(_, v)| !v.is_finite()) {
        Some(((i, r), v)) => {
            Err(Error::NonFinite { what: format!("factor {mode}"), index: vec![i, r], value: v.f64() })
        }
        None => Ok(()),
    }
}
