//! Every key of the configuration file: documentation, type, default, range.

use core::net::SocketAddr;
use core::time::Duration;
use std::path::PathBuf;

use congestion::Algorithm;
use groups::Mode as PlexMode;
use recovery::catalog::Choice;
use recovery::deadline::{MAX_PRICE, PATIENT_ABOVE_RANGE};
use recovery::spare::MAX_COPIES;
use startup::decision::Mode;

use crate::{
    AcmeChallenge, AudioRendition, Cipher, Container, Cors, DomainName, ExternalAccount, Header,
    HostPattern, HttpUrl, KeySource, Level, LogFormat, Network, OnFailure, PushUrl, Retry, Secret,
    Size, Start, StoreUrl, StreamKey, TakeOver, Upstream, Variant, sections,
};

/// Default recovery scheme.
fn deadline() -> Choice {
    "deadline".parse().expect("a scheme of the catalogue")
}

/// Directory URL of the default ACME CA.
fn lets_encrypt() -> HttpUrl {
    let url = "https://acme-v02.api.letsencrypt.org/directory".parse();
    HttpUrl(url.expect("a URL"))
}

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

sections! {
    /// Configuration of a server, with one field per section of the file.
    Config;
    /// Addresses, identity and content.
    [server] Server {
        /// Addresses for viewers: UDP for HTTP/3, TCP for HTTP/1.1 and HTTP/2. `[::]` also accepts
        /// IPv4, unless an IPv4 address with the same port is listed too.
        listen: Vec<SocketAddr> = vec![SocketAddr::from(([0u16; 8], 4433))], effect AtStart;
        /// Certificate chain in PEM, the server's own certificate first: the default for clients
        /// without a server name (SNI) or with an unknown one. If unset, the first of
        /// `[[certificate]]`, or else a self-signed certificate for development. Changed files are
        /// loaded within 10 s.
        certificate: Option<PathBuf> = None, example "\"/etc/mendcast/chain.pem\"";
        /// Private key of the certificate in PEM (PKCS #8, SEC1 or PKCS #1).
        key: Option<PathBuf> = None, example "\"/etc/mendcast/key.pem\"";
        /// Directory of static files. If unset, none are served.
        root: Option<PathBuf> = None, example "\"/srv/www\"";
        /// Secrets of tokens, tickets, passes, resets and connection IDs, shared by the nodes of a
        /// site (`mendcast keys new`). If unset, secrets last as long as the process.
        key_file: Option<PathBuf> = None, example "\"/etc/mendcast/secrets\"";
        /// Number of QUIC event loops, and of HTTP/1.1 and HTTP/2 threads. 0: one of each per core.
        cores: u16 = 0, in 0..=256, effect AtStart;
        /// Number of this node in its site, part of its connection IDs.
        server_id: u16 = 0, effect AtStart;
    }

    /// A certificate from an ACME CA such as Let's Encrypt, renewed by itself
    /// (docs/operate/certificates.md). Its use means that you agree to the CA's terms of
    /// service.
    [acme] Acme {
        /// Names of the certificate. If unset, ACME is off. Wildcards need another client.
        domains: Option<Vec<DomainName>> = None, example "[\"edge.example\"]", effect AtStart;
        /// Directory URL of the CA.
        ca: HttpUrl = lets_encrypt(), effect AtStart;
        /// Contact that the CA may use.
        contact: Option<String> = None, example "\"mailto:ops@example.com\"", effect AtStart;
        /// Key ID and HMAC key of an account with the CA, if it requires one (external account
        /// binding). Used when the ACME account is created.
        external_account: Option<ExternalAccount> = None,
            example "\"KEY-ID:HMAC-key-as-the-CA-shows-it\"", effect AtStart;
        /// Directory of the account key and the certificate, readable by the server's user alone.
        directory: PathBuf = "/var/lib/mendcast/acme".into(), effect AtStart;
        /// Proof of control over the names. "tls-alpn-01": a handshake on port 443, where the
        /// server or a port mapping must listen. "http-01": plain HTTP on port 80.
        challenge: AcmeChallenge = AcmeChallenge::TlsAlpn01, effect AtStart;
        /// Address for "http-01", in use during an order only.
        http_listen: SocketAddr = SocketAddr::from(([0u16; 8], 80)), effect AtStart;
        /// Trusted certificate authorities of the CA's own server in PEM, instead of the system's.
        ca_file: Option<PathBuf> = None, example "\"/etc/mendcast/acme-ca.pem\"", effect AtStart;
    }

    /// Static files.
    [files] Files {
        /// Cache-Control header of files.
        cache_control: String = "no-cache".into();
        /// Memory for cached small files.
        memory: Size = Size::from_mib(64), in Size(0)..=Size(1 << 40);
    }

    /// Live streams. `/live/demo.flv` plays the stream `live/demo`.
    [live] Live {
        /// Start of viewers. "keyframe": at the next key frame (least delay). "latest-gop": at the
        /// newest cached one (earliest picture). "low-delay": at the nearer of the two.
        start: Start = Start::LatestGop;
        /// Cached groups of pictures per stream, for new and slow viewers.
        groups: u16 = 2, in 1..=64;
        /// Cached bytes per stream. A larger group of pictures loses its start.
        cache: Size = Size::from_mib(16), in Size::from_kib(64)..=Size::from_mib(1024);
        /// Memory of all streams, HLS segments included. Above 7/8 of it the largest streams lose
        /// old data, then new streams are rejected (docs/operate/limits.md). 0B: half of the memory
        /// of the machine, or of the control group if that is less.
        max_memory: Size = Size(0), in Size(0)..=Size(1 << 50), effect AtOnce;
        /// Lag above which a viewer that does not catch up receives no disposable pictures, until
        /// its lag is half of this. No other picture refers to them; only H.264 and H.265 mark
        /// them. At `max_lag` or above, viewers skip instead.
        thin_lag: Duration = MILLISECOND * 500, in MILLISECOND * 100..=MINUTE;
        /// Lag above which a viewer skips to the newest key frame.
        max_lag: Duration = SECOND * 5, in MILLISECOND * 100..=MINUTE;
        /// Time that audio waits for the next picture, to share its packet. 0s: none.
        merge: Duration = MILLISECOND * 40, in Duration::ZERO..=SECOND;
        /// Time that viewers wait for the return of a lost publisher before the stream ends.
        linger: Duration = SECOND * 10, in Duration::ZERO..=HOUR;
        /// Second publisher of a stream over RTMP. "refuse": reject it while the first one is
        /// connected. "same-key": it replaces the first one if it has the same `[[publish]]` key or
        /// `on_publish` grants it; viewers stay. For encoders that change networks.
        take_over: TakeOver = TakeOver::Refuse;
        /// Maximum size of a publisher's audio, video or data message.
        max_tag: Size = Size::from_mib(4), in Size::from_kib(64)..=Size(0xff_ffff);
        /// Maximum number of streams.
        max_streams: u32 = 1_000, in 1..=1_000_000, effect AtStart;
        /// Maximum number of viewers per stream; further ones get 503. Not divided fairly between
        /// networks, unlike the limit on all sessions, which the default exceeds.
        max_viewers: u32 = 1_000_000, in 1..=10_000_000;
        /// Access-Control-Allow-Origin: pages that may play streams and report to `/beacon`. "*":
        /// of all origins. "": of this server only.
        cors: Cors = Cors::Any;
    }

    /// HLS. `/live/demo/index.m3u8` plays the stream `live/demo`. Streams are packed on demand.
    [hls] Hls {
        /// Segment format: fragmented MP4, or MPEG transport streams for old players.
        container: Container = Container::Fmp4;
        /// Target duration of segments. The first one ends at the first key frame after it, at the
        /// latest at six times the target, and the others are as long. With equal key frame
        /// distances, servers that pull the same stream name and number segments alike.
        segment: Duration = SECOND * 2, in MILLISECOND * 100..=MINUTE;
        /// Approximate duration of parts, for Low-Latency HLS. Segments are divided evenly.
        part: Duration = MILLISECOND * 333, in MILLISECOND * 20..=SECOND * 10;
        /// Complete segments in the playlist.
        window: u16 = 6, in 1..=1_000;
        /// Bytes of segments per stream.
        cache: Size = Size::from_mib(32), in Size::from_mib(1)..=Size::from_mib(1024);
        /// Whether all viewers of an open stream get the same media URLs, so that an HTTP cache in
        /// front keeps one copy. Sessions then count playlists only. Streams with `[[play]]` or
        /// `on_play` are never shared.
        shared: bool = false;
    }

    /// RTMP and RTMPS, for publishers and players. The limits apply to both together.
    [rtmp] Rtmp {
        /// Addresses of RTMP, which is not encrypted. If unset, it is disabled.
        listen: Option<Vec<SocketAddr>> = None, example "\"[::]:1935\"", effect AtStart;
        /// Addresses of RTMPS, which is RTMP over TLS with the server's certificates
        /// (docs/operate/certificates.md). If unset, it is disabled.
        tls_listen: Option<Vec<SocketAddr>> = None, example "\"[::]:1936\"", effect AtStart;
        /// Maximum number of connections; further ones are closed. At most a quarter have neither
        /// published nor played yet, and at most half are players. The rest is for publishers.
        max_connections: u32 = 1_000, in 1..=1_000_000;
        /// Maximum number of connections per address (per /56 of IPv6); further ones are closed. An
        /// address can hold half of the places for newcomers (before `publish` or `play`).
        max_connections_per_address: u32 = 256, in 1..=1_000_000;
        /// Maximum silence of a publisher, and maximum time for a player to take data or answer a
        /// ping; then the connection ends.
        timeout: Duration = SECOND * 15, in SECOND..=MINUTE * 10;
        /// Maximum duration of the handshake, even if bytes keep trickling in. Applies to the
        /// handshakes of TLS and RTMP separately.
        handshake_timeout: Duration = SECOND * 5, in MILLISECOND * 100..=MINUTE;
        /// Maximum time to `publish` or `play`, from the connection's start or the end of the
        /// previous one, even if other messages arrive.
        request_timeout: Duration = SECOND * 10, in MILLISECOND * 100..=MINUTE * 10;
        /// Networks of load balancers. Their connections must begin with a PROXY protocol header
        /// (version 1 or 2), which names the client; others must not.
        proxy_protocol: Option<Vec<Network>> = None, example "[\"10.0.0.0/8\"]";
    }

    /// HTTP/1.1 and HTTP/2.
    [tcp] Tcp {
        /// Maximum number of connections. A further one evicts a connection of the largest network
        /// or the longest idle one, or is closed itself (docs/operate/limits.md).
        max_connections: u32 = 16_384, in 1..=1_000_000;
        /// Maximum number of connections per address (per /56 of IPv6), shared by a NAT.
        max_connections_per_address: u32 = 1_024, in 1..=1_000_000;
        /// Maximum number of concurrent TLS handshakes, with the same rule for further ones.
        max_handshakes: u32 = 4_096, in 1..=1_000_000;
        /// Maximum number of concurrent TLS handshakes per address (per /56 of IPv6).
        max_handshakes_per_address: u32 = 512, in 1..=1_000_000;
        /// Maximum duration of the TLS handshake, of the wait for the first request, of the wait
        /// for each further request head on HTTP/1.1, and of reading a request's content.
        header_timeout: Duration = SECOND * 15, in SECOND..=MINUTE * 10;
        /// Maximum time without a request or progress of a response; then the connection ends.
        idle_timeout: Duration = MINUTE, in SECOND..=HOUR;
        /// Interval of HTTP/2 PINGs, which clients must answer within 15 s. 0s: none.
        keep_alive: Duration = SECOND * 20, in Duration::ZERO..=HOUR;
        /// Congestion control of the kernel, by name. Falls back to the kernel's default, with a
        /// warning. "": the kernel's default.
        congestion: String = "bbr".into(), effect AtStart;
        /// Whether the kernel paces packets (SO_MAX_PACING_RATE) instead of sending bursts.
        pacing: bool = true, effect AtStart;
        /// Networks of load balancers. Their connections must begin with a PROXY protocol header
        /// (version 1 or 2), which names the client; others must not.
        proxy_protocol: Option<Vec<Network>> = None, example "[\"10.0.0.0/8\"]";
    }

    /// Limits per address over all protocols. docs/operate/limits-table.md lists all limits.
    [limits] Limits {
        /// Networks exempt from limits per address: load balancers without the PROXY protocol, and
        /// edges that pull from this one.
        trusted: Option<Vec<Network>> = None, example "[\"10.0.0.0/8\"]";
        /// Maximum number of viewer sessions per address (per /56 of IPv6); further ones get 503.
        /// Many viewers can share an address behind NAT.
        max_sessions_per_address: u32 = 4_096, in 1..=10_000_000;
        /// Maximum number of HLS sessions among these. They need no connection of their own, and
        /// end 20 s after their last request.
        max_hls_sessions_per_address: u32 = 2_048, in 1..=10_000_000;
    }

    /// The QUIC transport.
    [quic] Quic {
        /// Congestion controller (docs/develop/congestion.md). "bbr": BBR version 1 with rules for
        /// live streams. "bbr-draft": its draft alone. "cubic": RFC 9438; random loss freezes live
        /// viewers. "cubic-live": CUBIC that keeps the delivered rate while no queue builds.
        /// "copa": NSDI 2018; fails on links that deliver in bunches.
        congestion: Algorithm = Algorithm::Bbr;
        /// When a client must prove its address before the handshake, which costs a round trip.
        /// "auto": while an event loop has more than 256 unfinished handshakes.
        retry: Retry = Retry::Auto;
        /// Whether 0-RTT data, which an attacker can replay, is accepted. Only GET and HEAD are
        /// served from it, and only if a token proves the client's address.
        early_data: bool = true;
        /// TLS 1.3 ciphers.
        ciphers: Vec<Cipher> = vec![Cipher::Aes128, Cipher::Aes256, Cipher::ChaCha20];
        /// Packets sent under one key before a key update. 0: only near the cipher's limit.
        key_update_after: u64 = 0, in 0..=1 << 36;
        /// Lifetime of address tokens.
        token_lifetime: Duration = DAY, in MINUTE..=DAY * 30;
        /// Maximum time without a received packet; then the connection ends. Viewers apply it too,
        /// to detect a server that has vanished.
        idle_timeout: Duration = SECOND * 15, in SECOND..=MINUTE * 10;
        /// Maximum time for a request's head, and from there for its content, plus 1 s per KiB of
        /// it. Slower requests are reset.
        request_timeout: Duration = SECOND * 10, in SECOND..=MINUTE * 10;
        /// Maximum time without an open request, even if packets arrive; then the connection ends.
        unused_timeout: Duration = SECOND * 30, in SECOND..=HOUR;
        /// Interval of PINGs on a silent connection with open requests, at most a third of the idle
        /// timeout. 0s: none.
        keep_alive: Duration = SECOND * 5, in Duration::ZERO..=MINUTE * 10;
        /// Maximum delay of acknowledgements. Clients add it to their probe timeout.
        max_ack_delay: Duration = MILLISECOND * 25, in MILLISECOND..=MILLISECOND * 1000;
        /// Maximum interval of probes in the first 10 s without an acknowledgement; then it doubles
        /// each time. RFC 9002 always doubles it. A shorter interval resumes sooner after an outage
        /// and costs two packets per probe. It does not shorten the probe timeout.
        longest_probe: Duration = MILLISECOND * 200, in MILLISECOND * 20..=MINUTE;
        /// UDP payload of the first datagrams, in bytes. Above the path's MTU, handshakes fail.
        initial_mtu: u16 = 1200, in 1200..=9000;
        /// Largest UDP payload of path MTU discovery, in bytes. 1452 fits IPv6 over Ethernet.
        max_mtu: u16 = 1452, in 1200..=9000;
        /// Flow-control window of a stream: bytes a client may send ahead of their reading.
        stream_window: Size = Size::from_kib(64), in Size(1024)..=Size::from_mib(64);
        /// Initial flow-control window of a connection, over all its streams.
        connection_window: Size = Size::from_kib(256), in Size(1024)..=Size::from_mib(256);
        /// Maximum bytes in flight per connection. Clients that acknowledge late inflate round-trip
        /// times, and with them windows. 8 MiB are enough for 670 Mbit/s at 100 ms. Packets count
        /// at least 1,200 bytes.
        max_in_flight: Size = Size::from_mib(8), in Size::from_kib(64)..=Size::from_mib(1024);
        /// Maximum number of concurrent requests per connection.
        max_streams: u32 = 128, in 1..=65_536;
        /// Maximum number of connections, divided among event loops; further ones are refused.
        max_connections: u32 = 100_000, in 1..=10_000_000;
        /// Maximum number of connections per proven address (per /56 of IPv6); further ones are
        /// closed. Many viewers can share an address behind NAT.
        max_connections_per_address: u32 = 4_096, in 1..=10_000_000;
        /// UDP port announced over HTTP/1.1 and HTTP/2 (Alt-Svc). Set it if a port mapping changes
        /// the port. 0: the port the server listens on.
        advertised_port: u16 = 0;
        /// Receive buffer of each UDP socket.
        receive_buffer: Size = Size::from_mib(4), in Size::from_kib(64)..=Size::from_mib(1024),
            effect AtStart;
        /// Send buffer of each UDP socket.
        send_buffer: Size = Size::from_mib(4), in Size::from_kib(64)..=Size::from_mib(1024),
            effect AtStart;
        /// Whether files are also served over HTTP/0.9 (ALPN hq-interop), for tests.
        hq_interop: bool = false;
        /// Directory of qlog files, one per sampled connection. If unset, none are written.
        qlog_dir: Option<PathBuf> = None, example "\"/var/log/mendcast/qlog\"";
        /// Share of connections with a qlog file.
        qlog_sample: f64 = 1.0, in 0.0..=1.0;
        /// File for the TLS secrets of new QUIC connections, in NSS key log format. Wireshark
        /// decrypts captures with it, and so does everyone else who can read it. Without it no
        /// secret is written.
        key_log: Option<PathBuf> = None, example "\"/var/log/mendcast/keys.log\"";
    }

    /// Loss recovery over QUIC, for all viewers or by cohort.
    [recovery] Recovery {
        /// Recovery scheme. "arq": retransmission alone. "deadline": in addition, copies for
        /// viewers whom a retransmission would reach too late, spaced by the path's loss
        /// correlation, in idle time or to joining viewers on wide paths
        /// (docs/develop/deadline.md). "spare": `copies` of all lost data, in idle time; nearly as
        /// effective, for three times the copies. The papers' schemes, for comparison, do not wait
        /// for idle time and cause more freezes on narrow networks: "autorec" sends the most
        /// copies, "autorec-mm24" decides by a utility, "art-paper" spreads copies over a burst,
        /// "art-egreedy", "art-ucb" and "art-dqn" learn their number, "or3-copies" sends 2n-2 in
        /// round n. "autorec-mm24" and those that learn are only in builds with the testbed.
        /// `mendcast lab run live-default` compares schemes.
        scheme: Choice = deadline();
        /// Deadline: mean lateness that a copy must save, where a missed deadline counts as 150 ms.
        /// Higher: fewer copies. 0s: every copy that helps, within `max_redundancy`.
        price: Duration = MILLISECOND * 2, in Duration::ZERO..=MAX_PRICE, for Deadline;
        /// Deadline: assumed time from a first transmission until a player without reports needs
        /// the data (docs/operate/player-reports.md), ±200 ms. 350ms suits buffers of 250 to 500
        /// ms. Players with larger buffers get needless copies, others too few.
        patience: Duration = MILLISECOND * 350, in MILLISECOND * 10..=MINUTE, for Deadline;
        /// Deadline: loss rate above which each further 0.01 adds 50 ms to `patience`, and copies
        /// that only less patient players need cost more than `price`: most players have larger
        /// buffers. 1.0 disables this, if all players buffer 250 to 500 ms.
        patient_above: f64 = 0.05, in PATIENT_ABOVE_RANGE, for Deadline;
        /// Spare: copies per lost round.
        copies: u32 = 1, in 0..=MAX_COPIES, for Copies;
        /// AutoRec: target of the mean recovery latency of data lost more than once. Lower: more
        /// copies, up to `cost` and `goodput`.
        latency: Duration = MILLISECOND * 30, in Duration::ZERO..=SECOND * 10, for Tolerances;
        /// AutoRec: maximum copies per packet that is not a copy. `max_redundancy` applies too.
        cost: f64 = 0.3, in 0.0..=10.0, for Tolerances;
        /// AutoRec: maximum fraction of goodput that copies take while new data waits.
        goodput: f64 = 0.2, in 0.0..=1.0, for Tolerances;
        /// Network weights of "art-dqn" (`mendcast lab train`; experiments/weights/art-dqn.mdqn).
        dqn: Option<PathBuf> = None, example "\"/etc/mendcast/art-dqn.mdqn\"", for Weights;
        /// Maximum bytes of copies per byte of first transmissions, for each connection and any
        /// scheme, plus a burst of a second's allowance, at least 32 packets: the copies of an
        /// outage are due together. "autorec" and "art-paper" as published need 0.5.
        max_redundancy: f64 = 0.2, in 0.0..=10.0;
        /// The same limit for all connections together, with a burst of at least 256 KiB.
        max_redundancy_of_all: f64 = 0.1, in 0.0..=10.0;
    }

    /// Start of connections, for an early first frame (docs/reproduce/first-frame.md).
    [startup] Startup {
        /// Startup mode. "iw10": ten datagrams. "fixed": `usual_window` within one round trip.
        /// "wira-ff": the first frame within one round trip. "wira-hx": window and rate of the
        /// saved path state. "wira": the smaller of both windows, at the saved rate. "steady": the
        /// same at the saved usual rate instead of the maximum; unknown viewers get 20 datagrams
        /// within one round trip. "rapid": Rapid Start. "careful": Careful Resume (RFC 9959).
        mode: Mode = Mode::Steady;
        /// Maximum first flight. Limits the burst that a wrong cookie can cause.
        max_jump: Size = Size::from_kib(256), in Size::from_kib(4)..=Size::from_mib(16);
        /// Assumed size of the first frame, and initial window of unknown viewers: the mean of
        /// `first_frame_bytes` in your records.
        usual_window: Size = Size(43_100), in Size::from_kib(4)..=Size::from_mib(16);
        /// Assumed round-trip time of unknown viewers: the mean of `rtt_min_ms` in your records.
        usual_rtt: Duration = MILLISECOND * 50, in MILLISECOND..=SECOND;
        /// Number of video frames that make the first frame: Wira's Θ_VF (sections IV-A, VII). It
        /// ends with the last of them, in startup decisions, `first_frame_bytes` and
        /// `first_frame_ms`. With more, a player that buffers several frames before it shows any
        /// gets all of them in the first flight.
        video_frames: u32 = 1, in 1..=8;
        /// Maximum age of saved path state.
        lifetime: Duration = HOUR, in MINUTE..=DAY;
        /// Whether browsers also get path state as an HTTP cookie (`mendcast-path`), which survives
        /// browser restarts, unlike tickets and tokens. It may require your visitors' consent.
        http_cookie: bool = false;
        /// Number of networks (/24, /48) with saved path state for new viewers; 200 bytes each.
        networks: u32 = 16_384, in 0..=10_000_000, effect AtStart;
    }

    /// HTTP hooks: POST requests with JSON to your server (docs/operate/access.md). A status of 200
    /// to 299 grants, any other rejects. `user:password@` in a URL becomes Basic authorization.
    [hooks] Hooks {
        /// URL queried before a publisher starts.
        on_publish: Option<HttpUrl> = None, example "\"http://127.0.0.1:8000/publish\"";
        /// URL queried before a viewer starts.
        on_play: Option<HttpUrl> = None, example "\"http://127.0.0.1:8000/play\"";
        /// URL notified with the session's record after a viewer has left.
        on_close: Option<HttpUrl> = None, example "\"http://127.0.0.1:8000/close\"", effect AtOnce;
        /// Key of the signature `x-mendcast-signature: sha256=HEX`, the HMAC of the body.
        secret: Option<String> = None, example "\"a long random word\"", effect AtOnce;
        /// Maximum wait for an answer.
        timeout: Duration = SECOND * 3, in MILLISECOND * 10..=MINUTE, effect AtOnce;
        /// Maximum number of concurrent queries, separately for `on_play` and `on_publish`; a
        /// quarter per network (/24, /48), and half of that per address. Further ones wait for up
        /// to half of `timeout`; then clients are rejected (503), unless `on_failure` allows them.
        max_at_once: u32 = 64, in 1..=10_000, effect AtOnce;
        /// Decision without an answer.
        on_failure: OnFailure = OnFailure::Refuse;
    }

    /// Tokens (JWT) that permit to play or publish (docs/operate/tokens.md).
    [tokens] Tokens {
        /// Tolerance for clocks of issuers, in `exp`, `nbf` and `iat`.
        leeway: Duration = MINUTE, in Duration::ZERO..=MINUTE * 10;
        /// Interval of fetches of `jwks` URLs. An unknown key ID causes a fetch after 30 s. Files
        /// are checked every 5 s.
        refresh: Duration = MINUTE * 10, in SECOND * 10..=DAY;
        /// Trusted certificate authorities of `jwks` URLs in PEM, instead of the system's.
        ca_file: Option<PathBuf> = None, example "\"/etc/mendcast/id-ca.pem\"";
    }

    /// Caps on HTTP/3 sessions, learned from other sessions of their user group
    /// (docs/operate/autoplex.md).
    [autoplex] AutoPlex {
        /// "off": no caps. "demand": `ceiling` times the stream's bit rate, without a table.
        /// "safe": the group's rate in the table, between `floor` and `ceiling`. "paper": as
        /// published, for comparison; starves streams of a high bit rate.
        mode: PlexMode = PlexMode::Off;
        /// Table of groups and their rates, written by `mendcast autoplex decide` and checked every
        /// 5 s. A damaged file changes nothing. Without a table, only "demand" sets caps.
        table: Option<PathBuf> = None, example "\"/var/lib/mendcast/table.groups\"", effect AtOnce;
        /// Share of viewers that are never capped, and from whom the next tables are learned.
        explorers: f64 = 0.1, in 0.0..=1.0;
        /// Share of viewers that are never capped, for comparison.
        holdout: f64 = 0.05, in 0.0..=1.0;
        /// Share of a group's periods without caps on its viewers, for comparison.
        control: f64 = 0.1, in 0.0..=1.0;
        /// Duration of these periods: the interval between decisions.
        period: Duration = MINUTE * 30, in SECOND..=DAY;
        /// Salt of the choice of explorers; a new one chooses others.
        salt: String = String::new();
        /// Minimum cap, as a multiple of the stream's bit rate.
        floor: f64 = 1.5, in 1.0..=100.0;
        /// Maximum cap, as a multiple of the stream's bit rate. `floor` applies if it is higher.
        ceiling: f64 = 3.0, in 1.0..=1000.0;
        /// Factor on `floor` and `ceiling` for viewers that are behind, joined less than 3 s ago,
        /// or fetch segments.
        behind: f64 = 1.5, in 1.0..=100.0;
    }

    /// Dashboard, metrics, health and control, for this machine or a private network (plain HTTP).
    [admin] Admin {
        /// Address to listen on. If unset, 127.0.0.1:9433 if that is free.
        listen: Option<SocketAddr> = None, example "\"127.0.0.1:9433\"", effect AtStart;
        /// Host names of the dashboard, besides localhost and addresses. Others could belong to
        /// pages of other sites, and get only `/metrics`, `/healthz` and `/readyz`.
        hosts: Option<Vec<String>> = None, example "[\"edge-1.example\"]", effect AtOnce;
        /// Token of control calls (`Authorization: Bearer TOKEN`). Without one, only programs on
        /// this machine may control the server, and only if `listen` is a loopback address.
        token: Option<Secret> = None, example "\"32-random-letters-or-digits-0123\"", effect AtOnce;
        /// File with such a token as its only line, read again at each reload. If `token` is set
        /// too, both are valid.
        token_file: Option<PathBuf> = None, example "\"/etc/mendcast/admin-token\"", effect AtOnce;
    }

    /// Assignment of viewers to cohorts.
    [experiment] Experiment {
        /// Salt of the assignment. Use a new one for each experiment.
        salt: String = String::new();
        /// Whether all cohorts get scheme and startup mode of the first (an A/A test, which shows
        /// the effect of chance).
        aa: bool = false;
    }

    /// Records of viewer sessions, as JSON lines and Parquet.
    [records] Records {
        /// Directory of the files. If unset, no records are written.
        directory: Option<PathBuf> = None, example "\"/var/lib/mendcast/records\"", effect AtStart;
        /// Time covered by one file. The Parquet file is written at its end.
        period: Duration = HOUR, in SECOND..=DAY * 30, effect AtStart;
        /// Maximum age of files; older ones are removed when a new one begins. 0s: no limit.
        keep: Duration = DAY * 90, in Duration::ZERO..=DAY * 3_650, effect AtStart;
        /// Maximum size of all files; the oldest are removed when a new one begins. 0B: no limit.
        max_size: Size = Size(10 << 30), in Size(0)..=Size(1 << 50), effect AtStart;
        /// Object store or directory that receives a copy of each complete Parquet file
        /// (docs/operate/record.md). Credentials come from the environment.
        upload: Option<StoreUrl> = None, example "\"s3://archive/edge-1-records\"",
            effect AtOnce;
    }

    /// Logs. Messages go to stderr.
    [log] Log {
        /// Least severe level of messages to log. SIGUSR1 and `POST /api/log` change it until the
        /// next reload (docs/operate/logs.md).
        level: Level = Level::Info, effect AtOnce;
        /// Format of messages: "text" for people, or "json", one object per line.
        format: LogFormat = LogFormat::Text, effect AtStart;
        /// File with one line of JSON per closed connection. If unset, none is written.
        connections: Option<PathBuf> = None, example "\"/var/log/mendcast/connections.jsonl\"",
            effect AtStart;
    }

    /// End of the process on SIGTERM or SIGINT. A second signal ends it at once.
    [drain] Drain {
        /// Maximum time for open responses to finish.
        timeout: Duration = SECOND * 30, in Duration::ZERO..=DAY, effect AtOnce;
        /// Maximum time for RTMP publishers to finish before they are disconnected.
        publishers: Duration = SECOND * 5, in Duration::ZERO..=DAY, effect AtOnce;
    }

    ;

    /// Further certificates, chosen by server name (SNI): an exact name before a wildcard, then in
    /// this order. Changed files are loaded within 10 s (docs/operate/certificates.md).
    [[certificate]] Certificate {
        /// Certificate chain in PEM, the server's own certificate first. Its DNS names are the
        /// server names for which it is chosen.
        certificate: PathBuf = PathBuf::new(), required "\"/etc/mendcast/b.example.pem\"";
        /// Private key of the certificate in PEM (PKCS #8, SEC1 or PKCS #1).
        key: PathBuf = PathBuf::new(), required "\"/etc/mendcast/b.example-key.pem\"";
    }

    /// A cohort of viewers. Without any, all viewers share one. Unset keys inherit from [recovery]
    /// and [startup].
    [[cohort]] Cohort {
        /// Name in metrics and records.
        name: String = String::new(), required "\"control\"";
        /// Share of viewers, relative to the weights of other cohorts.
        weight: u32 = 1, in 1..=1_000_000;
        /// Recovery scheme.
        scheme: Option<Choice> = None, example "\"arq\"";
        /// Deadline: mean lateness that a copy must save.
        price: Option<Duration> = None, in Some(Duration::ZERO)..=Some(MAX_PRICE),
            example "\"2ms\"", for Deadline;
        /// Deadline: assumed time until a player without reports needs the data.
        patience: Option<Duration> = None, in Some(MILLISECOND * 10)..=Some(MINUTE),
            example "\"350ms\"", for Deadline;
        /// Deadline: loss rate above which `patience` increases.
        patient_above: Option<f64> = None, in Some(0.01)..=Some(1.0), example "0.05", for Deadline;
        /// Spare: copies per lost round.
        copies: Option<u32> = None, in Some(0)..=Some(MAX_COPIES), example "1", for Copies;
        /// AutoRec: target of the mean recovery latency.
        latency: Option<Duration> = None, in Some(Duration::ZERO)..=Some(SECOND * 10),
            example "\"30ms\"", for Tolerances;
        /// AutoRec: maximum copies per packet that is not a copy.
        cost: Option<f64> = None, in Some(0.0)..=Some(10.0), example "0.3", for Tolerances;
        /// AutoRec: maximum fraction of goodput that copies take.
        goodput: Option<f64> = None, in Some(0.0)..=Some(1.0), example "0.2", for Tolerances;
        /// Startup mode.
        start: Option<Mode> = None, example "\"wira\"";
    }

    /// Host names with streams and files of their own (docs/operate/hosts.md).
    [[host]] Host {
        /// Names that clients request: `Host` or `:authority`, in RTMP the connection's URL.
        /// `*.` stands for one label; a full name takes precedence.
        names: Vec<HostPattern> = Vec::new(), required "[\"tenant.example\"]";
        /// Start of the names of all streams and files of these hosts: `/live/demo.flv` is the
        /// stream `tenant/live/demo`, in rules, hooks and records too.
        prefix: String = String::new(), required "\"tenant\"";
    }

    /// Renditions of one stream as one HLS master playlist (docs/operate/ladder.md):
    /// `/live/show/index.m3u8` plays the ladder `live/show`. Players switch between them.
    [[ladder]] Ladder {
        /// Name in URLs, `[[play]]` rules, hooks and records. Publishers of it need `multitrack`.
        name: String = String::new(), required "\"live/show\"";
        /// Streams, published or pulled, at most 16: names, or a prefix and `*` for all live
        /// streams that start with it. Absent ones are left out. Players start with the first one.
        /// Their encoder must make key frames at equal times.
        renditions: Vec<String> = Vec::new(), required "[\"live/show_720\", \"live/show_360\"]";
        /// Audio renditions among which viewers of HLS choose, at most 16: language, name, and the
        /// stream whose audio it is. The first one is the default. If set, viewers of HLS get no
        /// other audio (docs/operate/languages.md).
        audio: Option<Vec<AudioRendition>> = None,
            example "[\"en English: live/show_720\", \"fr Français: live/show_fr\"]";
        /// Whether one publisher of the ladder's name may send all renditions as the video tracks
        /// of Enhanced RTMP: track N becomes the stream `NAME_N`, if it is among `renditions`
        /// (docs/operate/multitrack.md).
        multitrack: bool = false;
    }

    /// Streams that only signed URLs (`?expires=SECONDS&sig=HEX`, from `mendcast keys sign`) or
    /// tokens (docs/operate/tokens.md) play. Each rule needs `key`, `jwks` or both.
    [[play]] Play {
        /// Stream name, or a prefix and `*`.
        stream: String = String::new(), required "\"paid/*\"";
        /// Key of signed URLs, and of tokens signed with HS256.
        key: Option<String> = None, example "\"a long random word\"";
        /// Public keys (JWKS) of tokens signed with ES256 or RS256: a file, or a URL.
        jwks: Option<KeySource> = None, example "\"https://id.example/jwks.json\"";
        /// Audience that tokens must name in `aud`, so that publishers' tokens do not play.
        audience: String = "play".into();
    }

    /// Streams pulled from other servers on demand.
    [[pull]] Pull {
        /// Stream name, or a prefix and `*`.
        stream: String = String::new(), required "\"live/*\"";
        /// URLs of RTMP, HTTP-FLV or HLS (rtmp://, rtmps://, http:// or https://), in order of
        /// preference. `{name}` stands for the stream's name, `{tail}` for the part that `*`
        /// matched; `user:password@` in an http or https URL becomes Basic authorization. If one
        /// fails, the next serves, and the first is tried again every 10 s to 5 minutes.
        upstream: Vec<Upstream> = Vec::new(), required "[\"rtmp://origin.example/{name}\"]";
        /// Header fields of requests to http and https upstreams. Servers to which these redirect
        /// or link do not get them.
        headers: Option<Vec<Header>> = None, example "[\"x-key: a long random word\"]";
        /// Trusted certificate authorities in PEM, instead of the system's.
        ca_file: Option<PathBuf> = None, example "\"/etc/mendcast/origin-ca.pem\"";
        /// Variant of an HLS upstream: the highest bitrate, the lowest, the highest up to this
        /// number of Mbit/s, or all: the stream `NAME_N` is then variant N of the upstream of
        /// `NAME`, from 0 (the highest bitrate), and `NAME_audio-LANGUAGE` an audio rendition.
        variant: Variant = Variant::Highest;
        /// Audio rendition of an HLS upstream, by LANGUAGE or NAME. By default, the upstream's
        /// default.
        audio: Option<String> = None, example "\"en\"";
        /// Maximum wait for an upstream's first frame, and between frames. For an HLS upstream at
        /// least three times its target duration.
        timeout: Duration = SECOND * 10, in MILLISECOND * 100..=MINUTE;
        /// Time that a stream without viewers is still pulled.
        idle: Duration = SECOND * 10, in Duration::ZERO..=HOUR;
        /// Maximum number of requested streams of this rule without a first frame; further names
        /// get 503 with Retry-After. They do not count towards `[live] max_streams`.
        max_pending: u32 = 32, in 1..=10_000;
    }

    /// Publishers. Without any rule, only programs on this machine may publish.
    [[publish]] Publish {
        /// Stream name such as "live/demo", or a prefix and `*`.
        stream: String = String::new(), required "\"live/*\"";
        /// Key that the publisher appends to the stream's name as `?key=KEY`. Also the key of
        /// tokens signed with HS256 (`?token=TOKEN`, docs/operate/tokens.md).
        key: Option<String> = None, example "\"a long random word\"";
        /// Public keys (JWKS) of tokens signed with ES256 or RS256: a file, or a URL. Each rule
        /// needs `key`, `jwks` or both.
        jwks: Option<KeySource> = None, example "\"/etc/mendcast/jwks.json\"";
        /// Audience that tokens must name in `aud`, so that viewers' tokens do not publish.
        audience: String = "publish".into();
    }

    /// Published or pulled streams that are sent to other servers (docs/operate/push.md).
    [[push]] Push {
        /// Stream name, or a prefix and `*`.
        stream: String = String::new(), required "\"live/*\"";
        /// URL of the target, rtmp:// or rtmps://. `{name}` stands for the stream's name, `{tail}`
        /// for the part that `*` matched, `{key}` for `key`.
        url: Option<PushUrl> = None, required "\"rtmps://live.example/app/{key}\"";
        /// Stream key that the platform shows, hidden from logs.
        key: Option<StreamKey> = None, example "\"live_123_abcdef\"";
        /// Trusted certificate authorities in PEM, instead of the system's.
        ca_file: Option<PathBuf> = None, example "\"/etc/mendcast/target-ca.pem\"";
        /// Maximum wait for the target's answer, and until it takes data.
        timeout: Duration = SECOND * 10, in MILLISECOND * 100..=MINUTE;
        /// Lag above which the push skips to the newest key frame, because the target is slow.
        max_lag: Duration = SECOND * 5, in MILLISECOND * 100..=MINUTE;
        /// Maximum wait between two attempts. The first is 1 s, and each further one twice as
        /// long; each is shortened by a random part of up to a half.
        retry: Duration = MINUTE, in MILLISECOND * 100..=HOUR;
    }

    /// Streams recorded to disk as HLS with fMP4 segments (docs/operate/record.md).
    [[record]] Recording {
        /// Stream name, or a prefix and `*`.
        stream: String = String::new(), required "\"live/*\"";
        /// Directory of the recordings, for this server alone. Below it each stream has a
        /// directory, with one for each period of `rotate`.
        directory: Option<PathBuf> = None, required "\"/var/lib/mendcast/recordings\"";
        /// Target duration of a segment, which ends at the next key frame.
        segment: Duration = SECOND * 6, in SECOND..=MINUTE;
        /// Time after which a recording continues in a new directory with its own playlist.
        rotate: Duration = HOUR, in MINUTE..=HOUR * 12;
        /// Age at which finished recordings are removed. 0s: never.
        keep: Duration = DAY * 7, in Duration::ZERO..=DAY * 3650;
        /// Total size beyond which the oldest finished recordings are removed. 0B: no limit.
        max_size: Size = Size::from_mib(100 << 10), in Size(0)..=Size(1 << 50);
        /// Time before the present that viewers may play from the recordings, with
        /// `?start=-SECONDS` in the URL of the HLS playlist. 0s: off.
        time_shift: Duration = Duration::ZERO, in Duration::ZERO..=DAY;
        /// Object store or directory that receives a copy of the recordings. Credentials come from
        /// the environment.
        upload: Option<StoreUrl> = None, example "\"s3://archive/edge-1\"", effect AtOnce;
        /// Media that waits for a slow disk. Beyond it segments are dropped, as gaps in the
        /// playlist.
        queue: Size = Size::from_mib(64), in Size::from_mib(1)..=Size::from_mib(4096);
    }
}
