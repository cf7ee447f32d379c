//! Line charts as SVG elements.

use core::fmt::Write as _;

use crate::text::figure;

/// Colours that remain distinct with any colour vision (Okabe and Ito, 2008), without the yellow,
/// which is invisible on paper.
const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000"];
/// Position of the axes, in pixels.
const LEFT: f64 = 66.0;
const RIGHT: f64 = 690.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 290.0;
const SIZE: (u32, u32) = (900, 340);
/// Target number of grid lines per axis.
const GRID_LINES: f64 = 6.0;
/// Margin between the values and the ends of the y axis, as a share of their range.
const MARGIN: f64 = 0.05;

/// A chart with its axes. They start at 0, the y axis below if a value is negative.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Title, drawn above the chart.
    pub title: String,
    /// Label of the x axis, with its unit.
    pub x: String,
    /// Label of the y axis, with its unit.
    pub y: String,
}

/// An interval at `x`.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Place on the x axis.
    pub x: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// A series of a chart.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Points (x, y).
    pub points: Vec<(f64, f64)>,
    /// Interval around each point.
    pub band: Vec<Span>,
    /// Whether a line joins the points.
    pub joined: bool,
    /// Whether points are marked: with dots, or with crosses if no line joins them.
    pub dots: bool,
}

impl Series {
    /// A series of measurements.
    pub fn line(name: String) -> Self {
        Self { name, points: Vec::new(), band: Vec::new(), joined: true, dots: true }
    }

    /// A series of reference numbers.
    pub fn marks(name: String) -> Self {
        Self { joined: false, ..Self::line(name) }
    }
}

impl Chart {
    /// Renders the chart as an SVG file, or an element of a page. Colours follow the order of the
    /// series.
    pub fn svg(&self, all: &[Series]) -> String {
        let values = || all.iter().flat_map(|series| &series.points);
        let (_, right) = ends(values().map(|point| point.0));
        let (least, most) = ends(values().map(|point| point.1));
        let margin = (most - least).max(1e-3) * MARGIN;
        let bottom = f64::min(0.0, least - margin);
        let y = Axis::new(bottom, most + margin, (BOTTOM, TOP));
        let axes = Axes { x: Axis::new(0.0, right, (LEFT, RIGHT)), y, is_share: false };
        let series: Vec<(usize, &Series)> = all.iter().enumerate().collect();
        drawn(self, &axes, &series, NAMESPACE)
    }
}

/// An axis: its ends, the grid step, and its position.
#[derive(Clone, Copy)]
pub(crate) struct Axis {
    low: f64,
    high: f64,
    step: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(low: f64, high: f64, (from, to): (f64, f64)) -> Self {
        // A single value has no extent.
        let high = if high > low { high } else { low + low.abs().max(1.0) };
        Self { low, high, step: step((high - low) / GRID_LINES), from, to }
    }

    /// The x axis for these values.
    pub(crate) fn horizontal(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = ends(values);
        Self::new(low, high, (LEFT, RIGHT))
    }

    /// The y axis for these values, from 0.
    pub(crate) fn vertical(values: impl Iterator<Item = f64>) -> Self {
        Self::new(0.0, ends(values).1, (BOTTOM, TOP))
    }

    /// The y axis of shares, from 0 to 1.
    pub(crate) fn share() -> Self {
        Self { step: 0.25, ..Self::new(0.0, 1.0, (BOTTOM, TOP)) }
    }

    fn at(&self, value: f64) -> f64 {
        self.from + (value - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let Self { step, high, .. } = *self;
        let first = (self.low / step).ceil();
        (0..20).map(move |i| (first + f64::from(i)) * step).take_while(move |tick| *tick <= high)
    }
}

/// Both axes.
pub(crate) struct Axes {
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// Whether the y axis has shares, labelled in percent.
    pub(crate) is_share: bool,
}

impl Axes {
    fn at(&self, point: (f64, f64)) -> (f64, f64) {
        (self.x.at(point.0), self.y.at(point.1))
    }
}

/// Least and largest value; 0 and 0 without any.
fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values
        .fold(None, |ends, v| match ends {
            None => Some((v, v)),
            Some((low, high)) => Some((f64::min(low, v), f64::max(high, v))),
        })
        .unwrap_or_default()
}

