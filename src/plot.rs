//! SVG figures of models.

use crate::io::Staged;
use crate::{CpTensor, Error, Result};
use ndarray::ArrayView1;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::ops::Range;
use std::path::Path;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = std::result::Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Drawing units in a pixel: plotters rounds to whole units, and lines of whole pixels look ragged.
const PX: u32 = 8;
const WIDTH: u32 = 1000 * PX;
const TITLE: u32 = 44 * PX;
/// Height of a mode's panel, and of the weights.
const PANEL: u32 = 220 * PX;
const SIDE: u32 = 270 * PX;
const LEGEND_LINE: u32 = 21 * PX;
/// Points in all lines together, beyond which long modes are drawn coarser. Keeps the file at some MiB.
const POINTS: usize = 150_000;
/// Longest mode whose entries are marked one by one.
const MARKED: usize = 40;

/// Okabe and Ito's colours without yellow, which is too faint for lines on white.
const FEW: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];
/// Viridis without its faint end, for more components than there are distinct colours: even in lightness.
const MANY: [(f64, f64, f64); 5] =
    [(68.0, 1.0, 84.0), (59.0, 82.0, 139.0), (33.0, 145.0, 140.0), (94.0, 201.0, 98.0), (186.0, 211.0, 44.0)];

/// Writes one panel per mode with the components as lines, their weights as bars, and a legend, as SVG.
///
/// A mode of one row is drawn as bars. Modes too long for the width are drawn as the smallest and largest entry of each
/// stretch, so that no peak is lost. The file appears whole or not at all.
///
/// # Errors
/// [`Error::Io`] where the file cannot be written.
///
/// ```
/// use ndarray::array;
/// let model = polyad::CpTensor::new(array![2.0], vec![array![[0.6], [0.8]], array![[1.0], [0.0], [0.0]]]).unwrap();
/// let path = std::env::temp_dir().join(format!("polyad-doc-{}.svg", std::process::id()));
/// polyad::plot::factors(&model, &path).unwrap();
/// assert!(std::fs::read_to_string(&path).unwrap().contains("loading"));
/// # std::fs::remove_file(path).unwrap();
/// ```
pub fn factors(model: &CpTensor<f64>, path: &Path) -> Result<()> {
    figure(model, None, path)
}

/// [`factors`] with a reference model of the same dims as dashed black lines: the truth where it is known, or an earlier
/// result. Bars have no reference. Both models are drawn as they are, so [`normalize`](CpTensor::normalize) them alike.
///
/// # Errors
/// [`Error::DimsMismatch`] where the dims differ, [`Error::Io`] where the file cannot be written.
///
/// ```
/// use ndarray::array;
/// let model = polyad::CpTensor::new(array![2.0], vec![array![[0.6], [0.8]], array![[1.0], [0.0], [0.0]]]).unwrap();
/// let path = std::env::temp_dir().join(format!("polyad-doc-beside-{}.svg", std::process::id()));
/// polyad::plot::factors_beside(&model, &model, &path).unwrap();
/// # std::fs::remove_file(path).unwrap();
/// ```
pub fn factors_beside(model: &CpTensor<f64>, reference: &CpTensor<f64>, path: &Path) -> Result<()> {
    let (expected, found) = (model.dims(), reference.dims());
    if expected != found {
        return Err(Error::DimsMismatch { what: "the reference model", expected, found });
    }
    figure(model, Some(reference), path)
}

fn figure(model: &CpTensor<f64>, reference: Option<&CpTensor<f64>>, path: &Path) -> Result<()> {
    let order = model.dims().len() as u32;
    let height = TITLE + PANEL * order.max(2);
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
    draw(model, reference, &area).map_err(|e| Error::io(path, e))?;
    drop(area);
    // The size on the page in pixels; the view box stays in drawing units.
    let size = |unit: u32| format!("<svg width=\"{}\" height=\"{}\" viewBox", WIDTH / unit, height / unit);
    let svg = svg.replacen(&size(1), &size(PX), 1);
    Staged::write(path, |out| out.write_all(svg.as_bytes()))?.commit()
}

fn draw(model: &CpTensor<f64>, reference: Option<&CpTensor<f64>>, root: &Area<'_>) -> Drawn {
    root.fill(&WHITE)?;
    let dims: Vec<String> = model.dims().iter().map(ToString::to_string).collect();
    let title = format!("CP model of rank {}, dims {}", model.rank(), dims.join(" x "));
    root.draw(&Text::new(title, at(20, 14), font(20)))?;
    let (_, body) = root.split_vertically(TITLE);
    let (left, right) = body.split_horizontally(WIDTH - SIDE);
    for (mode, area) in left.split_evenly((model.dims().len(), 1)).iter().enumerate() {
        draw_mode(model, reference, mode, area)?;
    }
    let (top, bottom) = right.split_vertically(PANEL);
    draw_weights(model, &top)?;
    draw_legend(model, reference.is_some(), &bottom)?;
    root.present()
}

