//! Tags of a live stream in publication order, with their capture and publication times, from an
//! [`Encoder`] or a repeated [`Recording`].
//!
//! Only the distinguishing properties of tags are stored. Their bytes are generated for
//! publication, and again to check received data.

use core::time::Duration;

use media::{Kind, Role, Tag};

use super::encoder::{EncodedFrame, EncodedTrack, Encoder};
use super::recording::Recording;

/// Tags of a live stream, numbered from 0.
#[derive(Clone, Debug)]
pub struct LiveSource {
    entries: Vec<TimedTag>,
    /// Headers before the first tag.
    opening: Vec<Tag>,
    /// One lap of a recording.
    recorded: Vec<Tag>,
    has_pictures: bool,
    length: Duration,
}

/// A tag without its bytes. Times count from the start of the stream.
#[derive(Clone, Debug)]
struct TimedTag {
    published: Duration,
    captured: Duration,
    /// Decoding time of the tag.
    time_ms: u32,
    kind: Kind,
    role: Role,
    content: TagContent,
}

#[derive(Clone, Copy, Debug)]
enum TagContent {
    /// A payload of this many bytes.
    Made { size: u32, composition_ms: u32, is_needed: bool },
    /// The payload of the recording's tag with this index.
    Recorded(u32),
}

impl LiveSource {
    /// Creates a stream of this many pictures of an encoder, with sound. Sizes follow from `seed`.
    pub fn encoded(encoder: &Encoder, seed: u64, pictures: u32) -> Self {
        let entry = |frame: EncodedFrame| TimedTag {
            published: frame.published,
            captured: frame.published.saturating_sub(frame.encoding),
            time_ms: frame.published.as_millis() as u32,
            kind: match frame.track {
                EncodedTrack::Sound => Kind::Audio,
                _ => Kind::Video,
            },
            role: match frame.track {
                EncodedTrack::Key => Role::KeyFrame,
                EncodedTrack::Needed | EncodedTrack::Disposable => Role::InterFrame,
                EncodedTrack::Sound => Role::AudioFrame,
            },
            content: TagContent::Made {
                size: frame.size,
                composition_ms: frame.composition.as_millis() as u32,
                is_needed: frame.track != EncodedTrack::Disposable,
            },
        };
        let header = |kind, payload: &[u8]| Tag::new(kind, 0, payload).expect("a few bytes");
        // AVCDecoderConfigurationRecord: High 3.1, four-byte lengths. The parameter sets are
        // placeholders.
        let mut opening =
            vec![header(Kind::Video, &[0x17, 0, 0, 0, 0, 1, 100, 0, 31, 0xff, 0xe0, 0])];
        if encoder.audio.as_bps() > 0 {
            // AudioSpecificConfig: AAC-LC, 48 kHz, two channels.
            opening.push(header(Kind::Audio, &[0xaf, 0, 0x11, 0x90]));
        }
        Self {
            entries: encoder.frames(seed, pictures).into_iter().map(entry).collect(),
            opening,
            recorded: Vec::new(),
            has_pictures: true,
            length: encoder.interval * pictures,
        }
    }

    /// Repeats a recording for `length`, with continuous times.
    ///
    /// A tag is published at its own time, or with the preceding tag of the file if that is later.
    /// Pictures are captured as late as their presentation times allow: the one with the longest
    /// composition time is captured when it is published, and the others correspondingly earlier.
    pub fn recorded(recording: &Recording, length: Duration) -> Self {
        let delay = |tag: &Tag| tag.class().composition_time.max(0) as u32;
        let longest = recording.tags.iter().map(delay).max().unwrap_or(0);
        let mut entries = Vec::new();
        let mut published = Duration::ZERO;
        for lap in (0..).map(|lap| recording.lap * lap) {
            if lap >= length {
                break;
            }
            for (place, tag) in (0..).zip(&recording.tags) {
                let time = lap + Duration::from_millis(tag.timestamp().into());
                published = published.max(time);
                if published >= length {
                    break;
                }
                let encoding = match tag.kind() {
                    Kind::Video => Duration::from_millis((longest - delay(tag)).into()),
                    _ => Duration::ZERO,
                };
                entries.push(TimedTag {
                    published,
                    captured: published.saturating_sub(encoding),
                    time_ms: time.as_millis() as u32,
                    kind: tag.kind(),
                    role: tag.role(),
                    content: TagContent::Recorded(place),
                });
            }
        }
        Self {
            entries,
            opening: Vec::new(),
            has_pictures: recording.tags.iter().any(|tag| tag.role() == Role::KeyFrame),
            recorded: recording.tags.clone(),
            length,
        }
    }