/// Attribute of SVG files, which elements of HTML do without.
const NAMESPACE: &str = " xmlns=\"http://www.w3.org/2000/svg\"";

/// Renders series, each with the index of its colour, as an element with these attributes.
pub(crate) fn drawn(
    chart: &Chart,
    axes: &Axes,
    all: &[(usize, &Series)],
    attributes: &str,
) -> String {
    let (width, height) = SIZE;
    let mut out = format!(
        "<svg{attributes} viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\" role=\"img\">\n"
    );
    draw_axes(&mut out, chart, axes);
    for (place, (colour, series)) in all.iter().enumerate() {
        draw_series(&mut out, axes, *colour, series);
        draw_key(&mut out, place, *colour, series);
    }
    out + "</svg>\n"
}

fn draw_axes(out: &mut String, chart: &Chart, axes: &Axes) {
    let Axes { x, y, is_share } = axes;
    for tick in y.ticks() {
        let height = y.at(tick);
        draw_grid(out, (LEFT, height), (RIGHT, height));
        let label = if *is_share { format!("{:.0} %", tick * 100.0) } else { label(tick, y.step) };
        draw_text(out, (LEFT - 8.0, height + 4.0), "end", &label);
    }
    for tick in x.ticks() {
        let place = x.at(tick);
        draw_grid(out, (place, TOP), (place, BOTTOM));
        draw_text(out, (place, BOTTOM + 18.0), "middle", &label(tick, x.step));
    }
    let middle = (LEFT + RIGHT) / 2.0;
    draw_text(out, (LEFT, TOP - 14.0), "start", &chart.title);
    draw_text(out, (middle, BOTTOM + 40.0), "middle", &chart.x);
    let centre = (TOP + BOTTOM) / 2.0;
    // Writing to a string does not fail, here and below.
    let _ = writeln!(
        out,
        "<text transform=\"translate(16 {centre:.1}) rotate(-90)\" \
         text-anchor=\"middle\">{}</text>",
        escaped(&chart.y)
    );
}

fn draw_series(out: &mut String, axes: &Axes, colour: usize, series: &Series) {
    if series.band.len() > 1 {
        let lower = series.band.iter().map(|span| (span.x, span.low));
        let upper = series.band.iter().rev().map(|span| (span.x, span.high));
        let outline = path(lower.chain(upper).map(|point| axes.at(point)));
        let (fill, width, height) = (hue(colour), RIGHT - LEFT, BOTTOM - TOP);
        // The inner element clips intervals that exceed the axes.
        let _ = writeln!(
            out,
            "<svg x=\"{LEFT}\" y=\"{TOP}\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"{LEFT} {TOP} {width} {height}\"><polygon fill=\"{fill}\" \
             fill-opacity=\"0.15\" points=\"{outline}\"/></svg>"
        );
    }
    let points = || series.points.iter().map(|&point| axes.at(point));
    if series.joined {
        draw_line(out, colour, &path(points()));
    }
    if series.dots {
        points().for_each(|point| draw_point(out, colour, series.joined, point));
    }
}

/// The series' row of the legend.
fn draw_key(out: &mut String, place: usize, colour: usize, series: &Series) {
    let height = TOP + 12.0 + 20.0 * place as f64;
    if series.joined {
        let ends = [(RIGHT + 12.0, height), (RIGHT + 36.0, height)];
        draw_line(out, colour, &path(ends.into_iter()));
    }
    if series.dots {
        draw_point(out, colour, series.joined, (RIGHT + 24.0, height));
    }
    draw_text(out, (RIGHT + 44.0, height + 4.0), "start", &series.name);
}

