//! Unit tests of a gate, with a manual clock.

use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::time::Duration;

use super::seats::{Idle, MIN_CAPACITY};
use super::*;

const BOUNDS: Bounds = Bounds { all: 4, per_address: 2, evicts_busy: true };

/// Seats with a manual clock.
struct Room {
    seats: Seats,
    now: Instant,
    bells: HashMap<u64, Arc<Bell>>,
}

impl Room {
    fn new() -> Self {
        Self { seats: Seats::default(), now: Instant::now(), bells: HashMap::new() }
    }

    fn enter(&mut self, address: &str) -> Result<u64, Full> {
        let bell = Arc::new(Bell::default());
        let id = self.seats.enter(self.now, Some(origin(address)), BOUNDS, &bell)?;
        self.bells.insert(id, bell);
        Ok(id)
    }

    fn busy(&mut self, address: &str) -> Result<u64, Full> {
        let id = self.enter(address)?;
        self.seats.set_idle(id, None);
        Ok(id)
    }

    fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    fn has(&self, id: u64) -> bool {
        self.seats.held.contains_key(&id)
    }

    /// Checks that all sums and indices agree.
    fn check(&self) {
        let known = self.seats.held.values().filter(|seat| seat.origin.is_some()).count();
        for shares in [&self.seats.addresses, &self.seats.networks] {
            assert_eq!(shares.values().map(|share| share.used as usize).sum::<usize>(), known);
        }
        let by_held: BTreeSet<_> =
            self.seats.networks.iter().map(|(network, share)| (share.used, *network)).collect();
        assert_eq!(self.seats.by_held, by_held);
        let of_networks: usize = self.seats.networks.values().map(|n| n.addresses.len()).sum();
        assert_eq!(of_networks, self.seats.addresses.len());
        for (used, address) in self.seats.networks.values().flat_map(|n| &n.addresses) {
            assert_eq!(self.seats.addresses[address].used, *used);
        }
        let count = |idle: &Idle| idle.0.iter().map(BTreeSet::len).sum::<usize>();
        let idle = self.seats.held.values().filter(|seat| seat.idle.is_some()).count();
        assert_eq!(count(&self.seats.idle), idle);
        for shares in [&self.seats.addresses, &self.seats.networks] {
            let of_shares: usize = shares.values().map(|share| count(&share.idle)).sum();
            assert!(of_shares <= idle);
            let busy: usize = shares.values().map(|share| share.busy.len()).sum();
            assert_eq!(busy + of_shares, known);
        }
    }
}

fn origin(address: &str) -> Origin {
    Origin::of(address.parse().expect("an address"))
}

#[test]
fn origins_group_by_prefix() {
    let address = |text| origin(text).address;
    assert_eq!(address("192.0.2.1"), address("::ffff:192.0.2.1"));
    assert_ne!(address("192.0.2.1"), address("192.0.2.2"));
    assert_eq!(address("2001:db8::1"), address("2001:db8:0:ff::2"));
    assert_ne!(address("2001:db8::1"), address("2001:db8:0:100::1"));
    let network = |text| origin(text).network;
    assert_eq!(network("192.0.2.1"), network("192.0.2.254"));
    assert_ne!(network("192.0.2.1"), network("192.0.3.1"));
    assert_eq!(network("2001:db8::1"), network("2001:db8:0:ffff::1"));
    assert_ne!(network("2001:db8::1"), network("2001:db8:1::1"));
}

#[test]
fn address_limit_and_total_limit_apply() {
    let mut room = Room::new();
    assert!(room.busy("192.0.1.1").is_ok() && room.busy("192.0.1.1").is_ok());
    assert_eq!(room.busy("192.0.1.1"), Err(Full::Address));
    assert!(room.busy("192.0.2.1").is_ok() && room.busy("192.0.3.1").is_ok());
    assert_eq!(room.busy("192.0.4.1"), Err(Full::All));
    let GateCounts { full, address, evicted, .. } = room.seats.counts();
    assert_eq!((full, address, evicted), (1, 1, 0));
    room.check();
}

