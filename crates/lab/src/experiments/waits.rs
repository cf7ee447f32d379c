//! Recovery times of lost units over several runs, as ART's figure 23 pools them: packets of all
//! transfers, with and without a scheme.
//!
//! Units of two runs cannot be paired one by one, because copies shift the contents of later
//! packets. They are paired by rank: the k-th of [`RANKS`] equal parts of one run with the k-th of
//! the other. A run keeps its parts only with `waits = true` in the specification.

use std::fmt::Write as _;
use std::path::Path;

use qoe::stats::Sample;

use super::files::{clean, malformed, read, read_point};
use super::output::write_file;
use super::rows::describe;
use super::spec::{Point, Spec};
use crate::error::Error;
use crate::recovered::FinishedUnit;

/// Parts into which a run's lost units are divided.
const RANKS: usize = 200;

/// Recovery times of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunWaits {
    pub sweep: usize,
    pub scheme: String,
    pub point: Point,
    pub seed: u64,
    /// Lost units of the run.
    pub units: u64,
    /// T_wait in milliseconds in the middle of each part, ascending.
    pub ranks: Vec<f64>,
}

/// Returns the number of units, and their ranks; `None` without a lost unit.
pub(crate) fn ranks(units: &[FinishedUnit]) -> Option<(u64, Vec<f64>)> {
    let sample = Sample::new(units.iter().map(|unit| unit.wait.as_secs_f64() * 1e3))?;
    let middle = |rank| (rank as f64 + 0.5) / RANKS as f64;
    Some((units.len() as u64, (0..RANKS).map(|rank| sample.quantile(middle(rank))).collect()))
}

/// Returns the quantile `q` of the reduction of T_wait by `scheme` against the baseline, in
/// milliseconds, over the units of all runs of a sweep. A run counts by the baseline's lost units.
pub(crate) fn pooled_saving(
    spec: &Spec,
    all: &[RunWaits],
    sweep: usize,
    scheme: &str,
    q: f64,
) -> Option<f64> {
    let mut savings: Vec<(f64, f64)> = Vec::new();
    for own in all.iter().filter(|run| run.sweep == sweep && run.scheme == scheme) {
        let is_pair =
            |run: &&RunWaits| run.sweep == sweep && run.seed == own.seed && run.point == own.point;
        let of_baseline = |run: &&RunWaits| run.scheme == spec.baseline;
        let Some(base) = all.iter().filter(is_pair).find(of_baseline) else { continue };
        let weight = base.units as f64 / RANKS as f64;
        savings.extend(base.ranks.iter().zip(&own.ranks).map(|(a, b)| (a - b, weight)));
    }
    savings.sort_by(|a, b| a.0.total_cmp(&b.0));
    let wanted = q * savings.iter().map(|(_, weight)| weight).sum::<f64>();
    let mut below = 0.0;
    savings.into_iter().find_map(|(saving, weight)| {
        below += weight;
        (below >= wanted).then_some(saving)
    })
}

const FILE: &str = "waits.csv";

pub(crate) fn write(out: &Path, all: &[RunWaits]) -> Result<(), Error> {
    if all.is_empty() {
        return Ok(());
    }
    let mut text = "sweep,scheme,point,seed,units,wait_ms\n".to_owned();
    for run in all {
        let (scheme, point) = (clean(&run.scheme), describe(&run.point));
        let _ = write!(text, "{},{scheme},{point},{},{},", run.sweep, run.seed, run.units);
        let ranks: Vec<String> = run.ranks.iter().map(|wait| format!("{wait:.3}")).collect();
        let _ = writeln!(text, "{}", ranks.join(" "));
    }
    write_file(&out.join(FILE), &text)
}

/// Reads the waits, if the specification keeps them.
pub(crate) fn read_waits(out: &Path, spec: &Spec) -> Result<Vec<RunWaits>, Error> {
    if !spec.waits {
        return Ok(Vec::new());
    }
    let path = out.join(FILE);
    let text = read(&path)?;
    let lines = (1..).zip(text.lines()).skip(1);
    lines
        .map(|(number, line)| read_run(line, spec).ok_or_else(|| malformed(&path, number)))
        .collect()
}

