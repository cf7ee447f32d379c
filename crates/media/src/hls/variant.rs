//! Selection of the variant to pull from a master playlist.

use super::error::Error;
use super::manifest::Variant;

/// Selection rule among the variants that can be pulled completely.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Choice {
    /// The highest bandwidth.
    #[default]
    Highest,
    /// The lowest bandwidth, among variants with video if there are any.
    Lowest,
    /// The highest bandwidth up to this number of bits per second, or the lowest if all exceed it.
    AtMost(u64),
    /// The first variant, which the playlist's author recommends.
    First,
}

/// Codecs that FLV can carry, and video codecs, as the prefixes in CODECS up to the first dot.
const SUPPORTED_CODECS: [&str; 7] = ["avc1", "avc3", "hvc1", "hev1", "av01", "mp4a", "opus"];
const VIDEO_CODECS: [&str; 11] =
    ["avc1", "avc3", "hvc1", "hev1", "av01", "vp08", "vp09", "dvh1", "dvhe", "dva1", "dvav"];

fn is_in(list: &[&str], codec: &str) -> bool {
    let name = codec.split('.').next().unwrap_or_default().trim();
    list.iter().any(|known| known.eq_ignore_ascii_case(name))
}

impl Variant {
    /// Whether the variant has video. Assumed without CODECS.
    fn has_video(&self) -> bool {
        self.codecs.is_empty() || self.codecs.iter().any(|codec| is_in(&VIDEO_CODECS, codec))
    }

    /// Returns the codecs that FLV cannot carry.
    pub(super) fn unsupported_codecs(&self) -> impl Iterator<Item = &String> {
        self.codecs.iter().filter(|codec| !is_in(&SUPPORTED_CODECS, codec))
    }
}

/// Selects the variant to pull. Variants with video, with audio in the same playlist, and with
/// supported codecs only are preferred.
pub(super) fn choose(choice: Choice, mut variants: Vec<Variant>) -> Result<Variant, Error> {
    if variants.iter().any(Variant::has_video) {
        variants.retain(Variant::has_video);
    }
    variants.retain(|variant| !variant.separate_audio);
    if variants.is_empty() {
        return Err(Error::Rendition);
    }
    if variants.iter().any(|variant| variant.unsupported_codecs().next().is_none()) {
        variants.retain(|variant| variant.unsupported_codecs().next().is_none());
    }
    variants.retain(|variant| {
        variant.codecs.is_empty() || variant.unsupported_codecs().count() < variant.codecs.len()
    });
    let lowest = variants.iter().map(|variant| variant.bandwidth).min();
    let limit = match choice {
        Choice::First => return variants.into_iter().next().ok_or(Error::Codec),
        Choice::Highest => u64::MAX,
        Choice::Lowest => 0,
        Choice::AtMost(bandwidth) => bandwidth,
    };
    let limit = limit.max(lowest.ok_or(Error::Codec)?);
    // The first variant wins a tie.
    let candidates = variants.into_iter().filter(|variant| variant.bandwidth <= limit).rev();
    candidates.max_by_key(|variant| variant.bandwidth).ok_or(Error::Codec)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variant(uri: &str, bandwidth: u64, codecs: &[&str], separate_audio: bool) -> Variant {
        let codecs = codecs.iter().map(|&codec| codec.to_owned()).collect();
        Variant { uri: uri.to_owned(), bandwidth, codecs, separate_audio }
    }

    fn chosen(choice: Choice, variants: &[Variant]) -> Result<String, Error> {
        choose(choice, variants.to_vec()).map(|variant| variant.uri)
    }

    #[test]
    fn bandwidth_decides_as_configured() {
        let all = [("b", 200), ("d", 900), ("c", 500), ("C", 500), ("a", 100)];
        let all = all.map(|(uri, bandwidth)| variant(uri, bandwidth, &[], false));
        for (choice, uri) in [
            (Choice::Highest, "d"),
            (Choice::Lowest, "a"),
            (Choice::First, "b"),
            (Choice::AtMost(600), "c"),
            (Choice::AtMost(200), "b"),
            (Choice::AtMost(1), "a"),
        ] {
            assert_eq!(chosen(choice, &all).as_deref(), Ok(uri), "{choice:?}");
        }
    }

    #[test]
    fn variants_without_video_or_with_unsupported_codecs_are_the_last_resort() {
        let audio_only = variant("audio", 10, &["mp4a.40.2"], false);
        let surround = variant("surround", 900, &["avc1.64001f", "ec-3"], false);
        let whole = variant("whole", 500, &["avc1.64001f", "mp4a.40.2"], false);
        let all = [audio_only.clone(), surround.clone(), whole];
        assert_eq!(chosen(Choice::Lowest, &all).as_deref(), Ok("whole"));
        assert_eq!(chosen(Choice::Highest, &all).as_deref(), Ok("whole"));
        assert_eq!(
            chosen(Choice::Highest, &[audio_only.clone(), surround]).as_deref(),
            Ok("surround")
        );
        assert_eq!(chosen(Choice::Highest, &[audio_only]).as_deref(), Ok("audio"));
        let foreign = variant("foreign", 1, &["vp09.00.10.08", "ec-3"], false);
        assert_eq!(chosen(Choice::Highest, &[foreign]), Err(Error::Codec));
    }

    #[test]
    fn video_with_separate_audio_is_rejected() {
        let split = variant("split", 900, &["avc1.64001f", "mp4a.40.2"], true);
        let audio_only = variant("audio", 10, &["mp4a.40.2"], false);
        assert_eq!(chosen(Choice::Highest, &[split.clone(), audio_only]), Err(Error::Rendition));
        let whole = variant("whole", 500, &[], false);
        assert_eq!(chosen(Choice::Highest, &[split, whole]).as_deref(), Ok("whole"));
    }
}
