//! Reasons to reject a token.

use core::fmt;

/// The part of a token that is wrong. Ordered by the progress of verification.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// Its length.
    Size,
    /// Its encoding.
    Format,
    /// The header field `crit`.
    Crit,
    /// The header field `alg`.
    Alg,
    /// The public keys, which are not loaded yet.
    Keys,
    /// The header field `kid`.
    Kid,
    /// The signature.
    Signature,
    /// The claim `exp`.
    Exp,
    /// The claim `nbf`.
    Nbf,
    /// The claim `iat`.
    Iat,
    /// The claim `aud`.
    Aud,
    /// The claim `sub`.
    Sub,
}

impl Part {
    /// All parts.
    pub const ALL: [Self; 12] = [
        Self::Size,
        Self::Format,
        Self::Crit,
        Self::Alg,
        Self::Keys,
        Self::Kid,
        Self::Signature,
        Self::Exp,
        Self::Nbf,
        Self::Iat,
        Self::Aud,
        Self::Sub,
    ];

    /// Returns its name in errors and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::Format => "format",
            Self::Crit => "crit",
            Self::Alg => "alg",
            Self::Keys => "jwks",
            Self::Kid => "kid",
            Self::Signature => "signature",
            Self::Exp => "exp",
            Self::Nbf => "nbf",
            Self::Iat => "iat",
            Self::Aud => "aud",
            Self::Sub => "sub",
        }
    }
}

/// Reason why a token is rejected. It has no text of the token but the name of its algorithm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenError {
    /// The wrong part.
    pub part: Part,
    what: String,
}

impl TokenError {
    pub(super) fn new(part: Part, what: impl Into<String>) -> Self {
        Self { part, what: what.into() }
    }
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token: {}: {}", self.part.name(), self.what)
    }
}

impl core::error::Error for TokenError {}
