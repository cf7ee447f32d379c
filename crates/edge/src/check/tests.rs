//! Checks of whole configurations.

use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::*;

const DAY: u64 = 86_400;

/// Writes a certificate for a.test and its key into a directory.
fn certificate(dir: &Path, from: i64, days: i64) -> (PathBuf, PathBuf) {
    certificate_of(dir, &["a.test"], from, days)
}

/// Writes a certificate for these names and its key into a directory.
fn certificate_of(dir: &Path, names: &[&str], from: i64, days: i64) -> (PathBuf, PathBuf) {
    let at = |days: i64| {
        let seconds = unix_now() as i64 + days * DAY as i64;
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds as u64)
    };
    let key = rcgen::KeyPair::generate().expect("generated");
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = rcgen::CertificateParams::new(names).expect("valid");
    params.not_before = at(from).into();
    params.not_after = at(from + days).into();
    let pem = params.self_signed(&key).expect("signed").pem();
    let (chain, private) = (dir.join("chain.pem"), dir.join("key.pem"));
    std::fs::write(&chain, pem).expect("written");
    std::fs::write(&private, key.serialize_pem()).expect("written");
    std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o600)).expect("set");
    (chain, private)
}

/// Returns the findings for these keys.
fn found(dir: &Path, text: &str) -> Vec<String> {
    let listen =
        if text.contains("server.listen") { "" } else { "server.listen = \"127.0.0.1:0\"\n" };
    let config = Config::parse("edge.toml", &format!("{listen}{text}")).expect("valid");
    let checked = check(&dir.join("edge.toml"), config).expect("a plan");
    // Depends on the machine.
    let findings = checked.findings.iter().map(ToString::to_string);
    findings.filter(|finding| !finding.contains("mendcast.service")).collect()
}

