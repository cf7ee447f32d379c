//! Fits the loss model of calls to recorded fates, and compares it with them.
//!
//! `cargo run --release -p mendcast-links --example fit_calls -- DIR`
//!
//! DIR contains files `loss-PERCENT-SEED.txt`, with `0` or `1` (lost) per packet, 20 ms apart, as
//! written by the demo program of Opus's loss generator. Prints the fits in the format of
//! `calls.rs`. Then compares the recordings of each rate with the library's model: losses by run
//! length, and delays of lost data at a round-trip time of 80 ms, with the standard error between
//! minutes (`+-`).

mod chain;
mod fates;

use std::path::Path;
use std::time::Duration;

use chain::Chain;
use mendcast_links::{Link, LinkConfig, Loss, Packet};
use units::{Ecn, Timestamp};

const PERCENTS: [u32; 8] = [1, 2, 3, 5, 8, 10, 15, 20];
/// Initial mean lengths of short and long outages, in slots. The most likely result is used.
const STARTS: [[f64; 2]; 2] = [[3.0, 12.0], [5.0, 50.0]];
/// Maximum rounds of expectation and maximization.
const ROUNDS: usize = 300;
/// Slots drawn from the model: 89 hours.
const DRAWN: u64 = 16_000_000;

/// Reads all recordings of a rate.
fn recordings(folder: &Path, percent: u32) -> Result<Vec<Vec<bool>>, String> {
    let named = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(named)? {
        let path = entry.map_err(named)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(&format!("loss-{percent}-")) && name.ends_with(".txt") {
            paths.push(path);
        }
    }
    paths.sort();
    if paths.is_empty() {
        return Err(format!("{}: no `loss-{percent}-SEED.txt`", folder.display()));
    }
    paths.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> Result<Vec<bool>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let fate = |(index, fate): (usize, char)| match fate {
        '0' => Ok(false),
        '1' => Ok(true),
        other => Err(format!("{}: packet {index} is `{other}`", path.display())),
    };
    text.trim().chars().enumerate().map(fate).collect()
}

/// Fates of packets 20 ms apart, from the library's model.
fn drawn(rate: f64) -> Result<Vec<bool>, String> {
    let loss = format!("calls:rate={rate:.4},reading=slots");
    let loss = loss.parse::<Loss>().map_err(|e| e.to_string())?;
    let config = LinkConfig { loss: Some(loss), ..LinkConfig::default() };
    let mut link = Link::new(&config, 1, "calls");
    let fate = |slot: u64| {
        let now = Timestamp::ZERO + Duration::from_millis(20 * slot);
        link.send(now, Packet { size: 1_200, ecn: Ecn::NotEct, payload: () });
        link.poll(now).is_none()
    };
    Ok((0..DRAWN).map(fate).collect())
}

/// Formats a fit for `calls.rs`.
fn source(rate: f64, chain: &Chain) -> String {
    let row = |values: &[f64]| {
        let values: Vec<String> = values.iter().map(|value| format!("{value:.6}")).collect();
        format!("[{}]", values.join(", "))
    };
    let mut text = format!("    Fit {{\n        rate: {rate:.4},\n        moves: [\n");
    chain.moves.iter().for_each(|moves| text += &format!("            {},\n", row(moves)));
    text + &format!("        ],\n        loss: {},\n    }},", row(&chain.loss))
}

fn fitted(recordings: &[Vec<bool>]) -> Chain {
    let rate = fates::rate(recordings);
    let fits = STARTS.map(|outages| Chain::start(rate, outages).fitted(recordings, ROUNDS));
    let best = fits.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
    best.map(|(chain, _)| chain.by_length()).expect("there are starts")
}

fn main() -> Result<(), String> {
    let folder = std::env::args_os().nth(1).ok_or("expected the directory of recorded fates")?;
    let recorded: Vec<_> = PERCENTS
        .iter()
        .map(|percent| Ok((*percent, recordings(Path::new(&folder), *percent)?)))
        .collect::<Result<_, String>>()?;
    for (_, recordings) in &recorded {
        println!("{}", source(fates::rate(recordings), &fitted(recordings)));
    }
    for (percent, recordings) in &recorded {
        let drawn = drawn(fates::rate(recordings))?;
        println!("\nnominally {percent} %\n{}", fates::beside(recordings, &[drawn]));
    }
    Ok(())
}
