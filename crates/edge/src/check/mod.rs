//! `mendcast edge --check`: finds the faults that a start with this configuration would meet, and
//! changes nothing. No file is made or opened for writing. Ports are bound for a moment and never
//! listened on, so that a running server keeps its own.
//!
//! An error keeps the server from starting, or from serving anybody. A port that is in use is one
//! only if another program is known to have it: an operator checks a changed file beside the
//! running server.

mod holder;
mod paths;
mod ports;
mod secrets;

use std::path::Path;

use congestion::Algorithm;

use crate::Error;
use crate::clock::unix_now;
use crate::config::Config;
use crate::finding::Finding;
use crate::identity::date;
use crate::invitation;
use crate::plan::Plan;

/// A certificate that expires sooner is named.
const SOON: u64 = 7 * 86_400;
/// Bytes of a certificate chain that every client takes: TLS stacks read handshake messages of 16
/// KiB at the least.
const MAX_CHAIN: usize = 16 << 10;

/// The outcome of a check.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Errors first.
    pub findings: Vec<Finding>,
    /// How browsers come to use HTTP/3.
    pub advice: Vec<String>,
}

/// Checks the configuration that stands in `file` on this machine.
///
/// # Errors
/// One line: as [`Plan::new`].
pub fn check(file: &Path, config: Config) -> Result<Checked, Error> {
    let plan = Plan::new(config)?;
    let mut findings = ports::look(&plan.config);
    findings.extend(paths::look(&plan.config));
    findings.extend(secrets::of_file(file, &plan.config));
    findings.extend(standing(&plan));
    findings.extend(congestion(&plan.config));
    findings.extend(plan.config.unused().iter().map(|(key, what)| Finding::unused(key, what)));
    findings.sort_by_key(|finding| !finding.is_error);
    Ok(Checked { findings, advice: invitation::advice(&plan) })
}

/// The faults of the certificate, the key files and the secrets of a plan. A check, a start and a
/// reload report them.
pub(crate) fn standing(plan: &Plan) -> Vec<Finding> {
    let mut findings = plan.notes.clone();
    findings.extend(certificate(plan));
    findings.extend(secrets::look(&plan.config));
    findings
}

/// Warns of controllers that freeze live viewers on common links (`docs/congestion.md`).
fn congestion(config: &Config) -> Option<Finding> {
    let algorithm = config.quic.congestion;
    let what = match algorithm {
        Algorithm::Cubic => "viewers freeze under random loss; use cubic-live or bbr",
        Algorithm::Copa => {
            "viewers freeze on Wi-Fi and other links that deliver in bunches; use bbr"
        }
        Algorithm::CubicLive | Algorithm::Bbr | Algorithm::BbrDraft => return None,
    };
    Some(Finding::warning("[quic] congestion", algorithm.name(), what))
}

/// The faults of the certificate chain: its dates and its length.
fn certificate(plan: &Plan) -> Vec<Finding> {
    const KEY: &str = "[server] certificate";
    let Some(path) = &plan.config.server.certificate else { return Vec::new() };
    let (path, now) = (path.display().to_string(), unix_now());
    let mut findings = Vec::new();
    if let Some(fault) = plan.identity.fault(now) {
        findings.push(Finding::error(KEY, &path, fault));
    } else if let Some((name, end)) = plan.identity.first_to_expire()
        && end.saturating_sub(now) < SOON
    {
        let what = format!("{name} expires on {}, in less than 7 days", date(end));
        findings.push(Finding::warning(KEY, &path, what));
    }
    let bytes: usize = plan.identity.chain.iter().map(|certificate| certificate.len()).sum();
    if bytes > MAX_CHAIN {
        let what =
            format!("the chain has {bytes} bytes; some clients refuse more than {MAX_CHAIN}");
        findings.push(Finding::warning(KEY, &path, what));
    }
    findings
}

#[cfg(test)]
mod tests;
