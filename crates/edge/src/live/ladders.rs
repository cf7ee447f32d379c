//! The ladders that viewers request: packagers of their renditions, and viewers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use media::Tag;
use media::hls::Segmenter;
use media::hls::segmenter::TrackSelection;
use relay::{Registry, Status, Stream};
use tokio::runtime::Handle;

use super::hls_viewers::HlsViewers;
use super::key_frames::KeyFrames;
use super::outlet::{Outlet, Outlets, Timing};
use super::renditions::RunningRenditions;
use crate::config::{self, Config};
use crate::ladder::{self, Playable};
use crate::sync::lock;

/// Minimum interval of look-ups of a ladder's renditions.
const RECHECK: Duration = Duration::from_millis(500);

/// All ladders of the process, by name.
#[derive(Debug, Default)]
pub struct Ladders {
    keys: Arc<KeyFrames>,
    requested: Mutex<HashMap<String, Arc<RequestedLadder>>>,
}

/// A ladder that viewers have requested.
#[derive(Debug, Default)]
pub struct RequestedLadder {
    /// Running renditions, updated each second for viewers with players that cannot choose.
    running: Arc<RunningRenditions>,
    viewers: HlsViewers,
    timing: Mutex<Timing>,
    /// Time of the last call of [`RequestedLadder::is_due`] that returned true.
    due: Mutex<Option<Instant>>,
}

/// Packagers of the streams of a ladder.
#[derive(Debug, Default)]
pub(crate) struct Packagers {
    pub(crate) renditions: Vec<Arc<Outlet>>,
    /// Audio renditions.
    pub(crate) audio: Vec<Arc<Outlet>>,
}

impl RequestedLadder {
    /// Returns the viewers, whichever renditions they request.
    pub(crate) fn viewers(&self) -> &HlsViewers {
        &self.viewers
    }

    /// Returns the running renditions, as of at most a second ago.
    pub(crate) fn running(&self) -> &Arc<RunningRenditions> {
        &self.running
    }

    /// Whether the running renditions must be looked up again. At most every [`RECHECK`], because
    /// players request playlists several times per second.
    pub(crate) fn is_due(&self) -> bool {
        let mut due = lock(&self.due);
        let is_due = due.is_none_or(|last| last.elapsed() >= RECHECK);
        if is_due {
            *due = Some(Instant::now());
        }
        is_due
    }

    /// Returns the packagers of the streams, started on `runtime` if necessary. `is_shared` tells
    /// whether the media of a stream has the same URLs for all viewers. Streams without room for a
    /// packager are left out.
    ///
    /// All renditions are packaged while viewers request one of them, so that a switch finds
    /// segments. Audio renditions follow when the slots are known.
    pub(crate) fn open(
        &self,
        streams: &Playable,
        outlets: &Outlets,
        config: &config::Hls,
        is_shared: impl Fn(&str) -> bool,
        runtime: &Handle,
    ) -> Packagers {
        let Playable { renditions, audio, tracks } = streams;
        let mut timing = lock(&self.timing);
        if !renditions.iter().any(|stream| outlets.has(stream, *tracks)) {
            *timing = Timing { date_offset_ms: date_offset_ms(renditions), ..Timing::default() };
        }
        let open = |streams: &[Arc<Stream>], tracks, timing: Timing| -> Vec<Arc<Outlet>> {
            let open = |stream: &Arc<Stream>| {
                let timing = Timing { shared: is_shared(stream.name()), tracks, ..timing };
                outlets.of_rendition(stream, config, timing, runtime)
            };
            let opened: Vec<_> = streams.iter().filter_map(open).collect();
            opened.iter().for_each(|outlet| outlet.touch());
            opened
        };
        let mut opened = open(renditions, *tracks, *timing);
        if timing.slot.is_none() {
            // The first rendition with a segment determines the slots of all, and the dates unless
            // one was live before.
            let found = |segmenter: &Segmenter| segmenter.slot().zip(segmenter.date_offset_ms());
            if let Some((slot, date_offset_ms)) =
                opened.iter().find_map(|outlet| outlet.look(found))
            {
                timing.slot = Some(slot);
                timing.date_offset_ms.get_or_insert(date_offset_ms);
                opened = open(renditions, *tracks, *timing);
            }
        }
        let audio =
            timing.slot.map_or_else(Vec::new, |_| open(audio, TrackSelection::Audio, *timing));
        Packagers { renditions: opened, audio }
    }
}

/// Returns the difference of wall time and stream time of the first live rendition.
fn date_offset_ms(renditions: &[Arc<Stream>]) -> Option<i64> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let mut live = renditions.iter().filter(|stream| stream.status() == Status::Live);
    let newest_ms =
        live.find_map(|stream| stream.with_cache(|cache| cache.newest().map(Tag::timestamp)))?;
    // Stream time is the time with these 32 bits that is nearest to the wall clock.
    let ahead_ms = newest_ms.wrapping_sub(now.as_millis() as u32) as i32;
    Some(-i64::from(ahead_ms))
}

impl Ladders {
    /// Returns the key frames of all ladders.
    pub(crate) fn keys(&self) -> &Arc<KeyFrames> {
        &self.keys
    }

    /// Returns the ladder of this name, which the configuration must have.
    pub(crate) fn get(&self, name: &str) -> Arc<RequestedLadder> {
        lock(&self.requested).entry(name.to_owned()).or_default().clone()
    }

    /// Removes idle viewers, and updates the running renditions. Called once per second.
    pub(crate) fn tidy(&self, config: &Config, streams: &Registry) {
        let all: Vec<_> =
            lock(&self.requested).iter().map(|(name, all)| (name.clone(), all.clone())).collect();
        for (name, requested) in all {
            requested.viewers.forget_idle();
            let running = ladder::get(config, &name)
                .map_or_else(Vec::new, |ladder| ladder::running(config, streams, ladder));
            requested.running.set(running);
        }
    }

    /// Ends all sessions, at process exit.
    pub(crate) fn close(&self) {
        let all: Vec<_> = lock(&self.requested).drain().collect();
        all.iter().for_each(|(_, ladder)| drop(ladder.viewers.take()));
    }
}
