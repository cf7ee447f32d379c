//! One order (RFC 8555, section 7.1.3): challenges, validation, and the certificate.

use std::sync::Arc;
use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, ChallengeType, Identifier, KeyAuthorization, NewOrder, Order,
    OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::CertifiedKey;

use super::failure::Failure;
use super::http01::Responder;
use crate::certificates::Certificates;
use crate::config::{self, AcmeChallenge};

/// Questions to the CA whether it is done.
const POLLS: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(500))
    .backoff(1.5)
    .timeout(Duration::from_secs(120));

/// Answers to the challenges of an order, until it is dropped.
struct Answers<'a> {
    certificates: &'a Certificates,
    responder: Option<Responder>,
}

impl Drop for Answers<'_> {
    fn drop(&mut self) {
        self.certificates.clear_challenges();
    }
}

/// Obtains a certificate for `domains` with a new key. Returns chain and key in PEM.
pub(super) async fn obtain(
    account: &Account,
    domains: &[String],
    settings: &config::Acme,
    certificates: &Certificates,
) -> Result<String, Failure> {
    let responder = match settings.challenge {
        AcmeChallenge::Http01 => Some(Responder::start(settings.http_listen).await?),
        AcmeChallenge::TlsAlpn01 => None,
    };
    let answers = Answers { certificates, responder };
    let identifiers: Vec<_> = domains.iter().cloned().map(Identifier::Dns).collect();
    let mut order = account.new_order(&NewOrder::new(&identifiers)).await?;
    answer_challenges(&mut order, &answers).await?;
    match order.poll_ready(&POLLS).await {
        Ok(OrderStatus::Ready) => {}
        Ok(_) | Err(instant_acme::Error::Api(_)) => return Err(invalid(&mut order).await),
        Err(why) => return Err(why.into()),
    }
    drop(answers);
    let local = |e: rcgen::Error| Failure::Local(e.to_string());
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(local)?;
    let mut params = CertificateParams::new(domains).map_err(local)?;
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key).map_err(local)?;
    order.finalize_csr(request.der()).await?;
    let chain = order.poll_certificate(&POLLS).await?;
    Ok(format!("{}\n{}", chain.trim_end(), key.serialize_pem()))
}

/// Answers the challenges of all names that the CA has not validated recently.
async fn answer_challenges(order: &mut Order, answers: &Answers<'_>) -> Result<(), Failure> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let kind = match answers.responder {
            Some(_) => ChallengeType::Http01,
            None => ChallengeType::TlsAlpn01,
        };
        let name = authorization.identifier().to_string();
        let offered = authorization.challenge(kind);
        let missing = || Failure::Validation(name.clone(), "the CA offers other challenges".into());
        let mut challenge = offered.ok_or_else(missing)?;
        let proof = challenge.key_authorization();
        match &answers.responder {
            Some(responder) => responder.add(&challenge.token, proof.as_str()),
            None => answers.certificates.add_challenge(&name, certificate(&name, &proof)?),
        }
        challenge.set_ready().await?;
    }
    Ok(())
}

/// Returns the certificate that proves control of a name (RFC 8737, section 3).
fn certificate(name: &str, proof: &KeyAuthorization) -> Result<Arc<CertifiedKey>, Failure> {
    let local = |e: rcgen::Error| Failure::Local(e.to_string());
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(local)?;
    let mut params = CertificateParams::new([name.to_owned()]).map_err(local)?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(proof.digest().as_ref())];
    let certificate = params.self_signed(&key).map_err(local)?;
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let chain = vec![certificate.der().clone()];
    let key = provider::sign::any_supported_type(&key);
    let key = key.map_err(|e| Failure::Local(e.to_string()))?;
    // Not `from_der`, which parses the certificate, and rejects its critical extension.
    Ok(Arc::new(CertifiedKey::new(chain, key)))
}

/// Returns why the CA did not validate an order.
async fn invalid(order: &mut Order) -> Failure {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let name = authorization.identifier().to_string();
        let Ok(state) = authorization.refresh().await else { continue };
        let error = state.challenges.iter().find_map(|challenge| challenge.error.as_ref());
        if let Some(error) = error {
            return Failure::Validation(name, error.to_string());
        }
    }
    Failure::Validation("the order".into(), "the CA names no reason".into())
}
