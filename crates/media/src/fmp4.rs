//! Fragmented MP4 for HLS: initialisation segments and fragments according to CMAF.
//!
//! ISO/IEC 14496-12 (boxes: section 8), 14496-15 (avcC, hvcC), 14496-14 and 14496-1 (esds), and the
//! AV1 and Opus bindings. An initialisation segment has at most one video and one audio track. A
//! fragment is one moof, with a traf per track that has samples, and one mdat. Payload bytes are
//! copied once, into the fragment.
//!
//! The writer needs about a dozen boxes, where general-purpose crates support over a hundred. The
//! reader, [`read`], must tolerate untrusted input.

use bytes::{BufMut, Bytes, BytesMut};

use crate::codec::Codec;

pub(crate) mod bits;
pub mod config;
pub mod read;

use config::{Audio, Video};

/// Timescale of video: FLV's milliseconds, so that nothing is rounded.
pub const VIDEO_TIMESCALE: u32 = 1_000;
/// Track ID of video.
pub const VIDEO_TRACK: u32 = 1;
/// Track ID of audio.
pub const AUDIO_TRACK: u32 = 2;

/// An access unit of a track.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Codec data in the format shared by FLV and MP4: NAL units with length prefixes, or a raw AAC
    /// frame.
    pub data: Bytes,
    /// Decoding time, in units of the track's timescale.
    pub dts: i64,
    /// Offset from decoding to presentation time, in the same units.
    pub composition: i32,
    /// Whether decoding can start at this sample.
    pub sync: bool,
}

/// Samples of one track in a fragment.
#[derive(Clone, Copy, Debug)]
pub struct SampleRun<'a> {
    /// [`VIDEO_TRACK`] or [`AUDIO_TRACK`].
    pub track: u32,
    /// Samples with non-decreasing times.
    pub samples: &'a [Sample],
    /// End of the last sample.
    pub end: i64,
}

/// Returns the initialisation segment: ftyp and moov.
pub fn init(video: Option<&Video>, audio: Option<&Audio>) -> Bytes {
    let mut out = BytesMut::with_capacity(1_024);
    atom(&mut out, b"ftyp", |out| {
        // A CMAF track file ("cmfc") has one track (ISO/IEC 23000-19, section 7.3.1).
        let brands: &[u8] = match (video, audio) {
            (Some(_), Some(_)) => b"iso6\0\0\0\x01iso6mp41",
            _ => b"iso6\0\0\0\x01iso6cmfcmp41",
        };
        out.put_slice(brands);
    });
    atom(&mut out, b"moov", |out| {
        full_atom(out, b"mvhd", 0, 0, |out| {
            // Creation and modification time, timescale, duration; rate 1, volume 1.
            put_u32s(out, &[0, 0, VIDEO_TIMESCALE, 0, 0x0001_0000]);
            out.put_u16(0x0100);
            out.put_bytes(0, 10);
            put_matrix(out);
            out.put_bytes(0, 24);
            out.put_u32(AUDIO_TRACK + 1);
        });
        if let Some(video) = video {
            let size = (video.width, video.height);
            track(out, VIDEO_TRACK, VIDEO_TIMESCALE, Some(size), |out| video_entry(out, video));
        }
        if let Some(audio) = audio {
            track(out, AUDIO_TRACK, audio.sample_rate, None, |out| audio_entry(out, audio));
        }
        atom(out, b"mvex", |out| {
            let tracks = [video.map(|_| VIDEO_TRACK), audio.map(|_| AUDIO_TRACK)];
            for id in tracks.into_iter().flatten() {
                let flags = if id == AUDIO_TRACK { SYNC } else { NOT_SYNC };
                full_atom(out, b"trex", 0, 0, |out| put_u32s(out, &[id, 1, 0, 0, flags]));
            }
        });
    });
    out.freeze()
}

/// sample_flags (section 8.8.3.1): independent of other samples.
const SYNC: u32 = 0x0200_0000;
/// sample_flags: depends on other samples, not a sync sample.
const NOT_SYNC: u32 = 0x0101_0000;

