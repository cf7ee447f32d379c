//! The measurement and decision modules of AutoPlex (section 4.1, figure 4): session records become rows of integers in
//! folders by the hour, the queries in `sql/` choose from each user group the sessions that teach, and what those had
//! becomes the table that edges apply (`mendcast_groups`).
//!
//! The embedded engine is DataFusion. The same text of SQL runs on Spark and ClickHouse over the same files and finds the
//! same rows to the byte, so that a fleet whose sessions outgrow one machine changes engines and nothing else.

#![forbid(unsafe_code)]

pub mod decide;
pub mod engine;
pub mod geo;
pub mod guard;
pub mod integers;
pub mod measure;
pub mod query;
pub mod ranges;
pub mod report;
pub mod rows;
pub mod store;
pub mod sync;

pub use records::Error;

/// An error that names what it is about.
pub(crate) fn about(what: impl core::fmt::Display) -> impl Fn(&dyn core::fmt::Display) -> Error {
    move |e| Error::new(format!("{what}: {e}"))
}
