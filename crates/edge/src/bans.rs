//! Whom the operator keeps out for a while: networks and viewers, who may not play, and streams, which
//! nobody may publish. And who was sent away: a pass that was given out before that, or in the same second, holds no
//! more.
//!
//! All of it is bounded in number and time, and this process's alone. Each ban is looked up by what it names, so
//! that a connection costs one look for each length of prefix that is banned, however many bans there are.
//!
//! Who enters something looks here once more afterwards ([`crate::play::begin`], [`crate::ingest::publish`]), and a
//! ban is here before what it names is ended: so one of the two sees the other.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::clock::{unix, unix_now};
use crate::config::Network;
use crate::passes::{LIFETIME, ViewerId};
use crate::sessions::Opening;
use crate::sync::lock;

/// Bans at the same time.
pub(crate) const MAX_BANS: usize = 10_000;
/// Viewers whose old passes hold no more, for as long as those would have held; for a further one the oldest is forgotten.
const MAX_DISMISSED: usize = 10_000;

/// What is kept out.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Target {
    /// Those of a network, in its one form ([`Network::around`]).
    Network(Network),
    /// A viewer, by its number.
    Viewer(ViewerId),
    /// Publishers and upstreams of the stream of this name.
    Stream(String),
}

/// What a ban refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// A connection of HTTP/1.1 or HTTP/2.
    Tcp,
    /// An RTMP connection.
    Rtmp,
    /// A QUIC connection.
    Quic,
    /// A request to play.
    Play,
    /// A request to publish.
    Publish,
}

impl Refused {
    const ALL: [Self; 5] = [Self::Tcp, Self::Rtmp, Self::Quic, Self::Play, Self::Publish];

    const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Rtmp => "rtmp",
            Self::Quic => "quic",
            Self::Play => "play",
            Self::Publish => "publish",
        }
    }
}

/// A ban, as it is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ban {
    /// Its number, never given twice.
    pub id: u64,
    /// What it keeps out.
    pub target: Target,
    /// How long it still holds.
    pub left: Duration,
}

/// There is no room for another ban.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Full;

/// All bans of the process; they outlive every configuration.
#[derive(Debug, Default)]
pub struct Bans {
    table: Mutex<Table>,
    /// Entries of the table: most of the time there are none, and nobody waits for the lock.
    len: AtomicUsize,
    refused: [AtomicU64; Refused::ALL.len()],
}

#[derive(Debug, Default)]
struct Table {
    last: u64,
    by_id: BTreeMap<u64, (Target, Instant)>,
    ids: HashMap<Target, u64>,
    ends: BTreeSet<(Instant, u64)>,
    /// How many networks there are of each kind and length.
    lengths: BTreeMap<(bool, u8), usize>,
    /// When each viewer was last sent away, in seconds since 1970, and the viewers in that order.
    dismissed: HashMap<ViewerId, u64>,
    order: VecDeque<(u64, ViewerId)>,
}

impl Bans {
    /// Keeps the target out from `now` on for this long, instead of as long as it was kept out before. Returns the
    /// ban's number.
    ///
    /// # Errors
    /// There are too many bans.
    pub(crate) fn add(&self, target: Target, span: Duration, now: Instant) -> Result<u64, Full> {
        let mut table = lock(&self.table);
        table.expire(now);
        let known = table.ids.get(&target).copied();
        if known.is_none() && table.by_id.len() >= MAX_BANS {
            return Err(Full);
        }
        let id = known.unwrap_or(table.last + 1);
        table.remove(id);
        table.last = table.last.max(id);
        table.insert(id, target, now + span);
        self.note(&table);
        Ok(id)
    }

    /// Lifts a ban. Returns whom it kept out; `None` if there is no such ban.
    pub(crate) fn remove(&self, id: u64, now: Instant) -> Option<Target> {
        let mut table = lock(&self.table);
        table.expire(now);
        let removed = table.remove(id);
        self.note(&table);
        removed
    }

