//! The products, and how each one is started and viewed.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::super::media::{Streams, TagSource};
use super::super::publisher::{Ingest, Publisher};
use super::super::servers::{self, Process, Programs, RunningServer, ViewTransport};
use super::super::turn::{self, Feed};
use crate::Failure;
use crate::identity::NAME;

/// nginx-rtmp as installed by Debian.
const NGINX_MODULE: &str = "/usr/lib/nginx/modules/ngx_rtmp_module.so";
/// Maximum number of players. The edge gives them half of its RTMP connections.
const MAX_PLAYERS: u32 = 5_000;

/// A product with the protocol of its viewers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Product {
    Mendcast,
    MendcastHttp2,
    MendcastRtmp,
    MendcastRtmps,
    Quinn,
    Moq,
    MediaMtxRtmp,
    MediaMtxRtmps,
    NginxRtmp,
}

/// Programs of the products.
pub(super) struct ProductPrograms {
    /// Programs of the other benchmarks too.
    pub common: Programs,
    /// Directory of the installed products.
    pub installed: PathBuf,
}

impl Product {
    pub(super) const ALL: [Self; 9] = [
        Self::Mendcast,
        Self::Quinn,
        Self::Moq,
        Self::MendcastHttp2,
        Self::MendcastRtmps,
        Self::MediaMtxRtmps,
        Self::MendcastRtmp,
        Self::MediaMtxRtmp,
        Self::NginxRtmp,
    ];

    /// Returns the product's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Mendcast | Self::MendcastHttp2 | Self::MendcastRtmp | Self::MendcastRtmps => {
                "mendcast"
            }
            Self::Quinn => "quinn + h3",
            Self::Moq => "moq-relay",
            Self::MediaMtxRtmp | Self::MediaMtxRtmps => "MediaMTX",
            Self::NginxRtmp => "nginx-rtmp",
        }
    }

    /// Returns the protocol of its viewers.
    pub(super) fn protocol(self) -> &'static str {
        match self.transport() {
            ViewTransport::H3 => "FLV over HTTP/3",
            ViewTransport::H2 => "FLV over HTTP/2",
            ViewTransport::Hls => "HLS",
            ViewTransport::Rtmp => "RTMP",
            ViewTransport::Rtmps => "RTMPS",
            ViewTransport::Moq => "MoQ (moq-lite)",
        }
    }

    /// Returns name and protocol.
    pub(super) fn title(self) -> String {
        format!("{}, {}", self.name(), self.protocol())
    }

    pub(super) fn transport(self) -> ViewTransport {
        match self {
            Self::Mendcast | Self::Quinn => ViewTransport::H3,
            Self::MendcastHttp2 => ViewTransport::H2,
            Self::MendcastRtmp | Self::MediaMtxRtmp | Self::NginxRtmp => ViewTransport::Rtmp,
            Self::MendcastRtmps | Self::MediaMtxRtmps => ViewTransport::Rtmps,
            Self::Moq => ViewTransport::Moq,
        }
    }

    pub(super) fn is_encrypted(self) -> bool {
        self.transport() != ViewTransport::Rtmp
    }

    /// Returns how the product is limited to one event loop.
    pub(super) fn loops(self) -> &'static str {
        match self {
            Self::Mendcast | Self::MendcastHttp2 | Self::MendcastRtmp | Self::MendcastRtmps => {
                "`[server] cores = 1`: a loop for QUIC, a loop for TCP"
            }
            Self::Quinn => "one thread",
            Self::Moq => {
                "`--runtime-workers 1 --runtime-pin=false`, `TOKIO_WORKER_THREADS=1`: a loop for \
                 QUIC, a loop for the rest"
            }
            Self::MediaMtxRtmp | Self::MediaMtxRtmps => {
                "`GOMAXPROCS=1`: Go code runs on one thread at a time, system calls on more"
            }
            Self::NginxRtmp => "`worker_processes 1`",
        }
    }

    /// Returns the path of a missing program and how to install it.
    pub(super) fn missing(self, programs: &ProductPrograms) -> Option<(PathBuf, &'static str)> {
        let script = "bench/products";
        let common = &programs.common;
        let needed = match self {
            Self::Mendcast | Self::MendcastHttp2 | Self::MendcastRtmp | Self::MendcastRtmps => {
                vec![(common.mendcast.clone(), "make bench-products")]
            }
            Self::Quinn => vec![(common.peer.clone(), "make bench-products")],
            Self::Moq => ["moq-relay", "mendcast-moq"]
                .map(|name| (programs.installed.join(name), script))
                .to_vec(),
            Self::MediaMtxRtmp | Self::MediaMtxRtmps => {
                vec![(programs.installed.join("mediamtx"), script)]
            }
            Self::NginxRtmp => {
                let program = servers::nginx_program().unwrap_or(Path::new("/usr/sbin/nginx"));
                let how = "apt-get install libnginx-mod-rtmp";
                vec![(program.to_owned(), how), (PathBuf::from(NGINX_MODULE), how)]
            }
        };
        needed.into_iter().find(|(path, _)| !path.exists())
    }

    /// Starts the product's server.
    pub(super) fn start(self, programs: &ProductPrograms) -> Result<RunningServer, Failure> {
        let common = &programs.common;
        match self {
            Self::Mendcast | Self::MendcastHttp2 => mendcast(common).map(|(server, _)| server),
            Self::MendcastRtmp => {
                let (server, _) = mendcast(common)?;
                match server.ingest {
                    Ingest::Rtmp(address) => Ok(RunningServer { address, ..server }),
                    _ => Err("the edge has no RTMP".into()),
                }
            }
            Self::MendcastRtmps => {
                mendcast(common).map(|(server, address)| RunningServer { address, ..server })
            }
            Self::Quinn => servers::relay(common),
            Self::Moq => moq_relay(programs),
            Self::MediaMtxRtmp | Self::MediaMtxRtmps => media_mtx(self, programs),
            Self::NginxRtmp => nginx(common),
        }
    }

    /// Publishes the streams.
    pub(super) fn publish(
        self,
        programs: &ProductPrograms,
        ingest: &Ingest,
        streams: usize,
    ) -> Result<Feed, Failure> {
        match ingest {
            Ingest::Moq(address) => {
                let mut command = moq(programs, "publish", *address);
                let mut child = command.arg(streams.to_string()).stdout(Stdio::piped()).spawn()?;
                let line = child.stdout.as_mut().map(servers::read_line).unwrap_or_default();
                let process = Process(child);
                match line.as_str() {
                    "publishing" => Ok(Feed::Program(process)),
                    _ => Err(format!("the publisher did not start: {line}").into()),
                }
            }
            _ => {
                let streams = Streams::new(streams, TagSource::new);
                Publisher::start_many(ingest, streams).map(Feed::Thread)
            }
        }
    }

    /// Returns the command of its viewers.
    pub(super) fn watch(
        self,
        programs: &ProductPrograms,
        address: SocketAddr,
        (streams, viewers): (usize, usize),
    ) -> Result<Command, Failure> {
        let path = match self.transport() {
            ViewTransport::Moq => {
                let mut command = moq(programs, "watch", address);
                command.arg(streams.to_string()).arg(viewers.to_string());
                return Ok(command);
            }
            ViewTransport::Rtmp | ViewTransport::Rtmps => "/live/bench{}",
            _ => "/live/bench{}.flv",
        };
        turn::watch(address, &programs.common.dir, (path, streams), self.transport(), viewers)
    }
}

