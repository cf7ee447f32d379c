//! User groups and what the next sessions of each may send at most: the two tables of AutoPlex's execution
//! module (section 4.1, figure 4), `<address, group>` and `<group, parameters>`, in one immutable [`Table`] that is
//! made elsewhere, travels as a file, and is replaced as a whole.
//!
//! Looking up takes no lock and no allocation: whoever serves holds an `Arc` of the table in force. A table
//! that is cut off, damaged, of another version or absurd is no table: the one before stays in force, and when
//! that has passed its time, no group has parameters and every session is served as without AutoPlex.

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
pub use table::{Absent, Building, Group, GroupId, Parameters, Table, Times};
