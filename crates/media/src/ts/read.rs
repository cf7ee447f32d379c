//! Reader of transport stream segments: returns the first video and first audio stream of the first
//! program as access units in the format of FLV and MP4.
//!
//! Segments are self-contained (RFC 8216, section 3): only the stream configuration carries over.
//! Memory is bounded by the segment's size. A video PES packet is one access unit, as section 3.2
//! recommends; one without a timestamp continues the previous access unit.

use bytes::{BufMut, Bytes, BytesMut};

use super::TIMESCALE;
use super::packed::Packed;
use super::packets::Packets;
use super::sets::ParameterSets;
use super::tables::{PacketHeader, Program, Tables};
use crate::codec::Codec;
use crate::deviation::{Deviation, Deviations};
use crate::fmp4::Sample;
use crate::fmp4::config::{self, Audio, Mp3Header, Video, nal};
use crate::fmp4::read::CodecConfig;

/// Maximum number of samples in a segment.
const MAX_SAMPLES: usize = crate::fmp4::read::MAX_SAMPLES;

/// Reason for which a segment cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// No packets were found.
    #[error("no transport stream packets")]
    Sync,
    /// No program, or a program without a stream that FLV can carry.
    #[error("no transport stream program with a supported codec")]
    NoStream,
    /// Packets are scrambled.
    #[error("scrambled transport stream")]
    Encrypted,
    /// The number of access units exceeds the limit.
    #[error("too many access units in a segment")]
    TooMany,
}

/// Content of a segment: video in packet order, then audio.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// Configuration of the following samples of its kind.
    Config(CodecConfig),
    /// A video access unit, with times in [`TIMESCALE`].
    Video(Sample),
    /// An audio frame, with times in [`TIMESCALE`].
    Audio(Sample),
}

/// Reader of one stream's segments. Its times continue across the wrap of 33-bit timestamps.
#[derive(Clone, Debug, Default)]
pub struct SegmentReader {
    video: Option<Video>,
    audio: Option<CodecConfig>,
    /// H.264 parameter sets by type and ID. Pictures may alternate between several sets.
    sets: ParameterSets,
    /// Program of the newest tables. Some packagers send them only once.
    program: Option<Program>,
    /// Time at which packed audio without a timestamp continues.
    packed_end: Option<u64>,
    /// Newest time, without wraps.
    time: Option<i64>,
    unsupported: Vec<&'static str>,
    deviations: Deviations,
}

impl SegmentReader {
    /// Returns the access units of a segment.
    ///
    /// # Errors
    /// The segment is not a transport stream, or has no supported stream.
    pub fn read(&mut self, segment: &[u8]) -> Result<Vec<Item>, Error> {
        if let Some(packed) = Packed::read(segment) {
            return Ok(self.packed(packed));
        }
        let packets = Packets::find(segment, &mut self.deviations).ok_or(Error::Sync)?;
        let mut demux = Demux::new(self.first_program(packets.clone()));
        let mut rest = packets;
        while let Some(packet) = rest.next(&mut self.deviations) {
            demux.packet(packet, &mut self.deviations)?;
        }
        self.program.clone_from(&demux.program);
        self.unsupported = demux.program.as_ref().map_or(Vec::new(), |p| p.unsupported.clone());
        if demux.streams.iter().all(Option::is_none) && demux.replaced.iter().all(Vec::is_empty) {
            return Err(Error::NoStream);
        }
        let mut items = Vec::new();
        let mut carry = Carry::default();
        for unit in demux.into_units() {
            let dts = self.unwrap(unit.dts);
            let composition = difference(unit.pts, unit.dts) as i32;
            match unit.codec {
                Codec::Avc | Codec::Hevc => self.video(&unit, dts, composition, &mut items),
                _ => self.audio(&unit, dts + i64::from(composition), &mut carry, &mut items),
            }
            if items.len() > MAX_SAMPLES {
                return Err(Error::TooMany);
            }
        }
        Ok(items)
    }

    /// Returns the frames of packed audio.
    fn packed(&mut self, packed: Packed<'_>) -> Vec<Item> {
        let time = packed.time.or(self.packed_end).unwrap_or(0);
        let (pts, data) = (self.unwrap(time), packed.frames.to_vec());
        let (codec, dts) = (packed.codec, time);
        let (mut items, mut carry) = (Vec::new(), Carry::default());
        let unit = PesUnit { codec, pts: time, dts, random_access: false, data };
        self.audio(&unit, pts, &mut carry, &mut items);
        if let (Some(Item::Audio(last)), Some((start, _))) = (items.last(), carry.time) {
            let samples = items.iter().filter(|item| matches!(item, Item::Audio(_))).count() as i64;
            // The next segment starts a mean frame duration after the last frame.
            let frame = (last.dts - start) / (samples - 1).max(1);
            self.packed_end = Some((last.dts + frame) as u64 & MASK);
        }
        items
    }

