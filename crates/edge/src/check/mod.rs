//! `mendcast edge --check`: finds problems of a start with this configuration, and changes nothing.
//! No file is created or opened for writing. Ports are bound briefly without listening, so a
//! running server keeps its own.
//!
//! An error prevents the server from starting or from serving anybody. A port in use is an error
//! only if another program is known to use it, because operators check a changed file while the
//! server runs.

mod certificates;
mod holder;
mod paths;
mod ports;
mod push;
mod recordings;
mod secrets;

use std::path::Path;

use url::{Host, Url};

use crate::Error;
use crate::clock::unix_now;
use crate::config::{Config, KeySource};
use crate::finding::Finding;
use crate::invitation;
use crate::ladder;
use crate::plan::Plan;
use crate::redacted::Redacted;

/// The outcome of a check.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Findings, errors first.
    pub findings: Vec<Finding>,
    /// The certificates, and advice on HTTP/3 for browsers.
    pub advice: Vec<String>,
}

/// Checks the configuration from `file` on this machine.
///
/// # Errors
/// As [`Plan::new`].
pub fn check(file: &Path, config: Config) -> Result<Checked, Error> {
    let plan = Plan::new(config)?;
    let mut findings = ports::check(&plan.config);
    findings.extend(paths::check(&plan.config));
    findings.extend(push::check(&plan.config));
    findings.extend(recordings::check(&plan.config));
    findings.extend(secrets::check_file(file, &plan.config));
    findings.extend(credentials(&plan));
    findings.extend(congestion(&plan.config));
    findings.extend(plain_http(&plan.config));
    findings.extend(ladder::check(&plan.config));
    findings.extend(plan.config.unused().iter().map(|(key, what)| Finding::unused(key, what)));
    findings.sort_by_key(|finding| !finding.is_error);
    let mut advice = certificates::list(&plan.certificates);
    advice.extend(invitation::advice(&plan));
    Ok(Checked { findings, advice })
}

/// Finds problems of certificate, key files and secrets. A check, a start and a reload report them.
pub(crate) fn credentials(plan: &Plan) -> Vec<Finding> {
    let mut findings = plan.notes.clone();
    findings.extend(certificates::check(&plan.certificates, unix_now()));
    findings.extend(certificates::uncovered(&plan.certificates, &plan.config));
    findings.extend(secrets::check(&plan.config));
    findings
}

/// Warns of keys and certificates that come over plain HTTP from another machine.
fn plain_http(config: &Config) -> Vec<Finding> {
    let jwks = |key, source: &Option<KeySource>| match source {
        Some(KeySource::Url(url)) => Some((key, url.0.clone())),
        _ => None,
    };
    let play = config.play.iter().filter_map(|rule| jwks("[[play]] jwks", &rule.jwks));
    let publish = config.publish.iter().filter_map(|rule| jwks("[[publish]] jwks", &rule.jwks));
    let acme = config.acme.domains.iter().map(|_| ("[acme] ca", config.acme.ca.0.clone()));
    let is_local = |url: &Url| match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    let all = play.chain(publish).chain(acme);
    let open = all.filter(|(_, url)| url.scheme() == "http" && !is_local(url));
    let what = "plain HTTP: keys can be replaced on the way; expected https";
    open.map(|(key, url)| Finding::warning(key, Redacted(&url), what)).collect()
}

/// Warns of controllers that freeze live viewers on common links (`docs/develop/congestion.md`).
fn congestion(config: &Config) -> Option<Finding> {
    let algorithm = config.quic.congestion;
    let what = algorithm.warning()?;
    Some(Finding::warning("[quic] congestion", algorithm.name(), what))
}

#[cfg(test)]
mod tests;
