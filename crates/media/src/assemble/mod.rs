//! Correction of the tags of a publisher or upstream.
//!
//! Players of FLV and HLS packagers expect one frame per video tag, NAL units with 4-byte lengths
//! that fill the tag, a sequence header that fits the frames, and raw AAC frames preceded by an
//! AudioSpecificConfig. Encoders break each of these rules. [`Assembler`] restores them, counts
//! each correction as a [`Repair`], and passes well-formed tags through unchanged and without
//! delay.
//!
//! Sources: ISO/IEC 14496-15 (length-prefixed NAL units, avcC, hvcC), Rec. ITU-T H.264 and H.265
//! (annex B, section 7.4.1.2.4 and 7.4.2.4.4: order of NAL units in an access unit), ISO/IEC
//! 14496-3, section 1.A.2.2 (ADTS).

mod audio;
mod repair;
mod sets;
mod silence;
mod units;
mod video;

pub use repair::Repair;
use repair::RepairCounts;

use crate::codec::Role;
use crate::flv::{Kind, Tag};
use crate::tracks::default_track;

/// Corrects the tags of one publisher, in order.
///
/// ```
/// use mendcast_media::{Assembler, Kind, Repair, Tag};
///
/// let mut assembler = Assembler::default();
/// let mut out = Vec::new();
/// // This encoder sends empty audio tags.
/// assembler.push(Tag::new(Kind::Audio, 0, &[]).unwrap(), &mut out);
/// assert!(out.is_empty());
/// assert!(assembler.repairs().any(|repair| repair == (Repair::Empty, 1)));
/// ```
#[derive(Debug, Default)]
pub struct Assembler {
    video: video::VideoAssembler,
    audio: audio::AudioAssembler,
    silence: silence::Silence,
    counts: RepairCounts,
}

impl Assembler {
    /// Handles the next tag and appends the resulting tags to `out`: the tag itself if it is
    /// well-formed.
    pub fn push(&mut self, tag: Tag, out: &mut Vec<Tag>) {
        // The stream itself drops packets of other tracks, and counts them.
        let Some(tag) = default_track(tag.clone()) else { return out.push(tag) };
        if tag.kind() != Kind::Script && tag.payload().is_empty() {
            return self.counts.count(Repair::Empty);
        }
        match tag.kind() {
            Kind::Video => {
                if matches!(tag.role(), Role::KeyFrame | Role::InterFrame) {
                    self.silence.on_video(tag.timestamp(), out, &mut self.counts);
                }
                self.video.push(tag, out, &mut self.counts);
            }
            Kind::Audio => {
                self.video.on_audio_time(tag.timestamp(), out);
                let first = out.len();
                self.audio.push(tag, out, &mut self.counts);
                for tag in out.split_off(first) {
                    if self.silence.on_audio(&tag, &mut self.counts) {
                        out.push(tag);
                    }
                }
            }
            Kind::Script => {
                self.silence.on_metadata(&tag);
                out.push(tag);
            }
        }
    }

    /// Appends the frame that waits for further slices to `out`. Call when the publisher has ended.
    pub fn flush(&mut self, out: &mut Vec<Tag>) {
        self.video.flush(out);
    }

    /// Returns the number of corrections by kind.
    pub fn repairs(&self) -> impl Iterator<Item = (Repair, u64)> + use<> {
        self.counts.all()
    }
}

#[cfg(test)]
mod tests;
