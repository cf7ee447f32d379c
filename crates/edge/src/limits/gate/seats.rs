//! The holders of a gate by address and by network, and the choice of the holder to evict.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::arrivals::Arrivals;
use super::terms::{Bell, Bounds, Full, GateCounts, Origin};
use crate::config::Network;

/// Grace period of an idle newcomer: covers a handshake over a slow path. Does not apply to holders
/// from larger networks or from a flood.
const GRACE_OF_NEW: Duration = Duration::from_secs(3);
/// The same for holders that have had work: players pause between segments.
const GRACE_OF_SERVED: Duration = Duration::from_secs(10);
/// Minimum interval between restarts of an idle time, which cost more than the check. Far below
/// [`GRACE_OF_SERVED`].
const MIN_TOUCH_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum share of a network or address whose busy holders may be evicted: 1/32 of all places,
/// clamped to 8 to 16. A household has fewer viewers, a small office about as many.
const BUSY_PARTS: u32 = 32;
const MIN_BUSY_PLACES: u32 = 8;
const MAX_BUSY_PLACES: u32 = 16;
/// Minimum ratio between the places of their network and of the newcomer's network.
const BUSY_FACTOR: u32 = 4;
/// Number of longest idle holders searched for the network that opens most.
const EVICTION_CANDIDATES: usize = 16;
/// Recent newcomers allowed to any network, and the factor over the newcomer's network that marks a
/// flood.
const USUAL_ARRIVALS: u32 = 4;
const ARRIVAL_FACTOR: u32 = 2;
/// Table capacity below which memory is not released.
pub(super) const MIN_CAPACITY: usize = 64;

/// Idle holders with the start of their idle time: first those without work, then those with work
/// in the past.
#[derive(Debug, Default)]
pub(super) struct Idle(pub(super) [BTreeSet<(Instant, u64)>; 2]);

impl Idle {
    /// Iterates over holders: first those that never had work; each kind by idle time, longest
    /// first.
    fn all(&self) -> impl Iterator<Item = u64> {
        self.0.iter().flatten().map(|(_, id)| *id)
    }

