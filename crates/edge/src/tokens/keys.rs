//! Key sets (JWKS, RFC 7517, section 5; RFC 7518, section 6).

use core::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::Value;

use super::error::{Part, TokenError};

/// Maximum number of keys of a set, supported or not.
const MAX_KEYS: usize = 100;
/// Maximum number of keys with the same ID and algorithm. Each costs a verification.
const MAX_SAME_ID: usize = 4;
/// Bytes of a coordinate of P-256.
const COORDINATE: usize = 32;
/// Bytes of an RSA modulus that the cryptographic library accepts: 2,048 to 8,192 bits.
const MODULUS: core::ops::RangeInclusive<usize> = 256..=1_024;

/// Reason why a text has no usable keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeysError {
    /// Not JSON.
    Syntax,
    /// No object with a list `keys`.
    Shape,
    /// Too many keys.
    Many(usize),
    /// None of this many keys is supported.
    Unsupported(usize),
}

impl fmt::Display for KeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax => f.write_str("not JSON"),
            Self::Shape => f.write_str("expected an object with a list \"keys\""),
            Self::Many(count) => write!(f, "{count} keys, expected at most {MAX_KEYS}"),
            Self::Unsupported(count) => write!(
                f,
                "none of {count} keys is usable; expected public keys for ES256 (P-256) or RS256 \
                 (2048 to 8192 bits)"
            ),
        }
    }
}

impl core::error::Error for KeysError {}

/// A public key.
#[derive(Clone, Debug)]
struct PublicKey {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

/// The usable keys of a set.
#[derive(Clone, Debug)]
pub(crate) struct KeySet(Vec<PublicKey>);

impl KeySet {
    /// Parses a set. Keys of other kinds or for other uses are ignored.
    ///
    /// # Errors
    /// The text is no set, is too large, or has no usable key.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, KeysError> {
        let value: Value = serde_json::from_slice(text).map_err(|_| KeysError::Syntax)?;
        let all = value.get("keys").and_then(Value::as_array).ok_or(KeysError::Shape)?;
        if all.len() > MAX_KEYS {
            return Err(KeysError::Many(all.len()));
        }
        let keys: Vec<_> = all.iter().filter_map(read).collect();
        if keys.is_empty() { Err(KeysError::Unsupported(all.len())) } else { Ok(Self(keys)) }
    }

    /// Returns the number of usable keys.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the keys that may have signed a token with this algorithm and key ID. A token
    /// without ID needs a set with a single key for its algorithm.
    ///
    /// # Errors
    /// No key, or too many.
    pub(super) fn find(
        &self,
        algorithm: Algorithm,
        id: Option<&str>,
    ) -> Result<Vec<&DecodingKey>, TokenError> {
        let wrong = |what: String| Err(TokenError::new(Part::Kid, what));
        let of_kind = self.0.iter().filter(|key| key.algorithm == algorithm);
        let is_meant = |key: &&PublicKey| id.is_none() || key.id.as_deref() == id;
        let found: Vec<_> = of_kind.filter(is_meant).map(|key| &key.key).collect();
        match (id, found.len()) {
            (Some(_), 0) => wrong(format!("the key set has no key with this ID for {algorithm:?}")),
            (None, 0) => wrong(format!("the key set has no key for {algorithm:?}")),
            (Some(_), 1..=MAX_SAME_ID) | (None, 1) => Ok(found),
            (Some(_), count) => wrong(format!("{count} keys have this ID")),
            (None, count) => {
                wrong(format!("missing; the key set has {count} keys for {algorithm:?}"))
            }
        }
    }
}

/// Reads a key; `None` if it is unsupported.
fn read(key: &Value) -> Option<PublicKey> {
    let text = |name: &str| key.get(name).and_then(Value::as_str);
    let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?).ok();
    let is_for_signatures = text("use").is_none_or(|purpose| purpose == "sig");
    let operations = key.get("key_ops").and_then(Value::as_array);
    let may_verify = operations.is_none_or(|all| all.iter().any(|one| one == "verify"));
    if !is_for_signatures || !may_verify {
        return None;
    }
    let (algorithm, key) = match text("kty")? {
        "EC" if text("crv") == Some("P-256") => {
            let is_coordinate = |name| bytes(name).is_some_and(|bytes| bytes.len() == COORDINATE);
            if !is_coordinate("x") || !is_coordinate("y") {
                return None;
            }
            let key = DecodingKey::from_ec_components(text("x")?, text("y")?).ok()?;
            (Algorithm::ES256, key)
        }
        "RSA" => {
            let (modulus, exponent) = (bytes("n")?, bytes("e")?);
            if !MODULUS.contains(&modulus.len()) {
                return None;
            }
            (Algorithm::RS256, DecodingKey::from_rsa_raw_components(&modulus, &exponent))
        }
        _ => return None,
    };
    let is_of_kind = text("alg").is_none_or(|name| name == format!("{algorithm:?}"));
    is_of_kind.then(|| PublicKey { id: text("kid").map(str::to_owned), algorithm, key })
}
