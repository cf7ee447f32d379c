//! Time shift: viewers play a stream from its recordings (`[[record]] time_shift`).
//!
//! Threads of a pool of its own access the disk, so that a stuck one affects neither live streams
//! nor static files.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use super::directory::folder;
use super::entries::RecordedFile;
use super::window::{Entrance, RenderedPlaylist, Window};
use crate::config::{self, Config, is_stream_name};
use crate::disk::pool::Pool;
use crate::live::HlsViewers;
use crate::names::matches;
use crate::sync::lock;

/// Time without requests after which a stream's index is dropped.
const IDLE: Duration = Duration::from_secs(60);
/// Minimum interval of reading a stream's recordings.
const RECHECK: Duration = Duration::from_millis(500);
/// Maximum number of streams with an index. An index of 24 h has about 1 MB.
const MAX_STREAMS: usize = 1_024;

/// Returns the rule that switches on time shift for the stream; `None` also for invalid names.
pub(crate) fn rule_of<'a>(config: &'a Config, stream: &str) -> Option<&'a config::Recording> {
    let mut rules = config.record.iter();
    rules
        .find(|rule| !rule.time_shift.is_zero() && matches(&rule.stream, stream))
        .filter(|_| is_stream_name(stream))
}

/// Reason why a stream has no time shift now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoTimeShift {
    /// The window has no recording.
    Empty,
    /// There are too many other streams, or a thread cannot be started.
    Full,
}

/// A stream with viewers in the past.
#[derive(Debug)]
pub(crate) struct ShiftedStream {
    window: Mutex<(Window, Option<Instant>)>,
    viewers: HlsViewers,
    last_request: Mutex<Instant>,
}

impl ShiftedStream {
    /// Returns the viewers.
    pub(crate) fn viewers(&self) -> &HlsViewers {
        &self.viewers
    }

    /// Calls `look` with the window, at most [`RECHECK`] old.
    fn with_window<T>(&self, now: SystemTime, look: impl FnOnce(&mut Window, i64) -> T) -> T {
        let now_ms = ms(now);
        let (window, checked) = &mut *lock(&self.window);
        if checked.is_none_or(|at| at.elapsed() >= RECHECK) {
            window.refresh(now_ms);
            *checked = Some(Instant::now());
        }
        look(window, now_ms)
    }

    /// Returns the playlist and position for a viewer who starts `ago` before `now`. Blocks while
    /// the disk is read, as the next two.
    pub(crate) fn enter(&self, ago: Duration, now: SystemTime) -> Entrance {
        self.with_window(now, |window, now_ms| window.enter(ago, now_ms))
    }

    /// Returns the playlist from `start_s` on, in seconds since 1970; `None` if the window is
    /// empty. `is_recorded` tells whether the stream is being recorded; with `is_shared`, URLs are
    /// the same for all viewers.
    pub(crate) fn playlist(
        &self,
        start_s: u64,
        now: SystemTime,
        (is_recorded, is_shared): (bool, bool),
    ) -> Option<RenderedPlaylist> {
        self.with_window(now, |window, now_ms| {
            window.playlist(start_s, now_ms, (is_recorded, is_shared))
        })
    }

    /// Returns the path of a file that playlists name.
    pub(crate) fn path(&self, file: &RecordedFile, now: SystemTime) -> Option<PathBuf> {
        self.with_window(now, |window, now_ms| window.path(file, now_ms))
    }
}

/// Directory, name and window of a stream.
type StreamKey = (PathBuf, String, Duration);

/// The streams with viewers in the past. Reloads keep them.
#[derive(Debug, Default)]
pub struct TimeShifts {
    pool: OnceLock<Option<Arc<Pool>>>,
    streams: Mutex<HashMap<StreamKey, Arc<ShiftedStream>>>,
}

impl TimeShifts {
    /// Returns the threads that read recordings; `None` if they cannot be started.
    pub(crate) fn pool(&self) -> Option<&Arc<Pool>> {
        self.pool.get_or_init(|| Pool::start().ok().map(Arc::new)).as_ref()
    }

    /// Returns the stream's index. Blocks while the disk is read.
    ///
    /// # Errors
    /// There is nothing to play, or no room.
    pub(crate) fn open(
        &self,
        rule: &config::Recording,
        stream: &str,
        now: SystemTime,
    ) -> Result<Arc<ShiftedStream>, NoTimeShift> {
        let directory = rule.directory.clone().ok_or(NoTimeShift::Empty)?;
        let key = (directory, stream.to_owned(), rule.time_shift);
        let known = lock(&self.streams).get(&key).cloned();
        let found = match known {
            Some(known) => known,
            None => {
                // Streams without recordings must not use the room of others.
                let folder = folder(&key.0, stream);
                let mut window = Window::new(folder, rule.time_shift);
                window.refresh(ms(now));
                if window.is_empty(ms(now)) {
                    return Err(NoTimeShift::Empty);
                }
                let mut streams = lock(&self.streams);
                if streams.len() >= MAX_STREAMS && !streams.contains_key(&key) {
                    return Err(NoTimeShift::Full);
                }
                let new = || {
                    Arc::new(ShiftedStream {
                        window: Mutex::new((window, Some(Instant::now()))),
                        viewers: HlsViewers::default(),
                        last_request: Mutex::new(Instant::now()),
                    })
                };
                streams.entry(key).or_insert_with(new).clone()
            }
        };
        *lock(&found.last_request) = Instant::now();
        if found.with_window(now, |window, now_ms| window.is_empty(now_ms)) {
            return Err(NoTimeShift::Empty);
        }
        Ok(found)
    }

    /// Removes idle viewers, and indices of streams without requests or rule. Called once per
    /// second.
    pub(crate) fn tidy(&self, config: &Config) {
        let all: Vec<_> = lock(&self.streams).values().cloned().collect();
        all.iter().for_each(|stream| stream.viewers.forget_idle());
        self.retain(|(directory, name, length), stream| {
            let is_ruled = rule_of(config, name).is_some_and(|rule| {
                rule.directory.as_ref() == Some(directory) && rule.time_shift == *length
            });
            is_ruled && lock(&stream.last_request).elapsed() < IDLE
        });
    }

    /// Ends all sessions, at process exit.
    pub(crate) fn close(&self) {
        self.retain(|_, _| false);
    }

    fn retain(&self, stays: impl Fn(&StreamKey, &ShiftedStream) -> bool) {
        // Sessions end after the lock is released.
        let mut dropped = Vec::new();
        lock(&self.streams).retain(|key, stream| {
            let stays = stays(key, stream);
            if !stays {
                dropped.push((stream.clone(), stream.viewers.take()));
            }
            stays
        });
    }
}

fn ms(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
