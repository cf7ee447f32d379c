//! Virtual platform of viewers. Arrivals, paths and players are drawn from a population, every
//! session runs through the whole product in virtual time, and playback under each recovery scheme
//! is compared.
//!
//! From the ground up: `draws`, `distribution`, `section` · `session`, `links`, `specification`,
//! `history` (an operator's records) · `population` (arrivals) · `arm` (schemes) · `scenario`
//! (testbed runs) · `watching` (playback) · `run` (rows of sessions) · `metrics`, `classes`,
//! `compare`, `predictions` · `summary` · `plots`, `report` · `ab`. Besides: `visits`, first-frame
//! times of returning viewers, and `autoplex`, user groups that learn the capacity of their paths.

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
mod unit;
mod utility;
mod visits;
mod watching;

pub use ab::{AbOptions, ab, rewrite};
pub use autoplex::{AutoPlexOptions, WAYS, autoplex};
pub use visits::{VisitOptions, visits};
