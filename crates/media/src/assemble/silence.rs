//! Silence in place of missing announced audio.
//!
//! Encoders stop sending audio when they are muted, or announce a microphone that is off. Most
//! browser players then freeze at the end of the audio, and cannot add an audio track later. A
//! stream with video that announces AAC LC, by its metadata or a sequence header, therefore gets
//! silent frames while audio is missing.

use bytes::Bytes;

use super::audio::aac_tag;
use super::repair::{Repair, RepairCounts};
use crate::amf0;
use crate::codec::{Codec, Role};
use crate::flv::Tag;
use crate::fmp4::config::{AAC_RATES, Audio, audio_specific_config};

/// Maximum initial lag of audio behind video that is not filled, in milliseconds. Shorter than a
/// part of Low-Latency HLS, so that the first part has audio.
const START_MS: i32 = 100;
/// Maximum gap in the audio that is not filled, in milliseconds beyond the usual lag behind video.
const GAP_MS: i32 = 500;
/// Maximum step between video frames, in milliseconds. A longer step is a pause of the whole
/// stream, which is not filled.
const MAX_STEP_MS: i32 = 1_000;
/// Maximum lag of audio behind video, in milliseconds. A larger lag indicates different clocks.
const MAX_LAG_MS: i32 = 5_000;

/// An AAC track that can be filled.
#[derive(Debug)]
struct AacTrack {
    audio: Audio,
    silent_frame: Bytes,
    /// Sequence header to send before the first frame, if only the metadata announced the track.
    header: Option<Bytes>,
}

impl AacTrack {
    fn new(record: Bytes, is_announced: bool) -> Option<Self> {
        let audio = Audio::new(Codec::Aac, record.clone())?;
        let header = is_announced.then_some(record);
        Some(Self { silent_frame: silent_frame(&audio)?, audio, header })
    }
}

/// End of the audio.
#[derive(Clone, Copy, Default, Debug)]
struct AudioEnd {
    ms: u32,
    /// Fraction of a millisecond, in thousandths of samples.
    rest: u64,
}

impl AudioEnd {
    fn advance(&mut self, samples: u32, rate: u32) {
        let rest = self.rest + u64::from(samples) * 1_000;
        self.ms = self.ms.wrapping_add((rest / u64::from(rate)) as u32);
        self.rest = rest % u64::from(rate);
    }
}

/// Fills gaps in the audio of one publisher.
#[derive(Debug, Default)]
pub(super) struct Silence {
    track: Option<AacTrack>,
    /// Timestamp of the last video frame.
    video_ms: Option<u32>,
    /// End of the received audio; before any audio, the time of the first video frame.
    end: AudioEnd,
    /// Whether an audio frame or header has arrived.
    has_audio: bool,
    /// Maximum lag of an audio frame behind video, in milliseconds.
    lag_ms: i32,
    /// Maximum gap beyond `lag_ms` that is not filled, in milliseconds: [`START_MS`], 0 while
    /// filling, or [`GAP_MS`].
    tolerance_ms: i32,
}

impl Silence {
    /// Records the audio track announced by `onMetaData`.
    pub(super) fn on_metadata(&mut self, tag: &Tag) {
        if self.track.is_none() && !self.has_audio {
            self.track = announced(tag).and_then(|record| AacTrack::new(record, true));
        }
    }

    /// Appends silence up to the video frame at `now` to `out`, if audio is missing.
    pub(super) fn on_video(&mut self, now: u32, out: &mut Vec<Tag>, counts: &mut RepairCounts) {
        match self.video_ms.replace(now) {
            None if self.tolerance_ms == 0 => {
                self.tolerance_ms = START_MS;
                self.end = AudioEnd { ms: now, rest: 0 };
            }
            last => {
                let step = elapsed(now, last.unwrap_or(now));
                if !(0..=MAX_STEP_MS).contains(&step) {
                    self.end.ms = self.end.ms.wrapping_add_signed(step);
                }
            }
        }
        let Some(track) = &mut self.track else { return };
        let gap = elapsed(now, self.end.ms).saturating_sub(self.lag_ms);
        if gap > GAP_MS + 2 * MAX_STEP_MS {
            // The clocks of audio and video differ.
            self.end = AudioEnd { ms: now, rest: 0 };
        }
        if !(self.tolerance_ms..GAP_MS + 2 * MAX_STEP_MS).contains(&gap) {
            return;
        }
        if let Some(record) = track.header.take() {
            out.extend(aac_tag(0, &record, self.end.ms));
        }
        self.tolerance_ms = 0;
        while elapsed(now, self.end.ms) > self.lag_ms {
            counts.count(Repair::Silence);
            out.extend(aac_tag(1, &track.silent_frame, self.end.ms));
            self.end.advance(track.audio.frame_samples, track.audio.sample_rate);
        }
    }

