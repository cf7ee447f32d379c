//! Runs a specification: every scheme at every point of every sweep, with the same seeds. Identical
//! set-ups run once.

use std::collections::BTreeMap;
use std::time::Duration;

use cpu_time::ThreadTime;
use recovery::Random;
use toml::Value;
use units::Timestamp;

use super::metrics::{ALL, Logged, Measurements, evaluate};
use super::options::RunOptions;
use super::output::note;
use super::parallel::in_parallel;
use super::rows::{RunRow, SenderCurve};
use super::spec::{AxisRange, ComparedScheme, Point, Spec, Sweep, quantity};
use super::waits::{self, RunWaits};
use crate::error::{Error, RunError};
use crate::recovered::{Diary, FinishedUnit};
use crate::setup::{Kind, Setup, mbps, round_trip};
use crate::simulation::{RunOutcome, SenderSample, run as simulate};
use crate::traffic::Traffic;

/// The results of a specification.
pub(crate) struct Results {
    pub rows: Vec<RunRow>,
    pub curves: Vec<SenderCurve>,
    pub waits: Vec<RunWaits>,
    pub cpu: Duration,
}

/// Sampling interval of curves.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// Set-up and seed of one run, and the rows that receive its values.
struct Job {
    setup: Setup,
    seed: u64,
    curves: bool,
    rows: Vec<usize>,
}

/// The result of a job.
type Done = Result<(Measurements, Vec<SenderSample>), Error>;

/// Runs the specification. `seconds` shortens every run, for tests.
pub(crate) fn run(
    spec: &Spec,
    options: &RunOptions<'_>,
    seconds: Option<f64>,
) -> Result<Results, Error> {
    let mut rows = Vec::new();
    let mut jobs: Vec<Job> = Vec::new();
    let mut known: BTreeMap<(String, u64), usize> = BTreeMap::new();
    for (place, sweep) in spec.sweeps.iter().enumerate() {
        let runs = runs_of(sweep, options.runs.unwrap_or(spec.runs));
        for point in sweep.points() {
            for seed in options.seed..options.seed + runs {
                let drawn = draw(sweep, seed - options.seed, runs);
                for scheme in spec.schemes_of(sweep) {
                    let mut setup = spec.setup(sweep, &point, &drawn, scheme)?;
                    if let Some(seconds) = seconds {
                        shorten(&mut setup, seconds);
                    }
                    let job = *known.entry((setup.text(), seed)).or_insert_with(|| {
                        let curves = spec.curves && seed == options.seed;
                        jobs.push(Job { setup, seed, curves, rows: Vec::new() });
                        jobs.len() - 1
                    });
                    jobs[job].rows.push(rows.len());
                    rows.push(row(place, scheme, &point, &drawn, seed));
                }
            }
        }
    }
    note(format_args!("{}: {} runs, {} of them different", spec.name, rows.len(), jobs.len()));
    let done = in_parallel(&jobs, options.jobs, |job| {
        let start = ThreadTime::try_now();
        let done = work(job);
        let cpu = start.and_then(|start| start.try_elapsed()).unwrap_or_default();
        (done, cpu)
    });
    let (mut curves, mut waits) = (Vec::new(), Vec::new());
    let cpu = done.iter().map(|(_, cpu)| *cpu).sum();
    for (job, (done, _)) in jobs.iter().zip(done) {
        for &place in &job.rows {
            let row: &mut RunRow = &mut rows[place];
            match &done {
                Ok((measured, samples)) => {
                    // Formulas use the keys of the row, not of the shared run.
                    row.values = evaluate(measured, &row.setup(spec)?);
                    let kept = spec.waits.then(|| waits::ranks(&measured.units)).flatten();
                    waits.extend(kept.map(|(units, ranks)| RunWaits {
                        sweep: row.sweep,
                        scheme: row.scheme.clone(),
                        point: row.point.clone(),
                        seed: row.seed,
                        units,
                        ranks,
                    }));
                    if !samples.is_empty() {
                        curves.push(SenderCurve {
                            sweep: row.sweep,
                            scheme: row.scheme.clone(),
                            point: row.point.clone(),
                            samples: samples.clone(),
                        });
                    }
                }
                Err(error) => row.error = error.to_string(),
            }
        }
    }
    Ok(Results { rows, curves, waits, cpu })
}

