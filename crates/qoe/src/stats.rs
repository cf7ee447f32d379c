//! Statistics of reports: samples with quantiles, mean and variance; Student's confidence interval
//! of the mean ([`Estimate`]); bootstrap intervals ([`Bootstrap`]) for the difference between two
//! clustered samples ([`Clustered`]); corrections and tests for many or categorical comparisons
//! ([`holm`], [`chi_square_tail`]).
//!
//! Statistics that need more values are `None`: there is no empty [`Sample`], and a single value
//! has no variance and no interval.

mod bootstrap;
mod clustered;
mod normal;
mod sample;
mod significance;

pub use bootstrap::Bootstrap;
pub use clustered::{Clustered, Observation};
pub use sample::{Estimate, Interval, Sample};
pub use significance::{chi_square_tail, holm};
