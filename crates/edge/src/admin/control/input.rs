//! Input of control calls: query parameters and JSON keys. Unknown ones are rejected by name.

use std::time::Duration;

use serde_json::{Map, Value};
use units::parse_duration;
use url::form_urlencoded;

use super::reply::Reply;

/// Maximum and default number of list entries per response.
const MAX_LIMIT: usize = 1_000;
const DEFAULT_LIMIT: usize = 100;
/// Minimum and maximum duration of a ban. The maximum is the lifetime of passes.
const MIN_SPAN: Duration = Duration::from_secs(1);
const MAX_SPAN: Duration = Duration::from_secs(30 * 86_400);

/// Query parameters, each taken once.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn read(query: &str) -> Self {
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    /// Takes the value of a parameter, if present.
    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        let index = self.0.iter().position(|(key, _)| key == name)?;
        Some(self.0.swap_remove(index).1)
    }

    /// Takes the parameter `limit`: the maximum number of entries.
    pub(super) fn limit(&mut self) -> Result<usize, Reply> {
        let Some(text) = self.take("limit") else { return Ok(DEFAULT_LIMIT) };
        let limit = text.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
        limit.ok_or_else(|| Reply::wrong("limit", format!("expected 1 to {MAX_LIMIT}")))
    }

    /// Takes the parameter `cursor` as a number; 0 if absent.
    pub(super) fn number_after(&mut self) -> Result<u64, Reply> {
        let Some(text) = self.take("cursor") else { return Ok(0) };
        text.parse().map_err(|_| Reply::wrong("cursor", "expected `next` of an earlier response"))
    }

    /// Checks that all parameters were taken.
    ///
    /// # Errors
    /// A parameter is unknown or repeated.
    pub(super) fn finish(&mut self) -> Result<(), Reply> {
        match self.0.pop() {
            Some((key, _)) => Err(Reply::wrong(&key, "unknown parameter, or given twice")),
            None => Ok(()),
        }
    }
}

/// Keys of a JSON object, each taken once.
#[derive(Debug, Default)]
pub(super) struct JsonFields(Map<String, Value>);

impl JsonFields {
    pub(super) fn read(text: &[u8]) -> Result<Self, Reply> {
        match serde_json::from_slice(text) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err(Reply::error(400, "expected a JSON object")),
            Err(e) => Err(Reply::error(400, format!("invalid JSON: {e}"))),
        }
    }

    /// Takes a string, if present.
    pub(super) fn text(&mut self, key: &str) -> Result<Option<String>, Reply> {
        match self.0.remove(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Reply::wrong(key, "expected a string")),
        }
    }

    /// Takes the duration `for`, if present.
    pub(super) fn span(&mut self) -> Result<Option<Duration>, Reply> {
        let Some(text) = self.text("for")? else { return Ok(None) };
        let span = parse_duration(&text).ok().filter(|span| (MIN_SPAN..=MAX_SPAN).contains(span));
        let why = "expected a duration such as \"10m\", from 1s to 30d";
        span.map(Some).ok_or_else(|| Reply::wrong("for", why))
    }

    /// Checks that all keys were taken.
    ///
    /// # Errors
    /// A key is unknown.
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
    fn errors_name_the_wrong_key() {
        let limit = |query: &str| Query::read(query).limit().map_err(key);
        assert_eq!((limit(""), limit("limit=7")), (Ok(DEFAULT_LIMIT), Ok(7)));
        for query in ["limit=0", "limit=1001", "limit=-1", "limit=x", "limit="] {
            assert_eq!(limit(query), Err((400, "limit".into())), "{query}");
        }
        let mut query = Query::read("stream=live%2Fa&stream=b");
        assert_eq!(query.take("stream").as_deref(), Some("live/a"));
        assert_eq!(query.finish().map_err(key), Err((400, "stream".into())));
        let cursor = Query::read("cursor=x").number_after();
        assert_eq!(cursor.map_err(key), Err((400, "cursor".into())));

        let span =
            |text: &str| JsonFields::read(text.as_bytes()).expect("JSON").span().map_err(key);
        assert_eq!(span(r#"{"for":"10m"}"#), Ok(Some(Duration::from_secs(600))));
        assert_eq!(span("{}"), Ok(None));
        for text in [r#"{"for":"0s"}"#, r#"{"for":"31d"}"#, r#"{"for":600}"#, r#"{"for":"x"}"#] {
            assert_eq!(span(text), Err((400, "for".into())), "{text}");
        }
        let unknown = JsonFields::read(br#"{"fro":"10m"}"#).expect("JSON").finish();
        assert_eq!(unknown.map_err(key), Err((400, "fro".into())));
        for text in [&b"[]"[..], b"7", b"{", b"\xff"] {
            assert_eq!(JsonFields::read(text).err().map(|refusal| refusal.status), Some(400));
        }
    }
}
