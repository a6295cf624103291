//! Arguments that more than one command has, and the checks of their values.

use crate::failure::Failure;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use polyad::plan::{PlanOptions, Precision, Reduction};
use polyad::{Dtype, Method};

/// How the work is done: device and its tuning file, method, dtype, precision.
#[derive(Debug, clap::Args)]
pub struct Work {
    /// Where to compute: auto, cpu, gpu, or part of an adapter's name or its PCI id (see `polyad devices`)
    #[arg(long, value_name = "auto|cpu|gpu|NAME", default_value = "auto")]
    pub device: String,
    /// Tuning file of a GPU (see `polyad tune`) [default: the adapter's own in the user's cache folder, if there is one]
    #[arg(long, value_name = "FILE", conflicts_with = "no_tuning")]
    pub tuning: Option<std::path::PathBuf>,
    /// Use no tuning file but the built-in tiles
    #[arg(long)]
    pub no_tuning: bool,
    /// How MTTKRP is computed; fused is for GPUs only
    #[arg(long, default_value = "auto", value_parser = methods())]
    pub method: Method,
    /// Element type computed in [default: the file's; f64 for integers and text]
    #[arg(long, value_parser = dtypes())]
    pub dtype: Option<Dtype>,
    /// How exact products in f32 are: fast allows fused about three digits where the GPU has f16 matrix units, and
    /// changes nothing elsewhere
    #[arg(long, default_value = "float32", value_parser = precisions())]
    pub precision: Precision,
    /// How fused adds up the pieces of a sum: partials is repeatable bit for bit; atomics needs no scratch memory, is not
    /// repeatable and leaves matrix units unused. Other methods ignore it
    #[arg(long, default_value = "partials", value_parser = reductions())]
    pub reduction: Reduction,
}

impl Work {
    /// What a plan is told of it.
    pub fn plan(&self, dtype: Dtype) -> PlanOptions {
        let options = PlanOptions::default().method(self.method).dtype(dtype);
        options.precision(self.precision).reduction(self.reduction)
    }
}

fn methods() -> impl TypedValueParser<Value = Method> {
    let words = std::iter::once(Method::Auto).chain(Method::ALL).map(Method::name);
    PossibleValuesParser::new(words).try_map(|word| word.parse::<Method>())
}

fn precisions() -> impl TypedValueParser<Value = Precision> {
    PossibleValuesParser::new(["float32", "fast"]).try_map(|word| word.parse::<Precision>())
}

fn reductions() -> impl TypedValueParser<Value = Reduction> {
    PossibleValuesParser::new(["partials", "atomics"]).try_map(|word| word.parse::<Reduction>())
}

fn dtypes() -> impl TypedValueParser<Value = Dtype> {
    PossibleValuesParser::new(["f32", "f64"]).try_map(|word| word.parse::<Dtype>())
}

/// Errors unless a count is at least 1.
pub fn at_least_one(option: &str, value: usize) -> Result<(), Failure> {
    if value == 0 {
        return Err(Failure::Usage(format!("{option} is 0: it must be at least 1")));
    }
    Ok(())
}
