//! Converts a drawn session and a scheme to a run of the testbed, and its outcome to frames. No
//! other file of `platform` depends on the testbed's types.

use core::time::Duration;

use links::{LinkConfig, PathConfig};
use startup::decision::Mode;
use units::{Rate, Timestamp};

use super::arm::Arm;
use super::session::{Acks, Bunches, EcnFault, LossKind, Session};
use crate::error::{Context as _, Error, Subject, ValueError};
use crate::live::Live;
use crate::setup::{Kind, Maybe, PlayerModel, Setup, Text, mbps, round_trip};
use crate::simulation::{RunOutcome, Scenario};
use crate::traffic::Traffic;

/// Range of the loss rates of the chain fitted to calls, in per cent.
const MIN_CALLS_PERCENT: f64 = 1.0;
const MAX_CALLS_PERCENT: f64 = 19.999;
/// Loss chain below that range: 30 % of the packets 20 ms after a lost one are lost, as in calls at
/// 1 %.
const RARE_LOSS: LossKind = LossKind::Gilbert { bad_ms: 39.0, share: 0.5 };
/// Time step of Gilbert chains.
const SLOT_MS: f64 = 5.0;

/// A frame received by the viewer.
#[derive(Clone, Copy, Debug)]
pub(super) struct ViewedFrame {
    /// When it was complete and in order.
    pub at: Timestamp,
    /// When it was published, or the viewer's arrival if later.
    pub due: Timestamp,
    pub media_ms: u32,
    pub is_key: bool,
    pub delay: Duration,
}

/// Loss model of the path; `None` without loss.
fn loss_model(session: &Session) -> Option<String> {
    let percent = session.loss * 100.0;
    if session.loss <= 0.0 {
        return None;
    }
    Some(match &session.kind {
        LossKind::Calls | LossKind::Slots if percent < MIN_CALLS_PERCENT => {
            gilbert(session.loss, &RARE_LOSS)
        }
        LossKind::Calls => format!("calls:rate={}%", percent.min(MAX_CALLS_PERCENT)),
        LossKind::Slots => format!("calls:rate={}%,reading=slots", percent.min(MAX_CALLS_PERCENT)),
        LossKind::Independent => format!("{percent}%"),
        chain @ LossKind::Gilbert { .. } => gilbert(session.loss, chain),
        LossKind::Outages { length_ms } => {
            format!("outages:rate={percent}%,length={}us", (length_ms * 1e3).round())
        }
    })
}

/// Gilbert chain with this mean length of bad states and the share lost in them, raised if the loss
/// rate needs it.
fn gilbert(loss: f64, chain: &LossKind) -> String {
    let LossKind::Gilbert { bad_ms, share } = chain else { return format!("{}%", loss * 100.0) };
    let share = share.max(loss * 1.25).min(1.0);
    let leaves = (SLOT_MS / bad_ms).min(1.0);
    let part = loss / share;
    let enters = (leaves * part / (1.0 - part)).min(1.0);
    format!("ge:p={enters},r={leaves},bad={share},slot={SLOT_MS}ms")
}

/// Formats a time or a size for a link model.
fn micros(ms: f64) -> String {
    format!("{}us", (ms * 1e3).round())
}

fn bunches(bunches: Option<&Bunches>) -> String {
    bunches.map_or_else(String::new, |Bunches { every_ms, awake_ms }| {
        format!("{},awake={}", micros(*every_ms), micros(*awake_ms))
    })
}

/// Parses a value of the testbed; absent if empty.
fn parsed<T: Text>(key: &'static str, text: &str) -> Result<Maybe<T>, ValueError> {
    let invalid = || ValueError::Drawn { key, value: text.to_owned(), expected: T::expected() };
    Maybe::parse(text).ok_or_else(invalid)
}

/// Sets the session's link models.
fn set_links(setup: &mut Setup, session: &Session) -> Result<(), ValueError> {
    let links = &session.links;
    let step = |(at_s, factor): &(f64, f64)| {
        format!("{}:{}", micros(at_s * 1e3), micros(session.rtt_ms * factor))
    };
    let policer = links.policer.as_ref().map(|policer| {
        let (mbps, burst) = (session.bitrate_mbps * policer.times, policer.burst_kb * 1e3);
        format!("{mbps:.3}mbps,burst={}B", burst.round())
    });
    let ecn = links.ecn.as_ref().map(|fault| match fault {
        EcnFault::Bleach => "bleach",
        EcnFault::Drop => "drop",
    });
    let acks = match links.acks {
        Acks::EachSecond => String::new(),
        Acks::Chromium => "chromium".to_owned(),
        Acks::Rare { each, within_ms } => format!("each={each},within={}", micros(within_ms)),
    };
    let steps = links.rtt_steps.iter().map(step).collect::<Vec<_>>().join(",");
    let path = &mut setup.lab.path;
    path.bunches = parsed("bunches", &bunches(links.bunches.as_ref()))?;
    path.bunches_up = parsed("bunches_up", &bunches(links.bunches_up.as_ref()))?;
    path.rtt_steps = parsed("rtt_steps", &steps)?;
    path.ecn = parsed("ecn", ecn.unwrap_or_default())?;
    path.policer = parsed("policer", &policer.unwrap_or_default())?;
    setup.lab.player.acks = parsed("acks", &acks)?;
    Ok(())
}

