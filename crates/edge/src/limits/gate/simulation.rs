//! Simulated attacks on gates, from a single address to a whole network, beside honest clients.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use super::*;
use crate::config::Config;
use crate::limits::Place;

/// Origin of an attack.
#[derive(Clone, Copy, Debug)]
enum From {
    /// This many addresses, each in its own network.
    Spread(u32),
    /// All addresses of a /24.
    One24,
    /// The first addresses of 198.51.100.0/24.
    Of24(u32),
    /// All /64 of a /48.
    One48,
}

impl From {
    fn address(self, n: u32) -> IpAddr {
        match self {
            Self::Spread(count) => Ipv4Addr::from(0x0b00_0001 + (n % count) * 256).into(),
            Self::One24 => Ipv4Addr::from(0xc633_6400 + n % 256).into(),
            Self::Of24(count) => Ipv4Addr::from(0xc633_6400 + n % count).into(),
            Self::One48 => {
                let subnet = u128::from(n.wrapping_mul(2_654_435_761) % 65_536) << 64;
                Ipv6Addr::from(0x2001_0db8_0001_u128 << 80 | subnet | u128::from(n)).into()
            }
        }
    }
}

/// Behaviour of honest clients and attackers.
#[derive(Clone, Copy, Debug)]
struct Scenario {
    place: Place,
    /// How long honest clients need their place.
    stay: Duration,
    /// Whether attackers look busy to the server.
    are_attackers_busy: bool,
    /// Whether honest clients share the attacked /24 (198.51.100.0/24); otherwise each has its own
    /// network.
    are_neighbours: bool,
}

/// Returns the share of 60 honest clients (1 per second, one address each) that get a place and
/// keep it as long as needed, beside 500 newcomers per second that keep their places as long as
/// possible.
fn served(from: From, scenario: Scenario, config: &Config) -> f64 {
    let bounds = scenario.place.bounds(config);
    let (mut seats, start) = (Seats::default(), Instant::now());
    let mut staying: VecDeque<(Instant, u64)> = VecDeque::new();
    let (mut count, mut lost) = (0, 0);
    // Honest clients start when the attack has run for a while.
    for tick in 0..50_000_u32 {
        let now = start + Duration::from_millis(2) * tick;
        let origin = Some(Origin::of(from.address(tick)));
        if let Ok(id) = seats.enter(now, origin, bounds, &Arc::default())
            && scenario.are_attackers_busy
        {
            seats.set_idle(id, None);
        }
        if tick >= 20_000 && tick % 500 == 0 {
            count += 1;
            let address = if scenario.are_neighbours {
                Ipv4Addr::from(0xc633_6400 + 100 + count)
            } else {
                Ipv4Addr::from(0x1700_0001 + tick * 256)
            };
            match seats.enter(now, Some(Origin::of(address.into())), bounds, &Arc::default()) {
                Ok(id) => staying.push_back((now + scenario.stay, id)),
                Err(_) => lost += 1,
            }
        }
        while let Some(&(until, id)) = staying.front().filter(|(until, _)| *until <= now) {
            staying.pop_front();
            lost += u32::from(!seats.held.contains_key(&id));
            seats.leave(id);
            let _ = until;
        }
    }
    lost += staying.iter().filter(|(_, id)| !seats.held.contains_key(id)).count() as u32;
    1.0 - f64::from(lost) / f64::from(count)
}

const ATTACKS: [From; 6] = [
    From::Spread(1),
    From::Spread(2),
    From::Spread(16),
    From::Spread(256),
    From::One24,
    From::One48,
];

