//! One drawn session of a population: viewer, stream, player and path.

/// Kinds of access.
pub(super) const ACCESS: [&str; 3] = ["wifi", "cellular", "cable"];

/// Loss model.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LossKind {
    /// The fit to calls, each packet with its own fate.
    Calls,
    /// The fit to calls, all packets within 20 ms with one fate.
    Slots,
    /// Independent losses.
    Independent,
    /// A chain of good and bad states: mean length of bad states, and the share lost in them.
    Gilbert { bad_ms: f64, share: f64 },
    /// Outages of this mean length that lose everything.
    Outages { length_ms: f64 },
}

/// Names of loss models, in the order of [`LossKind`].
pub(super) const LOSSES: [&str; 5] = ["calls", "slots", "independent", "gilbert", "outages"];

/// Link-layer wake-ups that packets wait for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bunches {
    pub every_ms: f64,
    /// Time after each wake-up during which packets pass at once. Below `every_ms`.
    pub awake_ms: f64,
}

/// Acknowledgement frequency of the client.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Acks {
    /// Every second packet, as in most libraries.
    #[default]
    EachSecond,
    /// Chromium's behaviour.
    Chromium,
    /// One acknowledgement per `each` packets, or after `within_ms`.
    Rare { each: u32, within_ms: f64 },
}

/// Treatment of ECN-marked packets.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum EcnFault {
    /// Clears the field.
    Bleach,
    /// Drops the packets.
    Drop,
}

/// A token bucket that drops the excess.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Policer {
    /// Rate as a multiple of the stream's.
    pub times: f64,
    pub burst_kb: f64,
}

/// Link properties besides rate, delay, queue, jitter and loss. None by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Links {
    /// Towards the client.
    pub bunches: Option<Bunches>,
    /// Towards the server.
    pub bunches_up: Option<Bunches>,
    pub acks: Acks,
    /// Times in seconds, ascending, and the round-trip time from then on as a multiple of the
    /// initial one.
    pub rtt_steps: Vec<(f64, f64)>,
    /// Towards the client.
    pub ecn: Option<EcnFault>,
    /// Towards the client.
    pub policer: Option<Policer>,
}

/// A viewer: the origin-destination pair of the papers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DrawnViewer {
    /// Index in the population.
    pub number: u32,
    /// Its user group.
    pub group: u32,
    /// Unit for assignment to cohorts.
    pub unit: u64,
}

impl DrawnViewer {
    /// Name of the user group: three networks of a country, each in the same seven states.
    pub(super) fn group_name(&self) -> String {
        let group = self.group;
        format!("XX/AS{}/S{}/c{group}", 64_512 + group % 3, group % 7)
    }
}

/// Output of the stream's encoder.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Encoder {
    /// Seconds between key frames.
    pub group_s: f64,
    /// Size ratio of a key frame to a P-frame.
    pub key_ratio: f64,
    /// Standard deviation of the logarithm of frame sizes, and its correlation between consecutive
    /// frames.
    pub size_variation: f64,
    pub size_correlation: f64,
    pub b_frames: u32,
    pub audio_kbps: f64,
}

/// One session.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Session {
    /// Index in the population.
    pub number: u32,
    pub viewer: DrawnViewer,
    /// Number of earlier sessions of this viewer.
    pub visit: u32,
    /// Start, in milliseconds since 1970.
    pub started_ms: i64,
    /// Index in [`ACCESS`].
    pub access: usize,
    /// Round-trip time without queues.
    pub rtt_ms: f64,
    /// Rate of the bottleneck.
    pub rate_mbps: f64,
    /// Capacity of its queue.
    pub buffer_ms: f64,
    /// Maximum variation of a packet's delay.
    pub jitter_ms: f64,
    /// Loss rate; 0 for none.
    pub loss: f64,
    pub kind: LossKind,
    pub links: Links,
    /// Rate of the stream.
    pub bitrate_mbps: f64,
    pub fps: f64,
    pub encoder: Encoder,
    /// Part of the group of pictures already published when the viewer joins, in seconds.
    pub joined_s: f64,
    /// Index in [`qoe::Policy::PRESETS`].
    pub player: usize,
    /// Planned duration.
    pub stay_s: f64,
    /// Longest wait or freeze that the viewer tolerates.
    pub patience_s: f64,
    /// Random seed of the session.
    pub seed: u64,
}
