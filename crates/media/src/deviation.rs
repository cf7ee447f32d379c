//! Violations of format rules that readers tolerate because the meaning is clear.

/// A tolerated violation of a format's rules.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Deviation {
    /// EXT-X-TARGETDURATION of a playlist is missing, zero or not an integer.
    PlaylistTarget,
    /// A playlist contains invalid UTF-8.
    PlaylistText,
    /// A playlist tag has an invalid value and is ignored.
    PlaylistTag,
    /// Packets of a transport stream lost alignment; bytes between them are skipped.
    TsSync,
    /// Transport stream packets have 192 or 204 bytes.
    TsPacketSize,
    /// The tables of a transport stream segment are late or missing.
    TsTables,
    /// Packets of a transport stream are missing.
    TsContinuity,
    /// A PreviousTagSize field of FLV is wrong.
    FlvTrailer,
    /// An FLV tag has an unknown type or is encrypted.
    FlvTagType,
    /// An FLV file header is repeated within the stream or has a wrong length.
    FlvHeader,
    /// An RTMP data message or command is in AMF3 or cannot be parsed.
    RtmpMessage,
    /// A chunk in the middle of an RTMP message has a header of type 1 or 2.
    RtmpContinuation,
    /// An RTMP message restarts before it is complete.
    RtmpRestart,
    /// A multitrack packet is cut off, nested, or has a track twice. The rest of it is ignored.
    RtmpTracks,
    /// An HTTP origin answers a range request with the whole resource.
    HttpRange,
}

/// Number of deviations.
const COUNT: usize = 15;

impl Deviation {
    /// All deviations.
    pub const ALL: [Self; COUNT] = [
        Self::PlaylistTarget,
        Self::PlaylistText,
        Self::PlaylistTag,
        Self::TsSync,
        Self::TsPacketSize,
        Self::TsTables,
        Self::TsContinuity,
        Self::FlvTrailer,
        Self::FlvTagType,
        Self::FlvHeader,
        Self::RtmpMessage,
        Self::RtmpContinuation,
        Self::RtmpRestart,
        Self::RtmpTracks,
        Self::HttpRange,
    ];

    /// Name in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PlaylistTarget => "playlist_target",
            Self::PlaylistText => "playlist_text",
            Self::PlaylistTag => "playlist_tag",
            Self::TsSync => "ts_sync",
            Self::TsPacketSize => "ts_packet_size",
            Self::TsTables => "ts_tables",
            Self::TsContinuity => "ts_continuity",
            Self::FlvTrailer => "flv_trailer",
            Self::FlvTagType => "flv_tag_type",
            Self::FlvHeader => "flv_header",
            Self::RtmpMessage => "rtmp_message",
            Self::RtmpContinuation => "rtmp_continuation",
            Self::RtmpRestart => "rtmp_restart",
            Self::RtmpTracks => "rtmp_tracks",
            Self::HttpRange => "http_range",
        }
    }
}

/// Number of occurrences of each deviation since the last [`Deviations::take`].
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Deviations([u32; COUNT]);

impl Deviations {
    /// Counts an occurrence.
    pub fn note(&mut self, deviation: Deviation) {
        let count = &mut self.0[deviation as usize];
        *count = count.saturating_add(1);
    }

    /// Adds the counts of another reader.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(&other.0) {
            *count = count.saturating_add(*more);
        }
    }

    /// Returns the non-zero counts and resets them.
    pub fn take(&mut self) -> impl Iterator<Item = (Deviation, u32)> + use<> {
        let counts = core::mem::take(&mut self.0);
        Deviation::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviations_are_counted_by_reason_until_they_are_taken() {
        for (place, deviation) in Deviation::ALL.into_iter().enumerate() {
            assert_eq!(deviation as usize, place);
        }
        let mut seen = Deviations::default();
        seen.note(Deviation::TsSync);
        let mut all = seen.clone();
        all.add(&seen);
        all.note(Deviation::HttpRange);
        let taken: Vec<_> = all.take().collect();
        assert_eq!(taken, [(Deviation::TsSync, 2), (Deviation::HttpRange, 1)]);
        assert_eq!(all.take().count(), 0);
    }
}
