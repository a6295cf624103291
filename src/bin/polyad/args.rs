//! Arguments that more than one command has, and the checks of their values.

use crate::failure::Failure;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use polyad::plan::{PlanOptions, Precision, Reduction};
use polyad::{Dtype, Every, Method, Tree};

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
    /// How MTTKRP is computed
    #[arg(long, default_value = "auto", value_parser = methods())]
    pub method: Method,
    /// Element type computed in [default: the file's; f64 for integers and text]
    #[arg(long, value_parser = dtypes())]
    pub dtype: Option<Dtype>,
    /// How exact products in f32 are: fast allows fused about three digits where the GPU has f16 matrix units, and
    /// changes nothing elsewhere
    #[arg(long, default_value = "float32", value_parser = precisions())]
    pub precision: Precision,
    /// Threads of the CPU [default: one for each core]
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    pub threads: Option<usize>,
    /// How fused adds up the pieces of a sum: partials is repeatable bit for bit; atomics needs no scratch memory, is not
    /// repeatable and leaves matrix units unused. Other methods ignore it
    #[arg(long, default_value = "partials", value_parser = reductions())]
    pub reduction: Reduction,
    /// The longest that one dispatch on a GPU is meant to take, in milliseconds; longer ones are done in parts, with the
    /// same result [default: 100]
    #[arg(long, value_name = "MS", value_parser = milliseconds, allow_negative_numbers = true)]
    pub dispatch_ms: Option<std::time::Duration>,
    #[arg(long, value_name = "BYTES", value_parser = card_memory, help = Bytes::HELP)]
    pub card_memory: Option<Bytes>,
}

impl Work {
    /// What a plan is told of it.
    pub fn plan(&self, dtype: Dtype) -> PlanOptions {
        let options = PlanOptions::default().method(self.method).dtype(dtype);
        options.precision(self.precision).reduction(self.reduction)
    }
}

/// Which products of the tensor CP-ALS keeps.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Kept {
    /// Whether products of the tensor are kept for several modes: none for one pass over the tensor a mode, two for two
    /// passes a sweep, multi for fewer still; the result is the same but for rounding
    #[arg(long, default_value = "auto", value_parser = trees())]
    pub tree: Tree,
    /// Most that such products may take on the device: bytes, or with kB, MB, GB, TB, KiB, MiB, GiB, TiB [default: as much
    /// as the tensor, twice that on a GPU whose memory is known, at least 64 MiB]
    #[arg(long, value_name = "BYTES", value_parser = card_memory)]
    pub memory_budget: Option<Bytes>,
}

impl Kept {
    /// The budget in bytes.
    pub fn budget(&self) -> Option<u64> {
        self.memory_budget.map(|bytes| bytes.0)
    }
}

fn trees() -> impl TypedValueParser<Value = Tree> {
    PossibleValuesParser::new(["auto", "none", "two", "multi"]).try_map(|word| word.parse::<Tree>())
}

/// Bytes of `--card-memory` and `--memory-budget`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl Bytes {
    /// What the option says of itself.
    pub const HELP: &str = "Memory of the device that may be used, no more than it has (plan: of a card that may be larger): \
                            bytes, or with kB, MB, GB, TB, KiB, MiB, GiB, TiB. Products are kept only where they fit, a \
                            tensor that does not fit streams to a GPU, and what does not fit even so is refused \
                            [default: the device's own where it is known]";
}

/// `--dispatch-ms`: milliseconds.
fn milliseconds(text: &str) -> Result<std::time::Duration, String> {
    let wanted = || format!("{text:?} is no number of milliseconds above 0, such as 100 or 0.5");
    let value = text.parse::<f64>().map_err(|_| wanted())?;
    if value.is_nan() || value <= 0.0 {
        return Err(wanted());
    }
    std::time::Duration::try_from_secs_f64(value / 1e3).map_err(|_| wanted())
}

/// `--card-memory` and `--memory-budget`: a number of bytes, or a number with a unit.
pub fn card_memory(text: &str) -> Result<Bytes, String> {
    const UNITS: [(&str, f64); 9] = [
        ("kb", 1e3),
        ("mb", 1e6),
        ("gb", 1e9),
        ("tb", 1e12),
        ("kib", 1024.0),
        ("mib", 1048576.0),
        ("gib", 1073741824.0),
        ("tib", 1099511627776.0),
        ("b", 1.0),
    ];
    let wanted = || format!("{text:?} is no number of bytes such as 80000000000, 80GB or 80GiB");
    let lower = text.trim().to_ascii_lowercase();
    let bytes = if let Ok(whole) = lower.parse::<u64>() {
        whole
    } else {
        let (number, factor) = UNITS
            .into_iter()
            .find_map(|(unit, factor)| lower.strip_suffix(unit).map(|number| (number.trim(), factor)))
            .unwrap_or((&lower, 1.0));
        let value = number.parse::<f64>().map_err(|_| wanted())? * factor;
        if !(value >= 0.0 && value < u64::MAX as f64) {
            return Err(wanted());
        }
        value.round() as u64
    };
    if bytes == 0 { Err("it is 0: it must be at least 1 byte".into()) } else { Ok(Bytes(bytes)) }
}

