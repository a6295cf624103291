//! `polyad bench` and `polyad sweep-tile`: the files and what is in them.

use super::support::Folder;

/// Rows of a CSV file under its head, after the comment with the command.
fn csv(folder: &Folder, name: &str) -> (Vec<String>, Vec<Vec<String>>) {
    let text = std::fs::read_to_string(folder.path(name)).unwrap();
    let cells = |line: &str| line.split(',').map(str::to_owned).collect::<Vec<_>>();
    let mut lines = text.lines().skip_while(|line| line.starts_with('#'));
    (cells(lines.next().unwrap()), lines.map(cells).collect())
}

fn number(head: &[String], row: &[String], name: &str) -> f64 {
    row[head.iter().position(|h| h == name).unwrap()].parse().unwrap()
}

#[test]
fn the_memory_figure_shows_the_gap() {
    let folder = Folder::new();
    let args =
        ["bench", "--figure", "memory", "--device", "cpu", "--dims", "48x480x480", "--ranks", "100,2000", "-o", "f"];
    folder.run(&[&args[..], &["--methods", "tile,gemm"]].concat()).ok();
    assert_eq!(folder.names("f"), ["memory.csv", "memory.svg"]);
    let (head, rows) = csv(&folder, "f/memory.csv");
    for method in ["tile", "gemm"] {
        let of = |rank: &str| rows.iter().find(|row| row[0] == method && row[1] == rank).unwrap();
        let share = number(&head, of("2000"), "share_of_matrix_based");
        // A CPU forms the product whole, as the paper does.
        let range = if method == "tile" { 0.0..0.1 } else { 0.99..1.01 };
        assert!(range.contains(&share), "{method}: {share}");
    }
    let svg = std::fs::read_to_string(folder.path("f/memory.svg")).unwrap();
    for text in ["rank R", "memory, GB", "1 card", "matrix-based", "command: polyad bench --figure memory"] {
        assert!(svg.contains(text), "{text}");
    }
}

#[test]
fn measured_figures_have_every_method() {
    let folder = Folder::new();
    for figure in ["variants", "als", "models"] {
        let args =
            ["bench", "--figure", figure, "--device", "cpu", "--dims", "9x8x7", "--ranks", "3", "--seconds", "0.001"];
        let ran = folder.run(&[&args[..], &["--methods", "slice,tile,gemm", "-o", "f"]].concat()).ok();
        assert!(ran.stdout.contains("written"), "{ran:?}");
        let (head, rows) = csv(&folder, &format!("f/{figure}.csv"));
        let methods: Vec<&str> = rows.iter().map(|row| row[1].as_str()).collect();
        assert_eq!(methods, ["slice", "tile", "gemm"], "{figure}");
        let seconds = match figure {
            "variants" => "mean_seconds",
            "als" => "sweep_seconds",
            _ => "measured_seconds",
        };
        assert!(rows.iter().all(|row| number(&head, row, seconds) > 0.0), "{rows:?}");
        let svg = std::fs::read_to_string(folder.path(&format!("f/{figure}.svg"))).unwrap();
        assert!(svg.contains("CPU") && svg.contains("command: polyad bench") && svg.contains("TILE"), "{figure}");
    }
}

/// Variants and models of one measurement, on the threads asked for.
#[test]
fn figures_share_a_measurement() {
    let folder = Folder::new();
    let args = ["bench", "--figure", "variants,models", "--device", "cpu", "--threads", "1", "--dims", "9x8x7"];
    let rest = ["--ranks", "3", "--seconds", "0.001", "--methods", "tile,gemm", "-o", "f", "--name", "x"];
    let ran = folder.run(&[&args[..], &rest].concat()).ok();
    assert_eq!(folder.names("f"), ["models-x.csv", "models-x.svg", "variants-x.csv", "variants-x.svg"]);
    let ((variants, rates), (models, times)) = (csv(&folder, "f/variants-x.csv"), csv(&folder, "f/models-x.csv"));
    for (rate, time) in rates.iter().zip(&times) {
        assert_eq!(rate[0], "CPU (1 thread)");
        assert_eq!(number(&variants, rate, "mean_seconds"), number(&models, time, "measured_seconds"), "{ran:?}");
    }
    assert!(rates.len() == 2 && times.len() == 2);
}

/// What there is no time for is left out and said; the rest is written.
#[test]
fn a_budget_ends_a_figure() {
    let folder = Folder::new();
    for command in
        [&["bench", "--figure", "variants", "-o", "f"][..], &["sweep-tile", "--modes", "0", "--csv", "t.csv"]]
    {
        let rest = ["--device", "cpu", "--dims", "9x8x7", "--ranks", "3", "--seconds", "0.001", "--budget", "1e-9"];
        let ran = folder.run(&[command, &rest].concat());
        assert!(ran.code == Some(0) && ran.stderr.contains("the budget is used up"), "{ran:?}");
    }
    assert_eq!(csv(&folder, "f/variants.csv").1.len(), 0);
    assert_eq!(csv(&folder, "t.csv").1.len(), 0);
}

#[test]
fn bad_figures_are_refused() {
    let folder = Folder::new();
    let bench = ["bench", "--device", "cpu", "-o", "f", "--figure"];
    let bad: [&[&str]; 9] = [
        &["nothing"],
        &["memory", "--ranks", "0"],
        &["variants", "--dims", "3x"],
        &["als", "--seconds", "-1"],
        &["variants,als", "--threads", "0"],
        &["variants", "--budget", "nan"],
        &["variants,nothing"],
        &["models", "--name", "../x"],
        &["models", "--card-memory", "much"],
    ];
    for args in bad {
        let ran = folder.run(&[&bench[..], args].concat());
        assert!(ran.code == Some(2) && ran.stderr.lines().count() == 1, "{args:?}: {ran:?}");
    }
    assert!(!folder.path("f").exists());
}

#[test]
fn widths_are_measured_one_by_one() {
    let folder = Folder::new();
    let args =
        ["sweep-tile", "--dims", "9x8x7", "--ranks", "3", "--device", "cpu", "--seconds", "0.001", "--csv", "t.csv"];
    let ran = folder.run(&args).ok();
    assert!(ran.stdout.contains("of 3 choices within 10 % of the best width on CPU"), "{ran:?}");
    let (head, rows) = csv(&folder, "t.csv");
    // Of mode 0 the others have dims 8 and 7: eight widths.
    assert_eq!(rows.iter().filter(|row| number(&head, row, "mode") == 0.0).count(), 8, "{rows:?}");
    assert_eq!(rows.iter().filter(|row| row.last().unwrap() == "1").count(), 3);
    assert_eq!(folder.run(&["sweep-tile", "--dims", "3x4", "--modes", "2", "--device", "cpu"]).code, Some(2));
}
