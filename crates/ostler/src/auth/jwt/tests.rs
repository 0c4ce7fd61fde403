//! Tests of valid tokens, and of every way to be invalid.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ostler_core::config::{self, Algorithm, JwksLocation};
use ring::rand::SystemRandom;
use ring::signature::{
    self, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair, RsaKeyPair, RsaPublicKeyComponents,
};
use serde_json::{Value, json};

use super::claims::{self, JwtError};
use super::key_set::KeySet;

const NOW: u64 = 1_800_000_000;

fn rules() -> config::JwtConfig {
    config::JwtConfig {
        issuer: "https://id.example".into(),
        audience: vec!["ostler".into(), "other".into()],
        jwks: JwksLocation::File("/nowhere".into()),
        role_claim: "realm.roles".into(),
        subject_claim: "sub".into(),
        leeway: Duration::from_secs(60),
        algorithms: Algorithm::ALL.to_vec(),
        resource: None,
    }
}

fn claims() -> Value {
    json!({
        "iss": "https://id.example", "aud": "ostler", "sub": "ada", "exp": NOW + 100,
        "realm": {"roles": ["researcher", "ci"]},
    })
}

fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Issuer with a key of each kind.
struct JwtTestIssuer {
    rsa: RsaKeyPair,
    p256: EcdsaKeyPair,
    p384: EcdsaKeyPair,
    ed25519: Ed25519KeyPair,
    chance: SystemRandom,
}

impl JwtTestIssuer {
    fn new() -> Self {
        let chance = SystemRandom::new();
        let text: String = include_str!("../../../tests/rsa-key.base64").split_whitespace().collect();
        let ec = |scheme| {
            let pkcs8 = EcdsaKeyPair::generate_pkcs8(scheme, &chance).unwrap();
            EcdsaKeyPair::from_pkcs8(scheme, pkcs8.as_ref(), &chance).unwrap()
        };
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&chance).unwrap();
        Self {
            rsa: RsaKeyPair::from_pkcs8(&STANDARD.decode(text).unwrap()).unwrap(),
            p256: ec(&ECDSA_P256_SHA256_FIXED_SIGNING),
            p384: ec(&ECDSA_P384_SHA384_FIXED_SIGNING),
            ed25519: Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap(),
            chance,
        }
    }

    fn jwks(&self) -> Value {
        let RsaPublicKeyComponents { n, e } = RsaPublicKeyComponents::<Vec<u8>>::from(self.rsa.public());
        let point = |pair: &EcdsaKeyPair, size: usize| {
            let point = pair.public_key().as_ref()[1..].to_vec();
            (b64(&point[..size]), b64(&point[size..]))
        };
        let ((x2, y2), (x3, y3)) = (point(&self.p256, 32), point(&self.p384, 48));
        json!({"keys": [
            {"kty": "RSA", "kid": "rsa", "n": b64(&n), "e": b64(&e)},
            {"kty": "EC", "kid": "p256", "crv": "P-256", "x": x2, "y": y2, "use": "sig"},
            {"kty": "EC", "kid": "p384", "crv": "P-384", "x": x3, "y": y3, "alg": "ES384"},
            {"kty": "OKP", "kid": "ed", "crv": "Ed25519", "x": b64(self.ed25519.public_key())},
            {"kty": "oct", "kid": "shared", "k": b64("secret")},
            {"kty": "RSA", "kid": "enc", "use": "enc", "n": b64(&n), "e": "AQAB"},
            {"kty": "new", "kid": "new"},
        ]})
    }

    fn keys(&self) -> KeySet {
        KeySet::parse(self.jwks().to_string().as_bytes()).unwrap()
    }

    fn sign(&self, algorithm: &str, message: &[u8]) -> Vec<u8> {
        let rsa = |scheme| {
            let mut signature = vec![0; self.rsa.public().modulus_len()];
            self.rsa.sign(scheme, &self.chance, message, &mut signature).unwrap();
            signature
        };
        match algorithm {
            "RS256" => rsa(&signature::RSA_PKCS1_SHA256),
            "RS384" => rsa(&signature::RSA_PKCS1_SHA384),
            "RS512" => rsa(&signature::RSA_PKCS1_SHA512),
            "PS256" => rsa(&signature::RSA_PSS_SHA256),
            "PS384" => rsa(&signature::RSA_PSS_SHA384),
            "PS512" => rsa(&signature::RSA_PSS_SHA512),
            "ES256" => self.p256.sign(&self.chance, message).unwrap().as_ref().to_vec(),
            "ES384" => self.p384.sign(&self.chance, message).unwrap().as_ref().to_vec(),
            "EdDSA" => self.ed25519.sign(message).as_ref().to_vec(),
            other => panic!("{other}"),
        }
    }

    /// Returns a token whose header names one key and whose signature is by another.
    fn token(&self, header: &Value, claims: &Value, signed_with: &str) -> String {
        let signed = format!("{}.{}", b64(header.to_string()), b64(claims.to_string()));
        let signature = self.sign(signed_with, signed.as_bytes());
        format!("{signed}.{}", b64(signature))
    }

    fn good(&self, claims: &Value) -> String {
        self.token(&json!({"alg": "EdDSA", "kid": "ed"}), claims, "EdDSA")
    }

    fn read(&self, token: &str) -> Result<claims::JwtClaims, JwtError> {
        claims::verify(&rules(), &self.keys(), token, NOW)
    }
}

