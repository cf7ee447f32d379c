//! Correction of H.264 and H.265: one frame per tag, preceded by a matching sequence header.

use bytes::{BufMut, Bytes};

use super::repair::{Repair, RepairCounts};
use super::sets::Sets;
use super::units::{Form, MAX_UNITS, UnitRole, Units, unit_role};
use crate::codec::{Class, Codec, Role};
use crate::flv::{Kind, MAX_PAYLOAD, Tag};
use crate::fmp4::config::Video;

/// Maximum time between slices of a frame, in milliseconds: less than a frame at 60 Hz.
const SLICE_SPREAD_MS: u32 = 10;
/// Maximum wait of a frame for further slices, in milliseconds of audio.
const MAX_WAIT_MS: u32 = 500;
/// Maximum size in bytes, and number, of units that wait for the next frame.
const MAX_PENDING_BYTES: usize = 1 << 18;
const MAX_PENDING_UNITS: usize = 256;
/// Maximum size of a stored header for the detection of repetitions, in bytes.
const MAX_STORED_HEADER: usize = 1 << 16;
/// Maximum size of a frame joined from several tags, in bytes.
const MAX_JOINED_BYTES: usize = MAX_PAYLOAD / 2;

/// The current sequence header.
#[derive(Debug)]
struct SequenceHeader {
    codec: Codec,
    /// `None` if its record cannot be parsed: frames then pass unchanged.
    video: Option<Video>,
}

/// A video frame, split into NAL units.
#[derive(Debug)]
struct Picture {
    /// The bytes before the first unit.
    head: Bytes,
    timestamp: u32,
    units: Vec<Bytes>,
    /// The original tag, if it contains exactly this frame.
    original: Option<Tag>,
}

impl Picture {
    fn size(&self) -> usize {
        self.units.iter().map(|unit| 4 + unit.len()).sum::<usize>() + self.head.len()
    }

    fn into_tag(self) -> Option<Tag> {
        self.original.or_else(|| {
            let mut buffer = Tag::buffer(self.units.iter().map(|unit| 4 + unit.len()).sum());
            buffer.put_slice(&self.head);
            for unit in &self.units {
                buffer.put_u32(unit.len() as u32);
                buffer.put_slice(unit);
            }
            Tag::assemble(buffer, Kind::Video, self.timestamp)
        })
    }
}

/// Corrects video tags.
#[derive(Debug, Default)]
pub(super) struct VideoAssembler {
    header: Option<SequenceHeader>,
    /// Payload of the publisher's newest header.
    publisher_header: Option<Bytes>,
    /// Whether another header has replaced it.
    is_replaced: bool,
    /// Size of length prefixes in bytes, according to the publisher's header; 0 without one.
    length_size: usize,
    form: Option<Form>,
    sets: Sets,
    /// Units of tags without a slice.
    pending_units: Vec<Bytes>,
    /// The frame that may continue in the next tag, if `splits`.
    open: Option<Picture>,
    /// Whether the publisher splits frames over several tags.
    splits: bool,
    /// The last frame, if it was a key frame that was emitted without waiting for more slices.
    last_key_frame: Option<Picture>,
    /// Timestamp of the last frame.
    last_ms: Option<u32>,
}

impl VideoAssembler {
    pub(super) fn push(&mut self, tag: Tag, out: &mut Vec<Tag>, counts: &mut RepairCounts) {
        let class = tag.class();
        let codec = match class.codec {
            Some(codec @ (Codec::Avc | Codec::Hevc)) => codec,
            _ => return self.pass(tag, out),
        };
        if self.header.as_ref().is_some_and(|header| header.codec != codec) {
            self.flush(out);
            *self = Self::default();
        }
        match class.role {
            Role::SequenceHeader => self.on_header(codec, class.data_at, tag, out, counts),
            Role::KeyFrame | Role::InterFrame => self.on_frame(codec, class, tag, out, counts),
            _ => self.pass(tag, out),
        }
    }

    /// Handles the time of an audio tag: emits a frame that has waited for [`MAX_WAIT_MS`].
    pub(super) fn on_audio_time(&mut self, timestamp: u32, out: &mut Vec<Tag>) {
        let waits = self.open.as_ref().map(|open| timestamp.wrapping_sub(open.timestamp));
        if waits.is_some_and(|waits| (MAX_WAIT_MS..1 << 31).contains(&waits)) {
            self.flush(out);
        }
    }

    pub(super) fn flush(&mut self, out: &mut Vec<Tag>) {
        out.extend(self.open.take().and_then(Picture::into_tag));
    }

    fn pass(&mut self, tag: Tag, out: &mut Vec<Tag>) {
        self.flush(out);
        out.push(tag);
    }

