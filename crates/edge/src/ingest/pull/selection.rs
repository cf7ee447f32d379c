//! What a stream takes from an HLS upstream: variant and audio rendition.

use media::hls::pull::{Choice, Selection};

use crate::config::{Pull, Variant};

/// Start of the part of a stream's name that selects an audio rendition.
const AUDIO: &str = "audio-";

/// Returns the name that the rule's URLs contain for a stream, and the selection. With
/// [`Variant::All`], the end of the stream's name is a part of the selection.
pub(super) fn selection<'n>(rule: &Pull, stream: &'n str) -> (&'n str, Selection) {
    let audio = rule.audio.clone();
    let variant = match rule.variant {
        Variant::All => {
            let split = stream.rsplit_once('_').filter(|(name, _)| !name.is_empty());
            match split.and_then(|(name, part)| Some((name, of_part(part, audio.as_deref())?))) {
                Some(found) => return found,
                None => Choice::Highest,
            }
        }
        Variant::Highest => Choice::Highest,
        Variant::Lowest => Choice::Lowest,
        Variant::AtMost(mbps) => Choice::AtMost((mbps * 1e6) as u64),
    };
    (stream, Selection { variant, audio })
}

/// Returns the selection of the end of a name; `None` if it is a part of the name.
fn of_part(part: &str, audio: Option<&str>) -> Option<Selection> {
    if let Some(audio) = part.strip_prefix(AUDIO).filter(|audio| !audio.is_empty()) {
        return Some(Selection { variant: Choice::AudioOnly, audio: Some(audio.to_owned()) });
    }
    // One name per variant.
    let number = part.parse::<u8>().ok().filter(|number| number.to_string() == part)?;
    let audio = audio.map(str::to_owned);
    Some(Selection { variant: Choice::Nth(number.into()), audio })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn names_select_variants_and_audio() {
        let of = |keys: &str, stream: &'static str| {
            let text =
                format!("[[pull]]\nstream = \"*\"\nupstream = \"http://h/{{tail}}\"\n{keys}");
            let config = Config::parse("edge.toml", &text).expect("valid");
            let (name, Selection { variant, audio }) = selection(&config.pull[0], stream);
            (name, variant, audio)
        };
        let all = "variant = \"all\"";
        assert_eq!(of(all, "live/a_0"), ("live/a", Choice::Nth(0), None));
        assert_eq!(of(all, "live/a_b_12"), ("live/a_b", Choice::Nth(12), None));
        let french = Some("fr-CA".to_owned());
        assert_eq!(of(all, "live/a_audio-fr-CA"), ("live/a", Choice::AudioOnly, french));
        for whole in ["live/a", "_0", "live/a_", "live/a_256", "live/a_01", "live/a_+1", "a_audio-"]
        {
            assert_eq!(of(all, whole), (whole, Choice::Highest, None));
        }
        let audio = format!("{all}\naudio = \"de\"");
        let german = Some("de".to_owned());
        assert_eq!(of(&audio, "live/a_1"), ("live/a", Choice::Nth(1), german.clone()));
        assert_eq!(of("audio = \"de\"", "live/a_1"), ("live/a_1", Choice::Highest, german));
        assert_eq!(of("variant = 0.5", "live/a_1"), ("live/a_1", Choice::AtMost(500_000), None));
    }
}
