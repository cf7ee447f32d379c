//! Temporary bans of networks and viewers, who may not play, and of streams, which may not be
//! published. Also dismissals of viewers, which invalidate passes issued until that second.
//!
//! Both are bounded in number and time, and local to this process. Checking an address costs one
//! look-up per banned prefix length, independent of the number of bans.
//!
//! No race lets a banned target through: sessions and publications check the bans again after
//! their start ([`crate::play::begin`], [`crate::ingest::publish`]), and a ban is added before its
//! targets are ended.

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

/// Maximum number of bans.
pub(crate) const MAX_BANS: usize = 10_000;
/// Maximum number of dismissed viewers. A dismissal is kept until the passes before it expire; a
/// further one evicts the oldest.
const MAX_DISMISSED: usize = 10_000;

/// The target of a ban.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum BanTarget {
    /// A network, in canonical form ([`Network::around`]).
    Network(Network),
    /// A viewer, by its number.
    Viewer(ViewerId),
    /// Publishers and upstreams of a stream.
    Stream(String),
}

/// Kind of a rejection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// An HTTP/1.1 or HTTP/2 connection.
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

/// A ban, for display.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ban {
    /// Its number, never reused.
    pub id: u64,
    /// Its target.
    pub target: BanTarget,
    /// Time until it expires.
    pub left: Duration,
}

/// The error at [`MAX_BANS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BansFull;

/// All bans of the process. Reloads keep them.
#[derive(Debug, Default)]
pub struct Bans {
    table: Mutex<BanTable>,
    /// Number of entries. Usually 0, which avoids the lock.
    len: AtomicUsize,
    refused: [AtomicU64; Refused::ALL.len()],
}

#[derive(Debug, Default)]
struct BanTable {
    last: u64,
    by_id: BTreeMap<u64, (BanTarget, Instant)>,
    ids: HashMap<BanTarget, u64>,
    ends: BTreeSet<(Instant, u64)>,
    /// Number of banned networks by family (true for IPv4) and prefix length.
    lengths: BTreeMap<(bool, u8), usize>,
    /// Last dismissal of each viewer in seconds since 1970, and the viewers in that order.
    dismissed: HashMap<ViewerId, u64>,
    order: VecDeque<(u64, ViewerId)>,
}

impl Bans {
    /// Bans the target for `span`, or replaces the span of its ban. Returns the ban's number.
    ///
    /// # Errors
    /// There are [`MAX_BANS`] bans.
    pub(crate) fn add(
        &self,
        target: BanTarget,
        span: Duration,
        now: Instant,
    ) -> Result<u64, BansFull> {
        let mut table = lock(&self.table);
        table.expire(now);
        let known = table.ids.get(&target).copied();
        if known.is_none() && table.by_id.len() >= MAX_BANS {
            return Err(BansFull);
        }
        let id = known.unwrap_or(table.last + 1);
        table.remove(id);
        table.last = table.last.max(id);
        table.insert(id, target, now + span);
        self.update_len(&table);
        Ok(id)
    }

    /// Lifts a ban. Returns its target; `None` if there is no such ban.
    pub(crate) fn remove(&self, id: u64, now: Instant) -> Option<BanTarget> {
        let mut table = lock(&self.table);
        table.expire(now);
        let removed = table.remove(id);
        self.update_len(&table);
        removed
    }

    /// Returns up to `limit` bans with numbers above `after`, and the number of further ones.
    pub(crate) fn page(&self, after: u64, limit: usize, now: Instant) -> (Vec<Ban>, usize) {
        let mut table = lock(&self.table);
        table.expire(now);
        let mut rest = table.by_id.range(after.saturating_add(1)..);
        let shown = |(&id, (target, until)): (&u64, &(BanTarget, Instant))| Ban {
            id,
            target: target.clone(),
            left: until.saturating_duration_since(now),
        };
        (rest.by_ref().take(limit).map(shown).collect(), rest.count())
    }

    /// Invalidates the viewer's passes issued until `now`.
    pub(crate) fn dismiss(&self, viewer: ViewerId, now: SystemTime) {
        let mut table = lock(&self.table);
        let now = unix(now);
        if table.dismissed.insert(viewer, now) != Some(now) {
            table.order.push_back((now, viewer));
        }
        table.forget_dismissed(now);
        self.update_len(&table);
    }

