//! Session records: a row per viewer session, as JSON lines and Parquet. This is what the server leaves
//! behind for whoever compares schemes, and the only thing that the server and the analysis share.

#![forbid(unsafe_code)]

mod error;
mod record;
mod writer;

pub use error::Error;
pub use record::{Field, Record};
pub use writer::RecordWriter;
