//! Charts as SVG: lines and points, stacked and grouped bars, each with its axes, legend and caption.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Coord, Coord>>;
type Failed = DrawingAreaErrorKind<std::io::Error>;

/// Drawing units in a pixel, so that lines are not rounded to whole pixels.
const PX: u32 = 8;
const WIDTH: u32 = 1000;
const HEIGHT: u32 = 460;
const SIDE: u32 = 270;
const TOP: u32 = 44;
const LINE: u32 = 18;
/// Characters of a line of the caption, of the legend, and of a category's name.
const CAPTION: usize = 140;
const LEGEND: usize = 28;
const CATEGORY: f64 = 7.5;
/// Okabe and Ito's colours without yellow.
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

/// A range with its ticks, those with a number and those without.
struct Coord {
    range: RangedCoordf64,
    bold: Vec<f64>,
    light: Vec<f64>,
}

impl Ranged for Coord {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.range.map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { self.light.clone() } else { self.bold.clone() }
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.range.range()
    }
}

/// An axis.
pub struct Axis {
    /// What it shows, with the unit.
    pub label: String,
    pub log: bool,
}

/// A line, or points alone.
pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    /// Points are joined.
    pub line: bool,
    /// Points are filled, else open.
    pub filled: bool,
}

/// One bar of stacked parts, in the order of [`Bars::parts`].
pub struct Bar {
    pub parts: Vec<f64>,
    /// Where a line is drawn across it.
    pub mark: Option<f64>,
    /// What is written above it.
    pub text: String,
}

/// Bars in groups. With a single part colours tell the bars of a group apart, else the parts.
pub struct Bars {
    pub groups: Vec<(String, Vec<Option<Bar>>)>,
    /// Names for the legend: of the bars of a group if there is one part, else of the parts.
    pub names: Vec<String>,
    /// What the mark is, if there is one.
    pub mark: Option<String>,
}

/// What every chart has.
pub struct Frame {
    pub title: String,
    /// Device, command, and what a reader has to know.
    pub caption: Vec<String>,
    pub x: Axis,
    pub y: Axis,
}

/// Lines and points over numbers, or over categories at 0, 1, ..; `levels` are horizontal lines with a name.
pub fn lines(
    frame: &Frame,
    series: &[Series],
    levels: &[(f64, String)],
    categories: &[String],
) -> Result<String, String> {
    let values = || series.iter().flat_map(|s| &s.points);
    let x = match categories.len() {
        0 => span(values().map(|p| p.0), &frame.x, 0.02),
        n => -0.6..n as f64 - 0.4,
    };
    let y = span(values().map(|p| p.1).chain(levels.iter().map(|l| l.0)), &frame.y, 0.06);
    draw(frame, categories, (x, y), |chart, root, left| {
        let place = |&(x, y): &(f64, f64)| (frame.x.of(x), frame.y.of(y));
        for (level, name) in levels {
            let ends = [chart.plotting_area().get_x_range().start, chart.plotting_area().get_x_range().end];
            let y = frame.y.of(*level);
            chart.draw_series(DashedLineSeries::new(
                ends.map(|x| (x, y)),
                6 * PX,
                5 * PX,
                BLACK.mix(0.5).stroke_width(PX),
            ))?;
            let at = chart.backend_coord(&(ends[1], y));
            root.draw(&Text::new(
                name.clone(),
                (at.0 + 6 * PX as i32, at.1),
                font(12).pos(Pos::new(HPos::Left, VPos::Center)),
            ))?;
        }
        let mut legend = Legend::default();
        for (i, s) in series.iter().enumerate() {
            let color = COLORS[i % COLORS.len()];
            // Later ones are drawn over earlier ones and are smaller, so that those that coincide are all seen.
            let later = (series.len() - 1 - i).min(4) as u32;
            let (dot, stroke) = (|at| dot(s.filled, at, color, later), color.stroke_width(2 * PX + later * PX));
            if s.line {
                chart.draw_series(LineSeries::new(s.points.iter().map(place), stroke))?;
            }
            chart.draw_series(s.points.iter().map(place).map(dot))?;
            // Levels have their names beside the chart: the legend goes further right.
            let x = left + if levels.is_empty() { 0 } else { 48 };
            let y = legend.line(root, x, &s.name)?;
            root.draw(&self::dot(s.filled, at(x + 14, y), color, later))?;
            if s.line {
                root.draw(&PathElement::new([at(x, y), at(x + 28, y)], stroke))?;
            }
        }
        Ok(())
    })
}

