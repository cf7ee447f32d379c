//! Silent RTMP connections that try to lock out publishers: 500 per second from two addresses, held
//! until the server ends them. Connections that have not published or played yet have 250 places.

use std::time::Duration;

use tokio::time::timeout;

use super::clients::until_ended;
use super::crew::{Crew, Neighbour, Strike};
use crate::Failure;

/// Maximum wait for the server to end a connection: twice its longest deadline.
const WAIT: Duration = Duration::from_secs(20);

pub(super) fn join(crew: &mut Crew) {
    let neighbour = Neighbour {
        name: "silent RTMP connections",
        per_second: 500.0,
        at_once: 10,
        network: 8,
        addresses: 2,
    };
    crew.add(neighbour, |strike| strike.at_once(silent));
}

async fn silent(strike: Strike) -> Result<(), Failure> {
    strike.tally.attempt(1);
    // If no place is free, the server resets the connection at once. The next call shows it.
    let Ok(mut stream) = strike.tcp(strike.target.rtmp, None).await else {
        strike.tally.answer("reset by the server");
        return Ok(());
    };
    match timeout(WAIT, until_ended(&mut stream)).await {
        Ok(how) => strike.tally.answer(how),
        Err(_) => strike.tally.breach("never ended by the server"),
    }
    Ok(())
}