    /// Iterates in the same order over holders that have been idle beyond their grace period.
    fn beyond_grace(&self, now: Instant) -> impl Iterator<Item = u64> {
        let graces = [GRACE_OF_NEW, GRACE_OF_SERVED];
        self.0.iter().zip(graces).flat_map(move |(idle, grace)| {
            let is_over = move |since: Instant| now.saturating_duration_since(since) >= grace;
            idle.iter().take_while(move |(since, _)| is_over(*since)).map(|(_, id)| *id)
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
pub(super) struct Seat {
    pub(super) origin: Option<Origin>,
    /// Whether it has had work before, and since when it is idle.
    pub(super) idle: Option<(bool, Instant)>,
    bell: Arc<Bell>,
}

/// The holders of an address or network.
#[derive(Debug, Default)]
pub(super) struct Share {
    pub(super) used: u32,
    pub(super) idle: Idle,
    /// Busy holders by age.
    pub(super) busy: BTreeSet<u64>,
    /// Addresses of a network by number of places; empty for an address.
    pub(super) addresses: BTreeSet<(u32, Network)>,
}

impl Share {
    fn set(&mut self, id: u64, before: Option<(bool, Instant)>, idle: Option<(bool, Instant)>) {
        match before {
            Some(before) => self.idle.remove(before, id),
            None => _ = self.busy.remove(&id),
        }
        match idle {
            Some(idle) => self.idle.insert(idle, id),
            None => _ = self.busy.insert(id),
        }
    }

    fn remove(&mut self, id: u64, idle: Option<(bool, Instant)>) {
        match idle {
            Some(idle) => self.idle.remove(idle, id),
            None => _ = self.busy.remove(&id),
        }
        self.used -= 1;
    }

    /// Returns the holder to evict: the longest idle one, or else the newest busy one if this share
    /// is far above `own`, the number of places of the newcomer's network.
    fn holder(&self, own: u32, bounds: Bounds) -> Option<u64> {
        self.idle.all().next().or_else(|| {
            let many = (bounds.all / BUSY_PARTS).clamp(MIN_BUSY_PLACES, MAX_BUSY_PLACES);
            let is_far_above = self.used >= many.max(BUSY_FACTOR.saturating_mul(own + 1));
            self.busy.last().copied().filter(|_| bounds.evicts_busy && is_far_above)
        })
    }

    /// Re-ranks an address of this network. Without places it is removed.
    fn rank(&mut self, address: Network, former: u32, present: u32) {
        self.addresses.remove(&(former, address));
        if present > 0 {
            self.addresses.insert((present, address));
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Seats {
    next: u64,
    pub(super) held: HashMap<u64, Seat>,
    pub(super) addresses: HashMap<Network, Share>,
    pub(super) networks: HashMap<Network, Share>,
    /// Networks by number of places.
    pub(super) by_held: BTreeSet<(u32, Network)>,
    pub(super) idle: Idle,
    arrivals: Arrivals,
    counts: GateCounts,
}

impl Seats {
    pub(super) fn counts(&self) -> GateCounts {
        GateCounts { used: self.held.len(), ..self.counts }
    }

    pub(super) fn enter(
        &mut self,
        now: Instant,
        origin: Option<Origin>,
        bounds: Bounds,
        bell: &Arc<Bell>,
    ) -> Result<u64, Full> {
        if let Some(origin) = origin {
            self.arrivals.count(now, origin.network);
        }
        self.make_share(now, origin, bounds)?;
        if self.held.len() >= bounds.all as usize {
            let Some(id) = self.holder_to_evict(now, origin, bounds) else {
                self.counts.full += 1;
                return Err(Full::All);
            };
            self.evict(id);
        }
        let id = self.next;
        self.next += 1;
        let idle = Some((false, now));
        self.held.insert(id, Seat { origin: None, idle, bell: bell.clone() });
        self.idle.insert((false, now), id);
        self.assign(id, origin);
        Ok(id)
    }

    pub(super) fn move_to(
        &mut self,
        now: Instant,
        id: u64,
        origin: Option<Origin>,
        bounds: Bounds,
    ) -> Result<(), Full> {
        if let Some(origin) = origin {
            self.arrivals.count(now, origin.network);
        }
        self.make_share(now, origin, bounds)?;
        self.assign(id, origin);
        Ok(())
    }

    /// Ensures that the address may have one more place.
    fn make_share(
        &mut self,
        now: Instant,
        origin: Option<Origin>,
        bounds: Bounds,
    ) -> Result<(), Full> {
        let Some(share) = origin.and_then(|origin| self.addresses.get(&origin.address)) else {
            return Ok(());
        };
        if share.used < bounds.per_address {
            return Ok(());
        }
        let Some(id) = share.idle.beyond_grace(now).next() else {
            self.counts.address += 1;
            return Err(Full::Address);
        };
        self.evict(id);
        Ok(())
    }

    /// Returns the holder to evict for a newcomer; `None` rejects the newcomer.
    fn holder_to_evict(&self, now: Instant, origin: Option<Origin>, bounds: Bounds) -> Option<u64> {
        let own = origin.map_or(0, |origin| self.held_by_network(origin));
        self.holder_of_largest(own, bounds)
            .or_else(|| self.holder_of_neighbour(origin?, bounds))
            .or_else(|| {
                let own_arrivals = origin.map_or(0, |origin| self.arrivals.of(origin.network));
                self.holder_of_flood(own_arrivals)
            })
            .or_else(|| {
                let mut oldest = self.idle.beyond_grace(now).take(EVICTION_CANDIDATES);
                oldest.find(|&id| self.may_lose_to(id, origin))
            })
    }

    /// Whether the holder may be evicted for a newcomer from `origin`: not if the newcomer's
    /// network holds more, or within a network its address.
    fn may_lose_to(&self, id: u64, origin: Option<Origin>) -> bool {
        let holder = self.held.get(&id).and_then(|seat| seat.origin);
        let Some((holder, newcomer)) = holder.zip(origin) else { return true };
        if holder.network == newcomer.network {
            self.held_by_address(holder) >= self.held_by_address(newcomer)
        } else {
            self.held_by_network(holder) >= self.held_by_network(newcomer)
        }
    }

    fn held_by_network(&self, origin: Origin) -> u32 {
        self.networks.get(&origin.network).map_or(0, |share| share.used)
    }

    fn held_by_address(&self, origin: Origin) -> u32 {
        self.addresses.get(&origin.address).map_or(0, |share| share.used)
    }

    /// Returns a holder of the largest network, if that exceeds the newcomer's network with its new
    /// place: of its largest address, or else any.
    fn holder_of_largest(&self, own: u32, bounds: Bounds) -> Option<u64> {
        let (most, network) = self.by_held.last()?;
        if *most < own + 2 {
            return None;
        }
        let share = self.networks.get(network)?;
        let address = share.addresses.last().and_then(|(_, address)| self.addresses.get(address));
        let holder_of = |share: &Share| share.holder(own, bounds);
        address.and_then(holder_of).or_else(|| holder_of(share))
    }

    /// Returns a holder of the largest address in the newcomer's own network, if that exceeds the
    /// newcomer's address with its new place.
    fn holder_of_neighbour(&self, origin: Origin, bounds: Bounds) -> Option<u64> {
        let own = self.held_by_address(origin);
        let (most, address) = self.networks.get(&origin.network)?.addresses.last()?;
        let share = self.addresses.get(address).filter(|_| *most >= own + 2)?;
        share.holder(own, bounds)
    }

    /// Returns a long idle holder without work so far, from the network that opens most places, if
    /// it opens far more than the newcomer's network.
    fn holder_of_flood(&self, own_arrivals: u32) -> Option<u64> {
        let [newcomers, _] = &self.idle.0;
        let oldest = newcomers.iter().take(EVICTION_CANDIDATES).filter_map(|(_, id)| {
            let origin = self.held.get(id)?.origin?;
            Some((self.arrivals.of(origin.network), core::cmp::Reverse(*id)))
        });
        let (arrivals, core::cmp::Reverse(id)) = oldest.max()?;
        let usual = ARRIVAL_FACTOR.saturating_mul(own_arrivals).max(USUAL_ARRIVALS);
        (arrivals > usual).then_some(id)
    }

    /// Evicts the longest idle holder.
    pub(super) fn evict_idle(&mut self, now: Instant) {
        let first = self.idle.beyond_grace(now).next();
        first.into_iter().for_each(|id| self.evict(id));
    }

    fn evict(&mut self, id: u64) {
        if let Some(seat) = self.held.get(&id) {
            seat.bell.ring();
        }
        self.leave(id);
        self.counts.evicted += 1;
    }

    /// Assigns a holder without an origin to this one.
    fn assign(&mut self, id: u64, origin: Option<Origin>) {
        let (Some(seat), Some(origin)) = (self.held.get_mut(&id), origin) else { return };
        seat.origin = Some(origin);
        let idle = seat.idle;
        let address = self.addresses.entry(origin.address).or_default();
        let network = self.networks.entry(origin.network).or_default();
        self.by_held.remove(&(network.used, origin.network));
        for share in [&mut *address, &mut *network] {
            share.used += 1;
            match idle {
                Some(idle) => share.idle.insert(idle, id),
                None => _ = share.busy.insert(id),
            }
        }
        network.rank(origin.address, address.used - 1, address.used);
        self.by_held.insert((network.used, origin.network));
    }

    /// Restarts the idle time of an idle holder, which counts as having had work.
    pub(super) fn touch(&mut self, id: u64, now: Instant) {
        let idle = self.held.get(&id).and_then(|seat| seat.idle);
        let is_due = |(has_served, since): (bool, Instant)| {
            !has_served || now.saturating_duration_since(since) >= MIN_TOUCH_INTERVAL
        };
        if idle.is_some_and(is_due) {
            self.set_idle(id, Some((true, now)));
        }
    }

    pub(super) fn set_idle(&mut self, id: u64, idle: Option<(bool, Instant)>) {
        let Some(seat) = self.held.get_mut(&id) else { return };
        let before = core::mem::replace(&mut seat.idle, idle);
        if let Some(before) = before {
            self.idle.remove(before, id);
        }
        if let Some(idle) = idle {
            self.idle.insert(idle, id);
        }
        let Some(origin) = seat.origin else { return };
        let address = self.addresses.get_mut(&origin.address);
        let network = self.networks.get_mut(&origin.network);
        address.into_iter().chain(network).for_each(|share| share.set(id, before, idle));
    }

    /// Removes the holder from its address and network.
    fn release(&mut self, id: u64, origin: Origin, idle: Option<(bool, Instant)>) {
        let (Some(address), Some(network)) =
            (self.addresses.get_mut(&origin.address), self.networks.get_mut(&origin.network))
        else {
            return;
        };
        self.by_held.remove(&(network.used, origin.network));
        address.remove(id, idle);
        network.remove(id, idle);
        network.rank(origin.address, address.used + 1, address.used);
        if network.used > 0 {
            self.by_held.insert((network.used, origin.network));
        } else {
            self.networks.remove(&origin.network);
        }
        if address.used == 0 {
            self.addresses.remove(&origin.address);
        }
    }

    /// Releases the place, unless the holder was evicted already.
    pub(super) fn leave(&mut self, id: u64) {
        let Some(seat) = self.held.remove(&id) else { return };
        if let Some(idle) = seat.idle {
            self.idle.remove(idle, id);
        }
        if let Some(origin) = seat.origin {
            self.release(id, origin, seat.idle);
        }
        shrink(&mut self.held);
        shrink(&mut self.addresses);
        shrink(&mut self.networks);
    }
}

/// Shrinks a mostly empty table.
fn shrink<K: Eq + Hash, V>(table: &mut HashMap<K, V>) {
    if table.capacity() > MIN_CAPACITY && table.len() < table.capacity() / 8 {
        table.shrink_to((table.len() * 2).max(MIN_CAPACITY / 2));
    }
}
