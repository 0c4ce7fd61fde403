//! Codec between the relay's messages and denials and those of the NATS client.

use async_nats::{HeaderMap, HeaderName, StatusCode};

use crate::broker::{BrokerMessage, Denial};
use crate::envelope::{HEADER_NAMES, RelayHeaders};

/// Converts a received message.
pub(super) fn decode_message(message: async_nats::Message) -> BrokerMessage {
    let is_no_responders = message.status == Some(StatusCode::NO_RESPONDERS);
    BrokerMessage {
        subject: message.subject.into_string(),
        reply_to: message.reply.map(async_nats::Subject::into_string),
        headers: message.headers.as_ref().map(decode_headers).unwrap_or_default(),
        body: message.payload,
        is_no_responders,
    }
}

/// Keeps the relay's headers; of a repeated header the first value.
fn decode_headers(map: &HeaderMap) -> RelayHeaders {
    let mut headers = RelayHeaders::new();
    for (name, values) in map.iter() {
        let name: &str = name.as_ref();
        let known = HEADER_NAMES.iter().find(|known| **known == name);
        if let (Some(known), Some(value)) = (known, values.first()) {
            headers = headers.with(known, value.as_str());
        }
    }
    headers
}

/// Converts headers. NATS headers can't carry line breaks; a header with one is left out.
pub(super) fn encode_headers(headers: RelayHeaders) -> HeaderMap {
    // The client panics at a line break.
    let fit = headers.into_values().filter(|(_, value)| !value.contains(['\r', '\n']));
    fit.map(|(name, value)| (HeaderName::from_static(name), value.into())).collect()
}

/// Parses a permission violation. NATS reports it only as protocol text:
///
/// ```text
/// Permissions Violation for Publish to "SUBJECT"
/// Permissions Violation for Subscription to "SUBJECT"
/// Permissions Violation for Subscription to "SUBJECT" using queue "QUEUE"
/// ```
pub(super) fn parse_denial(text: &str) -> Option<Denial> {
    let text = text.strip_prefix("Permissions Violation for ")?;
    if let Some(rest) = text.strip_prefix("Publish to ") {
        let (subject, rest) = parse_quoted(rest)?;
        return rest.is_empty().then_some(Denial::Publish(subject));
    }
    let (subject, rest) = parse_quoted(text.strip_prefix("Subscription to ")?)?;
    let is_whole = match rest.strip_prefix(" using queue ") {
        Some(queue) => parse_quoted(queue)?.1.is_empty(),
        None => rest.is_empty(),
    };
    is_whole.then_some(Denial::Subscribe(subject))
}

/// Splits a quoted text from the rest. The relay's subjects need no escapes but these two.
fn parse_quoted(text: &str) -> Option<(String, &str)> {
    let mut unquoted = String::new();
    let mut chars = text.strip_prefix('"')?.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((unquoted, &text[at + 2..])),
            '\\' => match chars.next()?.1 {
                escaped @ ('"' | '\\') => unquoted.push(escaped),
                _ => return None,
            },
            char => unquoted.push(char),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denials_are_read_by_their_grammar_and_nothing_else_is_one() {
        let publish = |subject: &str| Some(Denial::Publish(subject.into()));
        let subscribe = |subject: &str| Some(Denial::Subscribe(subject.into()));
        let table = [
            (r#"Permissions Violation for Publish to "a.b""#, publish("a.b")),
            (r#"Permissions Violation for Publish to "a\"b\\c""#, publish(r#"a"b\c"#)),
            (r#"Permissions Violation for Publish to "ä.ö""#, publish("ä.ö")),
            (r#"Permissions Violation for Subscription to "a.*.>""#, subscribe("a.*.>")),
            (r#"Permissions Violation for Subscription to "a" using queue "q""#, subscribe("a")),
            (r#"Permissions Violation for Subscription to "a" using queue "q" or so"#, None),
            (r#"Permissions Violation for Subscription to "a" or so"#, None),
            (r#"Permissions Violation for Publish with Reply of "a""#, None),
            (r#"Permissions Violation for Publish to "a" or so"#, None),
            (r#"Permissions Violation for Publish to "a"#, None),
            (r#"Permissions Violation for Publish to "a\x00""#, None),
            (r#"Permissions Violation for Publish to a"#, None),
            (r#"permissions violation for publish to "a""#, None),
            ("User Authentication Expired", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse_denial(text), expected, "{text}");
        }
    }

    #[test]
    fn only_headers_of_ours_are_read() {
        let mut map = HeaderMap::new();
        map.insert("Ostler-Kind", "alive");
        map.append("Ostler-Kind", "cancel");
        map.insert("ostler-call", "x");
        map.insert("Nats-Msg-Id", "x");
        let headers = decode_headers(&map);
        assert_eq!(headers.iter().collect::<Vec<_>>(), [("Ostler-Kind", "alive")]);
    }

    #[test]
    fn a_value_that_no_header_can_carry_is_left_out() {
        let headers = RelayHeaders::for_kind("alive").with("traceparent", "a\r\nOstler-Kind: cancel");
        let map = encode_headers(headers);
        assert_eq!(map.len(), 2);
        assert_eq!(map.get("Ostler-Kind").map(async_nats::HeaderValue::as_str), Some("alive"));
    }
}
