//! Converts settings to the scenario of a run.

use core::fmt::Display;
use core::net::Ipv4Addr;
use core::str::FromStr;
use core::time::Duration;
use std::sync::Arc;

use congestion::Algorithm;
use links::{LinkConfig, PathConfig, Queue, RareAcks, Trace, parse_rate};
use qoe::Policy;
use quic::detection::Detection;
use recovery::Guard;
use startup::decision::Limits;
use startup::{Cookie, PathState, Prefix};
use units::Rate;

use super::schemes::Learnt;
use super::settings::{Settings, Source, word};
use crate::client::ClientKind;
use crate::ends::Cipher;
use crate::identity::UNIX_ORIGIN;
use crate::live::{Encoder, Live, Recording, Source as Stream};
use crate::simulation::{Oracle, Rival, Scenario};
use crate::start_options::StartOptions;
use crate::traffic::Traffic;

/// Time allowed for the last frames of a stream, in seconds.
const TAIL_SECONDS: f64 = 30.0;
/// Packet size, in bytes.
const PACKET: u64 = 1_500;

/// Parses the link model of a key; `None` if empty.
fn model<T: FromStr<Err: Display>>(key: &str, text: &str) -> Result<Option<T>, String> {
    let parsed = (!text.is_empty()).then(|| text.parse());
    parsed.transpose().map_err(|e| format!("`{key}`: {e}"))
}

/// Converts milliseconds to a period; `None` for 0.
fn period(ms: f64) -> Option<Duration> {
    (ms > 0.0).then(|| Duration::from_secs_f64(ms / 1e3))
}

impl Settings {
    fn algorithm(name: &str, key: &str) -> Result<Algorithm, String> {
        word(key, name, &Algorithm::ALL.map(|algorithm| (algorithm.name(), algorithm)))
    }

    fn path(&self) -> Result<PathConfig, String> {
        let loss = match (&*self.loss_model, self.loss_percent) {
            (_, 0.0) => None,
            ("independent", percent) => Some(format!("{percent}%")),
            (model, percent) => Some(model.replace("{}", &format!("{percent}%"))),
        };
        let loss =
            loss.map(|text| text.parse().map_err(|e| format!("`loss_model`: {e}"))).transpose()?;
        let load = |key: &str, path: &str| match path {
            "" => Ok(None),
            path => Trace::load(path).map(Some).map_err(|e| format!("`{key}`: {path}: {e}")),
        };
        let (trace, trace_up) = (load("trace", &self.trace)?, load("trace_up", &self.trace_up)?);
        let blackhole = self.blackhole.split(';').filter(|window| !window.trim().is_empty());
        let blackhole: Result<Vec<_>, _> = blackhole.map(str::parse).collect();
        let both = LinkConfig {
            queue: self.queue_discipline()?,
            delay: Some(Duration::from_secs_f64(self.rtt_ms / 2e3)),
            rtt_steps: model("rtt_steps", &self.rtt_steps)?,
            jitter: model("jitter", &self.jitter)?,
            duplicate: model("duplicate", &self.duplicate)?.unwrap_or_default(),
            corrupt: model("corrupt", &self.corrupt)?.unwrap_or_default(),
            mtu: (self.mtu > 0).then_some(self.mtu),
            blackhole: blackhole.map_err(|e| format!("`blackhole`: {e}"))?,
            ..LinkConfig::default()
        };
        let rate = Some(self.rate());
        let rate_up = match &*self.rate_up {
            "" => rate.filter(|_| self.symmetric && trace_up.is_none()),
            rate_up => Some(parse_rate(rate_up).map_err(|e| format!("`rate_up`: {e}"))?),
        };
        let down = LinkConfig {
            rate: rate.filter(|_| trace.is_none()),
            trace,
            loss,
            loss_place: self.loss_place.parse().map_err(|e| format!("`loss_place`: {e}"))?,
            reorder: model("reorder", &self.reorder)?,
            bunches: model("bunches", &self.bunches)?,
            ecn: model("ecn", &self.ecn)?,
            policer: model("policer", &self.policer)?,
            ..both.clone()
        };
        let up = LinkConfig {
            rate: rate_up,
            trace: trace_up,
            loss: model("loss_up", &self.loss_up)?,
            bunches: model("bunches_up", &self.bunches_up)?,
            ecn: model("ecn_up", &self.ecn_up)?,
            policer: model("policer_up", &self.policer_up)?,
            ..both
        };
        Ok(PathConfig { down, up })
    }

    fn rate(&self) -> Rate {
        Rate::from_kbps((self.rate_mbps * 1e3).round() as u64)
    }