    /// Blocks the publisher's uplink for `length`, from `at` on: tags of this time are published at
    /// its end. Media times are unchanged.
    #[must_use]
    pub fn blocked(mut self, at: Duration, length: Duration) -> Self {
        let until = at + length;
        for entry in &mut self.entries {
            if (at..until).contains(&entry.published) {
                entry.published = until;
            }
        }
        self
    }

    /// Duration of the stream.
    pub fn length(&self) -> Duration {
        self.length
    }

    /// Number of tags.
    pub(crate) fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Headers before the first tag.
    pub(crate) fn opening(&self) -> &[Tag] {
        &self.opening
    }

    /// Publication time of a tag. For the number after the last: the end of the stream.
    pub(crate) fn published(&self, number: u32) -> Duration {
        self.entries.get(number as usize).map_or(self.length, |entry| entry.published)
    }

    /// Capture time of a tag's content.
    pub(crate) fn captured(&self, number: u32) -> Duration {
        self.entries[number as usize].captured
    }

    /// Returns whether viewers notice a delay of this tag: pictures, or sound in a stream without
    /// pictures.
    pub(crate) fn is_frame(&self, number: u32) -> bool {
        match self.entries[number as usize].role {
            Role::KeyFrame | Role::InterFrame => true,
            Role::AudioFrame => !self.has_pictures,
            _ => false,
        }
    }

    /// Returns whether a player can start with this tag.
    pub(crate) fn is_key(&self, number: u32) -> bool {
        let role = self.entries[number as usize].role;
        role == Role::KeyFrame || (role == Role::AudioFrame && !self.has_pictures)
    }

    /// Builds the tag at the stream's time.
    pub(crate) fn tag(&self, number: u32) -> Tag {
        let TimedTag { time_ms, kind, role, content, .. } = self.entries[number as usize];
        let (size, composition_ms, is_needed) = match content {
            TagContent::Recorded(place) => {
                return self.recorded[place as usize].clone().with_timestamp(time_ms);
            }
            TagContent::Made { size, composition_ms, is_needed } => {
                (size, composition_ms, is_needed)
            }
        };
        let [_, c1, c2, c3] = composition_ms.to_be_bytes();
        let [l0, l1, l2, l3] = size.saturating_sub(9).to_be_bytes();
        // FrameType and codec, AVCPacketType and composition time, then length and head of a slice;
        // format and AACPacketType.
        let head = match role {
            Role::KeyFrame => &[0x17, 1, c1, c2, c3, l0, l1, l2, l3, 0x65][..],
            Role::InterFrame if is_needed => &[0x27, 1, c1, c2, c3, l0, l1, l2, l3, 0x41],
            Role::InterFrame => &[0x27, 1, c1, c2, c3, l0, l1, l2, l3, 0x01],
            _ => &[0xaf, 1],
        };
        let mut buffer = Tag::buffer(size as usize);
        let end = buffer.len() + size as usize;
        buffer.extend_from_slice(head);
        // Makes frames of equal size distinct.
        buffer.extend_from_slice(&number.to_be_bytes());
        buffer.resize(end, number as u8);
        Tag::assemble(buffer, kind, time_ms).expect("frames of live streams fit")
    }

    /// Returns whether the stream has this header.
    pub(crate) fn has_header(&self, header: &Tag) -> bool {
        self.opening.iter().chain(&self.recorded).any(|own| {
            own.kind() == header.kind()
                && own.role() == header.role()
                && own.payload() == header.payload()
        })
    }

    /// Returns whether this is the tag with that number, at any time.
    pub(crate) fn is(&self, number: u32, tag: &Tag) -> bool {
        let entry = &self.entries[number as usize];
        if (entry.kind, entry.role) != (tag.kind(), tag.role()) {
            return false;
        }
        match entry.content {
            TagContent::Made { size, .. } if tag.payload().len() != size as usize => false,
            TagContent::Made { .. } => self.tag(number).payload() == tag.payload(),
            TagContent::Recorded(place) => self.recorded[place as usize].payload() == tag.payload(),
        }
    }

    /// Time of a tag in milliseconds.
    pub(crate) fn time_ms(&self, number: u32) -> u32 {
        self.entries[number as usize].time_ms
    }
}
