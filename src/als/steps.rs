//! The steps of a sweep: MTTKRP, then a new factor from it. A device that can do all of it keeps the factors; for others
//! the host does the dense part.

use super::Seconds;
use super::normal_equations::{NormalEquations, gram, normalize, overflow};
use super::timed;
use super::wide::{self, inner};
use crate::cpu::CpuTree;
use crate::plan::{DeviceKind, MttkrpPlan, TreePlan};
use crate::{Backend, Dtype, Real, Result};
use ndarray::{Array1, Array2, ArrayView2, ArrayViewD};

/// The steps of a sweep on one tensor, mode after mode: `start`, `update`, `finish`. A device may return before its work
/// is done, and may be given the next mode's `start` before this mode's `finish`, so that it need not wait for the host.
pub trait AlsSteps<T: Real> {
    /// Starts the MTTKRP of a mode.
    fn start(&mut self, mode: usize) -> Result<()>;

    /// Whether f32 data can be summed in f64 in the MTTKRP of a mode.
    fn can_widen(&mut self, mode: usize) -> Result<bool>;

    /// Replaces the mode's factor by the solution of `A V = G`, columns scaled to unit 2-norm. `wide`: G is summed in f64
    /// and not rounded.
    fn update(&mut self, mode: usize, normal: &NormalEquations, wide: bool) -> Result<()>;

    /// Row stride of the root that `update` asks the normal equations for, if it does.
    fn root_stride(&self) -> Option<usize> {
        None
    }

    /// Waits for the last update and tells what came of it.
    fn finish(&mut self) -> Result<Updated>;

    /// The MTTKRP of a mode, brought to the host: for what the host does by itself between updates. One that was started
    /// is waited for, and stays there for an `update` of the mode, which will not count its passes again. `wide` as in
    /// `update`.
    fn product(&mut self, mode: usize, wide: bool) -> Result<Product>;

    /// Replaces a factor by one that the host has made.
    fn replace(&mut self, mode: usize, factor: ArrayView2<'_, T>) -> Result<()>;

    /// A copy of the factors as they are, between sweeps.
    fn snapshot(&mut self) -> Result<Vec<Array2<T>>>;

    /// The factors as they are. They may be moved out: nothing else comes after it.
    fn factors(&mut self) -> Result<Vec<Array2<T>>>;

    /// The group of modes of a tree whose product is at hand: what comes next depends on it.
    fn kept(&self) -> Option<usize>;

    /// Makes the product of this group, before anything else, once it serves a mode: what was at hand elsewhere.
    fn keep(&mut self, group: usize);

    /// Where the dense part is done, and why there.
    fn place(&self) -> &str;

    /// How MTTKRPs share passes over the tensor, and why so.
    fn tree(&self) -> String;
}

/// An MTTKRP on the host.
#[derive(Debug, Clone, Default)]
pub struct Product {
    /// `I x R`, finite.
    pub g: Array2<f64>,
    /// The MTTKRP's plan had to use its fallback.
    pub fallback: bool,
    /// Passes over the tensor that it took: 0 where a product at hand was enough.
    pub passes: usize,
    /// What it took.
    pub seconds: Seconds,
}

/// What came of replacing a factor.
#[derive(Debug, Clone, Default)]
pub struct Updated {
    /// The gram of the new factor as it is stored, in f64.
    pub gram: Array2<f64>,
    /// The norms that the columns had.
    pub norms: Array1<f64>,
    /// `sum_i G[i, r] A[i, r]`, with the new factor as it is stored.
    pub inner: Array1<f64>,
    /// The MTTKRP's plan had to use its fallback.
    pub fallback: bool,
    /// Passes over the tensor that it took: 0 where a product at hand was enough.
    pub passes: usize,
    /// What it took.
    pub seconds: Seconds,
}

/// The steps of a device that does MTTKRPs only: the rest on the host.
pub(crate) struct HostSteps<'a, 'x, B: Backend, T: Real> {
    backend: &'a B,
    plans: &'a [MttkrpPlan],
    x: &'a B::Tensor<'x, T>,
    /// The same on the host.
    data: ArrayViewD<'a, T>,
    u: B::Factors<T>,
    factors: Vec<Array2<T>>,
    g: Vec<Array2<T>>,
    /// Mode whose `g` is that of the factors as they are, whether by the fallback, and in how many passes.
    ready: Option<(usize, bool, usize)>,
    last: Updated,
    place: String,
    /// Products of the tensor kept for several modes.
    tree: Option<CpuTree<'a, T>>,
    why_tree: String,
}

impl<'a, 'x, B: Backend, T: Real> HostSteps<'a, 'x, B, T> {
    pub fn new(
        backend: &'a B,
        plans: &'a [MttkrpPlan],
        x: &'a B::Tensor<'x, T>,
        data: ArrayViewD<'a, T>,
        factors: Vec<Array2<T>>,
        place: String,
    ) -> Result<Self> {
        // Row-major, as kept products are made from slices.
        let factors: Vec<_> = factors.into_iter().map(|f| f.as_standard_layout().into_owned()).collect();
        let views: Vec<_> = factors.iter().map(|f| f.view()).collect();
        let u = backend.upload_factors(None, &views)?;
        let g = factors.iter().map(|f| Array2::zeros(f.dim())).collect();
        let (last, tree, why_tree) = (Updated::default(), None, String::new());
        Ok(Self { backend, plans, x, data, u, factors, g, ready: None, last, place, tree, why_tree })
    }

