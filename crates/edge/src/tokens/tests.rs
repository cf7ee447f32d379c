//! Valid, wrong and hostile tokens.

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};

use super::*;
use crate::config::Config;

const NOW: u64 = 1_790_000_000;
const SECRET: &str = "a long random word";

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A token with this header and these claims, whatever they are.
fn token(header: &Value, claims: &Value, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let message = format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()));
    let signature = encoded(sign(message.as_bytes()));
    format!("{message}.{signature}")
}

fn hs256(key: &[u8]) -> impl Fn(&[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    move |message| hmac::sign(&key, message).as_ref().to_vec()
}

/// A P-256 key.
pub(super) struct Ec(EcdsaKeyPair);

impl Ec {
    pub(super) fn new() -> Self {
        Self(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("generated"))
    }

    pub(super) fn jwk(&self, id: &str) -> Value {
        let point = self.0.public_key().as_ref();
        let (x, y) = (encoded(&point[1..33]), encoded(&point[33..]));
        json!({ "kty": "EC", "crv": "P-256", "kid": id, "use": "sig", "x": x, "y": y })
    }

    pub(super) fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.0.sign(&SystemRandom::new(), message).expect("signed").as_ref().to_vec()
    }
}

/// An RSA key.
struct Rsa(RsaKeyPair);

impl Rsa {
    fn new() -> Self {
        Self(RsaKeyPair::generate(KeySize::Rsa2048).expect("generated"))
    }

    /// The public key in DER (RFC 8017, appendix A.1.1).
    fn public(&self) -> Vec<u8> {
        self.0.public_key().as_ref().to_vec()
    }

    fn jwk(&self, id: &str) -> Value {
        // Behind two headers and a leading zero: 256 bytes of modulus, and the exponent 65537.
        let (modulus, exponent) = (encoded(&self.public()[9..265]), encoded([1, 0, 1]));
        json!({ "kty": "RSA", "alg": "RS256", "kid": id, "n": modulus, "e": exponent })
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let mut signature = vec![0; self.0.public_modulus_len()];
        let rng = SystemRandom::new();
        self.0.sign(&RSA_PKCS1_SHA256, &rng, message, &mut signature).expect("signed");
        signature
    }
}

/// Rules with a key set in a file.
struct Rules {
    config: Config,
    sets: KeySets,
    _dir: tempfile::TempDir,
}

impl Rules {
    /// A rule for `paid/*` with the secret, with these public keys, or both.
    fn new(has_secret: bool, keys: &[Value]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut rule = String::from("[[play]]\nstream = \"paid/*\"\n");
        if has_secret {
            rule += &format!("key = \"{SECRET}\"\n");
        }
        if !keys.is_empty() {
            let path = dir.path().join("jwks.json");
            std::fs::write(&path, json!({ "keys": keys }).to_string()).expect("written");
            rule += &format!("jwks = {path:?}\n");
        }
        let config = Config::parse("edge.toml", &rule).expect("valid");
        let sets = KeySets::load(&config, None).expect("loaded");
        Self { config, sets, _dir: dir }
    }

    /// Returns the end of the permission to play this stream, or the wrong part.
    fn verify(&self, token: &str, name: &str) -> Result<u64, Part> {
        self.verify_at(token, name, NOW).map_err(|why| why.part)
    }

    fn verify_at(&self, token: &str, name: &str, now: u64) -> Result<u64, TokenError> {
        let rules = self.config.play.iter().map(|rule| Terms {
            key: rule.key.as_deref(),
            jwks: rule.jwks.as_ref(),
            audience: &rule.audience,
        });
        let leeway = self.config.tokens.leeway;
        let verified = verify(token, name, rules, &self.sets, at(now), leeway);
        verified.map(|(_, end)| unix(end))
    }
}

fn claims() -> Value {
    json!({ "exp": NOW + 100, "aud": "play", "sub": "paid/a" })
}

