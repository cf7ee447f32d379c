//! A viewer of a ladder with a player that cannot choose: its rendition follows the delivery rate.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use delivery::RenditionChoice;
use relay::{Status, Stream, Viewer};
use units::Rate;

use crate::io::SincePath;
use crate::sync::lock;

/// Maximum wait for the key frame of the chosen rendition, which may arrive later than the
/// current rendition's.
const MAX_WAIT: Duration = Duration::from_millis(500);

/// The running renditions of a ladder, updated each second.
#[derive(Debug, Default)]
pub struct RunningRenditions(Mutex<Arc<[Arc<Stream>]>>);

impl RunningRenditions {
    fn get(&self) -> Arc<[Arc<Stream>]> {
        lock(&self.0).clone()
    }

    /// Replaces the renditions.
    pub(crate) fn set(&self, running: Vec<Arc<Stream>>) {
        *lock(&self.0) = running.into();
    }
}

/// State of one viewer.
#[derive(Debug)]
pub struct RenditionFollower {
    running: Arc<RunningRenditions>,
    choice: RenditionChoice,
    began: Instant,
    /// Start of the wait for another rendition's key frame.
    waits_since: Option<Duration>,
    /// Path of a viewer on TCP.
    tcp: Option<SincePath>,
}

impl RenditionFollower {
    /// Creates the state of a viewer that begins now. `tcp` is the path of a viewer on TCP.
    pub(crate) fn new(running: Arc<RunningRenditions>, tcp: Option<SincePath>) -> Self {
        let choice = RenditionChoice::new(Duration::ZERO);
        Self { running, choice, began: Instant::now(), waits_since: None, tcp }
    }

    /// Sets the delivery rate of the path, as measured by QUIC.
    pub(super) fn on_path(&mut self, rate: Rate) {
        self.choice.on_path(Some(rate));
    }

    /// Counts a delivered tag, or notes that none was waiting.
    pub(super) fn on_polled(&mut self, bytes: Option<usize>) {
        match bytes {
            Some(bytes) => self.choice.on_delivered(self.began.elapsed(), bytes),
            None => self.choice.on_idle(),
        }
    }

    /// Changes the rendition if that is due before the viewer's next tag. Pending while the key
    /// frame of the chosen rendition is about to arrive.
    pub(super) fn poll_change(
        &mut self,
        viewer: &mut Viewer,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let key = viewer.next_key();
        if key.is_none() && !viewer.must_skip() {
            return Poll::Ready(());
        }
        if let Some(tcp) = &self.tcp {
            self.choice.on_path(tcp.latest_rate());
        }
        let now = self.began.elapsed();
        let renditions = self.running.get();
        let is_current = |stream: &Arc<Stream>| Arc::ptr_eq(stream, viewer.stream());
        let Some(current) = renditions.iter().position(is_current) else { return Poll::Ready(()) };
        let bitrates: Vec<_> = renditions.iter().map(|stream| stream.bitrate()).collect();
        let chosen = self.choice.choose(now, viewer.lag_ms(), current, &bitrates);
        let target = &renditions[chosen];
        if chosen == current {
            self.waits_since = None;
            return Poll::Ready(());
        }
        let has_changed = match key {
            Some(key) => viewer.switch(target, key),
            None => viewer.restart(target),
        };
        if has_changed {
            self.waits_since = None;
            self.choice.on_change(now, bitrates[chosen] > bitrates[current]);
            return Poll::Ready(());
        }
        if let Some(key) = key.filter(|key| is_before(target, *key)) {
            let since = *self.waits_since.get_or_insert(now);
            if now - since < MAX_WAIT && viewer.stream().status() == Status::Live {
                tracing::trace!("waits for the key frame {key} of {}", target.name());
                return viewer.poll_change(context);
            }
        }
        self.waits_since = None;
        self.choice.on_missed(now);
        Poll::Ready(())
    }

    /// Replaces a rendition without a publisher by the first one that has one. Returns whether the
    /// viewer has changed. To be called when the rendition has no further tag.
    pub(super) fn replace_lost(&mut self, viewer: &mut Viewer) -> bool {
        if viewer.stream().status() == Status::Live {
            return false;
        }
        let (renditions, lost) = (self.running.get(), viewer.stream().clone());
        let mut live = renditions
            .iter()
            .filter(|stream| stream.status() == Status::Live && !Arc::ptr_eq(stream, &lost));
        let has_changed = live.any(|stream| viewer.restart(stream));
        if has_changed {
            self.choice.on_change(self.began.elapsed(), false);
        }
        has_changed
    }
}

/// Whether the stream's newest tag precedes this time.
fn is_before(stream: &Stream, time_ms: u32) -> bool {
    let newest = stream.with_cache(|cache| cache.newest().map(media::Tag::timestamp));
    stream.status() == Status::Live
        && newest.is_some_and(|newest| (newest.wrapping_sub(time_ms) as i32) < 0)
}
