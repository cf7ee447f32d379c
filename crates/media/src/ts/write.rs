//! Writer of transport streams: tables, followed by access units in decoding order, one per PES
//! packet.
//!
//! Video is written as a byte stream (H.264 and H.265, annex B) with access unit delimiters, and
//! parameter sets before each key frame. AAC frames get ADTS headers. Payload bytes are copied
//! once, into their packets.

use bytes::{BufMut, Bytes, BytesMut};

use super::{PACKET_LEN, PAT_PID, SYNC_BYTE, TIMESCALE, crc_32, stream_type};
use crate::codec::Codec;
use crate::fmp4::config::{Audio, Video, nal};
use crate::fmp4::{Sample, VIDEO_TIMESCALE};

const PMT_PID: u16 = 0x1000;
const VIDEO_PID: u16 = 0x0100;
const AUDIO_PID: u16 = 0x0101;
/// Offset of all times, which keeps clock references before the first access unit positive.
const OFFSET: i64 = TIMESCALE as i64;
/// Decoder buffering: time between clock reference and decoding of an access unit.
const DELAY: i64 = TIMESCALE as i64 / 2;
/// PTS, DTS and PCR base have 33 bits.
const MASK: i64 = (1 << 33) - 1;
/// discontinuity_indicator of an adaptation field.
const DISCONTINUITY: u8 = 0x80;
const START_CODE: &[u8] = &[0, 0, 0, 1];

/// Whether a transport stream can carry this video.
pub fn carries_video(video: &Video) -> bool {
    matches!(video.codec, Codec::Avc | Codec::Hevc)
}

/// Whether a transport stream can carry this audio.
pub fn carries_audio(audio: &Audio) -> bool {
    audio.codec == Codec::Mp3 || audio.codec == Codec::Aac && audio.adts().is_some()
}

/// Writer of a segment, part by part. Segments are independent: continuity counters restart, as the
/// first packet of each PID declares (discontinuity_indicator, section 2.4.3.5).
#[derive(Clone, Debug, Default)]
pub struct SegmentWriter {
    /// Next counters of PAT, PMT, video and audio; `None` before their first packets.
    counters: [Option<u8>; 4],
}

/// Elementary streams of a program, with their samples.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// H.264 or H.265, and samples in [`VIDEO_TIMESCALE`].
    pub video: Option<(&'a Video, &'a [Sample])>,
    /// AAC or MP3, and samples in its sample rate.
    pub audio: Option<(&'a Audio, &'a [Sample])>,
}

impl SegmentWriter {
    /// Writes the tables and these samples. Samples without a transport stream mapping are dropped.
    pub fn write(&mut self, program: Program<'_>) -> Bytes {
        let video = program.video.filter(|(video, _)| carries_video(video));
        let audio = program.audio.filter(|(audio, _)| carries_audio(audio));
        let samples =
            |stream: &[Sample]| stream.iter().map(|s| s.data.len() + 2 * PACKET_LEN).sum();
        let payload: usize = video.map_or(0, |v| samples(v.1)) + audio.map_or(0, |a| samples(a.1));
        let mut out = BytesMut::with_capacity(4 * PACKET_LEN + payload / 184 * PACKET_LEN);
        self.tables(&mut out, video.map(|v| v.0), audio.map(|a| a.0));
        let mut frames = video.map_or(&[][..], |v| v.1).iter().peekable();
        let mut audio_frames = audio.map_or(&[][..], |a| a.1).iter().peekable();
        let video_time = |sample: &Sample| ticks(sample.dts, VIDEO_TIMESCALE);
        let audio_rate = audio.map_or(1, |a| a.0.sample_rate);
        let audio_time = |sample: &Sample| ticks(sample.dts, audio_rate);
        loop {
            let video_first = match (frames.peek(), audio_frames.peek()) {
                (Some(frame), Some(audio_frame)) => video_time(frame) <= audio_time(audio_frame),
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (None, None) => return out.freeze(),
            };
            if video_first {
                if let (Some(sample), Some((video, _))) = (frames.next(), video) {
                    self.video(&mut out, video, sample, video_time(sample));
                }
            } else if let (Some(sample), Some((audio, _))) = (audio_frames.next(), audio) {
                self.audio(&mut out, audio, sample, audio_time(sample), video.is_none());
            }
        }
    }