    /// Returns true if the viewer was dismissed after its admission, or in the same second, which
    /// is the resolution of passes.
    pub(crate) fn is_dismissed(&self, opening: &Opening) -> bool {
        self.look(|table| table.is_dismissed(opening))
    }

    /// Returns true if the address is banned, and counts the rejection as `what`.
    pub(crate) fn refuse(&self, what: Refused, address: IpAddr) -> bool {
        self.count_if(what, |table| table.has_address(address))
    }

    /// Returns true if a viewer is banned or dismissed, and counts the rejection.
    pub(crate) fn refuse_player(&self, opening: &Opening) -> bool {
        self.count_if(Refused::Play, |table| {
            table.is_dismissed(opening)
                || table.ids.contains_key(&BanTarget::Viewer(opening.viewer))
                || table.has_address(opening.remote)
        })
    }

    /// Returns true if the stream is banned, and counts the rejection.
    pub(crate) fn refuse_stream(&self, name: &str) -> bool {
        self.count_if(Refused::Publish, |table| table.has_stream(name))
    }

    /// Returns true if the stream is banned.
    pub(crate) fn has_stream(&self, name: &str) -> bool {
        self.look(|table| table.has_stream(name))
    }

    /// Returns the number of bans.
    pub(crate) fn count(&self, now: Instant) -> usize {
        let mut table = lock(&self.table);
        table.expire(now);
        table.by_id.len()
    }

    /// Returns the rejections by kind.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = Refused::ALL.into_iter().zip(&self.refused);
        counts.map(|(what, count)| (what.name(), count.load(Ordering::Relaxed)))
    }

    fn count_if(&self, what: Refused, is_refused: impl FnOnce(&BanTable) -> bool) -> bool {
        let refused = self.look(is_refused);
        self.refused[what as usize].fetch_add(u64::from(refused), Ordering::Relaxed);
        refused
    }

    fn look(&self, look: impl FnOnce(&BanTable) -> bool) -> bool {
        if self.len.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut table = lock(&self.table);
        table.expire(Instant::now());
        table.forget_dismissed(unix_now());
        self.update_len(&table);
        look(&table)
    }

    fn update_len(&self, table: &BanTable) {
        self.len.store(table.by_id.len() + table.dismissed.len(), Ordering::Release);
    }
}

impl BanTable {
    fn is_dismissed(&self, opening: &Opening) -> bool {
        let dismissed = self.dismissed.get(&opening.viewer);
        dismissed.is_some_and(|at| unix(opening.granted) <= *at)
    }

    /// Removes dismissals older than any valid pass, and the oldest beyond the maximum.
    fn forget_dismissed(&mut self, now: u64) {
        let is_over = |at: u64| at + LIFETIME.as_secs() < now;
        while let Some(&(at, viewer)) = self.order.front()
            && (is_over(at) || self.order.len() > MAX_DISMISSED)
        {
            self.order.pop_front();
            // A later dismissal of the same viewer stays.
            if self.dismissed.get(&viewer) == Some(&at) {
                self.dismissed.remove(&viewer);
            }
        }
    }

    fn has_address(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let lengths = self.lengths.range((address.is_ipv4(), 0)..=(address.is_ipv4(), u8::MAX));
        lengths.into_iter().any(|((_, bits), _)| {
            self.ids.contains_key(&BanTarget::Network(Network::around(address, *bits)))
        })
    }

    fn has_stream(&self, name: &str) -> bool {
        self.ids.contains_key(&BanTarget::Stream(name.to_owned()))
    }

    fn insert(&mut self, id: u64, target: BanTarget, until: Instant) {
        if let BanTarget::Network(network) = target {
            *self.lengths.entry((network.is_ipv4(), network.bits())).or_default() += 1;
        }
        self.ids.insert(target.clone(), id);
        self.ends.insert((until, id));
        self.by_id.insert(id, (target, until));
    }

