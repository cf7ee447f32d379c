//! Addresses other than the present one: queued frames, and the state of recently used addresses.

use crate::path::{Addresses, Path, Standing};
use core::time::Duration;
use std::net::{IpAddr, SocketAddr};
use units::Timestamp;

/// Maximum number of addresses beside the present one. Each IP address costs the state of its path,
/// some kilobytes. Clients that alternate between more addresses are validated each time.
pub(super) const MAX_KNOWN: usize = 3;
/// Lifetime of an address after the client has left it.
const KNOWN_LIFETIME: Duration = Duration::from_secs(60);

/// A frame for a path that may differ from the present one.
#[derive(Clone, Copy, Debug)]
pub(super) struct OffPath {
    pub(super) addresses: Addresses,
    pub(super) frame: OffPathFrame,
    /// Maximum UDP payload of its datagram, in bytes.
    pub(super) limit: u64,
}

/// Kind of frame.
#[derive(Clone, Copy, Debug)]
pub(super) enum OffPathFrame {
    Challenge([u8; 8]),
    Response([u8; 8]),
}

/// Mark of packets that belong to no path.
pub(super) const NO_PATH: u8 = u8::MAX;

/// A recently used address.
#[derive(Debug)]
pub(super) struct Known {
    at: KnownState,
    left: Timestamp,
}

#[derive(Debug)]
enum KnownState {
    /// With its path state.
    Path(Box<Path>),
    /// Without path state: another port of the same IP address has taken it over (RFC 9000, section
    /// 9.4).
    Address(Standing),
}

impl Known {
    /// Passes on a PATH_RESPONSE ([`Standing::on_response`]). Returns the standing if it matches.
    pub(super) fn on_response(
        &mut self,
        now: Timestamp,
        data: [u8; 8],
        again: Duration,
    ) -> Option<&mut Standing> {
        match &mut self.at {
            KnownState::Path(path) => {
                let delay = path.standing.on_response(now, data, again)?;
                path.rtt.suppose(delay);
                Some(&mut path.standing)
            }
            KnownState::Address(standing) => {
                standing.on_response(now, data, again)?;
                Some(standing)
            }
        }
    }

    fn standing(&self) -> &Standing {
        match &self.at {
            KnownState::Path(path) => &path.standing,
            KnownState::Address(standing) => standing,
        }
    }

    pub(super) fn path(&self) -> Option<&Path> {
        match &self.at {
            KnownState::Path(path) => Some(path),
            KnownState::Address(_) => None,
        }
    }

    fn path_mut(&mut self) -> Option<&mut Path> {
        match &mut self.at {
            KnownState::Path(path) => Some(path),
            KnownState::Address(_) => None,
        }
    }
}

/// Recently used addresses, the newest last, and marks that are still in use.
#[derive(Debug, Default)]
pub(super) struct KnownAddresses {
    known: Vec<Known>,
    /// Marks of forgotten paths, with the number of the newest packet sent on each.
    retired: Vec<(u8, u64)>,
    /// The mark last assigned.
    newest_mark: u8,
}

