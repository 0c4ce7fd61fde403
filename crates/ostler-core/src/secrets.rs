//! Secret values, redacted from logs, errors and statuses.
//!
//! Secrets are matched by value: wherever one gets into a text, its label replaces it.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use memchr::memmem;

/// A shorter value is not redacted: it would be found in every other word.
pub const MIN_LEN: usize = 4;

/// A shorter line of a multi-line value is not redacted by itself.
const MIN_LINE_LEN: usize = 8;

/// Most values at once. The oldest is removed beyond that.
pub const MAX_SECRETS: usize = 1_024;

/// Secret values, each with the label that replaces it.
#[derive(Clone, Default)]
pub struct Secrets(Vec<Arc<Secret>>);

struct Secret {
    label: Box<str>,
    value: Box<str>,
    /// The value and other encodings of it.
    encodings: Vec<Box<str>>,
}

impl Secrets {
    /// Adds a value, which the label, such as `env:TOKEN`, replaces from now on. Returns false if the value
    /// is too short or known already.
    pub fn insert(&mut self, label: &str, value: &str) -> bool {
        let value = value.trim();
        if value.len() < MIN_LEN || self.0.iter().any(|known| *known.value == *value) {
            return false;
        }
        if self.0.len() == MAX_SECRETS {
            self.0.remove(0);
        }
        self.0.push(Arc::new(Secret {
            label: label.into(),
            value: value.into(),
            encodings: encodings(value),
        }));
        true
    }

    /// Returns whether a value is known already.
    pub fn contains(&self, value: &str) -> bool {
        self.0.iter().any(|known| *known.value == *value.trim())
    }

    /// Returns the text without any secret in it.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut places = self.occurrences(text);
        if places.is_empty() {
            return Cow::Borrowed(text);
        }
        // Of those with the same start the longest comes first.
        places.sort_by_key(|(place, _)| (place.start, std::cmp::Reverse(place.end)));
        let mut out = String::with_capacity(text.len());
        let mut end = 0;
        for (place, secret) in places {
            // A secret that overlaps the one before is redacted with it, to its own end.
            if place.start >= end {
                out.push_str(&text[end..place.start]);
                out.push_str("[hidden ");
                out.push_str(&secret.label);
                out.push(']');
            }
            end = end.max(place.end);
        }
        out.push_str(&text[end..]);
        Cow::Owned(out)
    }

    /// Redacts like [`redact`](Self::redact), in a text whose beginning was cut off: the end of a secret at
    /// its start is redacted too.
    pub fn redact_truncated<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let rest = self.0.iter().flat_map(|secret| &secret.encodings).filter_map(|form| {
            let ends = form.char_indices().map(|(at, _)| &form[at..]).skip(1);
            ends.filter(|end| end.len() >= MIN_LEN).find(|end| text.starts_with(*end)).map(str::len)
        });
        match rest.max() {
            None => self.redact(text),
            Some(cut) => Cow::Owned(format!("[hidden]{}", self.redact(&text[cut..]))),
        }
    }

    fn occurrences(&self, text: &str) -> Vec<(Range<usize>, &Secret)> {
        let mut places = Vec::new();
        for secret in &self.0 {
            for form in &secret.encodings {
                let found = memmem::find_iter(text.as_bytes(), form.as_bytes());
                places.extend(found.map(|start| (start..start + form.len(), &**secret)));
            }
        }
        places
    }
}

/// Returns the likely encodings of a value: as it is, line by line, inside a JSON string, and in an address.
fn encodings(value: &str) -> Vec<Box<str>> {
    let mut forms = vec![value.to_owned()];
    let lines = value.lines().map(str::trim).filter(|line| line.len() >= MIN_LINE_LEN);
    forms.extend(lines.map(str::to_owned));
    let escaped = serde_json::Value::from(value).to_string();
    forms.push(escaped[1..escaped.len() - 1].to_owned());
    forms.push(percent_encode(value));
    forms.push(value.escape_debug().to_string());
    forms.sort();
    forms.dedup();
    forms.into_iter().map(String::into_boxed_str).collect()
}

/// Percent-encodes everything but letters, digits and `-._~`.
fn percent_encode(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte.into()),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|secret| &secret.label)).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn knowing(values: &[(&str, &str)]) -> Secrets {
        let mut secrets = Secrets::default();
        for (label, value) in values {
            secrets.insert(label, value);
        }
        secrets
    }

    #[test]
    fn a_value_is_replaced_by_its_label_wherever_it_stands() {
        let secrets =
            knowing(&[("env:TOKEN", "s3cr3t/+\"x"), ("file:pem", "-----BEGIN KEY-----\nabcdefgh1234\n")]);
        let table = [
            ("nothing here", "nothing here"),
            ("a s3cr3t/+\"x b", "a [hidden env:TOKEN] b"),
            (r#"{"t":"s3cr3t/+\"x"}"#, r#"{"t":"[hidden env:TOKEN]"}"#),
            ("?t=s3cr3t%2F%2B%22x&u", "?t=[hidden env:TOKEN]&u"),
            ("line abcdefgh1234 of it", "line [hidden file:pem] of it"),
            ("s3cr3t/+\"xs3cr3t/+\"x", "[hidden env:TOKEN][hidden env:TOKEN]"),
        ];
        for (text, hidden) in table {
            assert_eq!(secrets.redact(text), hidden);
        }
    }

    #[test]
    fn values_that_overlap_leave_nothing_of_each_other() {
        let secrets = knowing(&[("env:A", "abcdef"), ("env:B", "defghi"), ("env:C", "abcdefghijkl")]);
        assert_eq!(secrets.redact("-abcdefghi-"), "-[hidden env:A]-");
        assert_eq!(secrets.redact("-abcdefghijkl-"), "-[hidden env:C]-");
    }

    #[test]
    fn a_value_too_short_to_be_told_from_words_is_not_hidden() {
        let secrets = knowing(&[("env:A", "ab"), ("env:B", " \n"), ("env:C", "out"), ("env:D", "pass")]);
        assert_eq!(secrets.redact("about a pass"), "about a [hidden env:D]");
    }

    #[test]
    fn the_rest_of_a_value_at_a_cut_is_hidden() {
        let secrets = knowing(&[("env:A", "canary-123456")]);
        assert_eq!(secrets.redact_truncated("ry-123456 said canary-123456"), "[hidden] said [hidden env:A]");
        assert_eq!(secrets.redact_truncated("hello"), "hello");
    }

    #[test]
    fn the_oldest_value_makes_room_and_a_known_one_is_not_learnt_twice() {
        let mut secrets = Secrets::default();
        for n in 0..=MAX_SECRETS {
            assert!(secrets.insert("env:N", &format!("value-{n:05}")));
            assert!(!secrets.insert("env:N", &format!("value-{n:05}")));
        }
        assert_eq!(secrets.0.len(), MAX_SECRETS);
        assert!(!secrets.contains("value-00000") && secrets.contains("value-00001"));
    }

    #[test]
    fn not_even_debug_shows_a_value() {
        assert_eq!(format!("{:?}", knowing(&[("env:A", "canary")])), "[\"env:A\"]");
    }

    proptest! {
        #[test]
        fn no_value_survives(values in prop::collection::vec("[ab\"é/]{4,8}", 0..4), text in "[ab\"é/ ]{0,40}") {
            let mut secrets = Secrets::default();
            for value in &values {
                // The label must not hold the secret.
                secrets.insert("X", value);
            }
            let hidden = secrets.redact(&text);
            for value in &values {
                prop_assert!(!hidden.contains(value.as_str()), "{value} in {hidden}");
            }
        }
    }
}
