//! How well the model of loss in calls fits, as a picture: the share of packets that are lost 20 ms to 2 s after
//! a lost one, of the fates that were measured and of a million packets over a link with the model.
//!
//! `cargo run --release -p mendcast-links --example calls_fit > docs/pictures/calls-fit.svg`

use std::collections::VecDeque;
use std::time::Duration;

use mendcast_links::{Link, LinkConfig, Packet};
use units::{Ecn, Timestamp};

const MEASURED: &str = include_str!("../src/calls-measured.csv");
/// The columns' lags in slots of 20 ms.
const LAGS: [usize; 8] = [1, 2, 3, 5, 10, 25, 50, 100];
const SLOT: Duration = Duration::from_millis(20);
const PACKETS: usize = 1_000_000;
/// Rates that are drawn, with a colour each (Okabe and Ito, 2008).
const DRAWN: [(&str, &str); 3] = [("0.01", "#0072b2"), ("0.05", "#d55e00"), ("0.20", "#009e73")];

/// The shares of the model at this rate.
fn modelled(rate: f64) -> [f64; LAGS.len()] {
    let loss = format!("calls:rate={rate}").parse().expect("a loss");
    let config = LinkConfig { loss: Some(loss), ..LinkConfig::default() };
    let mut link = Link::new(&config, 1, "calls");
    let mut lost = [0_u64; LAGS.len()];
    let mut losses = 0_u64;
    let mut last: VecDeque<bool> = VecDeque::new();
    let mut now = Timestamp::ZERO;
    for _ in 0..PACKETS {
        link.send(now, Packet { size: 1_200, ecn: Ecn::NotEct, payload: () });
        let is_lost = link.poll(now).is_none();
        for (place, lag) in LAGS.into_iter().enumerate() {
            let both = is_lost && last.get(lag - 1).is_some_and(|lost| *lost);
            lost[place] += u64::from(both);
        }
        losses += u64::from(is_lost);
        last.push_front(is_lost);
        last.truncate(LAGS[LAGS.len() - 1]);
        now += SLOT;
    }
    lost.map(|lost| lost as f64 / losses as f64)
}

/// The measured shares at this rate.
fn measured(rate: &str) -> Vec<f64> {
    let line = MEASURED.lines().find(|line| line.split(',').next() == Some(rate));
    let columns = line.expect("a measured rate").split(',').skip(1).take(LAGS.len());
    columns.map(|share| share.parse().expect("a number")).collect()
}

/// Where a lag and a share stand in the picture; lags in equal parts of their logarithm.
fn place(lag: usize, share: f64) -> (f64, f64) {
    let part = (lag as f64).ln() / (LAGS[LAGS.len() - 1] as f64).ln();
    (70.0 + 540.0 * part, 300.0 - 520.0 * share)
}

fn main() {
    println!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 360\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"760\" height=\"360\" fill=\"#fff\"/>\n\
         <text x=\"340\" y=\"20\" text-anchor=\"middle\" font-size=\"16\">\
         Packets lost this much later than a lost one</text>\n\
         <text x=\"340\" y=\"348\" text-anchor=\"middle\">time after a lost packet</text>"
    );
    for tenth in 0..=5 {
        let share = f64::from(tenth) / 10.0;
        let (_, y) = place(1, share);
        println!(
            "<path d=\"M70 {y:.1}H610\" stroke=\"#ddd\"/>\
             <text x=\"62\" y=\"{:.1}\" text-anchor=\"end\">{} %</text>",
            y + 4.0,
            tenth * 10
        );
    }
    for (lag, name) in
        LAGS.into_iter().zip(["20 ms", "40", "60", "100", "200", "500 ms", "1 s", "2 s"])
    {
        let (x, _) = place(lag, 0.0);
        println!("<text x=\"{x:.1}\" y=\"322\" text-anchor=\"middle\">{name}</text>");
    }
    for (index, (rate, colour)) in DRAWN.into_iter().enumerate() {
        let number: f64 = rate.parse().expect("a rate");
        let points = |shares: &[f64]| -> Vec<(f64, f64)> {
            LAGS.iter().zip(shares).map(|(&lag, &share)| place(lag, share)).collect()
        };
        let line: Vec<String> =
            points(&modelled(number)).into_iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        println!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            line.join(" ")
        );
        for (x, y) in points(&measured(rate)) {
            println!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>");
        }
        let y = 60 + 22 * index;
        println!(
            "<path d=\"M628 {y}h24\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <circle cx=\"640\" cy=\"{y}\" r=\"4\" fill=\"{colour}\"/>\
             <text x=\"660\" y=\"{}\">{} % loss</text>",
            y + 4,
            number * 100.0
        );
    }
    println!(
        "<text x=\"628\" y=\"136\" fill=\"#555\">dots: measured</text>\n\
         <text x=\"628\" y=\"154\" fill=\"#555\">lines: model</text>\n</svg>"
    );
}
