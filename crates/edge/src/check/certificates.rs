//! Checks of certificates: dates, names and sizes.

use crate::certificates::{Certificate, CertificateSet};
use crate::config::{Config, DomainName, HostPattern};
use crate::finding::Finding;
use crate::identity::date;

/// Remaining validity of a certificate below which a warning is given, in seconds.
const EXPIRY_WARNING: u64 = 7 * 86_400;
/// Maximum size of a certificate chain that all clients accept, in bytes: TLS stacks read handshake
/// messages of at least 16 KiB.
const MAX_CHAIN: usize = 16 << 10;

/// Finds certificates that clients reject at `now` (seconds since 1970) or that are never chosen.
pub(super) fn check(set: &CertificateSet, now: u64) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, (source, certificate)) in set.all().enumerate() {
        let Some(source) = source else { continue };
        let (key, path) = (source.keys[0], source.chain.display());
        let identity = &certificate.identity;
        if let Some(fault) = identity.fault(now) {
            findings.push(match source.is_acme() {
                true => Finding::warning(key, &path, format!("{fault}; another one is requested")),
                false => Finding::error(key, &path, fault),
            });
        } else if let Some((name, end)) = identity.first_to_expire()
            && end.saturating_sub(now) < EXPIRY_WARNING
        {
            let what = format!("{name} expires on {}, in less than 7 days", date(end));
            findings.push(Finding::warning(key, &path, what));
        }
        let names = &certificate.names;
        if names.dns.is_empty() && names.addresses.is_empty() {
            let what = "the certificate has no names (subject alternative names); \
                        clients reject it";
            findings.push(Finding::error(key, &path, what));
        } else if names.dns.is_empty() && at > 0 {
            let what = "the certificate has no DNS names, so no server name selects it";
            findings.push(Finding::error(key, &path, what));
        }
        let bytes: usize = identity.chain.iter().map(|certificate| certificate.len()).sum();
        if bytes > MAX_CHAIN {
            let what =
                format!("the chain has {bytes} bytes; some clients reject more than {MAX_CHAIN}");
            findings.push(Finding::warning(key, &path, what));
        }
        findings.extend(hidden(set, at, certificate).map(|name| {
            let what = format!("an earlier certificate of the same kind of key has {name}");
            Finding::warning(key, &path, what)
        }));
    }
    findings
}

/// Returns a name for which an earlier certificate is always chosen. One with another kind of key
/// serves other clients.
fn hidden<'a>(set: &CertificateSet, at: usize, own: &'a Certificate) -> Option<&'a str> {
    let kind = |certificate: &Certificate| certificate.certified.key.algorithm();
    let earlier = || set.all().take(at).filter(|(_, other)| kind(other) == kind(own));
    let is_hidden = |name: &&String| earlier().any(|(_, other)| other.names.dns.contains(name));
    own.names.dns.iter().find(is_hidden).map(String::as_str)
}

/// Finds names of virtual hosts that no certificate has. A self-signed development certificate has
/// no configured names.
pub(super) fn uncovered(set: &CertificateSet, config: &Config) -> Vec<Finding> {
    let all: Vec<_> = set.all().filter(|(source, _)| source.is_some()).collect();
    if all.is_empty() {
        return Vec::new();
    }
    let ordered: Vec<&str> = config.acme.domains.iter().flatten().map(DomainName::as_str).collect();
    let is_covered = |name: &str| {
        let wildcard = name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        let has = |names: &[String]| {
            names.iter().any(|own| own == name || Some(own) == wildcard.as_ref())
        };
        ordered.contains(&name) || all.iter().any(|(_, certificate)| has(&certificate.names.dns))
    };
    let names = config.host.iter().flat_map(|host| &host.names).map(HostPattern::as_str);
    let what = "no certificate has this name, so browsers reject the host";
    let uncovered = names.filter(|name| !is_covered(name));
    uncovered.map(|name| Finding::warning("[[host]] names", name, what)).collect()
}

/// Returns a line per certificate with its names and expiry. The first is the default.
pub(super) fn list(set: &CertificateSet) -> Vec<String> {
    let files = set.all().filter_map(|(source, certificate)| Some((source?, certificate)));
    let lines = files.map(|(source, certificate)| {
        let addresses = certificate.names.addresses.iter().map(ToString::to_string);
        let names: Vec<_> = certificate.names.dns.iter().cloned().chain(addresses).collect();
        let (path, end) = (source.chain.display(), date(*certificate.validity.end()));
        format!("Certificate {path}: {}, valid until {end}", names.join(", "))
    });
    lines.collect()
}
