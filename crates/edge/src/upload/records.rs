//! Uploads session records: the Parquet file of each period, once it is complete.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::counts::UploadCounts;
use super::store::{Store, StoreError};

/// Maximum number of files of a pass.
const BATCH: usize = 16;

/// Upload of session records.
#[derive(Debug)]
pub(super) struct RecordUpload {
    directory: PathBuf,
    store: Store,
    counts: Arc<UploadCounts>,
    /// Files of the store, or lost ones; `None` before the store was asked.
    known: Option<BTreeSet<String>>,
    /// Files that were found and not yet uploaded.
    waiting: BTreeSet<String>,
}

impl RecordUpload {
    pub(super) fn new(directory: PathBuf, store: Store, counts: Arc<UploadCounts>) -> Self {
        Self { directory, store, counts, known: None, waiting: BTreeSet::new() }
    }

    /// Uploads some files, oldest first. Returns whether there are more.
    ///
    /// # Errors
    /// The store fails, or a file cannot be read.
    pub(super) async fn pass(&mut self) -> Result<bool, StoreError> {
        let local = self.local();
        let known = match &mut self.known {
            Some(known) => known,
            None => {
                let stored: BTreeMap<String, u64> = match self.store.list().await {
                    Ok(files) => files.into_iter().collect(),
                    // Some stores do not know a place without files.
                    Err(StoreError::Missing) => BTreeMap::new(),
                    Err(error) => return Err(error),
                };
                let is_stored = |(name, size): &(&String, &u64)| stored.get(*name) == Some(*size);
                let known = local.iter().filter(is_stored).map(|(name, _)| name.clone()).collect();
                self.known.insert(known)
            }
        };
        let gone: Vec<String> =
            self.waiting.iter().filter(|name| !local.contains_key(*name)).cloned().collect();
        for name in gone {
            self.waiting.remove(&name);
            UploadCounts::add(&self.counts.lost, 1);
            tracing::warn!("session records {name}: removed before they were uploaded");
        }
        known.retain(|name| local.contains_key(name));
        self.waiting = local.into_keys().filter(|name| !known.contains(name)).collect();
        self.counts.pending.store(self.waiting.len() as u64, Ordering::Relaxed);
        let batch: Vec<String> = self.waiting.iter().take(BATCH).cloned().collect();
        for name in batch {
            if let Some(size) = self.store.upload(&name, &self.directory.join(&name)).await? {
                UploadCounts::add(&self.counts.files, 1);
                UploadCounts::add(&self.counts.bytes, size);
                self.waiting.remove(&name);
                known.insert(name);
                self.counts.pending.store(self.waiting.len() as u64, Ordering::Relaxed);
            }
        }
        Ok(!self.waiting.is_empty())
    }

    /// Returns the names and sizes of the complete files.
    fn local(&self) -> BTreeMap<String, u64> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let file = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let is_own = name.starts_with("sessions-") && name.ends_with(".parquet");
            let metadata = is_own.then(|| entry.metadata().ok()).flatten()?;
            metadata.is_file().then_some((name, metadata.len()))
        };
        entries.filter_map(file).collect()
    }
}
