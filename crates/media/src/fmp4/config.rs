//! Codec configuration in FLV sequence headers, MP4 sample entries and HLS playlists.
//!
//! Records: ISO/IEC 14496-15, 5.3.3 (avcC) and 8.3.3 (hvcC); AV1 Codec ISO Media File Format
//! Binding, 2.3 (av1C); ISO/IEC 14496-3, 1.6.2 (AudioSpecificConfig); RFC 7845, section 5.1
//! (OpusHead). The `codecs` strings follow RFC 6381, annex E of ISO/IEC 14496-15 and section 5 of
//! the AV1 binding.

use core::fmt::Write as _;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::bits::{self, Bits, Sps};
use crate::codec::Codec;

/// Maximum size of a record, in bytes. Records are stored, and written with each initialisation
/// segment.
const MAX_RECORD: usize = 1 << 16;
/// Maximum number of parameter sets in a record, to bound memory.
const MAX_PARAMETER_SETS: usize = 64;

/// Configuration of a video track.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Video {
    /// [`Codec::Avc`], [`Codec::Hevc`] or [`Codec::Av1`].
    pub codec: Codec,
    /// Content of avcC, hvcC or av1C.
    pub record: Bytes,
    /// Width in pixels; 0 if unknown.
    pub width: u16,
    /// Height in pixels; 0 if unknown.
    pub height: u16,
    /// The RFC 6381 `codecs` string.
    pub codecs: String,
    /// Size of the length prefix of NAL units: 1, 2 or 4 bytes. 4 for AV1, which has none.
    pub length_size: usize,
    /// Parameter set NAL units in the order of the record; empty for AV1.
    pub parameter_sets: Vec<Bytes>,
}

impl Video {
    /// Parses a record. `None` if it is invalid or longer than 64 KiB, or if the codec is not one
    /// of these three.
    pub fn new(codec: Codec, record: Bytes) -> Option<Self> {
        match codec {
            _ if record.len() > MAX_RECORD => None,
            Codec::Avc => Self::avc(record),
            Codec::Hevc => Self::hevc(record),
            Codec::Av1 => Self::av1(record),
            _ => None,
        }
    }

    fn avc(record: Bytes) -> Option<Self> {
        let mut rest = record.clone();
        if rest.try_get_u8().ok()? != 1 || rest.len() < 5 {
            return None;
        }
        let profile = rest.split_to(3);
        let length_size = length_size(rest.get_u8())?;
        let sps_count = usize::from(rest.get_u8() & 0x1f);
        let mut parameter_sets = nal_units(&mut rest, sps_count)?;
        let sps = bits::h264_sps(parameter_sets.first()?)?;
        let pps_count = usize::from(rest.try_get_u8().ok()?);
        parameter_sets.extend(nal_units(&mut rest, pps_count)?);
        Some(Self {
            codec: Codec::Avc,
            codecs: format!("avc1.{:02x}{:02x}{:02x}", profile[0], profile[1], profile[2]),
            record,
            width: u16::try_from(sps.width).ok()?,
            height: u16::try_from(sps.height).ok()?,
            length_size,
            parameter_sets,
        })
    }

    fn hevc(record: Bytes) -> Option<Self> {
        let head: [u8; 23] = record.get(..23)?.try_into().ok()?;
        let length_size = length_size(head[21])?;
        let mut rest = record.slice(23..);
        let mut parameter_sets = Vec::new();
        let mut sps = None;
        for _ in 0..head[22] {
            let kind = rest.try_get_u8().ok()? & 0x3f;
            let count = usize::from(rest.try_get_u16().ok()?);
            let units = nal_units(&mut rest, count)?;
            if kind == nal::HEVC_SPS && sps.is_none() {
                sps = bits::h265_sps(units.first()?);
            }
            parameter_sets.extend(units);
            if parameter_sets.len() > MAX_PARAMETER_SETS {
                return None;
            }
        }
        let sps = sps?;
        Some(Self {
            codec: Codec::Hevc,
            codecs: hevc_codecs(&head),
            record,
            width: u16::try_from(sps.width).ok()?,
            height: u16::try_from(sps.height).ok()?,
            length_size,
            parameter_sets,
        })
    }

    fn av1(record: Bytes) -> Option<Self> {
        let head: [u8; 4] = record.get(..4)?.try_into().ok()?;
        // Marker and version.
        if head[0] != 0x81 {
            return None;
        }
        let (width, height) = bits::av1_size(&record[4..]).unwrap_or((0, 0));
        let tier = if head[2] & 0x80 != 0 { 'H' } else { 'M' };
        let depth = match (head[2] >> 6 & 1, head[2] >> 5 & 1) {
            (0, _) => 8,
            (_, 0) => 10,
            _ => 12,
        };
        Some(Self {
            codec: Codec::Av1,
            codecs: format!("av01.{}.{:02}{tier}.{depth:02}", head[1] >> 5, head[1] & 0x1f),
            record,
            width: u16::try_from(width).ok()?,
            height: u16::try_from(height).ok()?,
            length_size: 4,
            parameter_sets: Vec::new(),
        })
    }

