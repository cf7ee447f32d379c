//! `analysis::why` on sessions of the testbed: record and qlog as the server writes them, and the
//! freezes of a player model. The cause is known, because each path has one impairment.

use core::time::Duration;
use std::fs::File;
use std::io::BufWriter;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use analysis::why::{Cause, Certainty, Explanation, Outcome, WhyOptions, why};
use congestion::Algorithm;
use lab::{Encoder, Live, LiveSource, RunOutcome, Scenario, Traffic, run};
use links::{LinkConfig, PathConfig, Queue};
use mendcast_lab as lab;
use qoe::{FrameKind, Player, Policy};
use quic::ObserverFactory;
use quic::observer::Observer;
use quic::qlog::QlogObserver;
use records::{Record, schema};
use units::{Rate, Timestamp};

/// Wall clock at the start of virtual time, in ms.
const UNIX_MS: u64 = 1_800_000_000_000;
const VIEWER: &str = "00c0ffee00c0ffee";
const PICTURES: u32 = 900;
const BEFORE: u32 = 60;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A path of 20 Mbps with a round trip of 60 ms, BBR, and a stream of 2 Mbps for 30 s.
fn scenario(seed: u64) -> Scenario {
    let link = LinkConfig {
        rate: Some(Rate::from_mbps(20)),
        delay: Some(ms(30)),
        queue: Queue::drop_tail(500_000),
        ..LinkConfig::default()
    };
    let encoder = Encoder { rate: Rate::from_mbps(2), ..Encoder::default() };
    Scenario {
        path: PathConfig { down: link.clone(), up: LinkConfig { rate: None, ..link } },
        congestion: delivery::controller(Algorithm::Bbr),
        traffic: Traffic::Live(Live::encoded(&encoder, seed, BEFORE, PICTURES)),
        limit: Duration::from_secs(60),
        seed,
        ..Scenario::default()
    }
}

/// Result of a session, with record and qlog in a directory.
struct Played {
    explanation: Explanation,
    /// Frozen time, by the player model.
    frozen_s: f64,
    /// Starts of freezes in s after the start of the session.
    freezes_s: Vec<f64>,
}

/// Plays the scenario with a player that keeps this buffer, and explains the session.
fn played(mut scenario: Scenario, buffer: Duration) -> Played {
    let directory = tempfile::tempdir().expect("a directory");
    let name = format!("{UNIX_MS:013}-ab01.sqlog");
    scenario.transport.observer = Some(qlog(directory.path().join(name).as_path()));
    let outcome = run(&scenario).expect("it runs");
    drop(scenario);
    let asked = outcome.asked[0];
    let policy = Policy::with_buffer(buffer).expect("a buffer");
    let mut player = Player::new(policy, asked);
    let live = outcome.live.as_ref().expect("a live stream");
    for arrival in &live.arrivals {
        let kind = if arrival.is_key { FrameKind::Key } else { FrameKind::Dependent };
        player.on_media(arrival.at, arrival.media_ms, kind);
    }
    let end = Timestamp::ZERO + ms(30_000);
    let report = player.report(end);
    let freezes_s: Vec<f64> =
        player.freezes().iter().map(|freeze| freeze.start.since(asked).as_secs_f64()).collect();
    let record = record(&outcome, &report, end.since(asked));
    std::fs::write(directory.path().join("sessions-1.jsonl"), record.json() + "\n")
        .expect("written");
    let explanation = why(&WhyOptions {
        session: VIEWER.to_owned(),
        records: vec![directory.path().join("sessions-1.jsonl")],
        qlog: Some(directory.path().to_owned()),
        connections: None,
    })
    .expect("found");
    let frozen_s = report.noticed().total.as_secs_f64();
    println!("freezes at {freezes_s:.2?}\n{}", explanation.text());
    Played { explanation, frozen_s, freezes_s }
}

fn qlog(path: &Path) -> ObserverFactory {
    let path = path.to_owned();
    let observe = move |now: Timestamp, _: SocketAddr, odcid: &[u8]| {
        let file = BufWriter::new(File::create(&path).expect("created"));
        let unix = ms(UNIX_MS) + now.since(Timestamp::ZERO);
        let log: Box<dyn Observer + Send> = Box::new(QlogObserver::new(file, odcid, now, unix));
        Some(log)
    };
    Arc::new(observe)
}