#[test]
fn released_place_is_free() {
    let gate = Arc::new(Gate::default());
    let enter = || {
        gate.enter(Some(origin("192.0.2.1")), Bounds { all: 1, per_address: 1, evicts_busy: true })
    };
    let first = enter().expect("free");
    assert_eq!(enter().err(), Some(Full::Address));
    drop(first);
    let second = enter().expect("free again");
    assert_eq!(gate.counts().used, 1);
    drop(second);
    assert_eq!(gate.counts().used, 0);
    assert!(lock(&gate.0).addresses.is_empty() && lock(&gate.0).networks.is_empty());
}

#[test]
fn longest_idle_holder_is_evicted_and_notified() {
    let mut room = Room::new();
    let busy = room.busy("192.0.1.1").expect("free");
    let first = room.enter("192.0.2.1").expect("free");
    room.wait(1);
    let second = room.enter("192.0.3.1").expect("free");
    let third = room.enter("192.0.4.1").expect("free");
    room.wait(1);
    assert_eq!(room.enter("192.0.5.1"), Err(Full::All), "a handshake may take a while");
    room.wait(1);
    let newcomer = room.enter("192.0.5.1").expect("room is made");
    assert!(!room.has(first));
    assert!([busy, second, third, newcomer].into_iter().all(|id| room.has(id)));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("made");
    runtime.block_on(room.bells[&first].rung());
    assert_eq!(room.seats.counts().evicted, 1);
    room.seats.leave(first);
    assert_eq!(room.seats.held.len(), 4, "its place is not given back twice");
    room.check();
}

#[test]
fn full_address_evicts_its_own_idle_holder() {
    let mut room = Room::new();
    let other = room.enter("192.0.2.9").expect("free");
    room.wait(1);
    let first = room.enter("192.0.2.1").expect("free");
    let second = room.enter("192.0.2.1").expect("free");
    room.wait(5);
    let third = room.enter("192.0.2.1").expect("room is made");
    assert!(!room.has(first));
    assert!([other, second, third].into_iter().all(|id| room.has(id)));
    room.check();
}

#[test]
fn holders_without_work_are_evicted_before_pausing_ones() {
    let mut room = Room::new();
    let player = room.busy("192.0.1.1").expect("free");
    room.seats.set_idle(player, Some((true, room.now)));
    room.wait(9);
    let silent: Vec<_> = (2..5).map(|n| room.enter(&format!("192.0.{n}.1"))).collect();
    room.wait(3);
    for (newcomer, silent) in (5..8).zip(silent) {
        room.busy(&format!("192.0.{newcomer}.1")).expect("room is made");
        assert!(!room.has(silent.expect("free")));
    }
    assert!(room.has(player));
    room.busy("192.0.8.1").expect("room is made");
    assert!(!room.has(player), "it has paused for more than 10 s");
    room.check();
}

#[test]
fn largest_address_of_the_largest_network_is_evicted() {
    let mut room = Room::new();
    let neighbour = room.enter("192.0.2.1").expect("free");
    room.wait(1);
    let first = room.enter("192.0.2.2").expect("free");
    let second = room.enter("192.0.2.2").expect("free");
    room.busy("192.0.3.1").expect("free");
    let stranger = room.busy("192.0.4.1").expect("room is made");
    assert!(room.has(neighbour) && room.has(second) && !room.has(first));
    // A newcomer of the same network evicts a holder of an address with two more places.
    room.seats.leave(stranger);
    room.enter("192.0.2.2").expect("free");
    let other = room.enter("192.0.2.3").expect("room is made");
    assert!(room.has(neighbour) && room.has(other) && !room.has(second));
    assert_eq!(room.enter("192.0.2.4"), Err(Full::All), "nobody holds two more");
    room.check();
}

