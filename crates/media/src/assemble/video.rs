//! Pictures of H.264 and H.265: one per tag, preceded by a sequence header that fits them.

use bytes::{BufMut, Bytes};

use super::repair::{Counts, Repair};
use super::sets::Sets;
use super::units::{Form, MAX_UNITS, Place, Units, place};
use crate::codec::{Class, Codec, Role};
use crate::flv::{Kind, MAX_PAYLOAD, Tag};
use crate::fmp4::config::Video;

/// Largest time between slices of one picture, in milliseconds: less than a frame at 60 Hz.
const SLICE_SPREAD_MS: u32 = 10;
/// Longest wait of a picture for further slices, in milliseconds of audio.
const MAX_WAIT_MS: u32 = 500;
/// Bytes of units that wait for the next picture, and their number.
const MAX_BEFORE_BYTES: usize = 1 << 18;
const MAX_BEFORE: usize = 256;
/// Largest header kept to detect repetitions, in bytes.
const MAX_GIVEN_BYTES: usize = 1 << 16;
/// Bytes of a picture that is put together.
const MAX_PICTURE_BYTES: usize = MAX_PAYLOAD / 2;

/// The sequence header in force.
#[derive(Debug)]
struct Header {
    codec: Codec,
    /// `None` if its record cannot be read: frames then pass as they are.
    video: Option<Video>,
}

/// A picture as units.
#[derive(Debug)]
struct Picture {
    /// The bytes before the first unit.
    head: Bytes,
    timestamp: u32,
    units: Vec<Bytes>,
    /// The tag that has all of it.
    whole: Option<Tag>,
}

impl Picture {
    fn size(&self) -> usize {
        self.units.iter().map(|unit| 4 + unit.len()).sum::<usize>() + self.head.len()
    }

