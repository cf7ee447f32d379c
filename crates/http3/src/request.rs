//! Parsing of requests from field lines (RFC 9114, sections 4.2 and 4.3). Malformed messages are
//! rejected here, so that the application sees only well-formed ones.

use bytes::Bytes;
use quic::streams::Priority;

use crate::error::{RequestError, code};
use crate::priority;
use crate::qpack::Field;

/// Head of a well-formed request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestHead {
    /// The method, a token (RFC 9110, section 9). Never CONNECT, which the server rejects itself.
    pub method: Bytes,
    /// The scheme, usually `https`.
    pub scheme: Bytes,
    /// The authority from `:authority` or `Host`, without user information. Not empty for `http`
    /// and `https`.
    pub authority: Bytes,
    /// Path and query: starts with `/`, or is `*` for OPTIONS.
    pub path: Bytes,
    /// Fields in the order of arrival, without pseudo-header fields. Several `cookie` lines are
    /// joined.
    pub headers: Vec<Field>,
    /// Length of the content in bytes, if announced by the client. The content returned by
    /// [`crate::Server::read_body`] is checked against it.
    pub content_length: Option<u64>,
    /// Priority of the response (RFC 9218), already passed to the transport.
    pub priority: Priority,
    /// Whether the request arrived in 0-RTT data and may be a replay (RFC 8470). Answer only safe
    /// requests; reject others with status 425.
    pub early: bool,
}

impl RequestHead {
    /// Returns the value of the first field with this lower-case name.
    pub fn header(&self, name: &str) -> Option<&Bytes> {
        self.headers.iter().find(|field| field.name == name).map(|field| &field.value)
    }
}

/// RFC 9114, section 4.1.2: malformed messages "MUST be treated as a stream error of type
/// H3_MESSAGE_ERROR".
const MALFORMED: RequestError = RequestError::Stream(code::H3_MESSAGE_ERROR);

/// Parses a header section. The caller sets `early`.
pub(crate) fn parse(fields: Vec<Field>) -> Result<RequestHead, RequestError> {
    let mut pseudo = Pseudo::default();
    let mut headers = Vec::with_capacity(fields.len());
    for field in fields {
        if field.name.first() != Some(&b':') {
            check_field(&field.name, &field.value)?;
            headers.push(field);
        } else if headers.is_empty() {
            pseudo.put(field)?;
        } else {
            // RFC 9114, section 4.3: a pseudo-header field after a regular one is malformed.
            return Err(MALFORMED);
        }
    }
    let content_length = content_length(&headers)?;
    let authority = authority(pseudo.authority, &headers)?;
    let method = pseudo.method.filter(|method| is_token(method)).ok_or(MALFORMED)?;
    if method == "CONNECT" {
        // RFC 9114, section 4.4: :scheme and :path are omitted, :authority is present.
        if pseudo.scheme.is_some() || pseudo.path.is_some() || authority.is_empty() {
            return Err(MALFORMED);
        }
        // RFC 9110, section 15.6.2: a method that the server supports for no resource.
        return Err(RequestError::Answer(501));
    }
    let scheme = pseudo.scheme.filter(|scheme| is_scheme(scheme)).ok_or(MALFORMED)?;
    let path = pseudo.path.ok_or(MALFORMED)?;
    let is_http = scheme.eq_ignore_ascii_case(b"https") || scheme.eq_ignore_ascii_case(b"http");
    // RFC 9114, section 4.3.1: for http and https, an authority is present and not empty.
    if !is_path(&path, &method) || (is_http && authority.is_empty()) {
        return Err(MALFORMED);
    }
    let mut priority_value = Vec::new();
    for field in headers.iter().filter(|field| field.name == "priority") {
        priority_value.extend_from_slice(&field.value);
        priority_value.push(b',');
    }
    join_cookies(&mut headers);
    let priority = priority::parse(&priority_value);
    Ok(RequestHead {
        method,
        scheme,
        authority,
        path,
        headers,
        content_length,
        priority,
        early: false,
    })
}

