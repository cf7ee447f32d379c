//! Uploads recordings: initialisation segments and segments in order, then a playlist that names
//! uploaded segments only. Segments that were removed before are gaps of that playlist.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use tokio::task::JoinSet;

use super::counts::UploadCounts;
use super::progress::Progress;
use super::store::{Store, StoreError};
use crate::record::stored::{self, StoredSegment};

/// Maximum number of recordings that are uploaded at once. Each has a part of a file in memory.
const MAX_AT_ONCE: usize = 8;
/// Maximum number of segments of a recording in a pass, so that a backlog does not delay others.
const BATCH: usize = 32;
/// Maximum depth of streams' directories: names have at most 128 characters.
const MAX_DEPTH: usize = 64;
/// Interval of log lines about lost segments.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Time stamp and length of a playlist.
type Stamp = (SystemTime, u64);

/// Upload of the recordings in a directory.
#[derive(Debug)]
pub(super) struct RecordingUpload {
    directory: PathBuf,
    store: Store,
    counts: Arc<UploadCounts>,
    /// Recordings that are completely uploaded.
    complete: HashSet<PathBuf>,
    /// Playlists of unfinished recordings with all segments uploaded.
    current: BTreeMap<PathBuf, Stamp>,
    logged: Option<Instant>,
}

/// State of a recording after a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Outcome {
    is_complete: bool,
    has_more: bool,
    /// Segments found lost.
    lost: u64,
}

impl RecordingUpload {
    pub(super) fn new(directory: PathBuf, store: Store, counts: Arc<UploadCounts>) -> Self {
        let (complete, current) = (HashSet::new(), BTreeMap::new());
        Self { directory, store, counts, complete, current, logged: None }
    }

    /// Uploads some segments of each recording. Returns whether there are more.
    ///
    /// # Errors
    /// The store fails, or a file cannot be read. Other recordings are uploaded nevertheless.
    pub(super) async fn pass(&mut self) -> Result<bool, StoreError> {
        let mut found = Vec::new();
        let mut complete = HashSet::new();
        find(&self.directory, 0, &self.complete, &mut complete, &mut found);
        self.complete = complete;
        found.sort();
        self.current.retain(|path, _| found.iter().any(|(_, known, _)| known == path));
        found.retain(|(_, path, stamp)| self.current.get(path) != Some(stamp));
        self.counts.pending.store(found.len() as u64, Ordering::Relaxed);
        let mut waiting = found.into_iter();
        let (mut running, mut error, mut has_more) = (JoinSet::new(), None, false);
        loop {
            // After a failure no further recording is started: the store may be away.
            while error.is_none()
                && running.len() < MAX_AT_ONCE
                && let Some((_, path, stamp)) = waiting.next()
            {
                let upload = TakeUpload {
                    name: store_name(&self.directory, &path),
                    path,
                    store: self.store.clone(),
                    counts: self.counts.clone(),
                };
                running.spawn(async move {
                    let outcome = upload.run().await;
                    (upload.path, stamp, outcome)
                });
            }
            let Some(done) = running.join_next().await else { break };
            // A panic was already reported.
            let Ok((path, stamp, outcome)) = done else { continue };
            match outcome {
                Ok(outcome) => {
                    self.note_lost(&path, outcome.lost);
                    has_more |= outcome.has_more;
                    if outcome.is_complete {
                        self.complete.insert(path);
                    } else if !outcome.has_more {
                        self.current.insert(path, stamp);
                    }
                    self.counts.pending.store(
                        (waiting.len() + running.len()) as u64 + u64::from(outcome.has_more),
                        Ordering::Relaxed,
                    );
                }
                Err(failed) => error = error.or(Some(failed)),
            }
        }
        error.map_or(Ok(has_more), Err)
    }

    fn note_lost(&mut self, path: &Path, lost: u64) {
        UploadCounts::add(&self.counts.lost, lost);
        if lost > 0 && self.logged.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            self.logged = Some(Instant::now());
            let path = path.display();
            tracing::warn!("{path}: {lost} segments were removed before they were uploaded");
        }
    }
}

