//! Sections of an experiment beside a server's own: path, player, source, rival, and knobs that
//! only the testbed has.

use core::time::Duration;
use std::path::PathBuf;

use config::Size;
use congestion::Algorithm;
use links::{Bunches, EcnPolicy, Jitter, Loss, Policer, Probability, Queue, RareAcks};
use links::{Reorder, Steps};
use recovery::catalog::Choice;
use startup::decision::Mode;
use units::Rate;

use super::maybe::{Maybe, PlayerModel};
use super::words::{
    Accounting, Correlation, DetectionRules, Excess, Gammas, Kind, PenaltyForm, Place, Readings,
    Spreads,
};
use crate::client::ClientKind;
use crate::dash::{Adaptation, Ladder};
use crate::ends::Cipher;
use crate::simulation::Oracle;

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// Longest duration of a run.
const DAY: Duration = Duration::from_secs(86_400);

config::sections! {
    /// Sections of the testbed. Defaults: AutoRec's testbed where its paper states it.
    Laboratory;

    /// The path between server and client.
    [path] Path {
        /// Bottleneck rate towards the client.
        rate: Rate = Rate::from_mbps(12), in Rate::from_kbps(10)..=Rate::from_mbps(100_000);
        /// Round-trip time without queues, half of it in each direction.
        rtt: Duration = MILLISECOND * 60, in Duration::ZERO..=MINUTE;
        /// Mean loss rate towards the client. `loss_up` sets the other direction.
        loss: f64 = 0.05, in 0.0..=0.99;
        /// "independent", or a loss model of `links` with `{}` in place of `loss`.
        loss_model: String = "independent".to_owned();
        /// Loss model of the return path; no loss if empty.
        loss_up: Maybe<Loss> = Maybe::default();
        /// Place of losses towards the client.
        loss_place: Place = Place::AfterQueue;
        /// Capacity of the bottleneck queue: drop-tail unless `codel` is set.
        queue: Size = Size(500_000), in Size(1_500)..=Size(1_000_000_000_000);
        /// Queue capacity in bandwidth-delay products, at least two packets; 0 leaves it to
        /// `queue`.
        queue_bdp: f64 = 0.0, in 0.0..=1_000.0;
        /// Whether CoDel manages the queue (RFC 8289, 5 ms and 100 ms).
        codel: bool = false;
        /// Queue model of `links` that overrides the three keys above; none if empty.
        queue_model: Maybe<Queue> = Maybe::default();
        /// Share of packets overtaken by later ones, and their extra delay; none if empty.
        reorder: Maybe<Reorder> = Maybe::default();
        /// Whether the return path has the same rate and queue. Otherwise it only adds delay.
        symmetric: bool = false;
        /// Rate of the return path, with the same queue; `symmetric` decides if unset.
        rate_up: Option<Rate> = None, example "\"2mbps\"";
        /// Delay variation in both directions; none if empty.
        jitter: Maybe<Jitter> = Maybe::default();
        /// Share of duplicated packets in both directions.
        duplicate: Maybe<Probability> = Maybe::default();
        /// Share of corrupted packets in both directions. Needs `[lab] cipher = "real"`, which
        /// detects corruption.
        corrupt: Maybe<Probability> = Maybe::default();
        /// Path MTU in bytes including the IP header, in both directions; no limit if 0.
        mtu: u32 = 0, in 0..=65_535;
        /// Outages of both directions: "2s,500ms", several separated by `;`; none if empty.
        blackhole: String = String::new();
        /// Link-layer wake-ups that packets to the client wait for; none if empty.
        bunches: Maybe<Bunches> = Maybe::default();
        /// The same for the return path.
        bunches_up: Maybe<Bunches> = Maybe::default();
        /// Round-trip times that replace `rtt` from the given virtual times on; none if empty.
        rtt_steps: Maybe<Steps> = Maybe::default();
        /// ECN treatment of packets to the client; none if empty.
        ecn: Maybe<EcnPolicy> = Maybe::default();
        /// The same for the return path.
        ecn_up: Maybe<EcnPolicy> = Maybe::default();
        /// Token bucket in front of the queue that drops the excess; none if empty.
        policer: Maybe<Policer> = Maybe::default();
        /// The same for the return path.
        policer_up: Maybe<Policer> = Maybe::default();
        /// Period at which a NAT changes the client's port and forgets the old one, from the first
        /// byte on; 0s for never.
        rebind: Duration = Duration::ZERO, in Duration::ZERO..=SECOND * 1_000;
        /// Period at which the client alternates between two valid addresses, from the first byte
        /// on; 0s for one address.
        flap: Duration = Duration::ZERO, in Duration::ZERO..=SECOND * 1_000;
        /// File with recorded conditions that replaces `rate`. Its loss rates apply only with
        /// `loss = 0`; otherwise `loss_model` alone decides ("none" for no loss). Its round-trip
        /// times are ignored: `rtt` sets them.
        trace: Option<PathBuf> = None, example "\"lte.trace\"";
        /// The same for the return path, which is unlimited if unset.
        trace_up: Option<PathBuf> = None, example "\"lte-up.trace\"";
    }

    /// The viewer: client, player, and saved path state.
    [player] Viewer {
        /// Model of the player: a `qoe` preset ("low-latency", "mobile", "cautious"), or one with
        /// a target buffer, "buffer:300ms" (100 ms to 10 s).
        model: PlayerModel = PlayerModel::default();
        /// Whether the player reports its buffer level to the server every 5 s.
        reports: bool = false;
        /// The client's library.
        client: ClientKind = ClientKind::Quinn;
        /// Acknowledgement frequency of the client, or "chromium" (after 100 packets, every tenth
        /// packet, within 25 ms or a quarter of the round-trip time). Every second packet if
        /// empty.
        acks: Maybe<RareAcks> = Maybe::default();
        /// Flow-control window of the client, limited by its library. 0B: four bandwidth-delay
        /// products and two queues, at least 1 MiB.
        window: Size = Size::from_mib(16), in Size(0)..=Size(1_000_000_000_000);
        /// Maximum delivery rate in the path state that the last visit saved; none if unset.
        saved_rate: Option<Rate> = None, example "\"8mbps\"";
        /// Usual rate in the saved path state, which "steady" and "careful" use; `saved_rate` if
        /// unset.
        saved_usual_rate: Option<Rate> = None, example "\"6mbps\"";
        /// Round-trip time in the saved path state.
        saved_rtt: Duration = MILLISECOND * 50, in Duration::from_micros(50)..=SECOND * 10;
        /// Whether the request arrived in 0-RTT data. Startup then has no round-trip sample, only
        /// the saved or the usual value.
        early: bool = false;
        /// DASH: rule that chooses bitrates: "throughput" (rate-based: 0.9 of a moving average),
        /// "average" (rate-based: mean download rate over 1.2), or "bba" (buffer-based: BBA-0).
        adaptation: Adaptation = Adaptation::Throughput;
        /// DASH: buffered media required to start playback, at most `max_buffer`. Usual: one to
        /// three segments.
        start_after: Duration = SECOND * 4, in MILLISECOND..=MINUTE * 10;
        /// DASH: buffered media required to resume playback after rebuffering, at most
        /// `max_buffer`.
        resume_after: Duration = SECOND * 4, in MILLISECOND..=MINUTE * 10;
        /// DASH: maximum of buffered media, at least one segment. The next segment is requested
        /// once it fits. Usual: 12 s (dash.js) to 240 s (BBA's deployment).
        max_buffer: Duration = SECOND * 30, in MILLISECOND * 100..=MINUTE * 10;
    }

    /// The data that the server sends.
    [source] Stream {
        /// "frames" of equal size, "unbounded" data, a "download", "live": an encoder's stream or a
        /// file through the product's relay, or "dash": a video with several bitrates, segment by
        /// segment over HTTP/3.
        kind: Kind = Kind::Frames;
        /// Rate of the frames or the stream, sound included.
        rate: Rate = Rate::from_mbps(4), in Rate::from_kbps(1)..=Rate::from_mbps(100_000);
        /// Frames (pictures) per second. Usual for streams: 15 to 60.
        fps: f64 = 30.0, in 0.1..=10_000.0;
        /// Live: length of a group of pictures, each starting with a key frame. Usual: 1 to 4 s;
        /// platforms ask encoders for 2 s.
        group: Duration = SECOND * 2, in MILLISECOND * 10..=MINUTE;
        /// Live: size ratio of a key frame to a P-frame. Usual: 3 to 10. Test Model 5 of MPEG-2
        /// starts at 2.7; WebRTC's encoder allows at most 9 times the mean frame.
        key_ratio: f64 = 6.0, in 0.1..=1_000.0;
        /// Live and DASH: standard deviation of the logarithm of frame or segment sizes; 0 for one
        /// size per frame type or bitrate. The rate per group of pictures stays exact, and the mean
        /// rate of a video stays near its bitrate. Sizes are lognormal (Krunz and Tripathi,
        /// SIGMETRICS 1997). The width depends on the content: we chose 0.2 for a talk and 0.6 for
        /// sport.
        size_variation: f64 = 0.0, in 0.0..=2.0;
        /// Live: correlation of that logarithm between consecutive frames. Usual within a scene:
        /// 0.5 to 0.9 (our choice).
        size_correlation: f64 = 0.0, in 0.0..=0.999;
        /// Live: mean time between scene changes, where a P-frame is as large as a key frame; none
        /// if 0s.
        scene: Duration = Duration::ZERO, in Duration::ZERO..=DAY;
        /// Live: consecutive B-frames. They delay capture by one interval more than their number.
        /// Usual: 0 (x264's `zerolatency`) to 3 (its default).
        b_frames: u32 = 0, in 0..=16;
        /// Live: rate of the sound (AAC, frames of 1,024 samples at 48 kHz), part of `rate`; none
        /// if 0bps. Usual: 64 to 160 kbps.
        audio: Rate = Rate::from_bps(0), in Rate::from_bps(0)..=Rate::from_mbps(1);
        /// Live: FLV file to publish in a loop instead of an encoder's frames. The encoder's keys
        /// are then ignored.
        flv: Option<PathBuf> = None, example "\"clip.flv\"";
        /// Live and frames: length of the data already cached when a request arrives.
        cached: Duration = Duration::ZERO, in Duration::ZERO..=MINUTE * 60;
        /// DASH: bitrates of the video, rising. Default: Big Buck Bunny in the DASH dataset of
        /// 2014.
        ladder: Ladder = Ladder::default();
        /// DASH: duration of a segment. Usual: 2 to 10 s.
        segment: Duration = SECOND * 4, in MILLISECOND * 100..=MINUTE;
        /// Size of a download.
        bytes: Size = Size(1_000_000), in Size(1)..=Size(1_000_000_000_000);
        /// Minimum size of a download, as transfer time at `[path] rate`.
        transfer: Duration = Duration::ZERO, in Duration::ZERO..=DAY;
        /// Consecutive downloads, each on a new connection or all on one.
        requests: u32 = 1, in 1..=10_000;
        /// Whether all requests share one connection and its learned state.
        same_connection: bool = false;
        /// Virtual duration of streams and endless sources; timeout of downloads. DASH: duration of
        /// the video, in whole segments. Its playback may take 20 times as long.
        duration: Duration = MINUTE, in MILLISECOND * 100..=DAY;
    }

    /// A second sender on the bottleneck. Empty and unset keys are as of the first sender.
    [rival] Second {
        /// Recovery scheme; no second sender if empty.
        scheme: Maybe<Choice> = Maybe::default();
        /// Whether it sends endless data instead of the first sender's source.
        unbounded: bool = false;
        /// Congestion controller.
        congestion: Maybe<Algorithm> = Maybe::default();
        /// Startup mode of its live view.
        startup: Maybe<Mode> = Maybe::default();
        /// Virtual time at which it starts. The first sender starts at 0.
        from: Duration = Duration::ZERO, in Duration::ZERO..=DAY;
    }

    /// Knobs that no server has: variants of papers, ablations, and knowledge that only the
    /// testbed can give.
    [lab] Knobs {
        /// Loss detection: "live" (the edge's, with `[quic] longest_probe`), "rfc9002", or
        /// "lsquic" (AutoRec's base).
        detection: DetectionRules = DetectionRules::Live;
        /// Copies of lost data in flight: "every" (any server's) or "newest", which takes its
        /// predecessor's place and leaves no trace in congestion control (AutoRec's base).
        accounting: Accounting = Accounting::Every;
        /// Whether a PING reveals the loss of a frame's last packet (`detection = "live"` only).
        tail: bool = true;
        /// Knowledge of packet fates, for bounds on achievable results.
        oracle: Oracle = Oracle::None;
        /// Copies allowed beyond `[recovery] max_redundancy`, in packets; 0 for the edge's default.
        guard_burst: u32 = 0;
        /// Whether copies are sent only when no other data waits.
        when_idle: bool = false;
        /// Protection of packets at both ends: "null", which costs no time, or "real", which the
        /// client "noq" needs.
        cipher: Cipher = Cipher::Null;
        /// Virtual time at which measurement of goodput and loss recovery starts.
        measure_from: Duration = Duration::ZERO, in Duration::ZERO..=DAY;
        /// Whether each run is made twice with a full event log, for the metrics `event_log` and
        /// `same_log`.
        twice: bool = false;
        /// Spare: minimum spacing of copies in time.
        apart: Duration = MILLISECOND * 20, in Duration::ZERO..=SECOND * 10, for Apart;
        /// Spare: minimum spacing of copies in round-trip times; the larger one applies.
        apart_rtts: f64 = 0.25, in 0.0..=10.0, for Apart;
        /// Deadline: whether data is sent once more when its acknowledgement is overdue.
        overdue: bool = true, for Deadline;
        /// Deadline: source of the loss correlation: "measured", "expected" (prior only), or
        /// "nothing" (independent losses).
        correlation: Correlation = Correlation::Measured, for Deadline;
        /// Level of "autorec-fixed", or R of "fixed".
        level: u32 = 0, in 0..=10, for Level;
        /// AutoRec: whether copies are sent at once in off-mode.
        off_mode: bool = true, for Occasions;
        /// AutoRec: whether copies are sent when a unit was silent for T_thres.
        opportunistic: bool = true, for Occasions;
        /// MM'24: α of the sigmoid.
        sigmoid: f64 = 0.1, for Utility;
        /// MM'24: Θ.
        theta: Duration = MILLISECOND * 50, in Duration::ZERO..=SECOND * 1_000, for Utility;
        /// MM'24: R_nor.
        r_nor: f64 = 0.03, for Utility;
        /// MM'24: highest level.
        max_level: u32 = 4, for Utility;
        /// MM'24: whether an E_waiting below Θ disables copies.
        gate: bool = true, for Utility;
        /// MM'24: fraction of Θ below which E_waiting disables copies again. The paper has no such
        /// band, which is 1.0.
        gate_band: f64 = 0.9, in 0.0..=1.0, for Utility;
        /// MM'24: loss rate above which copies are disabled; 1.0 is never. The paper's deployment
        /// has 0.1 (section 5.2).
        off_above: f64 = 1.0, in 0.0..=1.0, for Utility;
        /// MM'24: length of a decision interval in round-trip times.
        interval_rtts: u32 = 5, for Utility;
        /// Meaning of R in sweeps over both: "own" is the scheme's as named, "copies" selects the
        /// scheme's variant `-copies`.
        reading: Readings = Readings::Own, for Reading;
        /// ART: L_queue.
        queue_length: u32 = 10, in 1..=10_000, for Queue;
        /// ART and "fixed": copies are sent "at-once", or at random within the "escape-space" or
        /// the smallest "round-trip" time; "own" is the scheme's.
        spread: Spreads = Spreads::Own, for Spread;
        /// α of the escape space.
        escape_alpha: f64 = 1.0, in 1.0..=1e6, for Spread;
        /// ART: copies beyond the congestion window, "bounded" to 2 packets or a quarter of it (the
        /// edge's) or "unbounded" (paper).
        excess: Excess = Excess::Bounded, for Spread;
        /// ART: whether every loss signals congestion while more than 20 % are lost (the edge's).
        /// The paper has no such rule.
        heavy_loss: bool = true, for Spread;
        /// Bandits and DQN: training downloads before the first measured one. Knowledge is then
        /// kept between the downloads of a run. With 0 every connection starts untrained.
        warm_up: u32 = 0, in 0..=10_000, for Arms;
        /// Bandits, and the DQN in training: penalty of a lost round, as "quotient" of rounds and R
        /// (paper) or as their "product" (authors' code).
        penalty: PenaltyForm = PenaltyForm::Quotient, for Arms;
        /// DQN without a network of its own: γ of its network's training. "0.9", "0.95",
        /// "1", "1.05", or "1.1".
        gamma: Gammas = Gammas::G1_05, for Weights;
    }

    ;
}
