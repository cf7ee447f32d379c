//! Line plots of reports, as SVG.

use core::fmt::Write as _;

use crate::text::figure;

/// Colours that remain distinct with any colour vision (Okabe and Ito, 2008), without the yellow,
/// which is invisible on paper.
const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000"];
/// Position of the axes, in pixels.
const LEFT: f64 = 56.0;
const RIGHT: f64 = 690.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 270.0;
const SIZE: (u32, u32) = (900, 320);
/// Target number of grid lines per axis.
const GRID_LINES: f64 = 6.0;

/// A plot.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Title, also the alternative text.
    pub title: String,
    /// Label of the x axis, with its unit.
    pub x: String,
    /// Quantity on the y axis.
    pub y: YAxis,
    /// Curves.
    pub lines: Vec<Curve>,
}

/// Quantity on the y axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum YAxis {
    /// A share, from 0 to 1.
    Share,
    /// A non-negative number.
    Number,
}

/// A curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Name in the legend.
    pub name: String,
    /// Index of its colour.
    pub colour: usize,
    /// Points (x, y).
    pub points: Vec<(f64, f64)>,
}

/// An axis: its ends, the grid step, and its position.
#[derive(Clone, Copy)]
struct Axis {
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

    fn at(&self, value: f64) -> f64 {
        self.from + (value - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let Self { step, high, .. } = *self;
        let first = (self.low / step).ceil();
        (0..20).map(move |i| (first + f64::from(i)) * step).take_while(move |tick| *tick <= high)
    }
}

impl Plot {
    /// Returns whether there are no points.
    pub fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.points.is_empty())
    }

    /// Renders the plot as an SVG element.
    pub fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let ends = |values: &mut dyn Iterator<Item = f64>| {
            values.fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)))
        };
        let (left, right) = ends(&mut points().map(|point| point.0));
        let x = Axis::new(left, right, (LEFT, RIGHT));
        let y = match self.y {
            YAxis::Share => Axis { step: 0.25, ..Axis::new(0.0, 1.0, (BOTTOM, TOP)) },
            YAxis::Number => {
                Axis::new(0.0, ends(&mut points().map(|point| point.1)).1, (BOTTOM, TOP))
            }
        };
        let mut out = format!(
            "<svg viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\">\n<title>{2}</title>\n",
            SIZE.0,
            SIZE.1,
            escaped(&self.title)
        );
        self.draw_axes(&mut out, &x, &y);
        for (at, line) in self.lines.iter().enumerate() {
            let points = line.points.iter();
            let points = points.map(|p| format!("{:.1},{:.1}", x.at(p.0), y.at(p.1)));
            draw_line(&mut out, line.colour, &points.collect::<Vec<_>>().join(" "));
            let height = TOP + 12.0 + 20.0 * at as f64;
            let key = format!("{:.1},{height:.1} {:.1},{height:.1}", RIGHT + 12.0, RIGHT + 36.0);
            draw_line(&mut out, line.colour, &key);
        }
        out + "</svg>\n"
    }

    fn draw_axes(&self, out: &mut String, x: &Axis, y: &Axis) {
        for height in y.ticks().map(|tick| y.at(tick)) {
            draw_grid(out, (LEFT, height), (RIGHT, height));
        }
        for place in x.ticks().map(|tick| x.at(tick)) {
            draw_grid(out, (place, TOP), (place, BOTTOM));
        }
        for tick in y.ticks() {
            let label = match self.y {
                YAxis::Share => format!("{:.0} %", tick * 100.0),
                YAxis::Number => label(tick, y.step),
            };
            draw_text(out, (LEFT - 8.0, y.at(tick) + 4.0), "end", &label);
        }
        for tick in x.ticks() {
            draw_text(out, (x.at(tick), BOTTOM + 18.0), "middle", &label(tick, x.step));
        }
        draw_text(out, ((LEFT + RIGHT) / 2.0, BOTTOM + 40.0), "middle", &self.x);
        for (at, line) in self.lines.iter().enumerate() {
            let height = TOP + 16.0 + 20.0 * at as f64;
            draw_text(out, (RIGHT + 44.0, height), "start", &line.name);
        }
    }
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

fn draw_line(out: &mut String, colour: usize, points: &str) {
    // Lines are dashed when colours repeat.
    let dashes = if colour < COLOURS.len() { "" } else { " stroke-dasharray=\"6 4\"" };
    let _ = writeln!(
        out,
        "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{dashes} points=\"{points}\"/>",
        COLOURS[colour % COLOURS.len()]
    );
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
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::new();
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
