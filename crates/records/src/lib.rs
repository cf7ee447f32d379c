//! Session records: a row per viewer session, as JSON lines and Parquet. The server
//! writes them, the analysis reads them, and they are all that the two share.

#![forbid(unsafe_code)]

mod error;
mod record;
mod retention;
mod writer;

pub use error::Error;
pub use record::{Field, Record};
pub use retention::Retention;
pub use writer::RecordWriter;
