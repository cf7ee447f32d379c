//! A run: server, path and client on one virtual clock.

mod flow;
mod oracle;
mod outcome;
mod scenario;
mod wire;
mod world;

pub(crate) use oracle::Foresight;
pub use oracle::Oracle;
pub use outcome::{ReceivedBytes, RunOutcome, SenderSample};
pub use scenario::{Held, Rival, Scenario, SchemeMaker};

use crate::error::Error;
use world::World;

/// Runs a scenario.
///
/// ```
/// use mendcast_lab::{Scenario, Traffic, run};
///
/// let outcome = run(&Scenario {
///     traffic: Traffic::Download { bytes: 100_000 },
///     ..Scenario::default()
/// })?;
/// assert!(outcome.completed && outcome.intact);
/// # Ok::<(), mendcast_lab::Error>(())
/// ```
///
/// # Errors
/// The client cannot do its task, the clock stands still (a loop in one of the ends), or the
/// links' books do not balance.
pub fn run(scenario: &Scenario) -> Result<RunOutcome, Error> {
    let mut world = World::new(scenario)?;
    while world.step()? {}
    Ok(world.finish()?)
}

#[cfg(test)]
mod tests;
