//! Converts a set-up to the scenario of a run.

use core::net::Ipv4Addr;
use core::time::Duration;
use std::path::PathBuf;
use std::sync::Arc;

use congestion::Algorithm;
use links::{LinkConfig, Loss, LossPlace, PathConfig, Queue, Trace, Window};
use qoe::Policy;
use quic::detection::Detection;
use quic::{CopyAccounting, TransportConfig};
use recovery::Guard;
use startup::decision::{Limits, Mode};
use startup::{Cookie, PathState, Prefix};

use super::words::{Accounting, DetectionRules, Kind, Place};
use super::{Learnt, Setup};
use crate::client::ClientKind;
use crate::dash::{Dash, DashPlayer, Video};
use crate::ends::Cipher;
use crate::error::{Context as _, Error, ValueError};
use crate::identity::UNIX_ORIGIN;
use crate::live::{Encoder, Live, LiveSource, Recording};
use crate::simulation::{Rival, Scenario};
use crate::start_options::StartOptions;
use crate::traffic::Traffic;

/// Maximum duration of a playback, as multiple of the video's. Rebuffering may take the rest.
const MAX_PLAYBACK: u32 = 20;
/// Time allowed for the last frames of a stream.
const TAIL: Duration = Duration::from_secs(30);
/// Maximum of `[recovery] max_redundancy`, which no scheme reaches: runs without a guard, as in the
/// papers, whose event logs do not mention one.
pub(crate) const UNLIMITED: f64 = 10.0;
/// Packet size, in bytes.
const PACKET: u64 = 1_500;

/// Returns a period; `None` for 0.
fn period(period: Duration) -> Option<Duration> {
    (!period.is_zero()).then_some(period)
}

fn load(key: &str, path: Option<&PathBuf>) -> Result<Option<Trace>, Error> {
    let load = |path: &PathBuf| Trace::load(&path.display().to_string()).at(path).key(key);
    path.map(load).transpose()
}

impl Setup {
    fn path(&self) -> Result<PathConfig, Error> {
        let path = &self.lab.path;
        let loss = match (&*path.loss_model, path.loss) {
            (_, 0.0) => None,
            ("independent", share) => Some(share.to_string()),
            (model, share) => Some(model.replace("{}", &share.to_string())),
        };
        let loss = loss.map(|text| text.parse::<Loss>().key("path.loss_model"));
        let trace = load("path.trace", path.trace.as_ref())?;
        let trace_up = load("path.trace_up", path.trace_up.as_ref())?;
        let blackhole = path.blackhole.split(';').filter(|window| !window.trim().is_empty());
        let blackhole: Result<Vec<Window>, _> = blackhole.map(str::parse).collect();
        let both = LinkConfig {
            queue: self.queue(),
            delay: Some(path.rtt / 2),
            rtt_steps: path.rtt_steps.get(),
            jitter: path.jitter.get(),
            duplicate: path.duplicate.get().unwrap_or_default(),
            corrupt: path.corrupt.get().unwrap_or_default(),
            mtu: (path.mtu > 0).then_some(path.mtu),
            blackhole: blackhole.key("path.blackhole")?,
            ..LinkConfig::default()
        };
        let symmetric = || Some(path.rate).filter(|_| path.symmetric && trace_up.is_none());
        let up = LinkConfig {
            rate: path.rate_up.or_else(symmetric),
            loss: path.loss_up.get(),
            bunches: path.bunches_up.get(),
            ecn: path.ecn_up.get(),
            policer: path.policer_up.get(),
            trace: trace_up.clone(),
            ..both.clone()
        };
        let down = LinkConfig {
            rate: Some(path.rate).filter(|_| trace.is_none()),
            trace,
            loss: loss.transpose()?,
            loss_place: match path.loss_place {
                Place::AfterQueue => LossPlace::AfterQueue,
                Place::BeforeQueue => LossPlace::BeforeQueue,
            },
            reorder: path.reorder.get(),
            bunches: path.bunches.get(),
            ecn: path.ecn.get(),
            policer: path.policer.get(),
            ..both
        };
        Ok(PathConfig { down, up })
    }

    /// Round-trip time without queues, in milliseconds.
    pub(crate) fn rtt_ms(&self) -> f64 {
        self.lab.path.rtt.as_nanos() as f64 / 1e6
    }

