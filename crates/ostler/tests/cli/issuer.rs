//! Identity provider of the tests: a key pair, and a server of its public half.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};

/// Issuer of tokens, with a new key pair.
pub(crate) struct IdentityProvider {
    key: Ed25519KeyPair,
    kid: &'static str,
}

/// Server of a key set, which counts its requests.
pub(crate) struct JwksServer {
    pub(crate) url: String,
    text: Arc<Mutex<String>>,
    asked: Arc<AtomicUsize>,
}

fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

impl IdentityProvider {
    pub(crate) fn new(kid: &'static str) -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self { key: Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap(), kid }
    }

    pub(crate) fn jwks(&self) -> String {
        let x = b64(self.key.public_key());
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": self.kid, "x": x}]}).to_string()
    }

    /// Returns a token of Ada's for the tests' daemon, with these changes.
    pub(crate) fn token(&self, changes: Value) -> String {
        self.token_with(&json!({"alg": "EdDSA", "kid": self.kid}), changes)
    }

    pub(crate) fn token_with(&self, header: &Value, changes: Value) -> String {
        let mut claims = json!({
            "iss": "https://id.example", "aud": "ostler", "sub": "ada", "role": "local", "exp": now() + 600,
        });
        for (key, value) in changes.as_object().unwrap() {
            claims[key] = value.clone();
        }
        let signed = format!("{}.{}", b64(header.to_string()), b64(claims.to_string()));
        format!("{signed}.{}", b64(self.key.sign(signed.as_bytes())))
    }
}

impl JwksServer {
    /// Serves this text, as long as the test runs.
    pub(crate) fn new(text: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/jwks", listener.local_addr().unwrap());
        let told = Self { url, text: Arc::new(Mutex::new(text)), asked: Arc::default() };
        let (text, asked) = (Arc::clone(&told.text), Arc::clone(&told.asked));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut reader = BufReader::new(stream);
                let mut line = String::new();
                while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                    line.clear();
                }
                asked.fetch_add(1, Ordering::SeqCst);
                let text = text.lock().unwrap().clone();
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    text.len()
                );
                let _ = reader.get_mut().write_all((head + &text).as_bytes());
            }
        });
        told
    }

    pub(crate) fn set_jwks(&self, text: String) {
        *self.text.lock().unwrap() = text;
    }

    pub(crate) fn request_count(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}
