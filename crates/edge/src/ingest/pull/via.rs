//! Detection of pull loops between servers by the CDN-Loop field (RFC 8586).
//!
//! A pull sends its upstream the servers that the viewer's request passed, and this one. A
//! returning request is rejected, so that a loop ends at once instead of by the timeouts of all its
//! servers.

use std::sync::OnceLock;

use hyper::header::HeaderValue;

use crate::entropy::random;
use crate::hex::hex;

/// The field's name.
pub(super) const CDN_LOOP: &str = "cdn-loop";
/// Maximum bytes of the field. A longer one indicates a loop of servers that do not check it.
const MAX_LENGTH: usize = 1_024;

/// Returns the pseudonym of this process (section 2), unguessable except for its upstreams.
fn node() -> &'static str {
    static NODE: OnceLock<String> = OnceLock::new();
    NODE.get_or_init(|| format!("mendcast-{}", hex(&random().unwrap_or_default()[..8])))
}

/// The servers that a request passed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Via(String);

impl Via {
    /// Parses a request's CDN-Loop fields; `None` if it passed this server, or too many.
    pub(crate) fn of<'a>(fields: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let fields: Vec<_> = fields.filter_map(|field| core::str::from_utf8(field).ok()).collect();
        let via = fields.join(", ");
        let name = |id: &str| id.split(';').next().unwrap_or_default().trim().to_owned();
        let is_loop = via.split(',').any(|id| name(id) == node()) || via.len() > MAX_LENGTH;
        (!is_loop).then_some(Self(via))
    }

    /// Returns true if no server is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the servers and this one, separated by commas.
    pub(crate) fn text(&self) -> String {
        if self.0.is_empty() { node().to_owned() } else { format!("{}, {}", self.0, node()) }
    }

    /// Returns the field of a pull for this request.
    pub(super) fn field(&self) -> HeaderValue {
        let all = self.text();
        let all = HeaderValue::try_from(all).or_else(|_| HeaderValue::from_str(node()));
        all.expect("letters and digits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn via(fields: &[&str]) -> Option<Via> {
        Via::of(fields.iter().map(|field| field.as_bytes()))
    }

    #[test]
    fn a_returning_request_is_recognised() {
        let first = via(&[]).expect("no loop").field();
        assert_eq!(first, node());
        let next = via(&["a.example; x=1, b", "c"]).expect("no loop").field();
        let next = next.to_str().expect("text");
        assert_eq!(next, format!("a.example; x=1, b, c, {}", node()));
        assert!(via(&[next]).is_none() && via(&["a", &format!("{} ;x=1", node())]).is_none());
        assert!(via(&[&format!("{}0", node())]).is_some(), "another node");
        assert!(via(&[&"a,".repeat(MAX_LENGTH)]).is_none());
    }
}
