//! The chart of the page `client-changes.md`: a row per condition, with the most important metric
//! on the left, on a logarithmic axis, and the cost on the right.

use core::fmt::Write as _;

use analysis::escaped;
use qoe::stats::Estimate;

/// Colours that remain distinct with any colour vision (Okabe and Ito, 2008).
const COLOURS: [&str; 3] = ["#0072b2", "#d55e00", "#009e73"];
const NAMES: [&str; 3] = ["best sender-only scheme", "best with a changed client", "clairvoyant"];
/// Left and right ends of both panels, in pixels.
const PANELS: [(f64, f64); 2] = [(210.0, 570.0), (620.0, 860.0)];
const WIDTH: f64 = 900.0;
const ROW: f64 = 22.0;
/// Heights of the title and of the axis of a block.
const HEAD: f64 = 24.0;
const FOOT: f64 = 48.0;
const TOP: f64 = 34.0;
/// Ends of the logarithmic axis, in %. Values below are drawn at its lower end.
const LOG: (f64, f64) = (0.01, 100.0);
/// Upper end of the axis of costs, in %.
const MAX_COST: f64 = 80.0;

/// A scheme in a condition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// The metric, in %.
    pub metric: Estimate,
    /// Retransmissions, replicas and repair packets per first transmission, in %.
    pub cost: f64,
}

/// A condition: the best sender-only scheme, the best one with a changed client, and the bound.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub label: String,
    pub marks: [Option<Mark>; 3],
}

/// Conditions with one metric.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub title: String,
    /// Label of the metric's axis.
    pub axis: String,
    pub rows: Vec<Row>,
}

/// Position of a value on the logarithmic axis.
fn log_x(value: f64) -> f64 {
    let (low, high) = PANELS[0];
    let share = (value.clamp(LOG.0, LOG.1) / LOG.0).log10() / (LOG.1 / LOG.0).log10();
    low + share * (high - low)
}

fn cost_x(value: f64) -> f64 {
    let (low, high) = PANELS[1];
    low + (value / MAX_COST).clamp(0.0, 1.0) * (high - low)
}

/// Draws the chart as an SVG file.
pub(super) fn svg(blocks: &[Block]) -> String {
    let height = |block: &Block| HEAD + ROW * block.rows.len() as f64 + FOOT;
    let total = TOP + blocks.iter().map(height).sum::<f64>();
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {total}\" \
         width=\"{WIDTH}\" height=\"{total}\" font-family=\"sans-serif\" font-size=\"13\" \
         role=\"img\">\n<rect width=\"{WIDTH}\" height=\"{total}\" fill=\"#fff\"/>\n"
    );
    // Writing to a string does not fail.
    let _ = legend(&mut out);
    let mut top = TOP;
    for block in blocks {
        let _ = draw(&mut out, block, top);
        top += height(block);
    }
    out + "</svg>\n"
}

fn legend(out: &mut String) -> core::fmt::Result {
    for (kind, (name, x)) in NAMES.iter().zip([20.0, 250.0, 490.0]).enumerate() {
        symbol(out, kind, x, 18.0)?;
        writeln!(out, "<text x=\"{}\" y=\"22\">{name}</text>", x + 14.0)?;
    }
    Ok(())
}

fn draw(out: &mut String, block: &Block, top: f64) -> core::fmt::Result {
    let first = top + HEAD;
    let bottom = first + ROW * block.rows.len() as f64;
    let y = top + 15.0;
    writeln!(
        out,
        "<text x=\"20\" y=\"{y}\" font-weight=\"bold\">{}</text>",
        escaped(&block.title)
    )?;
    let grid = |out: &mut String, x: f64, text: &str| {
        writeln!(
            out,
            "<line x1=\"{x:.1}\" y1=\"{first}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#ddd\"/>\n\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{text}</text>",
            bottom + 16.0
        )
    };
    for (value, text) in [(0.01, "≤ 0.01"), (0.1, "0.1"), (1.0, "1"), (10.0, "10"), (100.0, "100")]
    {
        grid(out, log_x(value), text)?;
    }
    for value in [0.0, 20.0, 40.0, 60.0, MAX_COST] {
        grid(out, cost_x(value), &format!("{value}"))?;
    }
    for ((low, high), text) in PANELS.into_iter().zip([&*block.axis, "cost, %"]) {
        let (x, y) = ((low + high) / 2.0, bottom + 34.0);
        let text = escaped(text);
        writeln!(out, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{text}</text>")?;
    }
    for (at, row) in block.rows.iter().enumerate() {
        draw_row(out, row, first + ROW * (at as f64 + 0.5))?;
    }
    Ok(())
}

fn draw_row(out: &mut String, row: &Row, y: f64) -> core::fmt::Result {
    let (x, baseline) = (PANELS[0].0 - 12.0, y + 4.0);
    let label = escaped(&row.label);
    writeln!(out, "<text x=\"{x}\" y=\"{baseline}\" text-anchor=\"end\">{label}</text>")?;
    // The bound is below the others, and the sender-only scheme on top.
    for (kind, mark) in row.marks.iter().enumerate().rev() {
        let Some(Mark { metric: Estimate { mean, half }, cost }) = *mark else { continue };
        // Marks of one row stand apart, because many are at the same place.
        let y = y + [-4.0, 4.0, 0.0][kind];
        let half = half.unwrap_or(0.0);
        writeln!(
            out,
            "<line x1=\"{:.1}\" y1=\"{y}\" x2=\"{:.1}\" y2=\"{y}\" stroke=\"{}\" \
             stroke-width=\"1.5\"/>",
            log_x(mean - half),
            log_x(mean + half),
            COLOURS[kind]
        )?;
        symbol(out, kind, log_x(mean), y)?;
        if kind < 2 {
            symbol(out, kind, cost_x(cost), y)?;
        }
    }
    Ok(())
}

/// Draws a dot, a square, or a stroke.
fn symbol(out: &mut String, kind: usize, x: f64, y: f64) -> core::fmt::Result {
    let colour = COLOURS[kind];
    match kind {
        0 => writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y}\" r=\"4.5\" fill=\"{colour}\"/>"),
        1 => writeln!(
            out,
            "<rect x=\"{:.1}\" y=\"{}\" width=\"8\" height=\"8\" fill=\"{colour}\"/>",
            x - 4.0,
            y - 4.0
        ),
        _ => writeln!(
            out,
            "<line x1=\"{x:.1}\" y1=\"{}\" x2=\"{x:.1}\" y2=\"{}\" stroke=\"{colour}\" \
             stroke-width=\"3\"/>",
            y - 9.0,
            y + 9.0
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_stand_at_their_values_and_zero_at_the_lower_end() {
        assert_eq!([0.0, 0.01, 0.1, 100.0].map(log_x), [210.0, 210.0, 300.0, 570.0]);
        assert_eq!([-1.0, 40.0, 500.0].map(cost_x), [620.0, 740.0, 860.0]);
        let mark = |mean| {
            let metric = Estimate { mean, half: Some(0.05) };
            Some(Mark { metric, cost: 40.0 })
        };
        let rows = vec![Row { label: "a < b".to_owned(), marks: [mark(0.1), None, mark(0.0)] }];
        let text = svg(&[Block { title: "t".to_owned(), axis: "late".to_owned(), rows }]);
        for part in ["a &lt; b", "cx=\"300.0\"", "cx=\"740.0\"", "≤ 0.01"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