/// `--dims`: `AxBxC`.
pub fn dims(text: &str) -> Result<Vec<usize>, String> {
    let dim = |part: &str| part.trim().parse::<usize>().map_err(|e| format!("{part:?} in {text:?}: {e}"));
    text.split(['x', 'X', ',']).map(dim).collect()
}

/// `--ranks`: one or several, each at least 1.
pub fn rank(text: &str) -> Result<usize, String> {
    match text.trim().parse::<usize>() {
        Ok(0) => Err("it is 0: a rank is at least 1".into()),
        Ok(rank) => Ok(rank),
        Err(error) => Err(error.to_string()),
    }
}

/// Words of `--method`.
pub fn methods() -> impl TypedValueParser<Value = Method> {
    let words = std::iter::once(Method::Auto).chain(Method::ALL).map(Method::name);
    PossibleValuesParser::new(words).try_map(|word| word.parse::<Method>())
}

/// Words of `--precision`.
pub fn precisions() -> impl TypedValueParser<Value = Precision> {
    PossibleValuesParser::new(["float32", "fast"]).try_map(|word| word.parse::<Precision>())
}

fn reductions() -> impl TypedValueParser<Value = Reduction> {
    PossibleValuesParser::new(["partials", "atomics"]).try_map(|word| word.parse::<Reduction>())
}

/// `--seconds` and `--budget`: above 0, at most an hour.
pub fn at_most_an_hour(option: &str, seconds: f64) -> Result<(), Failure> {
    if !(seconds > 0.0 && seconds <= 3600.0) {
        return Err(Failure::Usage(format!("{option} is {seconds}: it must be above 0 and at most 3600")));
    }
    Ok(())
}

/// Words of `--dtype`.
pub fn dtypes() -> impl TypedValueParser<Value = Dtype> {
    PossibleValuesParser::new(["f32", "f64"]).try_map(|word| word.parse::<Dtype>())
}

/// Errors unless a count is at least 1.
pub fn at_least_one(option: &str, value: usize) -> Result<(), Failure> {
    if value == 0 {
        return Err(Failure::Usage(format!("{option} is 0: it must be at least 1")));
    }
    Ok(())
}

/// The ranks of `--rank`: one, or a range with both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranks {
    /// The first.
    pub first: usize,
    /// The last, at least the first.
    pub last: usize,
}

impl Ranks {
    /// Whether it is more than one.
    pub fn is_range(self) -> bool {
        self.first != self.last
    }
}

impl std::str::FromStr for Ranks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<usize>().map_err(|e| e.to_string());
        let Some((first, last)) = text.split_once("..") else {
            let rank = number(text)?;
            return Ok(Self { first: rank, last: rank });
        };
        let (first, last) = (number(first)?, number(last.strip_prefix('=').unwrap_or(last))?);
        if first > last {
            return Err(format!("{first} is more than {last}"));
        }
        if last - first >= 1000 {
            return Err(format!("{first} to {last} are more than 1000 ranks"));
        }
        Ok(Self { first, last })
    }
}

impl std::fmt::Display for Ranks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_range() { write!(f, "{}..{}", self.first, self.last) } else { write!(f, "{}", self.first) }
    }
}

/// `--checkpoint-every`: sweeps, or seconds with an s behind them.
pub fn every(text: &str) -> Result<Every, String> {
    let every = match text.strip_suffix('s') {
        Some(seconds) => Every::Seconds(seconds.parse().map_err(|e: std::num::ParseFloatError| e.to_string())?),
        None => Every::Sweeps(text.parse().map_err(|e: std::num::ParseIntError| e.to_string())?),
    };
    match every {
        Every::Sweeps(0) => Err("it must be at least 1".into()),
        Every::Seconds(s) if !(s >= 0.0 && s.is_finite()) => Err("it must be a finite number of at least 0".into()),
        every => Ok(every),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_intervals_are_read() {
        let ranks = |first, last| Ok(Ranks { first, last });
        assert_eq!("3".parse(), ranks(3, 3));
        assert_eq!("1..6".parse(), ranks(1, 6));
        assert_eq!("2..=5".parse(), ranks(2, 5));
        for wrong in ["", "-1", "6..1", "1..", "x", "1..2..3", "1..1001"] {
            assert!(wrong.parse::<Ranks>().is_err(), "{wrong}");
        }
        assert_eq!(every("10"), Ok(Every::Sweeps(10)));
        assert_eq!(every("2.5s"), Ok(Every::Seconds(2.5)));
        for wrong in ["0", "-1", "s", "-1s", "infs", "nans", "1m"] {
            assert!(every(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bytes_with_and_without_units() {
        let cases = [("80", 80), ("80GB", 80_000_000_000), ("1.5 KiB", 1536), ("2tib", 2 << 40), ("7b", 7)];
        for (text, bytes) in cases {
            assert_eq!(card_memory(text), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "GB", "-1", "0", "nanGB", "1e30", "80 GiBi", "inf"] {
            assert!(card_memory(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn dims_with_x() {
        assert_eq!(dims("3x4x5"), Ok(vec![3, 4, 5]));
        assert!(["", "3x", "x", "3x-4", "axb", "3*4"].iter().all(|text| dims(text).is_err()));
    }
}