/// Starts `mendcast edge`. Returns the address of RTMPS too.
fn mendcast(programs: &Programs) -> Result<(RunningServer, SocketAddr), Failure> {
    let rtmps = servers::free_address()?;
    let config =
        servers::write_config(&programs.dir, &rtmp_keys(rtmps), &servers::edge_settings(1))?;
    let (server, _) = servers::start_edge(&programs.mendcast, &config)?;
    Ok((server, rtmps))
}

fn rtmp_keys(rtmps: SocketAddr) -> String {
    let most = 2 * MAX_PLAYERS;
    format!(
        "tls_listen = \"{rtmps}\"\nmax_connections = {most}\n\
         max_connections_per_address = {most}\n"
    )
}

/// Starts MediaMTX with RTMP and RTMPS only.
fn media_mtx(product: Product, programs: &ProductPrograms) -> Result<RunningServer, Failure> {
    let (rtmp, rtmps) = (servers::free_address()?, servers::free_address()?);
    let dir = &programs.common.dir;
    let config = dir.join("mediamtx.yml");
    fs::write(&config, media_mtx_config(rtmp, rtmps, dir))?;
    let mut command = Command::new(programs.installed.join("mediamtx"));
    command.arg(&config).env("GOMAXPROCS", "1").stdout(Stdio::null()).stderr(Stdio::null());
    let process = servers::start_on(command, rtmps)?;
    let address = if product.is_encrypted() { rtmps } else { rtmp };
    Ok(RunningServer { process, address, ingest: Ingest::Rtmp(rtmp) })
}

fn media_mtx_config(rtmp: SocketAddr, rtmps: SocketAddr, dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "logLevel: error\nrtsp: false\nhls: false\nwebrtc: false\nsrt: false\nmoq: false\n\
         rtmp: true\nrtmpEncryption: optional\nrtmpAddress: {rtmp}\nrtmpsAddress: {rtmps}\n\
         rtmpServerKey: {dir}/key.pem\nrtmpServerCert: {dir}/chain.pem\n\
         paths:\n  all_others:\n"
    )
}

