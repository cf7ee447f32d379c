//! Choice and replacement of certificates.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, SignatureAlgorithm};

use super::watch::Watch;
use super::*;
use crate::config::{self, Config};
use crate::finding::Finding;

const DAY: u64 = 86_400;
/// A time at which the certificates of these tests are valid.
const NOW: u64 = 1_790_000_000;

/// PEM texts of a certificate and its key, valid from and to these days after [`NOW`].
fn pem(names: &[&str], days: [i64; 2], kind: &'static SignatureAlgorithm) -> [String; 2] {
    let at = |days: i64| {
        let seconds = NOW.saturating_add_signed(days * DAY as i64);
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    };
    let key = KeyPair::generate_for(kind).expect("generated");
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("valid");
    params.not_before = at(days[0]).into();
    params.not_after = at(days[1]).into();
    [params.self_signed(&key).expect("signed").pem(), key.serialize_pem()]
}

/// A directory with certificates, and a configuration that lists them in order of creation.
struct Files {
    dir: tempfile::TempDir,
    config: Config,
}

impl Files {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a directory"), config: Config::default() }
    }

    fn paths(&self, stem: &str) -> [PathBuf; 2] {
        ["pem", "key"].map(|end| self.dir.path().join(format!("{stem}.{end}")))
    }

    fn write(&self, stem: &str, texts: &[String; 2]) {
        self.paths(stem).iter().zip(texts).for_each(|(path, text)| write(path, text));
    }

    /// Writes a certificate for these names, valid for 30 days, and lists it.
    fn add(&mut self, stem: &str, names: &[&str]) -> &mut Self {
        self.add_as(stem, &pem(names, [-1, 30], &PKCS_ECDSA_P256_SHA256))
    }

    fn add_as(&mut self, stem: &str, texts: &[String; 2]) -> &mut Self {
        self.write(stem, texts);
        let [certificate, key] = self.paths(stem);
        self.config.certificate.push(config::Certificate { certificate, key });
        self
    }

    fn set(&self) -> CertificateSet {
        CertificateSet::load(&self.config, None, NOW, &mut Vec::new()).expect("loaded")
    }

    /// Returns the stem of the certificate's file for a client with this name.
    fn chosen(&self, name: Option<&str>, now: u64) -> String {
        let set = self.set();
        let chosen = set.choose(name, |_| true, now);
        let mut all = set.all();
        let (source, _) = all.find(|(_, known)| Arc::ptr_eq(known, chosen)).expect("one of them");
        let stem = source.expect("a file").chain.file_stem().expect("a name");
        stem.to_string_lossy().into_owned()
    }
}

fn write(path: &Path, text: &str) {
    // As a rename does, so that the file's stamp changes within the clock's resolution.
    let new = path.with_extension("new");
    std::fs::write(&new, text).expect("written");
    std::fs::rename(new, path).expect("renamed");
}

#[test]
fn the_server_name_chooses_a_certificate() {
    let mut files = Files::new();
    files.add("default", &["default.test", "192.0.2.1"]);
    files
        .add("wild", &["*.a.test", "a.test"])
        .add("exact", &["b.a.test"])
        .add("other", &["c.test"]);
    for (name, expected) in [
        (None, "default"),
        (Some("default.test"), "default"),
        (Some("a.test"), "wild"),
        (Some("x.a.test"), "wild"),
        (Some("X.A.TEST"), "wild"),
        (Some("b.a.test"), "exact"),
        (Some("B.a.Test"), "exact"),
        (Some("b.a.test."), "exact"),
        // A wildcard stands for one label.
        (Some("x.b.a.test"), "default"),
        (Some("c.test"), "other"),
        (Some("unknown.test"), "default"),
        (Some("test"), "default"),
        (Some(""), "default"),
        (Some("."), "default"),
        (Some("192.0.2.1"), "default"),
    ] {
        assert_eq!(files.chosen(name, NOW), expected, "{name:?}");
    }
}

#[test]
fn of_several_certificates_for_a_name_a_usable_one_is_chosen() {
    let mut files = Files::new();
    files.add("default", &["default.test"]);
    files.add_as("first", &pem(&["a.test"], [-1, 10], &PKCS_ED25519));
    files.add("second", &["a.test"]).add("wild", &["*.test"]);
    assert_eq!(files.chosen(Some("a.test"), NOW), "first");
    // The first has expired, then the second.
    assert_eq!(files.chosen(Some("a.test"), NOW + 20 * DAY), "second");
    assert_eq!(files.chosen(Some("a.test"), NOW + 40 * DAY), "first", "none is valid");
    assert_eq!(files.chosen(Some("a.test"), NOW - 2 * DAY), "first", "none is valid yet");
    let set = files.set();
    let algorithm = |can_sign: fn(&CertifiedKey) -> bool| {
        set.choose(Some("a.test"), can_sign, NOW).certified.key.algorithm()
    };
    use rustls::SignatureAlgorithm as Kind;
    assert_eq!(algorithm(|_| true), Kind::ED25519);
    assert_eq!(algorithm(|key| key.key.algorithm() == Kind::ECDSA), Kind::ECDSA);
    assert_eq!(algorithm(|_| false), Kind::ED25519, "no key suits the client");
}

#[test]
fn the_default_of_the_server_section_precedes_the_list() {
    let mut files = Files::new();
    files.add("listed", &["a.test"]);
    assert_eq!(files.chosen(None, NOW), "listed");
    files.write("own", &pem(&["own.test"], [-1, 30], &PKCS_ECDSA_P256_SHA256));
    let [chain, key] = files.paths("own");
    (files.config.server.certificate, files.config.server.key) = (Some(chain), Some(key));
    assert_eq!(files.chosen(None, NOW), "own");
    assert_eq!(files.chosen(Some("a.test"), NOW), "listed");
}

