//! `mendcast edge --check`: finds problems of a start with this configuration, and changes nothing.
//! No file is created or opened for writing. Ports are bound briefly without listening, so a
//! running server keeps its own.
//!
//! An error prevents the server from starting or from serving anybody. A port in use is an error
//! only if another program is known to use it, because operators check a changed file while the
//! server runs.

mod holder;
mod paths;
mod ports;
mod secrets;

use std::path::Path;

use crate::Error;
use crate::clock::unix_now;
use crate::config::Config;
use crate::finding::Finding;
use crate::identity::date;
use crate::invitation;
use crate::ladder;
use crate::plan::Plan;

/// Remaining validity of a certificate below which a warning is given, in seconds.
const EXPIRY_WARNING: u64 = 7 * 86_400;
/// Maximum size of a certificate chain that all clients accept, in bytes: TLS stacks read handshake
/// messages of at least 16 KiB.
const MAX_CHAIN: usize = 16 << 10;

/// The outcome of a check.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Findings, errors first.
    pub findings: Vec<Finding>,
    /// Advice on HTTP/3 for browsers.
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
    findings.extend(secrets::check_file(file, &plan.config));
    findings.extend(credentials(&plan));
    findings.extend(congestion(&plan.config));
    findings.extend(ladder::check(&plan.config));
    findings.extend(plan.config.unused().iter().map(|(key, what)| Finding::unused(key, what)));
    findings.sort_by_key(|finding| !finding.is_error);
    Ok(Checked { findings, advice: invitation::advice(&plan) })
}

/// Finds problems of certificate, key files and secrets. A check, a start and a reload report them.
pub(crate) fn credentials(plan: &Plan) -> Vec<Finding> {
    let mut findings = plan.notes.clone();
    findings.extend(certificate(plan));
    findings.extend(secrets::check(&plan.config));
    findings
}

/// Warns of controllers that freeze live viewers on common links (`docs/develop/congestion.md`).
fn congestion(config: &Config) -> Option<Finding> {
    let algorithm = config.quic.congestion;
    let what = algorithm.warning()?;
    Some(Finding::warning("[quic] congestion", algorithm.name(), what))
}

/// Finds problems of the certificate chain: its dates and its size.
fn certificate(plan: &Plan) -> Vec<Finding> {
    const KEY: &str = "[server] certificate";
    let Some(path) = &plan.config.server.certificate else { return Vec::new() };
    let (path, now) = (path.display().to_string(), unix_now());
    let mut findings = Vec::new();
    if let Some(fault) = plan.identity.fault(now) {
        findings.push(Finding::error(KEY, &path, fault));
    } else if let Some((name, end)) = plan.identity.first_to_expire()
        && end.saturating_sub(now) < EXPIRY_WARNING
    {
        let what = format!("{name} expires on {}, in less than 7 days", date(end));
        findings.push(Finding::warning(KEY, &path, what));
    }
    let bytes: usize = plan.identity.chain.iter().map(|certificate| certificate.len()).sum();
    if bytes > MAX_CHAIN {
        let what =
            format!("the chain has {bytes} bytes; some clients reject more than {MAX_CHAIN}");
        findings.push(Finding::warning(KEY, &path, what));
    }
    findings
}

#[cfg(test)]
mod tests;
