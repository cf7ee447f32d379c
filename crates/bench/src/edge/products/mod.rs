//! Products side by side: the server cost and the delay of live viewers, each with the product's
//! ordinary protocol.
//!
//! The products take turns, each in its own process and on one event loop where it has such a
//! setting. All get the same streams at the same times from one publisher, and the same viewers.

mod page;
mod product;
mod row;
mod versions;

use std::path::PathBuf;
use std::time::Duration;

use super::identity;
use super::servers::Programs;
use crate::Failure;
use crate::loopback::calibration;
use crate::report::{BenchReport, PeerTarget};
use page::Page;
use product::{Product, ProductPrograms};
use row::{Row, Scenario};

/// Measure products side by side
#[derive(Debug, clap::Args)]
pub(crate) struct Products {
    /// Number of streams of a scenario; may be repeated [default: 1, 1 and 100; 1 and 4 with
    /// --quick]
    #[arg(long, requires = "viewers")]
    streams: Vec<usize>,
    /// Viewers of all streams of a scenario, once per --streams [default: 100, 500 and 800; 20 and
    /// 20 with --quick]
    #[arg(long, requires = "streams")]
    viewers: Vec<usize>,
    /// Seconds to measure [default: 10, or 4 with --quick]
    #[arg(long)]
    seconds: Option<u64>,
    /// Rounds [default: 3, or 1 with --quick]
    #[arg(long)]
    rounds: Option<u64>,
    /// Only products with this in their names or protocols
    #[arg(long, value_name = "TEXT", default_value = "")]
    product: String,
    /// Directory of the installed products (bench/products)
    #[arg(long, value_name = "DIR", default_value = "target/products/bin")]
    programs: PathBuf,
    /// Markdown page for the results
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

impl Products {
    /// Runs the benchmark, adds its rows, and writes the page.
    pub(crate) fn run(
        &self,
        report: &mut BenchReport,
        quick: bool,
        mendcast: PathBuf,
    ) -> Result<(), Failure> {
        let pick = |full: u64, look: u64| if quick { look } else { full };
        let time = Duration::from_secs(self.seconds.unwrap_or(pick(10, 4)).max(1));
        let rounds = self.rounds.unwrap_or(pick(3, 1)).max(1);
        let scenarios = self.scenarios(quick)?;
        let dir = tempfile::tempdir()?;
        identity(dir.path())?;
        let programs = ProductPrograms {
            // No product here serves files.
            common: Programs::new(mendcast, dir.path(), dir.path())?,
            installed: self.programs.clone(),
        };
        let mut skipped = Vec::new();
        let mut products = Vec::new();
        for product in Product::ALL {
            if !product.title().contains(&self.product) {
                continue;
            }
            match product.missing(&programs) {
                Some((path, how)) => {
                    println!("skipped: {}: {how} ({})", product.title(), path.display());
                    skipped.push((product, how));
                }
                None => products.push((product, versions::version(product, &programs))),
            }
        }
        let mut page = Page::new(time, rounds, products.clone(), skipped);
        for scenario in scenarios {
            let products = products.iter().map(|(product, _)| *product);
            let mut rows: Vec<Row> =
                products.map(|product| Row { product, costs: vec![], doubts: vec![] }).collect();
            for round in 0..rounds {
                println!(
                    "{scenario}, round {}: sealing takes {:.0} ns per packet",
                    round + 1,
                    calibration()
                );
                for row in &mut rows {
                    row.turn(&programs, scenario, time);
                }
            }
            compare(report, scenario, &rows);
            page.add(scenario, rows);
        }
        match &self.page {
            Some(path) => std::fs::write(path, page.text())
                .map_err(|e| format!("{}: {e}", path.display()).into()),
            None => Ok(()),
        }
    }

    fn scenarios(&self, quick: bool) -> Result<Vec<Scenario>, Failure> {
        let pairs = match (&self.streams[..], quick) {
            ([], true) => vec![(1, 20), (4, 20)],
            ([], false) => vec![(1, 100), (1, 500), (100, 800)],
            (streams, _) if streams.len() == self.viewers.len() => {
                streams.iter().copied().zip(self.viewers.iter().copied()).collect()
            }
            _ => return Err("--streams and --viewers must occur equally often".into()),
        };
        let scenarios = pairs.into_iter().map(|(streams, viewers)| match (streams, viewers) {
            (0, _) => Err("--streams must be at least 1".into()),
            _ if viewers < streams => Err("--viewers must be at least --streams".into()),
            _ => Ok(Scenario { streams, viewers }),
        });
        scenarios.collect()
    }
}

/// Adds the rows of the first product against each other one, by round.
fn compare(report: &mut BenchReport, scenario: Scenario, rows: &[Row]) {
    let Some(ours) = rows.iter().find(|row| row.product == Product::Mendcast) else { return };
    let name = format!("products_cpu_per_gbit/{}x{}", scenario.streams, scenario.viewers);
    for row in rows.iter().filter(|row| row.product != Product::Mendcast) {
        let rounds: Vec<(f64, f64)> = ours
            .costs
            .iter()
            .zip(&row.costs)
            .map(|(mine, theirs)| (mine.per_gbit(), theirs.per_gbit()))
            .collect();
        if !rounds.is_empty() {
            let target = target(row.product, scenario);
            report.add_pairs((name.as_str(), "CPU s"), &row.product.title(), &rounds, target);
        }
    }
}

/// Returns the target for our ratio to a product: one stream only, because the cost of many is
/// dominated by their ingest.
fn target(product: Product, scenario: Scenario) -> PeerTarget {
    match product {
        _ if scenario.streams > 1 => PeerTarget::None,
        Product::Quinn => PeerTarget::RatioAtMost(0.3),
        Product::Moq | Product::MediaMtxRtmps => PeerTarget::RatioAtMost(0.5),
        Product::NginxRtmp => PeerTarget::RatioAtMost(1.0),
        _ => PeerTarget::None,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Command {
        #[command(flatten)]
        products: Products,
    }

    fn scenarios(words: &str, quick: bool) -> Result<Vec<(usize, usize)>, Failure> {
        let words = std::iter::once("products").chain(words.split_whitespace());
        let scenarios = Command::try_parse_from(words)?.products.scenarios(quick)?;
        Ok(scenarios.iter().map(|scenario| (scenario.streams, scenario.viewers)).collect())
    }

    #[test]
    fn streams_and_viewers_form_scenarios() {
        assert_eq!(scenarios("", false).expect("valid"), [(1, 100), (1, 500), (100, 800)]);
        assert_eq!(scenarios("", true).expect("valid"), [(1, 20), (4, 20)]);
        let two = "--streams 1 --viewers 30 --streams 3 --viewers 24";
        assert_eq!(scenarios(two, false).expect("valid"), [(1, 30), (3, 24)]);
        for words in [
            "--streams 1",
            "--viewers 5",
            "--streams 3 --viewers 2",
            "--streams 0 --viewers 2",
            "--streams 1 --streams 2 --viewers 5",
        ] {
            assert!(scenarios(words, false).is_err(), "{words}");
        }
    }

    #[test]
    fn targets_belong_to_one_stream() {
        let one = Scenario { streams: 1, viewers: 500 };
        assert!(matches!(target(Product::NginxRtmp, one), PeerTarget::RatioAtMost(1.0)));
        let many = Scenario { streams: 100, viewers: 800 };
        for product in Product::ALL {
            assert!(matches!(target(product, many), PeerTarget::None));
        }
    }
}