/// Returns the set-up of the run: a server's defaults where neither the session nor the arm has a
/// value.
fn setup(session: &Session, arm: &Arm) -> Result<Setup, Error> {
    let mut setup = Setup::default();
    // Viewers are new to the server, and their first connections start as the papers' do.
    setup.server.startup.mode = Mode::Iw10;
    let path = &mut setup.lab.path;
    path.rate = mbps(session.rate_mbps);
    path.rtt = round_trip(session.rtt_ms);
    match loss_model(session) {
        Some(model) => path.loss_model = model,
        None => path.loss = 0.0,
    }
    // At least four packets; below, the queue itself causes the loss.
    path.queue.0 = ((session.rate_mbps * 125.0 * session.buffer_ms) as u64).max(6_000);
    if session.jitter_ms > 0.0 {
        path.jitter = parsed("jitter", &micros(session.jitter_ms))?;
    }
    let (source, encoder) = (&mut setup.lab.source, &session.encoder);
    source.kind = Kind::Live;
    source.rate = mbps(session.bitrate_mbps);
    source.fps = session.fps;
    source.group = Duration::from_secs_f64(encoder.group_s);
    source.key_ratio = encoder.key_ratio;
    source.size_variation = encoder.size_variation;
    source.size_correlation = encoder.size_correlation;
    source.b_frames = encoder.b_frames;
    // Sound leaves room for pictures in the thinnest stream.
    source.audio =
        Rate::from_kbps(encoder.audio_kbps.min(session.bitrate_mbps * 300.0).round() as u64);
    source.cached = Duration::from_secs_f64(session.joined_s);
    source.duration = Duration::from_secs_f64(session.stay_s);
    setup.lab.player.model = PlayerModel(qoe::Policy::PRESETS[session.player].1);
    set_links(&mut setup, session)?;
    arm.apply(&mut setup)?;
    Ok(setup)
}

/// Returns the run of this session under this scheme.
///
/// # Errors
/// One line that names the key with the invalid value.
pub(super) fn scenario(session: &Session, arm: &Arm) -> Result<Scenario, Error> {
    let setup = setup(session, arm)?;
    let scenario = setup.scenario(session.seed);
    let scenario = scenario.of(|| Subject::Scheme(arm.name.clone()))?;
    // The return path has no variation.
    let up = LinkConfig { jitter: None, ..scenario.path.up.clone() };
    let path = PathConfig { up, ..scenario.path.clone() };
    Ok(Scenario { path, log_events: false, ..scenario })
}

/// Returns the same run, ending when the viewer leaves.
pub(super) fn until(scenario: &Scenario, left: Duration) -> Scenario {
    Scenario { limit: left, ..scenario.clone() }
}

fn live(scenario: &Scenario) -> Option<&Live> {
    match &scenario.traffic {
        Traffic::Live(live) => Some(live),
        _ => None,
    }
}

/// Counts frames published between the viewer's arrival and `until`.
pub(super) fn published(scenario: &Scenario, until: Duration) -> u64 {
    publications(scenario).partition_point(|at| *at <= Timestamp::ZERO + until) as u64
}

/// Returns the publication times of frames from the viewer's arrival on, ascending.
pub(super) fn publications(scenario: &Scenario) -> Vec<Timestamp> {
    let Some(live) = live(scenario) else { return Vec::new() };
    let counted = (0..live.source.len()).filter(|n| live.is_measured(*n, Timestamp::ZERO));
    let mut times: Vec<Timestamp> = counted.map(|n| live.published(n)).collect();
    times.sort_unstable();
    times
}

