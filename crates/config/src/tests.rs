//! Valid and invalid configuration files.

use core::time::Duration;
use std::collections::BTreeSet;
use std::path::PathBuf;

use super::*;

fn error(text: &str) -> String {
    Config::parse("edge.toml", text).expect_err("invalid").to_string()
}

#[test]
fn printed_defaults_parse_back() {
    let text = Config::documented();
    assert_eq!(Config::parse("defaults", &text), Ok(Config::default()));
}

#[test]
fn examples_are_valid() {
    let text = Config::documented();
    let with_examples: Vec<_> = text
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest)
                if rest.contains(" = \"") || rest.contains(" = [") || rest.starts_with("[[") =>
            {
                rest
            }
            _ => line,
        })
        .collect();
    let config = Config::parse("examples", &with_examples.join("\n")).expect("examples are valid");
    assert!(config.server.certificate.is_some() && config.log.connections.is_some());
}

#[test]
fn every_key_is_documented_once_with_its_range() {
    let text = Config::documented();
    let keys = text.lines().filter(|l| l.trim_start_matches("# ").contains(" = ")).count();
    assert_eq!(keys, text.matches("# Expected: ").count());
    assert!(
        text.contains("# Expected: \"never\", \"auto\" or \"always\".\nretry = \"auto\"\n"),
        "{text}"
    );
    assert!(text.contains("# Expected: 1200 to 9000.\nmax_mtu = 1452\n"), "{text}");
}

#[test]
fn errors_hide_tokens() {
    for value in ["\"too-short\"", "12345678901234567890", "[\"0123456789abcdef\"]"] {
        let text = format!("[admin]\ntoken = {value}");
        let expected = "edge.toml:2: [admin] token: expected 16 to 512 letters, digits and \
                        punctuation marks without spaces, got something else";
        assert_eq!(error(&text), expected);
    }
    let config = Config::parse("edge.toml", "admin.token = \"0123456789abcdef\"").expect("valid");
    assert!(!format!("{config:?}").contains("0123456789abcdef"));
}

#[test]
fn an_empty_file_means_defaults() {
    assert_eq!(Config::parse("edge.toml", ""), Ok(Config::default()));
}

#[test]
fn parses_values() {
    let text = r#"
        [server]
        listen = ["127.0.0.1:443", "[::1]:443"]
        cores = 2
        [quic]
        congestion = "cubic"
        ciphers = "chacha20"
        idle_timeout = "1.5m"
        stream_window = "64kB"
        qlog_sample = 0
        key_update_after = 0x100
        early_data = false
    "#;
    let config = Config::parse("edge.toml", text).expect("valid");
    assert_eq!(config.server.listen.len(), 2);
    assert_eq!(config.server.cores, 2);
    assert_eq!(config.quic.congestion, congestion::Algorithm::Cubic);
    assert_eq!(config.quic.ciphers, [Cipher::ChaCha20]);
    assert_eq!(config.quic.idle_timeout, Duration::from_secs(90));
    assert_eq!(config.quic.stream_window, Size(64_000));
    assert_eq!(config.quic.qlog_sample, 0.0);
    assert_eq!(config.quic.key_update_after, 256);
    assert!(!config.quic.early_data);
    let single = Config::parse("edge.toml", "server.listen = \"[::]:1\"").expect("valid");
    assert_eq!(single.server.listen, ["[::]:1".parse().expect("an address")]);
}

#[test]
fn lists_have_any_number_of_items() {
    let text = r#"
        [[publish]]
        stream = "live/a"
        key = "one"
        [[publish]]
        stream = "live/b*"
        key = "two"
    "#;
    let config = Config::parse("edge.toml", text).expect("valid");
    let keys: Vec<_> = config.publish.iter().map(|rule| rule.key.as_deref()).collect();
    assert_eq!(keys, [Some("one"), Some("two")]);
}

