//! Redaction of arguments: removes values that look like secrets before they are written.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use ostler_core::config::{is_secret_key, redact_tokens};
use ostler_host::Host;
use serde_json::Value;

/// Upper bound on the text that is kept of one call.
const MAX_TEXT_BYTES: usize = 16 << 10;
/// Upper bound on the text that is scanned: far more than is kept, so that no value is cut in two before it is
/// redacted.
const MAX_SCANNED_BYTES: usize = 8 * MAX_TEXT_BYTES;
/// Replacement of a redacted value.
const REDACTED: &str = "…";

/// Returns the text of arguments with `…` in place of values whose keys name secrets and of well-known token formats,
/// and redacted by `veil`; truncated after 16 KiB.
pub(super) fn redact(text: &[u8], veil: impl Fn(&str) -> String) -> String {
    let mut redacted = match serde_json::from_slice::<Value>(text) {
        Ok(mut value) => {
            redact_value(&mut value);
            value.to_string()
        }
        Err(_) => redact_tokens(&String::from_utf8_lossy(text)),
    };
    redacted.truncate(redacted.floor_char_boundary(MAX_SCANNED_BYTES));
    redacted = veil(&redacted);
    if redacted.len() > MAX_TEXT_BYTES {
        redacted.truncate(redacted.floor_char_boundary(MAX_TEXT_BYTES));
        redacted.push_str(REDACTED);
    }
    redacted
}

fn redact_value(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                match is_secret_key(key) && !member.is_null() {
                    true => *member = REDACTED.into(),
                    false => redact_value(member),
                }
            }
        }
        Value::Array(members) => members.iter_mut().for_each(redact_value),
        Value::String(text) => *text = redact_tokens(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Redactor of the values that references of the config resolve to. The host knows them.
#[derive(Default)]
pub(super) struct AuditRedactor(Mutex<Option<Host>>);

impl AuditRedactor {
    /// Uses a host's redaction from now on.
    pub(super) fn attach(&self, host: Host) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(host);
    }

    /// Drops the host, which holds the observers that push rows.
    pub(super) fn detach(&self) {
        // The host may end its servers when it is dropped, so no lock is held then.
        let host = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(host);
    }

    pub(super) fn redact(&self, text: &str) -> String {
        let host = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        host.map_or_else(|| text.to_owned(), |host| host.redact(text).into_owned())
    }
}

impl fmt::Debug for AuditRedactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Veil")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_by_their_key_and_by_their_look() {
        let table = [
            (r#"{"user":"ada","password":"hunter2"}"#, r#"{"password":"…","user":"ada"}"#),
            (r#"{"auth":{"apiKey":["a","b"]}}"#, r#"{"auth":{"apiKey":"…"}}"#),
            (r#"{"text":"use ghp_0123456789abcdef0123 now"}"#, r#"{"text":"use … now"}"#),
            (r#"{"token":null,"n":1}"#, r#"{"n":1,"token":null}"#),
            (r#"not json"#, "not json"),
        ];
        for (text, redacted) in table {
            let shown: Value =
                serde_json::from_str(&redact(text.as_bytes(), str::to_owned)).unwrap_or(Value::Null);
            let expected: Value = serde_json::from_str(redacted).unwrap_or(Value::Null);
            assert_eq!(shown, expected, "{text}");
        }
    }

    #[test]
    fn a_value_is_hidden_before_the_cut_and_not_cut_in_two() {
        let text = format!(r#"{{"text":"{} canary-0123456789"}}"#, "x".repeat(MAX_TEXT_BYTES - 15));
        let redacted = redact(text.as_bytes(), |text| text.replace("canary-0123456789", "[hidden]"));
        assert!(!redacted.contains("cana"), "{}", &redacted[MAX_TEXT_BYTES - 20..]);
    }

    #[test]
    fn long_arguments_are_cut() {
        let text = format!(r#"{{"text":"{}"}}"#, "é".repeat(MAX_TEXT_BYTES));
        let redacted = redact(text.as_bytes(), str::to_owned);
        assert!(redacted.len() <= MAX_TEXT_BYTES + REDACTED.len() && redacted.ends_with('…'));
    }
}