    /// Bandwidth-delay product of the path with empty queues.
    pub(crate) fn bdp(&self) -> u64 {
        self.lab.path.rate.bytes_in(self.lab.path.rtt)
    }

    fn queue_limit(&self) -> u64 {
        match self.lab.path.queue_bdp {
            0.0 => self.lab.path.queue.0,
            products => ((self.bdp() as f64 * products) as u64).max(2 * PACKET),
        }
    }

    fn queue(&self) -> Queue {
        let limit = self.queue_limit();
        self.lab.path.queue_model.get().unwrap_or(match self.lab.path.codel {
            true => Queue::codel(limit),
            false => Queue::drop_tail(limit),
        })
    }

    /// Flow-control window of the client.
    pub(crate) fn window(&self) -> u64 {
        let window = match self.lab.player.window.0 {
            0 => (4 * self.bdp() + 2 * self.queue_limit()).max(1 << 20),
            window => window,
        };
        window.min(self.lab.player.client.largest_window())
    }

    fn traffic(&self, seed: u64) -> Result<Traffic, Error> {
        let source = &self.lab.source;
        Ok(match source.kind {
            Kind::Frames => {
                Traffic::Frames { rate: source.rate, fps: source.fps, cached: source.cached }
            }
            Kind::Unbounded => Traffic::Unbounded,
            Kind::Download => {
                let carried = self.lab.path.rate.bytes_in(source.transfer);
                Traffic::Download { bytes: source.bytes.0.max(carried) }
            }
            Kind::Live => Traffic::Live(self.live(seed)?),
            Kind::Dash => Traffic::Dash(self.dash(seed)),
        })
    }

    fn dash(&self, seed: u64) -> Dash {
        let (source, player) = (&self.lab.source, &self.lab.player);
        let segments = source.duration.as_nanos() / source.segment.as_nanos();
        Dash {
            video: Video {
                ladder: source.ladder.clone(),
                segment: source.segment,
                // A day of segments of 100 ms at most.
                segments: u32::try_from(segments).unwrap_or(u32::MAX),
                variation: source.size_variation,
                seed,
            },
            player: DashPlayer {
                adaptation: player.adaptation,
                start_after: player.start_after,
                resume_after: player.resume_after,
                max_buffer: player.max_buffer,
            },
        }
    }

    /// The stream of a live source, from a file or an encoder.
    fn live(&self, seed: u64) -> Result<Live, Error> {
        let source = &self.lab.source;
        let settings = delivery::relay_settings(&self.server.live);
        let start = delivery::start_policy(&self.server.live);
        let video_frames = delivery::video_frames(&self.server.startup);
        if let Some(flv) = &source.flv {
            let recording = Recording::load(flv).key("source.flv")?;
            let length = source.cached + source.duration;
            let stream = Arc::new(LiveSource::recorded(&recording, length));
            let begin = source.cached;
            return Ok(Live { source: stream, begin, settings, start, video_frames });
        }
        let before = self.pictures(source.cached);
        let live = Live::encoded(&self.encoder()?, seed, before, self.pictures(source.duration));
        Ok(Live { settings, start, video_frames, ..live })
    }

    /// Number of pictures in this time.
    fn pictures(&self, time: Duration) -> u32 {
        (time.as_secs_f64() * self.lab.source.fps).round() as u32
    }

    fn encoder(&self) -> Result<Encoder, ValueError> {
        let source = &self.lab.source;
        if source.audio >= source.rate {
            let (audio, rate) = (source.audio, source.rate);
            return Err(ValueError::Audio { audio, rate });
        }
        Ok(Encoder {
            rate: source.rate,
            interval: Duration::from_secs_f64(1.0 / source.fps),
            group: self.pictures(source.group).max(1),
            key_ratio: source.key_ratio,
            size_variation: source.size_variation,
            size_correlation: source.size_correlation,
            b_frames: source.b_frames,
            scene: source.scene,
            audio: source.audio,
        })
    }

