//! The configuration file: strict TOML in which every key has a default.
//!
//! The table at the end of this file is the only place that knows the keys. It gives the structs
//! with their documentation, the defaults, the permitted ranges, the text of `--print-defaults`
//! and the errors, so none of them can disagree with another. The file is walked as a table with
//! positions rather than through serde, because an error has to name line, key, what was
//! expected, and what was found.

mod value;

use core::fmt::Write as _;
use core::net::SocketAddr;
use core::ops::{Range, RangeInclusive};
use core::time::Duration;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::Error;
pub use value::Size;
use value::{Value, words};

words! {
    /// The congestion controller of every connection.
    Congestion {
        /// BBR version 1.
        Bbr = "bbr",
        /// CUBIC with HyStart++ (RFC 9438, RFC 9406).
        Cubic = "cubic",
    }
}

words! {
    /// When a client must prove its address by a Retry (RFC 9000, section 8.1.2).
    Retry {
        /// Never.
        Never = "never",
        /// While many handshakes are unfinished.
        Auto = "auto",
        /// Always, unless the client brings a valid token.
        Always = "always",
    }
}

words! {
    /// An AEAD that TLS 1.3 may choose (RFC 9001, section 5.3).
    Cipher {
        /// TLS_AES_128_GCM_SHA256.
        Aes128 = "aes128",
        /// TLS_AES_256_GCM_SHA384.
        Aes256 = "aes256",
        /// TLS_CHACHA20_POLY1305_SHA256.
        ChaCha20 = "chacha20",
    }
}

