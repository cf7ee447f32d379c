//! One visit under one startup mode, after the preceding visit that makes its cookie.

use core::net::Ipv4Addr;
use core::time::Duration;

use qoe::stats::Sample;
use startup::cookie::{CookieRules, Verdict};
use startup::decision::{Limits, Mode};
use startup::{Carrier, PathState, Prefix};

use super::draw::{Visit, World};
use crate::error::{Context as _, Error, RunError, Subject};
use crate::identity::UNIX_ORIGIN;
use crate::live::PICTURES;
use crate::platform::arm::Arm;
use crate::platform::scenario::scenario;
use crate::platform::session::Session;
use crate::simulation::{RunOutcome, run as simulate};
use crate::start_options::StartOptions;
use crate::traffic::Traffic;

/// Time charged for a picture that did not arrive during the run.
const NEVER_ARRIVED_MS: f64 = 10_000.0;
/// Remaining share of the path's rate where cookies are wrong.
const REMAINING_SHARE: f64 = 0.25;

/// Usual values, which an operator measures over its own viewers: the means over all visits, or
/// values given for all visits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usual {
    /// Size of a first frame in bytes.
    pub window: u64,
    pub rtt: Duration,
}

impl Usual {
    /// Returns the usual values of these visits. First frames have the paper's mean, which is the
    /// default of the key.
    ///
    /// # Errors
    /// The testbed has no scenario for the keys.
    pub(super) fn of(visits: &[Visit], arm: &Arm) -> Result<Self, Error> {
        let mut limits = Limits::default();
        if let Some(first) = visits.first() {
            let named = || Subject::Session { number: first.session.number, scheme: None };
            limits = scenario(&first.session, arm).of(named)?.start_options.limits;
        }
        let mean_ms = Sample::new(visits.iter().map(|visit| visit.session.rtt_ms));
        let rtt = match (arm.value("startup.usual_rtt"), mean_ms) {
            (None, Some(all)) => Duration::from_secs_f64(all.mean() / 1e3),
            _ => limits.usual_rtt,
        };
        Ok(Self { window: limits.usual_window, rtt })
    }

    fn limits(&self, limits: Limits) -> Limits {
        Limits { usual_window: self.window, usual_rtt: self.rtt, ..limits }
    }
}

/// First-frame observations of a viewer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct FirstFrameResult {
    /// Completion of each of the first pictures after the request, without the handshake.
    pub pictures_ms: [f64; PICTURES],
    /// Loss rates until each of the first pictures was acknowledged, over packets with a known
    /// fate. Of a picture that was not acknowledged, over the whole visit.
    pub losses: [f64; PICTURES],
    /// Retransmissions over first transmissions, of the whole visit.
    pub retransmission: f64,
    pub first_frame_bytes: u64,
    /// Whether a valid cookie was present.
    pub has_past: bool,
    pub verdict: Verdict,
    /// Highest delivery rate of the connection, in Mbps.
    pub rate_mbps: f64,
    /// Round-trip time without queues.
    pub rtt_ms: f64,
}

impl FirstFrameResult {
    /// Completion of a picture as the paper counts it, "since the first live-streaming packet is
    /// sent out" (section VI), until the last packet leaves: a round trip less than the viewer's.
    pub(super) fn ffct_ms(&self, picture: usize) -> f64 {
        (self.pictures_ms[picture] - self.rtt_ms).max(0.0)
    }
}

/// Runs a visit.
///
/// # Errors
/// One line: the testbed failed.
pub(super) fn run(
    visit: &Visit,
    mode: Mode,
    world: World,
    usual: &Usual,
    arm: &Arm,
) -> Result<FirstFrameResult, Error> {
    let first = VisitStart { mode, past: None, is_early: false };
    let past = match &visit.before {
        Some(before) if mode.needs_past() || mode == Mode::Rapid => {
            let (outcome, _) = simulated(before, first, usual, arm)?;
            past(&outcome, visit.age_s)
        }
        _ => None,
    };
    let mut session = visit.session.clone();
    if world == World::Fell {
        session.rate_mbps =
            (visit.before.as_ref().unwrap_or(&session).rate_mbps * REMAINING_SHARE).max(0.2);
    }
    let start = VisitStart { past, is_early: visit.is_early, ..first };
    let (outcome, traffic) = simulated(&session, start, usual, arm)?;
    Ok(seen(&session, &outcome, &traffic, past.is_some()))
}

/// Start of a visit's connection.
#[derive(Clone, Copy)]
struct VisitStart {
    mode: Mode,
    past: Option<PathState>,
    is_early: bool,
}

/// Returns the path state that the preceding visit leaves, at this age.
fn past(outcome: &RunOutcome, age_s: u64) -> Option<PathState> {
    let client = Ipv4Addr::LOCALHOST.into();
    let cookie = outcome.learned.map(|cookie| startup::Cookie {
        issued: UNIX_ORIGIN,
        prefix: Prefix::of(client),
        ..cookie
    })?;
    let now = UNIX_ORIGIN + age_s;
    cookie.accept(Carrier::Token, client, now, &CookieRules::default()).ok()
}

fn simulated(
    session: &Session,
    start: VisitStart,
    usual: &Usual,
    arm: &Arm,
) -> Result<(RunOutcome, Traffic), Error> {
    let named = || Subject::Session { number: session.number, scheme: None };
    let mut scenario = scenario(session, arm).of(named)?;
    let VisitStart { mode, past, is_early } = start;
    let limits = usual.limits(scenario.start_options.limits);
    scenario.start_options = StartOptions { mode, past, is_early, limits };
    let outcome = simulate(&scenario).of(named)?;
    if !outcome.intact {
        return Err(RunError::WrongBytes).of(named);
    }
    Ok((outcome, scenario.traffic))
}

