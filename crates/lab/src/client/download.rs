//! Data received by a client, compared byte by byte with the expected content.

use bytes::Bytes;
use units::Timestamp;

use crate::ends::pattern;
use crate::live::{FrameArrival, Live, Reception};

/// Expected content.
enum Expected {
    Pattern(Bytes),
    Live(Box<Reception>),
}

/// Data received by a client.
pub(crate) struct Download {
    expected: Expected,
    /// Whether all data matched the expected content.
    pub intact: bool,
    pub received: u64,
    /// Completion time of each answer.
    pub completed: Vec<Timestamp>,
    /// Bytes received before the current answer.
    before: u64,
    pub finished: bool,
    pub failed: Option<String>,
}

impl Download {
    /// Expects a live stream, or the pattern.
    pub(crate) fn of(live: Option<&Live>) -> Self {
        let expected = match live {
            Some(live) => Expected::Live(Box::new(Reception::new(live.clone()))),
            None => Expected::Pattern(pattern()),
        };
        Self {
            expected,
            intact: true,
            received: 0,
            completed: Vec::new(),
            before: 0,
            finished: false,
            failed: None,
        }
    }

    /// Completes one of `times` answers. Returns whether another request follows.
    pub(crate) fn complete(&mut self, now: Timestamp, times: u32) -> bool {
        self.completed.push(now);
        self.before = self.received;
        self.finished = self.completed.len() >= times as usize;
        !self.finished
    }

    /// Compares received data with the requested content, byte by byte.
    pub(crate) fn take(&mut self, now: Timestamp, mut data: &[u8]) {
        let pattern = match &mut self.expected {
            Expected::Pattern(pattern) => pattern,
            Expected::Live(reception) => {
                self.intact &= reception.take(now, data);
                self.received += data.len() as u64;
                return;
            }
        };
        while !data.is_empty() {
            let at = ((self.received - self.before) % pattern.len() as u64) as usize;
            let length = data.len().min(pattern.len() - at);
            let (head, rest) = data.split_at(length);
            self.intact &= head == &pattern[at..at + length];
            self.received += length as u64;
            data = rest;
        }
    }

    /// Received frames of a live stream.
    pub(crate) fn arrivals(&self) -> &[FrameArrival] {
        match &self.expected {
            Expected::Pattern(_) => &[],
            Expected::Live(reception) => &reception.arrivals,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_is_seen() {
        let mut download = Download::of(None);
        let mut answer = pattern().repeat(2);
        download.take(Timestamp::ZERO, &answer[..70_000]);
        assert!(download.intact && download.received == 70_000);
        answer[70_001] ^= 1;
        download.take(Timestamp::ZERO, &answer[70_000..]);
        assert!(!download.intact);
    }
}
