//! Server cost of loss recovery: each scheme against plain retransmission, with and without loss,
//! the time per decision, and the number of allocations.
//!
//! CPU time is taken from an in-memory download after its first quarter. A scheme and plain
//! retransmission alternate, and so does their order. Both use BBR, whose window random loss does
//! not reduce, and a guard that permits all replicas.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use cpu_time::ThreadTime;
use quic::SchemeFactory;
use recovery::art::dqn::Network;
use recovery::catalog::{Parameters, SchemeSpec};
use recovery::{
    Arq, CopyKind, Guard, IntervalMetrics, LossCorrelation, Packet, PathState, Recovery,
    RecoveryEvent, Scheme, SharedBudget, UnitKey, UnitTable, View,
};
use units::{Rate, Timestamp};

use crate::Failure;
use crate::identity::Identity;
use crate::loopback::calibration;
use crate::memory::{Contestant, Download, MemoryPath, Setup, download, heap};
use crate::report::{BenchReport, PeerTarget, Samples};

/// Long enough for replicas to be sent. With the client's window of 1 MiB, some 15 packets are sent
/// per turn.
const LOSSLESS_PATH: MemoryPath = MemoryPath { delay: Duration::from_millis(60), loss: 0.0 };
const LOSSY: MemoryPath = MemoryPath { loss: 0.05, ..LOSSLESS_PATH };
const SEED: u64 = 1;

/// Amount of measurement.
struct Scale {
    /// Pairs of each CPU benchmark.
    pairs: usize,
    /// Bytes of a download.
    bytes: u64,
    /// Rounds of the other benchmarks.
    rounds: usize,
    decisions: u32,
    connections: u16,
}

/// Returns the schemes by name. Plain retransmission comes first; compared with itself it shows the
/// noise.
fn schemes() -> Result<Vec<(&'static str, SchemeFactory)>, Failure> {
    let network = Network::untrained(&[32, 32], SEED)?;
    let parameters = Parameters { weights: Some(network.into()), ..Parameters::default() };
    let names = [
        "arq",
        "spare",
        "deadline",
        "autorec",
        "autorec-mm24",
        "art-paper",
        "art-code",
        "or3",
        "art-ucb",
        "art-dqn",
    ];
    let named = names.map(|name| {
        let choice = name.parse()?;
        let spec = SchemeSpec::new(choice, parameters.clone())?;
        Ok((name, Arc::new(move || spec.build(SEED)) as SchemeFactory))
    });
    named.into_iter().collect()
}

/// Runs all benchmarks with a name that is `wanted`.
pub(crate) fn measure(
    report: &mut BenchReport,
    wanted: &dyn Fn(&str) -> bool,
    quick: bool,
) -> Result<(), Failure> {
    let scale = if quick {
        Scale { pairs: 4, bytes: 8 << 20, rounds: 2, decisions: 10_000, connections: 125 }
    } else {
        Scale { pairs: 24, bytes: 64 << 20, rounds: 5, decisions: 100_000, connections: 1_000 }
    };
    let schemes = schemes()?;
    let arq = schemes[0].1.clone();
    // Returns the wanted schemes of a benchmark, with their row names.
    let of = |benchmark: &str| {
        let named = schemes.iter().map(|(scheme, factory)| Entrant {
            scheme,
            name: format!("{benchmark}/{scheme}"),
            factory: factory.clone(),
        });
        named.filter(|entrant| wanted(&entrant.name)).collect::<Vec<_>>()
    };
    cpu(report, (LOSSLESS_PATH, 1.02), &of("recovery_cpu_idle"), &arq, &scale)?;
    cpu(report, (LOSSY, 1.03), &of("recovery_cpu_loss"), &arq, &scale)?;
    decisions(report, &of("level_decision_ns"), &scale);
    plans(report, &of("copies_plan_ns"), &scale);
    allocations(report, &of("lossy_allocations"), &scale)?;
    idle_heap(report, &of("recovery_idle_heap"), &arq, &scale)
}

/// A scheme in one benchmark.
struct Entrant {
    scheme: &'static str,
    name: String,
    factory: SchemeFactory,
}

/// Returns our server with this scheme.
pub(crate) fn contestant_of(name: &str) -> Result<Contestant, Failure> {
    let all = schemes()?;
    let known = all.iter().find(|(known, _)| *known == name);
    known.map(|(_, scheme)| contestant(scheme)).ok_or_else(|| format!("no scheme {name}").into())
}

fn contestant(scheme: &SchemeFactory) -> Contestant {
    let shared = Arc::new(SharedBudget::new(100.0, 1 << 40));
    Contestant::Ours(Setup {
        congestion: congestion::Algorithm::Bbr,
        scheme: scheme.clone(),
        guard: Some(Guard::new(100.0, Some(shared))),
    })
}

fn per_packet(cost: &Download) -> f64 {
    cost.steady.server.as_nanos() as f64 / cost.steady.sent as f64
}

