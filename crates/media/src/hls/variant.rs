//! Which variant of a master playlist is pulled.

use super::error::Error;
use super::manifest::Variant;

/// Which variant of a master playlist to pull, among those that can be pulled whole.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Choice {
    /// The one with the highest bandwidth.
    #[default]
    Highest,
    /// The one with the lowest bandwidth that has a picture, if any has.
    Lowest,
    /// The one with the highest bandwidth up to this number of bits per second, else the lowest.
    AtMost(u64),
    /// The first one, which is the author's proposal.
    First,
}

/// Codecs that FLV can carry, and others of pictures, as CODECS has them before the first dot.
const KNOWN: [&str; 7] = ["avc1", "avc3", "hvc1", "hev1", "av01", "mp4a", "opus"];
const PICTURES: [&str; 11] =
    ["avc1", "avc3", "hvc1", "hev1", "av01", "vp08", "vp09", "dvh1", "dvhe", "dva1", "dvav"];

fn is_in(list: &[&str], codec: &str) -> bool {
    let name = codec.split('.').next().unwrap_or_default().trim();
    list.iter().any(|known| known.eq_ignore_ascii_case(name))
}

impl Variant {
    /// Unknown without CODECS: then a picture is assumed.
    fn has_picture(&self) -> bool {
        self.codecs.is_empty() || self.codecs.iter().any(|codec| is_in(&PICTURES, codec))
    }

    /// Its codecs that are left out.
    pub(super) fn unknown_codecs(&self) -> impl Iterator<Item = &String> {
        self.codecs.iter().filter(|codec| !is_in(&KNOWN, codec))
    }
}

/// The variant to pull: one with a picture if there is any, with its sound, and if possible without
/// codecs that would be left out.
pub(super) fn choose(choice: Choice, mut variants: Vec<Variant>) -> Result<Variant, Error> {
    if variants.iter().any(Variant::has_picture) {
        variants.retain(Variant::has_picture);
    }
    variants.retain(|variant| !variant.separate_audio);
    if variants.is_empty() {
        return Err(Error::Rendition);
    }
    if variants.iter().any(|variant| variant.unknown_codecs().next().is_none()) {
        variants.retain(|variant| variant.unknown_codecs().next().is_none());
    }
    variants.retain(|variant| {
        variant.codecs.is_empty() || variant.unknown_codecs().count() < variant.codecs.len()
    });
    let lowest = variants.iter().map(|variant| variant.bandwidth).min();
    let limit = match choice {
        Choice::First => return variants.into_iter().next().ok_or(Error::Codec),
        Choice::Highest => u64::MAX,
        Choice::Lowest => 0,
        Choice::AtMost(bandwidth) => bandwidth,
    };
    let limit = limit.max(lowest.ok_or(Error::Codec)?);
    // The first of those that are equal.
    let fitting = variants.into_iter().filter(|variant| variant.bandwidth <= limit).rev();
    fitting.max_by_key(|variant| variant.bandwidth).ok_or(Error::Codec)
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
    fn a_variant_without_a_picture_or_with_an_unknown_codec_is_the_last_resort() {
        let sound = variant("sound", 10, &["mp4a.40.2"], false);
        let surround = variant("surround", 900, &["avc1.64001f", "ec-3"], false);
        let whole = variant("whole", 500, &["avc1.64001f", "mp4a.40.2"], false);
        let all = [sound.clone(), surround.clone(), whole];
        assert_eq!(chosen(Choice::Lowest, &all).as_deref(), Ok("whole"));
        assert_eq!(chosen(Choice::Highest, &all).as_deref(), Ok("whole"));
        assert_eq!(chosen(Choice::Highest, &[sound.clone(), surround]).as_deref(), Ok("surround"));
        assert_eq!(chosen(Choice::Highest, &[sound]).as_deref(), Ok("sound"));
        let foreign = variant("foreign", 1, &["vp09.00.10.08", "ec-3"], false);
        assert_eq!(chosen(Choice::Highest, &[foreign]), Err(Error::Codec));
    }

    #[test]
    fn a_picture_without_its_sound_is_refused_rather_than_pulled() {
        let split = variant("split", 900, &["avc1.64001f", "mp4a.40.2"], true);
        let sound = variant("sound", 10, &["mp4a.40.2"], false);
        assert_eq!(chosen(Choice::Highest, &[split.clone(), sound]), Err(Error::Rendition));
        let whole = variant("whole", 500, &[], false);
        assert_eq!(chosen(Choice::Highest, &[split, whole]).as_deref(), Ok("whole"));
    }
}
