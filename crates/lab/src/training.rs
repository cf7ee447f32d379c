//! Training of the "art-dqn" network (ART, appendix A.2). Episodes over random paths are recorded
//! with random decisions, and a network is trained offline on these records. It then continues
//! training online with its own decisions. Finally it is compared with ART on unseen paths.
//!
//! An episode is one download. Options are the paper's magnitude ratio γ, the form of the penalty
//! and the reading of R. Everything else follows from them and the seed.

use core::time::Duration;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use qoe::stats::Estimate;
use recovery::Random;
use recovery::art::Penalty;
use recovery::art::dqn::Network;
use recovery::art::dqn::train::{self, Learner, Phase, Tally};
use recovery::fixed::Reading;

use crate::error::{Context as _, Error, RunError};
use crate::experiments::output::{write_file, write_page};
use crate::setup::{DetectionRules, Kind, Readings, Setup, UNLIMITED, mbps, round_trip};
use crate::simulation::{RunOutcome, SchemeMaker, run as simulate};
use analysis::{Chart, Series};

/// Training options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainingOptions {
    /// Seed of paths, initial weights and draws.
    pub seed: u64,
    /// γ: penalty of a lost round relative to the reward of an arrived one.
    pub gamma: f64,
    /// Whether the penalty grows with rounds and copies as in the authors' code. In the paper it
    /// shrinks.
    pub product: bool,
    /// Whether R includes the retransmission.
    pub copies: bool,
    /// Number of recorded episodes.
    pub record: u64,
    /// Steps of offline training.
    pub steps: u64,
    /// Episodes of online training.
    pub online: u64,
    /// Episodes of the final comparison.
    pub compare: u64,
}

impl Default for TrainingOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            gamma: recovery::art::GAMMA,
            product: false,
            copies: false,
            record: 600,
            steps: 30_000,
            online: 600,
            compare: 200,
        }
    }
}

impl TrainingOptions {
    /// Command line equivalent to these options, without file paths.
    fn command(&self) -> String {
        let mut text = format!(
            "mendcast lab train --seed {} --gamma {} --record {} --steps {} --online {}",
            self.seed, self.gamma, self.record, self.steps, self.online
        );
        for (is_set, flag) in [(self.product, " --product"), (self.copies, " --copies")] {
            text.push_str(if is_set { flag } else { "" });
        }
        text
    }

    fn reading(&self) -> Reading {
        if self.copies { Reading::Copies } else { Reading::Extra }
    }

    fn penalty(&self) -> Penalty {
        if self.product { Penalty::Product(self.gamma) } else { Penalty::Quotient(self.gamma) }
    }
}

/// Capacity of the replay buffer: all rounds of a default recording.
const REPLAY: usize = 500_000;
/// Maximum number of points of the learning curve per phase.
const POINTS: u64 = 13;
/// Maximum number of evaluation episodes per point.
const EVALUATION_EPISODES: u64 = 24;
/// Kinds of paths. Each kind has its own range of seeds.
const RECORDED: u64 = 1;
const LIVED: u64 = 2;
const HELD_OUT: u64 = 3;
const COMPARED: u64 = 4;

/// Draws uniformly between two values.
fn between(random: &mut Random, low: f64, high: f64) -> f64 {
    low + (high - low) * random.fraction()
}

/// Draws log-uniformly between two values.
fn doublings(random: &mut Random, low: f64, high: f64) -> f64 {
    between(random, low.ln(), high.ln()).exp()
}

/// Path of an episode: 5 to 100 Mbps, round trips of 20 to 200 ms, 1 to 10 % loss, independent or
/// in the bursts that ART measured, and a queue of one bandwidth-delay product.
fn path(seed: u64) -> Setup {
    let mut random = Random::new(seed);
    let rate_mbps = doublings(&mut random, 5.0, 100.0);
    let rtt_ms = doublings(&mut random, 20.0, 200.0);
    let loss_percent = between(&mut random, 1.0, 10.0);
    let model = if random.fraction() < 0.5 { "independent" } else { "lomax:rate={},max=10" };
    let mut setup = Setup::default();
    let (path, source) = (&mut setup.lab.path, &mut setup.lab.source);
    path.rate = mbps(rate_mbps);
    path.rtt = round_trip(rtt_ms);
    path.loss = loss_percent / 100.0;
    path.loss_model = model.to_owned();
    path.queue.0 = ((rate_mbps * rtt_ms * 125.0) as u64).max(80_000);
    source.kind = Kind::Download;
    source.bytes.0 = 3_000_000;
    source.duration = Duration::from_secs(3_600);
    // As in the papers: LSQUIC's detection, and no limit on copies.
    setup.lab.lab.detection = DetectionRules::Lsquic;
    setup.server.recovery.max_redundancy = UNLIMITED;
    setup
}