    /// Returns the deviations from standards since the last call.
    pub fn deviations(&mut self) -> Deviations {
        core::mem::take(&mut self.deviations)
    }

    /// Returns the first program of a segment, which also applies to packets before its tables. A
    /// segment without tables uses the program of the previous one.
    fn first_program(&mut self, mut packets: Packets<'_>) -> Option<Program> {
        let mut tables = Tables::default();
        let mut ignored = Deviations::default();
        let mut has_media = false;
        while let Some(packet) = packets.next(&mut ignored) {
            let Some(header) = PacketHeader::read(packet) else { continue };
            if let Some(program) = tables.packet(&header) {
                let pids = program.streams.iter().flatten();
                if has_media && pids.count() > 0 {
                    self.deviations.note(Deviation::TsTables);
                }
                return Some(program);
            }
            has_media |= header.start && header.payload.starts_with(&[0, 0, 1]);
        }
        self.deviations.note(Deviation::TsTables);
        self.program.take()
    }

    /// Returns the audio and video codecs of the last segment that FLV cannot carry.
    pub fn unsupported(&self) -> &[&'static str] {
        &self.unsupported
    }

    /// Returns the time with these 33 bits that is nearest to the newest one.
    fn unwrap(&mut self, time: u64) -> i64 {
        let latest = self.time.unwrap_or(time as i64);
        let step = difference(time, (latest as u64) & MASK);
        let unwrapped = (latest + step).clamp(-MAX_TIME, MAX_TIME);
        self.time = Some(unwrapped);
        unwrapped
    }

    fn video(&mut self, unit: &PesUnit, dts: i64, composition: i32, items: &mut Vec<Item>) {
        let hevc = unit.codec == Codec::Hevc;
        let mut data = BytesMut::with_capacity(unit.data.len() + 16);
        let mut sets: [Vec<Bytes>; 3] = Default::default();
        let mut sync = false;
        for nal_unit in byte_stream(&unit.data) {
            let kind = if hevc { nal_unit[0] >> 1 & 0x3f } else { nal_unit[0] & 0x1f };
            let set = match (hevc, kind) {
                (true, nal::HEVC_VPS) => Some(0),
                (true, nal::HEVC_SPS) | (false, nal::AVC_SPS) => Some(1),
                (true, nal::HEVC_PPS) | (false, nal::AVC_PPS) => Some(2),
                (true, nal::HEVC_AUD) | (false, nal::AVC_AUD) => continue,
                _ => None,
            };
            if let Some(set) = set {
                if sets[set].len() < 16 {
                    sets[set].push(Bytes::copy_from_slice(nal_unit));
                }
                continue;
            }
            sync |= if hevc { nal::HEVC_IRAP.contains(&kind) } else { kind == nal::AVC_IDR };
            data.put_u32(nal_unit.len() as u32);
            data.put_slice(nal_unit);
        }
        let [vps, sps, pps] = &sets;
        let video = match hevc {
            true if !vps.is_empty() && !sps.is_empty() => Video::from_h265_sets(vps, sps, pps),
            false if !sps.is_empty() || !pps.is_empty() => {
                let (sps, pps) = self.sets.with(sps, pps);
                Video::from_h264_sets(&sps, &pps)
            }
            _ => None,
        };
        // Open groups of pictures start with a picture that is marked but not an IDR picture.
        sync |= unit.random_access && !sps.is_empty();
        if let Some(video) = video
            && self.video.as_ref() != Some(&video)
        {
            items.push(Item::Config(CodecConfig::Video(video.clone())));
            self.video = Some(video);
        }
        if !data.is_empty() {
            items.push(Item::Video(Sample { data: data.freeze(), dts, composition, sync }));
        }
    }

