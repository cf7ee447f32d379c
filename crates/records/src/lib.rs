//! Session records: a row per viewer session, as JSON lines and Parquet, their schema, writer and reader. The
//! server writes them, the analysis reads them, and they are all that the two share.

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

pub use claim::{Claim, Excess, LAST_WORDS_S, MAX_BUFFER_MS, SLACK_S, is_claim, is_clamped};
pub use error::Error;
pub use reader::{Input, Place, read};
pub use record::{COLUMNS, Kind, Record};
pub use retention::Retention;
pub use unit::{Unit, prefix};
pub use writer::RecordWriter;