    fn tables(&mut self, out: &mut BytesMut, video: Option<&Video>, audio: Option<&Audio>) {
        // Transport stream 1, program 1. The version is derived from the content, so that a new PMT
        // has a new version.
        let mut pat = vec![0, 1, 0xc1, 0, 0, 0, 1];
        pat.put_u16(0xe000 | PMT_PID);
        self.table(out, 0, &pat);
        let pcr_pid = if video.is_some() { VIDEO_PID } else { AUDIO_PID };
        let video = video.map(|video| match video.codec {
            Codec::Hevc => (stream_type::HEVC, VIDEO_PID),
            _ => (stream_type::AVC, VIDEO_PID),
        });
        let audio = audio.map(|audio| match (audio.codec, audio.sample_rate) {
            (Codec::Mp3, 32_000..) => (stream_type::MPEG1_AUDIO, AUDIO_PID),
            (Codec::Mp3, _) => (stream_type::MPEG2_AUDIO, AUDIO_PID),
            _ => (stream_type::ADTS, AUDIO_PID),
        });
        let version = [video.map(|v| v.0), audio.map(|a| a.0)]
            .into_iter()
            .fold(0, |version, kind| version * 4 + kind.map_or(0, version_digit));
        let mut pmt = vec![0, 1, 0xc1 | version << 1, 0, 0];
        pmt.put_u16(0xe000 | pcr_pid);
        pmt.put_u16(0xf000);
        for (kind, pid) in [video, audio].into_iter().flatten() {
            pmt.put_u8(kind);
            pmt.put_u16(0xe000 | pid);
            pmt.put_u16(0xf000);
        }
        self.table(out, 2, &pmt);
    }

    /// Writes a section of table 0 or 2 in a packet of its own.
    fn table(&mut self, out: &mut BytesMut, table: u8, body: &[u8]) {
        let (pid, counter) = if table == 0 { (PAT_PID, 0) } else { (PMT_PID, 1) };
        let mut section = vec![table];
        section.put_u16(0xb000 | (body.len() + 4) as u16);
        section.put_slice(body);
        let crc = crc_32(&section);
        section.put_u32(crc);
        let begins = self.counters[counter].is_none();
        self.header(out, pid, counter, true, begins);
        let adaptation: &[u8] = if begins { &[1, DISCONTINUITY] } else { &[] };
        out.put_slice(adaptation);
        out.put_u8(0);
        out.put_slice(&section);
        out.put_bytes(0xff, PACKET_LEN - 5 - adaptation.len() - section.len());
    }

    fn header(
        &mut self,
        out: &mut BytesMut,
        pid: u16,
        counter: usize,
        start: bool,
        adaptation: bool,
    ) {
        let counter = self.counters[counter].get_or_insert(0);
        out.put_u8(SYNC_BYTE);
        out.put_u16(u16::from(start) << 14 | pid);
        out.put_u8(u8::from(adaptation) << 5 | 0x10 | *counter);
        *counter = (*counter + 1) & 15;
    }

    fn video(&mut self, out: &mut BytesMut, video: &Video, sample: &Sample, dts: i64) {
        let pts = dts + ticks(i64::from(sample.composition), VIDEO_TIMESCALE);
        // A length of 0 is allowed for video: the PES packet ends where the next one starts.
        let head = pes_header(0xe0, 0, pts, Some(dts));
        let hevc = video.codec == Codec::Hevc;
        let delimiter: &[u8] =
            if hevc { &[nal::HEVC_AUD << 1, 1, 0x50] } else { &[nal::AVC_AUD, 0xf0] };
        let sets = if sample.sync { &video.parameter_sets[..] } else { &[] };
        let units = sets.iter().map(|set| &set[..]).chain(video.nal_units(&sample.data));
        let units = units.filter(|unit| match unit.first() {
            Some(first) if hevc => first >> 1 & 0x3f != nal::HEVC_AUD,
            Some(first) => first & 0x1f != nal::AVC_AUD,
            None => false,
        });
        let pieces = [&head[..], START_CODE, delimiter].into_iter();
        let pieces = pieces.chain(units.flat_map(|unit| [START_CODE, unit]));
        self.packets(out, VIDEO_PID, 2, pieces, Some(dts), sample.sync);
    }

    fn audio(&mut self, out: &mut BytesMut, audio: &Audio, sample: &Sample, pts: i64, pcr: bool) {
        let mut adts = Vec::new();
        if let Some([profile, channels]) = audio.adts().filter(|_| audio.codec == Codec::Aac) {
            // No CRC; buffer fullness 0x7ff: variable rate; one raw data block.
            let size = (sample.data.len() + 7).min(0x1fff);
            adts = vec![0xff, 0xf1, profile, channels | (size >> 11) as u8];
            adts.extend([(size >> 3) as u8, (size << 5) as u8 | 0x1f, 0xfc]);
        }
        let size = adts.len() + sample.data.len();
        let head = pes_header(0xc0, size, pts, None);
        let pieces = [&head[..], &adts, &sample.data].into_iter();
        self.packets(out, AUDIO_PID, 3, pieces, pcr.then_some(pts), true);
    }

