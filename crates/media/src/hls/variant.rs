//! Selection of the variant and the audio rendition to pull from a master playlist.

use core::cmp::Reverse;
use std::collections::HashSet;

use super::error::Error;
use super::manifest::{AudioRendition, Master, Variant};

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
    /// The variant with this number, from 0, in the order of falling bandwidths. Variants with one
    /// URI, such as one per audio group, are counted once, and so are variants with equal bandwidth
    /// and resolution, which are copies on other servers.
    Nth(usize),
    /// The audio rendition of the variant with the highest bandwidth, without video.
    AudioOnly,
}

/// Selection among variants, and among their audio renditions.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Selection {
    /// The variant.
    pub variant: Choice,
    /// LANGUAGE or NAME of the audio rendition, in any case; by default the playlist's own default.
    pub audio: Option<String>,
}

/// The playlists to pull.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Selected {
    /// Playlist of the variant, or of the only rendition.
    pub(super) uri: String,
    /// Playlist of the audio, if the variant does not contain it.
    pub(super) audio_uri: Option<String>,
    /// Codecs that FLV cannot carry.
    pub(super) unsupported: Vec<String>,
}

impl Selection {
    /// Selects playlists. Variants with video and with supported codecs only are preferred.
    ///
    /// # Errors
    /// No variant can be pulled, or there is no such variant or audio rendition.
    pub(super) fn of(&self, master: Master) -> Result<Selected, Error> {
        let variant = choose(self.variant, master.variants)?;
        let wanted = self.audio.as_deref();
        let audio_uri = match audio(&variant, &master.audio, wanted) {
            Some(rendition) => rendition.uri.clone(),
            None if wanted.is_some() => return Err(Error::Rendition),
            None => None,
        };
        let unsupported = variant.unsupported_codecs().cloned().collect();
        if self.variant == Choice::AudioOnly {
            let uri = audio_uri.ok_or(Error::Rendition)?;
            return Ok(Selected { uri, audio_uri: None, unsupported });
        }
        Ok(Selected { uri: variant.uri, audio_uri, unsupported })
    }
}

/// Returns the audio rendition of a variant (section 4.3.4.2.1). Without a wish, it is the default
/// of its group, or else one that players select automatically, or the first.
fn audio<'a>(
    variant: &Variant,
    renditions: &'a [AudioRendition],
    wanted: Option<&str>,
) -> Option<&'a AudioRendition> {
    let group = variant.audio_group.as_ref()?;
    let mut all = renditions.iter().filter(|rendition| rendition.group == *group);
    let Some(wanted) = wanted else {
        // The first of several maxima.
        let rank = |rendition: &&AudioRendition| (rendition.is_default, rendition.is_automatic);
        return all.rev().max_by_key(rank);
    };
    let is_wanted = |text: &str| text.eq_ignore_ascii_case(wanted);
    all.find(|rendition| {
        is_wanted(&rendition.name) || rendition.language.as_deref().is_some_and(is_wanted)
    })
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
    fn unsupported_codecs(&self) -> impl Iterator<Item = &String> {
        self.codecs.iter().filter(|codec| !is_in(&SUPPORTED_CODECS, codec))
    }
}

