//! Start and end of the publishing of one stream.

use core::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use relay::{Refusal, Stream};
use tokio::time::sleep;

use super::alignment::CommonClock;
use super::input::PublisherInput;
use crate::bans::Bans;
use crate::config::Config;
use crate::ladder;
use crate::live::{Admission, Claim, Live, Publication, settings};

/// Message to a publisher after the operator ended its stream.
pub const ENDED: &str = "the operator ended this stream";

/// Reason why a publisher is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejection {
    /// The stream has a publisher, or there is no room for another stream.
    Refused(Refusal),
    /// The operator has ended the stream.
    Ended,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Ended => f.write_str(ENDED),
        }
    }
}

impl core::error::Error for Rejection {}

/// The ladder of a track: its name, the claim on that, and the clock of all tracks.
#[derive(Debug)]
pub(super) struct OfLadder<'a> {
    pub(super) name: &'a str,
    pub(super) claim: &'a mut Claim,
    pub(super) clock: &'a Arc<CommonClock>,
}

/// Starts to publish a stream. If it has a publisher, `[live] take_over` decides by `admission`
/// whether the new one replaces it.
///
/// # Errors
/// The reason, as text for the publisher's user.
pub fn publish(
    live: &Live,
    bans: &Bans,
    config: &Config,
    name: &str,
    admission: &Admission,
) -> Result<Publication, Rejection> {
    start(live, bans, config, name, admission, None)
}

/// Starts to publish a stream, or a track as a stream.
pub(super) fn start(
    live: &Live,
    bans: &Bans,
    config: &Config,
    name: &str,
    admission: &Admission,
    track: Option<OfLadder<'_>>,
) -> Result<Publication, Rejection> {
    let settings = settings(&config.live);
    let ask = || live.streams.publish(name, settings);
    let (claim, aligned) = match track {
        Some(OfLadder { name, claim, clock }) => (Some(claim), Some((name, clock.clone()))),
        None => (None, ladder::of_rendition(config, name).map(|l| (&l.name[..], Arc::default()))),
    };
    let take_over = (&live.streams, config.live.take_over);
    let publication = live.publishers.publish_as(name, admission, take_over, claim, ask);
    let mut publication = publication.map_err(Rejection::Refused)?;
    // Wall-clock timestamps: a later stream of this name, even after a restart, never reuses the
    // numbers and names of HLS segments, which derive from them.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    match aligned {
        Some((ladder, clock)) => {
            publication.publisher.align(live.ladders.keys().clone(), ladder, clock);
        }
        None => publication.publisher.begin_at(now.as_millis() as u32),
    }
    // A ban added meanwhile did not find the publisher.
    if bans.refuse_stream(name) {
        live.publishers.end(name);
        live.streams.end(publication.publisher.stream());
        return Err(Rejection::Ended);
    }
    Ok(publication)
}

/// Drops a publisher. The stream ends after `linger`, unless a publisher returns.
pub(super) fn lose(live: &Arc<Live>, publisher: PublisherInput, linger: Duration) {
    let (live, stream, number): (_, Arc<Stream>, _) =
        (live.clone(), publisher.stream().clone(), publisher.number());
    drop(publisher);
    tokio::spawn(async move {
        sleep(linger).await;
        if live.streams.end_after(&stream, number) {
            tracing::info!("{}: stream ended", stream.name());
        }
    });
}

/// Ends a publisher and its stream. Has no effect on a stream that another publisher has taken
/// over.
pub(super) fn end(live: &Live, publisher: PublisherInput) {
    let (stream, number) = (publisher.stream().clone(), publisher.number());
    drop(publisher);
    live.streams.end_after(&stream, number);
}
