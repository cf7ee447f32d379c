//! Requests for unpublished streams that the `on_play` hook denies after two seconds. They try to
//! occupy the hook, which leaves no capacity for viewers of other networks.
//!
//! 100 requests per second over HTTP/2, 20 at once on each connection, from one network. Half of
//! them are for one name, the others each for a new one.

use tokio::task::JoinSet;

use super::super::hook::SLOW_NAMES;
use super::clients::Http;
use super::crew::{Crew, Neighbour, Strike};
use crate::Failure;
use crate::identity::NAME;

pub(super) fn join(crew: &mut Crew) {
    let neighbour = Neighbour {
        name: "requests that wait for the hook",
        per_second: 100.0,
        at_once: 20,
        network: 9,
        addresses: 4,
    };
    crew.add(neighbour, waits);
}

async fn waits(strike: Strike) -> Result<(), Failure> {
    let stream = strike.tls(Http::V2, None).await?;
    let (requests, connection) = h2::client::handshake(stream).await?;
    // The task ends with the requests.
    tokio::spawn(connection);
    let mut answers = JoinSet::new();
    for nth in 0..strike.attempts {
        let name = match nth % 2 {
            0 => "same".to_owned(),
            _ => format!("nobody-{}-{nth}", strike.number),
        };
        let uri = format!("https://{NAME}/{SLOW_NAMES}{name}.flv");
        let request = http::Request::get(uri).body(())?;
        let (response, _) = requests.clone().ready().await?.send_request(request, true)?;
        strike.tally.attempt(1);
        answers.spawn(response);
    }
    while let Some(answer) = answers.join_next().await {
        match answer?.map(|response| response.status()) {
            Ok(status) if status.is_success() => strike.tally.breach(format!("status {status}")),
            Ok(status) => strike.tally.answer(format!("status {}", status.as_u16())),
            Err(e) if e.is_remote() => strike.tally.answer("ended by the server"),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}