    /// Builds an avcC record with 4-byte lengths from H.264 parameter sets.
    pub fn from_h264(sps: &Bytes, pps: &[Bytes]) -> Option<Self> {
        Self::from_h264_sets(core::slice::from_ref(sps), pps)
    }

    /// Like [`Video::from_h264`], for several sequence parameter sets. The first determines profile
    /// and size.
    pub fn from_h264_sets(sps: &[Bytes], pps: &[Bytes]) -> Option<Self> {
        let first = sps.first()?;
        let profile = first.get(1..4)?;
        let parsed = bits::h264_sps(first)?;
        let mut record = BytesMut::new();
        record.put_u8(1);
        record.put_slice(profile);
        let count = u8::try_from(sps.len()).ok().filter(|count| *count < 0x20)?;
        record.put_slice(&[0xff, 0xe0 | count]);
        put_nal_units(&mut record, sps)?;
        record.put_u8(u8::try_from(pps.len()).ok()?);
        put_nal_units(&mut record, pps)?;
        if ![66, 77, 88].contains(&profile[0]) {
            record.put_slice(&[
                0xfc | parsed.chroma_format,
                0xf8 | (parsed.bit_depth_luma - 8),
                0xf8 | (parsed.bit_depth_chroma - 8),
                0,
            ]);
        }
        Self::avc(record.freeze())
    }

    /// Builds an hvcC record with 4-byte lengths from H.265 parameter sets.
    pub fn from_h265(vps: &Bytes, sps: &Bytes, pps: &[Bytes]) -> Option<Self> {
        let [vps, sps] = [vps, sps].map(core::slice::from_ref);
        Self::from_h265_sets(vps, sps, pps)
    }

    /// Like [`Video::from_h265`], for several parameter sets of each type. The first sequence
    /// parameter set determines profile and size.
    pub fn from_h265_sets(vps: &[Bytes], sps: &[Bytes], pps: &[Bytes]) -> Option<Self> {
        let parsed = bits::h265_sps(sps.first()?)?;
        let Sps { chroma_format, bit_depth_luma, bit_depth_chroma, .. } = parsed;
        let mut record = BytesMut::new();
        record.put_u8(1);
        record.put_slice(&parsed.profile_tier_level);
        // Segmentation, parallelism and frame rate are unspecified.
        record.put_slice(&[0xf0, 0, 0xfc, 0xfc | chroma_format]);
        record.put_slice(&[0xf8 | (bit_depth_luma - 8), 0xf8 | (bit_depth_chroma - 8), 0, 0]);
        let nested = u8::from(parsed.temporal_id_nested);
        record.put_slice(&[(parsed.temporal_layers & 7) << 3 | nested << 2 | 3, 3]);
        let sets = [(nal::HEVC_VPS, vps), (nal::HEVC_SPS, sps), (nal::HEVC_PPS, pps)];
        for (kind, units) in sets {
            record.put_u8(0x80 | kind);
            record.put_u16(u16::try_from(units.len()).ok()?);
            put_nal_units(&mut record, units)?;
        }
        Self::hevc(record.freeze())
    }

    /// Returns the NAL units of a sample, without their lengths. A truncated last unit is omitted.
    pub fn nal_units<'a>(
        &self,
        sample: &'a [u8],
    ) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        let length_size = self.length_size;
        let mut rest = sample;
        core::iter::from_fn(move || {
            let (length, behind) = rest.split_at_checked(length_size)?;
            let length = length.iter().fold(0, |value, byte| value << 8 | usize::from(*byte));
            let (unit, behind) = behind.split_at_checked(length)?;
            rest = behind;
            Some(unit)
        })
    }
}

/// NAL unit types (H.264, table 7-1; H.265, table 7-1).
pub(crate) mod nal {
    pub(crate) const AVC_IDR: u8 = 5;
    pub(crate) const AVC_SPS: u8 = 7;
    pub(crate) const AVC_PPS: u8 = 8;
    pub(crate) const AVC_AUD: u8 = 9;
    pub(crate) const HEVC_VPS: u8 = 32;
    pub(crate) const HEVC_SPS: u8 = 33;
    pub(crate) const HEVC_PPS: u8 = 34;
    pub(crate) const HEVC_AUD: u8 = 35;
    /// BLA_W_LP to RSV_IRAP_VCL23: random access points.
    pub(crate) const HEVC_IRAP: core::ops::RangeInclusive<u8> = 16..=23;
}