words! {
    /// The least important messages that are still logged.
    Level {
        /// What stops something from working.
        Error = "error",
        /// What works worse than asked.
        Warn = "warn",
        /// What an operator wants to see once.
        Info = "info",
        /// Decisions of the server.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

impl Config {
    /// Reads and checks the file at `path`; relative paths in it start at its directory.
    ///
    /// # Errors
    /// One line: the file cannot be read, is no TOML, or a key is unknown or has a wrong value.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let name = path.display();
        let text = std::fs::read_to_string(path).map_err(|e| Error::new(format!("{name}: {e}")))?;
        let mut config = Self::parse(&name.to_string(), &text)?;
        let base = path.parent().unwrap_or(Path::new(""));
        let Self { server, quic, log, .. } = &mut config;
        let paths = [&mut server.certificate, &mut server.key, &mut server.root]
            .into_iter()
            .chain([&mut server.key_file, &mut quic.qlog_dir, &mut log.connections]);
        for path in paths.flatten() {
            *path = base.join(&*path);
        }
        Ok(config)
    }

    /// Reads and checks `text`; `name` stands for the file in errors.
    ///
    /// # Errors
    /// One line `name:LINE: [section] key: expected …, got …`.
    pub fn parse(name: &str, text: &str) -> Result<Self, Error> {
        let at = |span: Range<usize>, what: String| {
            let line = text.bytes().take(span.start).filter(|&b| b == b'\n').count() + 1;
            Error::new(format!("{name}:{line}: {what}"))
        };
        let table = DeTable::parse(text).map_err(|e| {
            at(e.span().unwrap_or_default(), e.message().lines().collect::<Vec<_>>().join(", "))
        })?;
        let mut config = Self::default();
        for (section, body) in table.get_ref() {
            let Some(keys) = body.get_ref().as_table() else {
                let names = Self::sections();
                let what = format!("{}: expected a section, one of {names}", section.get_ref());
                return Err(at(section.span(), what));
            };
            let Some(known) = config.section(section.get_ref()) else {
                let names = Self::sections();
                let what = format!("[{}]: unknown section, expected {names}", section.get_ref());
                return Err(at(section.span(), what));
            };
            for (key, value) in keys {
                known.set(key.get_ref(), value.get_ref()).map_err(|problem| {
                    let name = format!("[{}] {}", section.get_ref(), key.get_ref());
                    match problem {
                        Problem::Key(keys) => {
                            at(key.span(), format!("{name}: unknown key, expected one of {keys}"))
                        }
                        Problem::Value(expected) => {
                            let got = excerpt(&text[value.span()]);
                            at(value.span(), format!("{name}: expected {expected}, got {got}"))
                        }
                    }
                })?;
            }
        }
        match config.contradiction() {
            Some((section, key, what)) => {
                let span = position(table.get_ref(), section, key);
                Err(at(span, format!("[{section}] {key}: {what}")))
            }
            None => Ok(config),
        }
    }

    /// The keys that disagree with another key: section, key to blame, what was expected.
    fn contradiction(&self) -> Option<(&'static str, &'static str, String)> {
        let Self { server, quic, .. } = self;
        if server.certificate.is_some() != server.key.is_some() {
            let given = if server.key.is_some() { "key" } else { "certificate" };
            return Some(("server", given, "expected certificate and key, or neither".into()));
        }
        if quic.initial_mtu > quic.max_mtu {
            let what = format!("expected at least initial_mtu = {}", quic.initial_mtu);
            return Some(("quic", "max_mtu", format!("{what}, got {}", quic.max_mtu)));
        }
        if quic.stream_window > quic.connection_window {
            let what = format!("expected at least stream_window = {}", quic.stream_window);
            let got = quic.connection_window;
            return Some(("quic", "connection_window", format!("{what}, got {got}")));
        }
        None
    }

    /// A file that holds every key with its documentation and its default value; keys without a
    /// default value stand there as a comment.
    pub fn documented() -> String {
        let mut out = String::from(
            "# Every key of mendcast edge, with its default value.\n\
             # Durations: us, ms, s, m, h, d. Sizes: B, kB, MB, GB, KiB, MiB, GiB.\n\
             # Relative paths start at the directory of this file.\n",
        );
        Self::default().describe(&mut out);
        out
    }
}

/// Where the file gives `key`, else its section, else its start.
fn position(table: &DeTable<'_>, section: &str, key: &str) -> Range<usize> {
    let Some((header, body)) = table.iter().find(|(name, _)| name.get_ref() == section) else {
        return 0..0;
    };
    let keys = body.get_ref().as_table();
    let found = keys.and_then(|keys| keys.keys().find(|name| name.get_ref() == key));
    found.map_or_else(|| header.span(), Spanned::span)
}

/// `text` as an error quotes it: the first line, at most 60 characters.
fn excerpt(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let short: String = line.chars().take(60).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}

/// Why a key could not be set.
enum Problem {
    /// It does not exist; these do.
    Key(String),
    /// Its value is wrong; this was expected.
    Value(String),
}

/// The keys of one section.
trait Section {
    fn set(&mut self, key: &str, value: &DeValue<'_>) -> Result<(), Problem>;
    fn describe(&self, out: &mut String);
}

/// Puts what the file says into `slot`, if it is of the right type and in `range`.
fn assign<T: Value + PartialOrd>(
    slot: &mut T,
    value: &DeValue<'_>,
    range: Option<RangeInclusive<T>>,
) -> Result<(), Problem> {
    match (T::read(value), &range) {
        (Some(read), None) => *slot = read,
        (Some(read), Some(range)) if range.contains(&read) => *slot = read,
        (_, None) => return Err(Problem::Value(T::expected())),
        (_, Some(range)) => return Err(Problem::Value(in_words(range))),
    }
    Ok(())
}

fn in_words<T: Value>(range: &RangeInclusive<T>) -> String {
    let end = |value: &T| value.toml().unwrap_or_default();
    format!("{} to {}", end(range.start()), end(range.end()))
}

/// One key of `--print-defaults`.
fn describe_key<T: Value>(
    out: &mut String,
    key: &str,
    docs: &[&str],
    value: &T,
    range: Option<RangeInclusive<T>>,
    example: Option<&str>,
) {
    out.push('\n');
    for line in docs {
        let _ = writeln!(out, "#{line}");
    }
    match range {
        Some(range) => drop(writeln!(out, "# Expected: {}.", in_words(&range))),
        None => drop(writeln!(out, "# Expected: {}.", T::expected())),
    }
    match (value.toml(), example) {
        (Some(value), _) => drop(writeln!(out, "{key} = {value}")),
        (None, Some(example)) => drop(writeln!(out, "# {key} = {example}")),
        (None, None) => drop(writeln!(out, "# {key} =")),
    }
}

macro_rules! optional {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}

macro_rules! sections {
    ($($(#[doc = $about:literal])+ [$section:ident] $Type:ident {
        $($(#[doc = $doc:literal])+
        $key:ident: $Value:ty = $default:expr $(, in $range:expr)? $(, example $example:literal)?;)+
    })+) => {
        /// A configuration: one field per section of the file.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Config {
            $($(#[doc = $about])+ pub $section: $Type,)+
        }

        impl Config {
            fn section(&mut self, name: &str) -> Option<&mut dyn Section> {
                match name {
                    $(stringify!($section) => Some(&mut self.$section),)+
                    _ => None,
                }
            }

            fn sections() -> String {
                [$(concat!("[", stringify!($section), "]")),+].join(", ")
            }

            fn describe(&self, out: &mut String) {
                $(
                    out.push('\n');
                    $(let _ = writeln!(out, "#{}", $about);)+
                    let _ = writeln!(out, "[{}]", stringify!($section));
                    self.$section.describe(out);
                )+
            }
        }

        $(
            $(#[doc = $about])+
            #[derive(Clone, Debug, PartialEq)]
            pub struct $Type {
                $($(#[doc = $doc])+ pub $key: $Value,)+
            }

            impl Default for $Type {
                fn default() -> Self {
                    Self { $($key: $default,)+ }
                }
            }

            impl Section for $Type {
                fn set(&mut self, key: &str, value: &DeValue<'_>) -> Result<(), Problem> {
                    match key {
                        $(stringify!($key) => {
                            assign(&mut self.$key, value, optional!($($range)?))
                        })+
                        _ => Err(Problem::Key([$(stringify!($key)),+].join(", "))),
                    }
                }

                fn describe(&self, out: &mut String) {
                    $(describe_key(
                        out,
                        stringify!($key),
                        &[$($doc),+],
                        &self.$key,
                        optional!($($range)?),
                        optional!($($example)?),
                    );)+
                }
            }
        )+
    };
}

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

sections! {
    /// Addresses, identity and content.
    [server] Server {
        /// Where viewers connect: UDP for HTTP/3, TCP for HTTP/1.1 and HTTP/2. `[::]` takes IPv4 as
        /// well, unless an IPv4 address with the same port is listed too.
        listen: Vec<SocketAddr> = vec![SocketAddr::from(([0u16; 8], 4433))];
        /// Certificate chain, PEM, the server's own first. Without it the server makes a
        /// self-signed one for development.
        certificate: Option<PathBuf> = None, example "\"/etc/mendcast/chain.pem\"";
        /// Private key of the certificate, PEM (PKCS #8, SEC1 or PKCS #1).
        key: Option<PathBuf> = None, example "\"/etc/mendcast/key.pem\"";
        /// Directory whose files are served. Without it there are none.
        root: Option<PathBuf> = None, example "\"/srv/www\"";
        /// Secrets of tokens, tickets, resets and connection IDs, shared by the nodes of a site.
        /// Without it they are made at the start and end with the process.
        key_file: Option<PathBuf> = None, example "\"/etc/mendcast/secrets\"";
        /// QUIC event loops; 0: one per core.
        cores: u16 = 0, in 0..=256;
        /// This node's number in its site, part of its connection IDs.
        server_id: u16 = 0;
    }

    /// Static files.
    [files] Files {
        /// Value of the Cache-Control header of files.
        cache_control: String = "no-cache".into();
        /// Small files kept in memory, together.
        memory: Size = Size::from_mib(64), in Size(0)..=Size(1 << 40);
    }

    /// HTTP/1.1 and HTTP/2.
    [tcp] Tcp {
        /// Connections at the same time; further ones wait to be accepted.
        max_connections: u32 = 4096, in 1..=1_000_000;
        /// Longest TLS handshake, and longest wait for a request head on HTTP/1.1.
        header_timeout: Duration = SECOND * 15, in SECOND..=MINUTE * 10;
        /// A connection ends when for this long no request came and no response could go on.
        idle_timeout: Duration = MINUTE, in SECOND..=HOUR;
    }

    /// The QUIC transport.
    [quic] Quic {
        /// Congestion controller.
        congestion: Congestion = Congestion::Bbr;
        /// When clients must prove their address before the handshake, at the price of a round
        /// trip.
        retry: Retry = Retry::Auto;
        /// Whether requests may come in 0-RTT data, which an attacker can replay; only GET and
        /// HEAD are served from it.
        early_data: bool = true;
        /// TLS 1.3 ciphers.
        ciphers: Vec<Cipher> = vec![Cipher::Aes128, Cipher::Aes256, Cipher::ChaCha20];
        /// Packets sent under one key before the server updates it; 0: only near the limit of the
        /// cipher.
        key_update_after: u64 = 0, in 0..=1 << 36;
        /// How long an address token is valid.
        token_lifetime: Duration = DAY, in MINUTE..=DAY * 30;
        /// A connection ends when for this long nothing arrived.
        idle_timeout: Duration = SECOND * 30, in SECOND..=MINUTE * 10;
        /// Interval of PINGs on a connection with open requests; 0s: none.
        keep_alive: Duration = Duration::ZERO, in Duration::ZERO..=MINUTE * 10;
        /// Longest delay of an acknowledgement.
        max_ack_delay: Duration = MILLISECOND * 25, in MILLISECOND..=MILLISECOND * 1000;
        /// Bytes of UDP payload in the first datagrams.
        initial_mtu: u16 = 1200, in 1200..=9000;
        /// Bytes of UDP payload up to which larger datagrams are tried.
        max_mtu: u16 = 1452, in 1200..=9000;
        /// Bytes that a client may send on one stream ahead of their reading.
        stream_window: Size = Size::from_kib(64), in Size(1024)..=Size::from_mib(64);
        /// Bytes that a client may send on all streams ahead of their reading, at the start.
        connection_window: Size = Size::from_kib(256), in Size(1024)..=Size::from_mib(256);
        /// Requests at the same time on one connection.
        max_streams: u32 = 128, in 1..=65_536;
        /// Connections at the same time; further ones are refused.
        max_connections: u32 = 100_000, in 1..=10_000_000;
        /// Receive buffer of each UDP socket.
        receive_buffer: Size = Size::from_mib(4), in Size::from_kib(64)..=Size::from_mib(1024);
        /// Send buffer of each UDP socket.
        send_buffer: Size = Size::from_mib(4), in Size::from_kib(64)..=Size::from_mib(1024);
        /// Whether files are also served over HTTP/0.9 (ALPN hq-interop), as interoperability
        /// tests want it.
        hq_interop: bool = false;
        /// Directory for qlog files, one per sampled connection. Without it there are none.
        qlog_dir: Option<PathBuf> = None, example "\"/var/log/mendcast/qlog\"";
        /// Share of the connections that write a qlog file.
        qlog_sample: f64 = 1.0, in 0.0..=1.0;
    }

    /// Logs; the messages go to stderr.
    [log] Log {
        /// The least important messages that are logged; read at the start only.
        level: Level = Level::Info;
        /// File to which each closed connection appends one line of JSON. Without it there is
        /// none.
        connections: Option<PathBuf> = None, example "\"/var/log/mendcast/connections.jsonl\"";
    }

    /// The end of the process on SIGTERM or SIGINT; a second signal ends it at once.
    [drain] Drain {
        /// How long open requests may go on.
        timeout: Duration = SECOND * 30, in Duration::ZERO..=DAY;
    }
}

#[cfg(test)]
mod tests;
