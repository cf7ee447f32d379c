//! Claims of tokens (RFC 7519, section 4.1).

use serde_json::{Map, Value};

use super::error::{Part, TokenError};
use crate::identity::date;
use crate::names::matches;

/// The claims of a token whose signature is valid.
#[derive(Debug)]
pub(super) struct Claims<'a> {
    expires: u64,
    not_before: Option<u64>,
    issued: Option<u64>,
    audiences: Vec<&'a str>,
    stream: &'a str,
}

impl<'a> Claims<'a> {
    /// Reads the claims. Others are ignored.
    ///
    /// # Errors
    /// A required claim is missing, or a claim has the wrong type.
    pub(super) fn read(claims: &'a Map<String, Value>) -> Result<Self, TokenError> {
        let expires = time(claims, Part::Exp)?.ok_or_else(|| missing(Part::Exp))?;
        let audiences = match claims.get("aud") {
            Some(Value::String(one)) => vec![one.as_str()],
            Some(Value::Array(all)) => {
                let all: Option<Vec<_>> = all.iter().map(Value::as_str).collect();
                let why = "expected a string or a list of strings";
                all.ok_or_else(|| TokenError::new(Part::Aud, why))?
            }
            Some(_) => {
                let why = "expected a string or a list of strings";
                return Err(TokenError::new(Part::Aud, why));
            }
            None => return Err(missing(Part::Aud)),
        };
        let stream = match claims.get("sub") {
            Some(Value::String(name)) => name.as_str(),
            Some(_) => return Err(TokenError::new(Part::Sub, "expected a string")),
            None => return Err(missing(Part::Sub)),
        };
        Ok(Self {
            expires,
            not_before: time(claims, Part::Nbf)?,
            issued: time(claims, Part::Iat)?,
            audiences,
            stream,
        })
    }

    /// Checks the claims for the stream `name` and this audience at `now`, in seconds since 1970.
    /// Returns the end of the permission: the expiry and the leeway.
    ///
    /// # Errors
    /// The first claim that does not permit it.
    pub(super) fn check(
        &self,
        name: &str,
        audience: &str,
        now: u64,
        leeway: u64,
    ) -> Result<u64, TokenError> {
        let end = self.expires.saturating_add(leeway);
        if now > end {
            let what = format!("expired on {}", date(self.expires));
            return Err(TokenError::new(Part::Exp, what));
        }
        for (part, from) in [(Part::Nbf, self.not_before), (Part::Iat, self.issued)] {
            if let Some(from) = from.filter(|from| *from > now.saturating_add(leeway)) {
                let what = format!("not valid before {}", date(from));
                return Err(TokenError::new(part, what));
            }
        }
        if !self.audiences.contains(&audience) {
            // Audiences of rules are no secrets.
            return Err(TokenError::new(Part::Aud, format!("expected \"{audience}\"")));
        }
        if !matches(self.stream, name) {
            return Err(TokenError::new(Part::Sub, "the token is for another stream"));
        }
        Ok(end)
    }
}

fn missing(part: Part) -> TokenError {
    TokenError::new(part, "missing")
}

/// Reads a time in seconds since 1970, with or without a fraction.
fn time(claims: &Map<String, Value>, part: Part) -> Result<Option<u64>, TokenError> {
    let Some(value) = claims.get(part.name()) else { return Ok(None) };
    let fraction = || value.as_f64().filter(|s| (0.0..1e15).contains(s)).map(|s| s as u64);
    let seconds = value.as_u64().or_else(fraction);
    let wrong = || TokenError::new(part, "expected seconds since 1970");
    seconds.map(Some).ok_or_else(wrong)
}