fn nginx(programs: &Programs) -> Result<RunningServer, Failure> {
    let address = servers::free_address()?;
    let config = programs.dir.join("nginx-rtmp.conf");
    fs::write(&config, nginx_config(address, &programs.dir))?;
    let program = servers::nginx_program().ok_or("nginx is not installed")?;
    let process = servers::start_nginx(program, &config, address)?;
    Ok(RunningServer { process, address, ingest: Ingest::Rtmp(address) })
}

fn nginx_config(address: SocketAddr, dir: &Path) -> String {
    let (user, dir) = (servers::nginx_user(), dir.display());
    format!(
        "load_module {NGINX_MODULE};\n{user}daemon off;\nworker_processes 1;\n\
         pid {dir}/nginx-rtmp.pid;\nerror_log stderr error;\n\
         events {{ worker_connections 8192; }}\n\
         rtmp {{\n access_log off;\n server {{\n  listen {address};\n  \
         application live {{ live on; }}\n }}\n}}\n"
    )
}

/// Starts `moq-relay`. Its publisher and viewers retry until it listens.
fn moq_relay(programs: &ProductPrograms) -> Result<RunningServer, Failure> {
    let address = UdpSocket::bind("127.0.0.1:0")?.local_addr()?;
    let dir = &programs.common.dir;
    let mut command = Command::new(programs.installed.join("moq-relay"));
    command.arg("--listen").arg(address.to_string());
    command.arg("--listen-tls-cert").arg(dir.join("chain.pem"));
    command.arg("--listen-tls-key").arg(dir.join("key.pem"));
    command.args(["--auth-public", "**", "--runtime-workers", "1", "--runtime-pin=false"]);
    command.args(["--log-level", "error"]).env("TOKIO_WORKER_THREADS", "1");
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    Ok(RunningServer { process: Process(child), address, ingest: Ingest::Moq(address) })
}

/// Returns a command of `mendcast-moq`.
fn moq(programs: &ProductPrograms, role: &str, address: SocketAddr) -> Command {
    let mut command = Command::new(programs.installed.join("mendcast-moq"));
    command.arg(role).arg(address.to_string()).arg(NAME);
    command.arg(programs.common.dir.join("chain.pem"));
    command
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use edge::config::Config;

    use super::*;

    const RTMP: ([u8; 4], u16) = ([127, 0, 0, 1], 1_935);
    const RTMPS: ([u8; 4], u16) = ([127, 0, 0, 1], 1_936);

    #[test]
    fn every_product_has_a_title_of_its_own() {
        let titles: HashSet<String> = Product::ALL.map(Product::title).into_iter().collect();
        assert_eq!(titles.len(), Product::ALL.len());
        let plain = Product::ALL.into_iter().filter(|product| !product.is_encrypted());
        assert!(plain.map(Product::protocol).all(|protocol| protocol == "RTMP"));
    }

    #[test]
    fn the_edge_takes_its_configuration_with_rtmps() {
        let dir = tempfile::tempdir().expect("a directory");
        super::super::super::identity(dir.path()).expect("a certificate");
        let path =
            servers::write_config(dir.path(), &rtmp_keys(RTMPS.into()), &servers::edge_settings(1));
        let config = Config::load(&path.expect("written")).expect("valid");
        assert_eq!(config.rtmp.tls_listen, Some(vec![SocketAddr::from(RTMPS)]));
        assert_eq!(config.server.cores, 1);
        assert!(config.rtmp.max_connections / 2 >= MAX_PLAYERS);
    }

    #[test]
    fn configurations_of_other_products_name_addresses_and_certificate() {
        let dir = Path::new("/tmp/run");
        let text = media_mtx_config(RTMP.into(), RTMPS.into(), dir);
        for line in [
            "rtmpAddress: 127.0.0.1:1935",
            "rtmpsAddress: 127.0.0.1:1936",
            "rtmpServerCert: /tmp/run/chain.pem",
            "  all_others:",
        ] {
            assert!(text.lines().any(|each| each == line), "{line} in {text}");
        }
        let text = nginx_config(RTMP.into(), dir);
        assert!(text.contains("listen 127.0.0.1:1935;"), "{text}");
        assert_eq!(text.matches('{').count(), text.matches('}').count(), "{text}");
    }

    #[test]
    fn a_product_without_its_program_says_how_to_install_it() {
        let nowhere = PathBuf::from("/nonexistent");
        let common = Programs {
            mendcast: nowhere.join("mendcast"),
            peer: nowhere.join("peer"),
            dir: nowhere.clone(),
            memory: nowhere.clone(),
        };
        let programs = ProductPrograms { common, installed: nowhere };
        for product in Product::ALL.into_iter().filter(|&product| product != Product::NginxRtmp) {
            let (path, how) = product.missing(&programs).expect("nothing is installed");
            assert!(path.starts_with("/nonexistent"), "{path:?}");
            assert!(how.contains("products"), "{how}");
        }
    }
}