    fn on_header(
        &mut self,
        codec: Codec,
        data_at: usize,
        tag: Tag,
        out: &mut Vec<Tag>,
        counts: &mut RepairCounts,
    ) {
        let payload = tag.payload();
        if self.is_replaced && self.publisher_header.as_ref() == Some(&payload) {
            return;
        }
        let record = payload.slice(data_at.min(payload.len())..);
        if record.is_empty() {
            return counts.count(Repair::Header);
        }
        self.flush(out);
        self.is_replaced = false;
        self.publisher_header = (payload.len() <= MAX_STORED_HEADER).then(|| payload.clone());
        if record.starts_with(&[0, 0, 1]) || record.starts_with(&[0, 0, 0, 1]) {
            counts.count(Repair::AnnexB);
            let units = Units::read(&record, 4, Some(Form::StartCodes)).units;
            self.note_sets(codec, &units);
            self.refresh(codec, &payload, tag.timestamp(), out, counts);
            return;
        }
        let (size_at, count_at) = if codec == Codec::Hevc { (21, 22) } else { (4, 5) };
        let has_sets = match record.get(count_at) {
            Some(count) if codec == Codec::Hevc => *count > 0,
            Some(count) => count & 0x1f > 0,
            None => true,
        };
        let size = record.get(size_at).map_or(4, |byte| usize::from(byte & 3) + 1);
        self.length_size = size;
        if !has_sets {
            return counts.count(Repair::Header);
        }
        self.sets.clear();
        self.pending_units.clear();
        self.last_key_frame = None;
        if size == 4 {
            self.header = Some(SequenceHeader { codec, video: Video::new(codec, record) });
            return out.push(tag);
        }
        let mut record = record.to_vec();
        record[size_at] |= 3;
        counts.count(Repair::LengthSize);
        let mut buffer = Tag::buffer(payload.len());
        buffer.put_slice(&payload[..data_at]);
        buffer.put_slice(&record);
        self.header = Some(SequenceHeader { codec, video: Video::new(codec, record.into()) });
        out.extend(Tag::assemble(buffer, Kind::Video, tag.timestamp()));
    }

    fn on_frame(
        &mut self,
        codec: Codec,
        class: Class,
        tag: Tag,
        out: &mut Vec<Tag>,
        counts: &mut RepairCounts,
    ) {
        let payload = tag.payload();
        let data = payload.slice(class.data_at.min(payload.len())..);
        let size = if self.length_size == 0 { 4 } else { self.length_size };
        let read = Units::read(&data, size, self.form);
        let is_opaque = self.header.as_ref().is_some_and(|header| header.video.is_none());
        if is_opaque && read.is_truncated {
            return self.pass(tag, out);
        }
        if !read.is_truncated {
            self.form = Some(read.form);
        }
        let repairs = [
            (read.has_empty || data.is_empty(), Repair::Empty),
            (read.is_truncated, Repair::Truncated),
            (read.form == Form::StartCodes, Repair::AnnexB),
            (matches!(read.form, Form::Lengths(1..=3)), Repair::LengthSize),
        ];
        repairs.iter().filter(|(made, _)| *made).for_each(|(_, repair)| counts.count(*repair));
        let units = read.units;
        self.note_sets(codec, &units);
        let slice = units.iter().map(|unit| unit_role(codec, unit)).find(is_slice);
        let timestamp = tag.timestamp();
        match slice {
            None => self.on_units(codec, units, out, counts),
            Some(UnitRole::Slice) if self.is_same_picture(timestamp) => {
                self.on_slices(units, out, counts);
            }
            Some(slice) => {
                let is_same = repairs.iter().all(|(made, _)| !made);
                let head = payload.slice(..class.data_at);
                let original = is_same.then_some(tag);
                let picture = Picture { head, timestamp, units, original };
                let is_key = class.role == Role::KeyFrame;
                self.on_picture(codec, picture, (is_key, slice), out, counts);
            }
        }
    }

    fn note_sets(&mut self, codec: Codec, units: &[Bytes]) {
        let header = self.header.as_ref().and_then(|header| header.video.as_ref());
        for unit in units.iter().filter(|unit| unit_role(codec, unit) == UnitRole::Set) {
            self.sets.note(codec, unit, header);
        }
    }

    /// Handles units without a slice: they belong to the next frame, or are dropped.
    fn on_units(
        &mut self,
        codec: Codec,
        units: Vec<Bytes>,
        out: &mut Vec<Tag>,
        counts: &mut RepairCounts,
    ) {
        if units.is_empty() {
            return;
        }
        counts.count(Repair::NoSlice);
        let is_not_suffix = |unit: &Bytes| unit_role(codec, unit) != UnitRole::Suffix;
        if units.iter().any(is_not_suffix) {
            // They start another frame.
            self.flush(out);
        }
        self.pending_units.extend(units.into_iter().filter(is_not_suffix));
        let size: usize = self.pending_units.iter().map(Bytes::len).sum();
        if size > MAX_PENDING_BYTES || self.pending_units.len() > MAX_PENDING_UNITS {
            self.pending_units.clear();
        }
    }

