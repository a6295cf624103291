//! Which method `auto` stands for.

use super::{DeviceCaps, DeviceKind, Method, Problem, Slab, fused};
use crate::{Error, Result};

/// "auto" is resolved here and nowhere else. Whether FUSED fits is told by planning it, so that plan comes along.
pub(super) fn resolve(
    problem: &Problem,
    caps: &DeviceCaps,
    slabs: &[Slab],
    limit: u64,
) -> Result<(Method, String, Option<fused::Fused>)> {
    let asked = problem.options.method;
    if asked != Method::Auto {
        return Ok((asked, "asked for".into(), None));
    }
    if caps.kind == DeviceKind::Cpu {
        return Ok((Method::Fused, "the fastest on a CPU, with scratch of a few blocks".into(), None));
    }
    Ok(match fused::dispatches(problem, caps, slabs, limit) {
        Ok(fused) => {
            let scratch = if fused.partial_bytes.iter().any(|&bytes| bytes > 0) {
                "with scratch of a few tiles"
            } else {
                "without scratch"
            };
            (Method::Fused, format!("the fastest on a GPU, {scratch}"), Some(fused))
        }
        // It was asked for by the reduction, and no other method can do without the feature.
        Err(error @ Error::MissingFeature { .. }) => return Err(error),
        Err(error) => (Method::Tile, format!("the fused kernels do not fit: {error}"), None),
    })
}
