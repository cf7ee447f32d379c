//! The statistics of reports: samples with their quantiles, mean and variance, Student's interval
//! of a mean ([`Sample::mean_ci95`]), and bootstrap intervals of anything, also of the difference
//! between two samples ([`Bootstrap`]).
//!
//! What a sample is too small for is `None`: there is no empty [`Sample`], and one value has
//! neither variance nor intervals.

mod bootstrap;
mod normal;
mod sample;

pub use bootstrap::Bootstrap;
pub use sample::{Interval, Sample, Summary};
