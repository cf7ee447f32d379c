//! Kinds of corrections, and how often each was made.

/// A kind of correction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Repair {
    /// NAL units of length 0, and tags without content, were dropped.
    Empty,
    /// NAL units that reach beyond their tag were dropped.
    Cut,
    /// Start codes (annex B) were replaced by lengths.
    AnnexB,
    /// Lengths of 1, 2 or 3 bytes were replaced by lengths of 4.
    LengthSize,
    /// NAL units of tags without a slice were moved to the next picture's tag, or dropped.
    NoSlice,
    /// Slices of one picture in several tags were joined.
    Joined,
    /// A sequence header was built from parameter sets in the pictures.
    Sets,
    /// A key frame was not marked as one.
    KeyFrame,
    /// A sequence header without content or without parameter sets was dropped.
    Header,
    /// Video frames without a sequence header were dropped.
    VideoHeader,
    /// ADTS headers of AAC frames were removed.
    Adts,
    /// AAC frames without a sequence header were dropped.
    AudioHeader,
    /// Silence was inserted where announced audio did not come.
    Silence,
    /// Audio that came after its time was filled with silence was dropped.
    LateAudio,
}

impl Repair {
    /// All kinds.
    pub const ALL: [Self; 14] = [
        Self::Empty,
        Self::Cut,
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

    /// The name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty_units",
            Self::Cut => "cut_units",
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

    /// The correction in words, for the log.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Empty => "NAL units or frames without content (dropped)",
            Self::Cut => "NAL units that reach beyond their tag (dropped)",
            Self::AnnexB => "NAL units with start codes (lengths written)",
            Self::LengthSize => "NAL units with lengths of less than 4 bytes (4 bytes written)",
            Self::NoSlice => "tags without a slice (moved to the next picture)",
            Self::Joined => "pictures in several tags (joined)",
            Self::Sets => "parameter sets in band (sequence header built)",
            Self::KeyFrame => "key frames that were not marked (marked)",
            Self::Header => "sequence headers without content (dropped)",
            Self::VideoHeader => "video without a sequence header (dropped)",
            Self::Adts => "ADTS headers in AAC frames (removed)",
            Self::AudioHeader => "AAC frames without a sequence header (dropped)",
            Self::Silence => "announced audio is missing (silence inserted)",
            Self::LateAudio => "audio more than 0.5 s behind its usual time (dropped)",
        }
    }
}

/// Counts of corrections.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts([u64; Repair::ALL.len()]);

impl Counts {
    pub(super) fn count(&mut self, repair: Repair) {
        self.0[repair as usize] += 1;
    }

    pub(super) fn all(self) -> impl Iterator<Item = (Repair, u64)> {
        Repair::ALL.into_iter().map(move |repair| (repair, self.0[repair as usize]))
    }
}
