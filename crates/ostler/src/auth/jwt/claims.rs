//! Claims of a JSON web token, and the checks that it is valid for this audience now.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ostler_core::config::{Algorithm, JwtConfig};
use serde::Deserialize;
use serde_json::Value;

use super::key_set::KeySet;

/// Upper bound on a token: real ones have some hundred bytes, and hashing longer ones is wasted work.
pub(super) const MAX_TOKEN_BYTES: usize = 16 << 10;
/// Upper bound on the name of a caller.
const MAX_SUBJECT_BYTES: usize = 256;

/// Reason to reject a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JwtError {
    /// No token, or one with a critical extension that is not supported.
    Malformed,
    /// An algorithm that is not accepted, or not that of its key.
    Algorithm,
    /// Signed with a key that is not known, or not known yet.
    UnknownKey,
    Signature,
    Issuer,
    Audience,
    Expired,
    /// No expiry, so that the token would be valid for ever.
    NoExpiry,
    NotYet,
    Subject,
    Role,
}

impl JwtError {
    /// Returns the message for the client.
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Malformed => "the token can't be read",
            Self::Algorithm => "the token is signed with an algorithm that is not taken",
            Self::UnknownKey => "the token is signed with a key that is not known",
            Self::Signature => "the signature of the token is wrong",
            Self::Issuer => "the token is of another issuer",
            Self::Audience => "the token is for somebody else",
            Self::Expired => "the token has expired",
            Self::NoExpiry => "the token has no `exp`",
            Self::NotYet => "the token is not valid yet",
            Self::Subject => "the token does not say whose it is",
            Self::Role => "the token names no role",
        }
    }
}

/// Claims of a valid token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JwtClaims {
    pub(super) subject: String,
    /// In the order of the token; never empty.
    pub(super) roles: Vec<String>,
    /// Time from which the token is invalid, leeway included.
    pub(super) until: u64,
}

#[derive(Deserialize)]
struct JwtHeader {
    alg: String,
    kid: Option<String>,
    /// Critical extensions, of which none is supported.
    crit: Option<Value>,
}

/// Verifies a token. No claim counts before the signature is verified.
pub(super) fn verify(rules: &JwtConfig, keys: &KeySet, token: &str, now: u64) -> Result<JwtClaims, JwtError> {
    let (signed, signature) = token.rsplit_once('.').ok_or(JwtError::Malformed)?;
    let (header, payload) = signed.split_once('.').ok_or(JwtError::Malformed)?;
    let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| JwtError::Malformed);
    let header: JwtHeader = serde_json::from_slice(&decode(header)?).map_err(|_| JwtError::Malformed)?;
    if header.crit.is_some() {
        return Err(JwtError::Malformed);
    }
    let taken = Algorithm::from_name(&header.alg).filter(|named| rules.algorithms.contains(named));
    let algorithm = taken.ok_or(JwtError::Algorithm)?;
    let Some(key) = keys.find(header.kid.as_deref(), algorithm) else {
        // A known key for another purpose does not become another key.
        let is_known = keys.knows(header.kid.as_deref());
        return Err(if is_known { JwtError::Algorithm } else { JwtError::UnknownKey });
    };
    if !key.verify(algorithm, signed.as_bytes(), &decode(signature)?) {
        return Err(JwtError::Signature);
    }
    let claims: Value = serde_json::from_slice(&decode(payload)?).map_err(|_| JwtError::Malformed)?;
    check(rules, &claims, now)
}

fn check(rules: &JwtConfig, claims: &Value, now: u64) -> Result<JwtClaims, JwtError> {
    if claims["iss"].as_str() != Some(rules.issuer.as_str()) {
        return Err(JwtError::Issuer);
    }
    let is_us = |name: &Value| name.as_str().is_some_and(|name| rules.audience.iter().any(|us| us == name));
    let is_for_us = match &claims["aud"] {
        Value::Array(names) => names.iter().any(is_us),
        name => is_us(name),
    };
    if !is_for_us {
        return Err(JwtError::Audience);
    }
    let leeway = rules.leeway.as_secs();
    let until = seconds(&claims["exp"]).ok_or(JwtError::NoExpiry)?.saturating_add(leeway);
    if now >= until {
        return Err(JwtError::Expired);
    }
    match &claims["nbf"] {
        Value::Null => {}
        from => {
            if seconds(from).ok_or(JwtError::Malformed)? > now.saturating_add(leeway) {
                return Err(JwtError::NotYet);
            }
        }
    }
    let subject = find(claims, &rules.subject_claim).and_then(Value::as_str).unwrap_or_default();
    let is_sound = !subject.is_empty() && subject.len() <= MAX_SUBJECT_BYTES;
    if !is_sound || subject.contains(char::is_control) {
        return Err(JwtError::Subject);
    }
    let roles = match find(claims, &rules.role_claim) {
        Some(Value::String(role)) => vec![role.clone()],
        Some(Value::Array(roles)) => roles.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    // A text that can't name a role grants none.
    let roles: Vec<String> = roles.into_iter().filter(|role| crate::token::is_valid_name(role)).collect();
    if roles.is_empty() {
        return Err(JwtError::Role);
    }
    Ok(JwtClaims { subject: subject.to_owned(), roles, until })
}

/// Returns a time in whole seconds; issuers also write fractions.
fn seconds(value: &Value) -> Option<u64> {
    // Values outside this range are mistakes.
    value.as_u64().or_else(|| value.as_f64().filter(|at| (0.0..1e15).contains(at)).map(|at| at as u64))
}

/// Finds a claim by its whole name, which may contain dots, or else by its path.
fn find<'a>(claims: &'a Value, name: &str) -> Option<&'a Value> {
    claims.get(name).or_else(|| name.split('.').try_fold(claims, |inside, part| inside.get(part)))
}
