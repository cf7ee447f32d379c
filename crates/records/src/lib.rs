//! Session records: one row per viewer session, as JSON lines and Parquet. Defines their schema,
//! writer and reader, which are all that the server and the analysis share.

#![forbid(unsafe_code)]

mod claim;
mod convert;
mod error;
mod files;
mod kind;
mod reader;
mod retention;
mod row;
pub mod schema;
mod unit;
mod writer;

pub use claim::{Claim, Excess, MAX_BUFFER_MS, REPORT_GRACE_S, SLACK_S, is_claim};
pub use error::Error;
pub use kind::{Kind, Source};
pub use reader::{Input, Location, read};
pub use retention::Retention;
pub use row::Row;
pub use schema::{Column, Range, Record};
pub use unit::{Unit, prefix};
pub use writer::RecordWriter;
