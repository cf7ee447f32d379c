//! The one schema of session records.
//!
//! `schema!` below lists every column with its type, unit, range, source and meaning. The structs
//! of [`Record`], the JSON lines, the Parquet file, the reader, and the tables of
//! `docs/reference/records.md` derive from it. Other code names a column by [`Column`].
//!
//! Groups structure the code only: in files, rows are flat, with the columns in this order.

use core::fmt;

use serde_json::{Map, Value};

use crate::kind::{Cell, Kind, Source};

/// Possible values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// Any text.
    Text,
    /// 0 or more.
    Amount,
    /// 0 to 1.
    Ratio,
    /// 0 or 1.
    Flag,
    /// 0 to the value of another column.
    AtMost(Column),
}

impl Range {
    /// Returns true if the range contains the number, regardless of other columns.
    pub fn contains(self, number: f64) -> bool {
        match self {
            Self::Text => false,
            Self::Ratio | Self::Flag => (0.0..=1.0).contains(&number),
            Self::Amount | Self::AtMost(_) => (0.0..f64::INFINITY).contains(&number),
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => Ok(()),
            Self::Amount => f.write_str("≥ 0"),
            Self::Ratio => f.write_str("0 to 1"),
            Self::Flag => f.write_str("0 or 1"),
            Self::AtMost(whole) => write!(f, "0 to `{whole}`"),
        }
    }
}

/// Properties of a column.
struct Definition {
    name: &'static str,
    kind: Kind,
    unit: &'static str,
    range: Range,
    source: Source,
    meaning: &'static str,
    group: &'static str,
}

