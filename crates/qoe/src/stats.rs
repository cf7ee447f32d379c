//! The statistics of reports: samples with their quantiles, mean and variance, Student's interval
//! of a mean ([`Estimate`]), bootstrap intervals ([`Bootstrap`]) of the difference between two samples
//! whose values come in clusters ([`Clustered`]), and what many or categorical comparisons need
//! ([`holm`], [`chi_square_tail`]).
//!
//! What a sample is too small for is `None`: there is no empty [`Sample`], and one value has
//! neither variance nor intervals.

mod bootstrap;
mod clustered;
mod normal;
mod sample;
mod significance;

pub use bootstrap::Bootstrap;
pub use clustered::{Clustered, Observation};
pub use sample::{Estimate, Interval, Sample};
pub use significance::{chi_square_tail, holm};