    /// With the products of this tree, or, where they could not be had, without and with the reason.
    pub fn with_tree(mut self, plan: &TreePlan, tree: Result<Option<CpuTree<'a, T>>>) -> Self {
        match tree {
            Ok(tree) => (self.tree, self.why_tree) = (tree, plan.to_string()),
            Err(why) => self.why_tree = plan.without(why.to_string()).to_string(),
        }
        self
    }

    /// One MTTKRP a mode, whatever the plan of a tree says.
    pub fn without_tree(mut self, plan: &TreePlan) -> Self {
        self.why_tree = match plan.groups().is_empty() {
            true => plan.to_string(),
            false => plan.without("the host replaces the factors".into()).to_string(),
        };
        self
    }

    /// The MTTKRP of a mode into `g`, unless it is there; whether by the fallback, and the passes over the tensor.
    fn mttkrp(&mut self, mode: usize, seconds: &mut Seconds) -> Result<(bool, usize)> {
        if let Some((ready, fallback, passes)) = self.ready
            && ready == mode
        {
            return Ok((fallback, passes));
        }
        self.ready = None;
        let (factors, g) = (&self.factors, self.g[mode].view_mut());
        let by_tree = self.tree.as_mut().map(|tree| timed(&mut seconds.mttkrp, || tree.mttkrp(factors, mode, g)));
        let (fallback, passes) = match by_tree.transpose()?.flatten() {
            Some(passes) => (false, passes),
            None => {
                let time = self.backend.mttkrp_into(&self.plans[mode], self.x, &self.u, self.g[mode].view_mut())?;
                seconds.mttkrp = time.compute.as_secs_f64();
                seconds.transfer = time.transfer.as_secs_f64();
                (time.fallback, 1)
            }
        };
        self.ready = Some((mode, fallback, passes));
        Ok((fallback, passes))
    }
}

impl<B: Backend, T: Real> AlsSteps<T> for HostSteps<'_, '_, B, T> {
    fn start(&mut self, _mode: usize) -> Result<()> {
        Ok(())
    }

    fn can_widen(&mut self, _mode: usize) -> Result<bool> {
        // What takes a GPU a moment may take the host far too long.
        let work = self.data.len() as f64 * self.factors[0].ncols() as f64;
        Ok(T::DTYPE == Dtype::F32 && (self.backend.caps().kind == DeviceKind::Cpu || work < 1e9))
    }

    fn update(&mut self, mode: usize, normal: &NormalEquations, wide: bool) -> Result<()> {
        let mut seconds = Seconds::default();
        let wide = wide.then(|| timed(&mut seconds.mttkrp, || wide::mttkrp(self.data.view(), &self.factors, mode)));
        let (fallback, passes) = match &wide {
            Some(_) => (false, 1),
            None => self.mttkrp(mode, &mut seconds)?,
        };
        self.ready = None;
        let (norms, factor) = timed(&mut seconds.solve, || {
            normalize(match &wide {
                Some(g) => normal.solve(g.view(), mode)?,
                None => normal.solve(self.g[mode].view(), mode)?,
            })
        })?;
        self.factors[mode] = factor;
        let factor = &self.factors[mode];
        let gram = timed(&mut seconds.gram, || gram(factor));
        let inner = timed(&mut seconds.fit, || match &wide {
            Some(g) => inner(g, factor),
            None => inner(&self.g[mode], factor),
        });
        timed(&mut seconds.transfer, || self.backend.set_factor(&mut self.u, mode, factor.view()))?;
        if let Some(tree) = &mut self.tree {
            tree.changed(mode);
        }
        self.last = Updated { gram, norms, inner, fallback, passes, seconds };
        Ok(())
    }

    fn finish(&mut self) -> Result<Updated> {
        Ok(std::mem::take(&mut self.last))
    }

    fn product(&mut self, mode: usize, wide: bool) -> Result<Product> {
        let mut seconds = Seconds::default();
        if wide {
            let g = timed(&mut seconds.mttkrp, || wide::mttkrp(self.data.view(), &self.factors, mode));
            return Ok(Product { g, fallback: false, passes: 1, seconds });
        }
        let (fallback, passes) = self.mttkrp(mode, &mut seconds)?;
        self.ready = Some((mode, fallback, 0));
        if let Some(error) = overflow(self.g[mode].view(), mode) {
            return Err(error);
        }
        Ok(Product { g: self.g[mode].mapv(Real::f64), fallback, passes, seconds })
    }

    fn replace(&mut self, mode: usize, factor: ArrayView2<'_, T>) -> Result<()> {
        self.ready = None;
        self.factors[mode].assign(&factor);
        if let Some(tree) = &mut self.tree {
            tree.changed(mode);
        }
        self.backend.set_factor(&mut self.u, mode, factor)
    }

    fn snapshot(&mut self) -> Result<Vec<Array2<T>>> {
        Ok(self.factors.clone())
    }

    fn factors(&mut self) -> Result<Vec<Array2<T>>> {
        Ok(std::mem::take(&mut self.factors))
    }

    fn kept(&self) -> Option<usize> {
        self.tree.as_ref()?.kept()
    }

    fn keep(&mut self, group: usize) {
        self.tree.iter_mut().for_each(|tree| tree.keep(group));
    }

    fn place(&self) -> &str {
        &self.place
    }

    fn tree(&self) -> String {
        self.why_tree.clone()
    }
}
