//! Certificates from Pebble, a CA for tests. `MENDCAST_PEBBLE` names its binary; otherwise Go
//! builds it. Without either, the tests report so and pass.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::certificates::{over_quic, over_tcp};
use crate::common::publisher::Publisher;
use crate::support::edge::Edge;
use crate::support::viewer::Viewer;
use crate::support::{assert_is_clip, within};

/// Lifetime of certificates in seconds. A third of it is left at a renewal.
const LIFETIME: u64 = 24;
const LIMIT: Duration = Duration::from_secs(90);
const NAMES: [&str; 2] = ["a.acme.test", "b.acme.test"];

/// Returns Pebble's binary, built once.
fn pebble() -> Option<PathBuf> {
    static BINARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        if let Some(path) = std::env::var_os("MENDCAST_PEBBLE") {
            return Some(path.into());
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pebble");
        let binary = folder.join("pebble");
        if !binary.exists() {
            let mut go = Command::new("timeout");
            go.args(["300", "go", "install"]);
            go.arg("github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.3");
            let built = go.env("GOBIN", &folder).stdin(Stdio::null()).output();
            if !built.is_ok_and(|built| built.status.success()) {
                eprintln!("skipped: neither MENDCAST_PEBBLE nor Go with its module proxy");
                return None;
            }
        }
        Some(binary)
    };
    BINARY.get_or_init(find).clone()
}

/// Answers every question for an address with this machine, over UDP and TCP.
fn resolver() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("bound");
    let socket = UdpSocket::bind(address).expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer_over_tcp(stream));
        }
    });
    std::thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut query) {
            let _ = socket.send_to(&dns_answer(&query[..length]), from);
        }
    });
    address
}

/// Answers the questions of a connection (RFC 1035, section 4.2.2).
fn answer_over_tcp(mut stream: TcpStream) {
    let mut length = [0; 2];
    while stream.read_exact(&mut length).is_ok() {
        let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
        if stream.read_exact(&mut query).is_err() {
            return;
        }
        let answer = dns_answer(&query);
        let mut message = (answer.len() as u16).to_be_bytes().to_vec();
        message.extend(answer);
        if stream.write_all(&message).is_err() {
            return;
        }
    }
}

/// A DNS response (RFC 1035, section 4.1): 127.0.0.1 to type A, nothing to others.
fn dns_answer(query: &[u8]) -> Vec<u8> {
    let Some(question) = query.get(12..) else { return Vec::new() };
    // The name ends with an empty label, and type and class follow.
    let end = question.iter().position(|byte| *byte == 0).unwrap_or(0) + 5;
    let Some(question) = question.get(..end) else { return Vec::new() };
    let is_a = question[end - 4..end - 2] == [0, 1];
    let mut answer = query[..2].to_vec();
    answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0]);
    answer.extend(question);
    if is_a {
        // The question's name, type A, class IN, 60 s, and the address.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
    }
    answer
}

/// Forwards connections to a server whose address is known later.
struct Relay {
    port: u16,
    target: Arc<OnceLock<SocketAddr>>,
}

impl Relay {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = listener.local_addr().expect("bound").port();
        let target = Arc::new(OnceLock::new());
        let known = target.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let target: SocketAddr = *known.wait();
                let Ok(server) = TcpStream::connect(target) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let pair = from.try_clone().and_then(|from| Ok((from, to.try_clone()?)));
                    let Ok((from, to)) = pair else { continue };
                    std::thread::spawn(move || copy(from, to));
                }
            }
        });
        Self { port, target }
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 4_096];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// A running CA, which ends when dropped.
struct Pebble {
    child: Child,
    url: String,
    /// Its own certificate.
    authority: PathBuf,
    log: Arc<Mutex<String>>,
    _directory: tempfile::TempDir,
}

impl Drop for Pebble {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", self.log.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    listener.local_addr().expect("bound").port()
}

impl Pebble {
    /// Starts a CA that looks for challenges at these ports.
    fn start(binary: &Path, tls_port: u16, http_port: u16) -> Self {
        Self::start_with(binary, tls_port, http_port, None)
    }

    /// As [`Pebble::start`]. With an `account`, a key ID and its key, each client needs it.
    fn start_with(
        binary: &Path,
        tls_port: u16,
        http_port: u16,
        account: Option<(&str, &str)>,
    ) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).expect("names");
        let certificate = params.self_signed(&key).expect("signed");
        let file = |name: &str| directory.path().join(name);
        std::fs::write(file("cert.pem"), certificate.pem()).expect("written");
        std::fs::write(file("key.pem"), key.serialize_pem()).expect("written");
        let port = free_port();
        let config = serde_json::json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{port}"),
            "managementListenAddress": format!("127.0.0.1:{}", free_port()),
            "certificate": file("cert.pem"),
            "privateKey": file("key.pem"),
            "httpPort": http_port,
            "tlsPort": tls_port,
            "ocspResponderURL": "",
            "externalAccountBindingRequired": account.is_some(),
            "externalAccountMACKeys": account.into_iter().collect::<BTreeMap<_, _>>(),
            "profiles": { "default": { "description": "short", "validityPeriod": LIFETIME } },
        } });
        std::fs::write(file("config.json"), config.to_string()).expect("written");
        let mut command = Command::new(binary);
        command.arg("-config").arg(file("config.json"));
        command.arg("-dnsserver").arg(resolver().to_string());
        command.env("PEBBLE_VA_NOSLEEP", "1").stdin(Stdio::null());
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("Pebble starts");
        let log = Arc::<Mutex<String>>::default();
        let (mut output, lines) = (child.stdout.take().expect("piped"), log.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 4_096];
            while let Ok(length @ 1..) = output.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..length]);
                lines.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
            }
        });
        within(LIMIT, "Pebble listens", || TcpStream::connect(("127.0.0.1", port)).ok());
        let (url, authority) = (format!("https://127.0.0.1:{port}/dir"), file("cert.pem"));
        Self { child, url, authority, log, _directory: directory }
    }
}

