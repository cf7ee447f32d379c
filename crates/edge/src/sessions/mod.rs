//! Viewer sessions: who watches what, how well it goes, and what is kept of it afterwards.
//!
//! A session is one viewer of one stream. The front that serves it tells how the transport does,
//! about once a second; the player reports freezes through the beacon; both end in one
//! [`Record`] when the viewer leaves. Everything here is bounded: live sessions by the limits on
//! viewers, the records by a queue in front of the writer.

mod beacon;
mod totals;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant, SystemTime};

use records::{Record, RecordWriter};
use recovery::{Latencies, OffTime};

use crate::sync::lock;
use crate::viewer::{Protocol, Unit, prefix};

pub use beacon::{Beacon, MAX_BEACON};
pub use totals::{Key, Totals};

/// How long a session that ended waits for what its player still has to say.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// The most that a player is believed to have buffered.
const MAX_SLACK: Duration = Duration::from_secs(60);
/// Sessions that may wait so at the same time.
const MAX_ENDED: usize = 10_000;

/// What a front knows of the transport under a session. Round-trip times and the largest window and
/// flight are the connection's; counts are since the session began.
#[derive(Clone, Debug, Default)]
pub struct Transport {
    /// Smallest round-trip time.
    pub rtt_min: Duration,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Largest congestion window, in bytes.
    pub max_window: u64,
    /// Most bytes in flight.
    pub max_in_flight: u64,
    /// Loss recovery's counters.
    pub totals: recovery::Totals,
    /// Recovery latency of data whose first retransmission was lost.
    pub latencies: Latencies,
    /// Time with nothing to send but replicas.
    pub off_mode: OffTime,
    /// Mean of T_unit: from the first sending of content to its first sending again.
    pub t_unit: Option<Duration>,
    /// Why the recovery scheme sends as many replicas as it does: names and values.
    pub reasons: Vec<(&'static str, f64)>,
    /// The TLS session was resumed.
    pub resumed: bool,
    /// 0-RTT data was accepted.
    pub early_data: bool,
}

/// What is known of a session when it begins.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The stream's name.
    pub stream: String,
    /// HTTP version, or RTMP.
    pub protocol: Protocol,
    /// How the stream is packed: "flv", "hls" or "rtmp".
    pub format: &'static str,
    /// Who watches.
    pub remote: IpAddr,
    /// The player's own name for itself (`viewer=` in the query), for its reports.
    pub viewer: Option<String>,
    /// What divided this viewer into its cohort; absent where no scheme can act.
    pub unit: Option<Unit>,
    /// The cohort's name and the scheme in force; empty where none can act.
    pub cohort: String,
    /// The recovery scheme in force.
    pub scheme: &'static str,
}

#[derive(Debug, Default)]
struct State {
    transport: Transport,
    first_frame: Option<Duration>,
    /// What the player last said, and what it had said before this session.
    player: Option<Beacon>,
    before: Option<Beacon>,
}

impl State {
    /// What the player said of this session.
    fn player(&self) -> Option<Beacon> {
        self.player.clone().map(|player| player.since(self.before.as_ref()))
    }
}

/// A viewer who is here. The session ends, and its record is written, when it is dropped.
#[derive(Debug)]
pub struct Session {
    id: u64,
    opening: Opening,
    began: (Instant, SystemTime),
    bytes: AtomicU64,
    skips: AtomicU64,
    skipped_ms: AtomicU64,
    /// What the player had buffered when it last reported, in milliseconds and one more; 0 if it never
    /// said so. Its connection reads this on another thread.
    slack_ms: AtomicU64,
    state: Mutex<State>,
    sessions: Arc<Sessions>,
}

impl Session {
    /// Unique in the process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// What was known when it began.
    pub fn opening(&self) -> &Opening {
        &self.opening
    }

    /// Why its recovery scheme sends as many replicas as it does: names and values.
    pub fn reasons(&self) -> Vec<(&'static str, f64)> {
        self.state().transport.reasons.clone()
    }

    /// How long it has lasted.
    pub fn age(&self) -> Duration {
        self.began.0.elapsed()
    }

    /// Sets how many bytes of media were handed to the transport, and how much the viewer skipped.
    pub fn on_media(&self, bytes: u64, skips: u64, skipped_ms: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.skips.store(skips, Ordering::Relaxed);
        self.skipped_ms.store(skipped_ms, Ordering::Relaxed);
    }

