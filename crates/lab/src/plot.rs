//! Line charts as SVG, for reports.

use plotters::prelude::*;

/// An interval at `x`.
pub(crate) struct Span {
    pub x: f64,
    pub low: f64,
    pub high: f64,
}

/// A series of a chart.
pub(crate) struct Series {
    pub name: String,
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
    pub(crate) fn line(name: String) -> Self {
        Self { name, points: Vec::new(), band: Vec::new(), joined: true, dots: true }
    }

    /// A series of reference numbers.
    pub(crate) fn marks(name: String) -> Self {
        Self { joined: false, ..Self::line(name) }
    }
}

/// A chart with its axes. The y axis starts at 0, or below if a value is negative.
pub(crate) struct Chart {
    pub title: String,
    pub x: String,
    pub y: String,
}

/// Colours that remain distinct with any colour vision (Okabe and Ito, 2008), without the yellow,
/// which is invisible on paper.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    BLACK,
];
const SIZE: (u32, u32) = (900, 360);
/// Width without the legend.
const PLOT_WIDTH: u32 = 690;

impl Chart {
    /// Renders the chart as an SVG element.
    pub(crate) fn svg(&self, all: &[Series]) -> Result<String, String> {
        let mut svg = String::new();
        self.draw(&mut svg, all).map_err(|e| format!("plot `{}`: {e}", self.title))?;
        Ok(svg)
    }

    fn label(y: f64) -> String {
        // Two significant digits, however small the value.
        let digits = 1 - y.abs().max(1e-6).log10().floor() as i32;
        let text = format!("{y:.*}", usize::try_from(digits).unwrap_or(0));
        match text.split_once('.') {
            Some(_) => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            None => text,
        }
    }

    fn draw(&self, svg: &mut String, all: &[Series]) -> Result<(), String> {
        let values = || all.iter().flat_map(|series| series.points.iter());
        let x_max = values().map(|p| p.0).fold(f64::MIN_POSITIVE, f64::max);
        let (least, most) = values()
            .map(|p| p.1)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
        if least > most {
            return Err("nothing to draw".to_owned());
        }
        let margin = (most - least).max(1e-3) * 0.05;
        let bottom = f64::min(0.0, least - margin);
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        let (left, right) = area.split_horizontally(PLOT_WIDTH);
        let mut chart = ChartBuilder::on(&left)
            .caption(&self.title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(46)
            .y_label_area_size(66)
            .build_cartesian_2d(0.0..x_max * 1.02, bottom..most + margin)
            .map_err(text)?;
        chart
            .configure_mesh()
            .x_desc(&self.x)
            .y_desc(&self.y)
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .label_style(("sans-serif", 14))
            .y_label_formatter(&|y| Self::label(*y))
            .draw()
            .map_err(text)?;
        for (index, series) in all.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            // Points are hollow when colours repeat.
            let is_again = index >= COLOURS.len();
            let points = &series.points;
            if series.band.len() > 1 {
                let lower = series.band.iter().map(|span| (span.x, span.low));
                let upper = series.band.iter().rev().map(|span| (span.x, span.high));
                let outline: Vec<(f64, f64)> = lower.chain(upper).collect();
                let band = Polygon::new(outline, colour.mix(0.15).filled());
                chart.draw_series([band]).map_err(text)?;
            }
            if series.joined {
                let line = LineSeries::new(points.iter().copied(), colour.stroke_width(2));
                chart.draw_series(line).map_err(text)?;
            }
            let fill = if is_again { WHITE.filled() } else { colour.filled() };
            if series.dots && series.joined {
                let dots = points.iter().flat_map(|&point| {
                    [Circle::new(point, 4, fill), Circle::new(point, 4, colour.stroke_width(2))]
                });
                chart.draw_series(dots).map_err(text)?;
            } else if series.dots {
                let marks = points.iter().map(|&p| Cross::new(p, 6, colour.stroke_width(2)));
                chart.draw_series(marks).map_err(text)?;
            }
            let y = 44 + 20 * index as i32;
            if series.joined {
                let stroke = PathElement::new([(4, y), (28, y)], colour.stroke_width(2));
                right.draw(&stroke).map_err(text)?;
                right.draw(&Circle::new((16, y), 4, fill)).map_err(text)?;
                right.draw(&Circle::new((16, y), 4, colour.stroke_width(2))).map_err(text)?;
            } else {
                right.draw(&Cross::new((16, y), 6, colour.stroke_width(2))).map_err(text)?;
            }
            let name = Text::new(series.name.clone(), (36, y - 7), ("sans-serif", 14));
            right.draw(&name).map_err(text)?;
        }
        area.present().map_err(text)
    }
}

/// Converts a drawing error.
fn text(error: impl core::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_names_its_axes_and_lines() {
        let series = |name: &str, y: f64| Series {
            name: name.to_owned(),
            points: vec![(1.0, y), (2.0, 10.0 * y)],
            band: vec![
                Span { x: 1.0, low: 0.9 * y, high: y },
                Span { x: 2.0, low: 9.0 * y, high: 11.0 * y },
            ],
            ..Series::marks(String::new())
        };
        let chart = Chart { title: "T".to_owned(), x: "xs".to_owned(), y: "ys".to_owned() };
        let svg = chart.svg(&[series("one", 1.0), series("two", 2.0)]).expect("drawn");
        for part in ["T", "xs", "ys", "one", "two"] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        assert!(chart.svg(&[]).is_err());
    }
}