/// Obtains a certificate by this challenge and renews it, while viewers watch.
fn obtains_and_renews(challenge: &str) {
    let Some(binary) = pebble() else { return };
    let (relay, http_port) = (Relay::start(), free_port());
    let ca = Pebble::start(&binary, relay.port, http_port);
    let keys = format!(
        "[acme]\ndomains = {NAMES:?}\nca = \"{}\"\nca_file = {:?}\ndirectory = \"acme\"\n\
         challenge = \"{challenge}\"\nhttp_listen = \"127.0.0.1:{http_port}\"\n",
        ca.url, ca.authority
    );
    let edge = Edge::start(&keys);
    relay.target.set(edge.address).expect("once");
    let _publisher = Publisher::start(edge.rtmp, "live/demo", None);
    let viewers =
        [Viewer::h1(edge.address, "/live/demo.flv"), Viewer::h3(edge.address, "/live/demo.flv")];
    viewers.iter().for_each(|viewer| viewer.wait_for_frames(10));
    let obtained = |count: f64| {
        let metric = "mendcast_certificate_events_total{event=\"obtained\"}";
        within(LIMIT, "a certificate", || (edge.metric(metric) > count - 0.5).then_some(()));
    };
    obtained(1.0);
    let expiry = "mendcast_certificate_expiry_timestamp_seconds{name=\"a.acme.test\"}";
    let (first, first_end) = (over_tcp(edge.address, NAMES[1]), edge.metric(expiry));
    // It is the default too, instead of the development certificate.
    for name in [NAMES[0], NAMES[1], "127.0.0.1"] {
        assert!(over_tcp(edge.address, name) == over_quic(edge.address, name), "{name}");
    }
    let directory = edge.directory().join("acme");
    let mode = |path: &Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    let files = std::fs::read_dir(&directory).expect("readable");
    let files: Vec<_> = files.map(|file| file.expect("an entry").path()).collect();
    assert!(files.len() == 2 && files.iter().all(|file| mode(file) == 0o600), "{files:?}");
    // No challenge is open now.
    assert!(TcpStream::connect(("127.0.0.1", http_port)).is_err());
    obtained(2.0);
    assert!(over_tcp(edge.address, NAMES[1]) != first);
    assert!(edge.metric(expiry) > first_end);
    for viewer in &viewers {
        viewer.wait_for_more(10);
        assert_is_clip(&viewer.frames());
    }
    assert!(edge.said("not obtained").is_empty(), "{:?}", edge.log());
}

#[test]
fn a_certificate_is_obtained_and_renewed_by_tls_alpn_01() {
    obtains_and_renews("tls-alpn-01");
}

#[test]
fn a_certificate_is_obtained_and_renewed_by_http_01() {
    obtains_and_renews("http-01");
}

#[test]
fn a_name_that_the_ca_cannot_reach_is_reported_with_its_reason() {
    let Some(binary) = pebble() else { return };
    let ca = Pebble::start(&binary, free_port(), free_port());
    let keys = format!(
        "[acme]\ndomains = [\"a.acme.test\"]\nca = \"{}\"\nca_file = {:?}\ndirectory = \"acme\"\n",
        ca.url, ca.authority
    );
    let edge = Edge::start(&keys);
    let line = edge.says("certificate not obtained");
    assert!(line.contains("a.acme.test not validated: "), "{line}");
    assert!(line.contains("next attempt in "), "{line}");
}

#[test]
fn an_absent_or_silent_ca_disturbs_nobody() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("bound");
    for port in [free_port(), silent.local_addr().expect("bound").port()] {
        let keys = format!(
            "[acme]\ndomains = [\"a.acme.test\"]\nca = \"https://127.0.0.1:{port}/dir\"\n\
             directory = \"acme\"\n"
        );
        let edge = Edge::start(&keys);
        let _publisher = Publisher::start(edge.rtmp, "live/demo", None);
        let viewer = Viewer::h3(edge.address, "/live/demo.flv");
        viewer.wait_for_frames(10);
        edge.says("certificate requested");
        if port != silent.local_addr().expect("bound").port() {
            edge.says("certificate not obtained: CA: ");
        }
        viewer.wait_for_more(10);
        assert_eq!(edge.readiness().0, 200);
    }
}

#[test]
fn a_ca_that_needs_an_external_account_gets_it() {
    let Some(binary) = pebble() else { return };
    let key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let ca = Pebble::start_with(&binary, free_port(), free_port(), Some(("kid-1", key)));
    // The account is created; the names cannot be validated here.
    let other = key.replace('z', "y");
    for (account, expected) in [
        (Some(format!("kid-1:{key}")), "a.acme.test not validated: "),
        (Some(format!("kid-2:{key}")), "not known to the ACME server"),
        (Some(format!("kid-1:{other}")), "certificate not obtained: CA: "),
        (None, "externalAccountRequired"),
    ] {
        let account = account.map(|text| format!("external_account = {text:?}\n"));
        let keys = format!(
            "[acme]\ndomains = [\"a.acme.test\"]\nca = \"{}\"\nca_file = {:?}\n\
             directory = \"acme\"\n{}",
            ca.url,
            ca.authority,
            account.unwrap_or_default()
        );
        let edge = Edge::start(&keys);
        let line = edge.says("certificate not obtained");
        assert!(line.contains(expected), "{line}");
        assert!(!line.contains(key) && !line.contains(&other), "{line}");
    }
}
