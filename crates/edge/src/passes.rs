//! Passes: how viewers show who they are. A pass is a viewer's number and the time until which it holds,
//! sealed with the server's keys, so that nobody can make one, and every node with the same key file
//! knows those of the others without having kept anything.
//!
//! Two kinds exist. A *page pass* names a viewer and no stream; the player page brings it along in
//! `viewer=`, and in its reports. A *stream pass* lets its viewer have the media of one stream; it
//! stands in the path of the HLS media playlist, and so in that of each file whose name is relative
//! to it. It says under which rule it was given out ([`Grant`]), and holds no longer than that
//! rule. What the client calls itself, and its address, identify nobody.

use core::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ::quic::crypto::{KeyRing, Purpose};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand_chacha::rand_core::Rng as _;

use crate::clock::unix;
use crate::entropy::generator;

/// How long a pass holds where nothing else ends it: longer than anybody watches without a pause.
pub(crate) const LIFETIME: Duration = Duration::from_secs(30 * 86_400);
/// The longest text that is looked at: a pass has 71 characters.
const MAX_LEN: usize = 80;

/// A viewer: a random number that we gave out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ViewerId(u64);

impl fmt::Display for ViewerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl ViewerId {
    /// Reads what [`fmt::Display`] writes: 16 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let id = u64::from_str_radix(text, 16).ok().map(Self)?;
        (id.to_string() == text).then_some(id)
    }

    /// A viewer who is new here.
    pub fn random() -> Self {
        Self(generator().next_u64())
    }
}

/// Under which rule of the configuration somebody was let in. It changes with the rule's streams
/// and with its key, and tells neither.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant(pub u64);

impl Grant {
    /// There was no rule: the stream was free for all.
    pub const FREE: Self = Self(0);
}

/// What a stream pass says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamPass {
    /// Whose it is.
    pub viewer: ViewerId,
    /// When it was given out, to the second.
    pub issued: SystemTime,
    /// Under which rule.
    pub grant: Grant,
}

/// Issues and checks passes.
#[derive(Clone, Debug)]
pub struct Passes(Arc<KeyRing>);

impl Passes {
    /// Passes that these keys seal.
    pub fn new(keys: Arc<KeyRing>) -> Self {
        Self(keys)
    }

    /// A page pass.
    pub fn page(&self, viewer: ViewerId, now: SystemTime) -> String {
        self.stream(viewer, "", Grant::FREE, now, None)
    }

    /// A pass for `stream`, given out under the rule of `grant`, which holds until `end` at the
    /// latest.
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

    /// Whose page pass this is, if it is one and holds.
    pub fn of_page(&self, pass: &str, now: SystemTime) -> Option<ViewerId> {
        self.open(pass, "", now).map(|pass| pass.viewer)
    }

    /// What this pass for `stream` says, if it is one and holds.
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
    fn a_pass_holds_for_its_viewer_its_stream_and_its_time() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let (passes, viewer) = (passes(1), ViewerId(7));
        let pass = passes.stream(viewer, "live/a", Grant(9), at(100), Some(at(200)));
        let said = Some(StreamPass { viewer, issued: at(100), grant: Grant(9) });
        assert_eq!(passes.of_stream(&pass, "live/a", at(200)), said);
        assert_eq!(passes.of_stream(&pass, "live/a", at(201)), None, "over");
        assert_eq!(passes.of_stream(&pass, "live/b", at(100)), None, "another stream");
        assert_eq!(passes.of_page(&pass, at(100)), None, "no page pass");
        let page = passes.page(viewer, at(100));
        assert_eq!(passes.of_page(&page, at(100)), Some(viewer));
        assert_eq!(passes.of_stream(&page, "", at(100)), None, "no stream pass");
        assert_eq!(passes.of_page(&page, at(100) + LIFETIME + Duration::from_secs(1)), None);
        let forever =
            passes.stream(viewer, "live/a", Grant::FREE, at(100), Some(at(u64::from(u32::MAX))));
        let late = at(100) + LIFETIME + Duration::from_secs(1);
        assert_eq!(passes.of_stream(&forever, "live/a", late), None, "no longer than a month");
    }

    #[test]
    fn the_number_of_a_viewer_is_16_digits() {
        let viewer = ViewerId(0x2a);
        assert_eq!(viewer.to_string(), "000000000000002a");
        assert_eq!(ViewerId::parse("000000000000002a"), Some(viewer));
        for text in ["", "2a", "000000000000002A", "+00000000000002a", "00000000000000002a", "x"] {
            assert_eq!(ViewerId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn another_node_with_the_same_keys_knows_a_pass_and_nobody_else_can_make_one() {
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
        for made_up in ["", "me", "7", &"A".repeat(71), &"A".repeat(100_000), &pass[1..]] {
            assert_eq!(passes(1).of_page(made_up, now), None, "{made_up:.60}");
        }
    }
}
