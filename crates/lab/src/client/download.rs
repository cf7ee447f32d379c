//! Data received by a client, compared byte by byte with the expected content.

use bytes::Bytes;
use units::Timestamp;

use crate::dash::{self, DashOutcome};
use crate::ends::pattern;
use crate::live::{FrameArrival, Reception};
use crate::traffic::Traffic;

/// Expected content.
enum Expected {
    Pattern(Bytes),
    Live(Box<Reception>),
    Dash(Box<dash::Reception>),
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
    /// Expects this traffic. The client's first packet leaves at `begins`.
    pub(crate) fn of(traffic: &Traffic, begins: Timestamp) -> Self {
        let expected = match traffic {
            Traffic::Live(live) => Expected::Live(Box::new(Reception::new(live.clone()))),
            Traffic::Dash(dash) => {
                Expected::Dash(Box::new(dash::Reception::new(dash.clone(), begins)))
            }
            _ => Expected::Pattern(pattern()),
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

    /// Completes one of `times` answers, or a segment of a video. Returns whether another request
    /// follows at once.
    pub(crate) fn complete(&mut self, now: Timestamp, times: u32) -> bool {
        self.completed.push(now);
        self.before = self.received;
        if let Expected::Dash(reception) = &mut self.expected {
            self.intact &= reception.complete(now);
            self.finished = reception.is_complete();
            return reception.due().is_some_and(|due| due <= now);
        }
        self.finished = self.completed.len() >= times as usize;
        !self.finished
    }

    /// Returns the path of the next segment of a video, and notes its request; `None` for other
    /// traffic.
    pub(crate) fn ask(&mut self, now: Timestamp) -> Option<String> {
        match &mut self.expected {
            Expected::Dash(reception) => Some(reception.ask(now)),
            _ => None,
        }
    }

    /// Time of the next request for a segment that the player delays.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        match &self.expected {
            Expected::Dash(reception) => reception.due(),
            _ => None,
        }
    }

    /// Playback of a video.
    pub(crate) fn dash(&self) -> Option<&DashOutcome> {
        match &self.expected {
            Expected::Dash(reception) => Some(reception.outcome()),
            _ => None,
        }
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
            Expected::Dash(reception) => {
                self.intact &= reception.take(data);
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
            Expected::Live(reception) => &reception.arrivals,
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_is_seen() {
        let mut download = Download::of(&Traffic::Download { bytes: 1 }, Timestamp::ZERO);
        let mut answer = pattern().repeat(2);
        download.take(Timestamp::ZERO, &answer[..70_000]);
        assert!(download.intact && download.received == 70_000);
        answer[70_001] ^= 1;
        download.take(Timestamp::ZERO, &answer[70_000..]);
        assert!(!download.intact);
    }
}