/// Finds recordings that are not in `known`, the complete ones, and returns their start, path and
/// playlist's stamp. Moves those found in `known` to `complete`. Does not follow symbolic links.
fn find(
    directory: &Path,
    depth: usize,
    known: &HashSet<PathBuf>,
    complete: &mut HashSet<PathBuf>,
    found: &mut Vec<(i64, PathBuf, Stamp)>,
) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let path = entry.path();
        if known.contains(&path) {
            complete.insert(path);
            continue;
        }
        match stored::take_of(&path) {
            Some((start_ms, stamp)) => found.push((start_ms, path, stamp)),
            None if depth < MAX_DEPTH => find(&path, depth + 1, known, complete, found),
            None => {}
        }
    }
}

/// Returns the name of a recording in the store: its path below the directory.
fn store_name(directory: &Path, path: &Path) -> String {
    let below = path.strip_prefix(directory).unwrap_or(path);
    let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
    parts.join("/")
}

/// Upload of a recording.
struct TakeUpload {
    path: PathBuf,
    /// Name in the store.
    name: String,
    store: Store,
    counts: Arc<UploadCounts>,
}

impl TakeUpload {
    /// Uploads up to [`BATCH`] segments, and the playlist.
    async fn run(&self) -> Result<Outcome, StoreError> {
        let mut progress = Progress::read(&self.path);
        let mut outcome = Outcome { is_complete: progress.is_complete, has_more: false, lost: 0 };
        if progress.is_complete {
            return Ok(outcome);
        }
        let Some(playlist) = stored::read(&self.path) else {
            // Removed meanwhile, or damaged: nothing can be uploaded.
            return Ok(outcome);
        };
        let total = playlist.segments.len() as u64;
        let last = progress.next.checked_sub(1).and_then(|at| playlist.segments.get(at as usize));
        if progress.next > 0 && last.is_none_or(|last| last.wall_ms != progress.last_ms) {
            // Another recording than the uploaded one, after a power failure.
            progress = Progress::default();
        }
        let result = self.segments(&playlist.segments, &mut progress, &mut outcome).await;
        if result.is_err() {
            // Uploaded segments count, although a later one failed.
            progress.write(&self.path)?;
            return result.map(|()| outcome);
        }
        outcome.has_more = progress.next < total;
        let is_final = playlist.is_finished && !outcome.has_more;
        if progress.listed < progress.next || is_final {
            let text = playlist.render(progress.next as usize, &progress.lost, is_final);
            self.store.put(&self.file(stored::PLAYLIST), text.into()).await?;
            (progress.listed, progress.is_complete) = (progress.next, is_final);
            progress.write(&self.path)?;
        }
        outcome.is_complete = is_final;
        Ok(outcome)
    }

    /// Uploads the next segments, each after its initialisation segment.
    async fn segments(
        &self,
        segments: &[StoredSegment],
        progress: &mut Progress,
        outcome: &mut Outcome,
    ) -> Result<(), StoreError> {
        for segment in segments.iter().skip(progress.next as usize).take(BATCH) {
            if !segment.is_gap && !self.segment(segment, &mut progress.inits).await? {
                progress.lost.insert(progress.next);
                outcome.lost += 1;
            }
            (progress.next, progress.last_ms) = (progress.next + 1, segment.wall_ms);
        }
        Ok(())
    }

    /// Uploads a segment. Returns false if it does not exist.
    async fn segment(
        &self,
        segment: &StoredSegment,
        inits: &mut BTreeSet<String>,
    ) -> Result<bool, StoreError> {
        // Without it, the other one is worthless.
        if !self.path.join(&segment.file).exists() {
            return Ok(false);
        }
        if !inits.contains(&segment.init) {
            if !self.upload(&segment.init).await? {
                return Ok(false);
            }
            inits.insert(segment.init.clone());
        }
        self.upload(&segment.file).await
    }

    async fn upload(&self, file: &str) -> Result<bool, StoreError> {
        let size = self.store.upload(&self.file(file), &self.path.join(file)).await?;
        if let Some(size) = size {
            UploadCounts::add(&self.counts.files, 1);
            UploadCounts::add(&self.counts.bytes, size);
        }
        Ok(size.is_some())
    }

    fn file(&self, file: &str) -> String {
        format!("{}/{file}", self.name)
    }
}
