//! One session under one scheme: its record in the server's schema, and the row of numbers behind
//! the tables.

use core::net::Ipv4Addr;
use core::time::Duration;

use qoe::Policy;
use records::{Record, Unit, prefix, schema};
use recovery::BurstCounts;
use serde::{Deserialize, Serialize};
use units::Rate;

use super::arm::Arm;
use super::scenario::{frames, publications, published, scenario, until};
use super::session::{ACCESS, Session};
use super::watching::{Watched, counted_until, is_starved, leaves, watch};
use crate::error::{Context as _, Error, RunError, Subject};
use crate::live::LiveOutcome;
use crate::simulation::{Held, Rival, RunOutcome, Scenario, run as simulate};

/// Largest share of the bottleneck rate that a stream takes, as in the built-in population.
pub(super) const MAX_STREAM_SHARE: f64 = 0.9;

/// End of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SessionEnd {
    /// The viewer stayed for the planned time.
    Stayed,
    /// The viewer left because of freezes or a long wait.
    Left,
    /// The client gave up, or sent data was still missing after half a minute.
    Failed,
}

/// Results of a session under a scheme, besides its record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SessionRow {
    pub end: SessionEnd,
    pub watched: Watched,
    /// Replicas.
    pub replicas: u64,
    /// Bytes of replicas, and of first transmissions.
    pub replica_bytes: u64,
    pub first_bytes: u64,
    /// Recovered lost data, and the part of it that needed a second round.
    pub finished: u64,
    pub finished_late: u64,
    /// Recovery latency of data with a second round: mean and maximum, in milliseconds.
    pub recovery_ms: Option<(f64, f64)>,
    /// Highest round of retransmission.
    pub rounds_max: u32,
    pub off_mode_ms_per_s: f64,
    pub off_mode_entries_per_s: f64,
    pub srtt_ms: f64,
    pub rtt_min_ms: f64,
    pub goodput_mbps: f64,
    /// Loss rate of packets with a known fate.
    pub loss_rate: Option<f64>,
    /// Bursts of consecutive losses by size.
    pub bursts: BurstCounts,
}

impl SessionRow {
    /// Returns the mean and maximum recovery latency of a session with lost data, counting 0 if all
    /// of it arrived in the first round. Only this reading explains the 26.8 ms of AutoRec's table
    /// I, less than any round-trip time, and its 123.2 ms against the 231.2 ms of figure 21.
    pub(super) fn recovery_with_zeros(&self) -> Option<(f64, f64)> {
        (self.finished > 0).then(|| self.recovery_ms.unwrap_or((0.0, 0.0)))
    }
}

/// Address of a viewer. Each viewer has its own network, which forms an origin-destination pair
/// with the server.
fn address(session: &Session) -> Ipv4Addr {
    let [_, a, b, c] = session.viewer.number.to_be_bytes();
    Ipv4Addr::new(1 + a % 223, b, c, 1)
}

/// Runs a session.
///
/// # Errors
/// One line: a value is invalid, wrong bytes arrived, or the testbed failed.
pub(super) fn run(session: &Session, arm: &Arm) -> Result<(SessionRow, Record), Error> {
    let (row, capped) = run_held(session, arm, None)?;
    Ok((row, capped.record))
}

/// Results of a session of a user group.
#[derive(Clone, Debug)]
pub(super) struct CappedSession {
    pub record: Record,
    /// Whether the delivered rate was below the stream's for 10 s ([`is_starved`]).
    pub is_starved: bool,
}

/// Runs a session under the cap of its user group.
pub(super) fn run_held(
    session: &Session,
    arm: &Arm,
    capping: Option<Held>,
) -> Result<(SessionRow, CappedSession), Error> {
    let named = || Subject::Session { number: session.number, scheme: Some(arm.name.clone()) };
    let scenario = scenario(session, arm).of(named)?;
    let scenario = Scenario { capping, ..scenario };
    let policy = Policy::PRESETS[session.player].1;
    let stay = Duration::from_secs_f64(session.stay_s);
    let patience = Duration::from_secs_f64(session.patience_s);
    let mut outcome = simulate(&scenario).of(named)?;
    let left = leaves(policy, &frames(&scenario, &outcome), stay, patience);
    let has_failed = !outcome.completed;
    if let Some(left) = left {
        // The server's counters end with the session.
        outcome = simulate(&until(&scenario, left)).of(named)?;
    }
    if !outcome.intact {
        return Err(RunError::WrongBytes).of(named);
    }
    let (end, time) = match left {
        Some(left) => (SessionEnd::Left, left),
        None if has_failed => (SessionEnd::Failed, stay),
        None => (SessionEnd::Stayed, stay),
    };
    let is_early = end == SessionEnd::Left;
    let counted = published(&scenario, counted_until(time, is_early));
    let frames = frames(&scenario, &outcome);
    let watched = watch(policy, &frames, counted, time, is_early);
    let is_starved = is_starved(&frames, &publications(&scenario), time);
    let record = record(session, arm, (time, watched), &outcome);
    Ok((row(end, time, watched, &outcome), CappedSession { record, is_starved }))
}