/// Grouped or stacked bars over categories.
pub fn bars(frame: &Frame, bars: &Bars) -> Result<String, String> {
    let categories: Vec<String> = bars.groups.iter().map(|(name, _)| name.clone()).collect();
    let all = || bars.groups.iter().flat_map(|(_, group)| group.iter().flatten());
    let stacked = all().map(|bar| bar.parts.len()).max().unwrap_or(0) > 1;
    let heights = all().flat_map(|bar| [Some(bar.parts.iter().sum::<f64>()), bar.mark]).flatten();
    let y = span(heights, &frame.y, 0.08);
    let bottom = if frame.y.log { y.start } else { 0.0 };
    let x = -0.6..categories.len() as f64 - 0.4;
    draw(frame, &categories, (x, bottom..y.end), |chart, root, left| {
        for (at_group, (_, group)) in bars.groups.iter().enumerate() {
            let width = 0.8 / group.len().max(1) as f64;
            for (i, bar) in group.iter().enumerate() {
                let Some(bar) = bar else { continue };
                let from = at_group as f64 - 0.4 + i as f64 * width;
                let (from, to) = (from + 0.05 * width, from + 0.95 * width);
                let (mut low, mut sum) = (bottom, 0.0);
                for (p, part) in bar.parts.iter().enumerate() {
                    sum += part;
                    let high = frame.y.of(sum).max(bottom);
                    let color = COLORS[if stacked { p } else { i } % COLORS.len()];
                    chart.draw_series([Rectangle::new([(from, low), (to, high)], color.filled())])?;
                    low = high;
                }
                if let Some(at) = bar.mark {
                    let y = frame.y.of(at);
                    chart.draw_series([PathElement::new([(from, y), (to, y)], BLACK.stroke_width(3 * PX))])?;
                }
                let top = low.max(bar.mark.map_or(low, |at| frame.y.of(at)));
                let (x, y) = chart.backend_coord(&((from + to) / 2.0, top));
                let style = font(10).pos(Pos::new(HPos::Center, VPos::Bottom));
                root.draw(&Text::new(bar.text.clone(), (x, y - 3 * PX as i32), style))?;
            }
        }
        let mut legend = Legend::default();
        for (i, name) in bars.names.iter().enumerate() {
            let y = legend.line(root, left, name)?;
            let color = COLORS[i % COLORS.len()];
            root.draw(&Rectangle::new([at(left + 8, y - 7), at(left + 28, y + 7)], color.filled()))?;
        }
        if let Some(name) = &bars.mark {
            let y = legend.line(root, left, name)?;
            root.draw(&PathElement::new([at(left + 4, y), at(left + 32, y)], BLACK.stroke_width(3 * PX)))?;
        }
        Ok(())
    })
}

fn draw(
    frame: &Frame,
    categories: &[String],
    (x, y): (std::ops::Range<f64>, std::ops::Range<f64>),
    content: impl FnOnce(&mut Chart<'_, '_>, &Area<'_>, u32) -> Result<(), Failed>,
) -> Result<String, String> {
    let caption: Vec<String> = frame.caption.iter().flat_map(|line| wrap(line, CAPTION)).collect();
    let names = category_lines(categories);
    let height = TOP + HEIGHT + 16 + caption.len() as u32 * LINE;
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, (WIDTH * PX, height * PX)).into_drawing_area();
    let drawn = (|| {
        root.fill(&WHITE)?;
        root.draw(&Text::new(frame.title.clone(), at(20, 14), font(18)))?;
        let (_, body) = root.split_vertically(TOP * PX);
        let (body, _) = body.split_vertically(HEIGHT * PX);
        let (left, _) = body.split_horizontally((WIDTH - SIDE) * PX);
        let bottom = y.start;
        let mut chart = ChartBuilder::on(&left)
            .margin(6 * PX)
            .margin_right(14 * PX)
            .x_label_area_size((44 + 14 * (names.iter().map(Vec::len).max().unwrap_or(1) as u32 - 1)) * PX)
            .y_label_area_size(76 * PX)
            .build_cartesian_2d(frame.x.coord(x), frame.y.coord(y))?;
        let (in_x, in_y) = (|v: &f64| frame.x.tick(*v), |v: &f64| frame.y.tick(*v));
        let mut mesh = chart.configure_mesh();
        mesh.light_line_style(if frame.y.log { BLACK.mix(0.05).stroke_width(PX) } else { TRANSPARENT.into() })
            .bold_line_style(BLACK.mix(0.1).stroke_width(PX))
            .set_all_tick_mark_size(5 * PX)
            .axis_style(BLACK.mix(0.5).stroke_width(PX))
            .x_desc(frame.x.label.clone())
            .y_desc(frame.y.label.clone())
            .y_label_formatter(&in_y)
            .axis_desc_style(font(14))
            .label_style(font(12));
        let nothing = |_: &f64| String::new();
        if categories.is_empty() {
            mesh.x_label_formatter(&in_x).draw()?;
        } else {
            mesh.disable_x_mesh().disable_x_axis().x_label_formatter(&nothing).draw()?;
            for (i, lines) in names.iter().enumerate() {
                let (x, y) = chart.backend_coord(&(i as f64, bottom));
                for (line, text) in lines.iter().enumerate() {
                    let style = font(12).pos(Pos::new(HPos::Center, VPos::Top));
                    root.draw(&Text::new(text.clone(), (x, y + ((9 + 14 * line) as u32 * PX) as i32), style))?;
                }
            }
        }
        content(&mut chart, &root, WIDTH - SIDE + 16)?;
        for (i, line) in caption.iter().enumerate() {
            root.draw(&Text::new(line.clone(), at(20, TOP + HEIGHT + 6 + i as u32 * LINE), font(12)))?;
        }
        root.present()
    })();
    drawn.map_err(|e: Failed| e.to_string())?;
    drop(root);
    // The size on the page in pixels; the view box stays in drawing units.
    let size = |unit: u32| format!("<svg width=\"{}\" height=\"{}\" viewBox", WIDTH * PX / unit, height * PX / unit);
    Ok(svg.replacen(&size(1), &size(PX), 1))
}