fn record(outcome: &RunOutcome, report: &qoe::player::Report, duration: Duration) -> Record {
    let served = outcome.live.as_ref().expect("a live stream");
    let asked = outcome.asked[0].since(Timestamp::ZERO).as_millis() as i64;
    let seconds = duration.as_secs_f64();
    let mut record = Record {
        session: schema::Session {
            session: Some(1),
            viewer: Some(VIEWER.to_owned()),
            stream: Some("live/demo".to_owned()),
            protocol: Some("h3".to_owned()),
            format: Some("flv".to_owned()),
            scheme: Some("arq".to_owned()),
            prefix: Some("192.0.2.0/24".to_owned()),
            started_ms: Some(UNIX_MS as i64 + asked),
            duration_s: Some(seconds),
            ..schema::Session::default()
        },
        delivery: schema::Delivery {
            bytes: Some(served.bytes as i64),
            goodput_mbps: Some(served.bytes as f64 * 8e-6 / seconds),
            skips: Some(served.skips.count as i64),
            skipped_ms: Some(served.skips.ms as i64),
            thinned: Some(served.skips.thinned as i64),
        },
        player: schema::Player {
            player_first_frame_ms: report.first_frame.map(|time| time.as_secs_f64() * 1e3),
            player_played_s: Some(report.played.as_secs_f64()),
            player_freezes: Some(report.noticed().count as i64),
            player_freeze_s: Some(report.noticed().total.as_secs_f64()),
            ..schema::Player::default()
        },
        ..Record::default()
    };
    record.autoplex.stream_mbps = Some(2.0);
    outcome.transport.write_to(duration, &mut record);
    record
}

impl Played {
    /// Asserts that the first cause is this one, shown by the qlog, and that a stall with this
    /// cause is near a freeze.
    fn is_shown(&self, cause: Cause) {
        let text = self.explanation.text();
        let first = self.explanation.causes.first().expect("a cause");
        assert_eq!((first.cause, first.certainty), (cause, Certainty::Shown), "{text}");
        assert!(self.frozen_s > 0.0, "no freeze\n{text}");
        assert_eq!(self.explanation.outcome, Outcome::Froze, "{text}");
        let is_near = |stall: &analysis::why::Stall, freeze: f64| {
            stall.cause == Some(cause)
                && stall.at_s < freeze + 1.0
                && stall.at_s + stall.length_s > freeze - 1.0
        };
        let timeline = &self.explanation.timeline;
        let explains = |freeze: &f64| timeline.iter().any(|stall| is_near(stall, *freeze));
        assert!(self.freezes_s.iter().any(explains), "{:?}: {text}", self.freezes_s);
    }
}

#[test]
fn an_outage_is_shown_with_its_time() {
    let mut outage = scenario(1);
    outage.path.down.blackhole = vec!["10s,1500ms".parse().expect("a window")];
    outage.path.up.blackhole = outage.path.down.blackhole.clone();
    let played = played(outage, ms(400));
    played.is_shown(Cause::Outage);
    let longest = &played.explanation.timeline[0];
    assert!((1.3..2.6).contains(&longest.length_s), "{longest:?}");
}

#[test]
fn loss_bursts_are_shown() {
    let mut lossy = scenario(2);
    lossy.path.down.loss = Some("ge:p=0.02,r=0.25,bad=0.9,slot=20ms".parse().expect("a model"));
    lossy.path.down.delay = Some(ms(100));
    let played = played(lossy, ms(150));
    played.is_shown(Cause::Loss);
    let help = &played.explanation.causes[0].help;
    assert!(help.iter().any(|remedy| remedy.contains("deadline")), "{help:?}");
}

#[test]
fn a_path_slower_than_the_stream_is_shown_and_no_buffer_recommended() {
    let mut slow = scenario(3);
    slow.path.down.rate = Some(Rate::from_kbps(1_300));
    slow.path.down.queue = Queue::drop_tail(60_000);
    let played = played(slow, ms(400));
    played.is_shown(Cause::Capacity);
    let first = &played.explanation.causes[0];
    let rate = first.evidence.iter().find(|known| known.name == "delivered").expect("a rate");
    assert!((0.8..1.3).contains(&rate.value), "{rate:?}");
    assert!(first.help.iter().any(|remedy| remedy.contains("rendition")), "{:?}", first.help);
    assert!(!first.help.iter().any(|remedy| remedy.contains("a player buffer")));
}