    /// Bandwidth-delay product of the path with empty queues.
    pub(super) fn bdp(&self) -> u64 {
        self.rate().bytes_in(Duration::from_secs_f64(self.rtt_ms / 1e3))
    }

    fn queue_limit(&self) -> u64 {
        match self.queue_bdp {
            0.0 => self.queue_bytes,
            products => ((self.bdp() as f64 * products) as u64).max(2 * PACKET),
        }
    }

    fn queue_discipline(&self) -> Result<Queue, String> {
        let limit = self.queue_limit();
        let queue = model("queue", &self.queue)?;
        Ok(queue.unwrap_or(match self.codel {
            true => Queue::codel(limit),
            false => Queue::drop_tail(limit),
        }))
    }

    /// Acknowledgement frequency of the client.
    fn acks(&self) -> Result<Option<RareAcks>, String> {
        match (model("acks", &self.acks)?, self.sparse_acks) {
            (Some(_), true) => Err("`acks` and `sparse_acks` exclude each other".to_owned()),
            (acks, is_sparse) => Ok(acks.or(is_sparse.then_some(RareAcks::CHROMIUM))),
        }
    }

    /// Flow-control window of the client.
    pub(super) fn window(&self) -> u64 {
        let window = match self.window_bytes {
            0 => (4 * self.bdp() + 2 * self.queue_limit()).max(1 << 20),
            window => window,
        };
        window.min(self.client.largest_window())
    }

    fn traffic(&self, seed: u64) -> Result<Traffic, String> {
        Ok(match self.source {
            Source::Frames => Traffic::Frames {
                rate: Rate::from_kbps((self.stream_mbps * 1e3).round() as u64),
                fps: self.fps,
                cached: Duration::from_secs_f64(self.cached_seconds),
            },
            Source::Unbounded => Traffic::Unbounded,
            Source::Download => {
                let carried = self.rate().bytes_in(Duration::from_secs_f64(self.bytes_seconds));
                Traffic::Download { bytes: self.bytes.max(carried) }
            }
            Source::Live => Traffic::Live(self.live(seed)?),
        })
    }

    /// The stream of a `live` source, from a file or an encoder.
    fn live(&self, seed: u64) -> Result<Live, String> {
        if !self.flv.is_empty() {
            let recording = Recording::load(&self.flv).map_err(|e| format!("`flv`: {e}"))?;
            let begin = Duration::from_secs_f64(self.cached_seconds);
            let length = begin + Duration::from_secs_f64(self.seconds);
            let source = Arc::new(Stream::recorded(&recording, length));
            return Ok(Live { source, begin, settings: self.relay() });
        }
        let encoder = self.encoder()?;
        let before = self.pictures(self.cached_seconds);
        let live = Live::encoded(&encoder, seed, before, self.pictures(self.seconds));
        Ok(Live { settings: self.relay(), ..live })
    }

    fn relay(&self) -> relay::Settings {
        let settings = relay::Settings::default();
        let lags = relay::Lags { thin: self.thin_lag_ms.round() as u32, ..settings.lags };
        relay::Settings { lags, ..settings }
    }

    /// Number of pictures in this time.
    fn pictures(&self, seconds: f64) -> u32 {
        (seconds * self.fps).round() as u32
    }

    fn encoder(&self) -> Result<Encoder, String> {
        let kbps = |kbps: f64| Rate::from_kbps(kbps.round() as u64);
        let (rate, audio) = (kbps(self.stream_mbps * 1e3), kbps(self.audio_kbps));
        if audio >= rate {
            return Err(format!("`audio_kbps` is {audio}; it is part of `stream_mbps`, {rate}"));
        }
        Ok(Encoder {
            rate,
            interval: Duration::from_secs_f64(1.0 / self.fps),
            group: self.pictures(self.group_seconds).max(1),
            key_ratio: self.key_ratio,
            size_variation: self.size_variation,
            size_correlation: self.size_correlation,
            b_frames: self.b_frames,
            scene: Duration::from_secs_f64(self.scene_seconds),
            audio,
        })
    }

