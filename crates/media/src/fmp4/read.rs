//! Reader of fragmented MP4: tracks of initialisation segments, samples of fragments.
//!
//! ISO/IEC 14496-12, sections 8.4 to 8.8. The path from moov or moof to each needed box is fixed,
//! so there is no recursion, and other boxes are skipped. Memory is bounded by the input and
//! [`MAX_SAMPLES`].

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::Sample;
use super::config::{Audio, Video};
use crate::codec::Codec;
use crate::flv::Kind;

/// Maximum number of samples in a segment: nine minutes of video and audio.
pub const MAX_SAMPLES: usize = 1 << 16;
/// Maximum number of tracks that are examined.
const MAX_TRACKS: usize = 8;
/// Upper bound of times: 35 years in microseconds, with room for arithmetic.
const MAX_TIME: u64 = 1 << 50;

/// Reason for which a segment cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// A box is too short or exceeds its parent.
    #[error("invalid MP4 box size")]
    Atom,
    /// A sample lies outside of the segment.
    #[error("MP4 sample outside of its segment")]
    Sample,
    /// More than [`MAX_SAMPLES`] samples, or overlapping samples whose total size exceeds the
    /// segment.
    #[error("too many MP4 samples in a segment")]
    TooMany,
    /// No track with a codec that FLV can carry.
    #[error("no MP4 track with a supported codec")]
    NoTrack,
    /// The media is encrypted.
    #[error("encrypted MP4")]
    Encrypted,
}

impl From<bytes::TryGetError> for Error {
    fn from(_: bytes::TryGetError) -> Self {
        Self::Atom
    }
}

/// Codec configuration of a track.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CodecConfig {
    /// Video with its configuration record.
    Video(Video),
    /// AAC or Opus with its configuration record.
    Audio(Audio),
    /// MP3, which has no configuration record.
    Mp3,
}

impl CodecConfig {
    /// Returns the kind of the track's frames.
    pub(crate) const fn kind(&self) -> Kind {
        match self {
            Self::Video(_) => Kind::Video,
            Self::Audio(_) | Self::Mp3 => Kind::Audio,
        }
    }
}

/// A track of an initialisation segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Track {
    /// Track ID, as used in fragments.
    pub id: u32,
    /// Units per second of the track's times, above 0.
    pub timescale: u32,
    /// Codec configuration.
    pub config: CodecConfig,
    /// Offset from the edit list (section 8.6.6).
    shift: i64,
    defaults: Defaults,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Defaults {
    duration: u32,
    size: u32,
    flags: u32,
}

/// Content of an initialisation segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Movie {
    /// Tracks with a codec that FLV can carry.
    pub tracks: Vec<Track>,
    /// Sample entry names of the other audio and video tracks.
    pub unsupported: Vec<String>,
}

impl Movie {
    /// Parses an initialisation segment.
    ///
    /// # Errors
    /// The segment is invalid, encrypted, or has no supported track.
    pub fn new(segment: &Bytes) -> Result<Self, Error> {
        let moov = child(segment, b"moov")?.ok_or(Error::NoTrack)?;
        let mut mvhd = child(&moov, b"mvhd")?.ok_or(Error::Atom)?;
        let version = mvhd.try_get_u32()? >> 24;
        skip(&mut mvhd, if version == 1 { 16 } else { 8 })?;
        let movie_timescale = i64::from(mvhd.try_get_u32()?.max(1));
        let (mut tracks, mut unsupported) = (Vec::new(), Vec::new());
        for atom in Atoms(moov.clone()) {
            let (name, body) = atom?;
            if &name == b"trak" && tracks.len() + unsupported.len() < MAX_TRACKS {
                match track(&body, movie_timescale)? {
                    Found::Track(track) => tracks.push(track),
                    Found::Unsupported(name) => unsupported.push(name),
                    Found::Other => {}
                }
            }
        }
        if let Some(mvex) = child(&moov, b"mvex")? {
            for atom in Atoms(mvex) {
                let (name, mut body) = atom?;
                if &name == b"trex" {
                    skip(&mut body, 4)?;
                    let id = body.try_get_u32()?;
                    skip(&mut body, 4)?;
                    let (duration, size) = (body.try_get_u32()?, body.try_get_u32()?);
                    let flags = body.try_get_u32()?;
                    if let Some(track) = tracks.iter_mut().find(|track: &&mut Track| track.id == id)
                    {
                        track.defaults = Defaults { duration, size, flags };
                    }
                }
            }
        }
        if tracks.is_empty() { Err(Error::NoTrack) } else { Ok(Self { tracks, unsupported }) }
    }

