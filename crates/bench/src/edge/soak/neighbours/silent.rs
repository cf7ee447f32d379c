//! RTMP connections that say nothing, to keep publishers out: 500 a second from two addresses, held
//! until the server ends them. 250 places are there for connections that have not published or
//! played yet.

use std::time::Duration;

use tokio::time::timeout;

use super::clients::until_ended;
use super::crew::{Crew, Failure, Neighbour, Strike};

/// Longest wait for the server to end a connection: twice its longest deadline.
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
    // Without a place the server resets the connection at once, which shows in the first call that
    // follows.
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
