//! Rows of results, printed immediately and written as JSON at the end.

use std::path::Path;

use serde::Serialize;

use crate::Failure;

/// A comparison with one peer. Scripts rely on the names.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PeerComparison {
    pub name: String,
    pub unit: &'static str,
    pub ours: f64,
    pub peer: f64,
    pub peer_name: String,
    /// `ours` over `peer`.
    pub ratio: f64,
    /// Interquartile range of the ratios of rounds, where each round was a pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pairs: Option<[f64; 2]>,
    /// Target of the comparison.
    pub target: String,
}

/// Target of a comparison. Times and speeds are judged by ratios, because absolute values depend on
/// the machine.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PeerTarget {
    RatioAtMost(f64),
    RatioAtLeast(f64),
    /// For exact counts (bytes, calls), which are equal on every machine, and for delays.
    AtMost(f64),
    /// For comparison only.
    None,
}

impl PeerTarget {
    fn is_met(self, ours: f64, ratio: f64) -> Option<bool> {
        Some(match self {
            Self::RatioAtMost(limit) => ratio <= limit,
            Self::RatioAtLeast(limit) => ratio >= limit,
            Self::AtMost(limit) => ours <= limit,
            Self::None => return None,
        })
    }

    fn text(self) -> String {
        match self {
            Self::RatioAtMost(limit) => format!("ratio <= {limit}"),
            Self::RatioAtLeast(limit) => format!("ratio >= {limit:.2}"),
            Self::AtMost(limit) => format!("ours <= {limit}"),
            Self::None => "none".to_owned(),
        }
    }
}

/// Results of rounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    /// Result of a single round.
    pub(crate) fn of(value: f64) -> Self {
        Self(vec![value])
    }

    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
        self.0.sort_by(f64::total_cmp);
    }

    pub(crate) fn median(&self) -> f64 {
        match self.0.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => self.0[n / 2],
            n => (self.0[n / 2 - 1] + self.0[n / 2]) / 2.0,
        }
    }

    /// Returns the smallest and the largest result.
    pub(crate) fn range(&self) -> Option<[f64; 2]> {
        Some([*self.0.first()?, *self.0.last()?])
    }

    /// Returns the first and the third quartile.
    fn quartiles(&self) -> Option<[f64; 2]> {
        let quarter = self.0.len() / 4;
        Some([*self.0.get(quarter)?, *self.0.get(self.0.len() - 1 - quarter)?])
    }

    fn spread(&self) -> String {
        match self.range() {
            Some([min, max]) if self.0.len() > 1 => {
                format!("{} to {}", number(min), number(max))
            }
            _ => String::new(),
        }
    }
}

/// Returns the machine's processors and kernel.
pub(crate) fn machine() -> String {
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown CPU", |(_, model)| model);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cpus} x {model}, kernel {}", kernel.trim())
}

fn number(value: f64) -> String {
    if value >= 1e5 {
        format!("{:.3} M", value / 1e6)
    } else if value >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.4}")
    }
}

pub(crate) struct BenchReport {
    rows: Vec<PeerComparison>,
}

impl BenchReport {
    /// Prints the machine's properties.
    pub(crate) fn new() -> Self {
        println!("machine: {}", machine());
        Self { rows: Vec::new() }
    }

    /// Adds a row with the medians of both sides' rounds.
    pub(crate) fn add(
        &mut self,
        what: (&str, &'static str),
        ours: &Samples,
        peer: (&str, &Samples),
        target: PeerTarget,
    ) {
        self.add_row(what, ours, peer, None, target);
    }

    /// Adds a row from paired rounds, each pair measured consecutively. The ratio is the median
    /// over pairs. If the machine's clock rate changes between rounds, the medians of the two sides
    /// can come from different rates.
    pub(crate) fn add_pairs(
        &mut self,
        what: (&str, &'static str),
        peer_name: &str,
        rounds: &[(f64, f64)],
        target: PeerTarget,
    ) {
        let (mut ours, mut peer) = (Samples::default(), Samples::default());
        let mut ratios = Samples::default();
        for &(mine, theirs) in rounds {
            ours.push(mine);
            peer.push(theirs);
            ratios.push(mine / theirs);
        }
        self.add_row(what, &ours, (peer_name, &peer), Some(&ratios), target);
    }

    fn add_row(
        &mut self,
        (name, unit): (&str, &'static str),
        ours: &Samples,
        (peer_name, peer): (&str, &Samples),
        ratios: Option<&Samples>,
        target: PeerTarget,
    ) {
        let (mine, theirs) = (ours.median(), peer.median());
        let ratio = ratios.map_or(mine / theirs, Samples::median);
        let pairs = ratios.and_then(Samples::quartiles);
        let word = match target.is_met(mine, ratio) {
            Some(true) => "PASS",
            Some(false) => "MISS",
            None => "    ",
        };
        let half =
            pairs.map_or_else(String::new, |[low, high]| format!(" ({low:.3} to {high:.3})"));
        println!(
            "{word}  {name}: {} {unit} ({}), {peer_name} {} ({}), ratio {ratio:.3}{half}; target {}",
            number(mine),
            ours.spread(),
            number(theirs),
            peer.spread(),
            target.text()
        );
        self.rows.push(PeerComparison {
            name: name.to_owned(),
            unit,
            ours: mine,
            peer: theirs,
            peer_name: peer_name.to_owned(),
            ratio,
            pairs,
            target: target.text(),
        });
    }

    pub(crate) fn write(&self, path: &Path) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(&self.rows)?;
        std::fs::write(path, text + "\n").map_err(|e| format!("{}: {e}", path.display()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_targets() {
        let mut samples = Samples::default();
        [3.0, 1.0, 2.0, 10.0].into_iter().for_each(|value| samples.push(value));
        assert_eq!(samples.median(), 2.5);
        assert_eq!(samples.quartiles(), Some([2.0, 3.0]));
        assert_eq!(samples.range(), Some([1.0, 10.0]));
        assert_eq!(Samples::default().quartiles(), None);
        assert_eq!(PeerTarget::RatioAtMost(0.5).is_met(9.0, 0.5), Some(true));
        assert_eq!(PeerTarget::RatioAtLeast(2.0).is_met(9.0, 1.9), Some(false));
        assert_eq!(PeerTarget::AtMost(12_288.0).is_met(12_289.0, 0.1), Some(false));
        assert_eq!(PeerTarget::None.is_met(0.0, 0.0), None);
    }
}