#[test]
fn a_good_token_of_every_algorithm_is_taken() {
    let issuer = JwtTestIssuer::new();
    for (algorithm, kid) in [
        ("RS256", "rsa"),
        ("RS384", "rsa"),
        ("RS512", "rsa"),
        ("PS256", "rsa"),
        ("PS384", "rsa"),
        ("PS512", "rsa"),
        ("ES256", "p256"),
        ("ES384", "p384"),
        ("EdDSA", "ed"),
    ] {
        let token = issuer.token(&json!({"alg": algorithm, "kid": kid}), &claims(), algorithm);
        let read = issuer.read(&token).unwrap_or_else(|fault| panic!("{algorithm}: {fault:?}"));
        assert_eq!((read.subject.as_str(), read.until), ("ada", NOW + 160));
        assert_eq!(read.roles, ["researcher", "ci"]);
        let mut other = rules();
        other.algorithms.retain(|taken| taken.as_str() != algorithm);
        let refused = claims::verify(&other, &issuer.keys(), &token, NOW);
        assert_eq!(refused, Err(JwtError::Algorithm), "{algorithm}");
    }
}

#[test]
fn the_key_decides_and_not_the_header() {
    let issuer = JwtTestIssuer::new();
    let table = [
        ("none", "ed", "EdDSA", JwtError::Algorithm),
        ("NONE", "ed", "EdDSA", JwtError::Algorithm),
        ("HS256", "rsa", "EdDSA", JwtError::Algorithm),
        ("RS256", "ed", "EdDSA", JwtError::Algorithm),
        ("EdDSA", "rsa", "EdDSA", JwtError::Algorithm),
        ("ES256", "p384", "ES384", JwtError::Algorithm),
        ("RS256", "rsa", "PS256", JwtError::Signature),
        ("PS256", "rsa", "RS256", JwtError::Signature),
        ("RS256", "enc", "RS256", JwtError::UnknownKey),
        ("EdDSA", "shared", "EdDSA", JwtError::UnknownKey),
        ("EdDSA", "strange", "EdDSA", JwtError::UnknownKey),
    ];
    for (algorithm, kid, signed_with, fault) in table {
        let token = issuer.token(&json!({"alg": algorithm, "kid": kid}), &claims(), signed_with);
        assert_eq!(issuer.read(&token), Err(fault), "{algorithm} {kid}");
    }
}

