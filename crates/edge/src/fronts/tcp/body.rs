//! Bodies of responses for hyper.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Buf;
use delivery::{Body as _, Piece};
use hyper::body::{Body, Frame, SizeHint};

use super::activity::Open;
use crate::fronts::BUNDLE;
use crate::http::Responder;

/// A [`Responder`] as hyper body.
#[derive(Debug)]
pub(super) struct ResponseBody {
    responder: Responder,
    open: Open,
}

impl ResponseBody {
    pub(super) fn new(responder: Responder, mut open: Open) -> Self {
        if responder.remaining() == Some(0) {
            open.complete();
        }
        Self { responder, open }
    }
}

impl Body for ResponseBody {
    type Data = Bundle;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bundle>>>> {
        self.open.touch();
        let next = Bundle::poll(&mut self.responder, context);
        // hyper does not poll for the end if the length is known.
        if self.is_end_stream() || matches!(next, Poll::Ready(Ok(None))) {
            self.open.complete();
        }
        next.map(|next| next.transpose().map(|r| r.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.responder.remaining() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.responder.remaining().map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

/// Pieces of a body that leave in one write. hyper writes each frame of HTTP/2 by itself.
#[derive(Debug)]
pub(super) struct Bundle {
    /// None is empty.
    pieces: VecDeque<Piece>,
    bytes: usize,
}

impl Bundle {
    /// Polls for the next piece, or for all available tags of a live stream up to [`BUNDLE`];
    /// `None` at the end.
    fn poll(
        responder: &mut Responder,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Self>>> {
        let mut bundle = Self { pieces: VecDeque::new(), bytes: 0 };
        loop {
            match responder.poll_fill(context) {
                Poll::Ready(Ok(Some(piece))) => bundle.push(piece),
                polled if bundle.bytes == 0 => return polled.map_ok(|_| None),
                // A live body repeats its end and its failure.
                _ => break,
            }
            if bundle.bytes >= BUNDLE || responder.live().is_none() {
                break;
            }
        }
        Poll::Ready(Ok(Some(bundle)))
    }

    fn push(&mut self, piece: Piece) {
        self.bytes += piece.remaining();
        self.pieces.push_back(piece);
    }
}

impl Buf for Bundle {
    fn remaining(&self) -> usize {
        self.bytes
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&[], Piece::chunk)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut used = 0;
        for piece in &self.pieces {
            used += piece.chunks_vectored(&mut slices[used..]);
        }
        used
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.bytes, "{count} of {} bytes", self.bytes);
        self.bytes -= count;
        while let Some(piece) = self.pieces.front_mut() {
            let part = count.min(piece.remaining());
            piece.advance(part);
            count -= part;
            if piece.has_remaining() {
                break;
            }
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn bundle_is_its_pieces_in_order_at_any_step() {
        let bundle = || {
            let mut bundle = Bundle { pieces: VecDeque::new(), bytes: 0 };
            for (own, shared) in [("ab", "cdef"), ("", "ghi"), ("jk", ""), ("l", "m")] {
                bundle.push(Bytes::from(own).chain(Bytes::from(shared)));
            }
            bundle
        };
        for step in 1..=13 {
            let (mut bundle, mut text) = (bundle(), Vec::new());
            while bundle.has_remaining() {
                let mut slices = [IoSlice::new(&[]); 16];
                let used = bundle.chunks_vectored(&mut slices);
                let rest: Vec<u8> = slices[..used].iter().flat_map(|s| s.to_vec()).collect();
                assert_eq!(rest.len(), bundle.remaining());
                assert!(rest.starts_with(bundle.chunk()) && !bundle.chunk().is_empty());
                let part = step.min(rest.len());
                text.extend_from_slice(&rest[..part]);
                bundle.advance(part);
            }
            assert_eq!(text, b"abcdefghijklm", "in steps of {step}");
        }
        // Fewer places than parts.
        let (bundle, mut slices) = (bundle(), [IoSlice::new(&[]); 3]);
        assert_eq!(bundle.chunks_vectored(&mut slices), 3);
        assert_eq!(slices.map(|slice| slice.to_vec()), [&b"ab"[..], b"cdef", b"ghi"]);
    }
}
