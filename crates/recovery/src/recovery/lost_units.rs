//! Lost units with their contents, the part of [`Recovery`](super::Recovery) that connections
//! without losses do not have.

use crate::by_unit::ByUnit;
use crate::contents::Contents;
use crate::on_demand::Empty;
use crate::packet::UnitArrival;
use crate::table::{LostUnit, UnitKey, UnitTable};
use units::Timestamp;

/// A unit finished by the acknowledgement being processed.
#[derive(Debug)]
pub(super) struct Finished {
    pub key: UnitKey,
    pub unit: LostUnit,
    pub at: Timestamp,
    /// The first-sent packet known to have arrived.
    pub by: Option<UnitArrival>,
}

/// Lost units and their contents.
#[derive(Debug)]
pub(super) struct LostUnits<P> {
    pub table: UnitTable,
    pub contents: Contents<P>,
    /// Bytes of first copies of overdue units. They count as replicas until the packet is declared
    /// lost.
    pub overdue_copies: ByUnit<u32>,
    pub finished: Vec<Finished>,
}

impl<P> LostUnits<P> {
    const fn new() -> Self {
        Self {
            table: UnitTable::new(),
            contents: Contents::new(),
            overdue_copies: ByUnit::new(),
            finished: Vec::new(),
        }
    }
}

impl<P> Default for LostUnits<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: 'static> Empty for LostUnits<P> {
    const EMPTY: &'static Self = &Self::new();
}