/// Loads the files again, as a reload at this time does.
fn reload(files: &Files, running: &CertificateSet, now: u64) -> (CertificateSet, Vec<Finding>) {
    let mut notes = Vec::new();
    let set = CertificateSet::load(&files.config, Some(running), now, &mut notes).expect("loaded");
    (set, notes)
}

/// Returns the certificate of this name.
fn of(set: &CertificateSet, name: &str) -> Arc<Certificate> {
    set.choose(Some(name), |_| true, NOW).clone()
}

#[test]
fn a_reload_keeps_a_valid_certificate_instead_of_an_invalid_one() {
    let mut files = Files::new();
    files.add("a", &["a.test"]).add("b", &["b.test"]);
    let set = files.set();
    for days in [[-10, -1], [1, 10]] {
        files.write("b", &pem(&["b.test"], days, &PKCS_ECDSA_P256_SHA256));
        let (new, notes) = reload(&files, &set, NOW);
        assert!(Arc::ptr_eq(&of(&set, "b.test"), &of(&new, "b.test")), "{days:?}");
        let text = notes[0].text();
        assert!(notes.len() == 1 && !notes[0].is_error, "{text}");
        assert!(text.contains("b.pem") && text.contains("the previous certificate"), "{text}");
        assert_eq!(set.contents().collect::<Vec<_>>(), new.contents().collect::<Vec<_>>());
    }
    // No better certificate is running.
    assert!(reload(&files, &set, NOW + 90 * DAY).1.is_empty());
    let (new, notes) = reload(&files, &set, NOW + 5 * DAY);
    assert!(notes.is_empty() && !Arc::ptr_eq(&of(&set, "b.test"), &of(&new, "b.test")));
}

#[test]
fn changed_files_are_loaded_without_a_reload() {
    let mut files = Files::new();
    files.add("a", &["a.test"]).add("b", &["b.test"]);
    let (store, mut watch) = (Certificates::new(files.set()), Watch::default());
    let mut look = |now: u64| {
        watch.check(&store, now);
        let [(_, loaded), (_, rejected), ..] = store.events();
        (of(&store.current(), "b.test"), loaded, rejected)
    };
    let (first, ..) = look(NOW);
    assert!(Arc::ptr_eq(&look(NOW).0, &first));
    let new = pem(&["b.test", "c.test"], [-1, 30], &PKCS_ECDSA_P256_SHA256);
    // The chain is replaced before the key.
    files.write("b", &[new[0].clone(), first_key(&files)]);
    assert!(Arc::ptr_eq(&look(NOW).0, &first));
    files.write("b", &new);
    let (second, loaded, rejected) = look(NOW);
    assert_eq!((second.names.dns.len(), loaded, rejected), (2, 1, 0));
    assert!(Arc::ptr_eq(&of(&store.current(), "c.test"), &second), "the new name is known");
    assert_eq!(store.current().default().name(), "a.test");
    // Half a file, no file, a foreign key: rejected once, if it persists.
    let half = new[0][..new[0].len() / 2].to_owned();
    files.write("b", &[half, new[1].clone()]);
    assert_eq!((look(NOW).2, look(NOW).2, look(NOW).2), (0, 1, 1));
    let [chain, key] = files.paths("b");
    std::fs::remove_file(&chain).expect("removed");
    assert_eq!((look(NOW).2, look(NOW).2), (1, 2));
    files.write("b", &[new[0].clone(), first_key(&files)]);
    assert_eq!((look(NOW).2, look(NOW).2), (2, 3));
    assert!(Arc::ptr_eq(&look(NOW).0, &second), "the previous one remains");
    // The same certificate as before.
    write(&key, &new[1]);
    let (same, loaded, _) = look(NOW);
    assert!(Arc::ptr_eq(&same, &second) && loaded == 1);
    // Not valid before tomorrow.
    files.write("b", &pem(&["b.test"], [1, 30], &PKCS_ECDSA_P256_SHA256));
    assert!(Arc::ptr_eq(&look(NOW).0, &second) && Arc::ptr_eq(&look(NOW).0, &second));
    assert_eq!(store.events()[1].1, 4);
    let (third, loaded, rejected) = look(NOW + 2 * DAY);
    assert!(!Arc::ptr_eq(&third, &second) && (loaded, rejected) == (2, 4));
}

/// Returns the key of the certificate for a.test.
fn first_key(files: &Files) -> String {
    let [_, key] = files.paths("a");
    std::fs::read_to_string(key).expect("readable")
}

#[test]
fn an_expired_certificate_is_replaced_by_any_other() {
    let mut files = Files::new();
    files.add("a", &["a.test"]);
    let (store, mut watch) = (Certificates::new(files.set()), Watch::default());
    files.write("a", &pem(&["b.test"], [-10, -1], &PKCS_ECDSA_P256_SHA256));
    watch.check(&store, NOW + 40 * DAY);
    assert_eq!(store.current().default().name(), "b.test", "both have expired");
}

#[test]
fn a_reload_during_a_check_wins() {
    let mut files = Files::new();
    files.add("a", &["a.test"]);
    let store = Certificates::new(files.set());
    let known = store.current();
    store.replace(Arc::new(files.set()));
    assert!(!store.replace_known(&known, files.set()));
    assert!(store.replace_known(&store.current(), files.set()));
}