fn draw_mode(model: &CpTensor<f64>, reference: Option<&CpTensor<f64>>, mode: usize, area: &Area<'_>) -> Drawn {
    let factor = &model.factors()[mode];
    let (rows, rank) = factor.dim();
    let reference = reference.map(|m| &m.factors()[mode]);
    let entries = || factor.iter().chain(reference.into_iter().flatten()).copied();
    let scale = Scale::of(entries());
    let y_label = scale.label("loading");
    if rows == 1 {
        let x_label = format!("component (mode {mode} has one row)");
        return draw_bars(area, factor.row(0), &x_label, &y_label);
    }
    let x = 0.0..(rows - 1) as f64;
    let mut chart = margins(area).build_cartesian_2d(x, scale.range(entries()))?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.1).stroke_width(PX))
        .set_all_tick_mark_size(5 * PX)
        .axis_style(BLACK.mix(0.5).stroke_width(PX))
        .x_desc(format!("index in mode {mode}"))
        .y_desc(y_label)
        .x_labels(rows.min(10))
        .y_labels(5)
        .x_label_formatter(&|v| number(*v))
        .y_label_formatter(&|v| number(*v))
        .axis_desc_style(font(14))
        .label_style(font(12))
        .draw()?;
    let stretches = (POINTS / (2 * rank * model.dims().len())).clamp(50, 1000);
    let width = if rank > 30 { PX } else { 2 * PX };
    // The first components, usually the heaviest, end up on top.
    for r in (0..rank).rev() {
        let line = thin_out(factor.column(r), stretches).into_iter().map(|(i, v)| (i as f64, scale.apply(v)));
        let color = color(r, rank);
        chart.draw_series(LineSeries::new(line, color.stroke_width(width)))?;
        if rows <= MARKED {
            let mark = |(i, &v): (usize, &f64)| Circle::new((i as f64, scale.apply(v)), width + PX, color.filled());
            chart.draw_series(factor.column(r).iter().enumerate().map(mark))?;
        }
    }
    for column in reference.into_iter().flat_map(|f| f.columns()) {
        let line = thin_out(column, stretches).into_iter().map(|(i, v)| (i as f64, scale.apply(v)));
        chart.draw_series(DashedLineSeries::new(line, 5 * PX, 5 * PX, BLACK.stroke_width(PX)))?;
    }
    Ok(())
}

fn draw_weights(model: &CpTensor<f64>, area: &Area<'_>) -> Drawn {
    let scale = Scale::of(model.weights().iter().copied());
    draw_bars(area, model.weights().view(), "component", &scale.label("weight"))
}

/// One bar per component.
fn draw_bars(area: &Area<'_>, values: ArrayView1<'_, f64>, x_label: &str, y_label: &str) -> Drawn {
    let scale = Scale::of(values.iter().copied());
    let rank = values.len();
    let y = scale.range(values.iter().copied().chain([0.0]));
    let mut chart = margins(area).build_cartesian_2d(-0.6..rank as f64 - 0.4, y)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.1).stroke_width(PX))
        .set_all_tick_mark_size(5 * PX)
        .axis_style(BLACK.mix(0.5).stroke_width(PX))
        .x_desc(x_label)
        .y_desc(y_label)
        .x_labels(rank.min(6))
        .y_labels(5)
        .x_label_formatter(&|v| if v.fract() == 0.0 { number(*v) } else { String::new() })
        .y_label_formatter(&|v| number(*v))
        .axis_desc_style(font(14))
        .label_style(font(12))
        .draw()?;
    chart.draw_series(values.iter().enumerate().map(|(r, &v)| {
        let (middle, height) = (r as f64, scale.apply(v));
        Rectangle::new([(middle - 0.4, 0.0), (middle + 0.4, height)], color(r, rank).filled())
    }))?;
    Ok(())
}