    fn audio(&mut self, unit: &PesUnit, pts: i64, carry: &mut Carry, items: &mut Vec<Item>) {
        let carried = carry.bytes.len();
        let mut bytes = core::mem::take(&mut carry.bytes);
        bytes.extend_from_slice(&unit.data);
        let bytes = Bytes::from(bytes);
        let mut fresh = carried == 0;
        if fresh {
            carry.time = Some((pts, 0));
        }
        let mut at = 0;
        while at < bytes.len() && items.len() <= MAX_SAMPLES {
            if !fresh && at >= carried {
                fresh = true;
                carry.time = Some((pts, 0));
            }
            let frame = match unit.codec {
                Codec::Aac => AdtsFrame::read(&bytes[at..]),
                _ => Mp3Header::read(&bytes[at..]).map(AdtsFrame::mp3),
            };
            let Some(frame) = frame else {
                if bytes.len() - at < 7 {
                    break;
                }
                at += 1;
                continue;
            };
            if at + frame.size > bytes.len() {
                break;
            }
            let (start, samples) = carry.time.unwrap_or((pts, 0));
            let passed = samples * u64::from(TIMESCALE) / u64::from(frame.sample_rate);
            carry.time = Some((start, samples + u64::from(frame.samples)));
            if let Some(config) = frame.config()
                && self.audio.as_ref() != Some(&config)
            {
                items.push(Item::Config(config.clone()));
                self.audio = Some(config);
            }
            let data = bytes.slice(at + frame.header..at + frame.size);
            let dts = start + passed as i64;
            items.push(Item::Audio(Sample { data, dts, composition: 0, sync: true }));
            at += frame.size;
        }
        // Frame lengths have 13 bits.
        if bytes.len() - at < 1 << 13 {
            carry.bytes = bytes[at..].to_vec();
        }
    }
}

/// Start of an audio frame that continues in the next PES packet.
#[derive(Default)]
struct Carry {
    bytes: Vec<u8>,
    /// Time of the current PES packet, and number of samples since.
    time: Option<(i64, u64)>,
}

/// An audio frame including its header.
struct AdtsFrame {
    /// Profile, rate index and channels; `None` for MP3.
    setting: Option<(u8, u8, u8)>,
    sample_rate: u32,
    samples: u32,
    header: usize,
    size: usize,
}

impl AdtsFrame {
    /// Parses an ADTS header (ISO/IEC 14496-3, section 1.A.2.2).
    fn read(bytes: &[u8]) -> Option<Self> {
        let b: [u8; 7] = bytes.get(..7)?.try_into().ok()?;
        if b[0] != 0xff || b[1] & 0xf6 != 0xf0 {
            return None;
        }
        let (profile, rate) = (b[2] >> 6, b[2] >> 2 & 15);
        let channels = (b[2] & 1) << 2 | b[3] >> 6;
        let size = usize::from(b[3] & 3) << 11 | usize::from(b[4]) << 3 | usize::from(b[5] >> 5);
        let header = if b[1] & 1 == 0 { 9 } else { 7 };
        let sample_rate = *config::AAC_RATES.get(usize::from(rate))?;
        let setting = Some((profile, rate, channels));
        (size > header).then_some(Self { setting, sample_rate, samples: 1_024, header, size })
    }

    fn mp3(header: Mp3Header) -> Self {
        let Mp3Header { sample_rate, samples, size, .. } = header;
        Self { setting: None, sample_rate, samples, header: 0, size }
    }

    fn config(&self) -> Option<CodecConfig> {
        let Some((profile, rate, channels)) = self.setting else { return Some(CodecConfig::Mp3) };
        let record = config::audio_specific_config(profile, rate, channels);
        Audio::new(Codec::Aac, record).map(CodecConfig::Audio)
    }
}

const MASK: u64 = (1 << 33) - 1;
/// Limit of times: ten thousand years, reached only with invalid timestamps.
const MAX_TIME: i64 = 1 << 55;

/// Returns the shortest distance from `b` to `a`, both 33-bit times.
fn difference(a: u64, b: u64) -> i64 {
    ((a.wrapping_sub(b) << 31) as i64) >> 31
}

/// Payload of a PES packet.
struct PesUnit {
    codec: Codec,
    pts: u64,
    dts: u64,
    random_access: bool,
    data: Vec<u8>,
}

/// An elementary stream.
struct ElementaryStream {
    pid: u16,
    codec: Codec,
    /// Continuity counter of the newest packet.
    counter: Option<u8>,
    pes: Pes,
    units: Vec<PesUnit>,
}

/// A partially received PES packet.
#[derive(Default)]
struct Pes {
    bytes: Vec<u8>,
    random_access: bool,
}

/// Demultiplexer of packets.
#[derive(Default)]
struct Demux {
    tables: Tables,
    program: Option<Program>,
    /// The video and audio streams.
    streams: [Option<ElementaryStream>; 2],
    /// Units of video and audio streams before a change of the program.
    replaced: [Vec<PesUnit>; 2],
}

impl Demux {
    fn new(program: Option<Program>) -> Self {
        let mut demux = Self::default();
        program.into_iter().for_each(|program| demux.set_program(program));
        demux
    }

