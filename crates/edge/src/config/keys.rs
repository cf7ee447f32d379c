//! Every key of the configuration file: documentation, type, default, range.

use core::fmt::Write as _;
use core::net::SocketAddr;
use core::time::Duration;
use std::path::PathBuf;

use congestion::Algorithm;
use groups::Mode as PlexMode;
use recovery::catalog::Choice;
use startup::decision::Mode;
use toml::de::DeValue;

use super::secret::Secret;
use super::url::{Header, HttpUrl, Upstream, Variant};
use super::value::{Size, Value};
use super::words::{Cipher, Container, Level, OnFailure, Retry, Start, TakeOver};
use super::{Changes, Cors, Effect, Network, Problem, Section, assign, describe_key};

/// Default recovery scheme.
fn deadline() -> Choice {
    "deadline".parse().expect("a scheme of the catalogue")
}

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

sections! {
    /// Addresses, identity and content.
    [server] Server {
        /// Addresses for viewers: UDP for HTTP/3, TCP for HTTP/1.1 and HTTP/2. `[::]` accepts IPv4
        /// as well, unless an IPv4 address with the same port is listed too.
        listen: Vec<SocketAddr> = vec![SocketAddr::from(([0u16; 8], 4433))], effect AtStart;
        /// Certificate chain, PEM, the server's own certificate first. If unset, the server
        /// generates a self-signed certificate for development.
        certificate: Option<PathBuf> = None, example "\"/etc/mendcast/chain.pem\"";
        /// Private key of the certificate, PEM (PKCS #8, SEC1 or PKCS #1).
        key: Option<PathBuf> = None, example "\"/etc/mendcast/key.pem\"";
        /// Directory of static files. If unset, no files are served.
        root: Option<PathBuf> = None, example "\"/srv/www\"";
        /// Secrets of tokens, tickets, passes, resets and connection IDs, shared by the nodes of a
        /// site. `mendcast edge keygen` creates the file. If unset, secrets are generated at
        /// startup and lost when the process ends.
        key_file: Option<PathBuf> = None, example "\"/etc/mendcast/secrets\"";
        /// Number of QUIC event loops, and of threads for HTTP/1.1 and HTTP/2. 0: one of each per
        /// core.
        cores: u16 = 0, in 0..=256, effect AtStart;
        /// This node's number in its site, part of its connection IDs.
        server_id: u16 = 0, effect AtStart;
    }

    /// Static files.
    [files] Files {
        /// Cache-Control header of files.
        cache_control: String = "no-cache".into();
        /// Total size of small files cached in memory.
        memory: Size = Size::from_mib(64), in Size(0)..=Size(1 << 40);
    }

    /// Live streams. A stream `live/demo` is watched at `/live/demo.flv`.
    [live] Live {
        /// Where viewers start: at the next key frame, at the newest one available, or at the
        /// nearer of the two.
        start: Start = Start::LatestGop;
        /// Groups of pictures kept per stream, for new and slow viewers.
        groups: u16 = 2, in 1..=64;
        /// Bytes kept per stream. A larger group of pictures loses its start.
        cache: Size = Size::from_mib(16), in Size::from_kib(64)..=Size::from_mib(1024);
        /// Bytes that all streams keep together, HLS segments included. Above seven eighths of it
        /// streams that nobody watches as HLS are no longer packed, then the largest shrink to
        /// their newest group; if that is not enough further streams are refused, and at the bound
        /// itself the largest are cut to equal shares: groups lose their start, and new viewers
        /// wait for the next. 0B: half of the machine's memory, or of the control group's if that
        /// is less.
        max_memory: Size = Size(0), in Size(0)..=Size(1 << 50), effect AtOnce;
        /// Lag at which droppable pictures (those that no other picture references) are left out,
        /// if the viewer was at least as far behind a second of media before, until the lag is
        /// halved. Only H.264 and H.265 mark such pictures. At or above `max_lag`: never.
        thin_lag: Duration = MILLISECOND * 500, in MILLISECOND * 100..=MINUTE;
        /// Lag at which a viewer skips to the newest key frame.
        max_lag: Duration = SECOND * 5, in MILLISECOND * 100..=MINUTE;
        /// How long audio waits for the next picture so that both share a packet. 0s: no wait.
        merge: Duration = MILLISECOND * 40, in Duration::ZERO..=SECOND;
        /// How long viewers stay connected after their publisher is lost, in case it returns.
        linger: Duration = SECOND * 10, in Duration::ZERO..=HOUR;
        /// Second publisher of a stream over RTMP: "refuse" it while the first one's connection
        /// stands, or with "same-key" let it take over the stream and end that connection, if it
        /// has the same key of `[[publish]]` or `on_publish` grants it. Viewers stay. For encoders
        /// that change networks.
        take_over: TakeOver = TakeOver::Refuse;
        /// Maximum size of a publisher's audio, video or data message.
        max_tag: Size = Size::from_mib(4), in Size::from_kib(64)..=Size(0xff_ffff);
        /// Maximum number of concurrent streams.
        max_streams: u32 = 1_000, in 1..=1_000_000, effect AtStart;
        /// Maximum number of viewers per stream; further ones get status 503, regardless of their
        /// network's share. The default exceeds the limit on all sessions, which networks share
        /// fairly.
        max_viewers: u32 = 1_000_000, in 1..=10_000_000;
        /// Origins whose pages may play the streams and report to `/beacon`
        /// (Access-Control-Allow-Origin): "*" for all, one origin, or "" for this server's pages
        /// only.
        cors: Cors = Cors::Any;
    }

    /// HLS. A stream `live/demo` is watched at `/live/demo/index.m3u8`, and packed while it is.
    [hls] Hls {
        /// Segment format: fragmented MP4, or MPEG transport streams for old players.
        container: Container = Container::Fmp4;
        /// The first segment ends at the first key frame after this time, at six times of it at the
        /// latest; the others are as long. With key frames at equal distances, servers that pull
        /// the same stream give the same names and numbers to the same segments.
        segment: Duration = SECOND * 2, in MILLISECOND * 100..=MINUTE;
        /// Approximate duration of a part, for players of Low-Latency HLS. Segments are divided
        /// evenly.
        part: Duration = MILLISECOND * 333, in MILLISECOND * 20..=SECOND * 10;
        /// Number of complete segments in the playlist.
        window: u16 = 6, in 1..=1_000;
        /// Bytes of segments kept per stream.
        cache: Size = Size::from_mib(32), in Size::from_mib(1)..=Size::from_mib(1024);
        /// Whether the media of streams that everybody may play has the same URLs for all viewers,
        /// so that caches in front of this server keep one copy. What a cache delivers is then
        /// missing from the viewers' sessions, which count playlists only. Streams with `[[play]]`
        /// or `on_play` are never shared.
        shared: bool = false;
    }

    /// RTMP, for publishers and players. It is not encrypted.
    [rtmp] Rtmp {
        /// Addresses to listen on. If unset, RTMP is disabled.
        listen: Option<Vec<SocketAddr>> = None, example "\"[::]:1935\"", effect AtStart;
        /// Connections at the same time; further ones are closed. A quarter of the places is for
        /// those who have not published or played yet, half of them for players, and what these
        /// leave, a quarter at least, for publishers who were let in.
        max_connections: u32 = 1_000, in 1..=1_000_000;
        /// Maximum number of connections per address (per /56 of IPv6); further ones are closed.
        /// One address can hold at most half of the places of connections that have not published
        /// or played yet.
        max_connections_per_address: u32 = 256, in 1..=1_000_000;
        /// Maximum time without data from a publisher, or without progress or an answer to a ping
        /// from a player; then the connection ends.
        timeout: Duration = SECOND * 15, in SECOND..=MINUTE * 10;
        /// Maximum duration of the handshake, even if bytes keep arriving.
        handshake_timeout: Duration = SECOND * 5, in MILLISECOND * 100..=MINUTE;
        /// Maximum wait for `publish` or `play`, from the connection's start or the end of the
        /// previous publication or playback, even if other data arrives.
        request_timeout: Duration = SECOND * 10, in MILLISECOND * 100..=MINUTE * 10;
        /// Networks of load balancers that send the client's address by the PROXY protocol, version
        /// 1 or 2. Connections from these networks must begin with its header; others must not.
        proxy_protocol: Option<Vec<Network>> = None, example "[\"10.0.0.0/8\"]";
    }

    /// HTTP/1.1 and HTTP/2.
    [tcp] Tcp {
        /// Maximum number of connections. A further one evicts a connection of the network that
        /// holds most, or else the one idle longest; failing both, it is closed.
        max_connections: u32 = 16_384, in 1..=1_000_000;
        /// Maximum number of connections per address (per /56 of IPv6). Many viewers can share one
        /// NAT address.
        max_connections_per_address: u32 = 1_024, in 1..=1_000_000;
        /// Maximum number of concurrent TLS handshakes. A further one evicts a handshake of the
        /// network that holds most, or else the longest-running one of at least 3 s; failing both,
        /// its connection is closed.
        max_handshakes: u32 = 4_096, in 1..=1_000_000;
        /// Maximum number of concurrent TLS handshakes per address (per /56 of IPv6).
        max_handshakes_per_address: u32 = 512, in 1..=1_000_000;
        /// Maximum duration of the TLS handshake, of the wait from there for the first request, of
        /// each further request head on HTTP/1.1, and of a request's content.
        header_timeout: Duration = SECOND * 15, in SECOND..=MINUTE * 10;
        /// Maximum time without a request or progress of a response; then the connection ends.
        idle_timeout: Duration = MINUTE, in SECOND..=HOUR;
        /// Interval of HTTP/2 PINGs. A client that does not answer within 15 s is considered gone.
        /// 0s: none.
        keep_alive: Duration = SECOND * 20, in Duration::ZERO..=HOUR;
        /// Congestion control, by its name in the kernel. If the kernel lacks it, a message is
        /// logged. Empty: the kernel's default.
        congestion: String = "bbr".into(), effect AtStart;
        /// Whether the kernel paces packets instead of sending bursts (SO_MAX_PACING_RATE).
        pacing: bool = true, effect AtStart;
        /// Networks of load balancers that send the client's address by the PROXY protocol, version
        /// 1 or 2. Connections from these networks must begin with its header; others must not.
        proxy_protocol: Option<Vec<Network>> = None, example "[\"10.0.0.0/8\"]";
    }

    /// Limits for each address, whatever the protocol: docs/operate/limits-table.md has them all.
    [limits] Limits {
        /// Networks exempt from limits per address: load balancers without the PROXY protocol, and
        /// edges that pull from this one.
        trusted: Option<Vec<Network>> = None, example "[\"10.0.0.0/8\"]";
        /// Maximum number of viewer sessions per address (per /56 of IPv6), over all protocols;
        /// further viewers get status 503. Many viewers can share one NAT address.
        max_sessions_per_address: u32 = 4_096, in 1..=10_000_000;
        /// Maximum number of these sessions that use HLS. They last 20 s beyond the last request
        /// and need no connection of their own.
        max_hls_sessions_per_address: u32 = 2_048, in 1..=10_000_000;
    }

    /// The QUIC transport.
    [quic] Quic {
        /// Congestion controller of every connection. `bbr`: BBR version 1 with rules for live
        /// streams; `bbr-draft`: by its draft alone. `cubic` (RFC 9438): random loss freezes live
        /// viewers, but not under `cubic-live`, which keeps the delivered rate where there is no
        /// queue. `copa` (NSDI 2018): fails on links that deliver in bunches.
        congestion: Algorithm = Algorithm::Bbr;
        /// When clients must prove their address before the handshake, which costs a round trip.
        retry: Retry = Retry::Auto;
        /// Whether requests are accepted in 0-RTT data, which an attacker can replay. Only GET and
        /// HEAD are served from it, and only if a token proves the client's address.
        early_data: bool = true;
        /// TLS 1.3 ciphers.
        ciphers: Vec<Cipher> = vec![Cipher::Aes128, Cipher::Aes256, Cipher::ChaCha20];
        /// Packets sent under one key before the server updates it; 0: only near the limit of the
        /// cipher.
        key_update_after: u64 = 0, in 0..=1 << 36;
        /// How long an address token is valid.
        token_lifetime: Duration = DAY, in MINUTE..=DAY * 30;
        /// Maximum time without a received packet; then the connection ends. Viewers use it too, to
        /// detect a server that failed silently.
        idle_timeout: Duration = SECOND * 15, in SECOND..=MINUTE * 10;
        /// Maximum time for a request's head, from its first byte, and for its content, from the
        /// head, plus 1 s per KiB of content. Slower requests are reset.
        request_timeout: Duration = SECOND * 10, in SECOND..=MINUTE * 10;
        /// Maximum time without an open request, even if packets arrive; then the connection ends.
        unused_timeout: Duration = SECOND * 30, in SECOND..=HOUR;
        /// Interval of PINGs on a silent connection with open requests, at most a third of the idle
        /// timeout. 0s: none.
        keep_alive: Duration = SECOND * 5, in Duration::ZERO..=MINUTE * 10;
        /// Maximum delay of an acknowledgement.
        max_ack_delay: Duration = MILLISECOND * 25, in MILLISECOND..=MILLISECOND * 1000;
        /// Maximum interval of probes during the first 10 s without a packet from the viewer;
        /// afterwards it doubles each time (RFC 9002 doubles from the first probe). A shorter
        /// interval resumes sooner after an outage and costs two packets per probe. The probe
        /// timeout itself is never shortened.
        longest_probe: Duration = MILLISECOND * 200, in MILLISECOND * 20..=MINUTE;
        /// UDP payload of the first datagrams, in bytes.
        initial_mtu: u16 = 1200, in 1200..=9000;
        /// Largest UDP payload that path MTU discovery tries, in bytes.
        max_mtu: u16 = 1452, in 1200..=9000;
        /// Bytes that a client may send on one stream ahead of their reading.
        stream_window: Size = Size::from_kib(64), in Size(1024)..=Size::from_mib(64);
        /// Bytes that a client may send on all streams ahead of their reading, at the start.
        connection_window: Size = Size::from_kib(256), in Size(1024)..=Size::from_mib(256);
        /// Bytes in flight on one connection at most, whatever congestion control would allow.
        /// Clients that acknowledge late make round-trip times, and with them windows, as long as
        /// they like; 8 MiB are enough for 670 Mbit/s at 100 ms. Small packets count 1,200 bytes
        /// each.
        max_in_flight: Size = Size::from_mib(8), in Size::from_kib(64)..=Size::from_mib(1024);
        /// Maximum number of concurrent requests per connection.
        max_streams: u32 = 128, in 1..=65_536;
        /// Maximum number of connections, divided evenly among the event loops; further ones are
        /// refused.
        max_connections: u32 = 100_000, in 1..=10_000_000;
        /// Maximum number of connections per address (per /56 of IPv6), counted once the handshake
        /// has proven the address; further ones are closed. Many viewers can share one NAT address.
        max_connections_per_address: u32 = 4_096, in 1..=10_000_000;
        /// UDP port that HTTP/1.1 and HTTP/2 announce (Alt-Svc). Set it if a port mapping changes
        /// the port. 0: the port the server listens on.
        advertised_port: u16 = 0;
        /// Receive buffer of each UDP socket.
        receive_buffer: Size = Size::from_mib(4), in Size::from_kib(64)..=Size::from_mib(1024),
            effect AtStart;
        /// Send buffer of each UDP socket.
        send_buffer: Size = Size::from_mib(4), in Size::from_kib(64)..=Size::from_mib(1024),
            effect AtStart;
        /// Whether files are also served over HTTP/0.9 (ALPN hq-interop), for interoperability
        /// tests.
        hq_interop: bool = false;
        /// Directory for qlog files, one per sampled connection. If unset, none are written.
        qlog_dir: Option<PathBuf> = None, example "\"/var/log/mendcast/qlog\"";
        /// Share of connections that write a qlog file.
        qlog_sample: f64 = 1.0, in 0.0..=1.0;
    }

    /// Repair of lost data: replicas beyond the retransmission, for all viewers or by cohort.
    [recovery] Recovery {
        /// How lost data is repaired. "arq": retransmission alone. "deadline": besides, copies for
        /// viewers whom retransmissions would reach too late, as far apart as losses come together
        /// on their path, only when nothing else waits or a viewer on a wide path gets what is kept
        /// of the stream to begin with, and none where a queue is what loses packets
        /// (docs/deadline.md). "spare": `copies` of all that was lost, a little later and with the
        /// same regard for what waits: nearly as good, at the same price whoever watches. The
        /// others are the papers' schemes; their copies do not wait for room. "autorec" (AutoRec,
        /// journal): the fewest late frames under independent loss on a network at least twice as
        /// wide as the stream, for the most copies; on a narrow one it freezes the stream many
        /// times as often. "autorec-mm24": its version of MM'24, which goes by a utility.
        /// "art-paper": nearly as good where there is room, for half of the copies, which leave at
        /// random within a burst's length; harmful too where it is narrow. Its bandits
        /// "art-egreedy" and "art-ucb" and its network "art-dqn" learn how many. "or3-copies": 2n-2
        /// copies in round n, so none before a retransmission is lost too: cheap, and little
        /// gained. The rest ("art-code", "or3", ...) is for comparison. `mendcast lab run
        /// live-default` measures most of the others.
        scheme: Choice = deadline();
        /// Deadline: how much sooner, in the mean, a copy has to make late data come for it to be
        /// sent; to be in time and not late counts 150 ms more. More: fewer copies; 0s: all that
        /// help at all, within `max_redundancy`.
        price: Duration = MILLISECOND * 2, in Duration::ZERO..=recovery::deadline::MAX_PRICE;
        /// Deadline: how long after its first sending data is of use, for viewers whose players do
        /// not report what they have buffered (docs/operate.md, beacons). It is taken for 200 ms
        /// more or less. 350ms suits buffers of 250 to 500 ms; players with more need fewer copies
        /// than they get, and those with less would need more.
        patience: Duration = MILLISECOND * 350, in MILLISECOND * 10..=MINUTE;
        /// Deadline: with each 0.01 that a path loses beyond this, `patience` is 50 ms longer: most
        /// players keep more, and copies for the others have to bring more than `price`
        /// (docs/deadline.md). 1.0 switches it off, if all keep 250 to 500 ms.
        patient_above: f64 = 0.05, in recovery::deadline::PATIENT_ABOVE_RANGE;
        /// Spare: replicas of lost data, and as many again if these and the retransmission are
        /// lost.
        copies: u32 = 1, in 0..=recovery::spare::MAX_COPIES;
        /// AutoRec: tolerated mean recovery latency of data whose first retransmission was lost. No
        /// more replicas are sent than it takes.
        latency: Duration = MILLISECOND * 30, in Duration::ZERO..=SECOND * 10;
        /// AutoRec: tolerated replicas per first transmission. `max_redundancy` applies if it is
        /// lower.
        cost: f64 = 0.3, in 0.0..=10.0;
        /// AutoRec: tolerated loss of goodput where the network is the limit.
        goodput: f64 = 0.2, in 0.0..=1.0;
        /// The scheme "art-dqn": file with the weights of its network, as `mendcast lab train`
        /// makes it; experiments/weights/art-dqn.mdqn in the sources is one.
        dqn: Option<PathBuf> = None, example "\"/etc/mendcast/art-dqn.mdqn\"";
        /// Limit on the replicas of each connection, for every scheme and loss rate: bytes per byte
        /// of first transmissions, plus 32 packets. Unused budget is kept for about a second, for
        /// outages. "autorec" and "art-paper" as published need 0.5.
        max_redundancy: f64 = 0.2, in 0.0..=10.0;
        /// The same limit for all connections of the process together. Unused budget is kept for
        /// about a second, or 256 KiB of it indefinitely.
        max_redundancy_of_all: f64 = 0.1, in 0.0..=10.0;
    }

    /// How connections start, so that the first frame comes soon: docs/first-frame.md has what each
    /// mode buys.
    [startup] Startup {
        /// "iw10": ten datagrams; "fixed": `usual_window` over `usual_rtt` for all; "wira-ff": the
        /// first frame within one round trip; "wira-hx": window and rate of the viewer's last
        /// connection; "wira": the smaller of both windows at that rate; "steady": the same at the
        /// rate that was usual instead of the best, and without a cookie 20 datagrams within one
        /// round trip; "rapid": Rapid Start; "careful": Careful Resume (RFC 9959).
        mode: Mode = Mode::Steady;
        /// Maximum size of the first flight. It bounds what a wrong cookie can send in one round
        /// trip.
        max_jump: Size = Size::from_kib(256), in Size::from_kib(4)..=Size::from_mib(16);
        /// Initial window of unknown viewers: the average first frame of your viewers.
        usual_window: Size = Size(43_100), in Size::from_kib(4)..=Size::from_mib(16);
        /// Assumed round-trip time of unknown viewers: the average of your viewers.
        usual_rtt: Duration = MILLISECOND * 50, in MILLISECOND..=SECOND;
        /// How long saved path state remains valid for the next connection.
        lifetime: Duration = HOUR, in MINUTE..=DAY;
        /// Whether browsers also get the path state as an HTTP cookie (`mendcast-path`, Secure,
        /// HttpOnly, Partitioned), which, unlike tickets and tokens, survives a browser restart.
        /// Responses to beacons and pages set it; a site may need its visitors' consent.
        http_cookie: bool = false;
        /// Number of networks (/24 and /48) whose last path state is kept for viewers who bring
        /// none, at 200 bytes each. 0: none.
        networks: u32 = 16_384, in 0..=10_000_000, effect AtStart;
    }

    /// HTTP hooks: your own server is asked or told by a POST of JSON. Any status from 200 to 299
    /// grants. `user:password@` in a URL becomes Basic authorization.
    [hooks] Hooks {
        /// URL asked before a publisher starts.
        on_publish: Option<HttpUrl> = None, example "\"http://127.0.0.1:8000/publish\"";
        /// URL asked before a viewer starts.
        on_play: Option<HttpUrl> = None, example "\"http://127.0.0.1:8000/play\"";
        /// URL notified with the session's record after a viewer has left.
        on_close: Option<HttpUrl> = None, example "\"http://127.0.0.1:8000/close\"", effect AtOnce;
        /// Signs each request: `x-mendcast-signature: sha256=HEX`, the HMAC of its body.
        secret: Option<String> = None, example "\"a long random word\"", effect AtOnce;
        /// Maximum wait for an answer.
        timeout: Duration = SECOND * 3, in MILLISECOND * 10..=MINUTE, effect AtOnce;
        /// Questions asked at the same time, separately for `on_play` and `on_publish`; a quarter
        /// of them per network (/24, /48), half of that per address. Further ones wait for up to
        /// half of `timeout`; then players get 503.
        max_at_once: u32 = 64, in 1..=10_000, effect AtOnce;
        /// Decision if no answer arrives.
        on_failure: OnFailure = OnFailure::Refuse;
    }

    /// What sessions may send at most, learned from others of their user group (docs/autoplex.md).
    /// HTTP/3 alone.
    [autoplex] AutoPlex {
        /// "off"; "demand": to `ceiling` times each stream's own rate, without a table; "safe": to
        /// what the table says, between `floor` and `ceiling`; "paper": as published, which starves
        /// streams of a high bit rate, for comparison.
        mode: PlexMode = PlexMode::Off;
        /// Table of groups and parameters that `mendcast autoplex decide` writes. It is checked
        /// every 5 s. A damaged table changes nothing; without a table no viewer has a cap.
        table: Option<PathBuf> = None, example "\"/var/lib/mendcast/table.groups\"", effect AtOnce;
        /// Share of viewers without a cap from whom the next tables are learned.
        explorers: f64 = 0.1, in 0.0..=1.0;
        /// Share of viewers without a cap, for comparison.
        holdout: f64 = 0.05, in 0.0..=1.0;
        /// Share of a group's periods without a cap on any of its viewers, for comparison.
        control: f64 = 0.1, in 0.0..=1.0;
        /// Length of these periods: the interval between decisions.
        period: Duration = MINUTE * 30, in SECOND..=DAY;
        /// Salt of the choice of explorers.
        salt: String = String::new();
        /// Minimum cap, as a multiple of the stream's own rate.
        floor: f64 = 1.5, in 1.0..=100.0;
        /// Maximum cap, as a multiple of the stream's own rate.
        ceiling: f64 = 3.0, in 1.0..=1000.0;
        /// Factor on `floor` and `ceiling` for viewers who are behind, joined less than 3 s ago, or
        /// fetch segments.
        behind: f64 = 1.5, in 1.0..=100.0;
    }

    /// Dashboard, metrics, health and control, in plain HTTP: for this machine or a private
    /// network.
    [admin] Admin {
        /// Address to listen on. Without one it is 127.0.0.1:9433 if that is free.
        listen: Option<SocketAddr> = None, example "\"127.0.0.1:9433\"", effect AtStart;
        /// Names under which the dashboard may be asked for, beside localhost and addresses: pages
        /// of other sites could have theirs point here. `/metrics`, `/healthz` and `/readyz` answer
        /// to any name.
        hosts: Option<Vec<String>> = None, example "[\"edge-1.example\"]", effect AtOnce;
        /// What control calls bring along, as `Authorization: Bearer TOKEN`. Where `listen` is no
        /// loopback address nobody may control the server without one; on loopback everybody on
        /// this machine may.
        token: Option<Secret> = None, example "\"32-random-letters-or-digits-0123\"", effect AtOnce;
        /// File with such a token as its only line. If `token` is set too, either is accepted. The
        /// file is read again at each reload.
        token_file: Option<PathBuf> = None, example "\"/etc/mendcast/admin-token\"", effect AtOnce;
    }

    /// How viewers are divided into cohorts.
    [experiment] Experiment {
        /// Salt of the assignment of viewers to cohorts. Use a new one for each experiment.
        salt: String = String::new();
        /// Whether all cohorts get the first one's scheme (an A/A test, which shows the effect of
        /// chance).
        aa: bool = false;
    }

    /// A row per viewer session, as JSON lines and Parquet.
    [records] Records {
        /// Directory of the files. If unset, no records are written.
        directory: Option<PathBuf> = None, example "\"/var/lib/mendcast/records\"", effect AtStart;
        /// Time covered by one file. The Parquet file is written at its end.
        period: Duration = HOUR, in SECOND..=DAY * 30, effect AtStart;
        /// Maximum age of files; older ones are removed when a new one begins. 0s: no limit.
        keep: Duration = DAY * 90, in Duration::ZERO..=DAY * 3_650, effect AtStart;
        /// Maximum size of all files; the oldest are removed when a new one begins. 0: no limit.
        max_size: Size = Size(10 << 30), in Size(0)..=Size(1 << 50), effect AtStart;
    }

    /// Logs; the messages go to stderr.
    [log] Log {
        /// Least severe level of messages to log.
        level: Level = Level::Info, effect AtOnce;
        /// File to which each closed connection appends one line of JSON. If unset, none is
        /// written.
        connections: Option<PathBuf> = None, example "\"/var/log/mendcast/connections.jsonl\"",
            effect AtStart;
    }

    /// The end of the process on SIGTERM or SIGINT; a second signal ends it at once.
    [drain] Drain {
        /// Maximum time for open requests to finish.
        timeout: Duration = SECOND * 30, in Duration::ZERO..=DAY, effect AtOnce;
        /// Maximum time for RTMP publishers to finish. After it they are disconnected and their
        /// streams end for viewers.
        publishers: Duration = SECOND * 5, in Duration::ZERO..=DAY, effect AtOnce;
    }

    // What may stand any number of times.
    ;

    /// A cohort of viewers. Without any, all viewers share one. Unset keys inherit from [recovery]
    /// and [startup].
    [[cohort]] Cohort {
        /// Name in metrics and records.
        name: String = String::new(), required "\"control\"";
        /// Share of viewers, relative to the other weights.
        weight: u32 = 1, in 1..=1_000_000;
        /// How lost data is repaired.
        scheme: Option<Choice> = None, example "\"arq\"";
        /// Deadline: how much sooner a copy has to make late data come.
        price: Option<Duration> = None, in Some(Duration::ZERO)..=Some(recovery::deadline::MAX_PRICE), example "\"2ms\"";
        /// Deadline: how long after its first sending data is of use, where the player does not
        /// report.
        patience: Option<Duration> = None, in Some(MILLISECOND * 10)..=Some(MINUTE), example "\"350ms\"";
        /// Deadline: the loss above which `patience` gets longer.
        patient_above: Option<f64> = None, in Some(0.01)..=Some(1.0), example "0.05";
        /// Spare: replicas of lost data.
        copies: Option<u32> = None, in Some(0)..=Some(recovery::spare::MAX_COPIES), example "1";
        /// AutoRec: tolerated recovery latency.
        latency: Option<Duration> = None, in Some(Duration::ZERO)..=Some(SECOND * 10), example "\"30ms\"";
        /// AutoRec: tolerated replicas per first transmission.
        cost: Option<f64> = None, in Some(0.0)..=Some(10.0), example "0.3";
        /// AutoRec: tolerated loss of goodput.
        goodput: Option<f64> = None, in Some(0.0)..=Some(1.0), example "0.2";
        /// Startup mode of its connections.
        start: Option<Mode> = None, example "\"wira\"";
    }

    /// Streams that only signed URLs play: `?expires=SECONDS&sig=HEX`, as `mendcast edge sign`
    /// makes them.
    [[play]] Play {
        /// The streams: a name, or the start of names and `*`.
        stream: String = String::new(), required "\"paid/*\"";
        /// Key of the signatures.
        key: String = String::new(), required "\"a long random word\"";
    }

    /// Streams that are pulled from elsewhere when somebody wants to see them.
    [[pull]] Pull {
        /// The streams: a name, or the start of names and `*`.
        stream: String = String::new(), required "\"live/*\"";
        /// Where they are: rtmp://, rtmps://, http:// or https:// URLs of RTMP, HTTP-FLV or HLS.
        /// `{name}` stands for the stream's name, `{tail}` for what the `*` stood for;
        /// `user:password@` in an http or https URL becomes Basic authorization. The next one is
        /// tried when one fails; while a later one serves, the first is tried again in the
        /// background, after 10 s at first and at last each 5 minutes.
        upstream: Vec<Upstream> = Vec::new(), required "[\"rtmp://origin.example/{name}\"]";
        /// Header fields of the requests to the servers that `upstream` names over http and https;
        /// servers that those lead to do not get them.
        headers: Option<Vec<Header>> = None, example "[\"x-key: a long random word\"]";
        /// Certificate authorities to trust, PEM, instead of the system's.
        ca_file: Option<PathBuf> = None, example "\"/etc/mendcast/origin-ca.pem\"";
        /// Variant of an HLS upstream to pull: the highest bitrate, the lowest, or the highest up
        /// to this number of Mbit/s.
        variant: Variant = Variant::Highest;
        /// Maximum wait for an upstream's first frame and for each further one. For an HLS upstream
        /// at least three times the target duration of its segments.
        timeout: Duration = SECOND * 10, in MILLISECOND * 100..=MINUTE;
        /// How long a stream without viewers is still pulled.
        idle: Duration = SECOND * 10, in Duration::ZERO..=HOUR;
        /// Maximum number of requested streams of this rule without a first frame; further names
        /// are answered with 503 and Retry-After. They do not count towards `[live] max_streams`.
        max_pending: u32 = 32, in 1..=10_000;
    }

    /// Who may publish. Without any rule, publishers from this machine alone may.
    [[publish]] Publish {
        /// The streams: a name such as "live/demo", or the start of names and `*`.
        stream: String = String::new(), required "\"live/*\"";
        /// Key that the publisher appends to the stream's name as `?key=KEY`.
        key: String = String::new(), required "\"a long random word\"";
    }
}