    /// Adds bytes of media that were handed to the transport.
    pub fn add_media(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What the player has buffered: how late data may arrive without a freeze. `None` if it does not
    /// report that. A player may claim anything; more than 60 s is not believed.
    pub fn slack(&self) -> Option<Duration> {
        let known = self.slack_ms.load(Ordering::Relaxed).checked_sub(1)?;
        Some(Duration::from_millis(known))
    }

    fn on_report(&self, beacon: Beacon) {
        if let Some(ms) = beacon.buffer_ms {
            let known = Duration::from_secs_f64(ms * 1e-3).min(MAX_SLACK).as_millis() as u64;
            self.slack_ms.store(known + 1, Ordering::Relaxed);
        }
        self.state().player = Some(beacon);
    }

    /// The first frame was acknowledged.
    pub fn on_first_frame(&self) {
        let age = self.age();
        self.state().first_frame.get_or_insert(age);
    }

    /// How the transport does.
    pub fn on_transport(&self, transport: Transport) {
        self.state().transport = transport;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// What would be written if it ended now.
    pub fn record(&self) -> Record {
        let state = self.state();
        let State { transport: t, first_frame, .. } = &*state;
        let (seconds, bytes) = (self.age().as_secs_f64(), self.bytes.load(Ordering::Relaxed));
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        let ratio = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let rate = |amount: f64| (seconds > 0.0).then(|| amount / seconds);
        // A front without a transport of ours says nothing about it.
        let known = t.totals.settled() > 0;
        let count = |count: u64| known.then_some(count as i64);
        let began = self.began.1.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut record = Record {
            session: Some(self.id as i64),
            viewer: self.opening.viewer.clone(),
            stream: Some(self.opening.stream.clone()),
            protocol: Some(self.opening.protocol.name().into()),
            format: Some(self.opening.format.into()),
            unit: self.opening.unit.map(|unit| unit.to_string()),
            cohort: Some(self.opening.cohort.clone()).filter(|cohort| !cohort.is_empty()),
            scheme: Some(self.opening.scheme.into()).filter(|_| known),
            prefix: Some(prefix(self.opening.remote)),
            started_ms: Some(began.as_millis() as i64),
            duration_s: Some(seconds),
            bytes: Some(bytes as i64),
            goodput_mbps: rate(bytes as f64 * 8e-6),
            skips: Some(self.skips.load(Ordering::Relaxed) as i64),
            skipped_ms: Some(self.skipped_ms.load(Ordering::Relaxed) as i64),
            resumed: count(t.resumed.into()),
            early_data: count(t.early_data.into()),
            first_frame_ms: first_frame.map(ms),
            rtt_min_ms: known.then(|| ms(t.rtt_min)),
            rtt_ms: known.then(|| ms(t.rtt)),
            max_window: count(t.max_window),
            max_in_flight: count(t.max_in_flight),
            loss_rate: ratio(t.totals.lost, t.totals.settled()),
            packets_settled: count(t.totals.settled()),
            packets_lost: count(t.totals.lost),
            first_transmissions: count(t.totals.first_transmissions),
            retransmissions: count(t.totals.retransmissions),
            repeated_retransmissions: count(t.totals.repeated),
            retransmission_ratio: ratio(t.totals.retransmissions, t.totals.first_transmissions),
            replicas: count(t.totals.replicas),
            redundancy_cost: ratio(t.totals.replicas, t.totals.first_transmissions),
            recovery_mean_ms: t.latencies.mean().map(ms),
            recovery_p95_ms: t.latencies.quantile(0.95).map(ms),
            recovery_max_ms: t.latencies.max().map(ms),
            t_unit_ms: t.t_unit.map(ms),
            recovery_deterioration: ratio(t.totals.finished_late, t.totals.finished),
            off_mode_ms_per_s: rate(ms(t.off_mode.total)).filter(|_| known),
            off_mode_entries_per_s: rate(t.off_mode.entries as f64).filter(|_| known),
            ..Record::default()
        };
        if let Some(player) = state.player() {
            player.write_to(&mut record);
        }
        record
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.sessions.ended(self);
    }
}

/// All sessions of the process.
#[derive(Debug)]
pub struct Sessions {
    next: AtomicU64,
    places: Mutex<Places>,
    /// Sums over all sessions that have ended.
    totals: Mutex<BTreeMap<Key, Totals>>,
    writer: Option<Arc<RecordWriter>>,
    records_dropped: AtomicU64,
    beacons_unmatched: AtomicU64,
}

#[derive(Debug, Default)]
struct Places {
    open: HashMap<u64, Weak<Session>>,
    /// The sessions of players who gave themselves a name.
    by_viewer: HashMap<String, u64>,
    /// Sessions that are over, oldest first: the player's last words may still come.
    ended: VecDeque<Ended>,
}

#[derive(Debug)]
struct Ended {
    at: Instant,
    opening: Opening,
    record: Record,
    player: Option<Beacon>,
    before: Option<Beacon>,
}

impl Sessions {
    /// No sessions yet; their records go to `writer`.
    pub fn new(writer: Option<Arc<RecordWriter>>) -> Self {
        Self {
            next: AtomicU64::new(1),
            places: Mutex::default(),
            totals: Mutex::default(),
            writer,
            records_dropped: AtomicU64::new(0),
            beacons_unmatched: AtomicU64::new(0),
        }
    }

    /// A viewer came.
    pub fn open(self: &Arc<Self>, opening: Opening) -> Arc<Session> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let viewer = opening.viewer.clone();
        let before = viewer.as_ref().and_then(|viewer| self.last_report(viewer));
        let session = Arc::new(Session {
            id,
            opening,
            began: (Instant::now(), SystemTime::now()),
            bytes: AtomicU64::new(0),
            skips: AtomicU64::new(0),
            skipped_ms: AtomicU64::new(0),
            slack_ms: AtomicU64::new(0),
            state: Mutex::new(State { before, ..State::default() }),
            sessions: self.clone(),
        });
        let mut places = self.places();
        places.open.insert(id, Arc::downgrade(&session));
        if let Some(viewer) = viewer {
            places.by_viewer.insert(viewer, id);
        }
        session
    }

    /// The sessions that are open, oldest first.
    pub fn all(&self) -> Vec<Arc<Session>> {
        let mut all: Vec<_> = self.places().open.values().filter_map(Weak::upgrade).collect();
        all.sort_by_key(|session| session.id);
        all
    }

    /// A player reports. What it says replaces what it said before.
    pub fn report(&self, beacon: Beacon) {
        let same = |opening: &Opening| opening.stream == beacon.stream;
        let open = self.of_viewer(&beacon.viewer);
        if let Some(session) = open.filter(|session| same(&session.opening)) {
            session.on_report(beacon);
            return;
        }
        let mut places = self.places();
        let ended = places.ended.iter_mut().rev().find(|ended| {
            ended.opening.viewer.as_ref() == Some(&beacon.viewer) && same(&ended.opening)
        });
        match ended {
            Some(ended) => {
                let key = Key::from(&ended.opening);
                ended.player = Some(beacon.clone());
                let words = beacon.since(ended.before.as_ref());
                lock(&self.totals).entry(key).or_default().on_last_words(&ended.record, &words);
                words.write_to(&mut ended.record);
            }
            None => drop(self.beacons_unmatched.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// The newest open session of this player. To be called, and the session to be dropped,
    /// without the lock: it may be the last to hold it, and its end takes the lock.
    fn of_viewer(&self, viewer: &str) -> Option<Arc<Session>> {
        let places = self.places();
        places.by_viewer.get(viewer).and_then(|id| places.open.get(id)?.upgrade())
    }

    /// What this player last said.
    fn last_report(&self, viewer: &str) -> Option<Beacon> {
        if let Some(session) = self.of_viewer(viewer) {
            return session.state().player.clone();
        }
        let same = |ended: &&Ended| ended.opening.viewer.as_deref() == Some(viewer);
        self.places().ended.iter().rev().find(same)?.player.clone()
    }

    /// Writes the records of sessions that ended a while ago, or at the end of the process of all
    /// that ended, and returns them.
    pub fn flush(&self, all: bool) -> Vec<Record> {
        let mut records = Vec::new();
        let mut places = self.places();
        while places.ended.front().is_some_and(|e| all || e.at.elapsed() >= LAST_WORDS) {
            records.extend(places.ended.pop_front().map(|ended| ended.record));
        }
        drop(places);
        if let Some(writer) = &self.writer {
            for record in &records {
                writer.write(record.clone());
            }
            if all {
                writer.close();
            }
        }
        records
    }

    fn ended(&self, session: &Session) {
        let record = session.record();
        lock(&self.totals).entry(Key::from(&session.opening)).or_default().add(session);
        let mut places = self.places();
        places.open.remove(&session.id);
        if let Some(viewer) = &session.opening.viewer
            && places.by_viewer.get(viewer) == Some(&session.id)
        {
            places.by_viewer.remove(viewer);
        }
        let (at, opening) = (Instant::now(), session.opening.clone());
        let (player, before) = {
            let mut state = session.state();
            (state.player.take(), state.before.take())
        };
        places.ended.push_back(Ended { at, opening, record, player, before });
        if places.ended.len() > MAX_ENDED {
            places.ended.pop_front();
            self.records_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sums over all sessions until now, by cohort, protocol and format; those that are open
    /// are counted, in [`Totals::open`] too.
    pub fn totals(&self) -> BTreeMap<Key, Totals> {
        // In this order each is counted once: one that is held here cannot end meanwhile.
        let open = self.all();
        let mut totals = lock(&self.totals).clone();
        for session in open {
            let all = totals.entry(Key::from(&session.opening)).or_default();
            all.add(&session);
            all.open += 1;
        }
        totals
    }

    /// Records that could not be written, and reports of players that nobody knows.
    pub fn losses(&self) -> (u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let unwritten = self.writer.as_ref().map_or(0, |writer| writer.dropped());
        (read(&self.records_dropped) + unwritten, read(&self.beacons_unmatched))
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        lock(&self.places)
    }
}

#[cfg(test)]
mod tests;
