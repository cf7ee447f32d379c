//! A bounded number of places, in all and for each address, whose holders may be asked to make room.
//!
//! A newcomer gets a [`Permit`], which gives the place back when it is dropped. A holder that has
//! nothing to do says so ([`Permit::idle`]): when places run out, the one that has been idle longest
//! loses its place to the newcomer. So a full front goes on taking viewers in, and connections that
//! somebody opened only to hold them are the first to go. Where nobody is idle, the newcomer is refused.
//!
//! What a gate keeps is bounded by the permits in use, and so is its memory, within a factor.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::config::Network;
use crate::sync::lock;

/// A newcomer keeps its place for this long, whatever happens: a handshake over a slow path.
const GRACE_OF_NEW: Duration = Duration::from_secs(3);
/// One that had work to do keeps its place for this long afterwards: players pause between segments.
const GRACE_OF_SERVED: Duration = Duration::from_secs(10);
/// Tables give memory back above this many places.
const KEPT: usize = 64;

/// How many may be in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bounds {
    pub all: u32,
    pub per_address: u32,
}

/// Why somebody was not let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Full {
    /// All places are taken.
    All,
    /// The address has all the places that one may have.
    Address,
}

/// What a gate has done so far.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Counts {
    /// Places in use now.
    pub used: usize,
    /// Newcomers refused because all places were taken.
    pub full: u64,
    /// Newcomers refused because their address had its share.
    pub address: u64,
    /// Holders that lost their place to a newcomer.
    pub evicted: u64,
}

/// A gate.
#[derive(Debug, Default)]
pub(crate) struct Gate(Mutex<Seats>);

impl Gate {
    /// A place for a newcomer; of no address in particular if that is not limited.
    ///
    /// # Errors
    /// There is none, and nobody to make room.
    pub fn enter(
        self: &Arc<Self>,
        origin: Option<Network>,
        bounds: Bounds,
    ) -> Result<Permit, Full> {
        let bell = Arc::new(Notify::new());
        let id = lock(&self.0).enter(Instant::now(), origin, bounds, &bell)?;
        Ok(Permit { gate: self.clone(), id, bell })
    }

    /// Has the holder that has been idle longest leave: whatever ran out, that frees some of it.
    pub fn make_room(&self) {
        lock(&self.0).evict(Instant::now(), None);
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        let seats = lock(&self.0);
        Counts { used: seats.held.len(), ..seats.counts }
    }
}

/// A place. It is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    gate: Arc<Gate>,
    id: u64,
    bell: Arc<Notify>,
}

impl Permit {
    /// The holder turns out to be from there.
    ///
    /// # Errors
    /// The address has its share, and nobody of it makes room.
    pub fn is_from(&self, origin: Option<Network>, bounds: Bounds) -> Result<(), Full> {
        lock(&self.gate.0).move_to(Instant::now(), self.id, origin, bounds)
    }

    /// The holder has nothing to do from now on, and had if it `has_served`.
    pub fn idle(&self, has_served: bool) {
        lock(&self.gate.0).set_idle(self.id, Some((has_served, Instant::now())));
    }

    /// The holder has something to do.
    pub fn busy(&self) {
        lock(&self.gate.0).set_idle(self.id, None);
    }

    /// Returns when the place is somebody else's. To be awaited by one task.
    pub async fn evicted(&self) {
        self.bell.notified().await;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        lock(&self.gate.0).leave(self.id);
    }
}

/// Those who are idle: the newcomers, and those who had work, each since when.
#[derive(Debug, Default)]
struct Idle([BTreeSet<(Instant, u64)>; 2]);

impl Idle {
    /// The one that may go first.
    fn first(&self, now: Instant) -> Option<u64> {
        let graces = [GRACE_OF_NEW, GRACE_OF_SERVED];
        self.0.iter().zip(graces).find_map(|(idle, grace)| {
            let (since, id) = idle.first()?;
            (now.saturating_duration_since(*since) >= grace).then_some(*id)
        })
    }

    fn insert(&mut self, (has_served, since): (bool, Instant), id: u64) {
        self.0[usize::from(has_served)].insert((since, id));
    }

    fn remove(&mut self, (has_served, since): (bool, Instant), id: u64) {
        self.0[usize::from(has_served)].remove(&(since, id));
    }
}

