//! Correction of AAC: raw frames, preceded by an AudioSpecificConfig.

use bytes::{BufMut, Bytes};

use super::repair::{Repair, RepairCounts};
use crate::codec::{Codec, Role};
use crate::flv::{Kind, Tag};
use crate::fmp4::config::{AAC_RATES, Audio, audio_specific_config};

/// Samples of an AAC frame.
const FRAME_SAMPLES: u64 = 1_024;
/// Maximum number of ADTS frames in a tag.
const MAX_FRAMES: usize = 256;

/// Corrects AAC tags.
#[derive(Debug, Default)]
pub(super) struct AudioAssembler {
    header: Option<Audio>,
    /// The publisher's newest sequence header.
    publisher_header: Option<Bytes>,
    /// Whether another sequence header has replaced it.
    is_replaced: bool,
}

impl AudioAssembler {
    pub(super) fn push(&mut self, tag: Tag, out: &mut Vec<Tag>, counts: &mut RepairCounts) {
        let class = tag.class();
        let payload = tag.payload();
        let data = payload.slice(class.data_at.min(payload.len())..);
        match (class.codec, class.role) {
            (Some(Codec::Aac), Role::SequenceHeader) => self.on_header(data, tag, out, counts),
            (_, Role::AudioFrame) if data.is_empty() => counts.count(Repair::Empty),
            (Some(Codec::Aac), Role::AudioFrame) => {
                if Adts::read(&data).is_some() {
                    counts.count(Repair::Adts);
                    self.on_adts(data, tag.timestamp(), out);
                } else if self.header.is_none() {
                    counts.count(Repair::AudioHeader);
                } else {
                    out.push(tag);
                }
            }
            _ => out.push(tag),
        }
    }

    fn on_header(
        &mut self,
        record: Bytes,
        tag: Tag,
        out: &mut Vec<Tag>,
        counts: &mut RepairCounts,
    ) {
        if self.is_replaced && self.publisher_header.as_ref() == Some(&record) {
            return;
        }
        if let Some(adts) = Adts::read(&record) {
            counts.count(Repair::Adts);
            return self.follow(&adts, tag.timestamp(), out);
        }
        match Audio::new(Codec::Aac, record.clone()) {
            Some(audio) => {
                self.header = Some(audio);
                self.publisher_header = Some(record);
                self.is_replaced = false;
                out.push(tag);
            }
            None => counts.count(Repair::Header),
        }
    }

    /// Splits a tag into its ADTS frames. A truncated frame is dropped.
    fn on_adts(&mut self, mut data: Bytes, timestamp: u32, out: &mut Vec<Tag>) {
        for number in 0..MAX_FRAMES as u64 {
            let Some(adts) = Adts::read(&data).filter(|adts| adts.length <= data.len()) else {
                return;
            };
            let frame = data.split_to(adts.length).slice(adts.header_length..);
            if frame.is_empty() {
                continue;
            }
            self.follow(&adts, timestamp, out);
            let rate = self.header.as_ref().map_or(44_100, |audio| audio.sample_rate);
            let later = number * FRAME_SAMPLES * 1_000 / u64::from(rate);
            out.extend(aac_tag(1, &frame, timestamp.wrapping_add(later as u32)));
        }
    }

    /// Emits a sequence header for an ADTS header, unless it matches the current one.
    fn follow(&mut self, adts: &Adts, timestamp: u32, out: &mut Vec<Tag>) {
        let known = self.header.as_ref().and_then(Audio::adts);
        // With channel configuration 0, the frames define the channels.
        if known.is_some_and(|known| known == adts.start || adts.channels == 0) {
            return;
        }
        let record = audio_specific_config(adts.profile, adts.rate_index, adts.channels);
        let Some(audio) = Audio::new(Codec::Aac, record.clone()) else { return };
        self.header = Some(audio);
        self.is_replaced = true;
        out.extend(aac_tag(0, &record, timestamp));
    }
}

/// Returns an AAC tag: a sequence header (kind 0) or a frame (kind 1).
pub(super) fn aac_tag(kind: u8, data: &[u8], timestamp: u32) -> Option<Tag> {
    let mut buffer = Tag::buffer(2 + data.len());
    buffer.put_slice(&[0xaf, kind]);
    buffer.put_slice(data);
    Tag::assemble(buffer, Kind::Audio, timestamp)
}

/// An ADTS header (ISO/IEC 14496-3, table 1.A.5).
#[derive(Clone, Copy, Debug)]
struct Adts {
    profile: u8,
    rate_index: u8,
    channels: u8,
    /// Profile, rate and channels at their positions in the header; other bits are 0.
    start: [u8; 2],
    /// Size of the frame including the header, in bytes.
    length: usize,
    header_length: usize,
}

impl Adts {
    /// Parses the header at the start of `data`. A raw AAC frame never starts with the sync word,
    /// which would be an element that ends the frame.
    fn read(data: &[u8]) -> Option<Self> {
        let b: [u8; 7] = data.get(..7)?.try_into().ok()?;
        if b[0] != 0xff || b[1] & 0xf6 != 0xf0 {
            return None;
        }
        let (profile, rate_index) = (b[2] >> 6, b[2] >> 2 & 0x0f);
        AAC_RATES.get(usize::from(rate_index))?;
        let channels = b[2] << 2 & 4 | b[3] >> 6;
        let length = usize::from(b[3] & 3) << 11 | usize::from(b[4]) << 3 | usize::from(b[5] >> 5);
        let header_length = if b[1] & 1 == 1 { 7 } else { 9 };
        let start = [b[2] & 0xfd, b[3] & 0xc0];
        (length >= header_length).then_some(Self {
            profile,
            rate_index,
            channels,
            start,
            length,
            header_length,
        })
    }
}
