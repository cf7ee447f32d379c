//! User groups and the send limits of their next sessions.
//!
//! A [`Table`] holds both tables of AutoPlex's execution module (section 4.1, figure 4):
//! `<address, group>` and `<group, parameters>`. It is immutable, built by another process,
//! distributed as a file, and replaced as a whole.
//!
//! Lookups take no lock and allocate nothing: servers hold an `Arc` of the active table. Truncated,
//! damaged or implausible tables and other versions are rejected, and the previous table stays
//! active. Once that expires, no group has parameters and sessions are served without AutoPlex.

#![forbid(unsafe_code)]

mod arms;
pub mod decide;
mod file;
mod limits;
mod ranges;
pub mod select;
mod table;

pub use arms::{Arm, Shares};
pub use file::{FileError, MAX_FILE};
pub use limits::{Limits, Mode, Need, UnknownMode};
pub use ranges::{Overlap, Range};
pub use table::{Absent, Group, GroupId, Parameters, Table, TableBuilder, Times};