#[test]
fn honest_clients_get_in_during_floods() {
    // The flood fills a small number of places. Busy attackers get more places: networks with 256
    // addresses then hold more than the busy holders of small networks.
    let mut config = Config::default();
    config.quic.max_connections = 10_000;
    config.tcp.max_connections = 1_000;
    let mut busy = config.clone();
    busy.rtmp.max_connections = 20_000;
    let second = Duration::from_secs(1);
    for (place, stay) in [
        (Place::RtmpNewcomer, second * 2),
        (Place::Handshake, second * 2),
        (Place::Tcp, second * 30),
        (Place::Quic, second * 30),
        (Place::RtmpPlayer, second * 30),
        (Place::HlsSession, second * 30),
    ] {
        for from in ATTACKS {
            let are_attackers_busy = !place.has_idle();
            let config = if are_attackers_busy { &busy } else { &config };
            let share = served(
                from,
                Scenario { place, stay, are_attackers_busy, are_neighbours: false },
                config,
            );
            assert!(share >= 0.95, "{place:?} {from:?}: {share}");
        }
    }
}

#[test]
fn sixteen_busy_addresses_do_not_fill_all_places() {
    let mut config = Config::default();
    // Also on a small server, where each address holds few places.
    for max_connections in [config.tcp.max_connections, 200] {
        config.tcp.max_connections = max_connections;
        for from in [From::Spread(16), From::Of24(16), From::One48] {
            let scenario = Scenario {
                place: Place::Tcp,
                stay: Duration::from_secs(30),
                are_attackers_busy: true,
                are_neighbours: matches!(from, From::Of24(_)),
            };
            let share = served(from, scenario, &config);
            assert!(share >= 0.95, "{max_connections} {from:?}: {share}");
        }
    }
}

#[test]
fn honest_clients_of_the_attacking_network_get_in() {
    let mut config = Config::default();
    config.quic.max_connections = 10_000;
    config.tcp.max_connections = 1_000;
    let second = Duration::from_secs(1);
    for (place, stay, are_attackers_busy) in [
        (Place::RtmpNewcomer, second * 2, false),
        (Place::Handshake, second * 2, false),
        (Place::Tcp, second * 30, false),
        (Place::Tcp, second * 30, true),
        (Place::Quic, second * 30, true),
        (Place::RtmpPlayer, second * 30, true),
    ] {
        for from in [From::Of24(1), From::Of24(2), From::Of24(16)] {
            let scenario = Scenario { place, stay, are_attackers_busy, are_neighbours: true };
            let share = served(from, scenario, &config);
            assert!(share >= 0.95, "{scenario:?} {from:?}: {share}");
        }
    }
}

#[test]
fn nobody_is_evicted_while_places_are_free() {
    let mut config = Config::default();
    config.tcp.max_connections_per_address = 1_000;
    let bounds = Place::Tcp.bounds(&config);
    let mut seats = Seats::default();
    let now = Instant::now();
    let mut enter = |address: Ipv4Addr| {
        let id = seats.enter(now, Some(Origin::of(address.into())), bounds, &Arc::default());
        id.inspect(|id| seats.set_idle(*id, None))
    };
    assert!((0..500).all(|_| enter(Ipv4Addr::new(192, 0, 2, 1)).is_ok()));
    assert!((0..500).all(|n| enter(Ipv4Addr::new(198, 51, 100, n as u8)).is_ok()));
    assert!((0..100).all(|n| enter(Ipv4Addr::new(203, 0, n, 1)).is_ok()));
    assert_eq!(seats.counts().evicted, 0);
}

#[test]
fn busy_viewers_of_small_networks_are_not_evicted() {
    let bounds = Bounds { all: 300, per_address: 100, evicts_busy: true };
    let (mut seats, now) = (Seats::default(), Instant::now());
    let mut enter = |network: u32| {
        let origin = Origin::of(Ipv4Addr::from(0x1700_0001 + network * 256).into());
        let id = seats.enter(now, Some(origin), bounds, &Arc::default())?;
        seats.set_idle(id, None);
        Ok::<_, Full>(id)
    };
    // Fifty networks with six viewers each.
    assert!((0..300).all(|n| enter(n % 50).is_ok()));
    assert_eq!(enter(50), Err(Full::All));
    assert_eq!(enter(0), Err(Full::All));
    assert_eq!(seats.counts().evicted, 0);
}