fn read_run(line: &str, spec: &Spec) -> Option<RunWaits> {
    let fields: Vec<&str> = line.split(',').collect();
    let [sweep, scheme, point, seed, units, waits] = fields[..] else { return None };
    let sweep = sweep.parse().ok().filter(|place| *place < spec.sweeps.len())?;
    let ranks: Vec<f64> = waits.split(' ').map(|wait| wait.parse().ok()).collect::<Option<_>>()?;
    let is_complete = ranks.len() == RANKS && ranks.iter().all(|wait| wait.is_finite());
    is_complete.then_some(RunWaits {
        sweep,
        scheme: scheme.to_owned(),
        point: read_point(point, spec, sweep)?,
        seed: seed.parse().ok()?,
        units: units.parse().ok()?,
        ranks,
    })
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use units::Timestamp;

    use super::super::figures::built_in;
    use super::*;

    fn spec() -> Spec {
        Spec::parse(built_in("art-fig23").expect("built in")).expect("valid")
    }

    fn run(scheme: &str, seed: u64, units: u64, wait: impl Fn(usize) -> f64) -> RunWaits {
        let ranks = (0..RANKS).map(wait).collect();
        let (scheme, point) = (scheme.to_owned(), Point::new());
        RunWaits { sweep: 0, scheme, point, seed, units, ranks }
    }

    #[test]
    fn ranks_are_quantiles_of_the_units() {
        let unit = |ms| FinishedUnit {
            rounds: 1,
            copies: 1,
            wait: Duration::from_millis(ms),
            at: Timestamp::ZERO,
        };
        assert_eq!(ranks(&[]), None);
        let (units, ranks) = ranks(&(1..=1_000).rev().map(unit).collect::<Vec<_>>()).expect("some");
        assert_eq!((units, ranks.len()), (1_000, RANKS));
        assert!(ranks.is_sorted() && ranks[0] < 5.0 && ranks[RANKS - 1] > 995.0);
    }

    #[test]
    fn runs_are_pooled_by_their_lost_units() {
        let spec = spec();
        // A long transfer without a saving, and a short one that saves 50 ms everywhere.
        let all = [
            run("QUIC", 1, 900, |rank| rank as f64),
            run("ART (code)", 1, 10, |rank| rank as f64),
            run("QUIC", 2, 100, |_| 80.0),
            run("ART (code)", 2, 10, |_| 30.0),
            run("ART (code)", 3, 10, |_| 0.0),
        ];
        let saving = |q| pooled_saving(&spec, &all, 0, "ART (code)", q);
        assert_eq!((saving(0.5), saving(0.89), saving(0.95)), (Some(0.0), Some(0.0), Some(50.0)));
        assert_eq!(pooled_saving(&spec, &all, 1, "ART (code)", 0.5), None, "another sweep");
        assert_eq!(pooled_saving(&spec, &all, 0, "ART (paper: extra)", 0.5), None, "not run");
    }

    #[test]
    fn waits_survive_their_file_and_damage_is_an_error() {
        let (spec, folder) = (spec(), tempfile::tempdir().expect("a temporary directory"));
        let all = [run("QUIC", 1, 7, |rank| rank as f64 / 8.0)];
        write(folder.path(), &all).expect("written");
        assert_eq!(read_waits(folder.path(), &spec).expect("read"), all);
        let path = folder.path().join(FILE);
        let text = std::fs::read_to_string(&path).expect("read");
        for damaged in [text.replace("QUIC,,1", "QUIC,,x"), text.replace(" 1.000", "")] {
            assert_ne!(damaged, text);
            std::fs::write(&path, damaged).expect("written");
            assert!(read_waits(folder.path(), &spec).is_err());
        }
    }
}