fn length_size(byte: u8) -> Option<usize> {
    Some(usize::from(byte & 3) + 1).filter(|size| *size != 3)
}

fn nal_units(rest: &mut Bytes, count: usize) -> Option<Vec<Bytes>> {
    let mut units = Vec::new();
    for _ in 0..count {
        let length = usize::from(rest.try_get_u16().ok()?);
        if length == 0 || length > rest.len() || units.len() == MAX_PARAMETER_SETS {
            return None;
        }
        units.push(rest.split_to(length));
    }
    Some(units)
}

fn put_nal_units(record: &mut BytesMut, units: &[Bytes]) -> Option<()> {
    for unit in units {
        record.put_u16(u16::try_from(unit.len()).ok()?);
        record.put_slice(unit);
    }
    Some(())
}

/// Returns the `codecs` string (ISO/IEC 14496-15, annex E.3): profile, compatibility flags in
/// reverse bit order, tier and level, and constraint flags without trailing zero bytes.
fn hevc_codecs(record: &[u8; 23]) -> String {
    let mut codecs = String::from("hvc1.");
    if let space @ 1..=3 = record[1] >> 6 {
        codecs.push(char::from(b'A' + space - 1));
    }
    let tier = if record[1] & 0x20 != 0 { 'H' } else { 'L' };
    let flags = u32::from_be_bytes([record[2], record[3], record[4], record[5]]).reverse_bits();
    let _ = write!(codecs, "{}.{flags:x}.{tier}{}", record[1] & 0x1f, record[12]);
    let constraints = &record[6..12];
    let used = constraints.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    for byte in &constraints[..used] {
        let _ = write!(codecs, ".{byte:X}");
    }
    codecs
}

/// Configuration of an audio track.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Audio {
    /// [`Codec::Aac`], [`Codec::Opus`] or [`Codec::Mp3`].
    pub codec: Codec,
    /// AAC: AudioSpecificConfig. Opus: OpusHead including its magic. MP3: empty.
    pub record: Bytes,
    /// Samples per second and timescale of the track: 1 to 96,000.
    pub sample_rate: u32,
    /// Number of channels.
    pub channels: u8,
    /// Samples per frame at [`Audio::sample_rate`]. The number varies for Opus; see
    /// [`Audio::samples`].
    pub frame_samples: u32,
    /// The RFC 6381 `codecs` string.
    pub codecs: String,
}

/// ISO/IEC 14496-3, table 1.18.
pub(crate) const AAC_RATES: [u32; 13] = [
    96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000,
    7_350,
];

impl Audio {
    /// Parses an AudioSpecificConfig or an OpusHead. `None` if it is invalid or for another codec.
    pub fn new(codec: Codec, record: Bytes) -> Option<Self> {
        match codec {
            _ if record.len() > MAX_RECORD => None,
            Codec::Aac => Self::aac(record),
            Codec::Opus => Self::opus(record),
            _ => None,
        }
    }

    fn aac(record: Bytes) -> Option<Self> {
        let mut bits = Bits::new(&record);
        let object_type = aac_object_type(&mut bits)?;
        // With explicit signalling of SBR (5) or PS (29), this is the rate of the core, in which
        // the track's frames are counted.
        let sample_rate = aac_rate(&mut bits)?;
        let channels = match bits.u(4)? {
            7 => 8,
            11 => 7,
            12 | 14 => 8,
            // 0: defined in the stream.
            0 => 2,
            count => count as u8,
        };
        if matches!(object_type, 5 | 29) {
            aac_rate(&mut bits)?;
            aac_object_type(&mut bits)?;
        }
        let short = bits.flag().unwrap_or(false);
        Some(Self {
            codec: Codec::Aac,
            record,
            sample_rate,
            channels,
            frame_samples: if short { 960 } else { 1_024 },
            codecs: format!("mp4a.40.{object_type}"),
        })
    }

    fn opus(record: Bytes) -> Option<Self> {
        // RFC 7845, section 5.1: versions 0 to 15 are compatible.
        if record.len() < 19 || !record.starts_with(b"OpusHead") || record[8] > 15 {
            return None;
        }
        let channels = record[9];
        let table = if record[18] == 0 { 0 } else { 2 + usize::from(channels) };
        if channels == 0 || record.len() < 19 + table {
            return None;
        }
        let record = record.slice(..19 + table);
        let codecs = String::from("opus");
        let (sample_rate, frame_samples) = (48_000, 960);
        Some(Self { codec: Codec::Opus, record, sample_rate, channels, frame_samples, codecs })
    }

