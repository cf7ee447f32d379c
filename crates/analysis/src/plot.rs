//! Line plots of reports.

use crate::chart::{Axes, Axis, Chart, Series, drawn};

/// A plot.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Title.
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

impl Plot {
    /// Returns whether there are no points.
    pub fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.points.is_empty())
    }

    /// Renders the plot as an SVG element.
    pub fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x = Axis::horizontal(points().map(|point| point.0));
        let (y, is_share) = match self.y {
            YAxis::Share => (Axis::share(), true),
            YAxis::Number => (Axis::vertical(points().map(|point| point.1)), false),
        };
        let of = |line: &Curve| Series {
            points: line.points.clone(),
            dots: false,
            ..Series::line(line.name.clone())
        };
        let series: Vec<Series> = self.lines.iter().map(of).collect();
        let colours = self.lines.iter().map(|line| line.colour);
        let series: Vec<(usize, &Series)> = colours.zip(&series).collect();
        let chart = Chart { title: self.title.clone(), x: self.x.clone(), y: String::new() };
        drawn(&chart, &Axes { x, y, is_share }, &series, "")
    }
}