    fn packet(&mut self, packet: &[u8], deviations: &mut Deviations) -> Result<(), Error> {
        let Some(header) = PacketHeader::read(packet) else { return Ok(()) };
        if let Some(program) = self.tables.packet(&header) {
            self.set_program(program);
        }
        let mut streams = self.streams.iter_mut().flatten();
        let Some(stream) = streams.find(|stream| stream.pid == header.pid) else { return Ok(()) };
        if header.scrambled {
            return Err(Error::Encrypted);
        }
        if let Some(before) = stream.counter.replace(header.counter) {
            // Packets may be duplicated (section 2.4.3.3).
            if before == header.counter && stream.pes.bytes.ends_with(header.payload) {
                return Ok(());
            }
            if header.counter != (before + 1) & 15 && !header.discontinuity {
                deviations.note(Deviation::TsContinuity);
            }
        }
        if header.start {
            stream.finish();
            stream.pes.random_access = header.random_access;
        }
        // Packets before the first start of a PES packet are dropped.
        if header.start || !stream.pes.bytes.is_empty() {
            stream.pes.bytes.extend_from_slice(header.payload);
        }
        Ok(())
    }

    /// Switches to the streams of this program, and keeps the units of replaced streams.
    fn set_program(&mut self, program: Program) {
        for (index, found) in program.streams.iter().enumerate() {
            let stream = &mut self.streams[index];
            if stream.as_ref().map(|stream| (stream.pid, stream.codec)) != *found {
                let new = found.map(|(pid, codec)| ElementaryStream {
                    pid,
                    codec,
                    counter: None,
                    pes: Pes::default(),
                    units: Vec::new(),
                });
                let old = core::mem::replace(stream, new);
                self.replaced[index].extend(old.into_iter().flat_map(ElementaryStream::into_units));
            }
        }
        self.program = Some(program);
    }

    /// Returns the video units, then the audio units.
    fn into_units(self) -> impl Iterator<Item = PesUnit> {
        let streams = self.replaced.into_iter().zip(self.streams);
        streams.flat_map(|(mut units, stream)| {
            units.extend(stream.into_iter().flat_map(ElementaryStream::into_units));
            units
        })
    }
}

impl ElementaryStream {
    /// Parses the completed PES packet (section 2.4.3.6).
    fn finish(&mut self) {
        let Pes { mut bytes, random_access } = core::mem::take(&mut self.pes);
        let Some(head) = bytes.get(..9) else { return };
        if head[..3] != [0, 0, 1] {
            return;
        }
        let (length, flags) = (usize::from(u16::from_be_bytes([head[4], head[5]])), head[7]);
        let payload_at = 9 + usize::from(head[8]);
        if length > 0 {
            bytes.truncate(6 + length);
        }
        if payload_at > bytes.len() {
            return;
        }
        let pts = bytes.get(9..14).filter(|_| flags & 0x80 != 0 && payload_at >= 14).map(time);
        let dts = bytes.get(14..19).filter(|_| flags & 0x40 != 0 && payload_at >= 19).map(time);
        bytes.drain(..payload_at);
        if let Some(pts) = pts {
            let (codec, dts) = (self.codec, dts.unwrap_or(pts));
            self.units.push(PesUnit { codec, pts, dts, random_access, data: bytes });
        } else if let Some(unit) = self.units.last_mut() {
            unit.data.append(&mut bytes);
        }
    }

    fn into_units(mut self) -> Vec<PesUnit> {
        self.finish();
        self.units
    }
}

fn time(b: &[u8]) -> u64 {
    let [a, b, c, d, e] = [b[0], b[1], b[2], b[3], b[4]].map(u64::from);
    (a >> 1 & 7) << 30 | b << 22 | (c >> 1) << 15 | d << 7 | e >> 1
}

/// Returns the NAL units of a byte stream (H.264, annex B) without trailing zeros. Empty units are
/// skipped.
fn byte_stream(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = split_start_code(bytes).1;
    core::iter::from_fn(move || {
        loop {
            let (unit, behind) = split_start_code(rest?);
            rest = behind;
            let used = unit.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            if used > 0 {
                return Some(&unit[..used]);
            }
        }
    })
}

/// Returns the bytes before the next start code, and those after it if there is one.
fn split_start_code(bytes: &[u8]) -> (&[u8], Option<&[u8]>) {
    match bytes.windows(3).position(|window| window == [0, 0, 1]) {
        Some(at) => (&bytes[..at], Some(&bytes[at + 3..])),
        None => (bytes, None),
    }
}