#[test]
fn a_blocked_publisher_is_shown() {
    let mut blocked = scenario(4);
    let encoder = Encoder { rate: Rate::from_mbps(2), ..Encoder::default() };
    let begin = encoder.interval * BEFORE;
    let source =
        LiveSource::encoded(&encoder, 4, BEFORE + PICTURES).blocked(begin + ms(12_000), ms(2_500));
    let live = Live::encoded(&encoder, 4, BEFORE, PICTURES);
    blocked.traffic = Traffic::Live(Live { source: Arc::new(source), ..live });
    let played = played(blocked, ms(400));
    played.is_shown(Cause::Publisher);
    let stall = &played.explanation.timeline[0];
    assert!((2.2..2.8).contains(&stall.length_s), "{stall:?}");
}

#[test]
fn two_causes_are_ranked_by_their_time() {
    let mut both = scenario(5);
    let encoder = Encoder { rate: Rate::from_mbps(2), ..Encoder::default() };
    let begin = encoder.interval * BEFORE;
    let source =
        LiveSource::encoded(&encoder, 5, BEFORE + PICTURES).blocked(begin + ms(20_000), ms(4_000));
    let live = Live::encoded(&encoder, 5, BEFORE, PICTURES);
    both.traffic = Traffic::Live(Live { source: Arc::new(source), ..live });
    both.path.down.blackhole = vec!["10s,1200ms".parse().expect("a window")];
    both.path.up.blackhole = both.path.down.blackhole.clone();
    let played = played(both, ms(400));
    let causes: Vec<Cause> = played.explanation.causes.iter().map(|found| found.cause).collect();
    assert_eq!(causes[..2], [Cause::Publisher, Cause::Outage], "{causes:?}");
}

#[test]
fn a_good_path_has_no_cause() {
    let played = played(scenario(6), ms(400));
    assert_eq!(played.frozen_s, 0.0);
    let text = played.explanation.text();
    assert_eq!(played.explanation.outcome, Outcome::NoFreeze, "{text}");
    assert!(played.explanation.causes.is_empty(), "{text}");
    assert!(played.explanation.timeline.is_empty(), "{text}");
}

#[test]
fn a_new_address_that_cannot_be_reached_is_a_change_of_the_path() {
    let mut moved = scenario(7);
    moved.rebind_every = Some(ms(9_000));
    // The link is down while the viewer changes its network.
    moved.path.down.blackhole = vec!["9s,900ms".parse().expect("a window")];
    moved.path.up.blackhole = moved.path.down.blackhole.clone();
    let played = played(moved, ms(200));
    let text = played.explanation.text();
    assert!(played.explanation.notes.iter().any(|note| note.contains("address")), "{text}");
    let first = played.explanation.causes.first().expect("a cause");
    assert!(matches!(first.cause, Cause::PathChange | Cause::Outage), "{text}");
}

#[test]
fn a_queue_is_shown() {
    let mut queued = scenario(8);
    // Another download of the household through a bottleneck with a deep queue.
    queued.path.down.rate = Some(Rate::from_mbps(6));
    queued.path.down.queue = Queue::drop_tail(2_000_000);
    queued.congestion = delivery::controller(Algorithm::Bbr);
    queued.rival = Some(lab::Rival {
        congestion: delivery::controller(Algorithm::Cubic),
        scheme: queued.scheme.clone(),
        start_options: queued.start_options,
        capping: None,
        traffic: Traffic::Unbounded,
        begins: ms(8_000),
    });
    queued.limit = Duration::from_secs(32);
    let played = played(queued, ms(200));
    let text = played.explanation.text();
    let causes: Vec<Cause> = played.explanation.causes.iter().map(|found| found.cause).collect();
    assert!(causes.contains(&Cause::Queue) || causes.contains(&Cause::Capacity), "{text}");
    let is_queue = |cause: &Cause| matches!(cause, Cause::Queue | Cause::Capacity);
    assert!(is_queue(&causes[0]), "{text}");
}
