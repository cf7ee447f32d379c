//! Certificates from an ACME CA (RFC 8555), obtained and renewed while the server runs.
//!
//! A thread of its own talks to the CA, so neither a slow CA nor a slow disk delays viewers. The
//! certificate is a file of the state directory, which [`Certificates`] serves like any other.

mod client;
mod failure;
mod http01;
mod order;
mod store;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use instant_acme::{Account, ExternalAccountKey, NewAccount};
use tokio::time::{sleep, timeout};

use crate::Error;
use crate::certificates::{Certificates, Source};
use crate::client::Client;
use crate::clock::unix_now;
use crate::config::{self, ExternalAccount};
use crate::disk::small;
use crate::entropy::jitter;
use crate::redacted::Redacted;
use crate::state::Shared;
use client::CaClient;
use failure::Failure;
use store::Store;

/// Maximum time between checks whether the certificate is due.
const MAX_TICK: Duration = Duration::from_secs(60);
/// Minimum time between checks.
const MIN_TICK: Duration = Duration::from_secs(1);
/// First and maximum wait after a failure. Each failure multiplies the wait by four, which keeps
/// an hour's attempts below common limits of CAs (5 failed validations per hour and name).
const FIRST_RETRY: Duration = Duration::from_secs(60);
const MAX_RETRY: Duration = Duration::from_secs(6 * 3600);