#[test]
fn errors_name_line_key_and_expectation() {
    let cases = [
        (
            "# a comment\n[quic]\nretry = \"fast\"",
            "edge.toml:3: [quic] retry: expected \"never\", \"auto\" or \"always\", got \
             \"fast\"",
        ),
        (
            "[[publish]]\nstream = \"a\"\nkey = \"b\"\n[[publish]]\nstream = \"a\"",
            "edge.toml:4: [publish] key: expected key, jwks or both, got nothing",
        ),
        ("publish = 1", "edge.toml:1: publish: expected a section, one of [server], "),
        (
            "[quic]\nretry = true",
            "edge.toml:2: [quic] retry: expected \"never\", \"auto\" or \"always\", got true",
        ),
        (
            "[quic]\ninitial_mtu = 900",
            "edge.toml:2: [quic] initial_mtu: expected 1200 to 9000, got 900",
        ),
        (
            "[quic]\n\nidle_timeout = 30",
            "edge.toml:3: [quic] idle_timeout: expected \"1s\" to \"10m\", got 30",
        ),
        (
            "[quic]\nqlog_sample = 1.5",
            "edge.toml:2: [quic] qlog_sample: expected 0.0 to 1.0, got 1.5",
        ),
        (
            "[quic]\nqlog_sample = nan",
            "edge.toml:2: [quic] qlog_sample: expected 0.0 to 1.0, got nan",
        ),
        (
            "[quic]\nearly_data = \"yes\"",
            "edge.toml:2: [quic] early_data: expected true or false, got \"yes\"",
        ),
        (
            "[server]\nlisten = \"localhost:1\"",
            "edge.toml:2: [server] listen: expected an address such as \"[::]:4433\" or \
             \"192.0.2.1:443\", or a list of them, got \"localhost:1\"",
        ),
        (
            "[server]\nlisten = []",
            "edge.toml:2: [server] listen: expected an address such as \"[::]:4433\" or \
             \"192.0.2.1:443\", or a list of them, got []",
        ),
        (
            "[server]\nserver_id = 65536",
            "edge.toml:2: [server] server_id: expected a whole number from 0 to 65535, got 65536",
        ),
        ("[server]\nroot = 1", "edge.toml:2: [server] root: expected a path, got 1"),
        (
            "[files]\nmemory = \"64mb\"",
            "edge.toml:2: [files] memory: expected \"0B\" to \"1024GiB\", got \"64mb\"",
        ),
        (
            "[log]\nlevle = \"info\"",
            "edge.toml:2: [log] levle: unknown key, did you mean level? Expected one of level, \
             format, connections",
        ),
        ("\n[qiuc]\na = 1", "edge.toml:2: [qiuc]: unknown section, expected [server], "),
        ("congestion = \"bbr\"", "edge.toml:1: congestion: expected a section, one of [server], "),
        (
            "[server]\ncores = 1\ncertificate = \"a.pem\"",
            "edge.toml:3: [server] certificate: expected certificate and key, or neither",
        ),
        (
            "[[pull]]\nstream = \"a\"\nupstream = \"srt://u:word@h/a?k=word\"",
            "edge.toml:3: [pull] upstream: expected an rtmp://, rtmps://, http:// or https:// URL \
             with {name} and {tail} only in its path or query, or a list of them, got \
             \"srt://h/a?…\"",
        ),
        (
            "[[pull]]\nstream = \"a\"\nupstream = [\"rtmp://h/{nmae}\", \"https://u:p@h/a\"]",
            "edge.toml:3: [pull] upstream: expected an rtmp://, rtmps://, http:// or https:// URL \
             with {name} and {tail} only in its path or query, or a list of them, got \
             [\"rtmp://h/{nmae}\", \"https://h/a\"]",
        ),
        (
            "[[pull]]\nvariant = \"best\"",
            "edge.toml:2: [pull] variant: expected \"highest\", \"lowest\", \"all\" or a number of \
             Mbit/s, got \"best\"",
        ),
        (
            "[live]\ncors = \"https://a, https://b\"",
            "edge.toml:2: [live] cors: expected \"\", \"*\" or one origin as browsers write it, \
             such as \"https://www.example.com\", got \"https://a, https://b\"",
        ),
        (
            "[hooks]\non_play = \"nonsense\"",
            "edge.toml:2: [hooks] on_play: expected an http:// or https:// URL, got \"nonsense\"",
        ),
        (
            "[quic]\ninitial_mtu = 1400\nmax_mtu = 1300",
            "edge.toml:3: [quic] max_mtu: expected at least initial_mtu = 1400, got 1300",
        ),
        (
            "[quic]\nmax_mtu = 1200\nconnection_window = \"2KiB\"",
            "edge.toml:3: [quic] connection_window: expected at least stream_window = 64KiB, \
             got 2KiB",
        ),
    ];
    for (text, expected) in cases {
        // Omits the lists of all sections.
        let error = error(text);
        assert!(
            error == expected || expected.ends_with("[server], ") && error.starts_with(expected),
            "{error}\n{expected}"
        );
    }
}