impl Axis {
    pub fn new(label: &str, log: bool) -> Self {
        Self { label: label.into(), log }
    }

    fn of(&self, value: f64) -> f64 {
        if self.log { value.max(1e-300).log10() } else { value }
    }

    /// The axis with its ticks.
    fn coord(&self, range: std::ops::Range<f64>) -> Coord {
        let (bold, light) = if self.log { log_ticks(&range) } else { (even_ticks(&range), Vec::new()) };
        Coord { range: range.into(), bold, light }
    }

    /// What stands at a tick.
    fn tick(&self, value: f64) -> String {
        let shown = if self.log { 10f64.powf(value) } else { value };
        let size = shown.abs();
        if size < 1e-12 {
            return "0".into();
        }
        if !(1e-3..999_999.5).contains(&size) {
            return format!("{shown:.0e}");
        }
        let decimals = (2 - size.log10().floor() as i32).clamp(0, 5) as usize;
        let text = format!("{shown:.decimals$}");
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
    }
}

/// Ticks of a linear axis, at most nine: multiples of 1, 2 or 5 times a power of ten.
fn even_ticks(range: &std::ops::Range<f64>) -> Vec<f64> {
    let least = (range.end - range.start) / 8.0;
    if !(least > 0.0 && least.is_finite()) {
        return vec![range.start];
    }
    let power = 10f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|&step| step >= least).unwrap_or(least);
    let (first, last) = ((range.start / step).ceil() as i64, (range.end / step).floor() as i64);
    (first..=last).map(|k| k as f64 * step).collect()
}

/// Ticks of an axis of common logarithms: those with a number, which are whole powers of ten where there are enough, 1, 2 and
/// 5 times those on shorter axes, and all multiples on the shortest; then lines without one.
fn log_ticks(range: &std::ops::Range<f64>) -> (Vec<f64>, Vec<f64>) {
    let (first, last) = (range.start.floor() as i32, range.end.ceil() as i32);
    let every = (last - first) / 9 + 1;
    let at = |digits: &[f64]| -> Vec<f64> {
        let powers = (first..=last).filter(|power| power % every == 0);
        let all = powers.flat_map(|power| digits.iter().map(move |digit| f64::from(power) + digit.log10()));
        all.filter(|value| range.contains(value)).collect()
    };
    let bold = match range.end - range.start {
        ..0.9 => at(&[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0]),
        0.9..3.2 => at(&[1.0, 2.0, 5.0]),
        _ => at(&[1.0]),
    };
    (bold, if every == 1 { at(&[2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]) } else { Vec::new() })
}

/// Where the legend has come to.
#[derive(Default)]
struct Legend {
    lines: u32,
    entries: u32,
}

impl Legend {
    /// Writes a name, in several lines where it is long, and gives the height of its first.
    fn line(&mut self, root: &Area<'_>, x: u32, name: &str) -> Result<u32, Failed> {
        let first = TOP + 20 + self.entries * 22 + self.lines * 16;
        for (i, text) in wrap(name, LEGEND).into_iter().enumerate() {
            let style = font(13).pos(Pos::new(HPos::Left, VPos::Center));
            root.draw(&Text::new(text, at(x + 38, first + 16 * i as u32), style))?;
            self.lines += u32::from(i > 0);
        }
        self.entries += 1;
        Ok(first)
    }
}