/// Runs two sessions concurrently on the first one's bottleneck, which has room for both streams.
/// Both stay as long as the first one plans to, whatever the playback, because they affect each
/// other.
pub(super) fn run_together(
    sessions: [&Session; 2],
    arm: &Arm,
    [first_held, second_held]: [Option<Held>; 2],
) -> Result<[CappedSession; 2], Error> {
    let [first, second] = sessions;
    let numbers = [first.number, second.number];
    let named = || Subject::Sessions { numbers, scheme: arm.name.clone() };
    let needed = (first.bitrate_mbps + second.bitrate_mbps) / MAX_STREAM_SHARE;
    let first = Session { rate_mbps: first.rate_mbps.max(needed), ..first.clone() };
    let second = Session {
        number: second.number,
        viewer: second.viewer.clone(),
        bitrate_mbps: second.bitrate_mbps,
        fps: second.fps,
        encoder: second.encoder.clone(),
        joined_s: second.joined_s,
        player: second.player,
        seed: second.seed,
        ..first.clone()
    };
    let of_second = scenario(&second, arm).of(named)?;
    let rival = Rival {
        congestion: of_second.congestion.clone(),
        scheme: of_second.scheme.clone(),
        start_options: of_second.start_options,
        capping: second_held,
        traffic: of_second.traffic.clone(),
        begins: Duration::ZERO,
    };
    let of_first = scenario(&first, arm).of(named)?;
    let of_first = Scenario { capping: first_held, rival: Some(rival), ..of_first };
    let mut outcome = simulate(&of_first).of(named)?;
    let rivals = outcome.rival.take().ok_or(RunError::NoRival).of(named)?;
    let stay = Duration::from_secs_f64(first.stay_s);
    let both = [(&first, &of_first, &outcome), (&second, &of_second, &*rivals)].map(
        |(session, scenario, outcome)| {
            let policy = Policy::PRESETS[session.player].1;
            let counted = published(scenario, stay);
            let frames = frames(scenario, outcome);
            let watched = watch(policy, &frames, counted, stay, false);
            CappedSession {
                is_starved: is_starved(&frames, &publications(scenario), stay),
                record: record(session, arm, (stay, watched), outcome),
            }
        },
    );
    if !(outcome.intact && rivals.intact) {
        return Err(RunError::WrongBytes).of(named);
    }
    Ok(both)
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn row(end: SessionEnd, time: Duration, watched: Watched, outcome: &RunOutcome) -> SessionRow {
    let recovered = &outcome.recovery;
    let totals = &recovered.totals;
    let per_second = |amount: f64| amount / recovered.time.as_secs_f64().max(1e-3);
    let (mean, max) = (recovered.latencies.mean(), recovered.latencies.max());
    SessionRow {
        end,
        watched,
        replicas: totals.replicas,
        replica_bytes: totals.replica_bytes,
        first_bytes: totals.first_bytes,
        finished: totals.finished,
        finished_late: totals.finished_late,
        recovery_ms: mean.zip(max).map(|(mean, max)| (ms(mean), ms(max))),
        rounds_max: totals.rounds_max,
        off_mode_ms_per_s: per_second(ms(recovered.off_mode.total)),
        off_mode_entries_per_s: per_second(recovered.off_mode.entries as f64),
        srtt_ms: ms(outcome.smoothed_rtt),
        rtt_min_ms: ms(outcome.transport.rtt_min),
        goodput_mbps: outcome.received as f64 * 8e-6 / time.as_secs_f64().max(1e-3),
        loss_rate: ratio(totals.lost, totals.settled()),
        bursts: recovered.bursts.sizes,
    }
}

/// Builds the session's record as the server would write it.
fn record(
    session: &Session,
    arm: &Arm,
    (time, watched): (Duration, Watched),
    outcome: &RunOutcome,
) -> Record {
    let nothing = LiveOutcome::default();
    let served = outcome.live.as_ref().unwrap_or(&nothing);
    let seconds = time.as_secs_f64();
    let first_frame = served.first_frame_at.zip(outcome.asked.first().copied());
    let mut record = Record {
        session: schema::Session {
            session: Some(i64::from(session.number) + 1),
            viewer: Some(format!("{:08x}", session.viewer.number)),
            stream: Some(format!("live/{}", session.bitrate_mbps)),
            protocol: Some("h3".to_owned()),
            format: Some("flv".to_owned()),
            unit: Some(Unit(session.viewer.unit).to_string()),
            cohort: Some(arm.name.clone()),
            scheme: Some(arm.scheme().to_owned()),
            prefix: Some(prefix(address(session).into())),
            group: Some(session.viewer.group_name()),
            access: Some(ACCESS[session.access].to_owned()),
            started_ms: Some(session.started_ms),
            duration_s: Some(seconds),
        },
        delivery: schema::Delivery {
            bytes: Some(served.bytes as i64),
            goodput_mbps: (seconds > 0.0).then(|| served.bytes as f64 * 8e-6 / seconds),
            skips: Some(served.skips.count as i64),
            skipped_ms: Some(served.skips.ms as i64),
            thinned: Some(served.skips.thinned as i64),
        },
        player: schema::Player {
            player_first_frame_ms: watched.first_frame_ms,
            player_played_s: Some(watched.played_s),
            player_freezes: Some(watched.freezes as i64),
            player_freeze_s: Some(watched.frozen_s),
            player_frames: Some(watched.frames as i64),
            player_late_frames: Some(watched.late[2] as i64),
            // The player is the testbed's own.
            report_clamped: None,
        },
        ..Record::default()
    };
    record.startup.first_frame_ms = first_frame.map(|(at, asked)| ms(at.since(asked)));
    record.startup.first_frame_bytes = served.first_frame_bytes.map(|bytes| bytes as i64);
    record.autoplex.stream_mbps = Some(session.bitrate_mbps);
    record.autoplex.cap_mbps = outcome.cap.map(Rate::as_mbps_f64);
    if let Some(started) = &outcome.started {
        started.write_to(&mut record);
    }
    outcome.transport.write_to(time, &mut record);
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::population::Population;
    use crate::platform::session::LossKind;
    use crate::platform::specification::{FLEET, Specification};
    use records::Column;

    /// Columns that an HTTP/3 record has only if the connection starts with a larger window than
    /// the controller's own, or is capped.
    const ABSENT_COLUMNS: [Column; 7] = [
        Column::start_cookie,
        Column::start_window,
        Column::start_rate_mbps,
        Column::jump,
        Column::autoplex,
        Column::cap_mbps,
        // The player is the testbed's own.
        Column::report_clamped,
    ];

    /// A session of the built-in population, for 30 s on a path with enough loss to fill every
    /// column.
    fn session() -> Session {
        let population = Population::new(Specification::parse(FLEET).expect("valid"), None);
        let first = population.sessions(4, 1).remove(0);
        let (rate_mbps, bitrate_mbps, patience_s) = (8.0, 1.0, 60.0);
        let lossy = Session { loss: 0.1, kind: LossKind::Independent, stay_s: 30.0, ..first };
        Session { rtt_ms: 40.0, buffer_ms: 200.0, rate_mbps, bitrate_mbps, patience_s, ..lossy }
    }

    #[test]
    fn a_row_has_every_column_that_the_server_writes() {
        let arm = Arm::parse("spare").expect("known");
        let (_, record) = run(&session(), &arm).expect("a run");
        let row = record.object();
        let mut absent = Column::ALL.to_vec();
        absent.retain(|column| row[column.name()].is_null());
        assert_eq!(absent, ABSENT_COLUMNS, "of {} columns", Column::ALL.len());
    }

    #[test]
    fn the_first_frame_is_measured_where_the_server_measures_it() {
        let session = session();
        let (row, record) = run(&session, &Arm::parse("arq").expect("known")).expect("a run");
        let server = record.startup.first_frame_ms.expect("acknowledged");
        let player = row.watched.first_frame_ms.expect("a picture");
        // From the request to the acknowledgement: at least a round trip. The player's time
        // includes the handshake.
        assert!(server >= session.rtt_ms && server < player + 2_000.0, "{server} {player}");
        let bytes = record.startup.first_frame_bytes.expect("a frame");
        assert!(bytes > 1_000 && bytes < record.delivery.bytes.expect("media"), "{bytes}");
    }
}