#[test]
fn errors_hide_mistyped_secrets() {
    for text in [
        "[hooks]\nsecret = 98765",
        "[hooks]\nsecret = [\"98765\"]",
        "[[play]]\nstream = \"a\"\nkey = 98765",
        "[[publish]]\nkey = { word = \"98765\" }",
        "[admin]\ntoken = \"98765\"",
        "[admin]\ntoken = 98765",
        "[hooks]\non_play = \"http//user:98765@host/\"",
        "[hooks]\non_play = \"user:98765@host/\"",
        "[hooks]\non_play = \"/play?key=98765\"",
        "[hooks]\non_play = \"ftp://user:98765@host/?key=98765\"",
        "[[pull]]\nupstream = [\"rtmp:/user:98765@host\"]",
        "[[pull]]\nheaders = [\"x-key 98765\"]",
        "[[pull]]\nheaders = \"authorization 98765\"",
        "[hooks]\nsecret = 98765 98765",
        "[hooks]\nsecret = word-98765",
        "[hooks]\nsecret = \"98765",
        "[hooks]\nsecrets = \"98765\"",
    ] {
        let error = error(text);
        assert!(!error.contains("98765"), "{error}");
    }
}

#[test]
fn shares_of_viewers_add_up_to_at_most_one() {
    let text = |explorers: &str| format!("[autoplex]\nexplorers = {explorers}\nholdout = 0.3");
    let expected = "edge.toml:3: [autoplex] holdout: expected explorers plus holdout to be at \
                    most 1, got 1.1";
    assert_eq!(error(&text("0.8")), expected);
    Config::parse("edge.toml", &text("0.7")).expect("valid");
}

#[test]
fn syntax_errors_are_one_line_with_its_number() {
    for (text, line) in [
        ("[server\ncores = 1", 1),
        ("[server]\ncores = ", 2),
        ("[server]\ncores = 1\ncores = 2", 3),
        ("[server]\n\n\"", 3),
    ] {
        let error = error(text);
        assert!(error.starts_with(&format!("edge.toml:{line}: ")), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.len() > 14, "{error}");
    }
}

#[test]
fn errors_shorten_long_values() {
    let list = "[quic]\nciphers = [\n  \"aes128\",\n  \"rot13\",\n]";
    let expected = "edge.toml:2: [quic] ciphers: expected \"aes128\", \"aes256\" or \"chacha20\", \
                    or a list of them, got […";
    assert_eq!(error(list), expected);
    assert!(error(&format!("[quic]\nretry = \"{}\"", "ü".repeat(500))).len() < 300);
}

#[test]
fn relative_paths_start_at_the_files_directory() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("edge.toml");
    std::fs::write(&path, "[server]\nroot = \"www\"\nkey_file = \"/k\"\n[recovery]\ndqn = \"w\"")
        .expect("written");
    let config = Config::load(&path).expect("valid");
    assert_eq!(config.server.root, Some(dir.path().join("www")));
    assert_eq!(config.server.key_file, Some(PathBuf::from("/k")));
    assert_eq!(config.recovery.dqn, Some(dir.path().join("w")));
}

#[test]
fn errors_name_missing_files() {
    let error = Config::load(Path::new("/nonexistent/edge.toml")).expect_err("missing");
    assert!(error.to_string().starts_with("/nonexistent/edge.toml: "), "{error}");
}

#[test]
fn the_manual_lists_keys_with_immediate_effect() {
    let (documented, mut keys) = (Config::documented(), BTreeSet::new());
    let (mut section, mut is_next) = ("", false);
    for line in documented.lines() {
        let header = line.strip_prefix("# ").unwrap_or(line);
        if header.starts_with('[') {
            section = header;
        } else if line == "# A reload applies new values immediately." {
            is_next = true;
        } else if core::mem::take(&mut is_next) {
            let key = line.trim_start_matches("# ").split(' ').next().expect("a key");
            keys.insert(format!("{section} {key}"));
        }
    }
    let manual = include_str!("../../../docs/operate/upgrade-and-drain.md");
    let row = manual.lines().find_map(|line| line.strip_prefix("| `at once` |")).expect("a row");
    let (_, cell) = row.split_once('|').expect("the keys are in its last cell");
    let mut section = "";
    let listed: BTreeSet<String> = cell
        .split('`')
        .skip(1)
        .step_by(2)
        .map(|name| {
            let (of, key) = name.split_once(' ').unwrap_or((section, name));
            section = of;
            format!("{of} {key}")
        })
        .collect();
    assert!(keys.len() > 5, "{keys:?}");
    assert_eq!(listed, keys);
}

#[test]
fn printed_defaults_mark_keys_with_immediate_effect_and_those_that_need_a_restart() {
    let text = Config::documented();
    let start = "# New values require a restart.\n";
    for key in ["cores = 0\n", "max_streams = 1000\n", "# directory = "] {
        assert!(text.contains(&format!("{start}{key}")), "{key}: {text}");
    }
    assert!(
        text.contains("# A reload applies new values immediately.\ntimeout = \"30s\"\n"),
        "{text}"
    );
    assert!(
        text.contains(".\nscheme = \"deadline\"\n") && !text.contains(&format!("{start}scheme"))
    );
}