fn row(place: usize, scheme: &ComparedScheme, point: &Point, drawn: &Point, seed: u64) -> RunRow {
    RunRow {
        sweep: place,
        scheme: scheme.label.clone(),
        point: point.clone(),
        drawn: drawn.clone(),
        seed,
        values: vec![None; ALL.len()],
        error: String::new(),
    }
}

fn shorten(setup: &mut Setup, seconds: f64) {
    let longest = Duration::from_secs_f64(seconds);
    let (source, knobs) = (&mut setup.lab.source, &mut setup.lab.lab);
    source.duration = source.duration.min(longest);
    knobs.measure_from = knobs.measure_from.min(longest / 2);
    source.requests = source.requests.min(2);
    knobs.warm_up = knobs.warm_up.min(1);
    if source.kind == Kind::Dash {
        source.segment = source.segment.min(source.duration / 2);
    }
    if source.kind == Kind::Download {
        source.bytes.0 = source.bytes.0.min(200_000);
        source.transfer = Duration::ZERO;
        source.duration = Duration::from_secs(600);
    }
}

fn runs_of(sweep: &Sweep, runs: u64) -> u64 {
    if sweep.draws == 0 { runs } else { sweep.draws.min(3 * runs) }
}

/// Returns the values of draw `index` of `n` (Latin hypercube; McKay, Beckman and Conover 1979):
/// each range is divided into `n` equal strata, and a random permutation per range assigns strata
/// to draws.
fn draw(sweep: &Sweep, index: u64, n: u64) -> Point {
    let draw = |(place, range): (usize, &AxisRange)| {
        let seed = (place as u64 + 1) << 32;
        let mut random = Random::new(seed);
        let mut order: Vec<u64> = (0..n).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, random.below(last as u32 + 1) as usize);
        }
        // Random position within the stratum.
        let within = Random::new(seed + 1 + index).fraction();
        let share = (order[index as usize] as f64 + within) / n as f64;
        (range.key.get_ref().clone(), between(range, share))
    };
    sweep.ranges.iter().enumerate().map(draw).collect()
}

/// Returns the value at this share of a range. Rates are whole kbps, and times an even number of
/// nanoseconds, because each direction of a path delays by half of a round-trip time.
pub(super) fn between(range: &AxisRange, share: f64) -> Value {
    let (Some((low, unit)), Some((high, _))) = (quantity(&range.low), quantity(&range.high)) else {
        return range.low.clone();
    };
    let value = low + (high - low) * share;
    match unit {
        "" => Value::Float(value),
        "ms" => {
            let nanos = round_trip(value).as_nanos();
            Value::String(format!("{}.{:06}ms", nanos / 1_000_000, nanos % 1_000_000))
        }
        "mbps" => Value::String(mbps(value).to_string()),
        unit => Value::String(format!("{value}{unit}")),
    }
}