/// Names of categories, all cut at their last space where one of them is too wide for its place.
fn category_lines(categories: &[String]) -> Vec<Vec<String>> {
    let room = f64::from(WIDTH - SIDE - 96) / categories.len().max(1) as f64;
    let narrow = categories.iter().any(|name| name.chars().count() as f64 * CATEGORY > room);
    let lines = |name: &String| match name.rsplit_once(' ') {
        Some((a, b)) if narrow => vec![a.to_owned(), b.to_owned()],
        _ => vec![name.clone()],
    };
    categories.iter().map(lines).collect()
}

/// From the smallest to the largest value with a margin, on the axis; from 0 on a linear one.
fn span(values: impl Iterator<Item = f64>, axis: &Axis, margin: f64) -> std::ops::Range<f64> {
    let usable = values.filter(|v| v.is_finite() && (!axis.log || *v > 0.0)).map(|v| axis.of(v));
    let (low, high) = usable.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    if low > high {
        return 0.0..1.0;
    }
    if !axis.log {
        return 0.0..if high > 0.0 { high * (1.0 + margin) } else { 1.0 };
    }
    let room = ((high - low) * margin).max(0.1);
    low - room..high + room
}

/// Filled or open, so that colour is not all there is.
fn dot<C>(filled: bool, at: C, color: RGBColor, larger: u32) -> Circle<C, u32> {
    let style = if filled { color.filled() } else { color.stroke_width(2 * PX) };
    Circle::new(at, if filled { (3 + larger) * PX } else { (4 + 2 * larger) * PX }, style)
}

/// Lines of at most so many characters, cut at spaces.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        if !lines[last].is_empty() && lines[last].chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if !lines[last].is_empty() {
                lines[last].push(' ');
            }
            lines[last].push_str(word);
        }
    }
    lines
}

/// A place in pixels.
fn at(x: u32, y: u32) -> (i32, i32) {
    ((x * PX) as i32, (y * PX) as i32)
}

fn font(pixels: u32) -> TextStyle<'static> {
    ("sans-serif", pixels * PX).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(axis: &Axis, values: &[f64]) -> Vec<String> {
        values.iter().map(|&value| axis.tick(value)).collect()
    }

    #[test]
    fn log_axes_have_round_numbers() {
        let log = Axis::new("", true);
        let ticks = |from: f64, to: f64| shown(&log, &log_ticks(&(from.log10()..to.log10())).0);
        assert_eq!(ticks(3.5, 60.0), ["5", "10", "20", "50"]);
        assert_eq!(ticks(0.9, 2000.0), ["1", "10", "100", "1000"]);
        assert_eq!(ticks(110.0, 450.0), ["150", "200", "300", "400"]);
        assert_eq!(ticks(0.04, 0.3), ["0.04", "0.05", "0.06", "0.08", "0.1", "0.15", "0.2"]);
        assert_eq!(ticks(1e5, 3e7), ["100000", "200000", "500000", "1e6", "2e6", "5e6", "1e7", "2e7"]);
        for digits in 1..30 {
            let (bold, light) = log_ticks(&(0.1..f64::from(digits) + 0.3));
            assert!((1..12).contains(&bold.len()) && bold.windows(2).all(|pair| pair[0] < pair[1]), "{bold:?}");
            assert!(light.len() < 100);
        }
    }

    #[test]
    fn linear_axes_have_round_numbers() {
        let axis = Axis::new("", false);
        let ticks = |from, to| shown(&axis, &even_ticks(&(from..to)));
        assert_eq!(ticks(0.0, 4.3), ["0", "1", "2", "3", "4"]);
        assert_eq!(ticks(0.0, 420.0), ["0", "100", "200", "300", "400"]);
        assert_eq!(ticks(62.0, 2038.0), ["500", "1000", "1500", "2000"]);
        assert_eq!(ticks(1.0, 1.0), ["1"]);
    }

    #[test]
    fn long_names_are_cut() {
        let names: Vec<String> = (0..9).map(|i| format!("FUSED R={}", 1000 + i)).collect();
        assert_eq!(category_lines(&names)[8], ["FUSED", "R=1008"]);
        assert_eq!(category_lines(&names[..2])[0], ["FUSED R=1000"]);
        assert_eq!(wrap("llvmpipe (LLVM 15.0.6, 256 bits), R = 16", LEGEND).len(), 2);
    }
}
