//! Kinds and counts of corrections.

/// A kind of correction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Repair {
    /// Empty NAL units and empty tags, which were dropped.
    Empty,
    /// NAL units that exceed their tag, which were dropped.
    Truncated,
    /// Start codes (annex B), which were replaced by lengths.
    AnnexB,
    /// Lengths of 1, 2 or 3 bytes, which were replaced by 4-byte lengths.
    LengthSize,
    /// NAL units of tags without a slice, which were moved to the next frame or dropped.
    NoSlice,
    /// Slices of a frame in several tags, which were joined.
    Joined,
    /// In-band parameter sets, which were put into a sequence header.
    Sets,
    /// Key frames that were not marked as such.
    KeyFrame,
    /// Sequence headers without content or parameter sets, which were dropped.
    Header,
    /// Video frames without a sequence header, which were dropped.
    VideoHeader,
    /// ADTS headers of AAC frames, which were removed.
    Adts,
    /// AAC frames without a sequence header, which were dropped.
    AudioHeader,
    /// Silent frames, which were inserted in place of announced audio.
    Silence,
    /// Audio for times already filled with silence, which was dropped.
    LateAudio,
}

impl Repair {
    /// All kinds.
    pub const ALL: [Self; 14] = [
        Self::Empty,
        Self::Truncated,
        Self::AnnexB,
        Self::LengthSize,
        Self::NoSlice,
        Self::Joined,
        Self::Sets,
        Self::KeyFrame,
        Self::Header,
        Self::VideoHeader,
        Self::Adts,
        Self::AudioHeader,
        Self::Silence,
        Self::LateAudio,
    ];

    /// Name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty_units",
            Self::Truncated => "cut_units",
            Self::AnnexB => "start_codes",
            Self::LengthSize => "length_size",
            Self::NoSlice => "tags_without_slice",
            Self::Joined => "slices_joined",
            Self::Sets => "parameter_sets_in_band",
            Self::KeyFrame => "key_frame_not_marked",
            Self::Header => "empty_header",
            Self::VideoHeader => "video_without_header",
            Self::Adts => "adts",
            Self::AudioHeader => "audio_without_header",
            Self::Silence => "silent_frames",
            Self::LateAudio => "late_audio",
        }
    }

    /// Description for the log.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Empty => "empty NAL units or frames (dropped)",
            Self::Truncated => "truncated NAL units (dropped)",
            Self::AnnexB => "NAL units with start codes (replaced by lengths)",
            Self::LengthSize => "NAL units with lengths of less than 4 bytes (replaced by 4 bytes)",
            Self::NoSlice => "tags without a slice (moved to the next frame)",
            Self::Joined => "frames split over several tags (joined)",
            Self::Sets => "in-band parameter sets (sequence header built)",
            Self::KeyFrame => "key frames not marked as such (marked)",
            Self::Header => "sequence headers without content (dropped)",
            Self::VideoHeader => "video without a sequence header (dropped)",
            Self::Adts => "ADTS headers in AAC frames (removed)",
            Self::AudioHeader => "AAC frames without a sequence header (dropped)",
            Self::Silence => "missing announced audio (silence inserted)",
            Self::LateAudio => "audio more than 0.5 s behind its usual time (dropped)",
        }
    }
}

/// Number of corrections by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RepairCounts([u64; Repair::ALL.len()]);

impl RepairCounts {
    pub(super) fn count(&mut self, repair: Repair) {
        self.0[repair as usize] += 1;
    }

    pub(super) fn all(self) -> impl Iterator<Item = (Repair, u64)> {
        Repair::ALL.into_iter().map(move |repair| (repair, self.0[repair as usize]))
    }
}