fn work(job: &Job) -> Done {
    let mut all = Measurements::default();
    let mut samples = Vec::new();
    let setup = &job.setup;
    let (warm_up, source) = (setup.lab.lab.warm_up, &setup.lab.source);
    let mut learnt = setup.learnt(job.seed)?;
    for download in 1..=u64::from(warm_up) {
        // Seeds of warm-up downloads are distinct from seeds of requests.
        simulate(&setup.scenario_after(job.seed + (download << 20), &learnt)?)?;
    }
    learnt.judge();
    let connections = if source.same_connection { 1 } else { source.requests };
    for request in 0..u64::from(connections) {
        if warm_up == 0 {
            learnt = setup.learnt(job.seed)?;
        }
        // Each request without a shared connection is its own simulation, with its own seed.
        let mut scenario = setup.scenario_after(job.seed + (request << 40), &learnt)?;
        let diary = Diary::default();
        scenario.diary = Some(diary.clone());
        scenario.sample_every = (job.curves && request == 0).then_some(SAMPLE_EVERY);
        let outcome = simulate(&scenario)?;
        if !outcome.intact {
            return Err(RunError::WrongBytes.into());
        }
        if !outcome.completed {
            return Err(RunError::Incomplete(outcome.failed).into());
        }
        add(&mut all, &outcome, &scenario.traffic);
        if setup.lab.lab.twice {
            let seed = scenario.seed;
            let again = simulate(&setup.scenario_after(seed, &setup.learnt(job.seed)?)?)?;
            let (start, same) = (outcome.event_log.start(), again.event_log == outcome.event_log);
            all.log = Some(Logged { start, same });
        }
        if let (Traffic::Live(live), Some(seen)) = (&scenario.traffic, &outcome.live) {
            all.viewing.watch(setup.player(), live, seen, scenario.measure_from);
            if let Some(seen) = outcome.rival.as_ref().and_then(|rival| rival.live.as_ref()) {
                let viewing = &mut all.rival_viewing;
                viewing.watch(setup.player(), live, seen, scenario.measure_from);
            }
        }
        all.playbacks.add(&scenario.traffic, outcome.dash);
        let pages = diary.take();
        all.rounds_max.extend(match outcome.asked.len() {
            0 | 1 => vec![outcome.recovery.totals.rounds_max.into()],
            _ => rounds_max(&outcome.asked, &pages.units),
        });
        all.units.extend(pages.units);
        if pages.decisions.is_empty() {
            all.round_trips.push(outcome.smoothed_rtt.as_secs_f64() * 1e3);
        }
        for decision in pages.decisions {
            all.round_trips.push(decision.smoothed_rtt.as_secs_f64() * 1e3);
            all.decisions.intervals += 1;
            all.decisions.lossless += u64::from(decision.loss_rate == 0.0);
            let level = decision.reasons.iter().find(|(name, _)| *name == "level");
            all.decisions.levels += level.map_or(0.0, |(_, level)| *level);
        }
        samples.extend(outcome.samples);
    }
    Ok((all, samples))
}

/// Returns N_max of each request of a connection. The last acknowledgement of an answer arrives no
/// later than the next request.
fn rounds_max(asked: &[Timestamp], units: &[FinishedUnit]) -> Vec<f64> {
    let mut all = vec![0.0; asked.len()];
    for unit in units {
        let place = asked.partition_point(|&asked| asked < unit.at).max(1) - 1;
        all[place] = f64::max(all[place], unit.rounds.into());
    }
    all
}

fn add(all: &mut Measurements, outcome: &RunOutcome, traffic: &Traffic) {
    all.recovery.merge(&outcome.recovery);
    all.received.bytes += outcome.measured.bytes;
    all.received.time += outcome.measured.time;
    if matches!(traffic, Traffic::Download { .. }) {
        let mut start = Timestamp::ZERO;
        for &end in &outcome.answered {
            all.completions.push(end.since(start).as_secs_f64() * 1e3);
            start = end;
        }
    }
    all.payload[0] += outcome.received;
    all.payload[1] += outcome.wire_bytes;
    all.packets_lost += outcome.stats.packets_lost;
    all.queue.offered += outcome.down.sent.packets;
    all.queue.refused += outcome.down.queue_dropped.packets;
    if let Some(rival) = &outcome.rival {
        all.rival = Some(rival.measured);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_belongs_to_the_request_during_which_it_was_acknowledged() {
        let ms = Timestamp::from_millis;
        let unit =
            |rounds, at| FinishedUnit { rounds, copies: 1, wait: Duration::ZERO, at: ms(at) };
        // The third unit is acknowledged together with the second request.
        let units = [unit(2, 15), unit(1, 18), unit(3, 20), unit(1, 21)];
        assert_eq!(rounds_max(&[ms(10), ms(20), ms(30)], &units), [3.0, 1.0, 0.0]);
    }

    #[test]
    fn a_latin_hypercube_takes_each_part_of_each_range_once() {
        let text = "title = \"t\"\ndraws = 12\nranges = [{ key = \"source.fps\", low = 0.0, high = 12.0 }, \
                    { key = \"lab.sigmoid\", low = 10.0, high = 22.0 }]";
        let sweep: Sweep = toml::from_str(text).expect("a sweep");
        for axis in 0..2 {
            let low = [0.0, 10.0][axis];
            let parts: std::collections::BTreeSet<u64> = (0..12)
                .map(|index| match draw(&sweep, index, 12)[axis].1 {
                    Value::Float(value) => (value - low).floor() as u64,
                    _ => u64::MAX,
                })
                .collect();
            assert_eq!(parts, (0..12).collect());
        }
        assert_ne!(draw(&sweep, 0, 12)[0].1, draw(&sweep, 1, 12)[0].1);
    }
}
