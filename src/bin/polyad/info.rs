//! `polyad info`: what a tensor file holds.

use crate::failure::Failure;
use crate::report::{Out, show};
use ndarray::ArrayViewD;
use polyad::Shape;
use polyad::io::TensorFile;
use serde::Serialize;
use std::path::PathBuf;

/// Show what a tensor file holds: dims, dtype, norm, range, zeros and bad values
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  polyad info tensor.npy\n  polyad info data.npz:X --json")]
pub struct Args {
    /// The tensor: .npy, .npz (FILE.npz:NAME where it holds more than one array) or Tensor Toolbox text
    input: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What is printed. Norm, min and max are those of the finite entries.
#[derive(Debug, Serialize)]
struct Info {
    file: String,
    dims: Vec<usize>,
    order: usize,
    /// As stored.
    dtype: String,
    /// What it is computed in without `--dtype`.
    natural_dtype: &'static str,
    entries: usize,
    #[serde(flatten)]
    values: Values,
}

#[derive(Debug, PartialEq, Serialize)]
struct Values {
    norm: f64,
    /// `null` where no entry is finite.
    min: Option<f64>,
    max: Option<f64>,
    zeros: usize,
    /// NaN and infinite entries.
    bad: usize,
    /// Index of the first of them in row-major order.
    first_bad: Option<Vec<usize>>,
}

/// Runs the command.
pub fn run(args: &Args, out: &mut Out) -> Result<(), Failure> {
    let file = TensorFile::open(&args.input)?;
    let shape = Shape::new(file.dims())?;
    let data = file.read::<f64>()?;
    let x = data.view();
    let info = Info {
        file: args.input.display().to_string(),
        dims: shape.to_vec(),
        order: shape.order(),
        dtype: file.stored_dtype().to_string(),
        natural_dtype: file.natural_dtype().name(),
        entries: shape.len(),
        values: Values::of(x.view()),
    };
    if args.json {
        return out.json(&info);
    }
    let values = &info.values;
    let shown = |v: Option<f64>| v.map_or("none".to_string(), exact);
    out.line(format_args!("file     {}", info.file));
    out.line(format_args!("dims     {}", show(&info.dims)));
    out.line(format_args!("order    {}", info.order));
    out.line(format_args!("dtype    {}, computed in {}", info.dtype, info.natural_dtype));
    out.line(format_args!("entries  {}", info.entries));
    out.line(format_args!("norm     {}", exact(values.norm)));
    out.line(format_args!("min      {}", shown(values.min)));
    out.line(format_args!("max      {}", shown(values.max)));
    out.line(format_args!("zeros    {}", values.zeros));
    match &values.first_bad {
        None => out.line("bad      0"),
        Some(index) => {
            let first = format!("the first is {} at {}", x[index.as_slice()], show(index));
            out.line(format_args!(
                "bad      {} of NaN or infinity, {first}; norm, min and max leave them out",
                values.bad
            ));
        }
    }
    Ok(())
}

/// All digits, with an exponent where the number would be long otherwise.
fn exact(value: f64) -> String {
    let plain = value == 0.0 || !value.is_finite() || (1e-5..1e16).contains(&value.abs());
    if plain { value.to_string() } else { format!("{value:e}") }
}

impl Values {
    fn of(x: ArrayViewD<'_, f64>) -> Self {
        let (mut min, mut max, mut zeros, mut bad) = (f64::INFINITY, f64::NEG_INFINITY, 0, 0);
        each(&x, |v| {
            if v.is_finite() {
                min = min.min(v);
                max = max.max(v);
                zeros += usize::from(v == 0.0);
            } else {
                bad += 1;
            }
        });
        let any = min <= max;
        let first = if bad > 0 { x.indexed_iter().find(|(_, v)| !v.is_finite()) } else { None };
        Self {
            norm: if any { norm(&x, min.abs().max(max.abs())) } else { 0.0 },
            min: any.then_some(min),
            max: any.then_some(max),
            zeros,
            bad,
            first_bad: first.map(|(index, _)| ndarray::Dimension::slice(&index).to_vec()),
        }
    }
}

/// Frobenius norm of the finite entries. Scaled by the largest where squares would leave the range of f64; summed in
/// blocks, so that the rounding error grows with the number of blocks and not of entries.
fn norm(x: &ArrayViewD<'_, f64>, largest: f64) -> f64 {
    const BLOCK: usize = 4096;
    let scale = if largest == 0.0 || (1e-130..1e130).contains(&largest) { 1.0 } else { largest };
    let (mut total, mut block, mut count) = (0.0, 0.0, 0);
    each(x, |v| {
        if v.is_finite() {
            let v = v / scale;
            block += v * v;
        }
        count += 1;
        if count == BLOCK {
            total += block;
            (block, count) = (0.0, 0);
        }
    });
    scale * f64::sqrt(total + block)
}

/// Every entry, in memory order where that is one piece.
fn each(x: &ArrayViewD<'_, f64>, mut visit: impl FnMut(f64)) {
    match x.as_slice_memory_order() {
        Some(entries) => entries.iter().for_each(|&v| visit(v)),
        None => x.iter().for_each(|&v| visit(v)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array2, arr1, arr2};

    #[test]
    fn values_of_a_small_array() {
        let x = arr2(&[[3.0, 0.0], [f64::NAN, -4.0], [f64::INFINITY, 0.0]]);
        let expected =
            Values { norm: 5.0, min: Some(-4.0), max: Some(3.0), zeros: 2, bad: 2, first_bad: Some(vec![1, 0]) };
        assert_eq!(Values::of(x.view().into_dyn()), expected);
        // Row-major order decides which is the first, whatever the memory order.
        let y = arr2(&[[0.0, 1.0, f64::NAN], [f64::NAN, 1.0, 1.0]]);
        let columns = y.t().to_owned();
        assert_eq!(Values::of(columns.t().into_dyn()).first_bad, Some(vec![0, 2]));
    }

    #[test]
    fn norms_stay_in_range() {
        for size in [1e-320, 1e-200, 1.0, 1e200, 1e307] {
            let n = Values::of(arr1(&[3.0 * size, 4.0 * size]).view().into_dyn()).norm;
            assert!((n / (5.0 * size) - 1.0).abs() < 1e-3, "{n:e} for {size:e}");
        }
        let ones = Array2::from_elem((100, 1000), 0.1);
        let n = Values::of(ones.view().into_dyn()).norm;
        assert!((n / 1000f64.sqrt() - 1.0).abs() < 1e-14, "{n}");
    }

    #[test]
    fn numbers_keep_all_digits_and_stay_short() {
        let cases = [
            (0.0, "0"),
            (-2.5, "-2.5"),
            (1.7e308, "1.7e308"),
            (-5e-324, "-5e-324"),
            (0.1 + 0.2, "0.30000000000000004"),
        ];
        for (value, text) in cases {
            assert_eq!(exact(value), text);
        }
    }

    #[test]
    fn nothing_finite() {
        let values = Values::of(arr1(&[f64::NAN, f64::NEG_INFINITY]).view().into_dyn());
        assert_eq!((values.norm, values.min, values.max, values.bad), (0.0, None, None, 2));
    }
}
