//! Silence in place of audio that a stream announces and does not have, beside its video.
//!
//! hls.js, as most players in browsers, cannot add an audio track to a stream that began without, nor do
//! without one that stops: it ends with an error, or stands still. So a stream that announced audio, in its
//! metadata or by a header, has an AAC track from its first segment on.

use bytes::Bytes;

use super::grid::Grid;
use crate::amf0;
use crate::codec::Codec;
use crate::flv::Tag;
use crate::fmp4::Sample;
use crate::fmp4::config::{AAC_RATES, Audio, audio_specific_config};

/// Frames of silence of a part at most: twice what 60 s of 96 kHz have.
const MAX_FRAMES: usize = 12_000;

/// The audio that `onMetaData` announces, as the AAC track that it most likely is; `None` if it announces
/// none.
pub(super) fn promised(metadata: &Tag) -> Option<Audio> {
    let values = amf0::read(&metadata.payload()).ok()?;
    let object = values.get(1)?;
    let number = |name| object.get(name).and_then(amf0::Value::number);
    number("audiocodecid").filter(|codec| *codec != 0.0)?;
    let rate = number("audiosamplerate").unwrap_or(44_100.0);
    let index = AAC_RATES.iter().position(|known| f64::from(*known) == rate).unwrap_or(4);
    let channels = if number("audiochannels") == Some(1.0) { 1 } else { 2 };
    Audio::new(Codec::Aac, audio_specific_config(1, index as u8, channels))
}

/// A frame of silence for this track: AAC LC in one or two channels.
pub(super) fn frame(audio: &Audio) -> Option<Bytes> {
    if audio.codec != Codec::Aac || audio.adts()?[0] >> 6 != 1 || audio.frame_samples != 1_024 {
        return None;
    }
    // raw_data_block (ISO/IEC 14496-3, table 4.3): one element without spectral data, whose global gain
    // is 0 and max_sfb 0, then ID_END, aligned to bytes.
    match audio.channels {
        // single_channel_element 0, global_gain, ics_info, no pulses, noise shaping and gain control.
        1 => Some(Bytes::from_static(&[0, 0, 0, 7])),
        // channel_pair_element 0 with a common window: ics_info, no M/S stereo, then both channels.
        2 => Some(Bytes::from_static(&[0x21, 0, 0, 0, 0, 0x1c])),
        _ => None,
    }
}

/// Puts silence from the end of the segment's last frame, or from `start_ms`, to `end_ms`.
pub(super) fn fill(
    audio: &Audio,
    grid: &Grid,
    sounds: &mut Vec<Sample>,
    start_ms: i64,
    end_ms: i64,
) {
    let Some(data) = frame(audio) else { return };
    let rate = i64::from(audio.sample_rate);
    let length = i64::from(audio.frame_samples);
    // Without a frame before it, silence stands at whole frames since the time 0: it goes on from segment
    // to segment.
    let start = (start_ms * rate / 1_000 + length - 1).div_euclid(length) * length;
    let mut dts = grid.next().unwrap_or(start);
    while dts < end_ms * rate / 1_000 && sounds.len() < MAX_FRAMES {
        sounds.push(Sample { data: data.clone(), dts, composition: 0, sync: true });
        dts += length;
    }
}