    /// Returns the samples of a segment's fragments in the order of their runs, each with the index
    /// of its track. Their data is shared with the segment.
    ///
    /// # Errors
    /// The segment is invalid.
    pub fn samples(&self, segment: &Bytes) -> Result<Vec<(usize, Sample)>, Error> {
        let mut samples = Samples { list: Vec::new(), bytes: 0, max_bytes: segment.len() };
        let mut atoms = Atoms(segment.clone());
        loop {
            let moof_at = segment.len() - atoms.0.len();
            let Some(atom) = atoms.next() else { return Ok(samples.list) };
            let (name, body) = atom?;
            if &name != b"moof" {
                continue;
            }
            for atom in Atoms(body) {
                let (name, traf) = atom?;
                if &name == b"traf" {
                    self.traf(segment, moof_at, traf, &mut samples)?;
                }
            }
        }
    }

    fn traf(
        &self,
        segment: &Bytes,
        moof_at: usize,
        traf: Bytes,
        samples: &mut Samples,
    ) -> Result<(), Error> {
        let mut tfhd = child(&traf, b"tfhd")?.ok_or(Error::Atom)?;
        let flags = tfhd.try_get_u32()?;
        let id = tfhd.try_get_u32()?;
        let Some(index) = self.tracks.iter().position(|track| track.id == id) else {
            return Ok(());
        };
        let track = &self.tracks[index];
        let mut base = moof_at as u64;
        if flags & 1 != 0 {
            base = tfhd.try_get_u64()?;
        }
        if flags & 2 != 0 {
            skip(&mut tfhd, 4)?;
        }
        let mut defaults = track.defaults;
        for (flag, value) in
            [(8, &mut defaults.duration), (0x10, &mut defaults.size), (0x20, &mut defaults.flags)]
        {
            if flags & flag != 0 {
                *value = tfhd.try_get_u32()?;
            }
        }
        let mut time = 0;
        if let Some(mut tfdt) = child(&traf, b"tfdt")? {
            let version = tfdt.try_get_u32()? >> 24;
            time = if version == 1 { tfdt.try_get_u64()? } else { u64::from(tfdt.try_get_u32()?) };
        }
        if time >= MAX_TIME {
            return Err(Error::Atom);
        }
        let mut run =
            RunReader { segment, base, at: base, dts: time as i64 + track.shift, defaults };
        for atom in Atoms(traf) {
            let (name, trun) = atom?;
            if &name == b"trun" {
                run.read(trun, |sample| samples.push(index, sample))?;
            }
        }
        Ok(())
    }
}

/// Samples of a segment. Their total size is limited to that of the segment.
struct Samples {
    list: Vec<(usize, Sample)>,
    bytes: usize,
    max_bytes: usize,
}

impl Samples {
    fn push(&mut self, track: usize, sample: Sample) -> Result<(), Error> {
        self.bytes += sample.data.len();
        self.list.push((track, sample));
        let fits = self.bytes <= self.max_bytes && self.list.len() <= MAX_SAMPLES;
        if fits { Ok(()) } else { Err(Error::TooMany) }
    }
}

/// Reader of the trun boxes of a traf. A trun may continue where the previous one ended.
struct RunReader<'a> {
    segment: &'a Bytes,
    /// Position that data offsets are relative to.
    base: u64,
    /// Position of the next sample's data.
    at: u64,
    dts: i64,
    defaults: Defaults,
}