/// Runs one download over the path of this seed.
fn episode(seed: u64, scheme: Option<SchemeMaker>, setup: Setup) -> Result<RunOutcome, Error> {
    let mut scenario = setup.scenario(seed)?;
    if let Some(scheme) = scheme {
        scenario.scheme = scheme;
    }
    let outcome = simulate(&scenario)?;
    if outcome.completed { Ok(outcome) } else { Err(RunError::Episode(seed).into()) }
}

/// The network in training and its options.
struct Trainer {
    learner: Arc<Mutex<Learner>>,
    options: TrainingOptions,
}

impl Trainer {
    fn new(learner: Learner, options: TrainingOptions) -> Self {
        Self { learner: Arc::new(Mutex::new(learner)), options }
    }

    fn learner(&self) -> MutexGuard<'_, Learner> {
        self.learner.lock().expect("training has one thread")
    }

    fn network(&self) -> Network {
        self.learner().network().clone()
    }

    /// Runs episodes over a range of paths of a kind, with the learner in its current phase.
    fn attend(&self, kind: u64, episodes: core::ops::Range<u64>) -> Result<Measures, Error> {
        self.learner().take_tally();
        let mut measures = Measures::default();
        let reading = self.options.reading();
        for place in episodes {
            let learner = self.learner.clone();
            let scheme: SchemeMaker =
                Arc::new(move |seed| train::scheme(learner.clone(), reading, seed));
            let seed = self.options.seed + (kind << 20) + place;
            measures.add(&episode(seed, Some(scheme), path(seed))?);
        }
        measures.tally = self.learner().take_tally();
        Ok(measures)
    }
}

/// Means over episodes.
#[derive(Clone, Debug, Default, PartialEq)]
struct Measures {
    tally: Tally,
    /// N_max and redundancy cost of each episode.
    n_max: Vec<f64>,
    cost: Vec<f64>,
    /// Rounds of lost data.
    rounds: u64,
    /// Units of lost data that arrived.
    finished: u64,
}

impl Measures {
    fn add(&mut self, outcome: &RunOutcome) {
        let totals = &outcome.recovery.totals;
        self.n_max.push(totals.rounds_max.into());
        self.cost.push(totals.replicas as f64 / totals.first_transmissions.max(1) as f64);
        self.rounds += totals.rounds;
        self.finished += totals.finished;
    }

    /// Mean number of rounds of lost data.
    fn rounds_mean(&self) -> f64 {
        self.rounds as f64 / self.finished.max(1) as f64
    }

    /// Mean reward of a round.
    fn reward(&self) -> f64 {
        self.tally.reward / self.tally.rounds.max(1) as f64
    }

    fn r(&self) -> f64 {
        self.tally.r as f64 / self.tally.rounds.max(1) as f64
    }
}

/// Returns the mean over episodes; 0 without episodes.
fn mean(values: &[f64]) -> f64 {
    Estimate::of(values.iter().copied()).map_or(0.0, |estimate| estimate.mean)
}

/// A point of the learning curve.
#[derive(Clone, Debug, PartialEq)]
struct Point {
    phase: &'static str,
    steps: u64,
    /// Mean absolute error of the batches since the previous point.
    error: f64,
    /// Results on held-out paths.
    judged: Measures,
}

/// Trains a network and writes it to `weights`, and the learning curve and the comparison to `out`.
/// Progress lines go to `say`.
///
/// # Errors
/// One line: an episode failed, or a file cannot be written.
pub fn run(
    options: &TrainingOptions,
    weights: &Path,
    out: &Path,
    say: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    let (untrained, school, points) = teach(options, say)?;
    let network = school.network();
    let note = format!(
        "Network of ART-DQN (art-dqn of mendcast).\nMade by: {}\nLearnt from {} recorded rounds offline and \
         then online, {} steps in all, over paths of 5-100 Mbps, 20-200 ms, 1-10 % loss, independent and in \
         bursts.\n",
        options.command(),
        points.recorded,
        school.learner().steps(),
    );
    if let Some(folder) = weights.parent() {
        std::fs::create_dir_all(folder).at(folder)?;
    }
    std::fs::write(weights, network.to_bytes(&note)).at(weights)?;
    say(&format!("weights: {}", weights.display()));
    std::fs::create_dir_all(out).at(out)?;
    let svg = plots(&points.all);
    write_file(&out.join("learning.csv"), &csv(&points.all))?;
    let table = compare(options, untrained, network)?;
    write_file(&out.join("comparison.csv"), &table)?;
    table.lines().for_each(|line| say(&line.replace(',', "\t")));
    let mut body = format!("<p><code>{}</code></p>\n", options.command());
    for (name, svg) in &svg {
        write_file(&out.join(name), svg)?;
        body.push_str(svg);
    }
    let _ = write!(body, "<pre>{}</pre>", table.replace(',', "\t"));
    write_page(out, "Training of ART-DQN", &body)
}