    /// Derives the configuration of an MP3 track from a frame.
    pub fn mp3(frame: &[u8]) -> Option<Self> {
        let header = Mp3Header::read(frame)?;
        Some(Self {
            codec: Codec::Mp3,
            record: Bytes::new(),
            sample_rate: header.sample_rate,
            channels: header.channels,
            frame_samples: header.samples,
            codecs: String::from("mp4a.40.34"),
        })
    }

    /// Returns the number of samples in a frame, at [`Audio::sample_rate`].
    pub fn samples(&self, frame: &[u8]) -> u32 {
        match self.codec {
            Codec::Opus => opus_samples(frame),
            _ => self.frame_samples,
        }
    }

    /// Returns the start of an ADTS header for this AudioSpecificConfig: profile, rate and channels
    /// (ISO/IEC 14496-3, section 1.A.2.2). `None` if ADTS cannot express it.
    pub(crate) fn adts(&self) -> Option<[u8; 2]> {
        let mut bits = Bits::new(&self.record);
        let mut object_type = aac_object_type(&mut bits)?;
        let rate = AAC_RATES.iter().position(|rate| *rate == self.sample_rate)? as u8;
        let _ = aac_rate(&mut bits)?;
        let channels = bits.u(4).filter(|channels| *channels < 8)? as u8;
        if matches!(object_type, 5 | 29) {
            aac_rate(&mut bits)?;
            object_type = aac_object_type(&mut bits)?;
        }
        let profile = object_type.checked_sub(1).filter(|profile| *profile < 4)? as u8;
        Some([profile << 6 | rate << 2 | channels >> 2, channels << 6])
    }
}

fn aac_object_type(bits: &mut Bits<'_>) -> Option<u32> {
    match bits.u(5)? {
        31 => Some(32 + bits.u(6)?),
        0 => None,
        object_type => Some(object_type),
    }
}

fn aac_rate(bits: &mut Bits<'_>) -> Option<u32> {
    match bits.u(4)? {
        15 => bits.u(24).filter(|rate| (1..=96_000).contains(rate)),
        index => AAC_RATES.get(index as usize).copied(),
    }
}

/// Returns the AudioSpecificConfig that corresponds to an ADTS header.
pub(crate) fn audio_specific_config(profile: u8, rate_index: u8, channels: u8) -> Bytes {
    let bits = u16::from(profile + 1) << 11 | u16::from(rate_index) << 7 | u16::from(channels) << 3;
    Bytes::copy_from_slice(&bits.to_be_bytes())
}

/// Returns the duration of an Opus packet in samples at 48 kHz (RFC 6716, section 3.1), at most 120
/// ms.
fn opus_samples(packet: &[u8]) -> u32 {
    let Some(&toc) = packet.first() else { return 0 };
    let frame = match toc >> 3 {
        config @ 0..=11 => [480, 960, 1_920, 2_880][usize::from(config % 4)],
        config @ 12..=15 => [480, 960][usize::from(config % 2)],
        config => [120, 240, 480, 960][usize::from(config % 4)],
    };
    let frames = match toc & 3 {
        0 => 1,
        1 | 2 => 2,
        _ => packet.get(1).map_or(1, |count| u32::from(count & 0x3f)),
    };
    (frame * frames).min(5_760)
}

/// Header of an MPEG audio layer III frame (ISO/IEC 11172-3, section 2.4.1.3, and 13818-3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mp3Header {
    pub(crate) sample_rate: u32,
    pub(crate) channels: u8,
    pub(crate) samples: u32,
    /// Size of the frame in bytes, at least 24.
    pub(crate) size: usize,
}

impl Mp3Header {
    pub(crate) fn read(frame: &[u8]) -> Option<Self> {
        let header: [u8; 4] = frame.get(..4)?.try_into().ok()?;
        if header[0] != 0xff || header[1] & 0xe0 != 0xe0 || header[1] >> 1 & 3 != 1 {
            return None;
        }
        // MPEG-1 has two granules of 576 samples, MPEG-2 and -2.5 one.
        let (halvings, granules) = match header[1] >> 3 & 3 {
            3 => (0, 2),
            2 => (1, 1),
            0 => (2, 1),
            _ => return None,
        };
        let sample_rate =
            *[44_100, 48_000, 32_000].get(usize::from(header[2] >> 2 & 3))? >> halvings;
        let rates: [u32; 14] = if granules == 2 {
            [32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320]
        } else {
            [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160]
        };
        let bit_rate = rates.get(usize::from(header[2] >> 4).checked_sub(1)?)? * 1_000;
        let samples = 576 * granules;
        let padding = u32::from(header[2] >> 1 & 1);
        let size = (samples / 8 * bit_rate / sample_rate + padding) as usize;
        let channels = if header[3] >> 6 == 3 { 1 } else { 2 };
        Some(Self { sample_rate, channels, samples, size })
    }
}
