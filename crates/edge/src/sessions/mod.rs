//! Viewer sessions: who watches what, how well it goes, and what is kept of it afterwards.
//!
//! A session is one viewer of one stream. The front that serves it tells how the transport does,
//! about once a second; the player reports freezes through the beacon; both end in one
//! [`Record`] when the viewer leaves. Everything here is bounded: live sessions by the limits on
//! viewers, the records by a queue in front of the writer.

mod beacon;
mod held;
mod opening;
mod player;
mod record;
mod reported;
mod rows;
mod stay;
mod totals;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant, SystemTime};

use delivery::{Buffered, Started};
use records::{Excess, Record, RecordWriter};
use relay::Progress;

use crate::limits::Permit;
use crate::passes::ViewerId;
use crate::sync::lock;

use player::{Beyond, Player};
use reported::Reported;
use rows::Rows;

pub use beacon::{Beacon, MAX_BEACON};
pub use delivery::Transport;
pub use held::Held;
pub use opening::Opening;
pub use stay::Stay;
pub use totals::{Key, Totals};

/// How long a session that ended waits for what its player still has to say.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long the records of the process's end may wait for the disk.
const LAST_WRITES: Duration = Duration::from_secs(10);
/// Sessions that may wait so at the same time.
const MAX_ENDED: usize = 10_000;

#[derive(Debug, Default)]
struct State {
    transport: Transport,
    first_frame: Option<Duration>,
    started: Option<Started>,
    held: Held,
    player: Player,
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
    thinned: AtomicU64,
    /// 0 before the first frame.
    first_frame_bytes: AtomicU64,
    reported: Reported,
    stay: Arc<Stay>,
    state: Mutex<State>,
    sessions: Arc<Sessions>,
    held: Vec<Permit>,
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

    /// The viewer asked for something just now: its places are not idle.
    pub(crate) fn touch(&self) {
        self.held.iter().for_each(Permit::touch);
    }

    /// How long the viewer may stay.
    pub fn stay(&self) -> &Stay {
        &self.stay
    }

    /// Why its recovery scheme sends as many replicas as it does: names and values.
    pub fn reasons(&self) -> Vec<(&'static str, f64)> {
        self.state().transport.reasons.clone()
    }

    /// How long it has lasted.
    pub fn age(&self) -> Duration {
        self.began.0.elapsed()
    }

    /// Sets how much of the stream was handed to the transport, and what the viewer left out.
    pub fn on_media(&self, progress: &Progress) {
        self.bytes.store(progress.bytes, Ordering::Relaxed);
        self.skips.store(progress.skips, Ordering::Relaxed);
        self.skipped_ms.store(progress.skipped_ms, Ordering::Relaxed);
        self.thinned.store(progress.thinned, Ordering::Relaxed);
    }