fn seen(
    session: &Session,
    outcome: &RunOutcome,
    traffic: &Traffic,
    has_past: bool,
) -> FirstFrameResult {
    let totals = &outcome.recovery.totals;
    let rate = |(part, whole): (u64, u64)| part as f64 / whole.max(1) as f64;
    let mut pictures_ms = [NEVER_ARRIVED_MS; PICTURES];
    let mut losses = [rate((totals.lost, totals.settled())); PICTURES];
    let mut first_frame_bytes = 0;
    if let (Traffic::Live(live), Some(seen)) = (traffic, &outcome.live) {
        for (place, time) in seen.first_pictures(live).take(PICTURES).enumerate() {
            // Includes the request's transit.
            let ms = time.as_secs_f64() * 1e3 + session.rtt_ms / 2.0;
            pictures_ms[place] = ms.min(NEVER_ARRIVED_MS);
        }
        for (loss, known) in losses.iter_mut().zip(&seen.picture_losses) {
            *loss = rate(*known);
        }
        first_frame_bytes = seen.first_frame_bytes.unwrap_or(0);
    }
    FirstFrameResult {
        pictures_ms,
        losses,
        retransmission: rate((totals.retransmissions, totals.first_transmissions)),
        first_frame_bytes,
        has_past,
        verdict: outcome.transport.jump,
        rate_mbps: session.rate_mbps,
        rtt_ms: session.rtt_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::super::draw;
    use super::*;
    use crate::platform::arm::BASELINE;
    use crate::platform::population::Population;
    use crate::platform::session::Links;
    use crate::platform::specification::{Specification, WIRA};

    /// A returning viewer on a path without loss, jitter and bunches: 40 ms, 10 Mbps.
    fn visit() -> Visit {
        let wira = Specification::parse(WIRA).expect("valid");
        let drawn = draw::visits(&Population::new(wira, None), 1, 50);
        let mut visit = drawn.into_iter().find(|visit| visit.before.is_some()).expect("a return");
        visit.age_s = 600;
        for session in visit.before.iter_mut().chain([&mut visit.session]) {
            (session.rtt_ms, session.rate_mbps, session.buffer_ms) = (40.0, 10.0, 200.0);
            (session.jitter_ms, session.loss, session.links) = (0.0, 0.0, Links::default());
        }
        visit
    }

    fn result(visit: &Visit, mode: Mode, world: World, usual_kb: u64) -> FirstFrameResult {
        let usual = Usual { window: usual_kb * 1_000, rtt: Duration::from_millis(40) };
        let arm = Arm::parse(BASELINE).expect("a scheme");
        run(visit, mode, world, &usual, &arm).expect("a run")
    }

    #[test]
    fn a_first_frame_takes_a_round_trip_and_its_bytes_at_the_paths_rate() {
        let visit = visit();
        // The window holds the whole frame, and the pacing rate is above the path's.
        let seen = result(&visit, Mode::Fixed, World::Usual, 250);
        let bytes_ms = seen.first_frame_bytes as f64 * 8.0 / 10_000.0;
        let expected = 40.0 + bytes_ms;
        assert!((6_000..250_000).contains(&seen.first_frame_bytes), "{seen:?}");
        assert!((seen.pictures_ms[0] / expected - 1.0).abs() < 0.15, "{expected} {seen:?}");
        assert!(seen.pictures_ms.is_sorted(), "{seen:?}");
        assert_eq!(seen.ffct_ms(1), seen.pictures_ms[1] - 40.0);
        assert_eq!((seen.losses[0], seen.retransmission, seen.has_past), (0.0, 0.0, false));

        // A window of 10 kB takes further round trips.
        let small = result(&visit, Mode::Fixed, World::Usual, 10);
        assert!(small.pictures_ms[0] > seen.pictures_ms[0] + 40.0, "{small:?}");

        // A quarter of the rate: four times as long on the wire.
        let fell = result(&visit, Mode::Iw10, World::Fell, 250);
        assert_eq!(fell.rate_mbps, 2.5);
        assert!(fell.pictures_ms[0] > 40.0 + 4.0 * bytes_ms * 0.9, "{fell:?}");
    }

    #[test]
    fn cookies_of_the_last_visit_count_until_they_expire() {
        let mut visit = visit();
        let recent = result(&visit, Mode::Wira, World::Usual, 43);
        assert!(recent.has_past && recent.verdict != Verdict::None, "{recent:?}");
        visit.age_s = 3_601;
        let old = result(&visit, Mode::Wira, World::Usual, 43);
        assert!(!old.has_past, "{old:?}");
        visit.before = None;
        assert!(!result(&visit, Mode::Wira, World::Usual, 43).has_past);
    }

    #[test]
    fn losses_and_retransmissions_are_those_of_the_path() {
        let mut visit = visit();
        visit.session.loss = 0.2;
        visit.session.kind = crate::platform::session::LossKind::Independent;
        let seen = result(&visit, Mode::Fixed, World::Usual, 250);
        assert!((0.05..0.4).contains(&seen.losses[3]), "{seen:?}");
        assert!((0.1..0.5).contains(&seen.retransmission), "{seen:?}");
    }
}