impl RunReader<'_> {
    fn read(
        &mut self,
        mut trun: Bytes,
        mut take: impl FnMut(Sample) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let head = trun.try_get_u32()?;
        let flags = head & 0xff_ffff;
        let count = trun.try_get_u32()?;
        if flags & 1 != 0 {
            let offset = i64::from(trun.try_get_i32()?);
            self.at = self.base.checked_add_signed(offset).ok_or(Error::Sample)?;
        }
        let mut first_flags = None;
        if flags & 4 != 0 {
            first_flags = Some(trun.try_get_u32()?);
        }
        for _ in 0..count {
            let mut values = self.defaults;
            values.flags = first_flags.take().unwrap_or(values.flags);
            for (flag, value) in [
                (0x100, &mut values.duration),
                (0x200, &mut values.size),
                (0x400, &mut values.flags),
            ] {
                if flags & flag != 0 {
                    *value = trun.try_get_u32()?;
                }
            }
            let mut composition = 0;
            if flags & 0x800 != 0 {
                // Unsigned in version 0, but no sane offset uses the highest bit.
                composition = trun.try_get_i32()?;
            }
            let end = self.at.checked_add(u64::from(values.size)).ok_or(Error::Sample)?;
            if end > self.segment.len() as u64 {
                return Err(Error::Sample);
            }
            let data = self.segment.slice(self.at as usize..end as usize);
            // sample_is_non_sync_sample
            let sync = values.flags & 0x1_0000 == 0;
            take(Sample { data, dts: self.dts, composition, sync })?;
            self.at = end;
            self.dts += i64::from(values.duration);
        }
        Ok(())
    }
}

/// Iterator over the boxes in a buffer. It ends after an error.
struct Atoms(Bytes);

impl Iterator for Atoms {
    type Item = Result<([u8; 4], Bytes), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let atom = split_atom(&mut self.0);
        if atom.is_err() {
            self.0.clear();
        }
        Some(atom)
    }
}

fn split_atom(rest: &mut Bytes) -> Result<([u8; 4], Bytes), Error> {
    let mut head = rest.clone();
    let size = head.try_get_u32()?;
    let name = head.try_get_u32()?.to_be_bytes();
    let size = match size {
        0 => rest.len() as u64,
        1 => head.try_get_u64()?,
        size => u64::from(size),
    };
    let header = rest.len() - head.len();
    if size < header as u64 || size > rest.len() as u64 {
        return Err(Error::Atom);
    }
    let body = rest.split_to(size as usize).slice(header..);
    Ok((name, body))
}

/// Returns the content of the first box with this name.
fn child(bytes: &Bytes, wanted: &[u8; 4]) -> Result<Option<Bytes>, Error> {
    for atom in Atoms(bytes.clone()) {
        let (name, body) = atom?;
        if &name == wanted {
            return Ok(Some(body));
        }
    }
    Ok(None)
}

fn skip(bytes: &mut Bytes, count: usize) -> Result<(), Error> {
    if bytes.len() < count {
        return Err(Error::Atom);
    }
    bytes.advance(count);
    Ok(())
}

/// Result of parsing a trak.
enum Found {
    Track(Track),
    /// An audio or video track with this sample entry.
    Unsupported(String),
    /// Another kind of track, such as subtitles.
    Other,
}

fn track(trak: &Bytes, movie_timescale: i64) -> Result<Found, Error> {
    let mut tkhd = child(trak, b"tkhd")?.ok_or(Error::Atom)?;
    let version = tkhd.try_get_u32()? >> 24;
    skip(&mut tkhd, if version == 1 { 16 } else { 8 })?;
    let id = tkhd.try_get_u32()?;
    let mdia = child(trak, b"mdia")?.ok_or(Error::Atom)?;
    let mut mdhd = child(&mdia, b"mdhd")?.ok_or(Error::Atom)?;
    let version = mdhd.try_get_u32()? >> 24;
    skip(&mut mdhd, if version == 1 { 16 } else { 8 })?;
    let timescale = mdhd.try_get_u32()?;
    if timescale == 0 {
        return Err(Error::Atom);
    }
    let handler = child(&mdia, b"hdlr")?.and_then(|hdlr| hdlr.get(8..12).map(<[u8]>::to_vec));
    let mut at = mdia;
    for name in [b"minf", b"stbl", b"stsd"] {
        at = child(&at, name)?.ok_or(Error::Atom)?;
    }
    skip(&mut at, 8)?;
    let Some(entry) = Atoms(at).next() else { return Ok(Found::Other) };
    let (name, entry) = entry?;
    let Some(config) = config(&name, entry)? else {
        let is_media = matches!(handler.as_deref(), Some(b"soun" | b"vide"));
        let name = name.escape_ascii().to_string();
        return Ok(if is_media { Found::Unsupported(name) } else { Found::Other });
    };
    let shift = edit_list(trak, i64::from(timescale), movie_timescale)?;
    Ok(Found::Track(Track { id, timescale, config, shift, defaults: Defaults::default() }))
}