/// The learning curve.
struct LearningCurve {
    all: Vec<Point>,
    /// Rounds in the records.
    recorded: usize,
}

/// Runs the three phases. Returns the untrained network and the learner.
fn teach(
    options: &TrainingOptions,
    say: &mut dyn FnMut(&str),
) -> Result<(Network, Trainer, LearningCurve), Error> {
    let how =
        train::Options { penalty: options.penalty(), replay: REPLAY, ..train::Options::default() };
    let learner = Learner::new(how, options.seed)?;
    let school = Trainer::new(learner, *options);
    let untrained = school.network();
    let mut all = Vec::new();
    let mut point = |phase, error: f64| -> Result<(), Error> {
        school.learner().set_phase(Phase::Judge);
        let judged = school.attend(HELD_OUT, 0..EVALUATION_EPISODES.min(options.compare))?;
        let steps = school.learner().steps();
        say(&format!(
            "{phase:8} {steps:8} steps  error {error:.4}  held out: reward {:.4}  R {:.3}  cost {:.4}  N_max {:.3}",
            judged.reward(),
            judged.r(),
            mean(&judged.cost),
            mean(&judged.n_max),
        ));
        all.push(Point { phase, steps, error, judged });
        Ok(())
    };
    point("at first", 0.0)?;
    school.learner().set_phase(Phase::Record);
    school.attend(RECORDED, 0..options.record)?;
    let recorded = school.learner().remembered();
    let error = |tally: Tally| tally.error / tally.steps.max(1) as f64;
    for part in shares(options.steps) {
        school.learner().study(part.end - part.start);
        let tally = school.learner().take_tally();
        point("offline", error(tally))?;
    }
    for part in shares(options.online) {
        school.learner().set_phase(Phase::Learn);
        let lived = school.attend(LIVED, part)?;
        point("online", error(lived.tally))?;
    }
    Ok((untrained, school, LearningCurve { all, recorded }))
}

/// Splits `all` into one part per point of the curve. Each part doubles the total.
fn shares(all: u64) -> impl Iterator<Item = core::ops::Range<u64>> {
    let end = move |place: u64| if place == 0 { 0 } else { all >> (POINTS - place) };
    (0..POINTS).map(move |place| end(place)..end(place + 1)).filter(|part| !part.is_empty())
}

fn csv(points: &[Point]) -> String {
    let mut text = "phase,steps,error,reward,r,cost,n_max,rounds_mean\n".to_owned();
    for Point { phase, steps, error, judged } in points {
        let (cost, n_max) = (mean(&judged.cost), mean(&judged.n_max));
        let rounds = judged.rounds_mean();
        let (reward, r) = (judged.reward(), judged.r());
        let _ = writeln!(text, "{phase},{steps},{error},{reward},{r},{cost},{n_max},{rounds}");
    }
    text
}

fn plots(points: &[Point]) -> Vec<(&'static str, String)> {
    type Value = fn(&Measures) -> f64;
    let of: [(&str, &str, Value); 2] = [
        ("reward.svg", "Mean reward of a round on held-out paths", Measures::reward),
        ("cost.svg", "Redundancy cost on held-out paths", |m| mean(&m.cost)),
    ];
    let plot = |(name, title, value): (&'static str, &str, Value)| {
        let x = |point: &Point| (point.steps as f64 + 1.0).log2();
        let curves = ["offline", "online"].map(|phase| {
            let mut series = Series::line(phase.to_owned());
            let of_phase = points.iter().filter(|point| point.phase == phase);
            series.points = of_phase.map(|point| (x(point), value(&point.judged))).collect();
            series
        });
        let mut first = Series::marks("at first".to_owned());
        first.points = points.iter().take(1).map(|p| (x(p), value(&p.judged))).collect();
        let series: Vec<Series> =
            [first].into_iter().chain(curves).filter(|s| !s.points.is_empty()).collect();
        let chart = Chart {
            title: title.to_owned(),
            x: "training steps, as a power of 2".to_owned(),
            y: title.split(' ').take(2).collect::<Vec<_>>().join(" "),
        };
        (name, chart.svg(&series))
    };
    of.into_iter().map(plot).collect()
}