    /// Handles an audio tag. Returns false if it must be dropped because its time has already been
    /// filled.
    pub(super) fn on_audio(&mut self, tag: &Tag, counts: &mut RepairCounts) -> bool {
        let class = tag.class();
        self.has_audio = true;
        if class.codec != Some(Codec::Aac) {
            self.track = None;
            return true;
        }
        if class.role == Role::SequenceHeader {
            let payload = tag.payload();
            let record = payload.slice(class.data_at.min(payload.len())..);
            self.track = AacTrack::new(record, false);
            self.end.rest = 0;
            return true;
        }
        let now = tag.timestamp();
        if let Some(video_ms) = self.video_ms {
            let lag = elapsed(video_ms, now);
            self.lag_ms = self.lag_ms.max(if lag <= MAX_LAG_MS { lag } else { 0 });
        }
        let (rate, length) = self
            .track
            .as_ref()
            .map_or((44_100, 0), |track| (track.audio.sample_rate, track.audio.frame_samples));
        let fills = self.video_ms.is_some() && self.tolerance_ms == 0;
        let frame_ms = (u64::from(length) * 1_000 / u64::from(rate)) as i32;
        if fills && (frame_ms + 1..MAX_LAG_MS).contains(&elapsed(self.end.ms, now)) {
            counts.count(Repair::LateAudio);
            return false;
        }
        self.tolerance_ms = GAP_MS;
        self.end = AudioEnd { ms: now, rest: 0 };
        self.end.advance(length, rate);
        true
    }
}

/// Returns the milliseconds from `then` to `now`, negative if `then` is later.
fn elapsed(now: u32, then: u32) -> i32 {
    now.wrapping_sub(then).cast_signed()
}

/// Returns the AudioSpecificConfig announced by `onMetaData`; `None` without AAC. The defaults,
/// 44.1 kHz and two channels, are those of encoders that specify neither.
fn announced(metadata: &Tag) -> Option<Bytes> {
    let values = amf0::read(&metadata.payload()).ok()?;
    let object = values.get(1)?;
    let number = |name| object.get(name).and_then(amf0::Value::number);
    // SoundFormat (FLV, E.4.2.1), or the FourCC of Enhanced RTMP as a number or as text.
    let codec = object.get("audiocodecid")?;
    let is_aac = match codec.number() {
        Some(number) => number == 10.0 || number == f64::from(u32::from_be_bytes(*b"mp4a")),
        None => codec.text() == Some("mp4a"),
    };
    if !is_aac {
        return None;
    }
    let rate = number("audiosamplerate").unwrap_or(44_100.0);
    let index = AAC_RATES.iter().position(|known| f64::from(*known) == rate).unwrap_or(4);
    let channels = if number("audiochannels") == Some(1.0) { 1 } else { 2 };
    Some(audio_specific_config(1, index as u8, channels))
}

/// Returns a silent raw_data_block (ISO/IEC 14496-3, table 4.3) of AAC LC in one or two channels.
fn silent_frame(audio: &Audio) -> Option<Bytes> {
    if audio.codec != Codec::Aac || audio.adts()?[0] >> 6 != 1 || audio.frame_samples != 1_024 {
        return None;
    }
    // One element without spectral data: global gain and max_sfb are 0. Then ID_END, aligned to
    // bytes.
    match audio.channels {
        // single_channel_element 0, global_gain, ics_info, no pulses, noise shaping and gain
        // control.
        1 => Some(Bytes::from_static(&[0, 0, 0, 7])),
        // channel_pair_element 0 with a common window: ics_info, no M/S stereo, then both channels.
        2 => Some(Bytes::from_static(&[0x21, 0, 0, 0, 0, 0x1c])),
        _ => None,
    }
}
