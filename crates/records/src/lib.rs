//! Session records: one row per viewer session, as JSON lines and Parquet. Defines their schema,
//! writer and reader, which are all that the server and the analysis share.

#![forbid(unsafe_code)]

mod claim;
mod convert;
mod error;
mod files;
mod reader;
mod record;
mod retention;
mod unit;
mod writer;

pub use claim::{Claim, Excess, MAX_BUFFER_MS, REPORT_GRACE_S, SLACK_S, is_claim, is_clamped};
pub use error::Error;
pub use reader::{Input, Location, read};
pub use record::{COLUMNS, Kind, Record};
pub use retention::Retention;
pub use unit::{Unit, prefix};
pub use writer::RecordWriter;
