//! Proof that a port is the daemon's: the daemon proves that it knows the admin token, without sending it.
//!
//! ```text
//! command                                    daemon
//!    ── GET /api/v1/proof?nonce=N&code=C ──────▶     no credential; C = HMAC-SHA256(token, COMMAND_LABEL ‖ N)
//!    ◀─ HMAC-SHA256(token, DAEMON_LABEL ‖ N) ──
//!    ── request with the token ────────────────▶     on the same connection
//! ```
//!
//! A process that has taken over the port of a daemon gets the nonce and its code, and nothing else. The code grants
//! no access: it keeps the daemon from evicting the command's connection when the connection table is full. A daemon
//! answers challenges without a code as well.

use std::io;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::instance;
use crate::token::decode_hex_32;

/// Path of the proof.
pub(crate) const PATH: &str = "/api/v1/proof";
/// Upper bound on a proof; longer responses are none.
pub(crate) const MAX_PROOF_BYTES: usize = 4 << 10;
/// Reason why a daemon without a free connection for a command proves nothing.
pub(crate) const OVERLOADED: &str =
    "all its connections are in use; end some clients, or raise `gateway.max_connections`";
/// Separates the code of a nonce from everything else that the token may ever sign.
const DAEMON_LABEL: &[u8] = b"ostler daemon proof 1\0";
/// The same for the code of the command.
const COMMAND_LABEL: &[u8] = b"ostler command proof 1\0";

/// The daemon's answer.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DaemonProof {
    /// The code in hexadecimal digits.
    pub(crate) proof: String,
}

impl DaemonProof {
    /// Answers a challenge; `None` for a nonce that no command sends.
    pub(crate) fn answer(token: &str, nonce: &str) -> Option<Self> {
        let code = mac(token, DAEMON_LABEL, &decode_hex_32(nonce)?)?.finalize().into_bytes();
        Some(Self { proof: instance::hex(&code) })
    }
}

/// Nonce that was never used before.
#[derive(Debug)]
pub(crate) struct ProofChallenge([u8; 32]);

impl ProofChallenge {
    pub(crate) fn new() -> io::Result<Self> {
        instance::random().map(Self)
    }

    /// Returns the target of the request.
    pub(crate) fn target(&self) -> String {
        format!("{PATH}?nonce={}", instance::hex(&self.0))
    }

    /// Returns the target of a request that proves that the command knows the token.
    pub(crate) fn signed_target(&self, token: &str) -> String {
        let code =
            mac(token, COMMAND_LABEL, &self.0).map(|code| instance::hex(&code.finalize().into_bytes()));
        format!("{}&code={}", self.target(), code.unwrap_or_default())
    }

    /// Checks the body of the response, in constant time.
    pub(crate) fn verify(&self, token: &str, body: &[u8]) -> bool {
        let shown =
            serde_json::from_slice::<DaemonProof>(body).ok().and_then(|shown| decode_hex_32(&shown.proof));
        let expected = mac(token, DAEMON_LABEL, &self.0);
        shown.zip(expected).is_some_and(|(shown, expected)| expected.verify_slice(&shown).is_ok())
    }
}

/// Returns whether the query of a challenge proves that the command knows the token. Compares in constant time.
pub(crate) fn is_signed(token: &str, query: &str) -> bool {
    let value = |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
    let code = value("nonce").and_then(decode_hex_32).and_then(|nonce| mac(token, COMMAND_LABEL, &nonce));
    let shown = value("code").and_then(decode_hex_32);
    shown.zip(code).is_some_and(|(shown, code)| code.verify_slice(&shown).is_ok())
}

fn mac(token: &str, label: &[u8], nonce: &[u8; 32]) -> Option<Hmac<Sha256>> {
    let mut code = Hmac::<Sha256>::new_from_slice(token.as_bytes()).ok()?;
    code.update(label);
    code.update(nonce);
    Some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(token: &str, challenge: &ProofChallenge) -> Vec<u8> {
        let target = challenge.target();
        let nonce = target.split_once('=').unwrap().1;
        serde_json::to_vec(&DaemonProof::answer(token, nonce).unwrap()).unwrap()
    }

    #[test]
    fn only_the_same_token_and_nonce_make_a_proof() {
        let (one, other) = (ProofChallenge::new().unwrap(), ProofChallenge::new().unwrap());
        assert!(one.verify("secret", &answer("secret", &one)));
        assert!(!one.verify("secret", &answer("wrong", &one)));
        assert!(!one.verify("secret", &answer("secret", &other)));
        for rubbish in ["", "{}", "null", r#"{"proof":""}"#, r#"{"proof":"00"}"#] {
            assert!(!one.verify("secret", rubbish.as_bytes()), "{rubbish}");
        }
    }

    #[test]
    fn a_challenge_shows_that_the_command_knows_the_token() {
        let target = ProofChallenge::new().unwrap().signed_target("secret");
        let query = target.split_once('?').unwrap().1;
        assert!(is_signed("secret", query));
        assert!(!is_signed("wrong", query));
        assert!(!target.contains("secret"));
        let (nonce, _) = query.split_once('&').unwrap();
        let answer = DaemonProof::answer("secret", nonce.strip_prefix("nonce=").unwrap()).unwrap().proof;
        for rubbish in ["", nonce, &format!("{nonce}&code="), &format!("{nonce}&code={answer}")] {
            assert!(!is_signed("secret", rubbish), "{rubbish}");
        }
    }

    #[test]
    fn nothing_but_a_nonce_is_answered() {
        for nonce in ["", "00", &"g".repeat(64), &"0".repeat(66)] {
            assert!(DaemonProof::answer("secret", nonce).is_none(), "{nonce}");
        }
        assert!(!format!("{:?}", DaemonProof::answer("secret", &"0".repeat(64))).contains("secret"));
    }
}