#[test]
fn findings_name_key_value_and_allowed_values() {
    let dir = tempfile::tempdir().expect("a directory");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("bound");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("bound");
    let [tcp, udp] = [tcp.local_addr(), udp.local_addr()].map(|address| address.expect("bound"));
    let at = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(at("open"), "sixteen-letters-").expect("written");
    std::fs::set_permissions(at("open"), std::fs::Permissions::from_mode(0o644)).expect("set");
    let acme = format!("[acme]\ndomains = [\"a.example\"]\ndirectory = \"{}\"\n", at("acme"));
    for (text, expected) in [
        (String::new(), ""),
        (format!("log.connections = \"{}\"", at("no/x")), "error: [log] connections = "),
        (format!("quic.qlog_dir = \"{}/x\"", at("open")), "error: [quic] qlog_dir = "),
        (format!("quic.qlog_dir = \"{}/x\"\nquic.qlog_sample = 0.0", at("open")), ""),
        (format!("quic.key_log = \"{}\"", at("keys")), "warning: [quic] key_log = "),
        (format!("records.directory = \"{}\"", at("open")), "error: [records] directory = "),
        (format!("records.directory = \"{}\"", at("new/new")), ""),
        (format!("server.listen = \"{tcp}\""), "warning: [server] listen = "),
        (format!("server.listen = \"{udp}\""), "warning: [server] listen = "),
        (format!("rtmp.listen = \"{tcp}\""), "warning: [rtmp] listen = "),
        (format!("admin.listen = \"{tcp}\""), "warning: [admin] listen = "),
        (format!("rtmp.tls_listen = \"{tcp}\""), "warning: [rtmp] tls_listen = "),
        (
            "server.listen = \"127.0.0.1:9\"\nrtmp.tls_listen = \"[::]:9\"".into(),
            "error: [rtmp] tls_listen = [::]:9: [server] listen = 127.0.0.1:9 has this address",
        ),
        (format!("server.listen = \"127.0.0.1:9\"\n{acme}"), ""),
        (
            format!("{acme}challenge = \"http-01\"\nhttp_listen = \"{tcp}\""),
            "warning: [acme] http_listen = ",
        ),
        (
            format!(
                "{acme}challenge = \"http-01\"\nhttp_listen = \"127.0.0.1:9\"\n\
                 [rtmp]\nlisten = \"0.0.0.0:9\""
            ),
            "error: [acme] http_listen = 127.0.0.1:9: [rtmp] listen = 0.0.0.0:9 has this address",
        ),
        (
            "server.listen = \"192.0.2.1:9\"".into(),
            "error: [server] listen = 192.0.2.1:9: not an address of",
        ),
        (
            "server.listen = \"127.0.0.1:9\"\nrtmp.listen = \"0.0.0.0:9\"".into(),
            "error: [rtmp] listen = 0.0.0.0:9: [server] listen = 127.0.0.1:9 has this address",
        ),
        (
            "server.listen = \"[::]:9\"\nadmin.listen = \"127.0.0.1:9\"".into(),
            "error: [admin] listen = 127.0.0.1:9: [server] listen = [::]:9 has this address",
        ),
        ("server.listen = [\"[::]:40961\", \"0.0.0.0:40961\"]".into(), ""),
        (format!("admin.token_file = \"{}\"", at("open")), "warning: [admin] token_file = "),
        (
            "[[play]]\nstream = \"a\"\nkey = \"x\"".into(),
            "warning: [[play]] key = … (of a): 1 char",
        ),
        (
            "[[publish]]\nstream = \"a\"\nkey = \"secret\"".into(),
            "warning: [[publish]] key = … (of a)",
        ),
        ("quic.congestion = \"cubic\"".into(), "warning: [quic] congestion = cubic: "),
        ("quic.congestion = \"copa\"".into(), "warning: [quic] congestion = copa: "),
        ("quic.congestion = \"cubic-live\"".into(), ""),
        ("[hooks]\nsecret = \"secret\"".into(), "warning: [hooks] secret = … (of all hooks)"),
        (
            "[[play]]\nstream = \"a\"\njwks = \"http://id.example/jwks?k=98765\"".into(),
            "warning: [[play]] jwks = http://id.example/jwks?…: plain HTTP",
        ),
        ("[[publish]]\nstream = \"a\"\njwks = \"http://127.0.0.1:1/jwks\"".into(), ""),
        (format!("autoplex.table = \"{}\"", dir.path().display()), "warning: [autoplex] table = "),
        (format!("autoplex.table = \"{}\"", at("open")), "warning: [autoplex] table = "),
        (format!("autoplex.table = \"{}\"", at("none")), ""),
    ] {
        let all = found(dir.path(), &text);
        let is_right = match (&all[..], expected) {
            ([], "") => true,
            ([one], expected) => !expected.is_empty() && one.starts_with(expected),
            _ => false,
        };
        assert!(is_right, "{text}: {all:?}, expected {expected:?}");
    }
}

#[test]
fn certificates_are_checked_by_date_and_size() {
    let dir = tempfile::tempdir().expect("a directory");
    let look = |from, days, times: usize| {
        let (chain, key) = certificate(dir.path(), from, days);
        let pem = std::fs::read_to_string(&chain).expect("readable");
        std::fs::write(&chain, pem.repeat(times)).expect("written");
        let (chain, key) = (chain.display(), key.display());
        found(dir.path(), &format!("server.certificate = \"{chain}\"\nserver.key = \"{key}\""))
    };
    assert_eq!(look(-1, 30, 1), [""; 0]);
    for (from, days, times, part) in [
        (-30, 29, 1, "error: [server] certificate = "),
        (1, 30, 1, "is not valid before "),
        (-30, 36, 1, "expires on "),
        (-1, 30, 60, "bytes; some clients reject more than 16384"),
    ] {
        let all = look(from, days, times);
        assert!(all.len() == 1 && all[0].contains(part), "{all:?} has no {part}");
    }
}