/// Parses the edit list. An empty edit delays the track; the media time of the first other edit is
/// the track's start.
fn edit_list(trak: &Bytes, timescale: i64, movie_timescale: i64) -> Result<i64, Error> {
    let Some(edts) = child(trak, b"edts")? else { return Ok(0) };
    let Some(mut elst) = child(&edts, b"elst")? else { return Ok(0) };
    let version = elst.try_get_u32()? >> 24;
    let mut shift = 0;
    for _ in 0..elst.try_get_u32()?.min(2) {
        let (duration, media_time) = if version == 1 {
            (elst.try_get_u64()?, elst.try_get_i64()?)
        } else {
            (u64::from(elst.try_get_u32()?), i64::from(elst.try_get_i32()?))
        };
        skip(&mut elst, 4)?;
        if duration >= MAX_TIME || media_time >= MAX_TIME as i64 {
            return Err(Error::Atom);
        }
        if media_time >= 0 {
            return Ok(shift - media_time);
        }
        let delay = i128::from(duration) * i128::from(timescale) / i128::from(movie_timescale);
        shift = i64::try_from(delay).ok().filter(|d| *d < MAX_TIME as i64).ok_or(Error::Atom)?;
    }
    Ok(shift)
}

/// Returns the configuration in a sample entry; `None` if the codec is not supported.
fn config(name: &[u8; 4], mut entry: Bytes) -> Result<Option<CodecConfig>, Error> {
    let (video, record) = match name {
        b"avc1" | b"avc3" => (Some(Codec::Avc), b"avcC"),
        b"hvc1" | b"hev1" => (Some(Codec::Hevc), b"hvcC"),
        b"av01" => (Some(Codec::Av1), b"av1C"),
        b"mp4a" => (None, b"esds"),
        b"Opus" => (None, b"dOps"),
        b"encv" | b"enca" => return Err(Error::Encrypted),
        _ => return Ok(None),
    };
    skip(&mut entry, if video.is_some() { 78 } else { 28 })?;
    let mut record_body = child(&entry, record)?.ok_or(Error::Atom)?;
    Ok(match (video, record) {
        (Some(codec), _) => Video::new(codec, record_body).map(CodecConfig::Video),
        (None, b"esds") => {
            skip(&mut record_body, 4)?;
            esds(record_body)?
        }
        _ => opus_head(&record_body)
            .and_then(|head| Audio::new(Codec::Opus, head))
            .map(CodecConfig::Audio),
    })
}

fn opus_head(record: &[u8]) -> Option<Bytes> {
    let (head, table) = record.split_at_checked(11)?;
    let mut out = BytesMut::with_capacity(19 + table.len());
    out.put_slice(b"OpusHead\x01");
    out.put_slice(&[head[1], head[3], head[2], head[7], head[6], head[5], head[4]]);
    out.put_slice(&[head[9], head[8], head[10]]);
    out.put_slice(table);
    Some(out.freeze())
}

/// Parses the descriptors of an esds box down to the AudioSpecificConfig.
fn esds(body: Bytes) -> Result<Option<CodecConfig>, Error> {
    let (tag, mut es) = descriptor(body)?;
    if tag != 3 {
        return Ok(None);
    }
    skip(&mut es, 2)?;
    let flags = es.try_get_u8()?;
    if flags & 0x80 != 0 {
        skip(&mut es, 2)?;
    }
    if flags & 0x40 != 0 {
        let length = es.try_get_u8()?;
        skip(&mut es, usize::from(length))?;
    }
    if flags & 0x20 != 0 {
        skip(&mut es, 2)?;
    }
    let (tag, mut decoder) = descriptor(es)?;
    if tag != 4 {
        return Ok(None);
    }
    let object_type = decoder.try_get_u8()?;
    skip(&mut decoder, 12)?;
    Ok(match object_type {
        0x40 | 0x66..=0x68 => {
            let (_, specific) = descriptor(decoder)?;
            Audio::new(Codec::Aac, specific).map(CodecConfig::Audio)
        }
        0x69 | 0x6b => Some(CodecConfig::Mp3),
        _ => None,
    })
}

fn descriptor(mut bytes: Bytes) -> Result<(u8, Bytes), Error> {
    let tag = bytes.try_get_u8()?;
    let mut length = 0;
    for _ in 0..4 {
        let byte = bytes.try_get_u8()?;
        length = length << 7 | usize::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            break;
        }
    }
    if length > bytes.len() {
        return Err(Error::Atom);
    }
    Ok((tag, bytes.split_to(length)))
}