#[test]
fn waker_set_after_eviction_is_woken_at_once() {
    use std::sync::atomic::{AtomicBool, Ordering};

    struct Count(AtomicBool);
    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let gate = Arc::new(Gate::default());
    let bounds = Bounds { all: 2, per_address: 2, evicts_busy: true };
    let enter = |address| gate.enter(Some(origin(address)), bounds).expect("a place");
    let permits = [enter("192.0.2.1"), enter("192.0.2.1"), enter("192.0.3.1")];
    let gone = permits.iter().find(|permit| permit.is_evicted()).expect("evicted");
    let count = Arc::new(Count(AtomicBool::new(false)));
    gone.wake_on_eviction(count.clone().into());
    assert!(count.0.load(Ordering::Relaxed));
}

#[test]
fn touch_restarts_the_idle_time() {
    let mut room = Room::new();
    let ids: Vec<_> = (1..5).map(|n| room.enter(&format!("192.0.{n}.1")).expect("free")).collect();
    room.wait(9);
    room.seats.touch(ids[0], room.now);
    room.wait(3);
    assert!((5..8).all(|n| room.enter(&format!("192.0.{n}.1")).is_ok()));
    assert_eq!(room.enter("192.0.8.1"), Err(Full::All));
    assert!(room.has(ids[0]));
    assert!(ids[1..].iter().all(|id| !room.has(*id)));
    room.seats.set_idle(ids[0], None);
    room.wait(1);
    room.seats.touch(ids[0], room.now);
    assert_eq!(room.seats.held[&ids[0]].idle, None, "busy stays busy");
    room.check();
}

#[test]
fn client_behind_a_proxy_counts_for_its_own_address() {
    let mut room = Room::new();
    let bell = Arc::new(Bell::default());
    let ids: Vec<_> = (0..3)
        .map(|_| room.seats.enter(room.now, None, BOUNDS, &bell).expect("not limited by address"))
        .collect();
    let client = Some(origin("192.0.2.1"));
    assert_eq!(room.seats.move_to(room.now, ids[0], client, BOUNDS), Ok(()));
    assert_eq!(room.seats.move_to(room.now, ids[1], client, BOUNDS), Ok(()));
    assert_eq!(room.seats.move_to(room.now, ids[2], client, BOUNDS), Err(Full::Address));
    assert_eq!(room.enter("192.0.2.1"), Err(Full::Address));
    room.check();
    ids.into_iter().for_each(|id| room.seats.leave(id));
    assert!(room.seats.addresses.is_empty() && room.seats.networks.is_empty());
}

#[test]
fn flood_leaves_no_memory_behind() {
    let mut room = Room::new();
    let bounds = Bounds { all: 100_000, per_address: 1, evicts_busy: true };
    let bell = Arc::new(Bell::default());
    let ids: Vec<_> = (0..50_000u32)
        .map(|n| {
            room.seats
                .enter(room.now, Some(Origin::of(Ipv4Addr::from(n).into())), bounds, &bell)
                .expect("free")
        })
        .collect();
    ids.into_iter().for_each(|id| room.seats.leave(id));
    assert!(room.seats.held.capacity() <= 2 * MIN_CAPACITY, "{}", room.seats.held.capacity());
    assert!(
        room.seats.addresses.capacity() <= 2 * MIN_CAPACITY,
        "{}",
        room.seats.addresses.capacity()
    );
    room.check();
}

/// Pseudo-random numbers (Marsaglia's xorshift64).
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn random_operations_keep_sums_and_bounds() {
    for seed in 1..=50u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut room = Room::new();
        let mut ids = Vec::new();
        for _ in 0..400 {
            let pick = random(&mut state);
            let address = format!("192.0.2.{}", pick >> 8 & 3);
            match pick & 7 {
                0..=2 => ids.extend(room.enter(&address)),
                3 if !ids.is_empty() => {
                    room.seats.leave(ids.swap_remove((pick >> 16) as usize % ids.len()));
                }
                4 | 5 => {
                    let idle = (pick & 8 == 0).then_some((pick & 16 == 0, room.now));
                    ids.iter().take(1).for_each(|id| room.seats.set_idle(*id, idle));
                }
                _ => room.wait(pick >> 32 & 3),
            }
            room.check();
            assert!(room.seats.held.len() <= 4, "seed {seed}");
            assert!(room.seats.addresses.values().all(|share| share.used <= 2), "seed {seed}");
        }
    }
}