#[test]
fn certificates_of_a_list_are_checked_one_by_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |stem: &str, names: &[&str], days: [i64; 2]| {
        let folder = dir.path().join(stem);
        std::fs::create_dir(&folder).expect("created");
        let (chain, key) = certificate_of(&folder, names, days[0], days[1]);
        let (chain, key) = (chain.display(), key.display());
        format!("[[certificate]]\ncertificate = \"{chain}\"\nkey = \"{key}\"\n")
    };
    let good = write("good", &["a.test", "*.a.test"], [-1, 30]);
    let twin = write("twin", &["x.test", "a.test"], [-1, 30]);
    let expired = write("expired", &["b.test"], [-30, 29]);
    let early = write("early", &["c.test"], [1, 30]);
    let soon = write("soon", &["d.test"], [-1, 5]);
    let nameless = write("nameless", &[], [-1, 30]);
    let address = write("address", &["192.0.2.1"], [-1, 30]);
    let host = |name: &str| format!("[[host]]\nnames = [\"{name}\"]\nprefix = \"tenant\"\n");
    let acme = "[acme]\ndomains = [\"ordered.test\"]\ndirectory = \"acme\"\n";
    for (text, expected) in [
        (good.clone(), ""),
        (good.clone() + &host("a.test"), ""),
        (good.clone() + &host("b.a.test"), ""),
        (good.clone() + &host("*.a.test"), ""),
        (good.clone() + &host("b.test"), "warning: [[host]] names = b.test"),
        (good.clone() + &host("c.b.a.test"), "warning: [[host]] names = c.b.a.test"),
        (good.clone() + &host("*.b.a.test"), "warning: [[host]] names = *.b.a.test"),
        (good.clone() + acme + &host("ordered.test"), ""),
        // A development certificate.
        (host("a.test"), ""),
        (good.clone() + &twin, "warning: [[certificate]] certificate = "),
        (good.clone() + &expired, "error: [[certificate]] certificate = "),
        (good.clone() + &early, "error: [[certificate]] certificate = "),
        (good.clone() + &soon, "warning: [[certificate]] certificate = "),
        (good.clone() + &nameless, "error: [[certificate]] certificate = "),
        (nameless.clone(), "error: [[certificate]] certificate = "),
        (good.clone() + &address, "error: [[certificate]] certificate = "),
        // The default certificate serves clients that connect to the address.
        (address.clone(), ""),
    ] {
        let all = found(dir.path(), &text);
        let is_right = match (&all[..], expected) {
            ([], "") => true,
            ([one], expected) => !expected.is_empty() && one.starts_with(expected),
            _ => false,
        };
        assert!(is_right, "{text}: {all:?}, expected {expected:?}");
    }
    let config = format!("server.listen = \"127.0.0.1:0\"\n{good}{address}");
    let config = Config::parse("edge.toml", &config).expect("valid");
    let advice = check(&dir.path().join("edge.toml"), config).expect("a plan").advice;
    assert!(advice[0].contains("good/chain.pem: a.test, *.a.test, valid until "), "{advice:?}");
    assert!(advice[1].contains("address/chain.pem: 192.0.2.1, valid until "), "{advice:?}");
    // A key of another certificate prevents the start.
    let chain = dir.path().join("good/chain.pem");
    let key = dir.path().join("twin/key.pem");
    let text = format!("[[certificate]]\ncertificate = {chain:?}\nkey = {key:?}\n");
    let config = Config::parse("edge.toml", &text).expect("valid");
    let error = check(&dir.path().join("edge.toml"), config).expect_err("mismatch").to_string();
    assert!(error.contains("keys may not be consistent: KeyMismatch"), "{error}");
}

#[test]
fn world_readable_files_with_secrets_are_reported() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("edge.toml");
    let secret = "[hooks]\nsecret = \"sixteen-letters-and-more\"";
    for (text, mode, expected) in [(secret, 0o644, 1), (secret, 0o640, 0), ("", 0o644, 0)] {
        std::fs::write(&file, text).expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("set");
        assert_eq!(found(dir.path(), text).len(), expected, "{mode:o}");
    }
}

