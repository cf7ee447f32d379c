//! Counts of uploads.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of a directory, for metrics.
#[derive(Debug, Default)]
pub(crate) struct UploadCounts {
    /// Uploaded files, and their bytes.
    pub files: AtomicU64,
    pub bytes: AtomicU64,
    /// Failed attempts.
    pub failures: AtomicU64,
    /// Files that were removed before they were uploaded.
    pub lost: AtomicU64,
    /// Recordings or record files that are not completely uploaded.
    pub pending: AtomicU64,
}

impl UploadCounts {
    pub(super) fn add(count: &AtomicU64, number: u64) {
        count.fetch_add(number, Ordering::Relaxed);
    }
}
