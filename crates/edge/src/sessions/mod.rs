//! Viewer sessions and their records.
//!
//! A session is one viewer of one stream. Its front updates transport statistics about once per
//! second, and its player reports freezes by beacon. Both form one [`Record`] when the session
//! ends. All state is bounded: sessions by the limits on viewers, records by the writer's queue.

mod autoplex;
mod beacon;
mod buffer_report;
mod opening;
mod player;
mod record;
mod rows;
mod stay;
mod totals;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant, SystemTime};

use delivery::{Buffered, Started};
use records::{Excess, Record, RecordWriter};
use relay::ViewerProgress;

use crate::limits::Permit;
use crate::passes::ViewerId;
use crate::sync::lock;

use buffer_report::BufferReport;
use player::{ExcessCounts, PlayerReports};
use rows::RecordAllowances;

pub use autoplex::AutoPlexColumns;
pub use beacon::{Beacon, MAX_BEACON};
pub use delivery::TransportStats;
pub use opening::Opening;
pub use stay::Stay;
pub use totals::{Key, Totals};

/// Time for which an ended session waits for a last report of its player.
const LAST_REPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum wait for the disk at process exit.
const FINAL_WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of ended sessions that wait for a last report.
const MAX_ENDED: usize = 10_000;

#[derive(Debug, Default)]
struct SessionState {
    transport: TransportStats,
    first_frame: Option<Duration>,
    started: Option<Started>,
    autoplex: AutoPlexColumns,
    player: PlayerReports,
}

/// An open session. Dropping it ends it and writes its record.
#[derive(Debug)]
pub struct Session {
    id: u64,
    opening: Opening,
    began: (Instant, SystemTime),
    bytes: AtomicU64,
    skips: AtomicU64,
    skipped_ms: AtomicU64,
    thinned: AtomicU64,
    /// 0 before the first frame.
    first_frame_bytes: AtomicU64,
    buffer: BufferReport,
    stay: Arc<Stay>,
    state: Mutex<SessionState>,
    sessions: Arc<Sessions>,
    permits: Vec<Permit>,
}

impl Session {
    /// Returns the number of the session, unique in the process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the properties known at its start.
    pub fn opening(&self) -> &Opening {
        &self.opening
    }

    /// Marks the session's permits as active, after a request of the viewer.
    pub(crate) fn touch(&self) {
        self.permits.iter().for_each(Permit::touch);
    }

    /// Returns the permitted duration.
    pub fn stay(&self) -> &Stay {
        &self.stay
    }

    /// Returns the inputs of the recovery scheme's last decision, as names and values.
    pub fn reasons(&self) -> Vec<(&'static str, f64)> {
        self.state().transport.reasons.clone()
    }

    /// Returns the time since its start.
    pub fn age(&self) -> Duration {
        self.began.0.elapsed()
    }

    /// Sets the viewer's progress in the stream.
    pub fn on_media(&self, progress: &ViewerProgress) {
        self.bytes.store(progress.bytes, Ordering::Relaxed);
        self.skips.store(progress.skips, Ordering::Relaxed);
        self.skipped_ms.store(progress.skipped_ms, Ordering::Relaxed);
        self.thinned.store(progress.thinned, Ordering::Relaxed);
    }