/// Checks a trailer section.
pub(crate) fn check_trailers(fields: &[Field]) -> Result<(), RequestError> {
    for field in fields {
        // RFC 9114, section 4.3: pseudo-header fields "MUST NOT appear in trailer sections"; a
        // colon is not allowed in a name anyway. TE is only allowed in a header section (4.2).
        check_field(&field.name, &field.value)?;
        if field.name == "te" {
            return Err(MALFORMED);
        }
    }
    Ok(())
}

/// Whether a field is valid in requests and responses (RFC 9114, section 4.2): a lower-case token
/// as name, not specific to a connection, and a value without control characters.
pub(crate) fn is_field(name: &[u8], value: &[u8]) -> bool {
    // RFC 9114, section 10.3: a character that is not allowed in a value is malformed.
    is_token(name)
        && !name.iter().any(u8::is_ascii_uppercase)
        && !is_connection_specific(name)
        && !value.iter().any(|&byte| byte.is_ascii_control() && byte != b'\t')
}

fn check_field(name: &[u8], value: &[u8]) -> Result<(), RequestError> {
    // RFC 9114, section 4.2: TE "MUST NOT contain any value other than 'trailers'".
    let is_other_te = name == b"te" && !value.eq_ignore_ascii_case(b"trailers");
    if is_field(name, value) && !is_other_te { Ok(()) } else { Err(MALFORMED) }
}

/// Whether a field is specific to a connection (RFC 9110, section 7.6.1; RFC 9114, section 4.2).
fn is_connection_specific(name: &[u8]) -> bool {
    matches!(
        name,
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade"
    )
}

/// The request's pseudo-header fields (RFC 9114, section 4.3.1).
#[derive(Default)]
struct Pseudo {
    method: Option<Bytes>,
    scheme: Option<Bytes>,
    authority: Option<Bytes>,
    path: Option<Bytes>,
}

impl Pseudo {
    /// Stores a pseudo-header field. Each may appear once, and others are malformed (RFC 9114,
    /// section 4.3).
    fn put(&mut self, field: Field) -> Result<(), RequestError> {
        let place = match &field.name[..] {
            b":method" => &mut self.method,
            b":scheme" => &mut self.scheme,
            b":authority" => &mut self.authority,
            b":path" => &mut self.path,
            _ => return Err(MALFORMED),
        };
        match place.replace(field.value) {
            None => Ok(()),
            Some(_) => Err(MALFORMED),
        }
    }
}

/// Returns the authority of `:authority` or `Host`, empty without both.
fn authority(pseudo: Option<Bytes>, headers: &[Field]) -> Result<Bytes, RequestError> {
    let hosts = headers.iter().filter(|field| field.name == "host").map(|field| &field.value);
    let mut authority = None;
    for given in pseudo.iter().chain(hosts) {
        // RFC 9114, section 4.3.1: if present they "MUST NOT be empty", and both "MUST contain the
        // same value"; user information is not allowed.
        let is_valid = !given.is_empty()
            && given.iter().all(|byte| byte.is_ascii_graphic() && !b"@/?#\\".contains(byte));
        let agrees = authority.is_none_or(|other: &Bytes| other.eq_ignore_ascii_case(given));
        if !is_valid || !agrees {
            return Err(MALFORMED);
        }
        authority = Some(given);
    }
    Ok(authority.cloned().unwrap_or_default())
}

/// Returns the content length (RFC 9110, section 8.6): digits only; several lines must agree.
fn content_length(headers: &[Field]) -> Result<Option<u64>, RequestError> {
    let mut length = None;
    for field in headers.iter().filter(|field| field.name == "content-length") {
        let digits = core::str::from_utf8(&field.value).unwrap_or_default();
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        let given = digits.parse::<u64>().ok().filter(|_| is_number).ok_or(MALFORMED)?;
        if length.is_some_and(|other| other != given) {
            return Err(MALFORMED);
        }
        length = Some(given);
    }
    Ok(length)
}

