//! Every key of the configuration file: documentation, type, default, range.

use core::net::SocketAddr;
use core::time::Duration;
use std::path::PathBuf;

use congestion::Algorithm;
use groups::Mode as PlexMode;
use recovery::catalog::Choice;
use startup::decision::Mode;

use crate::{
    Cipher, Container, Cors, Header, HttpUrl, Level, Network, OnFailure, Retry, Secret, Size, Start,
    TakeOver, Upstream, Variant, sections,
};

/// The scheme that a server begins with.
fn deadline() -> Choice {
    "deadline".parse().expect("a scheme of the catalogue")
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
        /// Where viewers connect: UDP for HTTP/3, TCP for HTTP/1.1 and HTTP/2. `[::]` takes IPv4 as
        /// well, unless an IPv4 address with the same port is listed too.
        listen: Vec<SocketAddr> = vec![SocketAddr::from(([0u16; 8], 4433))], effect AtStart;
        /// Certificate chain, PEM, the server's own first. Without it the server makes a
        /// self-signed one for development.
        certificate: Option<PathBuf> = None, example "\"/etc/mendcast/chain.pem\"";
        /// Private key of the certificate, PEM (PKCS #8, SEC1 or PKCS #1).
        key: Option<PathBuf> = None, example "\"/etc/mendcast/key.pem\"";
        /// Directory whose files are served. Without it there are none.
        root: Option<PathBuf> = None, example "\"/srv/www\"";
        /// Secrets of tokens, tickets, passes, resets and connection IDs, shared by the nodes of a site; `mendcast edge
        /// keygen` makes the file. Without it they are made at the start and end with the process.
        key_file: Option<PathBuf> = None, example "\"/etc/mendcast/secrets\"";
        /// QUIC event loops, and as many threads for HTTP/1.1 and HTTP/2; 0: one of each per core.
        cores: u16 = 0, in 0..=256, effect AtStart;
        /// This node's number in its site, part of its connection IDs.
        server_id: u16 = 0, effect AtStart;
    }

    /// Static files.
    [files] Files {
        /// Value of the Cache-Control header of files.
        cache_control: String = "no-cache".into();
        /// Small files kept in memory, together.
        memory: Size = Size::from_mib(64), in Size(0)..=Size(1 << 40);
    }

    /// Live streams. A stream `live/demo` is watched at `/live/demo.flv`.
    [live] Live {
        /// Where viewers start: at the next key frame, at the newest one that is there, or at whichever is nearer.
        start: Start = Start::LatestGop;
        /// Groups of pictures kept of each stream, for viewers to come and for slow ones.
        groups: u16 = 2, in 1..=64;
        /// Bytes kept of each stream. A group that is larger loses its start.
        cache: Size = Size::from_mib(16), in Size::from_kib(64)..=Size::from_mib(1024);
        /// Bytes that all streams keep together, HLS segments included. Above seven eighths of it streams
        /// that nobody watches as HLS are no longer packed, then the largest shrink to their newest group;
        /// if that is not enough further streams are refused, and at the bound itself the largest are cut to
        /// equal shares: groups lose their start, and new viewers wait for the next. 0B: half of the machine's memory, or of the
        /// control group's if that is less.
        max_memory: Size = Size(0), in Size(0)..=Size(1 << 50), effect AtOnce;
        /// A viewer who is this far behind, and was no less a second of media before, gets no pictures that no other picture
        /// needs until it is half as far behind: H.264 and H.265 mark them, other codecs' are never dropped. With as much
        /// as `max_lag` nothing is.
        thin_lag: Duration = MILLISECOND * 500, in MILLISECOND * 100..=MINUTE;
        /// A viewer this far behind skips to the newest key frame.
        max_lag: Duration = SECOND * 5, in MILLISECOND * 100..=MINUTE;
        /// How long sound waits for the next picture, so that both leave in one packet; 0s: not at all.
        merge: Duration = MILLISECOND * 40, in Duration::ZERO..=SECOND;
        /// How long viewers are kept when a publisher is lost and may come back.
        linger: Duration = SECOND * 10, in Duration::ZERO..=HOUR;
        /// A second publisher of a stream over RTMP: "refuse" it while the first one's connection
        /// stands, or let it take the stream over and end that connection, if it brings the "same-key"
        /// of `[[publish]]` or `on_publish` grants it. Viewers stay. For encoders that change network.
        take_over: TakeOver = TakeOver::Refuse;
        /// Largest audio, video or data message of a publisher.
        max_tag: Size = Size::from_mib(4), in Size::from_kib(64)..=Size(0xff_ffff);
        /// Streams at the same time.
        max_streams: u32 = 1_000, in 1..=1_000_000, effect AtStart;
        /// Viewers of one stream at the same time; further ones get status 503, whatever their network
        /// holds. The default is above the places of all sessions, which networks share fairly.
        max_viewers: u32 = 1_000_000, in 1..=10_000_000;
        /// Whose pages may play the streams and report to `/beacon` (Access-Control-Allow-Origin): "*"
        /// those of all origins, one origin, or "" only pages of this server.
        cors: Cors = Cors::Any;
    }

    /// HLS. A stream `live/demo` is watched at `/live/demo/index.m3u8`, and packed while it is.
    [hls] Hls {
        /// The form of segments: fragmented MP4, or MPEG transport streams for old players.
        container: Container = Container::Fmp4;
        /// The first segment ends at the first key frame after this time, at six times of it at the latest;
        /// the others are as long. With key frames at equal distances, servers that pull the same stream
        /// give the same names and numbers to the same segments.
        segment: Duration = SECOND * 2, in MILLISECOND * 100..=MINUTE;
        /// About how long a part of a segment is, for players of Low-Latency HLS: segments are divided evenly.
        part: Duration = MILLISECOND * 333, in MILLISECOND * 20..=SECOND * 10;
        /// Complete segments in the playlist.
        window: u16 = 6, in 1..=1_000;
        /// Bytes of segments kept of each stream.
        cache: Size = Size::from_mib(32), in Size::from_mib(1)..=Size::from_mib(1024);
        /// Whether the media of streams that everybody may play has the same URLs for all viewers, so that caches in
        /// front of this server keep one copy. What a cache delivers is then missing from the viewers' sessions, which
        /// count playlists only. Streams with `[[play]]` or `on_play` are never shared.
        shared: bool = false;
    }

    /// RTMP, for publishers and players. It is not encrypted.
    [rtmp] Rtmp {
        /// Addresses to listen on. Without any there is no RTMP.
        listen: Option<Vec<SocketAddr>> = None, example "\"[::]:1935\"", effect AtStart;
        /// Connections at the same time; further ones are closed. A quarter of the places is for
        /// those who have not published or played yet, half of them for players, and what these
        /// leave, a quarter at least, for publishers who were let in.
        max_connections: u32 = 1_000, in 1..=1_000_000;
        /// Connections of one address (one /56 of IPv6) at the same time; further ones are closed. At
        /// most half of the places of those who have not published or played yet are one address's.
        max_connections_per_address: u32 = 256, in 1..=1_000_000;
        /// A publisher's connection ends when for this long nothing arrived, a player's when for this
        /// long it took nothing, or did not answer a ping.
        timeout: Duration = SECOND * 15, in SECOND..=MINUTE * 10;
        /// Longest handshake, whatever arrives meanwhile.
        handshake_timeout: Duration = SECOND * 5, in MILLISECOND * 100..=MINUTE;
        /// Longest wait for `publish` or `play`, from the connection's start or the end of what was
        /// published or played before, whatever else arrives meanwhile.
        request_timeout: Duration = SECOND * 10, in MILLISECOND * 100..=MINUTE * 10;
        /// Networks of load balancers that say by the PROXY protocol, version 1 or 2, who the client
        /// is. From there each connection has to begin with its header, from elsewhere none may.
        proxy_protocol: Option<Vec<Network>> = None, example "[\"10.0.0.0/8\"]";
    }

    /// HTTP/1.1 and HTTP/2.
    [tcp] Tcp {
        /// Connections at the same time. A further one takes a place of the network that holds most, else
        /// of the connection that has been idle longest, else it is closed.
        max_connections: u32 = 16_384, in 1..=1_000_000;
        /// The same for one address (one /56 of IPv6): a NAT has many viewers behind one.
        max_connections_per_address: u32 = 1_024, in 1..=1_000_000;
        /// TLS handshakes at the same time. A further one takes a place of the network that holds most, else
        /// of the handshake that has gone on longest, from 3 s on, else its connection is closed.
        max_handshakes: u32 = 4_096, in 1..=1_000_000;
        /// The same for one address (one /56 of IPv6).
        max_handshakes_per_address: u32 = 512, in 1..=1_000_000;
        /// Longest TLS handshake, longest wait for a connection's first request from there on, for
        /// each further request head on HTTP/1.1, and for a request's content.
        header_timeout: Duration = SECOND * 15, in SECOND..=MINUTE * 10;
        /// A connection ends when for this long no request came and no response could go on.
        idle_timeout: Duration = MINUTE, in SECOND..=HOUR;
        /// Interval of PINGs on HTTP/2; a client that does not answer one within 15 s has left. 0s: none.
        keep_alive: Duration = SECOND * 20, in Duration::ZERO..=HOUR;
        /// Congestion control, by its name in the kernel; one that it lacks is named in the log. Empty: the kernel's own.
        congestion: String = "bbr".into(), effect AtStart;
        /// Whether the kernel spaces their packets out instead of sending bursts (SO_MAX_PACING_RATE).
        pacing: bool = true, effect AtStart;
        /// Networks of load balancers that say by the PROXY protocol, version 1 or 2, who the client
        /// is. From there each connection has to begin with its header, from elsewhere none may.
        proxy_protocol: Option<Vec<Network>> = None, example "[\"10.0.0.0/8\"]";
    }

    /// Limits for each address, whatever the protocol: docs/operate/limits-table.md has them all.
    [limits] Limits {
        /// Networks whose addresses are not limited one by one: load balancers that do not speak the
        /// PROXY protocol, and edges that pull from this one.
        trusted: Option<Vec<Network>> = None, example "[\"10.0.0.0/8\"]";
        /// Viewers' sessions of one address (one /56 of IPv6) at the same time, over all protocols; further
        /// viewers get status 503. A NAT has many viewers behind one.
        max_sessions_per_address: u32 = 4_096, in 1..=10_000_000;
        /// Of these, those of HLS, which last 20 s beyond the last request and need no connection of their own.
        max_hls_sessions_per_address: u32 = 2_048, in 1..=10_000_000;
    }

    /// The QUIC transport.
    [quic] Quic {
        /// Congestion controller of every connection. `bbr`: BBR version 1 with rules for live streams; `bbr-draft`: by
        /// its draft alone. `cubic` (RFC 9438): random loss freezes live viewers, but not under `cubic-live`, which keeps
        /// the delivered rate where there is no queue. `copa` (NSDI 2018): fails on links that deliver in bunches.
        congestion: Algorithm = Algorithm::Bbr;
        /// When clients must prove their address before the handshake, at the price of a round trip.
        retry: Retry = Retry::Auto;
        /// Whether requests may come in 0-RTT data, which an attacker can replay; only GET and
        /// HEAD are served from it, where a token proves the client's address.
        early_data: bool = true;
        /// TLS 1.3 ciphers.
        ciphers: Vec<Cipher> = vec![Cipher::Aes128, Cipher::Aes256, Cipher::ChaCha20];
        /// Packets sent under one key before the server updates it; 0: only near the limit of the cipher.
        key_update_after: u64 = 0, in 0..=1 << 36;
        /// How long an address token is valid.
        token_lifetime: Duration = DAY, in MINUTE..=DAY * 30;
        /// A connection ends when for this long nothing arrived, also for viewers whose server has died without a word.
        idle_timeout: Duration = SECOND * 15, in SECOND..=MINUTE * 10;
        /// Longest wait for a request's head, from its first byte on, and for its content, from the
        /// head on, with a second more for each KiB of it. Slower requests are reset.
        request_timeout: Duration = SECOND * 10, in SECOND..=MINUTE * 10;
        /// A connection ends when for this long no request was open on it, whatever else arrived.
        unused_timeout: Duration = SECOND * 30, in SECOND..=HOUR;
        /// Interval of PINGs on a silent connection with open requests, at most a third of the idle timeout; 0s: none.
        keep_alive: Duration = SECOND * 5, in Duration::ZERO..=MINUTE * 10;
        /// Longest delay of an acknowledgement.
        max_ack_delay: Duration = MILLISECOND * 25, in MILLISECOND..=MILLISECOND * 1000;
        /// When nothing is heard from a viewer, the longest that probes are apart, for 10 s; then their distance doubles each
        /// time (RFC 9002 doubles it from the first probe on). Shorter brings viewers back sooner after an outage, and
        /// costs two packets each time. It takes nothing from the probe time-out itself.
        longest_probe: Duration = MILLISECOND * 200, in MILLISECOND * 20..=MINUTE;
        /// Bytes of UDP payload in the first datagrams.
        initial_mtu: u16 = 1200, in 1200..=9000;
        /// Bytes of UDP payload up to which larger datagrams are tried.
        max_mtu: u16 = 1452, in 1200..=9000;
        /// Bytes that a client may send on one stream ahead of their reading.
        stream_window: Size = Size::from_kib(64), in Size(1024)..=Size::from_mib(64);
        /// Bytes that a client may send on all streams ahead of their reading, at the start.
        connection_window: Size = Size::from_kib(256), in Size(1024)..=Size::from_mib(256);
        /// Bytes in flight on one connection at most, whatever congestion control would allow. Clients
        /// that acknowledge late make round-trip times, and with them windows, as long as they like;
        /// 8 MiB are enough for 670 Mbit/s at 100 ms. Small packets count 1,200 bytes each.
        max_in_flight: Size = Size::from_mib(8), in Size::from_kib(64)..=Size::from_mib(1024);
        /// Requests at the same time on one connection.
        max_streams: u32 = 128, in 1..=65_536;
        /// Connections at the same time, on all event loops in equal parts; further ones are refused.
        max_connections: u32 = 100_000, in 1..=10_000_000;
        /// Connections of one address (one /56 of IPv6) at the same time, which count once the
        /// handshake has proven it; further ones are closed. A NAT has many viewers behind one.
        max_connections_per_address: u32 = 4_096, in 1..=10_000_000;
        /// UDP port at which viewers reach this server, as HTTP/1.1 and HTTP/2 announce it (Alt-Svc):
        /// behind a port mapping it is another one than the server listens on. 0: the same.
        advertised_port: u16 = 0;
        /// Receive buffer of each UDP socket.
        receive_buffer: Size = Size::from_mib(4), in Size::from_kib(64)..=Size::from_mib(1024),
            effect AtStart;
        /// Send buffer of each UDP socket.
        send_buffer: Size = Size::from_mib(4), in Size::from_kib(64)..=Size::from_mib(1024),
            effect AtStart;
        /// Whether files are also served over HTTP/0.9 (ALPN hq-interop), as interoperability tests want it.
        hq_interop: bool = false;
        /// Directory for qlog files, one per sampled connection. Without it there are none.
        qlog_dir: Option<PathBuf> = None, example "\"/var/log/mendcast/qlog\"";
        /// Share of the connections that write a qlog file.
        qlog_sample: f64 = 1.0, in 0.0..=1.0;
    }

    /// Repair of lost data: replicas beyond the retransmission, for all viewers or by cohort.
    [recovery] Recovery {
        /// How lost data is repaired. "arq": retransmission alone. "deadline": besides, copies for viewers whom
        /// retransmissions would reach too late, as far apart as losses come together on their path, only when nothing
        /// else waits or a viewer on a wide path gets what is kept of the stream to begin with, and none where a queue
        /// is what loses packets (docs/deadline.md). "spare": `copies` of all that was lost, a little later and with
        /// the same regard for what waits: nearly as good, at the same price whoever watches. The others are the
        /// papers' schemes; their copies do not wait for room. "autorec" (AutoRec, journal): the fewest late frames
        /// under independent loss on a network at least twice as wide as the stream, for the most copies; on a narrow
        /// one it freezes the stream many times as often. "autorec-mm24": its version of MM'24, which goes by a
        /// utility. "art-paper": nearly as good where there is room, for half of the copies, which leave at random
        /// within a burst's length; harmful too where it is narrow. Its bandits "art-egreedy" and "art-ucb" and its
        /// network "art-dqn" learn how many. "or3-copies": 2n-2 copies in round n, so none before a retransmission is
        /// lost too: cheap, and little gained. The rest ("art-code", "or3", ...) is for comparison. `mendcast lab run
        /// live-default` measures most of the others.
        scheme: Choice = deadline();
        /// Deadline: how much sooner, in the mean, a copy has to make late data come for it to be sent; to be in time
        /// and not late counts 150 ms more. More: fewer copies; 0s: all that help at all, within `max_redundancy`.
        price: Duration = MILLISECOND * 2, in Duration::ZERO..=recovery::deadline::MAX_PRICE;
        /// Deadline: how long after its first sending data is of use, for viewers whose players do not report what they
        /// have buffered (docs/operate/player-reports.md). It is taken for 200 ms more or less. 350ms suits buffers of
        /// 250 to 500 ms; players with more need fewer copies than they get, and those with less would need more.
        patience: Duration = MILLISECOND * 350, in MILLISECOND * 10..=MINUTE;
        /// Deadline: with each 0.01 that a path loses beyond this, `patience` is 50 ms longer: most players keep more, and copies
        /// for the others have to bring more than `price` (docs/deadline.md). 1.0 switches it off, if all keep 250 to 500 ms.
        patient_above: f64 = 0.05, in recovery::deadline::PATIENT_ABOVE_RANGE;
        /// Spare: replicas of lost data, and as many again when these and the retransmission are lost.
        copies: u32 = 1, in 0..=recovery::spare::MAX_COPIES;
        /// AutoRec: mean recovery latency that is tolerated, of data whose first retransmission was
        /// lost. Fewer replicas are sent when fewer are enough for it.
        latency: Duration = MILLISECOND * 30, in Duration::ZERO..=SECOND * 10;
        /// AutoRec: replicas that are tolerated for each packet that is sent first. With more than
        /// `max_redundancy` it is that which bounds them.
        cost: f64 = 0.3, in 0.0..=10.0;
        /// AutoRec: loss of goodput that is tolerated where the network is the limit.
        goodput: f64 = 0.2, in 0.0..=1.0;
        /// The scheme "art-dqn": file with the weights of its network, as `mendcast lab train` makes it;
        /// experiments/weights/art-dqn.mdqn in the sources is one.
        dqn: Option<PathBuf> = None, example "\"/etc/mendcast/art-dqn.mdqn\"";
        /// What bounds the replicas of each connection, whatever the scheme and the losses: their
        /// bytes for each byte that is sent first, plus 32 packets. What they leave of that is kept for about a second,
        /// for outages. "autorec" and "art-paper" as in their papers need 0.5.
        max_redundancy: f64 = 0.2, in 0.0..=10.0;
        /// The same for all connections of the process together; what they leave of it is kept for about a second,
        /// or 256 KiB of it for ever.
        max_redundancy_of_all: f64 = 0.1, in 0.0..=10.0;
    }

    /// How connections start, so that the first frame comes soon: docs/first-frame.md has what each mode buys.
    [startup] Startup {
        /// "iw10": ten datagrams; "fixed": `usual_window` over `usual_rtt` for all; "wira-ff": the first frame within one
        /// round trip; "wira-hx": window and rate of the viewer's last connection; "wira": the smaller of both windows at
        /// that rate; "steady": the same at the rate that was usual instead of the best, and without a cookie 20 datagrams
        /// within one round trip; "rapid": Rapid Start; "careful": Careful Resume (RFC 9959).
        mode: Mode = Mode::Steady;
        /// The largest first flight: what a wrong cookie can throw at a path in one round trip.
        max_jump: Size = Size::from_kib(256), in Size::from_kib(4)..=Size::from_mib(16);
        /// The window of a viewer of whom nothing is known: your own viewers' average first frame.
        usual_window: Size = Size(43_100), in Size::from_kib(4)..=Size::from_mib(16);
        /// The round trip of a viewer of whom nothing is known: your own viewers' average.
        usual_rtt: Duration = MILLISECOND * 50, in MILLISECOND..=SECOND;
        /// How long what a connection learned about its path is good for the next one.
        lifetime: Duration = HOUR, in MINUTE..=DAY;
        /// Whether browsers get what was measured as an HTTP cookie too (`mendcast-path`, Secure, HttpOnly, Partitioned), which
        /// survives their restart as tickets and tokens do not. It is set by beacons' and pages' responses, and a site may have to
        /// ask its visitors for their consent.
        http_cookie: bool = false;
        /// Networks (/24 and /48) whose last connection is remembered for viewers who bring nothing along, at 200 bytes
        /// each; 0: none.
        networks: u32 = 16_384, in 0..=10_000_000, effect AtStart;
    }

    /// HTTP hooks: your own server is asked or told by a POST of JSON. Any status from 200 to 299
    /// grants. `user:password@` in a URL becomes Basic authorization.
    [hooks] Hooks {
        /// Asked before somebody publishes.
        on_publish: Option<HttpUrl> = None, example "\"http://127.0.0.1:8000/publish\"";
        /// Asked before somebody plays.
        on_play: Option<HttpUrl> = None, example "\"http://127.0.0.1:8000/play\"";
        /// Told when a viewer has left, with the session's record.
        on_close: Option<HttpUrl> = None, example "\"http://127.0.0.1:8000/close\"", effect AtOnce;
        /// Signs each request: `x-mendcast-signature: sha256=HEX`, the HMAC of its body.
        secret: Option<String> = None, example "\"a long random word\"", effect AtOnce;
        /// Longest wait for the answer.
        timeout: Duration = SECOND * 3, in MILLISECOND * 10..=MINUTE, effect AtOnce;
        /// Questions asked at the same time, separately for `on_play` and `on_publish`; a quarter of them per network
        /// (/24, /48), half of that per address. Further ones wait for up to half of `timeout`; then players get 503.
        max_at_once: u32 = 64, in 1..=10_000, effect AtOnce;
        /// What it means when there is none.
        on_failure: OnFailure = OnFailure::Refuse;
    }

    /// What sessions may send at most, learned from others of their user group (docs/autoplex.md). HTTP/3 alone.
    [autoplex] AutoPlex {
        /// "off"; "demand": to `ceiling` times each stream's own rate, without a table; "safe": to what the table says,
        /// between `floor` and `ceiling`; "paper": as published, which starves streams of a high bit rate, for comparison.
        mode: PlexMode = PlexMode::Off;
        /// The table of groups and parameters that `mendcast autoplex decide` writes. It is looked at every 5 s; a damaged
        /// one changes nothing, and without one nobody is held.
        table: Option<PathBuf> = None, example "\"/var/lib/mendcast/table.groups\"", effect AtOnce;
        /// Share of viewers who are never held, and whom the next tables are learned from.
        explorers: f64 = 0.1, in 0.0..=1.0;
        /// Share of viewers who are never held, to compare with.
        holdout: f64 = 0.05, in 0.0..=1.0;
        /// Share of a group's periods in which nobody of it is held, to compare with.
        control: f64 = 0.1, in 0.0..=1.0;
        /// Length of these periods: that between decisions.
        period: Duration = MINUTE * 30, in SECOND..=DAY;
        /// Another salt makes others explorers.
        salt: String = String::new();
        /// The least rate that a stream is held to, as a multiple of its own.
        floor: f64 = 1.5, in 1.0..=100.0;
        /// The most that a stream is held to, as a multiple of its own rate.
        ceiling: f64 = 3.0, in 1.0..=1000.0;
        /// What both are multiplied by for viewers who are behind, have come less than 3 s ago, or fetch segments.
        behind: f64 = 1.5, in 1.0..=100.0;
    }

    /// Dashboard, metrics, health and control, in plain HTTP: for this machine or a private network.
    [admin] Admin {
        /// Address to listen on. Without one it is 127.0.0.1:9433 if that is free.
        listen: Option<SocketAddr> = None, example "\"127.0.0.1:9433\"", effect AtStart;
        /// Names under which the dashboard may be asked for, beside localhost and addresses: pages of
        /// other sites could have theirs point here. `/metrics`, `/healthz` and `/readyz` answer to any name.
        hosts: Option<Vec<String>> = None, example "[\"edge-1.example\"]", effect AtOnce;
        /// What control calls bring along, as `Authorization: Bearer TOKEN`. Where `listen` is no loopback address
        /// nobody may control the server without one; on loopback everybody on this machine may.
        token: Option<Secret> = None, example "\"32-random-letters-or-digits-0123\"", effect AtOnce;
        /// File whose only line is such a token; with `token` either of them will do. It is read again at each reload.
        token_file: Option<PathBuf> = None, example "\"/etc/mendcast/admin-token\"", effect AtOnce;
    }

    /// How viewers are divided into cohorts.
    [experiment] Experiment {
        /// Another salt divides viewers anew: one for each experiment.
        salt: String = String::new();
        /// Whether all cohorts get the first one's scheme, to see what chance alone does.
        aa: bool = false;
    }

    /// A row per viewer session, as JSON lines and Parquet.
    [records] Records {
        /// Directory of the files. Without it there are none.
        directory: Option<PathBuf> = None, example "\"/var/lib/mendcast/records\"", effect AtStart;
        /// How long one file goes on. The Parquet file is written at its end.
        period: Duration = HOUR, in SECOND..=DAY * 30, effect AtStart;
        /// Files older than this are removed when a new one begins; 0s keeps them.
        keep: Duration = DAY * 90, in Duration::ZERO..=DAY * 3_650, effect AtStart;
        /// Beyond this size of all files the oldest are removed when a new one begins; 0 for no limit.
        max_size: Size = Size(10 << 30), in Size(0)..=Size(1 << 50), effect AtStart;
    }

    /// Logs; the messages go to stderr.
    [log] Log {
        /// The least important messages that are logged.
        level: Level = Level::Info, effect AtOnce;
        /// File to which each closed connection appends one line of JSON. Without it there is none.
        connections: Option<PathBuf> = None, example "\"/var/log/mendcast/connections.jsonl\"",
            effect AtStart;
    }

    /// The end of the process on SIGTERM or SIGINT; a second signal ends it at once.
    [drain] Drain {
        /// How long open requests may go on.
        timeout: Duration = SECOND * 30, in Duration::ZERO..=DAY, effect AtOnce;
        /// How long publishers over RTMP may go on. Then they are sent away and their streams end for viewers.
        publishers: Duration = SECOND * 5, in Duration::ZERO..=DAY, effect AtOnce;
    }

    // What may stand any number of times.
    ;

    /// A cohort of viewers. Without any, all are in one. What it does not say is as in [recovery] and [startup].
    [[cohort]] Cohort {
        /// Its name in metrics and records.
        name: String = String::new(), required "\"control\"";
        /// Its share of the viewers, against the other weights.
        weight: u32 = 1, in 1..=1_000_000;
        /// How lost data is repaired.
        scheme: Option<Choice> = None, example "\"arq\"";
        /// Deadline: how much sooner a copy has to make late data come.
        price: Option<Duration> = None, in Some(Duration::ZERO)..=Some(recovery::deadline::MAX_PRICE), example "\"2ms\"";
        /// Deadline: how long after its first sending data is of use, where the player does not report.
        patience: Option<Duration> = None, in Some(MILLISECOND * 10)..=Some(MINUTE), example "\"350ms\"";
        /// Deadline: the loss above which `patience` gets longer.
        patient_above: Option<f64> = None, in Some(0.01)..=Some(1.0), example "0.05";
        /// Spare: replicas of lost data.
        copies: Option<u32> = None, in Some(0)..=Some(recovery::spare::MAX_COPIES), example "1";
        /// AutoRec: recovery latency that is tolerated.
        latency: Option<Duration> = None, in Some(Duration::ZERO)..=Some(SECOND * 10), example "\"30ms\"";
        /// AutoRec: replicas that are tolerated for each packet that is sent first.
        cost: Option<f64> = None, in Some(0.0)..=Some(10.0), example "0.3";
        /// AutoRec: loss of goodput that is tolerated.
        goodput: Option<f64> = None, in Some(0.0)..=Some(1.0), example "0.2";
        /// How its connections start.
        start: Option<Mode> = None, example "\"wira\"";
    }

    /// Streams that only signed URLs play: `?expires=SECONDS&sig=HEX`, as `mendcast edge sign` makes them.
    [[play]] Play {
        /// The streams: a name, or the start of names and `*`.
        stream: String = String::new(), required "\"paid/*\"";
        /// What signatures are made with.
        key: String = String::new(), required "\"a long random word\"";
    }

    /// Streams that are pulled from elsewhere when somebody wants to see them.
    [[pull]] Pull {
        /// The streams: a name, or the start of names and `*`.
        stream: String = String::new(), required "\"live/*\"";
        /// Where they are: rtmp://, rtmps://, http:// or https:// URLs of RTMP, HTTP-FLV or HLS. `{name}` stands for
        /// the stream's name, `{tail}` for what the `*` stood for; `user:password@` in an http or https URL becomes
        /// Basic authorization. The next one is tried when one fails; while a later one serves, the first is tried
        /// again in the background, after 10 s at first and at last each 5 minutes.
        upstream: Vec<Upstream> = Vec::new(), required "[\"rtmp://origin.example/{name}\"]";
        /// Header fields of the requests to the servers that `upstream` names over http and https;
        /// servers that those lead to do not get them.
        headers: Option<Vec<Header>> = None, example "[\"x-key: a long random word\"]";
        /// Certificate authorities to trust, PEM, instead of the system's.
        ca_file: Option<PathBuf> = None, example "\"/etc/mendcast/origin-ca.pem\"";
        /// Which variant of an HLS upstream is pulled: the one with the most bits, the one with the
        /// fewest, or the one with the most bits up to this number of Mbit/s.
        variant: Variant = Variant::Highest;
        /// Longest wait for an upstream's first frame, and for each further one; of an HLS upstream
        /// at least three times the target duration of its segments.
        timeout: Duration = SECOND * 10, in MILLISECOND * 100..=MINUTE;
        /// How long a stream that nobody watches is still pulled.
        idle: Duration = SECOND * 10, in Duration::ZERO..=HOUR;
        /// Streams of this rule that are asked for and gave no frame yet, at the same time: further
        /// names are answered with 503 and Retry-After. They do not count as `[live] max_streams`.
        max_pending: u32 = 32, in 1..=10_000;
    }

    /// Who may publish. Without any rule, publishers from this machine alone may.
    [[publish]] Publish {
        /// The streams: a name such as "live/demo", or the start of names and `*`.
        stream: String = String::new(), required "\"live/*\"";
        /// What a publisher appends to the stream's name as `?key=KEY`.
        key: String = String::new(), required "\"a long random word\"";
    }
}
