//! The table in force, and how one is made.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use units::Rate;

use crate::ranges::{Key, Overlap, Range, Ranges};

/// The place of a group in its table. It means nothing in another one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GroupId(pub(crate) u32);

/// What the sessions of a group may send at most, as a decision has found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameters {
    /// Of pacing; 8 kbit/s to 100 Gbit/s.
    pub rate: Rate,
    /// Bytes in flight; 2,400 to 1 GiB.
    pub in_flight: u64,
    /// The sessions that they come from.
    pub sessions: u64,
    /// The end of the period in which those were, in Unix seconds.
    pub decided: u64,
}

impl Parameters {
    /// Whether anybody could mean it.
    pub(crate) fn is_sane(&self) -> bool {
        (Rate::from_kbps(8)..=Rate::from_mbps(100_000)).contains(&self.rate)
            && (2_400..=1 << 30).contains(&self.in_flight)
    }
}

/// A user group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// As people know it: `BR/SP/Campinas/AS28573`. Up to 255 bytes.
    pub name: Box<str>,
    /// The wider group that it is part of, which stands before it in the table.
    pub parent: Option<GroupId>,
    /// `None`: too little is known of it, its sessions are served as without AutoPlex.
    pub parameters: Option<Parameters>,
    /// The guard has turned it off: its viewers did worse than those of the hold-out.
    pub is_off: bool,
}

/// When a table holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// When it was decided, in Unix seconds.
    pub issued: u64,
    /// How long it holds from then on.
    pub lifetime: Duration,
}

/// Why an address has no parameters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Absent {
    /// The table is past its time.
    Expired,
    /// It was decided more than [`Table::SKEW`] from now: one of the clocks is wrong.
    Future,
    /// The address is in no range.
    Unknown,
    /// Too little is known of its group.
    Undecided,
    /// Its group is turned off.
    Off,
}

impl Absent {
    /// All, in the order of their discriminants.
    pub const ALL: [Self; 5] =
        [Self::Expired, Self::Future, Self::Unknown, Self::Undecided, Self::Off];

    /// As metrics name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Future => "future",
            Self::Unknown => "unknown",
            Self::Undecided => "undecided",
            Self::Off => "off",
        }
    }
}

/// `<address, group>` and `<group, parameters>`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    pub(crate) times: Times,
    pub(crate) v4: Ranges<u32>,
    pub(crate) v6: Ranges<u64>,
    pub(crate) groups: Vec<Group>,
}

impl Table {
    /// How far the clocks of who decides and who serves may be apart.
    pub const SKEW: Duration = Duration::from_secs(60);

    /// What the next session of this address may send at most, at `now` (Unix seconds).
    ///
    /// # Errors
    /// Why nothing says so.
    pub fn parameters(&self, address: IpAddr, now: u64) -> Result<(GroupId, &Parameters), Absent> {
        let Times { issued, lifetime } = self.times;
        if issued > now.saturating_add(Self::SKEW.as_secs()) {
            return Err(Absent::Future);
        }
        if now.saturating_sub(issued) > lifetime.as_secs() {
            return Err(Absent::Expired);
        }
        let id = self.group_of(address).ok_or(Absent::Unknown)?;
        let group = self.group(id).ok_or(Absent::Unknown)?;
        match &group.parameters {
            _ if group.is_off => Err(Absent::Off),
            None => Err(Absent::Undecided),
            Some(parameters) => Ok((id, parameters)),
        }
    }

    /// The group of an address.
    pub fn group_of(&self, address: IpAddr) -> Option<GroupId> {
        let place = match Key::of(address) {
            Key::V4(address) => self.v4.find(address),
            Key::V6(network) => self.v6.find(network),
        };
        place.map(GroupId)
    }

    /// A group of this table.
    pub fn group(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(id.0 as usize)
    }

    /// All groups, parents before those that are part of them.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// When it holds.
    pub fn times(&self) -> Times {
        self.times
    }

    /// How many ranges of addresses it knows.
    pub fn ranges(&self) -> usize {
        self.v4.len() + self.v6.len()
    }
}

/// A table in the making.
#[derive(Clone, Debug)]
pub struct Building {
    times: Times,
    v4: Vec<Range<u32>>,
    v6: Vec<Range<u64>>,
    groups: Vec<Group>,
}

impl Building {
    /// An empty table.
    pub fn new(times: Times) -> Self {
        Self { times, v4: Vec::new(), v6: Vec::new(), groups: Vec::new() }
    }

    /// Adds a group behind its parent.
    pub fn group(&mut self, group: Group) -> GroupId {
        self.groups.push(group);
        GroupId((self.groups.len() - 1) as u32)
    }

    /// The addresses from `first` to `last` are of this group.
    pub fn v4(&mut self, first: Ipv4Addr, last: Ipv4Addr, group: GroupId) {
        self.v4.push(Range { first: first.to_bits(), last: last.to_bits(), group: group.0 });
    }

    /// The networks (/64) from that of `first` to that of `last` are of this group.
    pub fn v6(&mut self, first: Ipv6Addr, last: Ipv6Addr, group: GroupId) {
        let [first, last] = [first, last].map(|address| (address.to_bits() >> 64) as u64);
        self.v6.push(Range { first, last, group: group.0 });
    }

    /// The table. Ranges may have come in any order.
    ///
    /// # Errors
    /// Two of them overlap, or one ends before it begins.
    pub fn finish(mut self) -> Result<Table, Overlap> {
        self.v4.sort_unstable_by_key(|range| range.first);
        self.v6.sort_unstable_by_key(|range| range.first);
        let (v4, v6) = (Ranges::new(self.v4)?, Ranges::new(self.v6)?);
        Ok(Table { times: self.times, v4, v6, groups: self.groups })
    }
}
