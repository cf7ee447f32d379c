//! CRYPTO stream of one packet-number space (RFC 9000, sections 7.5 and 19.6): sends handshake
//! bytes with retransmission, and reassembles received ones within bounds.

use crate::ledger::SentFrame;
use crate::ranges::RangeSet;
use crate::wire::{TransportError, TransportErrorCode, Writer, put_crypto, types};
use core::ops::Range;

/// Maximum bytes buffered beyond a gap (RFC 9000, section 7.5, requires at least 4,096).
const MAX_BUFFERED: u64 = 16_384;
/// Maximum number of buffered ranges. Some clients split their ClientHello on purpose.
const MAX_PIECES: usize = 256;
/// Maximum length of frame type, offset and length.
const FRAME_OVERHEAD: usize = 1 + 8 + 2;

/// Handshake bytes to send.
#[derive(Debug, Default)]
pub(crate) struct CryptoSend {
    /// First offset never sent.
    next: u64,
    /// `None` while all bytes are acknowledged, as they are after the handshake.
    unacked: Option<Box<Unacked>>,
}

/// Bytes from the first unacknowledged one on.
#[derive(Debug, Default)]
struct Unacked {
    data: Vec<u8>,
    /// Stream offset of the first byte of `data`.
    base: u64,
    lost: RangeSet,
    acked: RangeSet,
}

impl Unacked {
    fn end(&self) -> u64 {
        self.base + self.data.len() as u64
    }

    /// Marks the unacknowledged parts of a range as lost.
    fn lose(&mut self, range: Range<u64>) {
        let gaps: Vec<_> = self.acked.gaps_in(range).collect();
        for gap in gaps {
            self.lost.insert(gap);
        }
    }
}

impl CryptoSend {
    /// Appends bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let base = self.next;
        let new = || Box::new(Unacked { base, ..Unacked::default() });
        self.unacked.get_or_insert_with(new).data.extend_from_slice(bytes);
    }

    /// Returns true if bytes wait to be sent or retransmitted.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        let unacked = self.unacked.as_ref();
        unacked.is_some_and(|bytes| self.next < bytes.end() || !bytes.lost.is_empty())
    }

    /// Writes one CRYPTO frame, lost bytes first; none if nothing waits or fits.
    pub(crate) fn write_frame(&mut self, w: &mut Writer<'_>) -> Option<SentFrame> {
        let unacked = self.unacked.as_mut()?;
        let room = w.remaining().checked_sub(FRAME_OVERHEAD).filter(|&room| room >= 16)?;
        let (start, end) = match unacked.lost.first() {
            Some(range) => (range.start, range.end),
            None => (self.next, unacked.end()),
        };
        let end = end.min(start + room as u64).min(start + 8_192);
        if start >= end {
            return None;
        }
        unacked.lost.remove(start..end);
        self.next = self.next.max(end);
        let base = unacked.base;
        let data = &unacked.data[(start - base) as usize..(end - base) as usize];
        put_crypto(w, start, data);
        Some(SentFrame::Crypto { offset: start, len: data.len() as u16 })
    }

    /// Handles an acknowledged frame. Frees all bytes up to the first gap.
    pub(crate) fn on_acked(&mut self, offset: u64, len: u16) {
        let Some(unacked) = &mut self.unacked else { return };
        let (base, end) = (unacked.base, offset + u64::from(len));
        unacked.acked.insert(offset.max(base)..end.max(base));
        unacked.lost.remove(offset..end);
        if let Some(first) = unacked.acked.first().filter(|first| first.start == base) {
            unacked.acked.remove(first.clone());
            unacked.data.drain(..(first.end - base) as usize);
            unacked.base = first.end;
            if unacked.data.is_empty() {
                self.unacked = None;
            }
        }
    }

    /// Handles a lost frame. Retransmits its unacknowledged part.
    pub(crate) fn on_lost(&mut self, offset: u64, len: u16) {
        if let Some(unacked) = &mut self.unacked {
            let (base, end) = (unacked.base, offset + u64::from(len));
            unacked.lose(offset.max(base)..end.max(base));
        }
    }

    /// Resends all unacknowledged bytes (RFC 9002, section 6.2.4).
    pub(crate) fn resend(&mut self) {
        if let Some(unacked) = &mut self.unacked {
            unacked.lose(unacked.base..self.next);
        }
    }
}

/// Handshake bytes received.
#[derive(Debug, Default)]
pub(crate) struct CryptoReceive {
    /// Stream offset of the first byte not taken.
    base: u64,
    /// `None` while all received bytes were taken, as they are after the handshake.
    waiting: Option<Box<Waiting>>,
}

/// Received bytes from `base` on.
#[derive(Debug, Default)]
struct Waiting {
    buffer: Vec<u8>,
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
        let Waiting { buffer, present } = self.waiting.get_or_insert_default().as_mut();
        if buffer.len() < at + data.len() {
            buffer.resize(at + data.len(), 0);
        }
        buffer[at..at + data.len()].copy_from_slice(data);
        present.insert(offset.max(self.base)..end);
        if present.len() > MAX_PIECES {
            return Err(exceeded("handshake data too scattered"));
        }
        Ok(())
    }

    /// Takes out the bytes that are in order.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        let Waiting { buffer, present } = self.waiting.as_deref_mut()?;
        let first = present.first().filter(|first| first.start == self.base)?;
        let rest = buffer.split_off((first.end - self.base) as usize);
        present.remove(first.clone());
        self.base = first.end;
        let bytes = core::mem::replace(buffer, rest);
        if buffer.is_empty() {
            self.waiting = None;
        }
        Some(bytes)
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
        assert!(s.unacked.is_none(), "its memory is free");
        s.write(&[8; 5]);
        let later = s.write_frame(&mut Writer::new(&mut buf));
        assert_eq!(later, Some(SentFrame::Crypto { offset: 100, len: 5 }));
    }
}