    fn remove(&mut self, id: u64) -> Option<BanTarget> {
        let (target, until) = self.by_id.remove(&id)?;
        self.ends.remove(&(until, id));
        self.ids.remove(&target);
        if let BanTarget::Network(network) = target {
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

    fn network(address: &str, bits: u8) -> BanTarget {
        BanTarget::Network(Network::around(address.parse().expect(address), bits))
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
    fn a_ban_rejects_its_network_until_it_expires() {
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
    fn a_ban_of_the_same_target_replaces_the_first() {
        let (bans, now) = (Bans::default(), Instant::now());
        let first = bans.add(network("192.0.2.7", 32), MINUTE * 10, now);
        assert_eq!(bans.add(network("192.0.2.7", 32), MINUTE, now), first);
        let other = bans.add(network("192.0.2.7", 31), MINUTE, now).expect("room");
        assert_eq!(bans.count(now), 2);
        let (page, further) = bans.page(0, 1, now);
        assert_eq!((page[0].left, further), (MINUTE, 1));
        assert_eq!(bans.page(page[0].id, 10, now).0[0].id, other);
        assert_eq!(bans.page(u64::MAX, 10, now), (vec![], 0));
        assert_eq!(bans.count(now + MINUTE), 0);
        let next = bans.add(network("192.0.2.7", 32), MINUTE, now + MINUTE).expect("room");
        assert!(next > other, "numbers are not reused");
    }

    #[test]
    fn a_dismissal_invalidates_earlier_passes_only() {
        let (bans, viewer) = (Bans::default(), ViewerId::random());
        let now = unix_now();
        let at = |seconds: i64| {
            SystemTime::UNIX_EPOCH + Duration::from_secs(now.saturating_add_signed(seconds))
        };
        let half = Duration::from_millis(500);
        bans.dismiss(viewer, at(0) + half);
        assert!(bans.refuse_player(&opening(viewer, "192.0.2.7", at(0))));
        let same_second = opening(viewer, "192.0.2.7", at(0) + half + half / 2);
        assert!(bans.is_dismissed(&same_second), "passes have a resolution of 1 s");
        assert!(!bans.is_dismissed(&opening(viewer, "192.0.2.7", at(1))));
        assert!(!bans.refuse_player(&opening(viewer, "192.0.2.7", at(1))));
        assert!(!bans.refuse_player(&opening(ViewerId::random(), "192.0.2.7", at(-99))));
        bans.add(BanTarget::Viewer(viewer), MINUTE, Instant::now()).expect("room");
        assert!(bans.refuse_player(&opening(viewer, "192.0.2.7", at(1))), "bans reject new passes");
        assert_eq!(bans.refused().find(|(what, _)| *what == "play"), Some(("play", 2)));
    }

    #[test]
    fn a_dismissal_is_removed_once_earlier_passes_have_expired() {
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
        assert_eq!(bans.len.load(Ordering::Acquire), 0, "checks avoid the lock again");
    }

    #[test]
    fn bans_and_dismissals_are_bounded() {
        let (bans, now) = (Bans::default(), Instant::now());
        for n in 0..MAX_BANS as u32 {
            let target = BanTarget::Network(Network::around(IpAddr::V4(n.into()), 32));
            bans.add(target, MINUTE, now).expect("room");
        }
        assert_eq!(bans.add(network("2001:db8::", 64), MINUTE, now), Err(BansFull));
        assert!(bans.add(network("0.0.0.0", 32), MINUTE, now).is_ok(), "already banned");
        assert!(bans.add(network("2001:db8::", 64), MINUTE, now + MINUTE).is_ok(), "expired");
        for _ in 0..2 * MAX_DISMISSED {
            bans.dismiss(ViewerId::random(), SystemTime::now());
        }
        // Repeated dismissals of one viewer.
        let viewer = ViewerId::random();
        for _ in 0..2 * MAX_DISMISSED {
            bans.dismiss(viewer, SystemTime::now());
        }
        let table = lock(&bans.table);
        assert!(table.dismissed.len() <= MAX_DISMISSED && table.order.len() <= MAX_DISMISSED);
        assert!(table.dismissed.contains_key(&viewer));
    }
}
