//! Why datagrams and packets are dropped, and how often.

use core::marker::PhantomData;
use core::ops::Index;

/// Reason why an endpoint dropped a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum DropReason {
    /// Its header could not be read.
    Header,
    /// It belongs to no connection and is no first Initial.
    UnknownConnection,
    /// A first Initial in less than 1,200 bytes (RFC 9000, section 14.1).
    SmallInitial,
    /// A first Initial with a destination ID shorter than 8 bytes (RFC 9000, section 7.2).
    ShortConnectionId,
    /// A first Initial that did not authenticate.
    Decrypt,
    /// No place for another connection.
    Full,
    /// The limit on answers without state was reached.
    RateLimited,
}

impl DropReason {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Header,
        Self::UnknownConnection,
        Self::SmallInitial,
        Self::ShortConnectionId,
        Self::Decrypt,
        Self::Full,
        Self::RateLimited,
    ];

    /// The name in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::UnknownConnection => "unknown_connection",
            Self::SmallInitial => "small_initial",
            Self::ShortConnectionId => "short_connection_id",
            Self::Decrypt => "not_authentic",
            Self::Full => "full",
            Self::RateLimited => "rate_limited",
        }
    }
}

impl From<DropReason> for usize {
    fn from(reason: DropReason) -> Self {
        reason as Self
    }
}

/// Reason why a connection dropped a packet without further consequences.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum PacketDropReason {
    /// No keys for this type of packet (any more, or yet).
    NoKeys,
    /// It failed to authenticate.
    Decrypt,
    /// Its number was seen before.
    Duplicate,
    /// Its header makes no sense here.
    Header,
}

impl PacketDropReason {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::NoKeys, Self::Decrypt, Self::Duplicate, Self::Header];

    /// The name in logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoKeys => "no_keys",
            Self::Decrypt => "not_authentic",
            Self::Duplicate => "duplicate",
            Self::Header => "header",
        }
    }
}

impl From<PacketDropReason> for usize {
    fn from(reason: PacketDropReason) -> Self {
        reason as Self
    }
}

/// A counter for each of the `N` values of `R`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts<R, const N: usize> {
    counts: [u64; N],
    of: PhantomData<R>,
}

impl<R, const N: usize> Default for Counts<R, N> {
    fn default() -> Self {
        Self { counts: [0; N], of: PhantomData }
    }
}

impl<R: Into<usize>, const N: usize> Counts<R, N> {
    /// Counts one more.
    pub fn count(&mut self, reason: R) {
        self.counts[reason.into()] += 1;
    }

    /// Adds other counters.
    pub fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(sum, more)| *sum += more);
    }
}

impl<R: Into<usize>, const N: usize> Index<R> for Counts<R, N> {
    type Output = u64;

    fn index(&self, reason: R) -> &u64 {
        &self.counts[reason.into()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_counter_and_a_name_of_its_own() {
        let mut counts = Counts::<DropReason, 7>::default();
        for (n, reason) in (1..).zip(DropReason::ALL) {
            (0..n).for_each(|_| counts.count(reason));
        }
        let mut sum = counts;
        sum.add(&counts);
        assert_eq!(DropReason::ALL.map(|reason| sum[reason]), [2, 4, 6, 8, 10, 12, 14]);
        let packets = PacketDropReason::ALL.map(usize::from);
        assert_eq!(packets, [0, 1, 2, 3]);
        let distinct =
            |names: &[&str]| names.iter().collect::<std::collections::HashSet<_>>().len();
        assert_eq!(distinct(&DropReason::ALL.map(DropReason::name)), 7);
        assert_eq!(distinct(&PacketDropReason::ALL.map(PacketDropReason::name)), 4);
    }
}