#[test]
fn tokens_of_each_algorithm_are_valid_until_expiry_and_leeway() {
    let (ec, rsa) = (Ec::new(), Rsa::new());
    let rules = Rules::new(true, &[ec.jwk("e"), rsa.jwk("r")]);
    let tokens = [
        token(&json!({ "alg": "HS256" }), &claims(), hs256(SECRET.as_bytes())),
        token(&json!({ "alg": "ES256", "kid": "e" }), &claims(), |m| ec.sign(m)),
        token(&json!({ "alg": "RS256", "kid": "r", "typ": "JWT" }), &claims(), |m| rsa.sign(m)),
        // The only key of its kind.
        token(&json!({ "alg": "ES256" }), &claims(), |m| ec.sign(m)),
    ];
    for token in &tokens {
        assert_eq!(rules.verify(token, "paid/a"), Ok(NOW + 160));
        let verify = |now| rules.verify_at(token, "paid/a", now).map_err(|why| why.part);
        assert_eq!((verify(NOW + 160), verify(NOW + 161)), (Ok(NOW + 160), Err(Part::Exp)));
        assert_eq!(rules.verify(token, "paid/b"), Err(Part::Sub));
        // Each byte of the signature and of the signed text counts.
        for position in [5, token.len() / 2, token.len() - 10] {
            let mut broken = token.clone().into_bytes();
            broken[position] = if broken[position] == b'A' { b'B' } else { b'A' };
            let broken = String::from_utf8(broken).expect("text");
            let part = rules.verify(&broken, "paid/a").expect_err("broken");
            assert!(part <= Part::Signature, "{part:?}");
        }
    }
    let issued = issue(SECRET, "paid/*", "play", NOW, NOW + 10).expect("issued");
    assert_eq!(rules.verify(&issued, "paid/a"), Ok(NOW + 70));
    assert_eq!(rules.verify(&issued, "paid/b"), Ok(NOW + 70), "a pattern");
}

#[test]
fn errors_name_the_wrong_claim() {
    let rules = Rules::new(true, &[]);
    for (change, part, text) in [
        (json!({ "exp": null }), Part::Exp, "token: exp: expected seconds since 1970"),
        (json!({ "exp": "soon" }), Part::Exp, "token: exp: expected seconds since 1970"),
        (json!({ "exp": -1 }), Part::Exp, "token: exp: expected seconds since 1970"),
        (json!({ "exp": 1e300 }), Part::Exp, "token: exp: expected seconds since 1970"),
        (json!({ "exp": NOW - 61 }), Part::Exp, "token: exp: expired on "),
        (json!({ "nbf": NOW + 61 }), Part::Nbf, "token: nbf: not valid before "),
        (json!({ "nbf": [] }), Part::Nbf, "token: nbf: expected seconds since 1970"),
        (json!({ "iat": NOW + 61 }), Part::Iat, "token: iat: not valid before "),
        (json!({ "aud": "publish" }), Part::Aud, "token: aud: expected \"play\""),
        (json!({ "aud": [] }), Part::Aud, "token: aud: expected \"play\""),
        (json!({ "aud": [7] }), Part::Aud, "token: aud: expected a string or a list of strings"),
        (json!({ "sub": "paid/b" }), Part::Sub, "token: sub: the token is for another stream"),
        (json!({ "sub": "" }), Part::Sub, "token: sub: the token is for another stream"),
        (json!({ "sub": 7 }), Part::Sub, "token: sub: expected a string"),
    ] {
        let mut claims = claims();
        for (name, value) in change.as_object().expect("an object") {
            claims[name] = value.clone();
        }
        let token = token(&json!({ "alg": "HS256" }), &claims, hs256(SECRET.as_bytes()));
        let error = rules.verify_at(&token, "paid/a", NOW).expect_err("wrong");
        assert_eq!(error.part, part, "{change}");
        assert!(error.to_string().starts_with(text), "{change}: {error}");
    }
    for missing in ["exp", "aud", "sub"] {
        let mut claims = claims();
        claims.as_object_mut().expect("an object").remove(missing);
        let token = token(&json!({ "alg": "HS256" }), &claims, hs256(SECRET.as_bytes()));
        let error = rules.verify_at(&token, "paid/a", NOW).expect_err("missing").to_string();
        assert_eq!(error, format!("token: {missing}: missing"));
    }
    for more in [json!({ "nbf": NOW + 60, "iat": NOW + 60 }), json!({ "exp": NOW as f64 - 59.5 })] {
        let mut claims = claims();
        for (name, value) in more.as_object().expect("an object") {
            claims[name] = value.clone();
        }
        let token = token(&json!({ "alg": "HS256" }), &claims, hs256(SECRET.as_bytes()));
        assert!(rules.verify(&token, "paid/a").is_ok(), "{more}: within the leeway");
    }
}

