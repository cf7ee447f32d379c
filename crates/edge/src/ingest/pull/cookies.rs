//! The cookies of one pull (RFC 6265). Some origins set cookies with playlists and require them for
//! segments.
//!
//! Cookies live as long as the pull. They are sent to the host that set them and, with a Domain
//! attribute, to the hosts of that domain.

use std::net::IpAddr;

use hyper::header::{HeaderMap, HeaderValue, SET_COOKIE};
use url::Url;

/// Maximum number of cookies. A further one evicts the oldest.
const MAX_COOKIES: usize = 20;
/// Maximum bytes of a Set-Cookie field (RFC 6265, section 6.1).
const MAX_FIELD: usize = 4_096;

#[derive(Clone, PartialEq, Eq, Debug)]
struct Cookie {
    name: String,
    value: String,
    host: String,
    /// Whether subdomains of `host` get it too.
    subdomains: bool,
    path: String,
    secure: bool,
}

/// The cookies of one pull.
#[derive(Clone, Default, Debug)]
pub(super) struct Cookies(Vec<Cookie>);

impl Cookies {
    /// Stores the cookies of a response from `url`.
    pub(super) fn take(&mut self, url: &Url, headers: &HeaderMap) {
        for field in headers.get_all(SET_COOKIE).iter().take(MAX_COOKIES) {
            let text = field.to_str().ok().filter(|text| text.len() <= MAX_FIELD);
            let Some((cookie, is_expired)) = text.and_then(|text| Cookie::read(url, text)) else {
                continue;
            };
            let key = |c: &Cookie| (c.name.clone(), c.host.clone(), c.path.clone());
            self.0.retain(|known| key(known) != key(&cookie));
            if self.0.len() >= MAX_COOKIES {
                self.0.remove(0);
            }
            if !is_expired {
                self.0.push(cookie);
            }
        }
    }

    /// Returns the Cookie field of a request to `url`; `None` without cookies.
    pub(super) fn field(&self, url: &Url) -> Option<HeaderValue> {
        let matching = self.0.iter().filter(|cookie| cookie.is_for(url));
        let pairs: Vec<String> = matching.map(|c| format!("{}={}", c.name, c.value)).collect();
        (!pairs.is_empty()).then(|| HeaderValue::try_from(pairs.join("; ")).ok())?
    }
}

impl Cookie {
    /// Parses a Set-Cookie field. Returns the cookie, and true if it is expired.
    fn read(url: &Url, text: &str) -> Option<(Self, bool)> {
        let own = url.host_str()?;
        let mut parts = text.split(';').map(str::trim);
        let (name, value) = parts.next()?.split_once('=')?;
        let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
        if name.is_empty() {
            return None;
        }
        let folder = url.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        let path = if folder.is_empty() { "/" } else { folder }.to_owned();
        let host = own.to_owned();
        let mut cookie = Self { name, value, host, subdomains: false, path, secure: false };
        let mut is_expired = false;
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let value = value.trim();
            match key.trim().to_ascii_lowercase().as_str() {
                "domain" if !value.is_empty() => {
                    let domain = value.trim_start_matches('.').to_ascii_lowercase();
                    // Single labels, such as top-level domains, and foreign domains are rejected
                    // (section 5.3).
                    if own != domain && (!domain.contains('.') || !is_subdomain(own, &domain)) {
                        return None;
                    }
                    (cookie.host, cookie.subdomains) = (domain, true);
                }
                "path" if value.starts_with('/') => cookie.path = value.to_owned(),
                "secure" => cookie.secure = true,
                "max-age" => is_expired = value.parse::<i64>().is_ok_and(|seconds| seconds <= 0),
                "expires" => {
                    let time = httpdate::parse_http_date(value);
                    is_expired |= time.is_ok_and(|time| time <= std::time::SystemTime::now());
                }
                _ => {}
            }
        }
        Some((cookie, is_expired))
    }

    fn is_for(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        let is_host = host == self.host || self.subdomains && is_subdomain(host, &self.host);
        // Section 5.1.4: the path itself, or one below it.
        let rest = url.path().strip_prefix(&self.path);
        let is_path = rest.is_some_and(|rest| {
            rest.is_empty() || rest.starts_with('/') || self.path.ends_with('/')
        });
        is_host && is_path && (!self.secure || url.scheme() == "https")
    }
}

/// Returns true if `host` is a subdomain of `domain`. Addresses never are.
fn is_subdomain(host: &str, domain: &str) -> bool {
    let ends_with = host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    ends_with && host.parse::<IpAddr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(set: &[&str], from: &str, to: &str) -> Option<String> {
        let url = |text: &str| Url::parse(text).expect("a URL");
        let mut headers = HeaderMap::new();
        for field in set {
            headers.append(SET_COOKIE, HeaderValue::from_str(field).expect("a value"));
        }
        let mut cookies = Cookies::default();
        cookies.take(&url(from), &headers);
        assert!(cookies.0.len() <= MAX_COOKIES);
        cookies.field(&url(to)).map(|field| field.to_str().expect("text").to_owned())
    }

    #[test]
    fn cookies_are_sent_by_host_path_and_scheme() {
        let list = "https://a.example.com/live/x.m3u8";
        for (set, to, got) in [
            (&["s=1; Path=/"][..], "https://a.example.com/seg/1.ts", Some("s=1")),
            (&["s=1"], "https://a.example.com/live/x/1.ts", Some("s=1")),
            (&["s=1"], "https://a.example.com/other/1.ts", None),
            (&["s=1"], "https://a.example.com/livery/1.ts", None),
            (&["s=1;path=/", "t=2; path=/"], "https://a.example.com/1", Some("s=1; t=2")),
            (&["s=1;path=/", "s=2; path=/"], "https://a.example.com/1", Some("s=2")),
            (&["s=1;path=/", "s=; path=/; Max-Age=0"], "https://a.example.com/1", None),
            (&["s=1; expires=Thu, 01 Jan 1970 00:00:00 GMT"], "https://a.example.com/live/1", None),
            (&["s=1; path=/"], "https://b.example.com/1", None),
            (&["s=1; path=/; Domain=.Example.com"], "https://b.example.com/1", Some("s=1")),
            (&["s=1; path=/; domain=com"], "https://a.example.com/1", None),
            (&["s=1; path=/; domain=example.org"], "https://a.example.org/1", None),
            (&["s=1; path=/; secure"], "http://a.example.com/1", None),
            (
                &["s=1; path=/; secure; HttpOnly; SameSite=None"],
                "https://a.example.com/1",
                Some("s=1"),
            ),
            (&["s=a=b; path=/"], "https://a.example.com/1", Some("s=a=b")),
            (&["=1; path=/", "nothing", ""], "https://a.example.com/1", None),
        ] {
            assert_eq!(sent(set, list, to).as_deref(), got, "{set:?} {to}");
        }
        let on_address = sent(&["s=1; domain=0.0.1"], "http://127.0.0.1/a", "http://127.0.0.1/b");
        assert_eq!(on_address, None);
    }

    #[test]
    fn cookies_are_bounded() {
        let many: Vec<String> = (0..100).map(|n| format!("c{n}=1; path=/")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let got = sent(&many, "http://a.example/", "http://a.example/").expect("some");
        assert_eq!(got.split("; ").count(), MAX_COOKIES);
        let long = format!("c={}; path=/", "x".repeat(MAX_FIELD));
        assert_eq!(sent(&[&long], "http://a.example/", "http://a.example/"), None);
    }
}
