//! Player reports that would corrupt the statistics, each with the pass of an open session: numbers
//! beyond the range of floats, negative ones, NaN, a billion freezes, times longer than the
//! session, and decreasing counters.
//!
//! 20 reports per second, 10 on each of two sessions per second, which last for three seconds.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::sleep;

use super::clients::Http;
use super::crew::{Crew, Neighbour, Strike};
use crate::Failure;
use crate::identity::NAME;

/// Interval between reports.
const APART: Duration = Duration::from_millis(300);
/// Maximum size of a response's head, in bytes.
const MAX_HEAD: usize = 16 << 10;
/// Header with the pass of the session.
const PASS: &str = "mendcast-viewer: ";

/// `first_frame_ms`, `played_s`, `freezes`, `freeze_s` and `buffer_ms` of a report, and whether the
/// server must reject it. The first one is honest: later reports count relative to it.
const REPORTS: [([&str; 5], bool); 10] = [
    (["80", "0.1", "0", "0", "500"], false),
    (["80", "1e400", "0", "0", "500"], true),
    (["80", "1", "-5", "-5", "500"], true),
    (["NaN", "NaN", "NaN", "NaN", "NaN"], true),
    (["80", "1", "1000000000", "0.5", "500"], true),
    (["80", "2592000", "1000000000", "0", "500"], false),
    (["80", "0.1", "2500000000", "2592000", "500"], false),
    (["2592000000", "3600", "3600", "3600", "2592000000"], false),
    (["0", "0", "0", "0", "0"], false),
    (["80", "2592000", "2592000000", "2592000", "500"], false),
];

pub(super) fn join(crew: &mut Crew) {
    let neighbour = Neighbour {
        name: "poisoned reports",
        per_second: 20.0,
        at_once: REPORTS.len() as u32,
        network: 11,
        addresses: 4,
    };
    crew.add(neighbour, reports);
}

async fn reports(strike: Strike) -> Result<(), Failure> {
    let mut session = strike.tls(Http::V1, None).await?;
    let request = format!("GET /live/bench.flv HTTP/1.1\r\nHost: {NAME}\r\n\r\n");
    session.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    let pass = loop {
        if let Some(pass) = pass(&head) {
            break pass;
        }
        if head.len() > MAX_HEAD || session.read_buf(&mut head).await? == 0 {
            return Err("a response without a pass".into());
        }
    };
    let mut client = strike.h1().await?;
    for (report, must_be_refused) in REPORTS {
        strike.tally.attempt(1);
        match client.ask("POST", "/beacon", content(&pass, report).into()).await?.0 {
            status @ 200..300 if must_be_refused => {
                strike.tally.breach(format!("status {status}, taken"))
            }
            status => strike.tally.answer(format!("status {status}")),
        }
        sleep(APART).await;
    }
    Ok(())
}

/// Returns the pass in the head of a response, once its line is complete.
fn pass(head: &[u8]) -> Option<String> {
    let head =
        String::from_utf8_lossy(head).to_ascii_lowercase().find(PASS).map(|at| &head[at..])?;
    let line = &head[..head.windows(2).position(|end| end == b"\r\n")?];
    String::from_utf8(line[PASS.len()..].to_vec()).ok()
}

fn content(pass: &str, [first, played, freezes, frozen, buffer]: [&str; 5]) -> String {
    format!(
        "{{\"viewer\":\"{pass}\",\"stream\":\"live/bench\",\"first_frame_ms\":{first},\
         \"played_s\":{played},\"freezes\":{freezes},\"freeze_s\":{frozen},\"buffer_ms\":{buffer}}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pass_is_found_once_its_line_is_complete() {
        let head = b"HTTP/1.1 200 OK\r\nMendcast-Viewer: aBc\r\n\r\nFLV\xff";
        assert_eq!(pass(head).as_deref(), Some("aBc"));
        assert_eq!(pass(&head[..35]), None);
    }

    #[test]
    fn invalid_reports_differ_from_valid_ones() {
        let is_json =
            |report| serde_json::from_str::<serde_json::Value>(&content("p", report)).is_ok();
        assert!(is_json(REPORTS[0].0) && !REPORTS[0].1);
        assert_eq!(REPORTS.iter().filter(|(report, _)| !is_json(*report)).count(), 2);
        assert!(REPORTS.iter().all(|(report, refused)| is_json(*report) || *refused));
    }
}
