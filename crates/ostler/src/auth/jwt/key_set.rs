//! The public keys of an issuer, and what they can verify.
//!
//! The key says which algorithms it is for. A token's header only chooses
//! among them, so that no key is ever used as something else than it is.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ostler_core::config::Algorithm;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;

/// Upper bound on keys of a set; issuers have a handful.
const MAX_KEYS: usize = 128;

/// Usable keys of an issuer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct KeySet(Vec<JwtKey>);

/// One key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct JwtKey {
    id: Option<String>,
    /// The only algorithm of the key, where it names one.
    algorithm: Option<String>,
    material: Material,
}

#[derive(Debug, PartialEq, Eq)]
enum Material {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// Points in the uncompressed form of SEC 1.
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Deserialize)]
struct JwksDocument<'a> {
    #[serde(borrow)]
    keys: Vec<&'a serde_json::value::RawValue>,
}

/// Key as RFC 7517 writes it.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    used_for: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// Parses a set. Leaves out keys for other purposes and of unknown kinds; fails if no key is left.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let JwksDocument { keys } =
            serde_json::from_slice(text).map_err(|error| format!("it is no key set: {error}"))?;
        if keys.len() > MAX_KEYS {
            return Err(format!("it has more than {MAX_KEYS} keys"));
        }
        let keys: Vec<JwtKey> = keys
            .into_iter()
            .filter_map(|raw| JwtKey::from_jwk(serde_json::from_str(raw.get()).ok()?))
            .collect();
        match keys.is_empty() {
            true => Err("it has no public key that can verify a signature".into()),
            false => Ok(Self(keys)),
        }
    }

    /// Returns the key that a token names, if it supports the algorithm. A token that names none gets the only key.
    pub(super) fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<&JwtKey> {
        let mut fitting = self.0.iter().filter(|key| key.supports(algorithm));
        match id {
            Some(id) => fitting.find(|key| key.id.as_deref() == Some(id)),
            None => fitting.next().filter(|_| fitting.next().is_none()),
        }
    }

    /// Returns whether there is a key of that name, for any algorithm.
    pub(super) fn knows(&self, id: Option<&str>) -> bool {
        !self.0.is_empty() && id.is_none_or(|id| self.0.iter().any(|key| key.id.as_deref() == Some(id)))
    }
}

impl JwtKey {
    fn from_jwk(jwk: Jwk) -> Option<Self> {
        let is_for_signatures = jwk.used_for.as_deref().is_none_or(|used_for| used_for == "sig");
        let may_verify = jwk.key_ops.as_ref().is_none_or(|ops| ops.iter().any(|op| op == "verify"));
        if !is_for_signatures || !may_verify {
            return None;
        }
        let bytes = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_deref()?).ok();
        let point = |size: usize| {
            let (x, y) = (bytes(&jwk.x)?, bytes(&jwk.y)?);
            let is_whole = x.len() == size && y.len() == size;
            is_whole.then(|| [&[4][..], &x, &y].concat())
        };
        let material = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("RSA", _) => Material::Rsa { n: bytes(&jwk.n)?, e: bytes(&jwk.e)? },
            ("EC", Some("P-256")) => Material::P256(point(32)?),
            ("EC", Some("P-384")) => Material::P384(point(48)?),
            ("OKP", Some("Ed25519")) => Material::Ed25519(bytes(&jwk.x).filter(|x| x.len() == 32)?),
            _ => return None,
        };
        Some(Self { id: jwk.kid, algorithm: jwk.alg, material })
    }

    /// Returns whether the key supports that algorithm.
    fn supports(&self, algorithm: Algorithm) -> bool {
        use Algorithm::*;
        let is_kind = match self.material {
            Material::Rsa { .. } => matches!(algorithm, Rs256 | Rs384 | Rs512 | Ps256 | Ps384 | Ps512),
            Material::P256(_) => algorithm == Es256,
            Material::P384(_) => algorithm == Es384,
            Material::Ed25519(_) => algorithm == EdDsa,
        };
        is_kind && self.algorithm.as_deref().is_none_or(|only| only == algorithm.as_str())
    }

    /// Returns whether a signature was made by the owner of the key.
    pub(super) fn verify(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        use Algorithm::*;
        let verified = match (&self.material, algorithm) {
            (Material::Rsa { n, e }, _) => {
                let scheme = match algorithm {
                    Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
                    Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
                    Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
                    Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
                    Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
                    Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
                    Es256 | Es384 | EdDsa => return false,
                };
                RsaPublicKeyComponents { n, e }.verify(scheme, message, signature)
            }
            (Material::P256(point), Es256) => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            (Material::P384(point), Es384) => {
                UnparsedPublicKey::new(&signature::ECDSA_P384_SHA384_FIXED, point).verify(message, signature)
            }
            (Material::Ed25519(key), EdDsa) => {
                UnparsedPublicKey::new(&signature::ED25519, key).verify(message, signature)
            }
            _ => return false,
        };
        verified.is_ok()
    }
}
