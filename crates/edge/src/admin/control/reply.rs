//! Responses of the control API.

use serde_json::{Value, json};

use crate::admin::access::{AccessDenied, HEADER, WRONG_TOKEN_WINDOW};

/// A JSON response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Value,
    /// An additional header field.
    pub(crate) field: Option<(&'static str, String)>,
}

impl Reply {
    pub(super) fn new(status: u16, body: Value) -> Self {
        Self { status, body, field: None }
    }

    /// An error with a message.
    pub(super) fn error(status: u16, why: impl Into<String>) -> Self {
        let why: String = why.into();
        Self::new(status, json!({ "error": why }))
    }

    /// An error in a key of the call.
    pub(super) fn wrong(key: &str, why: impl Into<String>) -> Self {
        let why: String = why.into();
        Self::new(400, json!({ "error": format!("{key}: {why}"), "key": key }))
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.field = Some((name, value.into()));
        self
    }

    /// Returns the result label in metrics.
    pub(super) fn result(&self) -> &'static str {
        match self.status {
            200..=299 => "ok",
            401 | 403 | 429 => "denied",
            409 => "failed",
            _ => "invalid",
        }
    }
}

impl From<AccessDenied> for Reply {
    fn from(denied: AccessDenied) -> Self {
        match denied {
            AccessDenied::NoToken => Self::error(
                403,
                "this listener is not on loopback: set [admin] token or token_file and send it",
            ),
            AccessDenied::Missing => Self::error(401, "expected Authorization: Bearer TOKEN")
                .with("www-authenticate", "Bearer"),
            AccessDenied::Wrong => Self::error(401, "wrong token")
                .with("www-authenticate", "Bearer error=\"invalid_token\""),
            AccessDenied::TooOften => Self::error(429, "too many wrong tokens from this address")
                .with("retry-after", WRONG_TOKEN_WINDOW.as_secs().to_string()),
            AccessDenied::NoHeader => Self::error(
                403,
                format!("expected the header {HEADER} or a token, as protection against web pages"),
            ),
        }
    }
}