/// Compares the CPU time per packet of each scheme with plain retransmission.
fn cpu(
    report: &mut BenchReport,
    (path, limit): (MemoryPath, f64),
    entrants: &[Entrant],
    arq: &SchemeFactory,
    scale: &Scale,
) -> Result<(), Failure> {
    let identity = Identity::new();
    let arq = contestant(arq);
    for entrant in entrants {
        let ours = contestant(&entrant.factory);
        let (mut pairs, mut last) = (Vec::new(), Download::default());
        // The first pair warms caches and is not counted.
        for round in 0..=scale.pairs {
            let run = |side: &Contestant| download(side, &identity, scale.bytes, path);
            let (mine, theirs) = if round % 2 == 0 {
                let mine = run(&ours)?;
                (mine, run(&arq)?)
            } else {
                let theirs = run(&arq)?;
                (run(&ours)?, theirs)
            };
            if round > 0 {
                pairs.push((per_packet(&mine), per_packet(&theirs)));
            }
            last = mine;
        }
        // A network's decision is expensive, so under loss it has no target. Nor has plain
        // retransmission against itself, which shows the noise.
        let target = match entrant.scheme {
            "arq" => PeerTarget::None,
            "art-dqn" if path.loss > 0.0 => PeerTarget::None,
            _ => PeerTarget::RatioAtMost(limit),
        };
        report.add_pairs((&entrant.name, "ns per packet"), "arq", &pairs, target);
        let steady = last.steady;
        println!(
            "        {} packets sent, {} lost, {:.1} per turn",
            steady.sent,
            steady.lost,
            steady.sent as f64 / steady.turns as f64
        );
    }
    Ok(())
}

/// Input of an adapter: a path of 40 ms with some loss, which changes between intervals.
struct Scene {
    units: UnitTable,
    metrics: Vec<IntervalMetrics>,
}

impl Scene {
    fn new() -> Self {
        let ms = Duration::from_millis;
        let metrics = (0..64u64).map(|n| IntervalMetrics {
            now: Timestamp::from_millis(200 * n),
            span: ms(200),
            acked: 1_000 + n,
            lost: 10 + n * 7 % 100,
            t_unit: Some(ms(45 + n % 10)),
            finished: 10 + n,
            recovery_latency: Some(ms(50 + n * 11 % 40)),
            rounds_max: (1 + n % 4) as u32,
            sent_bytes: 1_300_000 + n * 1_000,
            goodput_bytes: 1_200_000 + n * 500,
            replicas: n,
        });
        Self { units: UnitTable::default(), metrics: metrics.collect() }
    }

    fn view(&self) -> View<'_> {
        View {
            path: PathState {
                smoothed_rtt: Duration::from_millis(41),
                min_rtt: Duration::from_millis(40),
                latest_rtt: Duration::from_millis(41),
                peak_rtt: Duration::from_millis(60),
                trough_rtt: Duration::from_millis(40),
                pacing_rate: Some(Rate::from_mbps(20)),
                delivery_rate: Rate::from_mbps(20),
                window: 150_000,
                in_flight: 100_000,
                packet: 1_200,
            },
            units: &self.units,
            longest_burst: 3,
            correlation: None,
            overdue_lost: 0.5,
            loss_rate: 0.1,
        }
    }
}

/// Lets the adapter learn from some hundred units. Every eighth one loses its first round.
fn teach(scheme: &mut Scheme, key: UnitKey, recovery: &Recovery<()>, scene: &Scene) {
    let adapter = &mut scheme.adapter;
    let now = Timestamp::ZERO;
    for n in 0..512u64 {
        let acked = n % 8 != 0;
        adapter.on_event(&RecoveryEvent::Opened { now, unit: key });
        adapter.level(key, 1, &scene.view());
        let kind = CopyKind::Retransmission;
        adapter.on_event(&RecoveryEvent::CopySent { now, unit: key, kind, round: 1 });
        for kind in [kind, CopyKind::Replica] {
            adapter.on_event(&RecoveryEvent::CopySettled { now, unit: key, kind, acked });
        }
        let end = match recovery.unit(key) {
            Some(unit) if acked => RecoveryEvent::Finished { now, unit: key, state: unit.clone() },
            _ => RecoveryEvent::RoundLost { now, unit: key, round: 1 },
        };
        adapter.on_event(&end);
    }
}

/// Time budget of a decision, in sealed packets. An interval of five round trips has about forty
/// packets at 2 Mbps and 40 ms, so deciding takes at most an eighth of the time for their
/// encryption.
const SEALED_PER_DECISION: f64 = 5.0;