    /// Whether non-first slices at this time belong to the last frame.
    fn is_same_picture(&self, timestamp: u32) -> bool {
        self.pending_units.is_empty()
            && self.last_ms.is_some_and(|last| timestamp.abs_diff(last) <= SLICE_SPREAD_MS)
    }

    fn on_slices(&mut self, units: Vec<Bytes>, out: &mut Vec<Tag>, counts: &mut RepairCounts) {
        self.splits = true;
        // If the first slices of a key frame were already emitted, the key frame is emitted again,
        // complete. Late slices of other frames are dropped and counted once.
        if self.open.is_none() {
            self.open = self.last_key_frame.take();
        }
        let size: usize = units.iter().map(|unit| 4 + unit.len()).sum();
        match &mut self.open {
            Some(open)
                if open.size() + size <= MAX_JOINED_BYTES
                    && open.units.len() + units.len() <= MAX_UNITS =>
            {
                counts.count(Repair::Joined);
                open.original = None;
                open.units.extend(units);
            }
            Some(_) => {
                counts.count(Repair::Truncated);
                self.flush(out);
            }
            None => counts.count(Repair::Truncated),
        }
    }

    fn on_picture(
        &mut self,
        codec: Codec,
        mut picture: Picture,
        (is_key, slice): (bool, UnitRole),
        out: &mut Vec<Tag>,
        counts: &mut RepairCounts,
    ) {
        self.flush(out);
        self.last_key_frame = None;
        self.last_ms = Some(picture.timestamp);
        let is_sync = slice == UnitRole::FirstSlice { sync: true };
        if is_sync && !is_key {
            counts.count(Repair::KeyFrame);
            picture.head = marked_as_key(&picture.head);
            picture.original = None;
        }
        if !self.pending_units.is_empty() {
            let pending_units = core::mem::take(&mut self.pending_units);
            let is_delimiter = |unit: &Bytes| unit_role(codec, unit) == UnitRole::Delimiter;
            let own = core::mem::take(&mut picture.units);
            let delimiter =
                pending_units.iter().chain(&own).find(|unit| is_delimiter(unit)).cloned();
            let others = pending_units.into_iter().chain(own).filter(|unit| !is_delimiter(unit));
            picture.units = delimiter.into_iter().chain(others).collect();
            picture.original = None;
        }
        if is_sync || is_key {
            self.refresh(codec, &picture.head, picture.timestamp, out, counts);
        }
        if self.header.is_none() {
            return counts.count(Repair::VideoHeader);
        }
        if self.splits {
            self.open = Some(picture);
            return;
        }
        if is_sync || is_key {
            let Picture { head, timestamp, units, .. } = &picture;
            let (head, units) = (head.clone(), units.clone());
            self.last_key_frame =
                Some(Picture { head, timestamp: *timestamp, units, original: None });
        }
        out.extend(picture.into_tag());
    }

    /// Emits a sequence header if frames contain parameter sets that the current one lacks. `head`
    /// is the start of one of the stream's video tags.
    fn refresh(
        &mut self,
        codec: Codec,
        head: &[u8],
        timestamp: u32,
        out: &mut Vec<Tag>,
        counts: &mut RepairCounts,
    ) {
        let known = self.header.as_ref().and_then(|header| header.video.as_ref());
        let Some(video) = self.sets.build(codec, known) else { return };
        let start: &[u8] = match (codec, head.first().is_some_and(|first| first & 0x80 != 0)) {
            (Codec::Hevc, true) => b"\x90hvc1",
            (Codec::Hevc, false) => &[0x1c, 0, 0, 0, 0],
            _ => &[0x17, 0, 0, 0, 0],
        };
        let mut buffer = Tag::buffer(start.len() + video.record.len());
        buffer.put_slice(start);
        buffer.put_slice(&video.record);
        counts.count(Repair::Sets);
        self.is_replaced = true;
        out.extend(Tag::assemble(buffer, Kind::Video, timestamp));
        self.header = Some(SequenceHeader { codec, video: Some(video) });
    }
}

fn is_slice(role: &UnitRole) -> bool {
    matches!(role, UnitRole::FirstSlice { .. } | UnitRole::Slice)
}

/// Returns the start of a video tag with the frame type of a key frame.
fn marked_as_key(head: &[u8]) -> Bytes {
    let mut head = head.to_vec();
    if let Some(first) = head.first_mut() {
        *first = *first & 0x8f | 0x10;
    }
    head.into()
}