/// Starts the thread that keeps the certificate of `[acme]`, if configured. It ends with the drain.
///
/// # Errors
/// The client's certificate authorities cannot be read, or the thread cannot be started.
pub(crate) fn start(shared: &Arc<Shared>) -> Result<(), Error> {
    let state = shared.state();
    let Some(source) = Source::acme(&state.config) else { return Ok(()) };
    let client = match &state.config.acme.ca_file {
        Some(path) => {
            let named = |e: String| Error::new(format!("[acme] ca_file {}: {e}", path.display()));
            let pem = small::read(path, small::MAX_SECRET).map_err(|e| named(e.to_string()))?;
            Client::of_pem(&pem).map_err(|e| named(e.to_string()))?
        }
        None => Client::system().clone(),
    };
    let keeper = Keeper {
        settings: state.config.acme.clone(),
        store: Store::new(&state.config.acme.directory),
        client,
        certificates: state.certificates.clone(),
        source,
        retry: Retry::default(),
        jitter: jitter(),
    };
    let shared = shared.clone();
    let failed = |e| Error::new(format!("cannot start acme: {e}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(failed)?;
    let work = move || {
        runtime.block_on(async {
            tokio::select! {
                () = keeper.run() => {}
                () = shared.drained() => {}
            }
        });
    };
    std::thread::Builder::new().name("acme".into()).spawn(work).map(drop).map_err(failed)
}

/// Waits after failures.
#[derive(Debug, Default)]
struct Retry {
    failures: u32,
    /// By the monotonic clock, so that a step of the system clock changes nothing.
    until: Option<Instant>,
}

impl Retry {
    /// Schedules the next attempt. `share` in 0..1 spreads the attempts of many servers.
    fn fail(&mut self, now: Instant, share: f64) -> Duration {
        let wait = FIRST_RETRY * 4u32.saturating_pow(self.failures.min(8));
        let wait = wait.min(MAX_RETRY).mul_f64(0.75 + share / 2.0);
        self.failures = self.failures.saturating_add(1);
        self.until = Some(now + wait);
        wait
    }

    fn is_due(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }
}

/// Whether a certificate should be renewed at `now`: one third of its lifetime is left, or up to a
/// thirtieth more, by `jitter` in 0..1, so that many servers do not renew at the same time. A
/// certificate that is not valid yet is not renewed: the clock is wrong.
fn is_due(validity: &RangeInclusive<u64>, now: u64, jitter: f64) -> bool {
    let lifetime = validity.end().saturating_sub(*validity.start());
    let margin = lifetime / 3 + (lifetime as f64 / 30.0 * jitter) as u64;
    now >= validity.end().saturating_sub(margin)
}

/// Keeps one certificate.
struct Keeper {
    settings: config::Acme,
    store: Store,
    client: Client,
    certificates: Arc<Certificates>,
    source: Source,
    retry: Retry,
    jitter: f64,
}

impl Keeper {
    async fn run(mut self) {
        loop {
            let tick = self.step().await;
            sleep(tick).await;
        }
    }

    /// Obtains a certificate if one is due. Returns the time until the next check.
    async fn step(&mut self) -> Duration {
        let validity = self.current();
        let is_due = validity.as_ref().is_none_or(|all| is_due(all, unix_now(), self.jitter));
        let lifetime = validity.map_or(u64::MAX, |all| all.end().saturating_sub(*all.start()));
        let tick = Duration::from_secs(lifetime / 40).clamp(MIN_TICK, MAX_TICK);
        if !is_due || !self.retry.is_due(Instant::now()) {
            return tick;
        }
        let names = self.domains().join(",");
        tracing::info!("certificate requested: {} names={names}", Redacted(&self.settings.ca.0));
        let attempt = timeout(failure::ATTEMPT_TIMEOUT, self.obtain()).await;
        match attempt.unwrap_or(Err(Failure::Timeout)) {
            Ok(()) => {
                (self.retry, self.jitter) = (Retry::default(), jitter());
                self.certificates.count_obtained(true);
            }
            Err(why) => {
                let wait = self.retry.fail(Instant::now(), jitter()).as_secs();
                self.certificates.count_obtained(false);
                tracing::warn!("certificate not obtained: {why}; next attempt in {wait} s");
            }
        }
        tick
    }

    fn domains(&self) -> Vec<String> {
        let domains = self.settings.domains.iter().flatten();
        domains.map(|domain| domain.as_str().to_owned()).collect()
    }

    /// Returns the validity of the stored certificate, if it has all configured names.
    fn current(&self) -> Option<RangeInclusive<u64>> {
        let certificate = self.source.load().ok()?;
        let has_all = self.domains().iter().all(|name| certificate.names.dns.contains(name));
        has_all.then_some(certificate.validity)
    }

    async fn obtain(&self) -> Result<(), Failure> {
        let local = |e: Error| Failure::Local(e.to_string());
        self.store.prepare().map_err(local)?;
        let account = self.account().await?;
        let domains = self.domains();
        let pem = order::obtain(&account, &domains, &self.settings, &self.certificates).await;
        if pem.as_ref().is_err_and(Failure::is_unknown_account) {
            self.store.forget_account(self.settings.ca.0.as_str());
        }
        let pem = pem?;
        self.source.check(pem.as_bytes(), &domains).map_err(local)?;
        self.store.write(&self.source.chain, pem.as_bytes()).map_err(local)?;
        let is_in_use = self.certificates.install(&self.source, unix_now()).map_err(local)?;
        let names = domains.join(",");
        match is_in_use {
            true => tracing::info!("certificate obtained: names={names}"),
            // The CA's clock is ahead. The watch loads it later.
            false => tracing::warn!("certificate obtained, but not valid yet: names={names}"),
        }
        Ok(())
    }

    /// Returns the account at the CA, created if necessary.
    async fn account(&self) -> Result<Account, Failure> {
        let ca = self.settings.ca.0.as_str();
        let builder = || Account::builder_with_http(Box::new(CaClient(self.client.clone())));
        if let Some(credentials) = self.store.account(ca) {
            return Ok(builder().from_credentials(credentials).await?);
        }
        let contact: Vec<&str> = self.settings.contact.iter().map(String::as_str).collect();
        let account = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let external = self.settings.external_account.as_ref().map(external_key).transpose()?;
        let created = builder().create(&account, ca.to_owned(), external.as_ref());
        let (account, credentials) = created.await?;
        let stored = self.store.keep_account(ca, &credentials);
        stored.map_err(|e| Failure::Local(e.to_string()))?;
        Ok(account)
    }
}

/// Returns the key that binds the new account to one with the CA.
fn external_key(account: &ExternalAccount) -> Result<ExternalAccountKey, Failure> {
    let key = URL_SAFE_NO_PAD.decode(&account.key);
    let key = key.map_err(|e| Failure::Local(format!("[acme] external_account: {e}")))?;
    Ok(ExternalAccountKey::new(account.id.clone(), &key))
}

#[cfg(test)]
mod tests;
