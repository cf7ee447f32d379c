//! Connections of the admin listener. Their number is bounded; a newcomer evicts the least recently
//! active one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::sync::lock;

/// Maximum concurrent connections.
pub(super) const MAX_CONNECTIONS: usize = 64;
/// Maximum concurrent event streams. Further ones get status 503.
pub(super) const MAX_EVENT_STREAMS: usize = 32;
/// Maximum time without a request and without an event that the client reads.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Limited connections and requests, by reason.
pub(super) type Limited = [(&'static str, u64); 2];

#[derive(Debug)]
struct Seat {
    /// Time of accept, last request or last event read.
    active: Instant,
    /// Whether it receives events, and so is not evicted.
    has_events: bool,
    bell: Arc<Notify>,
}

#[derive(Debug, Default)]
struct VisitorTable {
    next: u64,
    seats: BTreeMap<u64, Seat>,
    evicted: u64,
    events_refused: u64,
}

/// All connections of the listener.
#[derive(Clone, Debug, Default)]
pub(super) struct Visitors(Arc<Mutex<VisitorTable>>);

/// A connection. Dropping it frees its place.
#[derive(Debug)]
pub(super) struct Visitor {
    visitors: Visitors,
    id: u64,
    bell: Arc<Notify>,
}

/// Permission for one event stream, until dropped.
#[derive(Debug)]
pub(super) struct EventStream(Arc<Visitor>);

impl Visitors {
    /// Admits a connection. If there are too many, the least recently active one is evicted.
    pub(super) fn enter(&self) -> Visitor {
        let mut table = self.lock();
        if table.seats.len() >= MAX_CONNECTIONS {
            // Event streams are limited to fewer than the connections, so there always is one.
            let others = table.seats.iter().filter(|(_, seat)| !seat.has_events);
            let first = others.min_by_key(|(_, seat)| seat.active).map(|(&id, _)| id);
            if let Some(seat) = first.and_then(|id| table.seats.remove(&id)) {
                seat.bell.notify_one();
                table.evicted += 1;
            }
        }
        let id = table.next;
        table.next += 1;
        let bell = Arc::new(Notify::new());
        let seat = Seat { active: Instant::now(), has_events: false, bell: bell.clone() };
        table.seats.insert(id, seat);
        Visitor { visitors: self.clone(), id, bell }
    }

    /// Returns the evicted connections and rejected event streams.
    pub(super) fn limited(&self) -> Limited {
        let table = self.lock();
        [("admin_evicted", table.evicted), ("admin_events", table.events_refused)]
    }

    fn lock(&self) -> MutexGuard<'_, VisitorTable> {
        lock(&self.0)
    }
}

impl Visitor {
    /// Notes a request or an event read.
    pub(super) fn touch(&self) {
        if let Some(seat) = self.visitors.lock().seats.get_mut(&self.id) {
            seat.active = Instant::now();
        }
    }

    /// Waits until the connection must end because it was evicted or idle for too long.
    pub(super) async fn over(&self) {
        loop {
            let active = self.visitors.lock().seats.get(&self.id).map(|seat| seat.active);
            let Some(active) = active else { return };
            if active.elapsed() >= IDLE_TIMEOUT {
                return;
            }
            tokio::select! {
                () = self.bell.notified() => return,
                () = sleep_until(active + IDLE_TIMEOUT) => {}
            }
        }
    }

    /// Starts an event stream; `None` if there are too many.
    pub(super) fn events(self: &Arc<Self>) -> Option<EventStream> {
        let mut table = self.visitors.lock();
        let streams = table.seats.values().filter(|seat| seat.has_events).count();
        let is_full = streams >= MAX_EVENT_STREAMS;
        let seat = table.seats.get_mut(&self.id).filter(|_| !is_full);
        let Some(seat) = seat else {
            table.events_refused += 1;
            return None;
        };
        seat.has_events = true;
        Some(EventStream(self.clone()))
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        self.visitors.lock().seats.remove(&self.id);
    }
}

impl EventStream {
    /// Notes an event read.
    pub(super) fn touch(&self) {
        self.0.touch();
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        if let Some(seat) = self.0.visitors.lock().seats.get_mut(&self.0.id) {
            seat.has_events = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    const SHORT: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn idle_clients_are_closed() {
        let visitors = Visitors::default();
        let [silent, reader] = [visitors.enter(), visitors.enter()].map(Arc::new);
        let events = reader.events().expect("room");
        advance(IDLE_TIMEOUT / 2).await;
        events.touch();
        assert!(timeout(SHORT, silent.over()).await.is_err(), "not yet");
        advance(IDLE_TIMEOUT / 2).await;
        assert!(timeout(SHORT, silent.over()).await.is_ok());
        assert!(timeout(SHORT, reader.over()).await.is_err(), "it takes events");
        advance(IDLE_TIMEOUT / 2).await;
        assert!(timeout(SHORT, reader.over()).await.is_ok(), "a stalled reader");
    }
}