    /// Startup mode of the connection, with the path state that the viewer's last visit saved.
    fn start_options(&self, mode: Mode) -> StartOptions {
        let (player, startup) = (&self.lab.player, &self.server.startup);
        let past = player.saved_rate.map(|max_rate| PathState {
            cookie: Cookie {
                min_rtt: player.saved_rtt,
                max_rate,
                usual_rate: player.saved_usual_rate.unwrap_or(max_rate),
                samples: 1,
                ..Cookie::unmeasured(UNIX_ORIGIN, Prefix::of(Ipv4Addr::LOCALHOST.into()), 0)
            },
            confidence: 1.0,
        });
        StartOptions {
            mode,
            past,
            is_early: player.early,
            limits: Limits {
                max_jump: startup.max_jump.0,
                usual_window: startup.usual_window.0,
                usual_rtt: startup.usual_rtt,
                ..Limits::default()
            },
        }
    }

    /// The rival sender on the bottleneck, if any. Controller and traffic default to the first
    /// sender's.
    fn rival(&self, traffic: &Traffic) -> Result<Option<Rival>, Error> {
        let rival = &self.lab.rival;
        let Some(scheme) = rival.scheme.get() else { return Ok(None) };
        let congestion: Algorithm = rival.congestion.get().unwrap_or(self.server.quic.congestion);
        Ok(Some(Rival {
            congestion: delivery::controller(congestion),
            scheme: self.maker(scheme, &Learnt::default())?,
            start_options: self
                .start_options(rival.startup.get().unwrap_or(self.server.startup.mode)),
            capping: None,
            traffic: if rival.unbounded { Traffic::Unbounded } else { traffic.clone() },
            begins: rival.from,
        }))
    }

    /// Returns the player of a viewer of a live source.
    pub(crate) fn player(&self) -> Policy {
        self.lab.player.model.0
    }

    fn detection(&self) -> Detection {
        let rules = match self.lab.lab.detection {
            DetectionRules::Live => {
                let longest_probe = Some(self.server.quic.longest_probe);
                Detection { longest_probe, ..Detection::LIVE }
            }
            DetectionRules::Rfc9002 => Detection::RFC9002,
            DetectionRules::Lsquic => Detection::LSQUIC,
        };
        Detection { tail: rules.tail && self.lab.lab.tail, ..rules }
    }

    fn guard(&self) -> Option<Guard> {
        let share = self.server.recovery.max_redundancy;
        let guard = Guard::new(share, None);
        let guard = match self.lab.lab.guard_burst {
            0 => guard,
            burst => guard.with_burst(burst),
        };
        (share < UNLIMITED).then_some(guard)
    }

    /// Checks keys that exclude or need each other.
    fn check(&self) -> Result<(), ValueError> {
        let (knobs, source, player) = (&self.lab.lab, &self.lab.source, &self.lab.player);
        let needs_real = knobs.cipher == Cipher::Null;
        for (is_wrong, what) in [
            (knobs.measure_from > source.duration, "`lab.measure_from` is after `source.duration`"),
            (
                source.same_connection && source.kind != Kind::Download,
                "`source.same_connection` is for downloads only",
            ),
            (knobs.twice && knobs.warm_up > 0, "`lab.twice` and `lab.warm_up` exclude each other"),
            (
                needs_real && player.client == ClientKind::Noq,
                "`player.client = \"noq\"` needs `lab.cipher = \"real\"`",
            ),
            (
                needs_real && self.lab.path.corrupt.get().is_some(),
                "`path.corrupt` needs `lab.cipher = \"real\"`",
            ),
        ] {
            if is_wrong {
                return Err(ValueError::Conflict(what));
            }
        }
        if source.kind == Kind::Dash { self.check_dash() } else { Ok(()) }
    }

    /// Checks durations of a video and its player against each other.
    fn check_dash(&self) -> Result<(), ValueError> {
        let (source, player) = (&self.lab.source, &self.lab.player);
        let (segment, buffer) = (source.segment, player.max_buffer);
        let (at_least, at_most) =
            (("at least", "source.segment"), ("at most", "player.max_buffer"));
        for (key, is_wrong, (bound, other)) in [
            ("source.duration", source.duration < segment, at_least),
            ("player.max_buffer", buffer < segment, at_least),
            ("player.start_after", player.start_after > buffer, at_most),
            ("player.resume_after", player.resume_after > buffer, at_most),
        ] {
            if is_wrong {
                return Err(ValueError::NotAllowed {
                    key: key.to_owned(),
                    value: self.text_of(key),
                    allowed: format!("{bound} `{other}`, {}", self.text_of(other)),
                });
            }
        }
        Ok(())
    }

