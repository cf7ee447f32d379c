//! The measurement and decision modules of AutoPlex (section 4.1, figure 4).
//!
//! Session records become rows of integers in one directory per hour. The queries in `sql/` select
//! sessions of each user group. Their statistics become the table that edges apply
//! (`mendcast_groups`).
//!
//! The embedded engine is DataFusion. Spark and ClickHouse run the same SQL over the same files and
//! return the same bytes, so a fleet that outgrows one machine changes only the engine.

#![forbid(unsafe_code)]

pub mod decide;
pub mod engine;
mod error;
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

pub use error::Error;