/// Declares groups of columns: `name: TYPE, "UNIT", RANGE, SOURCE;`, where the comment is the
/// column's meaning. A [`Range::AtMost`] is written `AtMost(column)`.
macro_rules! schema {
    ($(
        #[doc = $about:literal]
        $group:ident: $Group:ident {
            $(
                $(#[doc = $meaning:literal])+
                $name:ident: $type:ty, $unit:literal, $range:ident $(($whole:ident))?,
                $source:ident;
            )+
        }
    )+) => {
        $(
            #[doc = $about]
            #[derive(Clone, Debug, Default, PartialEq)]
            pub struct $Group {
                $($(#[doc = $meaning])+ pub $name: Option<$type>,)+
            }
        )+

        /// One viewer session. Unknown values are absent.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Record {
            $(#[doc = $about] pub $group: $Group,)+
        }

        /// A column. Variants have the names of the columns in files, so that a search for a name
        /// finds every use.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Column {
            $($($(#[doc = $meaning])+ $name,)+)+
        }

        const DEFINITIONS: &[Definition] = &[$($(
            Definition {
                name: stringify!($name),
                kind: <$type as Cell>::KIND,
                unit: $unit,
                range: Range::$range $((Column::$whole))?,
                source: Source::$source,
                meaning: concat!($($meaning),+),
                group: $about,
            },
        )+)+];

        impl Column {
            /// All columns, in the order of files.
            pub const ALL: [Self; DEFINITIONS.len()] = [$($(Self::$name,)+)+];
        }

        impl Record {
            /// Returns the row as a flat JSON object. Absent values are `null`.
            pub fn object(&self) -> Map<String, Value> {
                let mut row = Map::new();
                $($(
                    let value = self.$group.$name.as_ref().map_or(Value::Null, Cell::value);
                    row.insert(stringify!($name).to_owned(), value);
                )+)+
                row
            }

            #[cfg(test)]
            fn set(&mut self, column: Column, value: Value) {
                match column {
                    $($(Column::$name => {
                        self.$group.$name = serde_json::from_value(value).expect("its type");
                    })+)+
                }
            }
        }
    };
}

schema! {
    /// Session: identity, network and time.
    session: Session {
        /// Number of the session in its process.
        session: i64, "", Amount, Server;
        /// Viewer ID, 16 hexadecimal digits; the same for all sessions of one pass.
        viewer: String, "", Text, Server;
        /// Name, such as `live/demo`.
        stream: String, "", Text, Server;
        /// `h3`, `h2`, `h1` or `rtmp`.
        protocol: String, "", Text, Server;
        /// `flv`, `hls` or `rtmp`.
        format: String, "", Text, Server;
        /// Unit of randomisation: decides the viewer's cohort, the same for all its sessions.
        unit: String, "", Text, Quic;
        /// The viewer's cohort; absent if no scheme can act.
        cohort: String, "", Text, Quic;
        /// Recovery scheme.
        scheme: String, "", Text, Quic;
        /// The viewer's network: /24 of IPv4, /48 of IPv6. Together with this node an
        /// origin-destination pair.
        prefix: String, "", Text, Server;
        /// User group: network type, place and AS. The server leaves it absent.
        group: String, "", Text, Testbed;
        /// Access network, such as `wifi` or `cellular`.
        access: String, "", Text, Testbed;
        /// Start of the session, since 1970 (UTC).
        started_ms: i64, "ms", Amount, Server;
        /// Duration of the session.
        duration_s: f64, "s", Amount, Server;
    }

    /// Media passed to the transport.
    delivery: Delivery {
        /// Media passed to the transport.
        bytes: i64, "bytes", Amount, Server;
        /// `bytes` ÷ `duration_s`.
        goodput_mbps: f64, "Mbps", Amount, Server;
        /// Skips to a key frame because the viewer was too slow.
        skips: i64, "times", Amount, Server;
        /// Skipped media.
        skipped_ms: i64, "ms", Amount, Server;
        /// Disposable pictures dropped while the viewer was behind live (`[live] thin_lag`).
        thinned: i64, "pictures", Amount, Server;
    }

    /// Start of the connection and first frame.
    startup: Startup {
        /// TLS session resumed.
        resumed: i64, "", Flag, Quic;
        /// 0-RTT data accepted.
        early_data: i64, "", Flag, Quic;
        /// Time from the request to the acknowledgement of the first frame's last byte.
        first_frame_ms: f64, "ms", Amount, Quic;
        /// Bytes up to the end of the first key frame (of the first audio, without video),
        /// including preceding headers, script data and audio (Wira's FF_Size).
        first_frame_bytes: i64, "bytes", Amount, Flv;
        /// Startup mode of the connection, if it started with this session: `mode` of `[startup]`
        /// or of the cohort.
        start: String, "", Text, Quic;
        /// Source of the saved path state: `token`, `ticket`, `http` or `history`; absent without
        /// a usable one.
        start_cookie: String, "", Text, Quic;
        /// Congestion window chosen at startup; absent if the controller used its own, as with
        /// `iw10`.
        start_window: i64, "bytes", Amount, Quic;
        /// Pacing rate chosen at startup.
        start_rate_mbps: f64, "Mbps", Amount, Quic;
        /// Outcome of a first flight beyond the initial window: `passed`, or `failed` if it met
        /// congestion; absent without one.
        jump: String, "", Text, Quic;
    }

    /// Stream rate, and cap of the user group.
    autoplex: AutoPlex {
        /// AutoPlex arm: `explorer`, `holdout`, `control` or `treated`; absent if AutoPlex is off.
        autoplex: String, "", Text, Quic;
        /// Published bit rate of the stream; absent within its first second.
        stream_mbps: f64, "Mbps", Amount, Server;
        /// Smallest pacing rate to which AutoPlex capped the session; absent without a cap.
        cap_mbps: f64, "Mbps", Amount, Quic;
    }

    /// Path and losses.
    path: Path {
        /// Name of `[quic] congestion`; over TCP, of the kernel's algorithm.
        congestion_controller: String, "", Text, Transport;
        /// Smallest round-trip time of the connection.
        rtt_min_ms: f64, "ms", Amount, Transport;
        /// Smoothed round-trip time at the end.
        rtt_ms: f64, "ms", Amount, Transport;
        /// Largest congestion window of the connection.
        max_window: i64, "bytes", Amount, Quic;
        /// Maximum bytes in flight of the connection.
        max_in_flight: i64, "bytes", Amount, Quic;
        /// Largest delivery rate of any flight: the maximum of BBR's filter. For streams below the
        /// bottleneck's rate, a lower bound of that rate.
        max_bandwidth_mbps: f64, "Mbps", Amount, Transport;
        /// Largest delivery rate of flights that were not application-limited: a lower bound of
        /// the bottleneck's rate, and AutoPlex's input.
        open_rate_mbps: f64, "Mbps", Amount, Quic;
        /// `packets_lost` ÷ `packets_settled`.
        loss_rate: f64, "ratio", Ratio, Transport;
        /// Packets acknowledged or declared lost.
        packets_settled: i64, "packets", Amount, Transport;
        /// Packets declared lost and not acknowledged later.
        packets_lost: i64, "packets", AtMost(packets_settled), Transport;
        /// Packets declared lost and acknowledged later.
        packets_spurious: i64, "packets", Amount, Transport;
        /// Runs of consecutive packet numbers declared lost, including spurious losses. Mean
        /// length: (`packets_lost` + `packets_spurious`) ÷ `bursts`.
        bursts: i64, "runs", Amount, Quic;
        /// Longest such run of the connection.
        burst_longest: i64, "packets", Amount, Quic;
    }

    /// Burst lengths: runs of `bursts` by their size.
    burst_lengths: BurstLengths {
        /// Runs of 1 packet among `bursts`.
        bursts_1: i64, "runs", AtMost(bursts), Quic;
        /// Runs of 2 packets.
        bursts_2: i64, "runs", AtMost(bursts), Quic;
        /// Runs of 3 to 4 packets.
        bursts_4: i64, "runs", AtMost(bursts), Quic;
        /// Runs of 5 to 8 packets.
        bursts_8: i64, "runs", AtMost(bursts), Quic;
        /// Runs of 9 to 16 packets.
        bursts_16: i64, "runs", AtMost(bursts), Quic;
        /// Runs of 17 to 32 packets.
        bursts_32: i64, "runs", AtMost(bursts), Quic;
        /// Runs of 33 to 64 packets.
        bursts_64: i64, "runs", AtMost(bursts), Quic;
        /// Runs of 65 to 128 packets; the rest of `bursts` is longer.
        bursts_128: i64, "runs", AtMost(bursts), Quic;
    }

    /// Loss correlation: packets by the time since an earlier lost one was sent.
    after_loss: AfterLoss {
        /// Packets sent at most 1 ms after a lost one.
        after_1ms_sent: i64, "packets", Amount, Quic;
        /// Lost ones among them.
        after_1ms_lost: i64, "packets", AtMost(after_1ms_sent), Quic;
        /// Packets sent more than 1, at most 5 ms after a lost one.
        after_5ms_sent: i64, "packets", Amount, Quic;
        /// Lost ones among them.
        after_5ms_lost: i64, "packets", AtMost(after_5ms_sent), Quic;
        /// Packets sent more than 5, at most 20 ms after a lost one.
        after_20ms_sent: i64, "packets", Amount, Quic;
        /// Lost ones among them.
        after_20ms_lost: i64, "packets", AtMost(after_20ms_sent), Quic;
        /// Packets sent more than 20, at most 50 ms after a lost one.
        after_50ms_sent: i64, "packets", Amount, Quic;
        /// Lost ones among them.
        after_50ms_lost: i64, "packets", AtMost(after_50ms_sent), Quic;
        /// Packets sent more than 50, at most 100 ms after a lost one.
        after_100ms_sent: i64, "packets", Amount, Quic;
        /// Lost ones among them.
        after_100ms_lost: i64, "packets", AtMost(after_100ms_sent), Quic;
        /// Packets sent more than 100, at most 200 ms after a lost one.
        after_200ms_sent: i64, "packets", Amount, Quic;
        /// Lost ones among them.
        after_200ms_lost: i64, "packets", AtMost(after_200ms_sent), Quic;
    }

    /// Loss recovery.
    recovery: Recovery {
        /// First transmissions: ack-eliciting packets that are not copies.
        first_transmissions: i64, "packets", Amount, Transport;
        /// Bytes of first transmissions.
        first_bytes: i64, "bytes", Amount, Transport;
        /// Retransmissions: the first copy of lost data in each round.
        retransmissions: i64, "packets", Amount, Transport;
        /// Retransmissions in round 2 and later.
        repeated_retransmissions: i64, "packets", Amount, Quic;
        /// `retransmissions` ÷ `first_transmissions`.
        retransmission_ratio: f64, "ratio", Amount, Transport;
        /// Further copies of lost data, and other packets that the recovery scheme adds.
        replicas: i64, "packets", Amount, Quic;
        /// Bytes of replicas.
        replica_bytes: i64, "bytes", Amount, Quic;
        /// `replicas` ÷ `first_transmissions`.
        redundancy_cost: f64, "ratio", Amount, Quic;
        /// Lost units that arrived after their first retransmission was lost.
        recovery_count: i64, "units", Amount, Quic;
        /// Mean recovery latency of these units: from loss detection to the sending of the copy
        /// that arrived. Absent if `recovery_count` is 0.
        recovery_mean_ms: f64, "ms", Amount, Quic;
        /// 95th percentile of the recovery latency, to within 4 %.
        recovery_p95_ms: f64, "ms", Amount, Quic;
        /// Maximum recovery latency.
        recovery_max_ms: f64, "ms", Amount, Quic;
        /// Mean T_unit: time from the first transmission of lost data to its first retransmission.
        t_unit_ms: f64, "ms", Amount, Quic;
        /// Lost units that arrived; a unit is the data of one lost packet.
        units_finished: i64, "units", Amount, Quic;
        /// Units among them with two or more rounds.
        units_late: i64, "units", AtMost(units_finished), Quic;
        /// Sum of rounds over `units_finished`.
        rounds: i64, "rounds", Amount, Quic;
        /// Maximum rounds of any unit of the connection.
        rounds_max: i64, "rounds", Amount, Quic;
        /// `units_late` ÷ `units_finished`.
        recovery_deterioration: f64, "ratio", Ratio, Quic;
        /// Time with nothing to send except replicas, per second of session.
        off_mode_ms_per_s: f64, "ms/s", Amount, Quic;
        /// Starts of such periods, per second of session.
        off_mode_entries_per_s: f64, "1/s", Amount, Quic;
    }

    /// Player's reports.
    player: Player {
        /// Time from the start of the request to the first picture.
        player_first_frame_ms: f64, "ms", Amount, Player;
        /// Played time.
        player_played_s: f64, "s", Amount, Player;
        /// Freezes after the first picture.
        player_freezes: i64, "times", Amount, Player;
        /// Frozen time.
        player_freeze_s: f64, "s", Amount, Player;
        /// Frames due at the player. Web players do not report it.
        player_frames: i64, "frames", Amount, Testbed;
        /// Frames among them that were complete more than 400 ms after their capture.
        player_late_frames: i64, "frames", AtMost(player_frames), Testbed;
        /// 1 if a player report exceeded the session. It was clamped, and averages exclude it.
        report_clamped: i64, "", Flag, Player;
    }
}

impl Column {
    /// Returns the column with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|column| column.name() == name)
    }

    const fn definition(self) -> &'static Definition {
        &DEFINITIONS[self as usize]
    }

    /// Returns the name in files.
    pub const fn name(self) -> &'static str {
        self.definition().name
    }

    /// Returns the type.
    pub const fn kind(self) -> Kind {
        self.definition().kind
    }

    /// Returns the unit; empty for text and flags.
    pub const fn unit(self) -> &'static str {
        self.definition().unit
    }

    /// Returns the range.
    pub const fn range(self) -> Range {
        self.definition().range
    }

    /// Returns the source.
    pub const fn source(self) -> Source {
        self.definition().source
    }

    /// Returns the meaning, in Markdown.
    pub fn meaning(self) -> &'static str {
        self.definition().meaning.trim()
    }

    /// Returns the title of the column's group.
    pub fn group(self) -> &'static str {
        self.definition().group.trim().trim_end_matches('.')
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Record {
    /// Returns the row as one line of JSON.
    pub fn json(&self) -> String {
        Value::from(self.object()).to_string()
    }
}

#[cfg(test)]
mod tests;
