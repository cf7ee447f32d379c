//! A bounded number of places, shared fairly between networks, whose holders may have to make room.
//!
//! A newcomer gets a [`Permit`], which gives the place back when it is dropped. A holder that has nothing to do says so
//! ([`Permit::idle`]). When places run out, a newcomer from a network that holds few of them takes one from the network
//! that holds most, or that opens most: a flood costs the flood its places. Networks are /24 of IPv4 and /48 of IPv6,
//! and within them each address (/56 of IPv6) has a limit of its own. Within a network the same holds between addresses.
//!
//! Between networks that hold as many, the holder that has been idle longest makes room. If nobody is idle, the
//! newcomer is refused. A gate's memory is bounded by the permits in use, within a factor.

mod arrivals;
mod seats;
mod terms;

use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Instant;

use crate::sync::lock;
use seats::Seats;
use terms::Bell;
pub(crate) use terms::{Bounds, Counts, Full, Origin};

/// A gate.
#[derive(Debug, Default)]
pub(crate) struct Gate(Mutex<Seats>);

impl Gate {
    /// A place for a newcomer; of no address in particular if that is not limited.
    ///
    /// # Errors
    /// There is none, and nobody to make room.
    pub fn enter(self: &Arc<Self>, origin: Option<Origin>, bounds: Bounds) -> Result<Permit, Full> {
        let bell = Arc::new(Bell::default());
        let id = lock(&self.0).enter(Instant::now(), origin, bounds, &bell)?;
        Ok(Permit { gate: self.clone(), id, bell })
    }

    /// Has the holder that has been idle longest leave: whatever ran out, that frees some of it.
    pub fn make_room(&self) {
        lock(&self.0).evict_idle(Instant::now());
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        lock(&self.0).counts()
    }
}

/// A place. It is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    gate: Arc<Gate>,
    id: u64,
    bell: Arc<Bell>,
}

impl Permit {
    /// The holder turns out to be from there.
    ///
    /// # Errors
    /// The address has its share, and nobody of it makes room.
    pub fn is_from(&self, origin: Option<Origin>, bounds: Bounds) -> Result<(), Full> {
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

    /// The holder did something just now. An idle holder is idle from now on; a busy one stays busy.
    pub fn touch(&self) {
        lock(&self.gate.0).touch(self.id, Instant::now());
    }

    /// Returns when the place is somebody else's. To be awaited by one task.
    pub async fn evicted(&self) {
        self.bell.rung().await;
    }

    /// Wakes this when the place is somebody else's, at once if it is already. It is woken while the gate is locked, so
    /// it must neither enter nor leave one.
    pub fn wake_on_eviction(&self, waker: Waker) {
        self.bell.wake(waker);
        if self.is_evicted() {
            self.bell.ring();
        }
    }

    /// Whether the place is somebody else's.
    pub fn is_evicted(&self) -> bool {
        self.bell.is_rung()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        lock(&self.gate.0).leave(self.id);
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