fn draw_legend(model: &CpTensor<f64>, reference: bool, area: &Area<'_>) -> Drawn {
    let (_, height) = area.dim_in_pixel();
    let (lines, rank) = ((height.saturating_sub(40 * PX) / LEGEND_LINE) as usize, model.rank());
    let lines = lines.saturating_sub(usize::from(reference));
    let shown = if rank <= lines { rank } else { lines.saturating_sub(1) };
    let y = |line: usize| 36 + line as i32 * (LEGEND_LINE / PX) as i32;
    area.draw(&Text::new("component: weight", at(24, 10), font(14)))?;
    for (r, &weight) in model.weights().iter().enumerate().take(shown) {
        let style = color(r, rank).stroke_width(3 * PX);
        area.draw(&PathElement::new([at(24, y(r) + 6), at(52, y(r) + 6)], style))?;
        area.draw(&Text::new(format!("{r}: {}", number(weight)), at(62, y(r)), font(14)))?;
    }
    if shown < rank {
        area.draw(&Text::new(format!("... and {} more", rank - shown), at(62, y(shown)), font(14)))?;
    }
    if reference {
        let line = rank.min(lines);
        for x in [24, 34, 44] {
            area.draw(&PathElement::new([at(x, y(line) + 6), at(x + 6, y(line) + 6)], BLACK.stroke_width(PX)))?;
        }
        area.draw(&Text::new("reference", at(62, y(line)), font(14)))?;
    }
    Ok(())
}

/// A chart with room for its labels.
fn margins<'a, 'b>(area: &'a Area<'b>) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut chart = ChartBuilder::on(area);
    chart.margin(6 * PX).margin_right(14 * PX).x_label_area_size(36 * PX).y_label_area_size(62 * PX);
    chart
}

/// A place in pixels.
fn at(x: i32, y: i32) -> (i32, i32) {
    (x * PX as i32, y * PX as i32)
}

fn font(pixels: u32) -> TextStyle<'static> {
    ("sans-serif", pixels * PX).into()
}

/// The power of ten that brings values near 1, where axis labels are short: 0 for values that are near it anyway.
struct Scale {
    exponent: i32,
}

impl Scale {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let largest = values.fold(0.0f64, |m, v| m.max(v.abs()));
        let exponent = if largest == 0.0 { 0 } else { largest.log10().floor() as i32 };
        Self { exponent: if (-2..4).contains(&exponent) { 0 } else { exponent } }
    }

    fn apply(&self, value: f64) -> f64 {
        let half = self.exponent / 2; // in two steps: 10^320 is no f64
        value * 10f64.powi(-half) * 10f64.powi(half - self.exponent)
    }

    fn label(&self, what: &str) -> String {
        if self.exponent == 0 { what.into() } else { format!("{what} / 1e{}", self.exponent) }
    }

    /// From the smallest to the largest scaled value with a margin, but no margin below 0 where nothing is negative.
    fn range(&self, values: impl Iterator<Item = f64>) -> Range<f64> {
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
            let v = self.apply(v);
            (low.min(v), high.max(v))
        });
        let margin = match 0.06 * (high - low) {
            0.0 => 0.1 * high.abs().max(1.0),
            m => m,
        };
        let bottom = if low >= 0.0 && low <= margin { 0.0 } else { low - margin };
        let top = if high <= 0.0 && -high < margin && low < high { 0.0 } else { high + margin };
        bottom..top
    }
}

/// The entries with their indices, or the smallest and the largest entry of each of so many stretches.
fn thin_out(column: ArrayView1<'_, f64>, stretches: usize) -> Vec<(usize, f64)> {
    let entries: Vec<(usize, f64)> = column.iter().copied().enumerate().collect();
    if entries.len() <= 2 * stretches {
        return entries;
    }
    let ends = |stretch: &[(usize, f64)]| {
        let smallest = stretch.iter().min_by(|a, b| a.1.total_cmp(&b.1));
        let largest = stretch.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let mut both: Vec<(usize, f64)> = smallest.into_iter().chain(largest).copied().collect();
        both.sort_by_key(|e| e.0);
        both.dedup();
        both
    };
    entries.chunks(entries.len().div_ceil(stretches)).flat_map(ends).collect()
}

fn color(component: usize, rank: usize) -> RGBColor {
    if rank <= FEW.len() {
        return FEW[component % FEW.len()];
    }
    let position = component as f64 / (rank - 1) as f64 * (MANY.len() - 1) as f64;
    let below = (position as usize).min(MANY.len() - 2);
    let share = position - below as f64;
    let mix = |a: f64, b: f64| (a + share * (b - a)).round() as u8;
    let (a, b) = (MANY[below], MANY[below + 1]);
    RGBColor(mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}

/// Four significant digits, without trailing zeros.
fn number(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude < 1e-12 {
        return if magnitude < 1e-300 || magnitude < 1e-15 { "0".into() } else { format!("{value:.2e}") };
    }
    if !(1e-3..1e6).contains(&magnitude) {
        return format!("{value:.2e}");
    }
    let decimals = (3 - magnitude.log10().floor() as i32).max(0) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}
