//! Invalid player reports: with forged passes, for sessions without a view, with impossible
//! numbers, and with malformed content.
//!
//! 100 per second over HTTP/1.1 and over HTTP/3, on two connections per second each.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use super::crew::{Crew, Neighbour, Strike};
use crate::Failure;

/// Interval between requests on a connection.
const APART: Duration = Duration::from_millis(10);
const PATH: &str = "/beacon";
/// Larger than the server accepts.
const TOO_LARGE: usize = 5_000;

fn neighbour(name: &'static str) -> Neighbour {
    Neighbour { name, per_second: 100.0, at_once: 50, network: 5, addresses: 4 }
}

pub(super) fn join(crew: &mut Crew) {
    crew.add(neighbour("beacons: HTTP/1.1"), h1);
    crew.add(neighbour("beacons: HTTP/3"), h3);
}

/// Well-formed reports in each group of eight. The server must reject the others.
const VALID_PER_EIGHT: u32 = 3;

/// Returns the content of the numbered report. `pass` is a pass issued by the server.
fn content(number: u32, pass: &str) -> Bytes {
    let report = |pass: &str, played: &str, freezes: &str| {
        format!(
            "{{\"viewer\":\"{pass}\",\"stream\":\"live/bench\",\"first_frame_ms\":80,\
             \"played_s\":{played},\"freezes\":{freezes},\"freeze_s\":0.5}}"
        )
    };
    let text = match number % 8 {
        // A forged pass of the right length.
        0 => report(&pass.chars().rev().collect::<String>(), "9", "1"),
        1 => report(&format!("{number:060}"), "9", "1"),
        // A valid pass without a view.
        2 => report(pass, "9", "1"),
        3 => report(pass, "1e308", "18446744073709551615"),
        4 => report(pass, "-1", "-1"),
        5 => "[".repeat(4_000),
        6 => report(pass, "9", "1").split_off(20),
        _ => " ".repeat(TOO_LARGE),
    };
    text.into()
}

fn answered(strike: &Strike, number: u32, status: u16) {
    match status {
        200..300 if number % 8 >= VALID_PER_EIGHT => {
            strike.tally.breach(format!("status {status}, taken"))
        }
        _ => strike.tally.answer(format!("status {status}")),
    }
}

async fn h1(strike: Strike) -> Result<(), Failure> {
    let mut client = strike.h1().await?;
    let pass = pass(client.ask("GET", "/viewer", Bytes::new()).await?.1)?;
    for number in 0..strike.attempts {
        strike.tally.attempt(1);
        let status = match client.ask("POST", PATH, content(number, &pass)).await {
            Ok((status, _)) => status,
            // The server may close the connection after oversized content.
            Err(_) if number > 0 => {
                strike.tally.answer("connection ended by the server");
                client = strike.h1().await?;
                continue;
            }
            Err(e) => return Err(e),
        };
        answered(&strike, number, status);
        sleep(APART).await;
    }
    Ok(())
}

async fn h3(strike: Strike) -> Result<(), Failure> {
    let pass = pass(strike.h1().await?.ask("GET", "/viewer", Bytes::new()).await?.1)?;
    let mut client = strike.h3(None).await?;
    for number in 0..strike.attempts {
        strike.tally.attempt(1);
        match client.ask("POST", PATH, content(number, &pass)).await {
            Ok(status) => answered(&strike, number, status),
            // The server may stop a request with oversized content. The connection stays open.
            Err(_) if client.connection.close_reason().is_none() => {
                strike.tally.answer("request ended by the server");
            }
            Err(e) => return Err(e),
        }
        sleep(APART).await;
    }
    client.close().await;
    Ok(())
}

fn pass(body: Bytes) -> Result<String, Failure> {
    Ok(String::from_utf8(body.into())?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_differ_and_some_are_too_large() {
        let pass = "p".repeat(59) + "q";
        let all: std::collections::BTreeSet<_> = (0..8).map(|n| content(n, &pass)).collect();
        assert_eq!(all.len(), 8);
        assert!(all.iter().any(|content| content.len() > 4_096));
        assert!(content(2, &pass).starts_with(b"{\"viewer\":\"ppp"));
    }
}