/// Compares the network before and after training, constant R, ART and plain QUIC on the same
/// unseen paths. Differences from ART in the table are paired means with half their 95 % intervals.
fn compare(
    options: &TrainingOptions,
    untrained: Network,
    trained: Network,
) -> Result<String, Error> {
    let judge = |network: Network| -> Result<Measures, Error> {
        let mut learner = Learner::of(
            network,
            train::Options { penalty: options.penalty(), ..train::Options::default() },
            options.seed,
        );
        learner.set_phase(Phase::Judge);
        Trainer::new(learner, *options).attend(COMPARED, 0..options.compare)
    };
    let reading = if options.copies { Readings::Copies } else { Readings::Own };
    let scheme = |name: &str| -> Result<Measures, Error> {
        let mut measures = Measures::default();
        for place in 0..options.compare {
            let seed = options.seed + (COMPARED << 20) + place;
            let mut setup = path(seed);
            setup.lab.lab.reading = reading;
            setup.set_text("recovery.scheme", name)?;
            measures.add(&episode(seed, None, setup)?);
        }
        Ok(measures)
    };
    let art = scheme("art-paper")?;
    let rows = [
        ("ART", art.clone()),
        ("DQN at first", judge(untrained)?),
        ("DQN", judge(trained)?),
        ("R = 1", judge(Network::always(1))?),
        ("R = 2", judge(Network::always(2))?),
        ("R = 3", judge(Network::always(3))?),
        ("QUIC", scheme("arq")?),
    ];
    let mut text =
        "scheme,reward,r,cost,cost_less_art,ci95,n_max,n_max_less_art,ci95,rounds_mean\n"
            .to_owned();
    for (name, row) in rows {
        let _ = write!(text, "{name}");
        match row.tally.rounds {
            0 => text.push_str(",,"),
            _ => {
                let _ = write!(text, ",{:.4},{:.3}", row.reward(), row.r());
            }
        }
        for (own, other) in [(&row.cost, &art.cost), (&row.n_max, &art.n_max)] {
            let pairs = own.iter().zip(other).map(|(a, b)| a - b);
            let (difference, half) = match Estimate::of(pairs) {
                Some(Estimate { mean, half }) => (mean, half.unwrap_or_default()),
                None => (0.0, 0.0),
            };
            let _ = write!(text, ",{:.4},{difference:.4},{half:.4}", mean(own));
        }
        let _ = writeln!(text, ",{:.4}", row.rounds_mean());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: TrainingOptions = TrainingOptions {
        seed: 5,
        gamma: 1.05,
        product: false,
        copies: false,
        record: 3,
        steps: 100,
        online: 2,
        compare: 1,
    };

    #[test]
    fn the_same_command_makes_the_same_file_and_another_seed_another() {
        let folder = std::env::temp_dir().join(format!("mendcast-train-{}", std::process::id()));
        let train = |options: &TrainingOptions| {
            let file = folder.join("weights.mdqn");
            let mut lines = 0;
            run(options, &file, &folder, &mut |_| lines += 1).expect("trained");
            assert!(lines > 10, "{lines}");
            std::fs::read(file).expect("written")
        };
        let (first, again) = (train(&FEW), train(&FEW));
        let curve = std::fs::read_to_string(folder.join("learning.csv")).expect("written");
        let other = train(&TrainingOptions { seed: 6, ..FEW });
        let _ = std::fs::remove_dir_all(&folder);
        assert_eq!(first, again);
        assert_ne!(first, other);
        Network::from_bytes(&first).expect("a network");
        let text = String::from_utf8_lossy(&first);
        assert!(text.contains("mendcast lab train --seed 5 --gamma 1.05 --record 3"), "{text}");
        for phase in ["at first", "offline", "online"] {
            assert!(curve.contains(phase), "{curve}");
        }
    }

    #[test]
    fn paths_are_in_the_box_and_of_both_kinds() {
        let setups: Vec<Setup> = (0..200).map(path).collect();
        for setup in &setups {
            let path = &setup.lab.path;
            assert!((5.0..=100.0).contains(&path.rate.as_mbps_f64()));
            assert!((20.0..200.0).contains(&setup.rtt_ms()) && (0.01..0.1).contains(&path.loss));
        }
        let bursts =
            setups.iter().filter(|setup| setup.lab.path.loss_model != "independent").count();
        assert!((70..130).contains(&bursts), "{bursts}");
    }
}
