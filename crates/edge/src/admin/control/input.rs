//! What a control call says: the parameters of its query, and the keys of its content. What is not known is refused,
//! by its name.

use std::time::Duration;

use serde_json::{Map, Value};
use url::form_urlencoded;

use super::reply::Reply;
use crate::config::duration;

/// Entries of a list in one answer at most, and if the call says nothing.
const MAX_LIMIT: usize = 1_000;
const LIMIT: usize = 100;
/// How long a ban may be: no longer than passes hold.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30 * 86_400);

/// The parameters of a query, each of which is taken once.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn read(query: &str) -> Self {
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    /// The value of a parameter, if it is there.
    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        let index = self.0.iter().position(|(key, _)| key == name)?;
        Some(self.0.swap_remove(index).1)
    }

    /// The parameter `limit`: how many entries the answer may have.
    pub(super) fn limit(&mut self) -> Result<usize, Reply> {
        let Some(text) = self.take("limit") else { return Ok(LIMIT) };
        let limit = text.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
        limit.ok_or_else(|| Reply::wrong("limit", format!("expected 1 to {MAX_LIMIT}")))
    }

    /// The parameter `cursor` as a number; 0 without one.
    pub(super) fn number_after(&mut self) -> Result<u64, Reply> {
        let Some(text) = self.take("cursor") else { return Ok(0) };
        text.parse().map_err(|_| Reply::wrong("cursor", "expected `next` of another answer"))
    }

    /// All was taken.
    ///
    /// # Errors
    /// Something was not, or was there twice.
    pub(super) fn finish(&mut self) -> Result<(), Reply> {
        match self.0.pop() {
            Some((key, _)) => Err(Reply::wrong(&key, "unknown parameter, or given twice")),
            None => Ok(()),
        }
    }
}

/// The keys of a JSON object, each of which is taken once.
#[derive(Debug, Default)]
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    pub(super) fn read(text: &[u8]) -> Result<Self, Reply> {
        match serde_json::from_slice(text) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err(Reply::error(400, "expected a JSON object")),
            Err(e) => Err(Reply::error(400, format!("no JSON: {e}"))),
        }
    }

    /// A key's text, if it is there.
    pub(super) fn text(&mut self, key: &str) -> Result<Option<String>, Reply> {
        match self.0.remove(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Reply::wrong(key, "expected a text")),
        }
    }

    /// How long something is to hold, if `for` says so.
    pub(super) fn span(&mut self) -> Result<Option<Duration>, Reply> {
        let Some(text) = self.text("for")? else { return Ok(None) };
        let span = duration(&text).filter(|span| (SHORTEST..=LONGEST).contains(span));
        let why = "expected a duration such as \"10m\", from 1s to 30d";
        span.map(Some).ok_or_else(|| Reply::wrong("for", why))
    }

    /// All was taken.
    ///
    /// # Errors
    /// There are other keys.
    pub(super) fn finish(self) -> Result<(), Reply> {
        match self.0.keys().next() {
            Some(key) => Err(Reply::wrong(key, "unknown key")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(refusal: Reply) -> (u16, String) {
        (refusal.status, refusal.body["key"].as_str().unwrap_or_default().to_owned())
    }

    #[test]
    fn what_is_wrong_is_named() {
        let limit = |query: &str| Query::read(query).limit().map_err(key);
        assert_eq!((limit(""), limit("limit=7")), (Ok(LIMIT), Ok(7)));
        for query in ["limit=0", "limit=1001", "limit=-1", "limit=x", "limit="] {
            assert_eq!(limit(query), Err((400, "limit".into())), "{query}");
        }
        let mut query = Query::read("stream=live%2Fa&stream=b");
        assert_eq!(query.take("stream").as_deref(), Some("live/a"));
        assert_eq!(query.finish().map_err(key), Err((400, "stream".into())));
        let cursor = Query::read("cursor=x").number_after();
        assert_eq!(cursor.map_err(key), Err((400, "cursor".into())));

        let span = |text: &str| Fields::read(text.as_bytes()).expect("JSON").span().map_err(key);
        assert_eq!(span(r#"{"for":"10m"}"#), Ok(Some(Duration::from_secs(600))));
        assert_eq!(span("{}"), Ok(None));
        for text in [r#"{"for":"0s"}"#, r#"{"for":"31d"}"#, r#"{"for":600}"#, r#"{"for":"x"}"#] {
            assert_eq!(span(text), Err((400, "for".into())), "{text}");
        }
        let unknown = Fields::read(br#"{"fro":"10m"}"#).expect("JSON").finish();
        assert_eq!(unknown.map_err(key), Err((400, "fro".into())));
        for text in [&b"[]"[..], b"7", b"{", b"\xff"] {
            assert_eq!(Fields::read(text).err().map(|refusal| refusal.status), Some(400));
        }
    }
}