    /// Adds bytes of media that were handed to the transport.
    pub fn add_media(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes of media that were handed to the transport.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// What the player said last that it has buffered: how late data may arrive without a freeze. `None` if it has not
    /// reported that within 30 s. A player may claim anything; more than 60 s is not believed.
    pub fn buffered(&self) -> Option<Buffered> {
        self.reported.get(self.age())
    }

    /// Takes a report of the player. Returns what of it was beyond its bounds.
    fn on_report(&self, beacon: Beacon) -> Vec<Excess> {
        if let Some(ms) = beacon.buffer_ms {
            self.reported.set(self.age(), Duration::from_secs_f64(ms * 1e-3));
        }
        let age = self.age();
        self.state().player.on_report(beacon, age)
    }

    /// The first frame was handed to the transport: `bytes` of the stream up to its end.
    pub fn on_first_frame_bytes(&self, bytes: u64) {
        self.first_frame_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The first frame was acknowledged.
    pub fn on_first_frame(&self) {
        let age = self.age();
        self.state().first_frame.get_or_insert(age);
    }

    /// The connection starts with this session, in this way.
    pub fn on_started(&self, started: Started) {
        self.state().started = Some(started);
    }

    /// Something else is known of how it is held.
    pub fn on_held(&self, note: impl FnOnce(&mut Held)) {
        note(&mut self.state().held);
    }

    /// How the transport does.
    pub fn on_transport(&self, transport: Transport) {
        self.state().transport = transport;
    }

    fn state(&self) -> MutexGuard<'_, State> {
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
    places: Mutex<Places>,
    /// Sums over all sessions that have ended.
    totals: Mutex<BTreeMap<Key, Totals>>,
    writer: Option<Arc<RecordWriter>>,
    beacons_unmatched: AtomicU64,
    /// Sessions that never had media. They have no record.
    without_media: AtomicU64,
    rows: Rows,
    beyond: Beyond,
}

#[derive(Debug, Default)]
struct Places {
    open: HashMap<u64, Weak<Session>>,
    /// The sessions of each viewer that are open or have ended a moment ago, oldest first.
    by_viewer: HashMap<ViewerId, Vec<u64>>,
    /// Sessions that have ended: the player's last words may still come.
    ended: HashMap<u64, Ended>,
    /// Their numbers in the order of their ends.
    order: VecDeque<u64>,
}

impl Places {
    /// The newest session of the viewer for which `pick` finds something.
    fn newest<T>(&self, viewer: ViewerId, pick: impl Fn(&Self, u64) -> Option<T>) -> Option<T> {
        self.by_viewer.get(&viewer)?.iter().rev().find_map(|&id| pick(self, id))
    }

    /// The session, to be kept until the lock is gone: its end takes the lock.
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

    /// Hands the record of the session that ended first to `take`, if `is_due`, and forgets the session
    /// if it is taken. Returns the record then.
    fn take_ended(
        &mut self,
        is_due: impl FnOnce(&Ended) -> bool,
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
struct Ended {
    at: Instant,
    /// When the session began.
    began: Instant,
    opening: Opening,
    record: Record,
    player: Player,
}

impl Sessions {
    /// No sessions yet; their records go to `writer`, if there is one.
    pub fn new(writer: Option<Arc<RecordWriter>>) -> Self {
        Self {
            next: AtomicU64::new(1),
            places: Mutex::default(),
            totals: Mutex::default(),
            writer,
            beacons_unmatched: AtomicU64::new(0),
            without_media: AtomicU64::new(0),
            rows: Rows::default(),
            beyond: Beyond::default(),
        }
    }

    /// A viewer came. Its session keeps these places.
    pub(crate) fn begin(self: &Arc<Self>, opening: Opening, held: Vec<Permit>) -> Arc<Session> {
        self.begin_at(Instant::now(), opening, held)
    }

    fn begin_at(
        self: &Arc<Self>,
        at: Instant,
        opening: Opening,
        held: Vec<Permit>,
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
            reported: Reported::default(),
            stay: Arc::new(Stay::new(until)),
            state: Mutex::new(State { player: Player::new(before), ..State::default() }),
            sessions: self.clone(),
            held,
        });
        for place in &session.held {
            place.wake_on_eviction(session.stay.clone().into());
        }
        let mut places = self.places();
        places.open.insert(id, Arc::downgrade(&session));
        places.by_viewer.entry(viewer).or_default().push(id);
        session
    }

    /// The sessions that are open, oldest first.
    pub fn all(&self) -> Vec<Arc<Session>> {
        let mut all: Vec<_> = self.places().open.values().filter_map(Weak::upgrade).collect();
        all.sort_by_key(|session| session.id);
        all
    }

    /// The sessions of this viewer that are open, oldest first.
    pub fn of_viewer(&self, viewer: ViewerId) -> Vec<Arc<Session>> {
        let places = self.places();
        let ids = places.by_viewer.get(&viewer).into_iter().flatten();
        ids.filter_map(|&id| places.open(id)).collect()
    }

    /// The player of `viewer` reports. It is believed as far as its session has room for what it
    /// says, and its counts never fall.
    pub fn report(&self, viewer: ViewerId, beacon: Beacon) {
        let same = |opening: &Opening| opening.stream == beacon.stream;
        // The lock is not held while they are looked at: one that ends here takes it.
        let mut open = self.of_viewer(viewer).into_iter();
        if let Some(session) = open.rfind(|session| same(&session.opening)) {
            return self.beyond.count(&session.on_report(beacon));
        }
        let mut places = self.places();
        let mine = |places: &Places, id| {
            places.ended.get(&id).is_some_and(|ended| same(&ended.opening)).then_some(id)
        };
        let ended = places.newest(viewer, mine);
        match ended.and_then(|id| places.ended.get_mut(&id)) {
            Some(ended) => {
                let key = Key::from(&ended.opening);
                let excess = ended.player.on_report(beacon, ended.began.elapsed());
                if let Some(words) = ended.player.words() {
                    lock(&self.totals).entry(key).or_default().on_last_words(&ended.record, words);
                    words.write_to(&mut ended.record);
                }
                self.beyond.count(&excess);
            }
            None => self.on_unmatched_report(),
        }
    }

    /// A report came that belongs to no session.
    pub fn on_unmatched_report(&self) {
        self.beacons_unmatched.fetch_add(1, Ordering::Relaxed);
    }

    /// Reports beyond their bounds, by what they were beyond.
    pub fn beyond(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.beyond.all()
    }

    /// What this viewer's player last said.
    fn last_report(&self, viewer: ViewerId) -> Option<Beacon> {
        let newest = self.places().newest(viewer, |places, id| {
            let ended = || places.ended.get(&id).map(|ended| Err(ended.player.last().cloned()));
            places.open(id).map(Ok).or_else(ended)
        });
        match newest? {
            Ok(session) => session.state().player.last().cloned(),
            Err(player) => player,
        }
    }

    /// Writes the records of sessions that ended a while ago, or at the end of the process of all
    /// that ended, and returns them. What the disk does not take yet waits for the next call.
    pub fn flush(&self, all: bool) -> Vec<Record> {
        let mut records = Vec::new();
        let until = Instant::now() + LAST_WRITES;
        loop {
            let due = |ended: &Ended| all || ended.at.elapsed() >= LAST_WORDS;
            let mut places = self.places();
            match places.take_ended(due, |record| self.write(record)) {
                Some(record) => records.push(record),
                // At the end the disk gets some time to take what waits.
                None if all && !places.order.is_empty() && Instant::now() < until => {
                    drop(places);
                    std::thread::sleep(Duration::from_millis(1));
                }
                None => break,
            }
        }
        if let Some(writer) = self.writer.as_ref().filter(|_| all) {
            self.places().order.iter().for_each(|_| writer.count_dropped());
            writer.close();
        }
        records
    }

    /// Hands a record to the writer. Returns whether it is taken.
    fn write(&self, record: &Record) -> bool {
        self.writer.as_ref().is_none_or(|writer| writer.write(record.clone()).is_ok())
    }

    fn ended(&self, session: &Session) {
        let record = session.record();
        lock(&self.totals).entry(Key::from(&session.opening)).or_default().add(session);
        let mut places = self.places();
        places.open.remove(&session.id);
        // A client that opens sessions and takes no media leaves nothing behind.
        let has_media = session.bytes.load(Ordering::Relaxed) > 0;
        self.without_media.fetch_add(u64::from(!has_media), Ordering::Relaxed);
        let player = core::mem::take(&mut session.state().player);
        let has_spoken = player.words().is_some();
        let has_row = || has_spoken || self.rows.admit(session.opening.remote, session.age());
        if !has_media || !has_row() {
            places.forget(session.id, session.opening.viewer);
            return;
        }
        let (at, began, opening) = (Instant::now(), session.began.0, session.opening.clone());
        places.ended.insert(session.id, Ended { at, began, opening, record, player });
        places.order.push_back(session.id);
        // With too many at once the first do without their players' last words. What the disk does not
        // take even so is lost.
        if places.order.len() > MAX_ENDED {
            places.take_ended(
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

    /// Records that could not be written.
    pub fn records_dropped(&self) -> u64 {
        self.writer.as_ref().map_or(0, |writer| writer.dropped())
    }

    /// Reports of players that belong to no session.
    pub fn beacons_unmatched(&self) -> u64 {
        self.beacons_unmatched.load(Ordering::Relaxed)
    }

    /// Fleeting sessions without a record: their network had too many.
    pub fn fleeting(&self) -> u64 {
        self.rows.withheld()
    }

    /// Sessions that ended without media. They have no record.
    pub fn without_media(&self) -> u64 {
        self.without_media.load(Ordering::Relaxed)
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        lock(&self.places)
    }
}

#[cfg(test)]
mod tests;
