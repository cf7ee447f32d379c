//! Plots the fit of the loss model of calls: the loss probability 20 ms to 2 s after a loss, and
//! the distribution of losses over run lengths, for the measured fates and for a million packets
//! over a link with the model.
//!
//! `cargo run --release -p mendcast-links --example draw_calls >
//! docs/reproduce/pictures/calls-fit.svg`

use std::time::Duration;

use mendcast_links::{Link, LinkConfig, Packet};
use units::{Ecn, Timestamp};

const LAGS: &str = include_str!("../src/calls-measured.csv");
const RUNS: &str = include_str!("../src/calls-runs.csv");
/// Lags of the columns in slots of 20 ms, and their labels.
const LAG_SLOTS: [usize; 8] = [1, 2, 3, 5, 10, 25, 50, 100];
const LAG_NAMES: [&str; 8] = ["20 ms", "40", "60", "100", "200", "500 ms", "1 s", "2 s"];
/// Upper ends of the columns' run lengths, and their labels.
const LENGTHS: [usize; 5] = [1, 5, 15, 50, usize::MAX];
const LENGTH_NAMES: [&str; 5] = ["1 packet", "2 to 5", "6 to 15", "16 to 50", "more"];
const SLOT: Duration = Duration::from_millis(20);
const PACKETS: usize = 1_000_000;
/// Plotted rates: nominal, as fitted, and colour (Okabe and Ito, 2008).
const DRAWN: [(&str, &str, &str); 3] =
    [("0.01", "0.0106", "#0072b2"), ("0.05", "0.0542", "#d55e00"), ("0.20", "0.1969", "#009e73")];

/// Fates of packets 20 ms apart, from the model.
fn fates(rate: &str) -> Vec<bool> {
    let loss = format!("calls:rate={rate}").parse().expect("a loss");
    let config = LinkConfig { loss: Some(loss), ..LinkConfig::default() };
    let mut link = Link::new(&config, 1, "calls");
    let mut now = Timestamp::ZERO;
    let fate = |_| {
        link.send(now, Packet { size: 1_200, ecn: Ecn::NotEct, payload: () });
        let is_lost = link.poll(now).is_none();
        now += SLOT;
        is_lost
    };
    (0..PACKETS).map(fate).collect()
}

/// Fractions of packets lost at each lag after a lost one.
fn after(fates: &[bool]) -> Vec<f64> {
    let losses = fates.iter().filter(|lost| **lost).count();
    let both = |lag: usize| fates.iter().zip(&fates[lag..]).filter(|(a, b)| **a && **b).count();
    LAG_SLOTS.iter().map(|lag| both(*lag) as f64 / losses as f64).collect()
}

/// Fractions of losses in runs of each length.
fn in_runs(fates: &[bool]) -> Vec<f64> {
    let mut counts = [0; LENGTHS.len()];
    for run in fates.split(|lost| !lost).map(<[bool]>::len).filter(|run| *run > 0) {
        counts[LENGTHS.iter().position(|most| run <= *most).unwrap_or(0)] += run;
    }
    let losses: usize = counts.iter().sum();
    counts.iter().map(|count| *count as f64 / losses as f64).collect()
}

/// Returns the first columns after the rate in a table.
fn measured(table: &str, rate: &str, columns: usize) -> Vec<f64> {
    let line = table.lines().find(|line| line.split(',').next() == Some(rate));
    let columns = line.expect("a measured rate").split(',').skip(1).take(columns);
    columns.map(|share| share.parse().expect("a number")).collect()
}

/// A plot of fractions over columns.
struct Panel {
    /// Vertical offset.
    top: usize,
    title: &'static str,
    below: &'static str,
    names: &'static [&'static str],
    /// Positions of the columns, 0 to 1.
    positions: Vec<f64>,
}

impl Panel {
    fn position(&self, column: usize, share: f64) -> (f64, f64) {
        (70.0 + 540.0 * self.positions[column], self.top as f64 + 300.0 - 433.0 * share)
    }

    fn draw_axes(&self) {
        println!(
            "<text x=\"340\" y=\"{}\" text-anchor=\"middle\" font-size=\"16\">{}</text>\n\
             <text x=\"340\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            self.top + 20,
            self.title,
            self.top + 348,
            self.below
        );
        for tenth in 0..=6 {
            let (_, y) = self.position(0, f64::from(tenth) / 10.0);
            println!(
                "<path d=\"M70 {y:.1}H610\" stroke=\"#ddd\"/>\
                 <text x=\"62\" y=\"{:.1}\" text-anchor=\"end\">{} %</text>",
                y + 4.0,
                tenth * 10
            );
        }
        for (column, name) in self.names.iter().enumerate() {
            let (x, _) = self.position(column, 0.0);
            let y = self.top + 322;
            println!("<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{name}</text>");
        }
    }

    /// Draws the model as a line and the measurements as dots.
    fn draw(&self, colour: &str, modelled: &[f64], measured: &[f64]) {
        let position = |(column, share): (usize, &f64)| self.position(column, *share);
        let point = |(x, y): (f64, f64)| format!("{x:.1},{y:.1}");
        let line: Vec<String> = modelled.iter().enumerate().map(position).map(point).collect();
        println!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            line.join(" ")
        );
        for (x, y) in measured.iter().enumerate().map(position) {
            println!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>");
        }
    }
}

fn draw_legend() {
    for (index, (rate, _, colour)) in DRAWN.into_iter().enumerate() {
        let percent = rate.parse::<f64>().expect("a rate") * 100.0;
        let y = 60 + 22 * index;
        println!(
            "<path d=\"M628 {y}h24\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <circle cx=\"640\" cy=\"{y}\" r=\"4\" fill=\"{colour}\"/>\
             <text x=\"660\" y=\"{}\">{percent} % loss</text>",
            y + 4
        );
    }
    println!(
        "<text x=\"628\" y=\"136\" fill=\"#555\">dots: measured</text>\n\
         <text x=\"628\" y=\"154\" fill=\"#555\">lines: model</text>"
    );
}

fn main() {
    // Lags spaced evenly in their logarithm.
    let longest = (LAG_SLOTS[LAG_SLOTS.len() - 1] as f64).ln();
    let lags = Panel {
        top: 0,
        title: "Packets lost this much later than a lost one",
        below: "time after a lost packet",
        names: &LAG_NAMES,
        positions: LAG_SLOTS.iter().map(|lag| (*lag as f64).ln() / longest).collect(),
    };
    let runs = Panel {
        top: 370,
        title: "Losses in runs of this length",
        below: "packets 20 ms apart",
        names: &LENGTH_NAMES,
        positions: (0..LENGTHS.len()).map(|column| 0.05 + 0.225 * column as f64).collect(),
    };
    println!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 730\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"760\" height=\"730\" fill=\"#fff\"/>"
    );
    lags.draw_axes();
    runs.draw_axes();
    for (rate, fitted, colour) in DRAWN {
        lags.draw(colour, &after(&fates(rate)), &measured(LAGS, rate, LAG_SLOTS.len()));
        runs.draw(colour, &in_runs(&fates(fitted)), &measured(RUNS, fitted, LENGTHS.len()));
    }
    draw_legend();
    println!("</svg>");
}
