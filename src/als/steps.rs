//! The steps of a sweep: MTTKRP, then a new factor from it. A device that can do all of it keeps the factors; for others
//! the host does the dense part.

use super::Seconds;
use super::normal_equations::{NormalEquations, gram, normalize};
use super::timed;
use super::wide::{self, inner};
use crate::cpu::CpuTree;
use crate::plan::{DeviceKind, MttkrpPlan, TreePlan};
use crate::{Backend, Dtype, Real, Result};
use ndarray::{Array1, Array2, ArrayViewD};

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

    /// Waits for the last update and tells what came of it.
    fn finish(&mut self) -> Result<Updated>;

    /// `sum_i G[i, r] A[i, r]` of a mode as the factors are, with G summed in f64; `None` where it cannot be.
    fn wide_inner(&mut self, mode: usize) -> Result<Option<Array1<f64>>>;

    /// A copy of the factors as they are.
    fn snapshot(&mut self) -> Result<Vec<Array2<T>>>;

    /// Puts another factor in the place of a mode's, between updates.
    fn replace(&mut self, mode: usize, factor: Array2<T>) -> Result<()>;

    /// The factors as they are. They may be moved out: nothing else comes after it.
    fn factors(&mut self) -> Result<Vec<Array2<T>>>;

    /// Where the dense part is done, and why there.
    fn place(&self) -> &str;

    /// How MTTKRPs share passes over the tensor, and why so.
    fn tree(&self) -> String;
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
        let views: Vec<_> = factors.iter().map(|f| f.view()).collect();
        let u = backend.upload_factors(None, &views)?;
        let g = factors.iter().map(|f| Array2::zeros(f.dim())).collect();
        let last = Updated::default();
        Ok(Self { backend, plans, x, data, u, factors, g, last, place, tree: None, why_tree: String::new() })
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
        let mut fallback = false;
        let mut passes = 1;
        let mut by_tree = None;
        if let (Some(tree), None) = (&mut self.tree, &wide) {
            let (factors, g) = (&self.factors, self.g[mode].view_mut());
            by_tree = timed(&mut seconds.mttkrp, || tree.mttkrp(factors, mode, g))?;
        }
        if let Some(made) = by_tree {
            passes = made;
        } else if wide.is_none() {
            let time = self.backend.mttkrp_into(&self.plans[mode], self.x, &self.u, self.g[mode].view_mut())?;
            seconds.mttkrp = time.compute.as_secs_f64();
            seconds.transfer = time.transfer.as_secs_f64();
            fallback = time.fallback;
        }
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

    fn wide_inner(&mut self, mode: usize) -> Result<Option<Array1<f64>>> {
        if !self.can_widen(mode)? {
            return Ok(None);
        }
        Ok(Some(inner(&wide::mttkrp(self.data.view(), &self.factors, mode), &self.factors[mode])))
    }

    fn snapshot(&mut self) -> Result<Vec<Array2<T>>> {
        Ok(self.factors.clone())
    }

    fn replace(&mut self, mode: usize, factor: Array2<T>) -> Result<()> {
        self.backend.set_factor(&mut self.u, mode, factor.view())?;
        self.factors[mode] = factor;
        if let Some(tree) = &mut self.tree {
            tree.changed(mode);
        }
        Ok(())
    }

    fn factors(&mut self) -> Result<Vec<Array2<T>>> {
        Ok(std::mem::take(&mut self.factors))
    }

    fn place(&self) -> &str {
        &self.place
    }

    fn tree(&self) -> String {
        self.why_tree.clone()
    }
}