impl KnownAddresses {
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Known> {
        self.known.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Known> {
        self.known.iter_mut()
    }

    /// Returns the kept path with this mark.
    pub(super) fn path_mut(&mut self, mark: u8) -> Option<&mut Path> {
        self.known.iter_mut().filter_map(Known::path_mut).find(|path| path.generation == mark)
    }

    /// Returns true for a known address.
    pub(super) fn contains(&self, remote: SocketAddr) -> bool {
        self.known.iter().any(|known| known.standing().addresses.remote == remote)
    }

    /// Removes an address. Returns its standing, and the path to its IP address if kept.
    pub(super) fn take(&mut self, remote: SocketAddr) -> Option<(Standing, Option<Box<Path>>)> {
        let is_it = |known: &Known| known.standing().addresses.remote == remote;
        let place = self.known.iter().position(is_it)?;
        Some(match self.known.remove(place).at {
            KnownState::Path(path) => (path.standing.clone(), Some(path)),
            KnownState::Address(standing) => (standing, self.take_estimates(remote.ip())),
        })
    }

    /// Removes the path to an IP address, but not the path's address.
    pub(super) fn take_estimates(&mut self, ip: IpAddr) -> Option<Box<Path>> {
        let is_there = |known: &&mut Known| {
            known.path().is_some_and(|path| path.standing.addresses.remote.ip() == ip)
        };
        let known = self.known.iter_mut().find(is_there)?;
        let address = KnownState::Address(known.standing().clone());
        match core::mem::replace(&mut known.at, address) {
            KnownState::Path(path) => Some(path),
            KnownState::Address(_) => None,
        }
    }

    /// Returns the validated address that the client left last.
    pub(super) fn last_proven(&self) -> Option<SocketAddr> {
        let mut newest = self.known.iter().rev().map(Known::standing);
        newest.find(|standing| standing.is_proven()).map(|standing| standing.addresses.remote)
    }

    /// Keeps an address without its path.
    pub(super) fn keep_address(&mut self, now: Timestamp, standing: Standing) {
        self.keep(Known { at: KnownState::Address(standing), left: now });
    }

    /// Keeps an address with its path.
    pub(super) fn keep_path(&mut self, now: Timestamp, path: Box<Path>) {
        self.keep(Known { at: KnownState::Path(path), left: now });
    }

    /// Evicts unvalidated addresses first: an attacker that forges many addresses must not evict
    /// the client's own.
    fn keep(&mut self, new: Known) {
        if self.known.len() == MAX_KNOWN {
            let unproven = self.known.iter().position(|known| !known.standing().is_proven());
            let oldest = self.known.remove(unproven.unwrap_or(0));
            self.forget(oldest);
        }
        self.known.push(new);
    }

    fn forget(&mut self, known: Known) {
        if let KnownState::Path(path) = known.at {
            self.forget_path(path);
        }
    }

    /// Forgets a path. Another port of its IP address inherits its state. Otherwise its mark
    /// becomes free once the ledger has no packet with it.
    pub(super) fn forget_path(&mut self, mut path: Box<Path>) {
        let ip = path.standing.addresses.remote.ip();
        let heir = self.known.iter_mut().find(|k| k.standing().addresses.remote.ip() == ip);
        if let Some(known) = heir {
            path.standing = known.standing().clone();
            known.at = KnownState::Path(path);
        } else {
            self.retired.extend(path.last_sent.map(|last| (path.generation, last)));
        }
    }

    /// Forgets addresses after [`KNOWN_LIFETIME`] or failed validation.
    pub(super) fn expire(&mut self, now: Timestamp) {
        let is_over = |known: &mut Known| {
            now.since(known.left) >= KNOWN_LIFETIME || known.standing().has_failed(now)
        };
        let over: Vec<_> = self.known.extract_if(.., is_over).collect();
        over.into_iter().for_each(|known| self.forget(known));
    }

    /// Assigns a mark to a new path. Returns `None` if all are in use. `present` is the present
    /// path's mark, and `oldest` the number of the oldest packet in the ledger.
    pub(super) fn assign_mark(&mut self, present: u8, oldest: u64) -> Option<u8> {
        self.retired.retain(|&(_, last)| last >= oldest);
        let mut used = [false; 1 + NO_PATH as usize];
        let kept = self.known.iter().filter_map(|known| known.path()).map(|path| path.generation);
        let marks = kept.chain(self.retired.iter().map(|&(mark, _)| mark)).chain([present]);
        marks.for_each(|mark| used[usize::from(mark)] = true);
        let newest = u16::from(self.newest_mark);
        let after = |n: u16| ((newest + n) % u16::from(NO_PATH)) as u8;
        let free = (1..=u16::from(NO_PATH)).map(after).find(|&mark| !used[usize::from(mark)])?;
        self.newest_mark = free;
        Some(free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TransportConfig;
    use congestion::Cap;

    const NOW: Timestamp = Timestamp::from_secs(100);

    fn path(ip: u8, port: u16, mark: u8, last: u64) -> Box<Path> {
        let addresses = Addresses::of(([10, 0, 0, ip], port).into());
        let standing = Standing { validated: true, ..Standing::new(addresses) };
        let mut path = Path::new(&TransportConfig::default(), Cap::default(), standing, mark, 1);
        path.last_sent = Some(last);
        Box::new(path)
    }

    /// Assigns a mark after `newest`, while the present path has mark 6.
    fn mark_after(known: &mut KnownAddresses, newest: u8, oldest: u64) -> Option<u8> {
        known.newest_mark = newest;
        known.assign_mark(6, oldest)
    }

    #[test]
    fn a_mark_is_free_when_no_packet_has_it() {
        let mut known = KnownAddresses::default();
        known.keep_path(NOW, path(1, 1, 7, 1_000));
        assert_eq!(mark_after(&mut known, 5, 0), Some(8), "6 is present and 7 is kept");
        known.expire(NOW + KNOWN_LIFETIME);
        assert!(known.is_empty());
        assert_eq!(mark_after(&mut known, 5, 1_000), Some(8), "its newest packet is remembered");
        assert_eq!(mark_after(&mut known, 5, 1_001), Some(7));
        // Marks wrap around and skip `NO_PATH`.
        assert_eq!(mark_after(&mut known, NO_PATH - 1, 0), Some(0));
        (0..NO_PATH).for_each(|mark| known.forget_path(path(1, 1, mark, 2_000)));
        assert_eq!(mark_after(&mut known, 5, 2_000), None);
        assert_eq!(mark_after(&mut known, 5, 2_001), Some(7));
    }

    #[test]
    fn another_port_of_an_ip_inherits_the_path() {
        let mut known = KnownAddresses::default();
        known.keep_address(NOW, path(1, 1, 0, 0).standing);
        known.keep_path(NOW + KNOWN_LIFETIME / 2, path(2, 1, 1, 0));
        let mut failing = path(1, 2, 3, 0);
        failing.standing.validated = false;
        known.keep_path(NOW, failing);
        known.expire(NOW);
        let (standing, estimates) = known.take(([10, 0, 0, 1], 1).into()).expect("known");
        assert!(standing.validated);
        assert_eq!(estimates.map(|path| path.generation), Some(3));
        assert!(!known.contains(([10, 0, 0, 1], 2).into()));
    }
}