    /// Startup mode of the connection and the contents of its cookie.
    fn start_options(&self, key: &str, mode: &str) -> Result<StartOptions, String> {
        let ms = |ms: f64| Duration::from_secs_f64(ms / 1e3);
        let mbps = |mbps: f64| Rate::from_kbps((mbps * 1e3).round() as u64);
        let usual = if self.past_usual_mbps > 0.0 { self.past_usual_mbps } else { self.past_mbps };
        let cookie = Cookie {
            min_rtt: ms(self.past_rtt_ms),
            max_rate: mbps(self.past_mbps),
            usual_rate: mbps(usual),
            samples: 1,
            ..Cookie::unmeasured(UNIX_ORIGIN, Prefix::of(Ipv4Addr::LOCALHOST.into()), 0)
        };
        Ok(StartOptions {
            mode: mode.parse().map_err(|e| format!("`{key}`: {e}"))?,
            past: (self.past_mbps > 0.0).then_some(PathState { cookie, confidence: 1.0 }),
            is_early: self.early,
            limits: Limits {
                max_jump: self.max_jump_bytes,
                usual_window: self.usual_window_bytes,
                usual_rtt: ms(self.usual_rtt_ms),
                ..Limits::default()
            },
        })
    }

    /// The rival sender on the bottleneck, if any. Controller and traffic default to the first
    /// sender's.
    fn rival(&self, congestion: Algorithm, traffic: &Traffic) -> Result<Option<Rival>, String> {
        if self.rival.is_empty() {
            return Ok(None);
        }
        let congestion = match &*self.rival_congestion {
            "" => congestion,
            name => Self::algorithm(name, "rival_congestion")?,
        };
        let (key, start) = match &*self.rival_start {
            "" => ("start", &self.start),
            _ => ("rival_start", &self.rival_start),
        };
        let sources = [("", traffic.clone()), ("unbounded", Traffic::Unbounded)];
        Ok(Some(Rival {
            congestion: delivery::controller(congestion),
            scheme: self.maker(&self.rival, &Learnt::default())?,
            start_options: self.start_options(key, start)?,
            capping: None,
            traffic: word("rival_source", &self.rival_source, &sources)?,
            begins: Duration::from_secs_f64(self.rival_from_seconds),
        }))
    }

    /// Returns the player of a viewer of a `live` source.
    ///
    /// # Errors
    /// One line: the player is unknown.
    pub(crate) fn player(&self) -> Result<Policy, String> {
        self.player.parse().map_err(|e| format!("`player` is {e}"))
    }

    /// Builds the scenario for a seed with untrained schemes.
    ///
    /// # Errors
    /// One line that names the key with the invalid value.
    pub(crate) fn scenario(&self, seed: u64) -> Result<Scenario, String> {
        self.scenario_after(seed, &Learnt::default())
    }