    /// Adds media bytes handed to the transport.
    pub fn add_media(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the media bytes handed to the transport.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the player's last reported buffer level, clamped to 60 s; `None` without a report in
    /// the last 30 s.
    pub fn buffered(&self) -> Option<Buffered> {
        self.buffer.get(self.age())
    }

    /// Adds a player report. Returns the exceeded bounds.
    fn on_report(&self, beacon: Beacon) -> Vec<Excess> {
        if let Some(ms) = beacon.buffer_ms {
            self.buffer.set(self.age(), Duration::from_secs_f64(ms * 1e-3));
        }
        let age = self.age();
        self.state().player.on_report(beacon, age)
    }

    /// Sets the stream bytes up to the end of the first frame, once the transport has them.
    pub fn on_first_frame_bytes(&self, bytes: u64) {
        self.first_frame_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Records the acknowledgement of the first frame.
    pub fn on_first_frame(&self) {
        let age = self.age();
        self.state().first_frame.get_or_insert(age);
    }

    /// Records how the connection started, if this is its first session.
    pub fn on_started(&self, started: Started) {
        self.state().started = Some(started);
    }

    /// Updates the AutoPlex columns.
    pub fn on_autoplex(&self, update: impl FnOnce(&mut AutoPlexColumns)) {
        update(&mut self.state().autoplex);
    }

    /// Updates the transport statistics.
    pub fn on_transport(&self, transport: TransportStats) {
        self.state().transport = transport;
    }

    fn state(&self) -> MutexGuard<'_, SessionState> {
        lock(&self.state)
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
    table: Mutex<SessionTable>,
    /// Totals of ended sessions.
    totals: Mutex<BTreeMap<Key, Totals>>,
    writer: Option<Arc<RecordWriter>>,
    beacons_unmatched: AtomicU64,
    /// Sessions without media, and therefore without a record.
    without_media: AtomicU64,
    rows: RecordAllowances,
    excess: ExcessCounts,
}

#[derive(Debug, Default)]
struct SessionTable {
    open: HashMap<u64, Weak<Session>>,
    /// Open and recently ended sessions of each viewer, oldest first.
    by_viewer: HashMap<ViewerId, Vec<u64>>,
    /// Ended sessions that wait for a last report.
    ended: HashMap<u64, EndedSession>,
    /// Ended sessions, in order.
    order: VecDeque<u64>,
}

impl SessionTable {
    /// Returns the first result of `pick` over the viewer's sessions, newest first.
    fn newest<T>(&self, viewer: ViewerId, pick: impl Fn(&Self, u64) -> Option<T>) -> Option<T> {
        self.by_viewer.get(&viewer)?.iter().rev().find_map(|&id| pick(self, id))
    }

    /// Returns an open session. Keep it until the lock is released: dropping it takes the lock.
    fn open(&self, id: u64) -> Option<Arc<Session>> {
        self.open.get(&id)?.upgrade()
    }

    fn forget(&mut self, id: u64, viewer: ViewerId) {
        if let Some(sessions) = self.by_viewer.get_mut(&viewer) {
            sessions.retain(|&other| other != id);
            if sessions.is_empty() {
                self.by_viewer.remove(&viewer);
            }
        }
    }

    /// Passes the record of the first ended session to `take`, if `is_due`. If `take` accepts it,
    /// removes the session and returns its record.
    fn take_ended(
        &mut self,
        is_due: impl FnOnce(&EndedSession) -> bool,
        take: impl FnOnce(&Record) -> bool,
    ) -> Option<Record> {
        let id = *self.order.front()?;
        let ended = self.ended.get(&id)?;
        if !is_due(ended) || !take(&ended.record) {
            return None;
        }
        self.order.pop_front();
        let ended = self.ended.remove(&id)?;
        self.forget(id, ended.opening.viewer);
        Some(ended.record)
    }
}

#[derive(Debug)]
struct EndedSession {
    at: Instant,
    opening: Opening,
    record: Record,
    player: PlayerReports,
}

impl Sessions {
    /// Creates an empty table. `writer` gets the records.
    pub fn new(writer: Option<Arc<RecordWriter>>) -> Self {
        Self {
            next: AtomicU64::new(1),
            table: Mutex::default(),
            totals: Mutex::default(),
            writer,
            beacons_unmatched: AtomicU64::new(0),
            without_media: AtomicU64::new(0),
            rows: RecordAllowances::default(),
            excess: ExcessCounts::default(),
        }
    }

    /// Starts a session, which keeps `permits` until it ends.
    pub(crate) fn begin(self: &Arc<Self>, opening: Opening, permits: Vec<Permit>) -> Arc<Session> {
        self.begin_at(Instant::now(), opening, permits)
    }

    fn begin_at(
        self: &Arc<Self>,
        at: Instant,
        opening: Opening,
        permits: Vec<Permit>,
    ) -> Arc<Session> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let viewer = opening.viewer;
        let (before, until) = (self.last_report(viewer), opening.until);
        let session = Arc::new(Session {
            id,
            opening,
            began: (at, SystemTime::now()),
            bytes: AtomicU64::new(0),
            skips: AtomicU64::new(0),
            skipped_ms: AtomicU64::new(0),
            thinned: AtomicU64::new(0),
            first_frame_bytes: AtomicU64::new(0),
            buffer: BufferReport::default(),
            stay: Arc::new(Stay::new(until)),
            state: Mutex::new(SessionState {
                player: PlayerReports::new(before),
                ..SessionState::default()
            }),
            sessions: self.clone(),
            permits,
        });
        for permit in &session.permits {
            permit.wake_on_eviction(session.stay.clone().into());
        }
        let mut table = self.table();
        table.open.insert(id, Arc::downgrade(&session));
        table.by_viewer.entry(viewer).or_default().push(id);
        session
    }

    /// Returns the open sessions, oldest first.
    pub fn all(&self) -> Vec<Arc<Session>> {
        let mut all: Vec<_> = self.table().open.values().filter_map(Weak::upgrade).collect();
        all.sort_by_key(|session| session.id);
        all
    }

    /// Returns the viewer's open sessions, oldest first.
    pub fn of_viewer(&self, viewer: ViewerId) -> Vec<Arc<Session>> {
        let table = self.table();
        let ids = table.by_viewer.get(&viewer).into_iter().flatten();
        ids.filter_map(|&id| table.open(id)).collect()
    }

    /// Adds a report of the viewer's player, clamped to the session's duration. Counts never
    /// decrease.
    pub fn report(&self, viewer: ViewerId, beacon: Beacon) {
        let same = |opening: &Opening| opening.stream == beacon.stream;
        // Not under the lock: a session that ends here takes it.
        let mut open = self.of_viewer(viewer).into_iter();
        if let Some(session) = open.rfind(|session| same(&session.opening)) {
            return self.excess.count(&session.on_report(beacon));
        }
        let mut table = self.table();
        let matching = |table: &SessionTable, id| {
            table.ended.get(&id).is_some_and(|ended| same(&ended.opening)).then_some(id)
        };
        let ended = table.newest(viewer, matching);
        match ended.and_then(|id| table.ended.get_mut(&id)) {
            Some(ended) => {
                let key = Key::from(&ended.opening);
                let lasted =
                    Duration::from_secs_f64(ended.record.session.duration_s.unwrap_or(0.0));
                let excess = ended.player.on_report(beacon, lasted);
                if let Some(player) = ended.player.totals() {
                    let mut totals = lock(&self.totals);
                    totals.entry(key).or_default().add_late_report(&ended.record, player);
                    player.write_to(&mut ended.record);
                }
                self.excess.count(&excess);
            }
            None => self.on_unmatched_report(),
        }
    }

    /// Counts a report without a session.
    pub fn on_unmatched_report(&self) {
        self.beacons_unmatched.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of clamped reports by exceeded bound.
    pub fn clamped_reports(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.excess.all()
    }

    /// Returns the last report of this viewer's player.
    fn last_report(&self, viewer: ViewerId) -> Option<Beacon> {
        let newest = self.table().newest(viewer, |table, id| {
            let ended = || table.ended.get(&id).map(|ended| Err(ended.player.last().cloned()));
            table.open(id).map(Ok).or_else(ended)
        });
        match newest? {
            Ok(session) => session.state().player.last().cloned(),
            Err(player) => player,
        }
    }

    /// Writes and returns the records of sessions that ended `LAST_REPORT_TIMEOUT` ago. With
    /// `all`, at process exit, includes all ended sessions. Records that the disk cannot take yet
    /// wait for the next call.
    pub fn flush(&self, all: bool) -> Vec<Record> {
        let mut records = Vec::new();
        let until = Instant::now() + FINAL_WRITE_TIMEOUT;
        loop {
            let due = |ended: &EndedSession| all || ended.at.elapsed() >= LAST_REPORT_TIMEOUT;
            let mut table = self.table();
            match table.take_ended(due, |record| self.write(record)) {
                Some(record) => records.push(record),
                // At exit, give the disk time to drain the queue.
                None if all && !table.order.is_empty() && Instant::now() < until => {
                    drop(table);
                    std::thread::sleep(Duration::from_millis(1));
                }
                None => break,
            }
        }
        if let Some(writer) = self.writer.as_ref().filter(|_| all) {
            self.table().order.iter().for_each(|_| writer.count_dropped());
            writer.close();
        }
        records
    }

    /// Passes a record to the writer. Returns false if its queue is full.
    fn write(&self, record: &Record) -> bool {
        self.writer.as_ref().is_none_or(|writer| writer.write(record.clone()).is_ok())
    }

    fn ended(&self, session: &Session) {
        let record = session.record();
        lock(&self.totals).entry(Key::from(&session.opening)).or_default().add(session);
        let mut table = self.table();
        table.open.remove(&session.id);
        // Sessions without media leave no record.
        let has_media = session.bytes.load(Ordering::Relaxed) > 0;
        self.without_media.fetch_add(u64::from(!has_media), Ordering::Relaxed);
        let player = core::mem::take(&mut session.state().player);
        let has_reported = player.totals().is_some();
        let has_row = || has_reported || self.rows.admit(session.opening.remote, session.age());
        if !has_media || !has_row() {
            table.forget(session.id, session.opening.viewer);
            return;
        }
        let (at, opening) = (Instant::now(), session.opening.clone());
        table.ended.insert(session.id, EndedSession { at, opening, record, player });
        table.order.push_back(session.id);
        // Beyond the maximum, the first ended session does not wait for a last report. If the
        // writer's queue is full too, its record is lost.
        if table.order.len() > MAX_ENDED {
            table.take_ended(
                |_| true,
                |record| {
                    if !self.write(record) {
                        self.writer.iter().for_each(|writer| writer.count_dropped());
                    }
                    true
                },
            );
        }
    }

    /// Returns the totals of all open and ended sessions by cohort, protocol and format.
    pub fn totals(&self) -> BTreeMap<Key, Totals> {
        // This order counts each once: a session referenced here cannot end meanwhile.
        let open = self.all();
        let mut totals = lock(&self.totals).clone();
        for session in open {
            let all = totals.entry(Key::from(&session.opening)).or_default();
            all.add(&session);
            all.open += 1;
        }
        totals
    }

    /// Returns the number of lost records.
    pub fn records_dropped(&self) -> u64 {
        self.writer.as_ref().map_or(0, |writer| writer.dropped())
    }

    /// Returns the number of reports without a session.
    pub fn beacons_unmatched(&self) -> u64 {
        self.beacons_unmatched.load(Ordering::Relaxed)
    }

    /// Returns the number of fleeting sessions without a record: their network had too many.
    pub fn fleeting(&self) -> u64 {
        self.rows.withheld()
    }

    /// Returns the number of sessions that ended without media, and have no record.
    pub fn without_media(&self) -> u64 {
        self.without_media.load(Ordering::Relaxed)
    }

    fn table(&self) -> MutexGuard<'_, SessionTable> {
        lock(&self.table)
    }
}

#[cfg(test)]
mod tests;
