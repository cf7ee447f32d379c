//! The `speed` experiment: simulated packets per second of CPU time, with both ciphers. Rounds
//! alternate, so that load on the machine slows both alike.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use super::options::RunOptions;
use super::output::{RunStatistics, SummaryLine, note, write_file, write_page, write_summary};
use crate::ends::Cipher;
use crate::error::{Error, RunError};
use crate::speed::{RunCost, measure};

pub(super) const NAME: &str = "speed";
pub(super) const TITLE: &str = "Simulated packets per second of CPU time";

/// Size of a download: one minute at 4 Mbps.
const BYTES: u64 = 30_000_000;
/// Minimum number of rounds.
const ROUNDS: u64 = 5;

/// A cipher and its claimed packets per second of CPU time.
struct CipherSpeed {
    name: &'static str,
    label: &'static str,
    cipher: Cipher,
    claim: f64,
}

const CONTESTANTS: [CipherSpeed; 2] = [
    CipherSpeed { name: "real", label: "real cipher", cipher: Cipher::Real, claim: 0.6e6 },
    CipherSpeed { name: "null", label: "null cipher", cipher: Cipher::Null, claim: 1.0e6 },
];

pub(super) fn run(options: &RunOptions<'_>, out: &Path) -> Result<bool, Error> {
    let rounds = options.runs.map_or(ROUNDS, |runs| runs.max(ROUNDS));
    let mut results: [Vec<RunCost>; CONTESTANTS.len()] = Default::default();
    let mut csv = "cipher,round,packets,cpu_s,packets_per_cpu_s,client_share\n".to_owned();
    for round in 0..rounds {
        for (contestant, results) in CONTESTANTS.iter().zip(&mut results) {
            let measured = measure(contestant.cipher, BYTES, options.seed)?;
            let _ = writeln!(
                csv,
                "{},{round},{},{:.6},{:.0},{:.3}",
                contestant.name,
                measured.packets,
                measured.cpu.as_secs_f64(),
                measured.packets_per_second(),
                measured.client_share()
            );
            results.push(measured);
        }
    }
    write_file(&out.join("results.csv"), &csv)?;
    let mut summary = Vec::new();
    let mut holds = true;
    let mut table = "<table><tr><th></th><th>cipher</th><th>median (M/s)</th><th>range</th>\
                     <th>claimed</th><th>client's share</th></tr>\n"
        .to_owned();
    for (CipherSpeed { name, label, claim, .. }, measured) in CONTESTANTS.iter().zip(&results) {
        let of = |value: fn(&RunCost) -> f64| {
            RunStatistics::of(measured.iter().map(value)).ok_or(RunError::NoCpuTime)
        };
        let (speed, share) = (of(RunCost::packets_per_second)?, of(RunCost::client_share)?.p50);
        let speeds = || measured.iter().map(RunCost::packets_per_second);
        let range = [speeds().fold(f64::INFINITY, f64::min), speeds().fold(0.0, f64::max)];
        let [median, min, max, least] =
            [speed.p50, range[0], range[1], *claim].map(|packets| packets / 1e6);
        let percent = share * 100.0;
        holds &= speed.p50 >= *claim;
        let word = if speed.p50 >= *claim { "PASS" } else { "FAIL" };
        let _ = writeln!(
            table,
            "<tr class=\"{word}\"><td>{word}</td><td>{name}</td><td>{median:.2}</td>\
             <td>{min:.2} to {max:.2}</td><td>{least:.1}</td><td>{percent:.0} %</td></tr>"
        );
        note(format_args!(
            "{word}  {label}: {median:.2} M packets per CPU-second (median of {rounds}; {min:.2} to \
             {max:.2}), claimed {least:.1} M; the client's code takes {percent:.0} %"
        ));
        summary.push(SummaryLine {
            experiment: NAME,
            sweep: None,
            scheme: label,
            point: BTreeMap::from([("client_share", share.into())]),
            metric: "packets_per_cpu_second",
            unit: "1/s",
            statistics: speed,
            paper: None,
            verdict: None,
            expected: Some(*claim),
        });
    }
    write_summary(out, &summary)?;
    write_page(out, TITLE, &format!("{table}</table>\n"))?;
    Ok(holds)
}
