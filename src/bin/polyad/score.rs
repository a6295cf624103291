//! `polyad score`: how alike two models are.

use crate::failure::Failure;
use crate::report::{Out, number, table};
use polyad::{CpTensor, ScoreOptions, io};
use std::path::{Path, PathBuf};

/// Compare two models: the factor match score
///
/// 1 is the same model but for the order of its components, paired signs and how weights and columns share their scale.
/// Components are matched as an assignment problem. Ranks may differ: those of the smaller model are all matched.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A model: a folder with weights.npy, factor_0.npy, ..., or Tensor Toolbox ktensor text
    a: PathBuf,
    /// The other model
    b: PathBuf,
    /// Let differences in weights cost nothing
    #[arg(long)]
    no_weight_penalty: bool,
    /// Print the result as JSON, and nothing else, on stdout
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  polyad score model truth
  polyad score model truth.txt --no-weight-penalty --json";

#[derive(Debug, serde::Serialize)]
struct Found<'a> {
    score: f64,
    weight_penalty: bool,
    permutation: &'a [usize],
    congruences: &'a [f64],
    penalties: &'a [f64],
}

/// Runs the command.
pub fn run(args: &Args, out: &mut Out) -> Result<(), Failure> {
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    let options = ScoreOptions::default().weight_penalty(!args.no_weight_penalty);
    let score = a.score_with(&b, &options)?;
    if args.json {
        return out.json(&Found {
            score: score.score,
            weight_penalty: options.weight_penalty,
            permutation: &score.permutation,
            congruences: &score.congruences,
            penalties: &score.penalties,
        });
    }
    let a_is_smaller = a.rank() <= b.rank();
    let mut rows = vec![["A", "B", "congruence", "weights"].map(String::from).to_vec()];
    for (r, &s) in score.permutation.iter().enumerate() {
        let (in_a, in_b) = if a_is_smaller { (r, s) } else { (s, r) };
        rows.push(vec![in_a.to_string(), in_b.to_string(), number(score.congruences[r]), number(score.penalties[r])]);
    }
    out.line(format_args!("score    {:.10}", score.score));
    out.line(table(&rows));
    Ok(())
}

/// A model in f64, which holds those in f32 exactly.
fn read(path: &Path) -> Result<CpTensor<f64>, Failure> {
    Ok(if path.is_file() { io::read_ktensor(path)? } else { io::read_model(path)? })
}
