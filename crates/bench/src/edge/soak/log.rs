//! Size and control characters of the server's log, as they affect an operator's disk and terminal.

use std::io::{Result, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of the log, shared by clones. One clone is the log's writer.
#[derive(Clone, Debug, Default)]
pub(super) struct LogMeter {
    counters: Arc<LogCounters>,
    /// Last byte written.
    last: u8,
}

#[derive(Debug, Default)]
struct LogCounters {
    bytes: AtomicU64,
    lines: AtomicU64,
    controls: AtomicU64,
}

/// Size of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LogSize {
    /// Bytes, including line ends.
    pub bytes: u64,
    /// Lines.
    pub lines: u64,
    /// Control characters (ASCII and U+0080 to U+009F) except line ends and tabs.
    pub controls: u64,
}

impl LogMeter {
    /// Returns the current size.
    pub(super) fn size(&self) -> LogSize {
        let LogCounters { bytes, lines, controls } = &*self.counters;
        let [bytes, lines, controls] =
            [bytes, lines, controls].map(|counter| counter.load(Ordering::Relaxed));
        LogSize { bytes, lines, controls }
    }
}

/// First byte of the control characters U+0080 to U+00BF in UTF-8.
const C1: u8 = 0xc2;

impl Write for LogMeter {
    fn write(&mut self, input: &[u8]) -> Result<usize> {
        let (mut lines, mut controls) = (0, 0);
        for byte in input {
            let is_c1 = self.last == C1 && (0x80..0xa0).contains(byte);
            lines += u64::from(*byte == b'\n');
            controls += u64::from(is_c1 || byte.is_ascii_control() && !b"\n\t".contains(byte));
            self.last = *byte;
        }
        let counters = &self.counters;
        counters.bytes.fetch_add(input.len() as u64, Ordering::Relaxed);
        counters.lines.fetch_add(lines, Ordering::Relaxed);
        counters.controls.fetch_add(controls, Ordering::Relaxed);
        Ok(input.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_lines_and_control_characters_are_counted() {
        let meter = LogMeter::default();
        let text = "INFO\tone\nWARN \x1b[2Jtwo\r\n \u{9b}m \u{e9}\n";
        let (begin, end) = text.as_bytes().split_at(text.find('m').expect("an m") - 1);
        let mut writer = meter.clone();
        writer.write_all(begin).and_then(|()| writer.write_all(end)).expect("a counter takes all");
        assert_eq!(meter.size(), LogSize { bytes: text.len() as u64, lines: 3, controls: 3 });
    }
}