/// Returns names, sizes, times, modes and inodes of everything below a directory.
fn snapshot(dir: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(path) = open.pop() {
        let found = std::fs::symlink_metadata(&path).expect("there");
        all.push(format!(
            "{} {} {} {}.{} {:o} {}",
            path.display(),
            found.len(),
            found.ino(),
            found.mtime(),
            found.mtime_nsec(),
            found.mode(),
            found.uid()
        ));
        if found.is_dir() {
            let entries = std::fs::read_dir(&path).expect("readable");
            open.extend(entries.map(|entry| entry.expect("an entry").path()));
        }
    }
    all.sort();
    all
}

#[test]
fn a_check_changes_no_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name).display().to_string();
    std::fs::create_dir(at("records")).expect("created");
    for n in 1..=3 {
        let path = at(&format!("records/sessions-2026112{n}T000000Z.jsonl"));
        std::fs::write(&path, "{\"session\":1}\n").expect("written");
        let old = SystemTime::now() - Duration::from_secs(n * 100 * DAY);
        std::fs::File::options()
            .write(true)
            .open(&path)
            .expect("opened")
            .set_modified(old)
            .expect("set");
    }
    std::fs::write(at("records/sessions-20261124T000000Z.parquet.part"), "x").expect("written");
    std::fs::write(at("records/sessions-20261125T000000Z.jsonl"), "").expect("written");
    let (chain, key) = certificate(dir.path(), -1, 30);
    crate::keyfile::create(Path::new(&at("secrets")), SystemTime::now()).expect("created");
    let text = format!(
        "server.listen = \"127.0.0.1:0\"\nadmin.listen = \"127.0.0.1:0\"\n\
         records.directory = \"{}\"",
        at("records")
    );
    let running = crate::Edge::open(Config::parse("edge.toml", &text).expect("valid"));
    let running = running.expect("opened");
    let own = running.listeners()[0].address;
    // The records' thread cleans up first.
    let mut before = snapshot(dir.path());
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let now = snapshot(dir.path());
        if core::mem::replace(&mut before, now.clone()) == now {
            break;
        }
    }
    for records in [
        format!("directory = \"{}\"\nkeep = \"1h\"", at("records")),
        format!("directory = \"{}\"\nmax_size = \"1B\"", at("records")),
        format!("directory = \"{}\"", at("new/and/below")),
        format!("directory = \"{}\"", at("chain.pem/x")),
    ] {
        let text = format!(
            "server.listen = \"{own}\"\nserver.root = \"{}\"\nserver.certificate = \"{}\"\n\
             server.key = \"{}\"\nserver.key_file = \"{}\"\nquic.qlog_dir = \"{}\"\n\
             log.connections = \"{}\"\nautoplex.table = \"{}\"\n[records]\n{records}",
            dir.path().display(),
            chain.display(),
            key.display(),
            at("secrets"),
            at("qlog/new"),
            at("connections.jsonl"),
            at("table"),
        );
        let findings = found(dir.path(), &text);
        assert!(findings.iter().any(|f| f.contains("in use by the server")), "{findings:?}");
        assert_eq!(snapshot(dir.path()), before, "{records}");
    }
    drop(running);
}

#[test]
fn an_invalid_certificate_does_not_replace_a_valid_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let (chain, key) = certificate(dir.path(), -1, 30);
    let text = format!(
        "server.listen = \"127.0.0.1:0\"\nadmin.listen = \"127.0.0.1:0\"\n\
         server.certificate = \"{}\"\nserver.key = \"{}\"",
        chain.display(),
        key.display()
    );
    let config = || Config::parse("edge.toml", &text).expect("valid");
    let edge = crate::Edge::open(config()).expect("opened");
    let reload = |from, days| {
        certificate(dir.path(), from, days);
        let before = edge.shared().state().identity().chain[0].clone();
        let changes = edge.shared().reload(config()).expect("reloaded");
        (edge.shared().state().identity().chain[0] == before, changes.for_new)
    };
    assert_eq!(reload(-30, 29), (true, vec![]), "expired");
    assert_eq!(reload(1, 29), (true, vec![]), "not valid yet");
    let files = ["[server] certificate", "[server] key"].map(|key| format!("the file of {key}"));
    assert_eq!(reload(-1, 40), (false, files.to_vec()));
}
