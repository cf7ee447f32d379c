//! HTTP cookie that carries a transport cookie, for restarted browsers, which lose tickets and
//! tokens. It is sealed here; tickets and tokens are sealed by their own layers.

use core::time::Duration;

use ::quic::crypto::{KeyRing, Purpose};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use startup::cookie::Sealer;
use startup::{Cookie, Refusal};

use crate::entropy::generator;
use crate::http::{RequestHead, Response};

const NAME: &str = "mendcast-path";
/// Maximum length of an accepted value. A sealed cookie has 80 characters.
const MAX_LEN: usize = 96;

/// The site's keys.
struct Keys<'a>(&'a KeyRing);

impl Sealer for Keys<'_> {
    fn seal(&mut self, now: u64, plain: &[u8], context: &[u8]) -> Vec<u8> {
        self.0.seal(Purpose::Application, now, plain, context, &mut generator())
    }

    fn open(&self, sealed: &[u8], context: &[u8]) -> Option<Vec<u8>> {
        self.0.open(Purpose::Application, sealed, context).map(|opened| opened.plaintext)
    }
}

/// Returns the request's transport cookie, or `None` if there is none. The first of several counts.
pub(crate) fn read(head: &RequestHead<'_>, keys: &KeyRing) -> Option<Result<Cookie, Refusal>> {
    let fields = head.values("cookie").filter_map(|field| core::str::from_utf8(field).ok());
    let mut pairs = fields.flat_map(|field| field.split(';')).filter_map(|c| c.split_once('='));
    let (_, text) = pairs.find(|(name, _)| name.trim() == NAME)?;
    let sealed = Some(text.trim()).filter(|text| text.len() <= MAX_LEN);
    let sealed = sealed.and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
    let open = |sealed: Vec<u8>| Cookie::open(&sealed, &Keys(keys));
    Some(sealed.map_or(Err(Refusal::Sealed), open))
}

/// Returns the value of `set-cookie`. Each site that embeds the stream has its own cookie
/// (Partitioned).
pub(crate) fn field(cookie: &Cookie, keys: &KeyRing, lifetime: Duration) -> String {
    let sealed = URL_SAFE_NO_PAD.encode(cookie.seal(&mut Keys(keys)));
    let seconds = lifetime.as_secs();
    format!(
        "{NAME}={sealed}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=None; Partitioned"
    )
}

/// Whether the response may set a cookie, since no cache stores it for other clients.
pub(crate) fn may_carry(response: &Response) -> bool {
    response.status == 204 || response.header("cache-control") == Some("no-store")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::viewer::Protocol;
    use startup::Prefix;

    fn keys(master: u8) -> KeyRing {
        KeyRing::new(&[master; 32], &[(0, [master; 32])])
    }

    fn cookie() -> Cookie {
        Cookie::unmeasured(1_800_000_000, Prefix::of([192, 0, 2, 1].into()), 7)
    }

    fn read_from(fields: &[&str], keys: &KeyRing) -> Option<Result<Cookie, Refusal>> {
        let head = RequestHead {
            fields: fields.iter().map(|value| ("cookie", value.as_bytes())).collect(),
            ..RequestHead::new("GET", "/", ([192, 0, 2, 1], 1).into(), Protocol::Http3)
        };
        read(&head, keys)
    }

    #[test]
    fn reads_the_cookie_among_others() {
        let set = field(&cookie(), &keys(1), Duration::from_secs(3_600));
        assert!(
            set.contains("; Max-Age=3600; Secure; HttpOnly; SameSite=None; Partitioned"),
            "{set}"
        );
        let (pair, _) = set.split_once(';').expect("attributes");
        assert!(pair.len() <= NAME.len() + 1 + MAX_LEN, "{pair}");
        let among = format!("a=b; {pair}; mendcast=1");
        for fields in [&[pair][..], &[&among], &["a=b", pair], &["=; ;;x", pair]] {
            let back = read_from(fields, &keys(1)).expect("a cookie").expect("valid");
            assert_eq!((back.unit, back.issued), (7, 1_800_000_000), "{fields:?}");
        }
        assert_eq!(read_from(&["a=b"], &keys(1)), None);
    }

    #[test]
    fn rejects_forged_cookies() {
        let set = field(&cookie(), &keys(1), Duration::from_secs(3_600));
        let (pair, _) = set.split_once(';').expect("attributes");
        assert_eq!(read_from(&[pair], &keys(2)), Some(Err(Refusal::Sealed)), "another site");
        let long = "A".repeat(100_000);
        for text in ["", "x", "%%%", &pair[NAME.len() + 2..], &long] {
            let field = format!("{NAME}={text}");
            assert_eq!(read_from(&[&field], &keys(1)), Some(Err(Refusal::Sealed)), "{text:.20}");
        }
    }
}