/// Selects the variant to pull.
fn choose(choice: Choice, mut variants: Vec<Variant>) -> Result<Variant, Error> {
    if variants.iter().any(Variant::has_video) {
        variants.retain(Variant::has_video);
    }
    if variants.iter().any(|variant| variant.unsupported_codecs().next().is_none()) {
        variants.retain(|variant| variant.unsupported_codecs().next().is_none());
    }
    variants.retain(|variant| {
        variant.codecs.is_empty() || variant.unsupported_codecs().count() < variant.codecs.len()
    });
    let lowest = variants.iter().map(|variant| variant.bandwidth).min().ok_or(Error::Codec)?;
    let limit = match choice {
        Choice::First => return variants.into_iter().next().ok_or(Error::Codec),
        Choice::Nth(number) => {
            let mut uris = HashSet::new();
            variants.retain(|variant| uris.insert(variant.uri.clone()));
            let mut sizes = HashSet::new();
            variants.retain(|variant| sizes.insert((variant.bandwidth, variant.resolution)));
            // Stable: of equal bandwidths, the first variant stays the first.
            variants.sort_by_key(|variant| Reverse(variant.bandwidth));
            return variants.into_iter().nth(number).ok_or(Error::Rendition);
        }
        Choice::Highest | Choice::AudioOnly => u64::MAX,
        Choice::Lowest => 0,
        Choice::AtMost(bandwidth) => bandwidth,
    };
    let limit = limit.max(lowest);
    // The first variant wins a tie.
    let candidates = variants.into_iter().filter(|variant| variant.bandwidth <= limit).rev();
    candidates.max_by_key(|variant| variant.bandwidth).ok_or(Error::Codec)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variant(uri: &str, bandwidth: u64, codecs: &[&str]) -> Variant {
        let codecs = codecs.iter().map(|&codec| codec.to_owned()).collect();
        Variant { uri: uri.to_owned(), bandwidth, resolution: None, codecs, audio_group: None }
    }

    fn chosen(choice: Choice, variants: &[Variant]) -> Result<String, Error> {
        choose(choice, variants.to_vec()).map(|variant| variant.uri)
    }

    #[test]
    fn bandwidth_decides_as_configured() {
        let all = [("b", 200), ("d", 900), ("c", 500), ("C", 500), ("a", 100)];
        let all = all.map(|(uri, bandwidth)| variant(uri, bandwidth, &[]));
        for (choice, uri) in [
            (Choice::Highest, "d"),
            (Choice::Lowest, "a"),
            (Choice::First, "b"),
            (Choice::AtMost(600), "c"),
            (Choice::AtMost(200), "b"),
            (Choice::AtMost(1), "a"),
            (Choice::Nth(0), "d"),
            (Choice::Nth(1), "c"),
            (Choice::Nth(2), "b"),
            (Choice::Nth(3), "a"),
        ] {
            assert_eq!(chosen(choice, &all).as_deref(), Ok(uri), "{choice:?}");
        }
        assert_eq!(chosen(Choice::Nth(4), &all), Err(Error::Rendition));
        let mut more = all.to_vec();
        more.insert(0, Variant { bandwidth: 800, ..all[1].clone() });
        more.push(Variant { resolution: Some((640, 360)), ..variant("other", 200, &[]) });
        let uris = (0..5).map(|n| chosen(Choice::Nth(n), &more).unwrap_or_default());
        assert_eq!(uris.collect::<Vec<_>>(), ["d", "c", "b", "other", "a"]);
        assert_eq!(chosen(Choice::Nth(0), &[]), Err(Error::Codec));
    }

    #[test]
    fn variants_without_video_or_with_unsupported_codecs_are_the_last_resort() {
        let audio_only = variant("audio", 10, &["mp4a.40.2"]);
        let surround = variant("surround", 900, &["avc1.64001f", "ec-3"]);
        let whole = variant("whole", 500, &["avc1.64001f", "mp4a.40.2"]);
        let all = [audio_only.clone(), surround.clone(), whole];
        assert_eq!(chosen(Choice::Lowest, &all).as_deref(), Ok("whole"));
        assert_eq!(chosen(Choice::Highest, &all).as_deref(), Ok("whole"));
        assert_eq!(
            chosen(Choice::Highest, &[audio_only.clone(), surround]).as_deref(),
            Ok("surround")
        );
        assert_eq!(chosen(Choice::Highest, &[audio_only]).as_deref(), Ok("audio"));
        let foreign = variant("foreign", 1, &["vp09.00.10.08", "ec-3"]);
        assert_eq!(chosen(Choice::Highest, &[foreign]), Err(Error::Codec));
    }

    /// Name, language, URI, DEFAULT and AUTOSELECT.
    type Given = (&'static str, Option<&'static str>, Option<&'static str>, [bool; 2]);

    /// A variant with a group of audio renditions, and a variant that contains its audio.
    fn master(renditions: &[Given]) -> Master {
        let audio = renditions.iter().map(|(name, language, uri, [is_default, is_automatic])| {
            AudioRendition {
                group: "group".to_owned(),
                name: (*name).to_owned(),
                language: language.map(str::to_owned),
                uri: uri.map(str::to_owned),
                is_default: *is_default,
                is_automatic: *is_automatic,
            }
        });
        let mut split = variant("split", 900, &["avc1.64001f", "mp4a.40.2"]);
        split.audio_group = Some("group".to_owned());
        let other = AudioRendition {
            group: "other".to_owned(),
            name: "Other".to_owned(),
            uri: Some("other".to_owned()),
            is_default: true,
            ..AudioRendition::default()
        };
        let whole = variant("whole", 500, &["avc1.64001f", "mp4a.40.2"]);
        Master { variants: vec![whole, split], audio: [other].into_iter().chain(audio).collect() }
    }

    fn audio_of(selection: Selection, master: &Master) -> Result<Option<String>, Error> {
        selection.of(master.clone()).map(|selected| selected.audio_uri)
    }

    #[test]
    fn an_audio_rendition_is_selected_by_default_language_or_name() {
        let renditions = [
            ("English", Some("en"), Some("first"), [false, false]),
            ("French", Some("fr"), Some("automatic"), [false, true]),
            ("German", Some("de"), Some("default"), [true, true]),
            ("Commentary", None, None, [false, false]),
        ];
        let uri = |count: usize, wanted: Option<&str>| {
            let audio = wanted.map(str::to_owned);
            let selection = Selection { audio, ..Selection::default() };
            audio_of(selection, &master(&renditions[..count]))
        };
        let found = |uri: &str| Ok(Some(uri.to_owned()));
        assert_eq!([uri(1, None), uri(2, None)], [found("first"), found("automatic")]);
        assert_eq!([uri(3, None), uri(3, Some("EN"))], [found("default"), found("first")]);
        assert_eq!(uri(4, Some("french")), found("automatic"));
        assert_eq!(uri(4, Some("commentary")), Ok(None), "the variant contains it");
        assert_eq!(uri(4, Some("other")), Err(Error::Rendition), "another group");
        assert_eq!(uri(0, None), Ok(None), "a group without renditions");
        let lowest = |audio: Option<&str>| Selection {
            variant: Choice::Lowest,
            audio: audio.map(str::to_owned),
        };
        assert_eq!(audio_of(lowest(None), &master(&renditions)), Ok(None));
        assert_eq!(audio_of(lowest(Some("fr")), &master(&renditions)), Err(Error::Rendition));
    }

    #[test]
    fn audio_may_be_pulled_alone() {
        let all = master(&[
            ("English", Some("en"), Some("en.m3u8"), [true, true]),
            ("French", Some("fr"), None, [false, true]),
        ]);
        let alone = |audio: Option<&str>| {
            let audio = audio.map(str::to_owned);
            Selection { variant: Choice::AudioOnly, audio }.of(all.clone())
        };
        let selected = alone(None).expect("a playlist");
        assert_eq!((&selected.uri[..], selected.audio_uri), ("en.m3u8", None));
        assert_eq!(alone(Some("fr")), Err(Error::Rendition), "within the variant");
    }
}