    /// Writes a PES packet, the concatenation of `pieces`, in transport packets. `clock`, a
    /// decoding time, adds a clock reference to the first packet.
    fn packets<'a>(
        &mut self,
        out: &mut BytesMut,
        pid: u16,
        counter: usize,
        mut pieces: impl Iterator<Item = &'a [u8]> + Clone,
        clock: Option<i64>,
        random_access: bool,
    ) {
        let mut left: usize = pieces.clone().map(<[u8]>::len).sum();
        let mut piece: &[u8] = &[];
        let mut first = true;
        while left > 0 {
            // adaptation_field() after its length; empty if there is none.
            let mut adaptation = Vec::new();
            if first && (clock.is_some() || random_access) {
                let begins = self.counters[counter].is_none();
                let flags = u8::from(random_access) << 6 | u8::from(clock.is_some()) << 4;
                let flags = flags | if begins { DISCONTINUITY } else { 0 };
                adaptation.push(flags);
                if let Some(dts) = clock {
                    let base = (dts + OFFSET - DELAY) & MASK;
                    adaptation.put_u32((base >> 1) as u32);
                    adaptation.put_u16((base as u16 & 1) << 15 | 0x7e00);
                }
            }
            let mut has_adaptation = !adaptation.is_empty();
            let room = PACKET_LEN - 4 - if has_adaptation { 1 + adaptation.len() } else { 0 };
            let take = room.min(left);
            let mut stuffing = room - take;
            if stuffing > 0 && !has_adaptation {
                has_adaptation = true;
                stuffing -= 1;
                if stuffing > 0 {
                    adaptation.push(0);
                    stuffing -= 1;
                }
            }
            self.header(out, pid, counter, first, has_adaptation);
            if has_adaptation {
                out.put_u8((adaptation.len() + stuffing) as u8);
                out.put_slice(&adaptation);
                out.put_bytes(0xff, stuffing);
            }
            let mut missing = take;
            while missing > 0 {
                if piece.is_empty() {
                    piece = pieces.next().expect("the pieces have `left` bytes together");
                    continue;
                }
                let (now, later) = piece.split_at(missing.min(piece.len()));
                out.put_slice(now);
                missing -= now.len();
                piece = later;
            }
            left -= take;
            first = false;
        }
    }
}

/// Returns the digit of a PMT's version for a stream type. 0 means no stream.
fn version_digit(kind: u8) -> u8 {
    match kind {
        stream_type::AVC | stream_type::ADTS => 1,
        stream_type::HEVC | stream_type::MPEG1_AUDIO => 2,
        _ => 3,
    }
}

/// Converts a time to ticks of 90 kHz, rounded.
fn ticks(time: i64, timescale: u32) -> i64 {
    let scale = i128::from(timescale);
    let ticks = (i128::from(time) * i128::from(TIMESCALE) + scale / 2).div_euclid(scale);
    ticks as i64
}

/// Returns the header of a PES packet with a body of `size` bytes (0: unspecified).
fn pes_header(stream: u8, size: usize, pts: i64, dts: Option<i64>) -> Vec<u8> {
    let dts = dts.filter(|dts| *dts != pts);
    let times = if dts.is_some() { 10 } else { 5 };
    let length = if size == 0 { 0 } else { u16::try_from(3 + times + size).unwrap_or(0) };
    let mut out = vec![0, 0, 1, stream];
    out.put_u16(length);
    // Aligned data; flags of the timestamps present; their length in bytes.
    out.extend([0x84, if dts.is_some() { 0xc0 } else { 0x80 }, times as u8]);
    put_time(&mut out, if dts.is_some() { 3 } else { 2 }, pts);
    if let Some(dts) = dts {
        put_time(&mut out, 1, dts);
    }
    out
}

/// Writes a 33-bit time in three parts, with marker bits in between.
fn put_time(out: &mut Vec<u8>, prefix: u8, time: i64) {
    let time = (time + OFFSET) & MASK;
    out.push(prefix << 4 | ((time >> 30) as u8 & 7) << 1 | 1);
    out.put_u16((time >> 14) as u16 | 1);
    out.put_u16((time << 1) as u16 | 1);
}
