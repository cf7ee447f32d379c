//! CRYPTO stream of one packet-number space (RFC 9000, sections 7.5 and 19.6): sends handshake
//! bytes with retransmission, and reassembles received ones within bounds.

use crate::ledger::SentFrame;
use crate::ranges::RangeSet;
use crate::wire::{TransportError, TransportErrorCode, Writer, put_crypto, types};

/// Maximum bytes buffered beyond a gap (RFC 9000, section 7.5, requires at least 4,096).
const MAX_BUFFERED: u64 = 16_384;
/// Maximum number of buffered ranges. Some clients split their ClientHello on purpose.
const MAX_PIECES: usize = 256;
/// Maximum length of frame type, offset and length.
const FRAME_OVERHEAD: usize = 1 + 8 + 2;

/// Handshake bytes to send.
#[derive(Debug, Default)]
pub(crate) struct CryptoSend {
    data: Vec<u8>,
    /// Stream offset of the first byte of `data`.
    base: u64,
    /// First offset never sent.
    next: u64,
    lost: RangeSet,
    acked: RangeSet,
}

impl CryptoSend {
    /// Appends bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.data.extend_from_slice(bytes);
    }

    fn end(&self) -> u64 {
        self.base + self.data.len() as u64
    }

    /// Returns true if bytes wait to be sent or retransmitted.
    pub(crate) fn is_due(&self) -> bool {
        self.next < self.end() || !self.lost.is_empty()
    }

    /// Writes one CRYPTO frame, lost bytes first; none if nothing waits or fits.
    pub(crate) fn write_frame(&mut self, w: &mut Writer<'_>) -> Option<SentFrame> {
        let room = w.remaining().checked_sub(FRAME_OVERHEAD).filter(|&room| room >= 16)?;
        let (start, end) = match self.lost.first() {
            Some(range) => (range.start, range.end),
            None => (self.next, self.end()),
        };
        let end = end.min(start + room as u64).min(start + 8_192);
        if start >= end {
            return None;
        }
        self.lost.remove(start..end);
        self.next = self.next.max(end);
        let data = &self.data[(start - self.base) as usize..(end - self.base) as usize];
        put_crypto(w, start, data);
        Some(SentFrame::Crypto { offset: start, len: data.len() as u16 })
    }

    /// Handles an acknowledged frame. Frees all bytes up to the first gap.
    pub(crate) fn on_acked(&mut self, offset: u64, len: u16) {
        let end = offset + u64::from(len);
        self.acked.insert(offset.max(self.base)..end.max(self.base));
        self.lost.remove(offset..end);
        if let Some(first) = self.acked.first().filter(|first| first.start == self.base) {
            self.acked.remove(first.clone());
            self.data.drain(..(first.end - self.base) as usize);
            self.base = first.end;
            if self.data.is_empty() {
                self.data = Vec::new();
            }
        }
    }

    /// Handles a lost frame. Retransmits its unacknowledged part.
    pub(crate) fn on_lost(&mut self, offset: u64, len: u16) {
        let range = offset.max(self.base)..(offset + u64::from(len)).max(self.base);
        let gaps: Vec<_> = self.acked.gaps_in(range).collect();
        for gap in gaps {
            self.lost.insert(gap);
        }
    }

    /// Resends all unacknowledged bytes (RFC 9002, section 6.2.4).
    pub(crate) fn resend(&mut self) {
        let gaps: Vec<_> = self.acked.gaps_in(self.base..self.next).collect();
        for gap in gaps {
            self.lost.insert(gap);
        }
    }
}

/// Handshake bytes received.
#[derive(Debug, Default)]
pub(crate) struct CryptoReceive {
    buffer: Vec<u8>,
    /// Stream offset of the first byte of `buffer`.
    base: u64,
    present: RangeSet,
}

impl CryptoReceive {
    /// Takes a CRYPTO frame.
    pub(crate) fn on_frame(&mut self, offset: u64, data: &[u8]) -> Result<(), TransportError> {
        let end = offset + data.len() as u64;
        if end <= self.base || data.is_empty() {
            return Ok(());
        }
        if end - self.base > MAX_BUFFERED {
            return Err(exceeded("too much handshake data"));
        }
        let skip = self.base.saturating_sub(offset) as usize;
        let at = (offset.max(self.base) - self.base) as usize;
        let data = &data[skip..];
        if self.buffer.len() < at + data.len() {
            self.buffer.resize(at + data.len(), 0);
        }
        self.buffer[at..at + data.len()].copy_from_slice(data);
        self.present.insert(offset.max(self.base)..end);
        if self.present.len() > MAX_PIECES {
            return Err(exceeded("handshake data too scattered"));
        }
        Ok(())
    }

    /// Takes out the bytes that are in order.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        let first = self.present.first().filter(|first| first.start == self.base)?;
        let rest = self.buffer.split_off((first.end - self.base) as usize);
        self.present.remove(first.clone());
        self.base = first.end;
        Some(core::mem::replace(&mut self.buffer, rest))
    }
}

fn exceeded(reason: &'static str) -> TransportError {
    TransportError::new(TransportErrorCode::CRYPTO_BUFFER_EXCEEDED, types::CRYPTO, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reassembly_gives_bytes_in_order_whatever_the_order_of_frames() {
        let mut r = CryptoReceive::default();
        r.on_frame(3, b"def").expect("within bounds");
        assert_eq!(r.take(), None);
        r.on_frame(0, b"abcd").expect("within bounds");
        assert_eq!(r.take().as_deref(), Some(&b"abcdef"[..]));
        r.on_frame(2, b"cdefg").expect("within bounds");
        assert_eq!(r.take().as_deref(), Some(&b"g"[..]));
        assert_eq!(r.take(), None);
    }

    #[test]
    fn reassembly_is_bounded() {
        let mut r = CryptoReceive::default();
        assert!(r.on_frame(MAX_BUFFERED - 1, b"x").is_ok());
        assert!(r.on_frame(MAX_BUFFERED, b"x").is_err());
    }

    #[test]
    fn lost_bytes_are_sent_again_unless_acknowledged() {
        let mut s = CryptoSend::default();
        s.write(&[7; 100]);
        let mut buf = [0; 60];
        let first = s.write_frame(&mut Writer::new(&mut buf));
        assert_eq!(first, Some(SentFrame::Crypto { offset: 0, len: 49 }));
        let second = s.write_frame(&mut Writer::new(&mut buf));
        assert_eq!(second, Some(SentFrame::Crypto { offset: 49, len: 49 }));
        s.on_acked(10, 10);
        s.on_lost(0, 49);
        let again = s.write_frame(&mut Writer::new(&mut buf));
        assert_eq!(again, Some(SentFrame::Crypto { offset: 0, len: 10 }));
        let again = s.write_frame(&mut Writer::new(&mut buf));
        assert_eq!(again, Some(SentFrame::Crypto { offset: 20, len: 29 }));
        let last = s.write_frame(&mut Writer::new(&mut buf));
        assert_eq!(last, Some(SentFrame::Crypto { offset: 98, len: 2 }));
        s.on_acked(0, 49);
        s.on_acked(49, 49);
        s.on_acked(98, 2);
        assert!(!s.is_due());
        assert_eq!(s.data.capacity(), 0);
    }
}