    /// Builds the scenario for a seed with untrained schemes.
    ///
    /// # Errors
    /// One line that names the key with the invalid value.
    pub(crate) fn scenario(&self, seed: u64) -> Result<Scenario, Error> {
        self.scenario_after(seed, &Learnt::default())
    }

    /// Builds the scenario for a seed with schemes that start from `learnt` and keep training.
    ///
    /// # Errors
    /// As [`Setup::scenario`].
    pub(crate) fn scenario_after(&self, seed: u64, learnt: &Learnt) -> Result<Scenario, Error> {
        self.check()?;
        let Self { server, lab } = self;
        let traffic = self.traffic(seed)?;
        Ok(Scenario {
            path: self.path()?,
            client: lab.player.client,
            cipher: lab.lab.cipher,
            congestion: delivery::controller(server.quic.congestion),
            transport: TransportConfig {
                max_in_flight: server.quic.max_in_flight.0,
                max_ack_delay: server.quic.max_ack_delay,
                initial_mtu: server.quic.initial_mtu,
                max_mtu: server.quic.max_mtu,
                key_update_after: server.quic.key_update_after,
                accounting: match lab.lab.accounting {
                    Accounting::Every => CopyAccounting::Every,
                    Accounting::Newest => CopyAccounting::Newest,
                },
                ..TransportConfig::default()
            },
            start_options: self.start_options(server.startup.mode),
            detection: self.detection(),
            scheme: self.maker(server.recovery.scheme, learnt)?,
            guard: self.guard(),
            limit: match traffic {
                // The stream ends by itself. Data in flight then still arrives.
                Traffic::Live(_) => lab.source.duration + TAIL,
                Traffic::Dash(_) => lab.source.duration * MAX_PLAYBACK + TAIL,
                _ => lab.source.duration,
            },
            rival: self.rival(&traffic)?,
            traffic,
            acks: lab.player.acks.get(),
            rebind_every: period(lab.path.rebind),
            flap_every: period(lab.path.flap),
            reports: lab.player.reports.then_some(self.player()),
            times: if lab.source.same_connection { lab.source.requests } else { 1 },
            oracle: lab.lab.oracle,
            window: self.window(),
            seed,
            measure_from: lab.lab.measure_from,
            log_events: lab.lab.twice,
            ..Scenario::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use links::RareAcks;
    use units::Rate;

    /// Default set-up with these keys.
    fn with(keys: &[(&str, &str)]) -> Setup {
        let mut setup = Setup::default();
        for (key, text) in keys {
            setup.set_text(key, text).expect(key);
        }
        setup
    }

    fn refused(keys: &[(&str, &str)]) -> String {
        with(keys).scenario(1).err().expect("refused").to_string()
    }

    #[test]
    fn the_defaults_are_those_of_a_server() {
        let setup = Setup::default();
        let scenario = setup.scenario(1).expect("valid");
        assert_eq!(setup.scheme_name(), "deadline");
        assert_eq!(scenario.detection, Detection::LIVE);
        assert_eq!(scenario.start_options.mode, Mode::Steady);
        assert!(scenario.guard.is_some() && scenario.acks.is_none());
        assert!(scenario.flap_every.is_none() && scenario.rebind_every.is_none());
    }

    #[test]
    fn a_loss_model_replaces_the_loss_of_a_trace() {
        let path = std::env::temp_dir().join(format!("mendcast-trace-{}", std::process::id()));
        std::fs::write(&path, "0 6 40ms 0.5\n1 8 40ms 0.5\n").expect("written");
        let name = path.display().to_string();
        let down = |model: &str, loss: &str| {
            let keys = [("path.trace", &*name), ("path.loss_model", model), ("path.loss", loss)];
            with(&keys).scenario(1).expect("valid").path.down
        };
        let [own, none, calls] =
            [down("independent", "0"), down("none", "1%"), down("calls:rate={}", "5%")];
        std::fs::remove_file(&path).expect("removed");
        for down in [&own, &none, &calls] {
            assert!(down.trace.is_some() && down.rate.is_none());
        }
        assert_eq!((own.loss, none.loss), (None, Some(Loss::None)));
        assert_eq!(calls.loss, Some("calls:rate=5%".parse().expect("a loss")));
    }

    #[test]
    fn keys_of_an_encoder_describe_its_stream_and_a_file_replaces_it() {
        let keys = [
            ("source.kind", "live"),
            ("source.fps", "50"),
            ("source.group", "1s"),
            ("source.rate", "2mbps"),
            ("source.audio", "96kbps"),
            ("source.size_variation", "0.4"),
            ("source.b_frames", "1"),
        ];
        let encoder = with(&keys).encoder().expect("valid");
        assert_eq!((encoder.group, encoder.interval), (50, Duration::from_millis(20)));
        assert_eq!((encoder.rate, encoder.audio), (Rate::from_mbps(2), Rate::from_kbps(96)));
        assert_eq!((encoder.size_variation, encoder.b_frames, encoder.key_ratio), (0.4, 1, 6.0));
        let also = |key, text| keys.into_iter().chain([(key, text)]).collect::<Vec<_>>();
        assert!(refused(&also("source.rate", "90kbps")).contains("`source.audio`"));
        let line = refused(&also("source.flv", "/nowhere.flv"));
        assert!(line.contains("`source.flv`: /nowhere.flv"), "{line}");
    }

    #[test]
    fn durations_of_a_video_and_its_player_must_fit_together() {
        let dash = ("source.kind", "dash");
        for (keys, line) in [
            (
                &[dash, ("source.duration", "3s")][..],
                "`source.duration` is 3s; it may be at least `source.segment`, 4s",
            ),
            (
                &[dash, ("player.max_buffer", "3999ms"), ("player.start_after", "1s")],
                "`player.max_buffer` is 3999ms; it may be at least `source.segment`, 4s",
            ),
            (
                &[dash, ("player.start_after", "31s")],
                "`player.start_after` is 31s; it may be at most `player.max_buffer`, 30s",
            ),
            (
                &[dash, ("player.resume_after", "31s")],
                "`player.resume_after` is 31s; it may be at most `player.max_buffer`, 30s",
            ),
            (
                &[dash, ("source.same_connection", "true")],
                "`source.same_connection` is for downloads only",
            ),
        ] {
            assert_eq!(refused(keys), line);
        }
        let longest = [dash, ("source.duration", "86400s"), ("source.segment", "100ms")];
        let Traffic::Dash(longest) = with(&longest).scenario(1).expect("valid").traffic else {
            panic!("no video");
        };
        assert_eq!(longest.video.segments, 864_000);
        let Traffic::Dash(usual) = with(&[dash]).scenario(7).expect("valid").traffic else {
            panic!("no video");
        };
        assert_eq!((usual.video.segments, usual.video.seed), (15, 7));
        // Other sources ignore the player of a video.
        assert!(with(&[("player.start_after", "31s")]).scenario(1).is_ok());
    }

    #[test]
    fn contradictions_and_unreadable_files_are_rejected_by_key() {
        for (keys, part) in [
            (&[("recovery.scheme", "autorec-mm24"), ("lab.sigmoid", "-1")][..], "`a`"),
            (&[("lab.twice", "true"), ("lab.warm_up", "1")], "`lab.twice`"),
            (&[("source.same_connection", "true")], "`source.same_connection`"),
            (&[("player.client", "noq")], "real"),
            (&[("path.corrupt", "1%")], "real"),
            (&[("lab.measure_from", "61s")], "`lab.measure_from`"),
            (&[("recovery.scheme", "art-dqn"), ("recovery.dqn", "/nowhere")], "/nowhere"),
            (&[("path.trace_up", "/nowhere")], "`path.trace_up`"),
            (&[("path.loss_model", "x:{}")], "`path.loss_model`"),
            (&[("path.blackhole", "2s")], "2s,500ms"),
        ] {
            let line = refused(keys);
            assert!(line.contains(part), "{keys:?}: {line}");
        }
    }

    #[test]
    fn keys_of_links_reach_their_direction() {
        type Test = fn(&LinkConfig) -> bool;
        for (key, text, test, expected) in [
            ("path.bunches", "200ms", (|link| link.bunches.is_some()) as Test, (true, false)),
            ("path.bunches_up", "300ms,awake=30ms", |link| link.bunches.is_some(), (false, true)),
            ("path.ecn", "bleach", |link| link.ecn.is_some(), (true, false)),
            ("path.ecn_up", "drop", |link| link.ecn.is_some(), (false, true)),
            ("path.policer", "2mbps,burst=20kB", |link| link.policer.is_some(), (true, false)),
            ("path.policer_up", "2mbps,burst=20kB", |link| link.policer.is_some(), (false, true)),
            ("path.rtt_steps", "1s:9ms", |link| link.rtt_steps.is_some(), (true, true)),
            ("path.jitter", "5ms", |link| link.jitter.is_some(), (true, true)),
            ("path.mtu", "1400", |link| link.mtu == Some(1_400), (true, true)),
            ("path.blackhole", "2s,500ms; 8s,1s", |link| link.blackhole.len() == 2, (true, true)),
            ("path.rate_up", "2mbps", |link| link.rate.is_some(), (true, true)),
            ("path.queue_model", "codel", |l| l.queue == Queue::codel(500_000), (true, true)),
            (
                "path.loss_place",
                "before-queue",
                |link| link.loss_place == LossPlace::BeforeQueue,
                (true, false),
            ),
            (
                "path.duplicate",
                "1%",
                |link| Some(link.duplicate) == "1%".parse().ok(),
                (true, true),
            ),
        ] {
            let path = with(&[(key, text)]).scenario(1).expect(key).path;
            assert_eq!((test(&path.down), test(&path.up)), expected, "{key}");
        }
        let keys = [("path.corrupt", "1%"), ("lab.cipher", "real")];
        let path = with(&keys).scenario(1).expect("valid").path;
        assert_eq!(Some(path.down.corrupt), "1%".parse().ok());
    }

    #[test]
    fn keys_of_clients_reach_the_client() {
        let scenario = |key, text| with(&[(key, text)]).scenario(1).expect(key);
        assert_eq!(scenario("player.acks", "chromium").acks, Some(RareAcks::CHROMIUM));
        let rare = scenario("player.acks", "each=32,within=250ms").acks;
        assert_eq!(rare.map(|acks| acks.each), Some(32));
        let ms = |ms| Some(Duration::from_millis(ms));
        assert_eq!(scenario("path.flap", "50ms").flap_every, ms(50));
        assert_eq!(scenario("path.rebind", "400ms").rebind_every, ms(400));
    }

    #[test]
    fn the_transport_of_lsquic_is_selected_by_words() {
        let ours = with(&[]).scenario(1).expect("valid");
        assert_eq!(ours.transport.accounting, CopyAccounting::Every);
        let keys = [
            ("lab.detection", "lsquic"),
            ("lab.accounting", "newest"),
            ("quic.congestion", "cubic-lsquic"),
        ];
        let theirs = with(&keys).scenario(1).expect("valid");
        assert_eq!(theirs.transport.accounting, CopyAccounting::Newest);
        assert_eq!(theirs.detection, Detection::LSQUIC);
        assert_eq!((theirs.congestion)(1_200, 1).name(), "cubic-lsquic");
    }

    #[test]
    fn limits_of_art_that_its_paper_lacks_can_be_removed() {
        use recovery::{LossSignal, WindowExcess};
        let built = |scheme, keys: &[(&str, &str)]| {
            let keys = [&[("recovery.scheme", scheme)], keys].concat();
            let scheme = (with(&keys).scenario(1).expect("valid").scheme)(1);
            (scheme.excess, scheme.signal)
        };
        let paper = [("lab.excess", "unbounded"), ("lab.heavy_loss", "false")];
        let ours = (WindowExcess::Bounded, LossSignal::WhollyLostUnlessHeavy);
        for scheme in ["art-paper", "art-code", "art-dqn"] {
            assert_eq!(built(scheme, &[]), ours, "{scheme}");
            let papers = (WindowExcess::Unbounded, LossSignal::WhollyLost);
            assert_eq!(built(scheme, &paper), papers, "{scheme}");
        }
        let without = (WindowExcess::Never, LossSignal::Every);
        for scheme in ["arq", "or3", "deadline"] {
            assert_eq!(built(scheme, &paper), without, "{scheme} has no such limits");
        }
    }
}