    /// The bans with numbers above `after`, at most `limit`, and how many others follow.
    pub(crate) fn page(&self, after: u64, limit: usize, now: Instant) -> (Vec<Ban>, usize) {
        let mut table = lock(&self.table);
        table.expire(now);
        let mut rest = table.by_id.range(after.saturating_add(1)..);
        let shown = |(&id, (target, until)): (&u64, &(Target, Instant))| Ban {
            id,
            target: target.clone(),
            left: until.saturating_duration_since(now),
        };
        (rest.by_ref().take(limit).map(shown).collect(), rest.count())
    }

    /// The viewer's passes that were given out until `now` hold no more.
    pub(crate) fn dismiss(&self, viewer: ViewerId, now: SystemTime) {
        let mut table = lock(&self.table);
        let now = unix(now);
        if table.dismissed.insert(viewer, now) != Some(now) {
            table.order.push_back((now, viewer));
        }
        table.forget_dismissed(now);
        self.note(&table);
    }

    /// Whether the viewer was sent away after it was let in, or in the same second: what a pass of then says is no
    /// more exact.
    pub(crate) fn is_dismissed(&self, opening: &Opening) -> bool {
        self.look(|table| table.is_dismissed(opening))
    }

    /// Whether somebody at this address is kept out; counted as `what`.
    pub(crate) fn refuse(&self, what: Refused, address: IpAddr) -> bool {
        self.count_if(what, |table| table.has_address(address))
    }

    /// Whether a viewer is kept out, or its pass holds no more; counted.
    pub(crate) fn refuse_player(&self, opening: &Opening) -> bool {
        self.count_if(Refused::Play, |table| {
            table.is_dismissed(opening)
                || table.ids.contains_key(&Target::Viewer(opening.viewer))
                || table.has_address(opening.remote)
        })
    }

    /// Whether the stream is kept out; counted.
    pub(crate) fn refuse_stream(&self, name: &str) -> bool {
        self.count_if(Refused::Publish, |table| table.has_stream(name))
    }

    /// Whether the stream is kept out.
    pub(crate) fn has_stream(&self, name: &str) -> bool {
        self.look(|table| table.has_stream(name))
    }

    /// Bans now.
    pub(crate) fn count(&self, now: Instant) -> usize {
        let mut table = lock(&self.table);
        table.expire(now);
        table.by_id.len()
    }

    /// What was refused so far.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = Refused::ALL.into_iter().zip(&self.refused);
        counts.map(|(what, count)| (what.name(), count.load(Ordering::Relaxed)))
    }

    fn count_if(&self, what: Refused, is_refused: impl FnOnce(&Table) -> bool) -> bool {
        let refused = self.look(is_refused);
        self.refused[what as usize].fetch_add(u64::from(refused), Ordering::Relaxed);
        refused
    }

    fn look(&self, look: impl FnOnce(&Table) -> bool) -> bool {
        if self.len.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut table = lock(&self.table);
        table.expire(Instant::now());
        table.forget_dismissed(unix_now());
        self.note(&table);
        look(&table)
    }

    fn note(&self, table: &Table) {
        self.len.store(table.by_id.len() + table.dismissed.len(), Ordering::Release);
    }
}

impl Table {
    fn is_dismissed(&self, opening: &Opening) -> bool {
        let dismissed = self.dismissed.get(&opening.viewer);
        dismissed.is_some_and(|at| unix(opening.granted) <= *at)
    }

    /// Forgets those whose passes have ended by themselves, and the oldest of too many.
    fn forget_dismissed(&mut self, now: u64) {
        let is_over = |at: u64| at + LIFETIME.as_secs() < now;
        while let Some(&(at, viewer)) = self.order.front()
            && (is_over(at) || self.order.len() > MAX_DISMISSED)
        {
            self.order.pop_front();
            // Not if it was sent away again since.
            if self.dismissed.get(&viewer) == Some(&at) {
                self.dismissed.remove(&viewer);
            }
        }
    }

