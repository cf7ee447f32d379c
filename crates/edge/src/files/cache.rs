//! Cache of small files, shared by all viewers. An entry is valid while the file's modification
//! time and length are unchanged. The oldest entries are evicted first.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bytes::Bytes;

/// Maximum size of a cached file in bytes. Reading 1 MiB takes about 0.1 ms.
const MAX_FILE_SIZE: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Cache {
    files: HashMap<PathBuf, (SystemTime, Bytes)>,
    order: VecDeque<PathBuf>,
    used: usize,
    capacity: usize,
}

impl Cache {
    /// Creates a cache of at most `capacity` bytes.
    pub(super) fn new(capacity: usize) -> Self {
        Self { files: HashMap::new(), order: VecDeque::new(), used: 0, capacity }
    }

    /// Whether a file of `len` bytes would be cached.
    pub(super) fn accepts(&self, len: usize) -> bool {
        len <= MAX_FILE_SIZE.min(self.capacity / 8)
    }

    /// Returns the content of `path`, unless it has changed.
    pub(super) fn get(&self, path: &Path, modified: SystemTime, len: u64) -> Option<Bytes> {
        let (then, bytes) = self.files.get(path)?;
        (*then == modified && bytes.len() as u64 == len).then(|| bytes.clone())
    }

    /// Stores `bytes` as the content of `path`.
    pub(super) fn put(&mut self, path: &Path, modified: SystemTime, bytes: Bytes) {
        // Counting names, too, bounds the number of empty files.
        self.used += cost(path, &bytes);
        match self.files.insert(path.to_owned(), (modified, bytes)) {
            Some((_, old)) => self.used -= cost(path, &old),
            None => self.order.push_back(path.to_owned()),
        }
        while self.used > self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            if let Some((_, bytes)) = self.files.remove(&oldest) {
                self.used -= cost(&oldest, &bytes);
            }
        }
    }
}

fn cost(path: &Path, bytes: &Bytes) -> usize {
    bytes.len() + 2 * path.as_os_str().len() + 128
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: SystemTime = SystemTime::UNIX_EPOCH;

    #[test]
    fn evicts_the_oldest_files_first() {
        let mut cache = Cache::new(10_000);
        let names: Vec<PathBuf> = (0..100).map(|i| format!("/{i}").into()).collect();
        for name in &names {
            cache.put(name, EPOCH, Bytes::from(vec![0; 900]));
            assert!(cache.used <= 10_000);
        }
        assert!(cache.get(&names[99], EPOCH, 900).is_some());
        assert!(cache.get(&names[0], EPOCH, 900).is_none());
        assert_eq!(cache.files.len(), cache.order.len());
        assert!(cache.accepts(1_250) && !cache.accepts(1_251));
    }

    #[test]
    fn a_changed_file_is_replaced_and_counted_once() {
        let mut cache = Cache::new(10_000);
        let path = Path::new("/a");
        let later = EPOCH + std::time::Duration::from_nanos(1);
        cache.put(path, EPOCH, Bytes::from_static(b"one"));
        assert!(cache.get(path, later, 3).is_none());
        assert!(cache.get(path, EPOCH, 4).is_none());
        let used = cache.used;
        cache.put(path, later, Bytes::from_static(b"two"));
        assert_eq!(cache.get(path, later, 3), Some(Bytes::from_static(b"two")));
        assert_eq!((cache.used, cache.order.len()), (used, 1));
    }
}
