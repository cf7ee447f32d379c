//! JSON Web Tokens (RFC 7519) that permit to play or to publish a stream.
//!
//! A rule accepts tokens signed by its `key` (HS256) or by a key of its `jwks` (ES256, RS256). The
//! kind of key decides the algorithm, and the token's header only names it: a public key is never
//! used as a secret. Claims are read after the signature is verified.

mod claims;
mod error;
mod keys;
mod sets;

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::clock::unix;
use crate::config::KeySource;
use claims::Claims;
pub use error::{Part, TokenError};
pub(crate) use sets::KeySets;

/// Maximum length of a token in bytes. Longer ones are rejected unread.
const MAX_TOKEN: usize = 4_096;
/// Maximum length of a rejected algorithm's name in errors.
const MAX_SHOWN: usize = 16;

/// The parts of a rule that tokens need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<'a> {
    /// Secret key of HS256.
    pub key: Option<&'a str>,
    /// Public keys of ES256 and RS256.
    pub jwks: Option<&'a KeySource>,
    /// The audience that a token must name.
    pub audience: &'a str,
}

/// The header of a token (RFC 7515, section 4.1).
#[derive(Deserialize)]
struct TokenHeader {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

/// A token, split and decoded, but not verified.
struct Parts<'a> {
    header: TokenHeader,
    /// The signed text.
    message: &'a str,
    signature: &'a str,
    claims: Map<String, Value>,
}

impl<'a> Parts<'a> {
    fn read(token: &'a str) -> Result<Self, TokenError> {
        if token.len() > MAX_TOKEN {
            let what = format!("{} bytes, expected at most {MAX_TOKEN}", token.len());
            return Err(TokenError::new(Part::Size, what));
        }
        let wrong = |what: &str| TokenError::new(Part::Format, what);
        let shape = || wrong("expected HEADER.CLAIMS.SIGNATURE");
        let (message, signature) = token.rsplit_once('.').ok_or_else(shape)?;
        let (header, claims) = message.split_once('.').ok_or_else(shape)?;
        if claims.contains('.') {
            return Err(shape());
        }
        let decoded = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| wrong("no base64url"));
        let header = serde_json::from_slice(&decoded(header)?);
        let header = header.map_err(|_| wrong("the header is no JSON object with alg"))?;
        let claims = serde_json::from_slice(&decoded(claims)?);
        let claims = claims.map_err(|_| wrong("the claims are no JSON object"))?;
        Ok(Self { header, message, signature, claims })
    }

    /// Returns true if this key has signed the token.
    fn is_signed_by(&self, key: &DecodingKey, algorithm: Algorithm) -> bool {
        let verified =
            jsonwebtoken::crypto::verify(self.signature, self.message.as_bytes(), key, algorithm);
        verified.unwrap_or(false)
    }
}

/// Verifies a token for the stream `name` at `now`, with a tolerance of `leeway` for clocks, by the
/// first of these rules that accepts it. Returns the rule's index and the end of the permission.
///
/// # Errors
/// The reason of the rule that came furthest.
pub(crate) fn verify<'a>(
    token: &str,
    name: &str,
    rules: impl Iterator<Item = Terms<'a>>,
    sets: &KeySets,
    now: SystemTime,
    leeway: Duration,
) -> Result<(usize, SystemTime), TokenError> {
    let parts = Parts::read(token)?;
    if parts.header.crit.is_some() {
        return Err(TokenError::new(Part::Crit, "extensions are not supported"));
    }
    let algorithm = algorithm(&parts.header.alg)?;
    let mut furthest = TokenError::new(Part::Alg, "no rule of this stream accepts this algorithm");
    for (index, rule) in rules.enumerate() {
        let outcome = check_signature(&parts, algorithm, rule, sets).and_then(|()| {
            let claims = Claims::read(&parts.claims)?;
            claims.check(name, rule.audience, unix(now), leeway.as_secs())
        });
        match outcome {
            Ok(end) => {
                let end = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(end));
                let far = || TokenError::new(Part::Exp, "too far in the future");
                return Ok((index, end.ok_or_else(far)?));
            }
            Err(why) if why.part >= furthest.part => furthest = why,
            Err(_) => {}
        }
    }
    Err(furthest)
}

/// Returns a supported algorithm.
fn algorithm(name: &str) -> Result<Algorithm, TokenError> {
    match name {
        "HS256" => Ok(Algorithm::HS256),
        "ES256" => Ok(Algorithm::ES256),
        "RS256" => Ok(Algorithm::RS256),
        other => {
            let is_plain = other.len() <= MAX_SHOWN && other.bytes().all(|b| b.is_ascii_graphic());
            let got = if is_plain { other } else { "something else" };
            let what = format!("expected HS256, ES256 or RS256, got {got}");
            Err(TokenError::new(Part::Alg, what))
        }
    }
}

/// Checks the signature with the keys of a rule.
fn check_signature(
    parts: &Parts<'_>,
    algorithm: Algorithm,
    rule: Terms<'_>,
    sets: &KeySets,
) -> Result<(), TokenError> {
    let unsupported = |what| TokenError::new(Part::Alg, what);
    let wrong = || TokenError::new(Part::Signature, "wrong");
    if algorithm == Algorithm::HS256 {
        // An empty secret would be everybody's.
        let key = rule.key.filter(|key| !key.is_empty());
        let key = key.ok_or_else(|| unsupported("HS256 needs a rule with a key"))?;
        let key = DecodingKey::from_secret(key.as_bytes());
        return parts.is_signed_by(&key, algorithm).then_some(()).ok_or_else(wrong);
    }
    let source = rule.jwks.ok_or_else(|| unsupported("ES256 and RS256 need a rule with jwks"))?;
    let set = sets.get(source).ok_or_else(|| TokenError::new(Part::Keys, "not loaded yet"))?;
    let keys = set.find(algorithm, parts.header.kid.as_deref())?;
    let is_signed = keys.iter().any(|key| parts.is_signed_by(key, algorithm));
    is_signed.then_some(()).ok_or_else(wrong)
}

/// Returns a token signed by `key` with HS256 for the stream or pattern `name`, valid from `now` to
/// `expires` (seconds since 1970).
///
/// # Errors
/// The cryptographic library fails.
pub fn issue(
    key: &str,
    name: &str,
    audience: &str,
    now: u64,
    expires: u64,
) -> Result<String, jsonwebtoken::errors::Error> {
    let claims = json!({ "aud": audience, "sub": name, "iat": now, "exp": expires });
    let key = EncodingKey::from_secret(key.as_bytes());
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key)
}

#[cfg(test)]
mod tests;
