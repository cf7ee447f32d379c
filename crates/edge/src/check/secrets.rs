//! Checks of secrets: file modes and length.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::config::Config;
use crate::finding::Finding;

/// Minimum characters of a secret that cannot be guessed.
const MIN_LEN: usize = 16;
/// Permissions of the group and of everybody else.
const GROUP_AND_OTHERS: u32 = 0o077;
/// Permission of everybody else to read.
const READ_BY_OTHERS: u32 = 0o004;

/// Finds unsafe modes of secret files, and short secrets in `config`.
pub(super) fn check(config: &Config) -> Vec<Finding> {
    let server = &config.server;
    let certificates = config.certificate.iter();
    let certificates = certificates.map(|item| ("[[certificate]] key", Some(item.key.as_path())));
    let files = [
        ("[server] key", &server.key),
        ("[server] key_file", &server.key_file),
        ("[admin] token_file", &config.admin.token_file),
    ];
    let files = files.into_iter().map(|(key, path)| (key, path.as_deref())).chain(certificates);
    let open = files.filter_map(|(key, path)| {
        let path = path?;
        let mode = mode(path).filter(|mode| mode & GROUP_AND_OTHERS != 0)?;
        let who = if mode & 0o007 != 0 { "everybody" } else { "its group" };
        let what = format!("mode {mode:04o} lets {who} use the secret; expected 0600");
        Some(Finding::warning(key, path.display(), what))
    });
    let play = config.play.iter();
    let play = play.filter_map(|rule| Some(("[[play]] key", &rule.stream, rule.key.as_ref()?)));
    let publish = config.publish.iter();
    let publish =
        publish.filter_map(|rule| Some(("[[publish]] key", &rule.stream, rule.key.as_ref()?)));
    let hooks = String::from("all hooks");
    let secret = config.hooks.secret.iter().map(|secret| ("[hooks] secret", &hooks, secret));
    let short = play.chain(publish).chain(secret).filter_map(|(key, of, secret)| {
        let count = secret.chars().count();
        let what = format!("{count} characters can be guessed; expected {MIN_LEN} or more");
        (count < MIN_LEN).then(|| Finding::warning(key, format!("… (of {of})"), what))
    });
    let key_log = config.quic.key_log.iter().map(|path| {
        let what =
            "TLS secrets are written, which decrypt all viewers' traffic; only for debugging";
        Finding::warning("[quic] key_log", path.display(), what)
    });
    open.chain(short).chain(key_log).collect()
}

/// Warns if everybody may read the configuration file and it contains secrets.
pub(super) fn check_file(file: &Path, config: &Config) -> Option<Finding> {
    let has_secrets = config.admin.token.is_some()
        || config.hooks.secret.is_some()
        || !config.play.is_empty()
        || !config.publish.is_empty()
        || config.pull.iter().any(|rule| rule.headers.is_some())
        || !config.push.is_empty();
    let mode = mode(file).filter(|mode| has_secrets && mode & READ_BY_OTHERS != 0)?;
    let what = format!("mode {mode:04o} lets everybody read its secrets; expected 0640 or less");
    Some(Finding::warning("--config", file.display(), what))
}

fn mode(path: &Path) -> Option<u32> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(metadata.permissions().mode() & 0o7777)
}