fn hue(colour: usize) -> &'static str {
    COLOURS[colour % COLOURS.len()]
}

fn path(points: impl Iterator<Item = (f64, f64)>) -> String {
    points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ")
}

fn draw_grid(out: &mut String, from: (f64, f64), to: (f64, f64)) {
    let _ = writeln!(
        out,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#ddd\"/>",
        from.0, from.1, to.0, to.1
    );
}

fn draw_text(out: &mut String, at: (f64, f64), anchor: &str, text: &str) {
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
        at.0,
        at.1,
        escaped(text)
    );
}

/// A line, dashed when colours repeat.
fn draw_line(out: &mut String, colour: usize, points: &str) {
    let dashes = if colour < COLOURS.len() { "" } else { " stroke-dasharray=\"6 4\"" };
    let _ = writeln!(
        out,
        "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{dashes} points=\"{points}\"/>",
        hue(colour)
    );
}

/// A dot, hollow when colours repeat, or a cross.
fn draw_point(out: &mut String, colour: usize, is_dot: bool, (x, y): (f64, f64)) {
    let hue = hue(colour);
    let _ = if is_dot {
        let fill = if colour < COLOURS.len() { hue } else { "#ffffff" };
        writeln!(
            out,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{fill}\" stroke=\"{hue}\" \
             stroke-width=\"2\"/>"
        )
    } else {
        writeln!(
            out,
            "<path d=\"M{:.1} {:.1}l12 12m0 -12l-12 12\" stroke=\"{hue}\" stroke-width=\"2\"/>",
            x - 6.0,
            y - 6.0
        )
    };
}

/// Rounds up to 1, 2 or 5 times a power of ten.
fn step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0].iter().map(|of| of * power).find(|step| *step >= rough).unwrap_or(10.0 * power)
}

/// Formats a tick label for this step.
fn label(tick: f64, step: f64) -> String {
    let digits = (-step.log10().floor()).max(0.0);
    if digits <= 8.0 { format!("{tick:.0$}", digits as usize) } else { figure(tick) }
}

/// Escapes text for HTML.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        Chart { title: "T & t".to_owned(), x: "xs".to_owned(), y: "ys".to_owned() }
    }

    #[test]
    fn a_chart_names_its_axes_and_series_and_draws_their_points_and_bands() {
        let series = |name: &str, y: f64| Series {
            points: vec![(1.0, y), (2.0, 10.0 * y)],
            band: vec![
                Span { x: 1.0, low: 0.9 * y, high: y },
                Span { x: 2.0, low: 9.0 * y, high: 11.0 * y },
            ],
            ..Series::line(name.to_owned())
        };
        let paper = Series { points: vec![(2.0, -1.0)], ..Series::marks("paper".to_owned()) };
        let svg = chart().svg(&[series("one", 1.0), series("two", 2.0), paper]);
        for part in ["T &amp; t", ">xs<", ">ys<", ">one<", ">two<", ">paper<", ">0<", ">20<"] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        let count = |part: &str| svg.matches(part).count();
        assert_eq!((count("<polygon"), count("<polyline"), count("<circle")), (2, 4, 6));
        assert_eq!(count("viewBox=\"66 34 624 256\"><polygon"), 2, "bands are clipped: {svg}");
        // The value and the legend; below 0 is inside the axes.
        assert_eq!(count("<path"), 2);
        let lowest =
            svg.lines().filter_map(|line| line.split_once("<path d=\"M")?.1.split_once('l'));
        let lowest: Vec<f64> = lowest
            .filter_map(|(at, _)| at.split_once(' ')?.1.parse().ok())
            .map(|top: f64| top + 6.0)
            .collect();
        assert!(lowest.iter().all(|y| *y < BOTTOM), "{lowest:?}");
    }

    #[test]
    fn a_chart_without_points_is_drawn_empty() {
        let svg = chart().svg(&[]);
        assert!(!svg.contains("NaN") && !svg.contains("inf") && svg.contains(">xs<"), "{svg}");
    }
}