/// Returns the received frames in order, and whether the delay of each counts. Frames cached before
/// the viewer's arrival do not count.
pub(super) fn frames(scenario: &Scenario, outcome: &RunOutcome) -> Vec<(ViewedFrame, bool)> {
    let (Some(live), Some(seen)) = (live(scenario), &outcome.live) else { return Vec::new() };
    let frame = |arrival: &crate::live::FrameArrival| ViewedFrame {
        at: arrival.at,
        due: live.published(arrival.frame),
        media_ms: arrival.media_ms,
        is_key: arrival.is_key,
        delay: arrival.delay,
    };
    let counts =
        |arrival: &crate::live::FrameArrival| live.is_measured(arrival.frame, Timestamp::ZERO);
    seen.arrivals.iter().map(|arrival| (frame(arrival), counts(arrival))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::arm::COMPARED;
    use crate::platform::links::tests::without_links;
    use crate::platform::population::Population;
    use crate::platform::session::{Links, Policer};
    use crate::platform::specification::{FLEET, Specification};

    fn sessions(count: u32) -> Vec<Session> {
        Population::new(Specification::parse(FLEET).expect("valid"), None).sessions(9, count)
    }

    #[test]
    fn every_scheme_meets_the_same_path_with_the_same_draws() {
        let arms: Vec<Arm> =
            COMPARED.split(',').map(|name| Arm::parse(name).expect("known")).collect();
        for session in sessions(12) {
            let of = |arm: &Arm| {
                let scenario = scenario(&session, arm).expect("a run");
                (scenario.seed, format!("{:?}", scenario.path), format!("{:?}", scenario.traffic))
            };
            let first = of(&arms[0]);
            assert!(arms.iter().all(|arm| of(arm) == first), "session {}", session.number);
        }
    }

    #[test]
    fn without_shares_of_links_each_session_runs_with_the_same_set_up() {
        let arm = Arm::parse("deadline").expect("known");
        let text = |text: &str| {
            let population = Population::new(Specification::parse(text).expect("valid"), None);
            let of = |session: &Session| format!("{:?}", setup(session, &arm).expect("valid"));
            population.sessions(3, 300).iter().map(of).collect::<Vec<_>>()
        };
        let [plain, zero] = without_links();
        assert_eq!(text(&plain), text(&zero));
        assert_ne!(text(&plain), text(FLEET));
    }

    #[test]
    fn the_testbed_gets_the_link_of_its_session() {
        let links = Links {
            bunches: Some(Bunches { every_ms: 102.4, awake_ms: 30.0 }),
            bunches_up: Some(Bunches { every_ms: 10.0, awake_ms: 0.0 }),
            acks: Acks::Rare { each: 32, within_ms: 250.0 },
            rtt_steps: vec![(8.25, 2.0), (20.0, 0.5)],
            ecn: Some(EcnFault::Drop),
            policer: Some(Policer { times: 1.5, burst_kb: 20.0 }),
        };
        let base = sessions(1).remove(0);
        let session = Session { rtt_ms: 60.0, bitrate_mbps: 2.0, links, ..base.clone() };
        let arm = Arm::parse("arq").expect("known");
        let run = scenario(&session, &arm).expect("a run");
        let (down, up) = (&run.path.down, &run.path.up);
        assert_eq!(down.bunches, Some("102400us,awake=30ms".parse().expect("bunches")));
        assert_eq!(up.bunches, Some("10ms".parse().expect("bunches")));
        let steps = Some("8250ms:120ms,20s:30ms".parse().expect("steps"));
        assert_eq!([&down.rtt_steps, &up.rtt_steps], [&steps, &steps]);
        assert_eq!(down.ecn, Some("drop".parse().expect("a policy")));
        assert_eq!(down.policer, Some("3mbps,burst=20kB".parse().expect("a policer")));
        assert_eq!((&up.ecn, &up.policer), (&None, &None));
        assert_eq!(run.acks, Some("each=32,within=250ms".parse().expect("a rule")));
        let links = Links { acks: Acks::Chromium, ecn: Some(EcnFault::Bleach), ..Links::default() };
        let run = scenario(&Session { links, ..base }, &arm).expect("a run");
        assert_eq!(run.acks, Some(links::RareAcks::CHROMIUM));
        assert_eq!(run.path.down.ecn, Some("bleach".parse().expect("a policy")));
    }

    #[test]
    fn every_link_of_the_fleet_makes_a_run() {
        let arm = Arm::parse("arq").expect("known");
        for session in sessions(3_000) {
            if let Err(line) = scenario(&session, &arm) {
                panic!("session {}: {line}", session.number);
            }
        }
    }

    #[test]
    fn a_path_loses_what_its_session_says() {
        let base = sessions(1).remove(0);
        for (loss, kind) in [
            (0.004, LossKind::Calls),
            (0.05, LossKind::Slots),
            (0.03, LossKind::Independent),
            (0.04, LossKind::Gilbert { bad_ms: 53.0, share: 0.3 }),
            (0.3, LossKind::Gilbert { bad_ms: 53.0, share: 0.2 }),
            (0.02, LossKind::Outages { length_ms: 200.0 }),
        ] {
            // Slow enough for packets to cover many slots of the model.
            let session = Session { loss, kind, ..base.clone() };
            let model = loss_model(&session).expect("lossy");
            let config =
                LinkConfig { loss: Some(model.parse().expect(&model)), ..LinkConfig::default() };
            let mut link = links::Link::new(&config, 1, "down");
            let n = 400_000u64;
            for packet in 0..n {
                let now = Timestamp::ZERO + Duration::from_millis(5) * packet as u32;
                let payload = links::Packet { size: 100, ecn: units::Ecn::NotEct, payload: () };
                link.send(now, payload);
                while link.poll(now).is_some() {}
            }
            let lost = link.counters().lost.packets as f64 / n as f64;
            assert!((lost / loss - 1.0).abs() < 0.15, "{model}: {lost}");
        }
        assert_eq!(loss_model(&Session { loss: 0.0, ..base }), None);
    }
}