    fn has_address(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let lengths = self.lengths.range((address.is_ipv4(), 0)..=(address.is_ipv4(), u8::MAX));
        lengths.into_iter().any(|((_, bits), _)| {
            self.ids.contains_key(&Target::Network(Network::around(address, *bits)))
        })
    }

    fn has_stream(&self, name: &str) -> bool {
        self.ids.contains_key(&Target::Stream(name.to_owned()))
    }

    fn insert(&mut self, id: u64, target: Target, until: Instant) {
        if let Target::Network(network) = target {
            *self.lengths.entry((network.is_ipv4(), network.bits())).or_default() += 1;
        }
        self.ids.insert(target.clone(), id);
        self.ends.insert((until, id));
        self.by_id.insert(id, (target, until));
    }

    fn remove(&mut self, id: u64) -> Option<Target> {
        let (target, until) = self.by_id.remove(&id)?;
        self.ends.remove(&(until, id));
        self.ids.remove(&target);
        if let Target::Network(network) = target {
            let key = (network.is_ipv4(), network.bits());
            let left = self.lengths.remove(&key).unwrap_or(1) - 1;
            if left > 0 {
                self.lengths.insert(key, left);
            }
        }
        Some(target)
    }

    fn expire(&mut self, now: Instant) {
        while let Some(&(until, id)) = self.ends.first()
            && until <= now
        {
            self.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::viewer::Protocol;

    const MINUTE: Duration = Duration::from_secs(60);

    fn network(address: &str, bits: u8) -> Target {
        Target::Network(Network::around(address.parse().expect(address), bits))
    }

    fn opening(viewer: ViewerId, remote: &str, granted: SystemTime) -> Opening {
        Opening {
            stream: "live/a".into(),
            protocol: Protocol::Http3,
            format: "hls",
            remote: remote.parse().expect(remote),
            viewer,
            granted,
            until: None,
            unit: None,
            cohort: String::new(),
            scheme: "",
            tcp: None,
        }
    }

    #[test]
    fn a_network_is_kept_out_for_its_time_and_nobody_else_is() {
        let (bans, now) = (Bans::default(), Instant::now());
        let is_out = |address: &str| bans.refuse(Refused::Tcp, address.parse().expect(address));
        assert!(!is_out("192.0.2.7"));
        bans.add(network("192.0.2.7", 32), MINUTE, now).expect("room");
        bans.add(network("198.51.100.0", 24), MINUTE, now).expect("room");
        let id = bans.add(network("2001:db8:1:2::", 64), MINUTE, now).expect("room");
        for address in ["192.0.2.7", "::ffff:192.0.2.7", "198.51.100.200", "2001:db8:1:2:3::4"] {
            assert!(is_out(address), "{address}");
        }
        for address in ["192.0.2.6", "198.51.101.1", "2001:db8:1:3::4", "::1"] {
            assert!(!is_out(address), "{address}");
        }
        assert_eq!(bans.refused().next(), Some(("tcp", 4)));
        assert_eq!(bans.remove(id, now), Some(network("2001:db8:1:2::", 64)));
        assert_eq!(bans.remove(id, now), None);
        assert!(!is_out("2001:db8:1:2:3::4"));
        assert_eq!(bans.count(now + MINUTE), 0);
        assert!(!is_out("192.0.2.7"));
        let table = lock(&bans.table);
        assert!(table.lengths.is_empty() && table.ids.is_empty() && table.ends.is_empty());
    }

    #[test]
    fn a_ban_of_the_same_takes_the_place_of_the_first() {
        let (bans, now) = (Bans::default(), Instant::now());
        let first = bans.add(network("192.0.2.7", 32), MINUTE * 10, now);
        assert_eq!(bans.add(network("192.0.2.7", 32), MINUTE, now), first);
        let other = bans.add(network("192.0.2.7", 31), MINUTE, now).expect("room");
        assert_eq!(bans.count(now), 2);
        let (page, left_out) = bans.page(0, 1, now);
        assert_eq!((page[0].left, left_out), (MINUTE, 1));
        assert_eq!(bans.page(page[0].id, 10, now).0[0].id, other);
        assert_eq!(bans.page(u64::MAX, 10, now), (vec![], 0));
        assert_eq!(bans.count(now + MINUTE), 0);
        let next = bans.add(network("192.0.2.7", 32), MINUTE, now + MINUTE).expect("room");
        assert!(next > other, "no number comes again");
    }

    #[test]
    fn a_pass_from_before_a_dismissal_holds_no_more_and_a_new_one_does() {
        let (bans, viewer) = (Bans::default(), ViewerId::random());
        let now = unix_now();
        let at = |seconds: i64| {
            SystemTime::UNIX_EPOCH + Duration::from_secs(now.saturating_add_signed(seconds))
        };
        let half = Duration::from_millis(500);
        bans.dismiss(viewer, at(0) + half);
        assert!(bans.refuse_player(&opening(viewer, "192.0.2.7", at(0))));
        let same_second = opening(viewer, "192.0.2.7", at(0) + half + half / 2);
        assert!(bans.is_dismissed(&same_second), "its pass would say what an older one says");
        assert!(!bans.is_dismissed(&opening(viewer, "192.0.2.7", at(1))));
        assert!(!bans.refuse_player(&opening(viewer, "192.0.2.7", at(1))));
        assert!(!bans.refuse_player(&opening(ViewerId::random(), "192.0.2.7", at(-99))));
        bans.add(Target::Viewer(viewer), MINUTE, Instant::now()).expect("room");
        assert!(bans.refuse_player(&opening(viewer, "192.0.2.7", at(1))), "a ban is for all");
        assert_eq!(bans.refused().find(|(what, _)| *what == "play"), Some(("play", 2)));
    }

    #[test]
    fn a_dismissal_is_forgotten_when_the_passes_from_before_it_have_ended() {
        let (bans, [old, new]) = (Bans::default(), [(); 2].map(|()| ViewerId::random()));
        let ago = |span| SystemTime::now() - span;
        bans.dismiss(old, ago(LIFETIME + MINUTE));
        bans.dismiss(new, ago(LIFETIME - MINUTE));
        let is_out = |viewer| bans.refuse_player(&opening(viewer, "192.0.2.7", ago(LIFETIME * 2)));
        assert!(!is_out(old) && is_out(new));
        assert_eq!(lock(&bans.table).order.len(), 1);
        let bans = Bans::default();
        bans.dismiss(old, ago(LIFETIME + MINUTE));
        assert!(!bans.refuse(Refused::Tcp, [192, 0, 2, 7].into()));
        assert_eq!(bans.len.load(Ordering::Acquire), 0, "nobody waits for the lock any more");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let (bans, now) = (Bans::default(), Instant::now());
        for n in 0..MAX_BANS as u32 {
            let target = Target::Network(Network::around(IpAddr::V4(n.into()), 32));
            bans.add(target, MINUTE, now).expect("room");
        }
        assert_eq!(bans.add(network("2001:db8::", 64), MINUTE, now), Err(Full));
        assert!(bans.add(network("0.0.0.0", 32), MINUTE, now).is_ok(), "it is known");
        assert!(bans.add(network("2001:db8::", 64), MINUTE, now + MINUTE).is_ok(), "they ended");
        for _ in 0..2 * MAX_DISMISSED {
            bans.dismiss(ViewerId::random(), SystemTime::now());
        }
        // The same one again and again.
        let viewer = ViewerId::random();
        for _ in 0..2 * MAX_DISMISSED {
            bans.dismiss(viewer, SystemTime::now());
        }
        let table = lock(&bans.table);
        assert!(table.dismissed.len() <= MAX_DISMISSED && table.order.len() <= MAX_DISMISSED);
        assert!(table.dismissed.contains_key(&viewer));
    }
}