#[test]
fn no_token_chooses_its_own_algorithm() {
    let (ec, rsa) = (Ec::new(), Rsa::new());
    let public_only = Rules::new(false, &[rsa.jwk("r"), ec.jwk("e")]);
    let both = Rules::new(true, &[rsa.jwk("r"), ec.jwk("e")]);
    let secret_only = Rules::new(true, &[]);
    let none = token(&json!({ "alg": "none" }), &claims(), |_| Vec::new());
    for rules in [&public_only, &both, &secret_only] {
        for name in ["none", "None", "NONE", "nOnE", "", "HS512", "RS512", "PS256", "EdDSA"] {
            let token = token(&json!({ "alg": name }), &claims(), hs256(SECRET.as_bytes()));
            assert_eq!(rules.verify(&token, "paid/a"), Err(Part::Alg), "{name}");
        }
        assert_eq!(rules.verify(&none, "paid/a"), Err(Part::Alg));
        // Without the signature.
        let bare = none.trim_end_matches('.').to_owned();
        assert_eq!(rules.verify(&bare, "paid/a"), Err(Part::Format));
    }
    // The public key as a secret, in all its forms.
    let jwk = rsa.jwk("r");
    let modulus = jwk["n"].as_str().expect("text").to_owned();
    for secret in [rsa.public(), jwk.to_string().into_bytes(), modulus.into_bytes(), Vec::new()] {
        for header in [json!({ "alg": "HS256" }), json!({ "alg": "HS256", "kid": "r" })] {
            let token = token(&header, &claims(), hs256(&secret));
            assert_eq!(public_only.verify(&token, "paid/a"), Err(Part::Alg));
            assert_eq!(both.verify(&token, "paid/a"), Err(Part::Signature));
        }
    }
    // A signature of one kind under the name of another.
    let rs_as_es = token(&json!({ "alg": "ES256", "kid": "r" }), &claims(), |m| rsa.sign(m));
    assert_eq!(both.verify(&rs_as_es, "paid/a"), Err(Part::Kid));
    let es_as_rs = token(&json!({ "alg": "RS256", "kid": "r" }), &claims(), |m| ec.sign(m));
    assert_eq!(both.verify(&es_as_rs, "paid/a"), Err(Part::Signature));
    let es = token(&json!({ "alg": "ES256", "kid": "e" }), &claims(), |m| ec.sign(m));
    assert_eq!(secret_only.verify(&es, "paid/a"), Err(Part::Alg));
    // A key in the token's own header is ignored.
    let own = Ec::new();
    let header = json!({ "alg": "ES256", "jwk": own.jwk("e"), "kid": "e" });
    let smuggled = token(&header, &claims(), |m| own.sign(m));
    assert_eq!(both.verify(&smuggled, "paid/a"), Err(Part::Signature));
}