/// Returns a fragment, moof and mdat, of these runs. Runs without samples are omitted. `sequence`
/// is the fragment's number. The samples must total less than 4 GiB.
pub fn fragment(sequence: u32, runs: &[SampleRun<'_>]) -> Bytes {
    let runs = || runs.iter().filter(|run| !run.samples.is_empty());
    let count: usize = runs().map(|run| run.samples.len()).sum();
    let payload: usize = runs().flat_map(|run| run.samples).map(|s| s.data.len()).sum();
    let mut out = BytesMut::with_capacity(256 + 16 * count + payload);
    let mut offsets = Vec::with_capacity(2);
    atom(&mut out, b"moof", |out| {
        full_atom(out, b"mfhd", 0, 0, |out| out.put_u32(sequence));
        for run in runs() {
            atom(out, b"traf", |out| put_traf(out, run, &mut offsets));
        }
    });
    atom(&mut out, b"mdat", |out| {
        for (run, at) in runs().zip(&offsets) {
            let here = out.len() as u32;
            out[*at..*at + 4].copy_from_slice(&here.to_be_bytes());
            run.samples.iter().for_each(|sample| out.put_slice(&sample.data));
        }
    });
    out.freeze()
}

fn put_traf(out: &mut BytesMut, run: &SampleRun<'_>, offsets: &mut Vec<usize>) {
    // default-base-is-moof
    full_atom(out, b"tfhd", 0, 0x02_0000, |out| out.put_u32(run.track));
    let start = run.samples.first().map_or(0, |sample| sample.dts);
    full_atom(out, b"tfdt", 1, 0, |out| out.put_i64(start));
    let video = run.track == VIDEO_TRACK;
    // Data offset; duration and size of each sample; for video also flags and composition offset.
    let flags = if video { 0x0f01 } else { 0x0301 };
    full_atom(out, b"trun", 1, flags, |out| {
        out.put_u32(run.samples.len() as u32);
        offsets.push(out.len());
        out.put_u32(0);
        let ends = run.samples.iter().skip(1).map(|sample| sample.dts).chain([run.end]);
        for (sample, end) in run.samples.iter().zip(ends) {
            out.put_u32(u32::try_from(end - sample.dts).unwrap_or(0));
            out.put_u32(sample.data.len() as u32);
            if video {
                out.put_u32(if sample.sync { SYNC } else { NOT_SYNC });
                out.put_i32(sample.composition);
            }
        }
    });
}

/// Writes a box with the content that `body` writes, and then fills in its size.
fn atom(out: &mut BytesMut, name: &[u8; 4], body: impl FnOnce(&mut BytesMut)) {
    let at = out.len();
    out.put_u32(0);
    out.put_slice(name);
    body(out);
    let size = (out.len() - at) as u32;
    out[at..at + 4].copy_from_slice(&size.to_be_bytes());
}

fn full_atom(
    out: &mut BytesMut,
    name: &[u8; 4],
    version: u8,
    flags: u32,
    body: impl FnOnce(&mut BytesMut),
) {
    atom(out, name, |out| {
        out.put_u32(u32::from(version) << 24 | flags);
        body(out);
    });
}

fn put_u32s(out: &mut BytesMut, values: &[u32]) {
    values.iter().for_each(|value| out.put_u32(*value));
}

fn put_matrix(out: &mut BytesMut) {
    put_u32s(out, &[0x0001_0000, 0, 0, 0, 0x0001_0000, 0, 0, 0, 0x4000_0000]);
}

/// Writes a trak box. Video tracks have a `size`.
fn track(
    out: &mut BytesMut,
    id: u32,
    timescale: u32,
    size: Option<(u16, u16)>,
    entry: impl FnOnce(&mut BytesMut),
) {
    atom(out, b"trak", |out| {
        // Enabled, in the movie.
        full_atom(out, b"tkhd", 0, 3, |out| {
            // Times, ID, reserved, duration, reserved; layer and group; volume.
            put_u32s(out, &[0, 0, id, 0, 0, 0, 0, 0]);
            out.put_u16(if size.is_some() { 0 } else { 0x0100 });
            out.put_u16(0);
            put_matrix(out);
            let (width, height) = size.unwrap_or_default();
            put_u32s(out, &[u32::from(width) << 16, u32::from(height) << 16]);
        });
        atom(out, b"mdia", |out| {
            full_atom(out, b"mdhd", 0, 0, |out| {
                put_u32s(out, &[0, 0, timescale, 0]);
                // Language "und".
                put_u32s(out, &[0x55c4_0000]);
            });
            full_atom(out, b"hdlr", 0, 0, |out| {
                out.put_u32(0);
                out.put_slice(if size.is_some() { b"vide" } else { b"soun" });
                out.put_bytes(0, 12);
                out.put_u8(0);
            });
            atom(out, b"minf", |out| {
                match size {
                    Some(_) => full_atom(out, b"vmhd", 0, 1, |out| put_u32s(out, &[0, 0])),
                    None => full_atom(out, b"smhd", 0, 0, |out| out.put_u32(0)),
                }
                atom(out, b"dinf", |out| {
                    full_atom(out, b"dref", 0, 0, |out| {
                        out.put_u32(1);
                        // The media is in this file.
                        full_atom(out, b"url ", 0, 1, |_| {});
                    });
                });
                atom(out, b"stbl", |out| {
                    full_atom(out, b"stsd", 0, 0, |out| {
                        out.put_u32(1);
                        entry(out);
                    });
                    full_atom(out, b"stts", 0, 0, |out| out.put_u32(0));
                    full_atom(out, b"stsc", 0, 0, |out| out.put_u32(0));
                    full_atom(out, b"stsz", 0, 0, |out| put_u32s(out, &[0, 0]));
                    full_atom(out, b"stco", 0, 0, |out| out.put_u32(0));
                });
            });
        });
    });
}

fn video_entry(out: &mut BytesMut, video: &Video) {
    let (name, record) = match video.codec {
        Codec::Hevc => (b"hvc1", b"hvcC"),
        Codec::Av1 => (b"av01", b"av1C"),
        _ => (b"avc1", b"avcC"),
    };
    atom(out, name, |out| {
        out.put_bytes(0, 6);
        // data_reference_index, then 16 reserved bytes.
        out.put_u16(1);
        out.put_bytes(0, 16);
        out.put_u16(video.width);
        out.put_u16(video.height);
        // 72 dpi, one frame per sample, no compressor name, depth 24.
        put_u32s(out, &[0x0048_0000, 0x0048_0000, 0]);
        out.put_u16(1);
        out.put_bytes(0, 32);
        out.put_u16(0x0018);
        out.put_i16(-1);
        atom(out, record, |out| out.put_slice(&video.record));
    });
}

fn audio_entry(out: &mut BytesMut, audio: &Audio) {
    let name = if audio.codec == Codec::Opus { b"Opus" } else { b"mp4a" };
    atom(out, name, |out| {
        out.put_bytes(0, 6);
        out.put_u16(1);
        out.put_bytes(0, 8);
        out.put_u16(u16::from(audio.channels));
        out.put_u16(16);
        out.put_u32(0);
        // 16.16 format. Larger rates are only in the codec's own record.
        out.put_u32(u16::try_from(audio.sample_rate).map_or(0, |rate| u32::from(rate) << 16));
        match audio.codec {
            Codec::Opus => atom(out, b"dOps", |out| put_opus(out, &audio.record)),
            _ => full_atom(out, b"esds", 0, 0, |out| put_esds(out, audio)),
        }
    });
}

/// Writes OpusSpecificBox: OpusHead without its magic, version 0, integers in network order.
fn put_opus(out: &mut BytesMut, head: &[u8]) {
    out.put_slice(&[0, head[9], head[11], head[10], head[15], head[14], head[13], head[12]]);
    out.put_slice(&[head[17], head[16]]);
    out.put_slice(&head[18..]);
}

/// Writes ES_Descriptor with DecoderConfigDescriptor and SLConfigDescriptor (ISO/IEC 14496-1,
/// section 7.2.6). Lengths take one byte: an AudioSpecificConfig is short, and a longer one is
/// truncated.
fn put_esds(out: &mut BytesMut, audio: &Audio) {
    let specific = &audio.record[..audio.record.len().min(96)];
    let specific_len = if specific.is_empty() { 0 } else { 2 + specific.len() };
    // 0x40: MPEG-4 audio; 0x6b: MPEG-1 audio. Stream type 5 is audio.
    let object_type = if audio.codec == Codec::Mp3 { 0x6b } else { 0x40 };
    out.put_slice(&[3, (3 + 2 + 13 + specific_len + 3) as u8, 0, AUDIO_TRACK as u8, 0]);
    out.put_slice(&[4, (13 + specific_len) as u8, object_type, 0x15]);
    // Buffer size and bit rates: unknown.
    out.put_bytes(0, 11);
    if !specific.is_empty() {
        out.put_slice(&[5, specific.len() as u8]);
        out.put_slice(specific);
    }
    out.put_slice(&[6, 1, 2]);
}

#[cfg(test)]
pub(crate) mod tests;