    fn into_tag(self) -> Option<Tag> {
        self.whole.or_else(|| {
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

/// Puts pictures together.
#[derive(Debug, Default)]
pub(super) struct Pictures {
    header: Option<Header>,
    /// The payload of the publisher's last header.
    given: Option<Bytes>,
    /// Whether another header is in force in its place.
    is_replaced: bool,
    /// Bytes of the lengths before NAL units, by the publisher's header; 0 before there is one.
    length_size: usize,
    form: Option<Form>,
    sets: Sets,
    /// Units of tags without a slice.
    before: Vec<Bytes>,
    /// The picture that may continue in the next tag, if pictures are split over tags.
    open: Option<Picture>,
    splits: bool,
    /// The last picture, if it was a key frame that has left without waiting for more slices.
    left: Option<Picture>,
    /// Time of the last picture.
    last_ms: Option<u32>,
}

impl Pictures {
    pub(super) fn push(&mut self, tag: Tag, out: &mut Vec<Tag>, counts: &mut Counts) {
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

    /// A tag of another kind at this time: a picture waits no longer than [`MAX_WAIT_MS`].
    pub(super) fn on_other(&mut self, timestamp: u32, out: &mut Vec<Tag>) {
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
        counts: &mut Counts,
    ) {
        let payload = tag.payload();
        if self.is_replaced && self.given.as_ref() == Some(&payload) {
            return;
        }
        let record = payload.slice(data_at.min(payload.len())..);
        if record.is_empty() {
            return counts.count(Repair::Header);
        }
        self.flush(out);
        self.is_replaced = false;
        self.given = (payload.len() <= MAX_GIVEN_BYTES).then(|| payload.clone());
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
        self.before.clear();
        self.left = None;
        if size == 4 {
            self.header = Some(Header { codec, video: Video::new(codec, record) });
            return out.push(tag);
        }
        let mut record = record.to_vec();
        record[size_at] |= 3;
        counts.count(Repair::LengthSize);
        let mut buffer = Tag::buffer(payload.len());
        buffer.put_slice(&payload[..data_at]);
        buffer.put_slice(&record);
        self.header = Some(Header { codec, video: Video::new(codec, record.into()) });
        out.extend(Tag::assemble(buffer, Kind::Video, tag.timestamp()));
    }

    fn on_frame(
        &mut self,
        codec: Codec,
        class: Class,
        tag: Tag,
        out: &mut Vec<Tag>,
        counts: &mut Counts,
    ) {
        let payload = tag.payload();
        let data = payload.slice(class.data_at.min(payload.len())..);
        let size = if self.length_size == 0 { 4 } else { self.length_size };
        let read = Units::read(&data, size, self.form);
        let is_opaque = self.header.as_ref().is_some_and(|header| header.video.is_none());
        if is_opaque && read.is_cut {
            return self.pass(tag, out);
        }
        if !read.is_cut {
            self.form = Some(read.form);
        }
        let repairs = [
            (read.has_empty || data.is_empty(), Repair::Empty),
            (read.is_cut, Repair::Cut),
            (read.form == Form::StartCodes, Repair::AnnexB),
            (matches!(read.form, Form::Lengths(1..=3)), Repair::LengthSize),
        ];
        repairs.iter().filter(|(made, _)| *made).for_each(|(_, repair)| counts.count(*repair));
        let units = read.units;
        self.note_sets(codec, &units);
        let slice = units.iter().map(|unit| place(codec, unit)).find(is_slice);
        let timestamp = tag.timestamp();
        match slice {
            None => self.on_units(codec, units, out, counts),
            Some(Place::Slice) if self.is_same_picture(timestamp) => {
                self.on_slices(units, out, counts);
            }
            Some(slice) => {
                let is_same = repairs.iter().all(|(made, _)| !made);
                let head = payload.slice(..class.data_at);
                let whole = is_same.then_some(tag);
                let picture = Picture { head, timestamp, units, whole };
                let is_key = class.role == Role::KeyFrame;
                self.on_picture(codec, picture, (is_key, slice), out, counts);
            }
        }
    }

    fn note_sets(&mut self, codec: Codec, units: &[Bytes]) {
        let header = self.header.as_ref().and_then(|header| header.video.as_ref());
        for unit in units.iter().filter(|unit| place(codec, unit) == Place::Set) {
            self.sets.note(codec, unit, header);
        }
    }

    /// Units without a slice: they belong to the next picture, or are of no use.
    fn on_units(
        &mut self,
        codec: Codec,
        units: Vec<Bytes>,
        out: &mut Vec<Tag>,
        counts: &mut Counts,
    ) {
        if units.is_empty() {
            return;
        }
        counts.count(Repair::NoSlice);
        let is_before = |unit: &Bytes| place(codec, unit) != Place::Behind;
        if units.iter().any(is_before) {
            // They start another picture.
            self.flush(out);
        }
        self.before.extend(units.into_iter().filter(is_before));
        let size: usize = self.before.iter().map(Bytes::len).sum();
        if size > MAX_BEFORE_BYTES || self.before.len() > MAX_BEFORE {
            self.before.clear();
        }
    }

    /// Whether slices at this time belong to the last picture, unless they start one.
    fn is_same_picture(&self, timestamp: u32) -> bool {
        self.before.is_empty()
            && self.last_ms.is_some_and(|last| timestamp.abs_diff(last) <= SLICE_SPREAD_MS)
    }

    fn on_slices(&mut self, units: Vec<Bytes>, out: &mut Vec<Tag>, counts: &mut Counts) {
        self.splits = true;
        // If the first slices of a key frame were already emitted, the key frame is emitted again,
        // complete. Late slices of another picture are dropped and counted once.
        if self.open.is_none() {
            self.open = self.left.take();
        }
        let size: usize = units.iter().map(|unit| 4 + unit.len()).sum();
        match &mut self.open {
            Some(open)
                if open.size() + size <= MAX_PICTURE_BYTES
                    && open.units.len() + units.len() <= MAX_UNITS =>
            {
                counts.count(Repair::Joined);
                open.whole = None;
                open.units.extend(units);
            }
            Some(_) => {
                counts.count(Repair::Cut);
                self.flush(out);
            }
            None => counts.count(Repair::Cut),
        }
    }

    fn on_picture(
        &mut self,
        codec: Codec,
        mut picture: Picture,
        (is_key, slice): (bool, Place),
        out: &mut Vec<Tag>,
        counts: &mut Counts,
    ) {
        self.flush(out);
        self.left = None;
        self.last_ms = Some(picture.timestamp);
        let is_sync = slice == Place::First { sync: true };
        if is_sync && !is_key {
            counts.count(Repair::KeyFrame);
            picture.head = marked_as_key(&picture.head);
            picture.whole = None;
        }
        if !self.before.is_empty() {
            let before = core::mem::take(&mut self.before);
            let is_delimiter = |unit: &Bytes| place(codec, unit) == Place::Delimiter;
            let own = core::mem::take(&mut picture.units);
            let delimiter = before.iter().chain(&own).find(|unit| is_delimiter(unit)).cloned();
            let others = before.into_iter().chain(own).filter(|unit| !is_delimiter(unit));
            picture.units = delimiter.into_iter().chain(others).collect();
            picture.whole = None;
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
            self.left = Some(Picture { head, timestamp: *timestamp, units, whole: None });
        }
        out.extend(picture.into_tag());
    }

    /// Builds a sequence header if pictures brought parameter sets that the one in force does not have.
    /// `head` is the start of one of the stream's video tags.
    fn refresh(
        &mut self,
        codec: Codec,
        head: &[u8],
        timestamp: u32,
        out: &mut Vec<Tag>,
        counts: &mut Counts,
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
        self.header = Some(Header { codec, video: Some(video) });
    }
}

fn is_slice(place: &Place) -> bool {
    matches!(place, Place::First { .. } | Place::Slice)
}

/// The start of a video tag with the frame type of a key frame.
fn marked_as_key(head: &[u8]) -> Bytes {
    let mut head = head.to_vec();
    if let Some(first) = head.first_mut() {
        *first = *first & 0x8f | 0x10;
    }
    head.into()
}
