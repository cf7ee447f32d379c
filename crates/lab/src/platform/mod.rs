//! A virtual platform of viewers: who comes, over which path, with which player, is drawn from a population, every
//! session goes through the whole product in virtual time, and what viewers had under each recovery scheme is compared.
//!
//! From the ground up: `draws`, `distribution`, `section` · `session`, `links`, `specification`, `history` (an operator's records)
//! · `population` (who comes) · `arm` (schemes) · `scenario` (what the testbed runs) · `watching` (what a viewer has of
//! it) · `run` (a session's row) · `metrics`, `classes`, `compare`, `predictions` · `summary` · `plots`, `report` · `ab`. Beside it
//! `visits`: viewers who come back, and what their first frames take; and `autoplex`: groups of viewers that learn what their
//! paths carry.

mod ab;
mod arm;
mod autoplex;
mod classes;
mod compare;
mod distribution;
mod draws;
mod history;
mod links;
mod metrics;
mod plots;
mod population;
mod predictions;
mod report;
mod run;
mod scenario;
mod section;
mod session;
mod specification;
mod summary;
mod visits;
mod watching;

pub use ab::{AbOptions, ab, viewers};
pub use autoplex::{AutoPlexOptions, WAYS, autoplex};
pub use visits::{VisitOptions, visits};
