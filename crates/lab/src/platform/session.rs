//! One session of a population, as it was drawn: who watches what, how, and over which path.

/// How a viewer is connected.
pub(super) const ACCESS: [&str; 3] = ["wifi", "cellular", "cable"];

/// How packets are lost.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Loss {
    /// As calls have it, each packet with its own fate.
    Calls,
    /// The same, all packets of 20 ms with one fate.
    Slots,
    /// Each packet on its own.
    Independent,
    /// A chain of good and bad times of this mean length, of which the bad ones lose this share.
    Gilbert { bad_ms: f64, share: f64 },
    /// Everything is lost for this long in the mean.
    Outages { length_ms: f64 },
}

/// The names of kinds of loss, in the order of [`Loss`].
pub(super) const LOSSES: [&str; 5] = ["calls", "slots", "independent", "gilbert", "outages"];

/// Wake-ups of the link layer. Packets wait for them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bunches {
    pub every_ms: f64,
    /// Time after each wake-up in which packets pass at once. Below `every_ms`.
    pub awake_ms: f64,
}

/// How often the client acknowledges.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Acks {
    /// Each second packet, as libraries do.
    #[default]
    EachSecond,
    /// As Chromium.
    Chromium,
    /// One acknowledgement for `each` packets, or after `within_ms`.
    Rare { each: u32, within_ms: f64 },
}

/// Treatment of packets that carry ECN marks.
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

/// Properties of the link beside rate, delay, queue, jitter and loss. By default none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Links {
    /// Towards the client.
    pub bunches: Option<Bunches>,
    /// Towards the server.
    pub bunches_up: Option<Bunches>,
    pub acks: Acks,
    /// Seconds since the beginning, ascending, and the round-trip time from then on as a multiple of the first one.
    pub rtt_steps: Vec<(f64, f64)>,
    /// Towards the client.
    pub ecn: Option<EcnFault>,
    /// Towards the client.
    pub policer: Option<Policer>,
}

/// Who watches: the origin-destination pair of the papers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Viewer {
    /// Its place in the population.
    pub number: u32,
    /// Its user group.
    pub group: u32,
    /// What it is divided into cohorts by.
    pub unit: u64,
}

impl Viewer {
    /// The name of its user group: three networks of a country, each in the same seven states.
    pub(super) fn group_name(&self) -> String {
        let group = self.group;
        format!("XX/AS{}/S{}/c{group}", 64_512 + group % 3, group % 7)
    }
}

/// What the stream's encoder makes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Encoder {
    /// Seconds from a key frame to the next.
    pub group_s: f64,
    /// Size of a key frame against that of a P-frame.
    pub key_ratio: f64,
    /// Standard deviation of the logarithm of frame sizes, and its correlation from a frame to the next.
    pub size_variation: f64,
    pub size_correlation: f64,
    pub b_frames: u32,
    pub audio_kbps: f64,
}

/// One session.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Session {
    /// Its place in the population.
    pub number: u32,
    pub viewer: Viewer,
    /// How many sessions this viewer had before.
    pub visit: u32,
    /// When it begins, in milliseconds since 1970.
    pub started_ms: i64,
    /// Place in [`ACCESS`].
    pub access: usize,
    /// Round-trip time without queues.
    pub rtt_ms: f64,
    /// Rate of the bottleneck.
    pub rate_mbps: f64,
    /// What its queue holds.
    pub buffer_ms: f64,
    /// The most that a packet's delay differs.
    pub jitter_ms: f64,
    /// Share of packets lost; 0 for none.
    pub loss: f64,
    pub kind: Loss,
    pub links: Links,
    /// Rate of the stream.
    pub bitrate_mbps: f64,
    pub fps: f64,
    pub encoder: Encoder,
    /// How much of a group of pictures was there when the viewer came, in seconds.
    pub joined_s: f64,
    /// Place in [`qoe::Policy::PRESETS`].
    pub player: usize,
    /// How long the viewer means to stay.
    pub stay_s: f64,
    /// A viewer who waits or is frozen longer than this leaves.
    pub patience_s: f64,
    /// Of everything that happens in it.
    pub seed: u64,
}
