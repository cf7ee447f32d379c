//! Reasons why no certificate was obtained.

use core::fmt;
use std::time::Duration;

/// Timeout of an attempt.
pub(super) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(300);

/// Reason why no certificate was obtained.
#[derive(Debug)]
pub(super) enum Failure {
    /// The CA or the connection to it.
    Ca(instant_acme::Error),
    /// The CA could not validate a name. Contains the name and the CA's reason.
    Validation(String, String),
    /// Something on this machine.
    Local(String),
    /// No result in time.
    Timeout,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ca(why) => write!(f, "CA: {why}"),
            Self::Validation(name, why) => write!(f, "{name} not validated: {why}"),
            Self::Local(why) => f.write_str(why),
            Self::Timeout => write!(f, "no certificate within {ATTEMPT_TIMEOUT:?}"),
        }
    }
}

impl core::error::Error for Failure {}

impl Failure {
    /// Whether the CA does not know the account, for example after a loss of its data.
    pub(super) fn is_unknown_account(&self) -> bool {
        const KIND: &str = "urn:ietf:params:acme:error:accountDoesNotExist";
        matches!(self, Self::Ca(instant_acme::Error::Api(problem))
            if problem.r#type.as_deref() == Some(KIND))
    }
}

impl From<instant_acme::Error> for Failure {
    fn from(why: instant_acme::Error) -> Self {
        Self::Ca(why)
    }
}
