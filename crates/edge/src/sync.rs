//! Locks that ignore poisoning, since no panic leaves protected data inconsistent.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, even if another holder panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
