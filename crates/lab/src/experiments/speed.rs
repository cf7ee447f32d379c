//! The `speed` experiment: simulated packets per second of CPU time, with both ciphers. Rounds take
//! turns, so that a busy machine slows all of them alike.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use super::{Options, Summary, report, statistics};
use crate::simulation::Cipher;
use crate::speed::{Measured, measure};

pub(super) const NAME: &str = "speed";
pub(super) const TITLE: &str = "Simulated packets per second of CPU time";

/// Bytes of a download: a minute of 4 Mbps.
const BYTES: u64 = 30_000_000;
/// Rounds at least.
const ROUNDS: u64 = 5;
/// Name, cipher, and packets per second of CPU time that are claimed.
const CONTESTANTS: [(&str, Cipher, f64); 2] =
    [("real", Cipher::Real, 0.6e6), ("null", Cipher::Null, 1.0e6)];

pub(super) fn run(options: Options, out: &Path) -> Result<bool, String> {
    std::fs::create_dir_all(out).map_err(|e| format!("{}: {e}", out.display()))?;
    let rounds = options.runs.max(ROUNDS);
    let mut results: BTreeMap<&str, Vec<Measured>> = BTreeMap::new();
    let mut csv = "cipher,round,packets,cpu_s,packets_per_cpu_s,client_share\n".to_owned();
    for round in 0..rounds {
        for (name, cipher, _) in CONTESTANTS {
            let measured = measure(cipher, BYTES, options.seed)?;
            let _ = writeln!(
                csv,
                "{name},{round},{},{:.6},{:.0},{:.3}",
                measured.packets,
                measured.cpu.as_secs_f64(),
                measured.packets_per_second(),
                measured.client_share()
            );
            results.entry(name).or_default().push(measured);
        }
    }
    report::write_file(&out.join("results.csv"), &csv)?;
    let mut summary = Vec::new();
    let mut holds = true;
    let mut table = "<table><tr><th></th><th>cipher</th><th>median (M/s)</th><th>range</th>\
                     <th>claimed</th><th>client's share</th></tr>\n"
        .to_owned();
    for (name, _, claim) in CONTESTANTS {
        let measured = &results[name];
        let speeds: Vec<f64> = measured.iter().map(Measured::packets_per_second).collect();
        let shares: Vec<f64> = measured.iter().map(Measured::client_share).collect();
        let (mean, p50, p95, ci95) = statistics(&speeds);
        let share = statistics(&shares).1;
        let min = speeds.iter().copied().fold(f64::INFINITY, f64::min);
        let max = speeds.iter().copied().fold(0.0, f64::max);
        holds &= p50 >= claim;
        let word = if p50 >= claim { "PASS" } else { "FAIL" };
        let _ = writeln!(
            table,
            "<tr class=\"{word}\"><td>{word}</td><td>{name}</td><td>{:.2}</td>\
             <td>{:.2} to {:.2}</td><td>{:.1}</td><td>{:.0} %</td></tr>",
            p50 / 1e6,
            min / 1e6,
            max / 1e6,
            claim / 1e6,
            share * 100.0
        );
        eprintln!(
            "{word}  {name} cipher: {:.2} M packets per CPU-second (median of {rounds}; {:.2} to \
             {:.2}), claimed {:.1} M; the client's code takes {:.0} %",
            p50 / 1e6,
            min / 1e6,
            max / 1e6,
            claim / 1e6,
            share * 100.0
        );
        summary.push(Summary {
            experiment: NAME.to_owned(),
            scheme: format!("{name} cipher"),
            point: BTreeMap::from([("client_share", share)]),
            metric: "packets_per_cpu_second",
            unit: "1/s",
            mean,
            p50,
            p95,
            ci95,
            runs: speeds.len(),
            paper: None,
            expected: Some(claim),
        });
    }
    let text = serde_json::to_string_pretty(&summary).map_err(|e| e.to_string())?;
    report::write_file(&out.join("summary.json"), &text)?;
    report::write_page(out, TITLE, &format!("{table}</table>\n"))?;
    Ok(holds)
}