    /// Builds the scenario for a seed with schemes that start from `learnt` and keep training.
    ///
    /// # Errors
    /// As [`Settings::scenario`].
    pub(crate) fn scenario_after(&self, seed: u64, learnt: &Learnt) -> Result<Scenario, String> {
        self.check()?;
        let congestion = Self::algorithm(&self.congestion, "congestion")?;
        let rules = [
            ("lsquic", Detection::LSQUIC),
            ("rfc9002", Detection::RFC9002),
            ("live", Detection::LIVE),
        ];
        let mut detection = word("detection", &self.detection, &rules)?;
        if self.longest_probe_ms > 0.0 {
            detection.longest_probe = Some(Duration::from_secs_f64(self.longest_probe_ms / 1e3));
        }
        detection.tail &= self.tail;
        let traffic = self.traffic(seed)?;
        let player = self.player()?;
        if self.same_connection && self.source != Source::Download {
            return Err("`same_connection` is for downloads only".to_owned());
        }
        if self.twice && self.warm_up > 0 {
            return Err("`twice` and `warm_up` exclude each other".to_owned());
        }
        if self.client == ClientKind::Noq && self.cipher == Cipher::Null {
            return Err("`client = \"noq\"` needs `cipher = \"real\"`".to_owned());
        }
        if !self.corrupt.is_empty() && self.cipher == Cipher::Null {
            return Err("`corrupt` needs `cipher = \"real\"`".to_owned());
        }
        let rival_traffic = traffic.clone();
        Ok(Scenario {
            path: self.path()?,
            client: self.client,
            cipher: self.cipher,
            congestion: delivery::controller(congestion),
            start_options: self.start_options("start", &self.start)?,
            detection,
            scheme: self.maker(&self.scheme, learnt)?,
            guard: (self.guard_percent > 0.0).then(|| {
                let guard = Guard::new(self.guard_percent / 100.0, None);
                if self.guard_burst > 0 { guard.with_burst(self.guard_burst) } else { guard }
            }),
            limit: match traffic {
                // The stream ends by itself. Data in flight then still arrives.
                Traffic::Live(_) => Duration::from_secs_f64(self.seconds + TAIL_SECONDS),
                _ => Duration::from_secs_f64(self.seconds),
            },
            traffic,
            acks: self.acks()?,
            rebind_every: period(self.rebind_ms),
            flap_every: period(self.flap_ms),
            reports: self.reports.then_some(player),
            times: if self.same_connection { self.requests } else { 1 },
            oracle: word("oracle", &self.oracle, &Oracle::NAMES)?,
            rival: self.rival(congestion, &rival_traffic)?,
            window: self.window(),
            seed,
            measure_from: Duration::from_secs_f64(self.measure_from_seconds),
            log_events: self.twice,
            ..Scenario::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use links::{Loss, LossPlace};

    #[test]
    fn a_loss_model_takes_the_place_of_a_traces_own_loss() {
        let path = std::env::temp_dir().join(format!("mendcast-trace-{}", std::process::id()));
        std::fs::write(&path, "0 6 40ms 0.5\n1 8 40ms 0.5\n").expect("written");
        let down = |model: &str, percent: f64| {
            let settings = Settings {
                trace: path.display().to_string(),
                loss_model: model.to_owned(),
                loss_percent: percent,
                ..Settings::default()
            };
            settings.scenario(1).expect("it makes sense").path.down
        };
        let [own, none, calls] =
            [down("independent", 0.0), down("none", 1.0), down("calls:rate={}", 5.0)];
        std::fs::remove_file(&path).expect("removed");
        for down in [&own, &none, &calls] {
            assert!(down.trace.is_some() && down.rate.is_none());
        }
        assert_eq!((own.loss, none.loss), (None, Some(Loss::None)));
        assert_eq!(calls.loss, Some("calls:rate=5%".parse().expect("a loss")));
    }

    #[test]
    fn an_encoders_keys_are_of_its_stream_and_a_file_takes_its_place() {
        let settings = Settings {
            source: Source::Live,
            fps: 50.0,
            group_seconds: 1.0,
            stream_mbps: 2.0,
            audio_kbps: 96.0,
            size_variation: 0.4,
            b_frames: 1,
            ..Settings::default()
        };
        let encoder = settings.encoder().expect("it makes sense");
        assert_eq!((encoder.group, encoder.interval), (50, Duration::from_millis(20)));
        assert_eq!((encoder.rate, encoder.audio), (Rate::from_mbps(2), Rate::from_kbps(96)));
        assert_eq!((encoder.size_variation, encoder.b_frames, encoder.key_ratio), (0.4, 1, 6.0));
        let refused = |settings: Settings| settings.scenario(1).err().expect("refused");
        let loud = Settings { stream_mbps: 0.09, ..settings.clone() };
        assert!(refused(loud).contains("`audio_kbps`"));
        let file = Settings { flv: "/nowhere.flv".to_owned(), ..settings };
        assert!(refused(file).contains("`flv`: /nowhere.flv"));
    }

    #[test]
    fn invalid_settings_are_rejected_by_name() {
        let refused = |change: &dyn Fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            settings.scenario(1).err().expect("refused")
        };
        assert!(refused(&|s| s.fps = 0.0).contains("`fps`"));
        assert!(refused(&|s| s.alpha_ms = f64::NAN).contains("`alpha_ms`"));
        assert!(refused(&|s| s.level = 11).contains("`level`"));
        assert!(refused(&|s| s.scheme = "x".to_owned()).starts_with("unknown scheme `x`; "));
        assert!(refused(&|s| s.player = "buffer:20ms".to_owned()).contains("`player`"));
        assert!(refused(&|s| s.congestion = "x".to_owned()).contains("`congestion`"));
        assert!(refused(&|s| s.oracle = "x".to_owned()).contains("`oracle`"));
        let mm24 = |s: &mut Settings| {
            (s.scheme, s.sigmoid) = ("autorec-mm24".to_owned(), -1.0);
        };
        assert!(refused(&mm24).contains("`a`"));
        assert!(refused(&|s| (s.twice, s.warm_up) = (true, 1)).contains("`twice`"));
        assert!(refused(&|s| s.same_connection = true).contains("`same_connection`"));
        assert!(
            refused(&|s| (s.client, s.cipher) = (ClientKind::Noq, Cipher::Null)).contains("noq")
        );
        let dqn = |s: &mut Settings| {
            (s.scheme, s.dqn) = ("art-dqn".to_owned(), "/nowhere".to_owned());
        };
        assert!(refused(&dqn).contains("`dqn`: /nowhere"));
        assert!(refused(&|s| s.trace_up = "/nowhere".to_owned()).contains("`trace_up`"));
        assert!(refused(&|s| s.loss_up = "x:1%".to_owned()).contains("`loss_up`"));
        assert!(refused(&|s| s.loss_model = "x:{}".to_owned()).contains("`loss_model`"));
    }

    /// Parses default settings with one line of a specification added.
    fn with(line: &str) -> Settings {
        toml::from_str(line).expect("a key")
    }

    #[test]
    fn keys_of_links_reach_their_direction() {
        let path = |line: &str| with(line).scenario(1).expect(line).path;
        let two = |line: &str, of: &dyn Fn(&LinkConfig) -> bool| {
            let path = path(line);
            (of(&path.down), of(&path.up))
        };
        let percent = || "1%".parse().expect("a probability");
        for (line, expected) in [
            ("bunches = '200ms'", (true, false)),
            ("bunches_up = '300ms,awake=30ms'", (false, true)),
        ] {
            assert_eq!(two(line, &|link: &LinkConfig| link.bunches.is_some()), expected, "{line}");
        }
        assert_eq!(two("ecn = 'bleach'", &|link: &LinkConfig| link.ecn.is_some()), (true, false));
        assert_eq!(two("ecn_up = 'drop'", &|link: &LinkConfig| link.ecn.is_some()), (false, true));
        let policer = |link: &LinkConfig| link.policer.is_some();
        assert_eq!(two("policer = '2mbps,burst=20kB'", &policer), (true, false));
        assert_eq!(two("policer_up = '2mbps,burst=20kB'", &policer), (false, true));
        assert_eq!(
            two("rtt_steps = '1s:9ms'", &|link: &LinkConfig| link.rtt_steps.is_some()),
            (true, true)
        );
        assert_eq!(two("jitter = '5ms'", &|link: &LinkConfig| link.jitter.is_some()), (true, true));
        assert_eq!(
            two("duplicate = '1%'", &|l: &LinkConfig| l.duplicate == percent()),
            (true, true)
        );
        let corrupt = "corrupt = '1%'\ncipher = 'real'";
        assert_eq!(two(corrupt, &|link: &LinkConfig| link.corrupt == percent()), (true, true));
        assert_eq!(two("mtu = 1400", &|link: &LinkConfig| link.mtu == Some(1_400)), (true, true));
        let windows = |link: &LinkConfig| link.blackhole.len() == 2;
        assert_eq!(two("blackhole = '2s,500ms; 8s,1s'", &windows), (true, true));
        assert_eq!(
            two("rate_up = '2mbps'", &|link: &LinkConfig| link.rate.is_some()),
            (true, true)
        );
        assert_eq!(
            two("queue = 'codel'", &|l: &LinkConfig| l.queue == Queue::codel(500_000)),
            (true, true)
        );
        let place = |link: &LinkConfig| link.loss_place == LossPlace::BeforeQueue;
        assert_eq!(two("loss_place = 'before-queue'", &place), (true, false));
    }

    #[test]
    fn keys_of_clients_reach_the_client() {
        let scenario = |line: &str| with(line).scenario(1).expect(line);
        assert_eq!(scenario("sparse_acks = true").acks, Some(RareAcks::CHROMIUM));
        assert_eq!(scenario("acks = 'chromium'").acks, Some(RareAcks::CHROMIUM));
        assert_eq!(scenario("acks = 'each=32,within=250ms'").acks.map(|acks| acks.each), Some(32));
        assert_eq!(scenario("flap_ms = 50").flap_every, Some(Duration::from_millis(50)));
        assert_eq!(scenario("rebind_ms = 400").rebind_every, Some(Duration::from_millis(400)));
        let usual = Settings::default().scenario(1).expect("it makes sense");
        assert!(usual.acks.is_none() && usual.flap_every.is_none() && usual.rebind_every.is_none());
    }

    #[test]
    fn wrong_values_of_link_keys_name_the_key_and_what_is_expected() {
        for (line, key, expected) in [
            ("bunches = '200'", "`bunches`", "300ms,awake=30ms"),
            ("rtt_steps = '8s'", "`rtt_steps`", "8s:200ms,20s:20ms"),
            ("ecn_up = 'x'", "`ecn_up`", "mark:5%"),
            ("policer = '2mbps'", "`policer`", "burst=20kB"),
            ("acks = 'each=1'", "`acks`", "each=32,within=250ms"),
            ("acks = 'chromium'\nsparse_acks = true", "`acks`", "exclude"),
            ("corrupt = '1%'", "`corrupt`", "real"),
            ("blackhole = '2s'", "`blackhole`", "2s,500ms"),
            ("rate_up = '2'", "`rate_up`", "12mbps"),
            ("mtu = 70000", "`mtu`", "65535"),
            ("flap_ms = -1.0", "`flap_ms`", "0"),
        ] {
            let error = with(line).scenario(1).err().expect(line);
            assert!(error.contains(key) && error.contains(expected), "{line}: {error}");
        }
    }
}
