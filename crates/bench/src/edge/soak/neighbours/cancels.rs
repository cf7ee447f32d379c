//! Requests cancelled at once: RST_STREAM right after HEADERS on HTTP/2, and STOP_SENDING or
//! RESET_STREAM right after the request on HTTP/3. They are for the live stream, so each opens a
//! session and a cursor.
//!
//! 50 per second on each protocol, on 2.5 connections per second. All come from one network, so at
//! most 20 per second leave a record. The last request of a connection is not cancelled; its answer
//! shows that the server has seen the preceding ones.

use std::time::Duration;

use bytes::Bytes;
use h3::error::Code;
use tokio::time::{sleep, timeout};

use super::clients::Http;
use super::crew::{Crew, Neighbour, Strike};
use crate::Failure;
use crate::identity::NAME;

/// Delay of the cancellation, so that the request has its own packet.
const CANCEL_DELAY: Duration = Duration::from_millis(1);
/// Maximum wait for the last answer.
const WAIT: Duration = Duration::from_secs(10);
const PATH: &str = "/live/bench.flv";
/// Path of an unpublished stream.
const LAST: &str = "/live/nobody.flv";

fn neighbour(name: &'static str) -> Neighbour {
    Neighbour { name, per_second: 50.0, at_once: 20, network: 4, addresses: 4 }
}

pub(super) fn join(crew: &mut Crew) {
    crew.add(neighbour("requests with cancels: HTTP/2"), h2);
    crew.add(neighbour("requests with cancels: HTTP/3"), h3);
}

async fn h2(strike: Strike) -> Result<(), Failure> {
    let stream = strike.tls(Http::V2, None).await?;
    let (mut requests, connection) = h2::client::handshake(stream).await?;
    // The task ends with the requests.
    tokio::spawn(connection);
    let get = |path: &str| http::Request::get(format!("https://{NAME}{path}")).body(());
    let mut sent = 0;
    let cancelled = async {
        for _ in 0..strike.attempts {
            requests = requests.clone().ready().await?;
            let (_response, mut stream) = requests.send_request(get(PATH)?, true)?;
            strike.tally.attempt(1);
            sent += 1;
            sleep(CANCEL_DELAY).await;
            stream.send_reset(h2::Reason::CANCEL);
            sleep(CANCEL_DELAY).await;
        }
        let (response, _) = requests.clone().ready().await?.send_request(get(LAST)?, true)?;
        let status = timeout(WAIT, response).await??.status().as_u16();
        Ok::<_, Failure>(status)
    };
    match cancelled.await {
        Ok(status) => {
            strike.tally.reach(sent);
            strike.tally.end(format!("cancelled; the last answer was {status}"), sent);
            Ok(())
        }
        // A GOAWAY for too many resets answers all requests.
        Err(e) => match e.downcast_ref::<h2::Error>() {
            Some(e) if e.is_go_away() && e.is_remote() => {
                strike.tally.reach(sent);
                strike.tally.end("connection ended by GOAWAY", sent);
                Ok(())
            }
            _ => Err(e),
        },
    }
}

async fn h3(strike: Strike) -> Result<(), Failure> {
    let mut client = strike.h3(None).await?;
    for number in 0..strike.attempts {
        let request = http::Request::get(format!("https://{NAME}{PATH}")).body(())?;
        let mut stream = client.requests.send_request(request).await?;
        strike.tally.attempt(1);
        if number.is_multiple_of(2) {
            stream.finish().await?;
            sleep(CANCEL_DELAY).await;
        } else {
            sleep(CANCEL_DELAY).await;
            stream.stop_stream(Code::H3_REQUEST_CANCELLED);
        }
        stream.stop_sending(Code::H3_REQUEST_CANCELLED);
    }
    let status = timeout(WAIT, client.ask("GET", LAST, Bytes::new())).await??;
    strike.tally.reach(strike.attempts.into());
    let how = format!("cancelled; the last answer was {status}");
    strike.tally.end(how, strike.attempts.into());
    client.close().await;
    Ok(())
}