#[test]
fn a_public_key_is_nobodys_shared_secret() {
    let issuer = JwtTestIssuer::new();
    let signed = format!("{}.{}", b64(r#"{"alg":"HS256","kid":"rsa"}"#), b64(claims().to_string()));
    let jwks = issuer.jwks();
    for secret in [jwks["keys"][0]["n"].as_str().unwrap().to_owned(), jwks["keys"][0].to_string()] {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes());
        let signature = ring::hmac::sign(&key, signed.as_bytes());
        assert_eq!(issuer.read(&format!("{signed}.{}", b64(signature))), Err(JwtError::Algorithm));
    }
}

#[test]
fn what_is_not_for_us_now_is_refused() {
    let issuer = JwtTestIssuer::new();
    let with = |key: &str, value: Value| {
        let mut claims = claims();
        claims[key] = value;
        issuer.read(&issuer.good(&claims)).map(|_| ())
    };
    let table = [
        ("iss", json!("https://id.example/"), Err(JwtError::Issuer)),
        ("iss", json!(null), Err(JwtError::Issuer)),
        ("iss", json!(["https://id.example"]), Err(JwtError::Issuer)),
        ("iss", json!(["https://id.example", "https://evil.example"]), Err(JwtError::Issuer)),
        ("aud", json!("somebody"), Err(JwtError::Audience)),
        ("aud", json!([]), Err(JwtError::Audience)),
        ("aud", json!(null), Err(JwtError::Audience)),
        ("aud", json!(["somebody", "other"]), Ok(())),
        ("exp", json!(NOW - 60), Err(JwtError::Expired)),
        ("exp", json!(NOW - 59), Ok(())),
        ("exp", json!(NOW as f64 + 0.5), Ok(())),
        ("exp", json!(null), Err(JwtError::NoExpiry)),
        ("exp", json!("1800000100"), Err(JwtError::NoExpiry)),
        ("exp", json!(-1), Err(JwtError::NoExpiry)),
        ("exp", json!(u64::MAX), Ok(())),
        ("nbf", json!(NOW + 60), Ok(())),
        ("nbf", json!(NOW + 61), Err(JwtError::NotYet)),
        ("nbf", json!("soon"), Err(JwtError::Malformed)),
        ("sub", json!(""), Err(JwtError::Subject)),
        ("sub", json!("a\nb"), Err(JwtError::Subject)),
        ("sub", json!("x".repeat(257)), Err(JwtError::Subject)),
        ("sub", json!(7), Err(JwtError::Subject)),
        ("realm", json!({}), Err(JwtError::Role)),
        ("realm", json!({"roles": []}), Err(JwtError::Role)),
        ("realm", json!({"roles": "a b"}), Err(JwtError::Role)),
        ("realm", json!({"roles": "ci"}), Ok(())),
        ("realm.roles", json!("ci"), Ok(())),
    ];
    for (key, value, expected) in table {
        assert_eq!(with(key, value.clone()), expected, "{key} {value}");
    }
}

#[test]
fn what_is_no_token_is_refused_without_a_panic() {
    let issuer = JwtTestIssuer::new();
    let good = issuer.good(&claims());
    let parts: Vec<&str> = good.split('.').collect();
    let crit = issuer.token(&json!({"alg": "EdDSA", "kid": "ed", "crit": ["b64"]}), &claims(), "EdDSA");
    for bad in [
        String::new(),
        ".".into(),
        "..".into(),
        "...".into(),
        good.replace('.', ""),
        format!("{good}="),
        format!("{good}.x"),
        format!("{}.{}", parts[0], parts[1]),
        crit,
    ] {
        assert_eq!(issuer.read(&bad), Err(JwtError::Malformed), "{bad}");
    }
    let cut = format!("{}.{}.", parts[0], parts[1]);
    assert_eq!(issuer.read(&cut), Err(JwtError::Signature));
}

#[test]
fn a_token_without_the_name_of_a_key_gets_the_only_one_there_is() {
    let issuer = JwtTestIssuer::new();
    let token = issuer.token(&json!({"alg": "EdDSA"}), &claims(), "EdDSA");
    assert!(issuer.read(&token).is_ok());
    let mut jwks = issuer.jwks();
    let twin = jwks["keys"][3].clone();
    jwks["keys"].as_array_mut().unwrap().push(twin);
    let keys = KeySet::parse(jwks.to_string().as_bytes()).unwrap();
    assert_eq!(claims::verify(&rules(), &keys, &token, NOW), Err(JwtError::Algorithm));
}

#[test]
fn an_entry_that_is_no_key_is_left_out_of_its_set() {
    let issuer = JwtTestIssuer::new();
    let mut jwks = issuer.jwks();
    jwks["keys"].as_array_mut().unwrap().insert(0, json!(7));
    assert_eq!(KeySet::parse(jwks.to_string().as_bytes()).unwrap(), issuer.keys());
}

#[test]
fn a_short_rsa_key_verifies_nothing() {
    // A key of 1,024 bits, and its good signature of what is signed here.
    let n = "tZ4fDYbSM9UYiBF2AZIkJTKulnNlmmIueVkMLl1IE_hpY507_CV92EMkkNepacfVpBtCyT35QklfyhU8KVtdLs\
             MmE8ruY069uL9Z5WFiVyZrxI2yfj72v1V-spmw4PtcyZrZ29QrbK8e5muncMBvnHVge0Hg4OrCE9Jrd2RUOKs";
    let signature = "MX1G72ERgE1SN9g_d8DjAlasMZHasUqFXHUEdCWWEg4-\
             RxJNdoYG1zkn_nRmtDYVlcdXFjnD1_pNoB80A7YUsqeA3fhB6sSolvavs_DOeCyDa_AtI5zq5yKq1KutlDl5xT\
             f9QYV9n2HtXuTM_oXsJj-Rf7olvqiPD5hJMMWt4bM";
    let jwks = json!({"keys": [{"kty": "RSA", "kid": "short", "n": n, "e": "AQAB"}]});
    let keys = KeySet::parse(jwks.to_string().as_bytes()).unwrap();
    let signed = format!("{}.{}", b64(r#"{"alg":"RS256","kid":"short"}"#), b64("{}"));
    let read = claims::verify(&rules(), &keys, &format!("{signed}.{signature}"), NOW);
    assert_eq!(read, Err(JwtError::Signature));
}

#[test]
fn a_set_without_a_usable_key_is_no_set() {
    for bad in ["", "{}", r#"{"keys":[]}"#, r#"{"keys":[{"kty":"oct","k":"AA"}]}"#, r#"{"keys":[7]}"#] {
        assert!(KeySet::parse(bad.as_bytes()).is_err(), "{bad}");
    }
}