/// RFC 9114, section 4.2.1: several cookie lines "MUST be concatenated into a single byte string
/// using the two-byte delimiter of '; '" before a generic application sees them.
fn join_cookies(headers: &mut Vec<Field>) {
    let is_cookie = |field: &Field| field.name == "cookie";
    let Some(first) = headers.iter().position(is_cookie) else { return };
    let rest = &headers[first + 1..];
    if !rest.iter().any(is_cookie) {
        return;
    }
    let mut joined = headers[first].value.to_vec();
    for field in rest.iter().filter(|field| is_cookie(field)) {
        joined.extend_from_slice(b"; ");
        joined.extend_from_slice(&field.value);
    }
    headers[first].value = joined.into();
    let mut index = 0;
    headers.retain(|field| {
        index += 1;
        index - 1 <= first || !is_cookie(field)
    });
}

/// Whether `text` is a token (RFC 9110, section 5.6.2).
fn is_token(text: &[u8]) -> bool {
    !text.is_empty()
        && text
            .iter()
            .all(|&byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Whether `text` is a scheme (RFC 3986, section 3.1).
fn is_scheme(text: &[u8]) -> bool {
    text.first().is_some_and(u8::is_ascii_alphabetic)
        && text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte))
}

/// Whether `path` is an absolute path with an optional query, or `*` for OPTIONS (RFC 9114, section
/// 4.3.1). A few visible characters that RFC 3986 requires to be escaped are allowed, because
/// browsers send them.
fn is_path(path: &[u8], method: &[u8]) -> bool {
    let is_asterisk = path == b"*" && method == b"OPTIONS";
    let is_absolute = path.first() == Some(&b'/')
        && path.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'#');
    is_absolute || is_asterisk
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: [(&str, &str); 4] =
        [(":method", "GET"), (":scheme", "https"), (":authority", "edge.test"), (":path", "/a?b")];

    fn parsed(fields: &[(&str, &str)]) -> Result<RequestHead, RequestError> {
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        parse(fields.iter().map(|(n, v)| Field { name: bytes(n), value: bytes(v) }).collect())
    }

    fn with(extra: &[(&str, &str)]) -> Result<RequestHead, RequestError> {
        parsed(&[&GET, extra].concat())
    }

    fn without(name: &str) -> Vec<(&'static str, &'static str)> {
        GET.into_iter().filter(|field| field.0 != name).collect()
    }

    fn replaced(name: &str, value: &str) -> Result<RequestHead, RequestError> {
        parsed(&GET.map(|(n, v)| (n, if n == name { value } else { v })))
    }

    #[test]
    fn a_request_is_split_into_its_parts() {
        let head =
            with(&[("priority", "u=1"), ("accept", "*/*"), ("priority", "i"), ("te", "trailers")])
                .expect("well-formed");
        assert_eq!(head.method, "GET");
        assert_eq!(head.scheme, "https");
        assert_eq!(head.authority, "edge.test");
        assert_eq!(head.path, "/a?b");
        assert_eq!(head.header("accept"), Some(&Bytes::from("*/*")));
        assert_eq!(head.header("absent"), None);
        assert_eq!(head.headers.len(), 4);
        assert_eq!(head.priority, Priority { urgency: 1, incremental: true });
    }

    #[test]
    fn missing_repeated_unknown_and_late_pseudo_header_fields_are_malformed() {
        for (name, _) in GET {
            assert_eq!(parsed(&without(name)), Err(MALFORMED), "without {name}");
            assert_eq!(with(&[(name, "GET")]), Err(MALFORMED), "second {name}");
            let late = [&without(name)[..], &[("a", "b"), (name, "GET")]].concat();
            assert_eq!(parsed(&late), Err(MALFORMED), "late {name}");
        }
        for name in [":status", ":protocol", ":Path", ":"] {
            assert_eq!(with(&[(name, "200")]), Err(MALFORMED), "{name}");
        }
    }

    #[test]
    fn invalid_values_of_pseudo_header_fields_are_malformed() {
        for (name, values) in [
            (":method", &["", "G T", "GET\n"][..]),
            (":scheme", &["", "1http", "ht tp", "https:"]),
            (":authority", &["", "user@edge.test", "edge test", "edge.test/x", "a\0"]),
            (":path", &["", "a", "*", "/a b", "/a#b", "/\n", "/\u{7f}", "http://edge.test/"]),
        ] {
            for value in values {
                assert_eq!(replaced(name, value), Err(MALFORMED), "{name}: {value:?}");
            }
        }
        let options =
            [(":method", "OPTIONS"), (":scheme", "https"), (":authority", "a"), (":path", "*")];
        assert!(parsed(&options).is_ok());
    }

    #[test]
    fn host_replaces_a_missing_authority_and_must_agree_with_it() {
        let only_host = [&without(":authority")[..], &[("host", "edge.test:443")]].concat();
        assert_eq!(parsed(&only_host).expect("well-formed").authority, "edge.test:443");
        assert!(with(&[("host", "EDGE.test")]).is_ok());
        assert_eq!(with(&[("host", "other.test")]), Err(MALFORMED));
        assert_eq!(with(&[("host", "")]), Err(MALFORMED));
        assert_eq!(
            parsed(&[&without(":authority")[..], &[("host", "a"), ("host", "b")]].concat()),
            Err(MALFORMED)
        );
    }

    #[test]
    fn names_and_values_with_wrong_characters_are_malformed() {
        for name in ["Accept", "a b", "", "a:b", "a\0", "ä"] {
            assert_eq!(with(&[(name, "x")]), Err(MALFORMED), "{name:?}");
        }
        for value in ["a\r\nb", "\0", "a\u{7f}", "\u{1}"] {
            assert_eq!(with(&[("a", value)]), Err(MALFORMED), "{value:?}");
        }
        assert!(with(&[("a", "tab\tand ä"), ("b", "")]).is_ok());
    }

    #[test]
    fn connection_specific_fields_are_malformed() {
        for (name, value) in [
            ("connection", "close"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("te", "gzip"),
            ("te", "trailers, gzip"),
        ] {
            assert_eq!(with(&[(name, value)]), Err(MALFORMED), "{name}");
        }
    }

    #[test]
    fn content_length_has_only_digits_and_repetitions_agree() {
        let length = |extra: &[(&str, &str)]| with(extra).map(|head| head.content_length);
        assert_eq!(length(&[]), Ok(None));
        assert_eq!(length(&[("content-length", "18446744073709551615")]), Ok(Some(u64::MAX)));
        assert_eq!(length(&[("content-length", "5"), ("content-length", "5")]), Ok(Some(5)));
        assert_eq!(length(&[("content-length", "5"), ("content-length", "6")]), Err(MALFORMED));
        for value in ["", "+5", "-1", "5, 5", "0x5", "18446744073709551616"] {
            assert_eq!(length(&[("content-length", value)]), Err(MALFORMED), "{value}");
        }
    }

    #[test]
    fn cookie_lines_become_one() {
        let head = with(&[("cookie", "a=1"), ("x", "y"), ("cookie", "b=2"), ("cookie", "c=3")])
            .expect("well-formed");
        assert_eq!(head.header("cookie"), Some(&Bytes::from("a=1; b=2; c=3")));
        assert_eq!(head.headers.len(), 2);
        assert_eq!(head.header("x"), Some(&Bytes::from("y")));
    }

    #[test]
    fn connect_is_answered_with_501_if_it_is_well_formed() {
        let connect = [(":method", "CONNECT"), (":authority", "a.test:443")];
        assert_eq!(parsed(&connect), Err(RequestError::Answer(501)));
        assert_eq!(parsed(&connect[..1]), Err(MALFORMED));
        assert_eq!(replaced(":method", "CONNECT"), Err(MALFORMED));
    }

    #[test]
    fn trailers_have_no_pseudo_header_connection_or_te_fields() {
        let field = |name, value| {
            [Field { name: Bytes::from_static(name), value: Bytes::from_static(value) }]
        };
        assert_eq!(check_trailers(&field(b"x-sum", b"1")), Ok(()));
        assert_eq!(check_trailers(&field(b":path", b"/")), Err(MALFORMED));
        assert_eq!(check_trailers(&field(b"connection", b"close")), Err(MALFORMED));
        assert_eq!(check_trailers(&field(b"te", b"trailers")), Err(MALFORMED));
    }
}