#[derive(Debug)]
struct Seat {
    origin: Option<Network>,
    /// Whether it had something to do before, and since when it has nothing.
    idle: Option<(bool, Instant)>,
    bell: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Share {
    used: u32,
    idle: Idle,
}

#[derive(Debug, Default)]
struct Seats {
    next: u64,
    held: HashMap<u64, Seat>,
    /// By those who share a count: [`Network::of_subscriber`].
    shares: HashMap<Network, Share>,
    idle: Idle,
    counts: Counts,
}

impl Seats {
    fn enter(
        &mut self,
        now: Instant,
        origin: Option<Network>,
        bounds: Bounds,
        bell: &Arc<Notify>,
    ) -> Result<u64, Full> {
        self.make_share(now, origin, bounds)?;
        if self.held.len() >= bounds.all as usize && !self.evict(now, None) {
            self.counts.full += 1;
            return Err(Full::All);
        }
        let id = self.next;
        self.next += 1;
        self.held.insert(id, Seat { origin: None, idle: None, bell: bell.clone() });
        self.assign(id, origin);
        self.set_idle(id, Some((false, now)));
        Ok(id)
    }

    fn move_to(
        &mut self,
        now: Instant,
        id: u64,
        origin: Option<Network>,
        bounds: Bounds,
    ) -> Result<(), Full> {
        self.make_share(now, origin, bounds)?;
        self.assign(id, origin);
        Ok(())
    }

    /// Sees to it that the address may have one place more.
    fn make_share(
        &mut self,
        now: Instant,
        origin: Option<Network>,
        bounds: Bounds,
    ) -> Result<(), Full> {
        let used = origin.and_then(|origin| self.shares.get(&origin)).map_or(0, |s| s.used);
        if origin.is_some() && used >= bounds.per_address && !self.evict(now, origin) {
            self.counts.address += 1;
            return Err(Full::Address);
        }
        Ok(())
    }

    /// Takes the place of one who is idle, of this address if one is given.
    fn evict(&mut self, now: Instant, origin: Option<Network>) -> bool {
        let idle = match origin {
            Some(origin) => self.shares.get(&origin).map(|share| &share.idle),
            None => Some(&self.idle),
        };
        let Some(id) = idle.and_then(|idle| idle.first(now)) else { return false };
        if let Some(seat) = self.held.get(&id) {
            seat.bell.notify_one();
        }
        self.leave(id);
        self.counts.evicted += 1;
        true
    }

    /// Counts the holder, who is none of an address yet, with those of this one.
    fn assign(&mut self, id: u64, origin: Option<Network>) {
        let Some(seat) = self.held.get_mut(&id) else { return };
        let Some(origin) = origin else { return };
        seat.origin = Some(origin);
        let share = self.shares.entry(origin).or_default();
        share.used += 1;
        if let Some(idle) = seat.idle {
            share.idle.insert(idle, id);
        }
    }

    fn set_idle(&mut self, id: u64, idle: Option<(bool, Instant)>) {
        let Some(seat) = self.held.get_mut(&id) else { return };
        let before = core::mem::replace(&mut seat.idle, idle);
        let share = seat.origin.and_then(|origin| self.shares.get_mut(&origin));
        for queue in share.map(|share| &mut share.idle).into_iter().chain([&mut self.idle]) {
            if let Some(before) = before {
                queue.remove(before, id);
            }
            if let Some(idle) = idle {
                queue.insert(idle, id);
            }
        }
    }

    /// Gives the place back; nothing if it is somebody else's already.
    fn leave(&mut self, id: u64) {
        self.set_idle(id, None);
        let Some(seat) = self.held.remove(&id) else { return };
        if let Some(origin) = seat.origin
            && let Some(share) = self.shares.get_mut(&origin)
        {
            share.used -= 1;
            if share.used == 0 {
                self.shares.remove(&origin);
            }
        }
        shrink(&mut self.held);
        shrink(&mut self.shares);
    }
}

/// Gives memory back that a table has had no use for since it was fuller.
fn shrink<K: Eq + Hash, V>(table: &mut HashMap<K, V>) {
    if table.capacity() > KEPT && table.len() < table.capacity() / 8 {
        table.shrink_to((table.len() * 2).max(KEPT / 2));
    }
}

#[cfg(test)]
mod tests;
