//! Passes identify viewers. A pass is a viewer's number and an expiry time, sealed with the
//! server's keys. Clients cannot forge it, and every node with the same key file accepts it without
//! shared state.
//!
//! A *page pass* names a viewer and no stream. The player page sends it in `viewer=` and in
//! reports. A *stream pass* permits its viewer the media of one stream. It is part of the path of
//! the HLS media playlist, and so of the files relative to it. It contains the rule that granted it
//! ([`Grant`]), and is valid no longer than that rule. Addresses and client names identify no
//! viewer.

use core::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ::quic::crypto::{KeyRing, Purpose};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand_chacha::rand_core::Rng as _;

use crate::clock::unix;
use crate::entropy::generator;

/// Maximum lifetime of a pass, longer than any visit.
pub(crate) const LIFETIME: Duration = Duration::from_secs(30 * 86_400);
/// Maximum length of a parsed pass. A valid one has 71 characters.
const MAX_LEN: usize = 80;

/// A viewer's random number, chosen by the server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ViewerId(u64);

impl fmt::Display for ViewerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl ViewerId {
    /// Parses the 16 hexadecimal digits of [`fmt::Display`].
    pub fn parse(text: &str) -> Option<Self> {
        let id = u64::from_str_radix(text, 16).ok().map(Self)?;
        (id.to_string() == text).then_some(id)
    }

    /// Returns a number for a new viewer.
    pub fn random() -> Self {
        Self(generator().next_u64())
    }
}

/// Identifier of the configuration rule that admitted a viewer. It changes with the rule's pattern
/// and key, and reveals neither.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant(pub u64);

impl Grant {
    /// No rule: everybody may play the stream.
    pub const FREE: Self = Self(0);
}

/// The content of a stream pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamPass {
    /// The viewer.
    pub viewer: ViewerId,
    /// Time of issue, to the second.
    pub issued: SystemTime,
    /// The rule that admitted the viewer.
    pub grant: Grant,
}

/// Issues and checks passes.
#[derive(Clone, Debug)]
pub struct Passes(Arc<KeyRing>);

impl Passes {
    /// Creates an issuer with these keys.
    pub fn new(keys: Arc<KeyRing>) -> Self {
        Self(keys)
    }

    /// Issues a page pass.
    pub fn page(&self, viewer: ViewerId, now: SystemTime) -> String {
        self.stream(viewer, "", Grant::FREE, now, None)
    }

    /// Issues a pass for `stream` under the rule `grant`. It expires at `end`, or after
    /// `LIFETIME`.
    pub fn stream(
        &self,
        viewer: ViewerId,
        stream: &str,
        grant: Grant,
        now: SystemTime,
        end: Option<SystemTime>,
    ) -> String {
        let longest = now + LIFETIME;
        let end = unix(end.map_or(longest, |end| end.min(longest)));
        // Seconds since 1970 have 32 bits until 2106.
        let times = unix(now) << 32 | (end & u64::from(u32::MAX));
        let plain = [viewer.0, times, grant.0].map(u64::to_be_bytes).concat();
        let (bound_to, rng) = (stream.as_bytes(), &mut generator());
        let sealed = self.0.seal(Purpose::Application, unix(now), &plain, bound_to, rng);
        URL_SAFE_NO_PAD.encode(sealed)
    }

    /// Returns the viewer of a valid page pass.
    pub fn of_page(&self, pass: &str, now: SystemTime) -> Option<ViewerId> {
        self.open(pass, "", now).map(|pass| pass.viewer)
    }

    /// Returns the content of a valid pass for `stream`.
    pub fn of_stream(&self, pass: &str, stream: &str, now: SystemTime) -> Option<StreamPass> {
        self.open(pass, stream, now).filter(|_| !stream.is_empty())
    }

    fn open(&self, pass: &str, stream: &str, now: SystemTime) -> Option<StreamPass> {
        if pass.len() > MAX_LEN {
            return None;
        }
        let sealed = URL_SAFE_NO_PAD.decode(pass).ok()?;
        let plain = self.0.open(Purpose::Application, &sealed, stream.as_bytes())?.plaintext;
        let (numbers, rest) = plain.as_chunks();
        let (&[viewer, times, grant], []) = (numbers, rest) else { return None };
        let [viewer, times, grant] = [viewer, times, grant].map(u64::from_be_bytes);
        let (issued, end) = (times >> 32, times & u64::from(u32::MAX));
        let issued = SystemTime::UNIX_EPOCH + Duration::from_secs(issued);
        let (viewer, grant) = (ViewerId(viewer), Grant(grant));
        (unix(now) <= end).then_some(StreamPass { viewer, issued, grant })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn passes(master: u8) -> Passes {
        Passes::new(Arc::new(KeyRing::new(&[master; 32], &[(0, [master; 32])])))
    }

    #[test]
    fn a_pass_is_valid_for_its_viewer_stream_and_time() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let (passes, viewer) = (passes(1), ViewerId(7));
        let pass = passes.stream(viewer, "live/a", Grant(9), at(100), Some(at(200)));
        let content = Some(StreamPass { viewer, issued: at(100), grant: Grant(9) });
        assert_eq!(passes.of_stream(&pass, "live/a", at(200)), content);
        assert_eq!(passes.of_stream(&pass, "live/a", at(201)), None, "expired");
        assert_eq!(passes.of_stream(&pass, "live/b", at(100)), None, "another stream");
        assert_eq!(passes.of_page(&pass, at(100)), None, "no page pass");
        let page = passes.page(viewer, at(100));
        assert_eq!(passes.of_page(&page, at(100)), Some(viewer));
        assert_eq!(passes.of_stream(&page, "", at(100)), None, "no stream pass");
        assert_eq!(passes.of_page(&page, at(100) + LIFETIME + Duration::from_secs(1)), None);
        let forever =
            passes.stream(viewer, "live/a", Grant::FREE, at(100), Some(at(u64::from(u32::MAX))));
        let late = at(100) + LIFETIME + Duration::from_secs(1);
        assert_eq!(passes.of_stream(&forever, "live/a", late), None, "at most LIFETIME");
    }

    #[test]
    fn viewer_numbers_have_16_digits() {
        let viewer = ViewerId(0x2a);
        assert_eq!(viewer.to_string(), "000000000000002a");
        assert_eq!(ViewerId::parse("000000000000002a"), Some(viewer));
        for text in ["", "2a", "000000000000002A", "+00000000000002a", "00000000000000002a", "x"] {
            assert_eq!(ViewerId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn passes_are_valid_at_nodes_with_the_same_keys_and_unforgeable() {
        let now = SystemTime::UNIX_EPOCH;
        let pass = passes(1).page(ViewerId(7), now);
        assert_eq!(passes(1).of_page(&pass, now), Some(ViewerId(7)));
        assert_eq!(passes(2).of_page(&pass, now), None);
        assert!(
            pass.len() <= MAX_LEN
                && pass.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
        );
        assert_eq!(pass.len(), 71);
        let flipped = |at: usize| {
            let other = if pass.as_bytes()[at] == b'A' { "B" } else { "A" };
            [&pass[..at], other, &pass[at + 1..]].concat()
        };
        for at in 0..pass.len() {
            assert_eq!(passes(1).of_page(&flipped(at), now), None, "{at}");
        }
        for forged in ["", "me", "7", &"A".repeat(71), &"A".repeat(100_000), &pass[1..]] {
            assert_eq!(passes(1).of_page(forged, now), None, "{forged:.60}");
        }
    }
}