#[test]
fn key_ids_choose_among_the_keys_of_a_set() {
    let (one, two) = (Ec::new(), Ec::new());
    let rules = Rules::new(false, &[one.jwk("one"), two.jwk("two")]);
    let signed = |header: &Value| token(header, &claims(), |m| one.sign(m));
    let verify = |header: &Value| rules.verify(&signed(header), "paid/a");
    assert_eq!(verify(&json!({ "alg": "ES256", "kid": "one" })), Ok(NOW + 160));
    assert_eq!(verify(&json!({ "alg": "ES256", "kid": "two" })), Err(Part::Signature));
    assert_eq!(verify(&json!({ "alg": "ES256", "kid": "three" })), Err(Part::Kid));
    assert_eq!(verify(&json!({ "alg": "ES256" })), Err(Part::Kid), "two keys");
    assert_eq!(verify(&json!({ "alg": "ES256", "kid": 7 })), Err(Part::Format));
    assert_eq!(verify(&json!({ "alg": "RS256", "kid": "one" })), Err(Part::Kid));
    // The same ID twice: either key.
    let twice = Rules::new(false, &[two.jwk("one"), one.jwk("one")]);
    let token = signed(&json!({ "alg": "ES256", "kid": "one" }));
    assert_eq!(twice.verify(&token, "paid/a"), Ok(NOW + 160));
    let many = Rules::new(false, &[0; 5].map(|_| one.jwk("one")));
    assert_eq!(many.verify(&token, "paid/a"), Err(Part::Kid));
}

#[test]
fn hostile_tokens_are_rejected_before_they_cost_anything() {
    let rules = Rules::new(true, &[]);
    let huge = json!({ "exp": NOW + 100, "aud": "play", "sub": "paid/a", "x": "y".repeat(5_000) });
    let huge = token(&json!({ "alg": "HS256" }), &huge, hs256(SECRET.as_bytes()));
    let error = rules.verify_at(&huge, "paid/a", NOW).expect_err("too long");
    assert_eq!(error.part, Part::Size);
    let sign = hs256(SECRET.as_bytes());
    let raw = |header: &str, claims: &str| {
        let message = format!("{}.{}", encoded(header), encoded(claims));
        format!("{message}.{}", encoded(sign(message.as_bytes())))
    };
    let good = token(&json!({ "alg": "HS256" }), &claims(), hs256(SECRET.as_bytes()));
    let nested = format!("{}{}", "[".repeat(1_000), "]".repeat(1_000));
    let head = r#"{"alg":"HS256"}"#;
    for (text, part) in [
        (String::new(), Part::Format),
        (".".into(), Part::Format),
        ("..".into(), Part::Format),
        ("...".into(), Part::Format),
        ("a.b.c".into(), Part::Format),
        (format!("{good}.x"), Part::Format),
        (format!("{good}="), Part::Signature),
        (good.replace('.', " ."), Part::Format),
        ("é.é.é".into(), Part::Format),
        (raw("[]", "{}"), Part::Format),
        (raw("{}", "{}"), Part::Format),
        (raw(head, "[]"), Part::Format),
        (raw(head, "{"), Part::Format),
        (raw(head, &nested), Part::Format),
        (raw(&nested, "{}"), Part::Format),
        (raw(head, "{}"), Part::Exp),
        (raw(r#"{"alg":"HS256","crit":["b64"],"b64":false}"#, "{}"), Part::Crit),
        (raw(r#"{"alg":"HS256","alg":"none"}"#, "{}"), Part::Format),
        (raw("{\"alg\":\"\\u001b[2J\"}", "{}"), Part::Alg),
    ] {
        let error = rules.verify_at(&text, "paid/a", NOW).expect_err("hostile");
        assert_eq!(error.part, part, "{text}: {error}");
        assert!(!error.to_string().chars().any(char::is_control), "{error}");
        assert!(!error.to_string().contains(SECRET));
    }
}

#[test]
fn a_rule_without_keys_or_with_an_empty_one_is_an_error() {
    for rule in ["", "key = \"\"\n", "key = \"\"\njwks = \"x\"\n"] {
        for list in ["play", "publish"] {
            let text = format!("[[{list}]]\nstream = \"a\"\n{rule}");
            let error = Config::parse("edge.toml", &text).expect_err("unusable").to_string();
            assert!(error.starts_with(&format!("edge.toml:1: [{list}] key: expected")), "{error}");
        }
    }
}
