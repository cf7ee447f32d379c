//! Breaches of format rules that readers tolerate because the meaning is clear.

/// A tolerated violation of a format's rules.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Deviation {
    /// A playlist's EXT-X-TARGETDURATION is absent, zero or no whole number.
    PlaylistTarget,
    /// A playlist has bytes that are no UTF-8, or lines before `#EXTM3U`.
    PlaylistText,
    /// A tag of a playlist has a value that cannot be read, and is left out.
    PlaylistTag,
    /// Packets of a transport stream are not where they should be; those between were left out.
    TsSync,
    /// Transport stream packets of 192 or 204 bytes.
    TsPacketSize,
    /// A segment of a transport stream has its tables late, or not at all.
    TsTables,
    /// Packets of a transport stream are missing.
    TsContinuity,
    /// A PreviousTagSize field of FLV is wrong.
    FlvTrailer,
    /// An FLV tag has a type that does not exist, or is encrypted data.
    FlvTagType,
    /// An FLV file header is repeated within the stream, or has a wrong length.
    FlvHeader,
    /// An RTMP data message or command in AMF3, or that cannot be read.
    RtmpMessage,
    /// A chunk within an RTMP message has a header of type 1 or 2.
    RtmpContinuation,
    /// An RTMP message restarts before it was complete.
    RtmpRestart,
    /// An HTTP origin answers a request for a range with the whole.
    HttpRange,
}

/// How many deviations there are.
const COUNT: usize = 14;

impl Deviation {
    /// All of them.
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
        Self::HttpRange,
    ];

    /// Its name in metrics and logs.
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
            Self::HttpRange => "http_range",
        }
    }
}

/// How often a reader met each deviation since it was last asked.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Deviations([u32; COUNT]);

impl Deviations {
    /// Counts one.
    pub fn note(&mut self, deviation: Deviation) {
        let count = &mut self.0[deviation as usize];
        *count = count.saturating_add(1);
    }

    /// Adds what another reader has met.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(&other.0) {
            *count = count.saturating_add(*more);
        }
    }

    /// Returns the counts and resets them.
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
        let mut met = Deviations::default();
        met.note(Deviation::TsSync);
        let mut all = met.clone();
        all.add(&met);
        all.note(Deviation::HttpRange);
        let taken: Vec<_> = all.take().collect();
        assert_eq!(taken, [(Deviation::TsSync, 2), (Deviation::HttpRange, 1)]);
        assert_eq!(all.take().count(), 0);
    }
}
