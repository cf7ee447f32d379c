//! Line charts as SVG, for reports.

use plotters::prelude::*;

/// One line of a chart.
pub(crate) struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// What is plotted against what.
pub(crate) struct Chart {
    pub title: String,
    pub x: &'static str,
    pub y: &'static str,
    /// Upper end of the y axis; the largest value if none is given.
    pub y_max: Option<f64>,
}

impl Chart {
    /// The chart as an SVG element.
    pub(crate) fn svg(&self, all: &[Series]) -> Result<String, String> {
        let mut svg = String::new();
        self.draw(&mut svg, all).map_err(|e| format!("plot `{}`: {e}", self.title))?;
        Ok(svg)
    }

    fn draw(&self, svg: &mut String, all: &[Series]) -> Result<(), String> {
        let values = || all.iter().flat_map(|series| series.points.iter());
        let x_max = values().map(|p| p.0).fold(f64::MIN_POSITIVE, f64::max);
        let largest = values().map(|p| p.1).fold(f64::MIN_POSITIVE, f64::max);
        let y_max = self.y_max.unwrap_or(largest * 1.05);
        let area = SVGBackend::with_string(svg, (860, 380)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..x_max * 1.02, 0.0..y_max)
            .map_err(text)?;
        chart.configure_mesh().x_desc(self.x).y_desc(self.y).draw().map_err(text)?;
        for (index, series) in all.iter().enumerate() {
            let colour = Palette99::pick(index).to_rgba();
            let style = colour.stroke_width(2);
            let line = LineSeries::new(series.points.iter().copied(), style).point_size(3);
            chart.draw_series(line).map_err(text)?.label(&series.name).legend(move |(x, y)| {
                PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2))
            });
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.8))
            .draw()
            .map_err(text)?;
        area.present().map_err(text)
    }
}

/// What a drawing error says.
fn text(error: impl core::fmt::Display) -> String {
    error.to_string()
}