/// Compares the end of a decision interval and the next unit's level with sealing a packet. The
/// loop's overhead of a few nanoseconds is included.
fn decisions(report: &mut BenchReport, entrants: &[Entrant], scale: &Scale) {
    let scene = Scene::new();
    let mut recovery = Recovery::new(Arq::scheme(), None, Timestamp::ZERO);
    let lost = Packet { number: 1, sent: Timestamp::ZERO, bytes: 1_200, copy: None, unit: None };
    let opened = recovery.lost(Timestamp::ZERO, &lost, [1_000], &mut ()).opened;
    let key = opened.expect("all of it is missing");
    let measure = |mut scheme: Scheme| {
        teach(&mut scheme, key, &recovery, &scene);
        let start = ThreadTime::now();
        for metrics in scene.metrics.iter().cycle().take(scale.decisions as usize) {
            let view = scene.view();
            scheme.adapter.on_interval(black_box(metrics), &view);
            black_box(scheme.adapter.level(key, 1, &view));
        }
        start.elapsed().as_nanos() as f64 / f64::from(scale.decisions)
    };
    beside_sealing(report, entrants, scale, measure);
}

/// Compares the nanoseconds that `measure` returns for each scheme with sealing a packet.
fn beside_sealing(
    report: &mut BenchReport,
    entrants: &[Entrant],
    scale: &Scale,
    measure: impl Fn(Scheme) -> f64,
) {
    for entrant in entrants.iter().filter(|entrant| entrant.scheme != "arq") {
        let rounds = (0..scale.rounds).map(|_| (measure((entrant.factory)()), calibration()));
        let rounds: Vec<_> = rounds.collect();
        let target = PeerTarget::RatioAtMost(SEALED_PER_DECISION);
        report.add_pairs((&entrant.name, "ns"), "sealing a packet", &rounds, target);
    }
}

/// Loss correlation of a path with occasional outages of 20 ms.
fn outages() -> LossCorrelation {
    let mut all = LossCorrelation::default();
    for number in 0..10_000 {
        all.on_settled(Timestamp::from_millis(2 * number), number % 200 < 10);
        all.on_all_settled();
    }
    all
}

/// Compares the decision at a retransmission (level and times of copies) with sealing a packet.
fn plans(report: &mut BenchReport, entrants: &[Entrant], scale: &Scale) {
    let (scene, correlation) = (Scene::new(), outages());
    let mut recovery = Recovery::new(Arq::scheme(), None, Timestamp::ZERO);
    let lost = Packet { number: 1, sent: Timestamp::ZERO, bytes: 1_200, copy: None, unit: None };
    let opened = recovery.lost(Timestamp::ZERO, &lost, [1_000], &mut ()).opened;
    let key = opened.expect("all of it is missing");
    let unit = recovery.unit(key).expect("it is missing");
    let measure = |mut scheme: Scheme| {
        teach(&mut scheme, key, &recovery, &scene);
        let view = View { correlation: Some(&correlation), ..scene.view() };
        let start = ThreadTime::now();
        for n in 0..scale.decisions {
            // From a timely retransmission to a late one.
            let now = Timestamp::from_millis(50 + u64::from(n % 200));
            let level = scheme.adapter.level(key, 1, &view);
            scheme.scheduler.on_retransmitted(now, key, black_box(unit), level, &view);
            scheme.scheduler.on_finished(key);
        }
        start.elapsed().as_nanos() as f64 / f64::from(scale.decisions)
    };
    beside_sealing(report, entrants, scale, measure);
}

/// Compares the allocations of a lossy download with those of `quinn-proto`. Counts are exact, so
/// one round suffices.
fn allocations(
    report: &mut BenchReport,
    entrants: &[Entrant],
    scale: &Scale,
) -> Result<(), Failure> {
    let identity = Identity::new();
    let count = |side: &Contestant| {
        let steady = download(side, &identity, scale.bytes, LOSSY)?.steady;
        Ok::<_, Failure>(Samples::of(steady.allocations as f64 * 1e3 / steady.sent as f64))
    };
    for entrant in entrants {
        let ours = count(&contestant(&entrant.factory))?;
        let peer = count(&Contestant::QuinnProto)?;
        let what = (&*entrant.name, "per 1,000 packets");
        // None per packet and none per loss. The ledger frees its memory when nothing is in flight,
        // and allocates it again.
        report.add(what, &ours, ("quinn-proto", &peer), PeerTarget::AtMost(5.0));
    }
    Ok(())
}

/// Compares the heap of idle connections with that under plain retransmission.
fn idle_heap(
    report: &mut BenchReport,
    entrants: &[Entrant],
    arq: &SchemeFactory,
    scale: &Scale,
) -> Result<(), Failure> {
    let idle = |scheme: &SchemeFactory| {
        Ok::<_, Failure>(Samples::of(heap(&contestant(scheme), scale.connections)?.idle))
    };
    for entrant in entrants.iter().filter(|entrant| entrant.scheme != "arq") {
        let (ours, peer) = (idle(&entrant.factory)?, idle(arq)?);
        report.add((&entrant.name, "B"), &ours, ("arq", &peer), PeerTarget::AtMost(12_288.0));
    }
    Ok(())
}
