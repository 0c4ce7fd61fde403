//! Names and inputs that both sides of the relay share.
//!
//! An input is a row of messages with `---` between them: a subject, headers, a blank line and a
//! body.

use bytes::Bytes;
use ostler_relay::broker::BrokerMessage;
use ostler_relay::envelope::{HEADER_NAMES, RelayHeaders, header};
use ostler_relay::subject::Subjects;
use ostler_relay::{Instance, RelayName};

/// The initial time of both sides' clocks.
pub(super) const START: u64 = 1_800_000_000_000;
/// The instance of the scripted worker.
pub(super) const LIFE: Instance = Instance(1);
/// More messages find nothing new.
const MAX_MESSAGES: usize = 16;

pub(super) fn relay_name(text: &str) -> RelayName {
    RelayName::new(text).expect("it is a name")
}

pub(super) fn subjects() -> Subjects {
    Subjects::new(relay_name("acme"))
}

/// Returns the messages of an input, with its words substituted.
pub(super) fn messages(input: &[u8], change: impl Fn(&str) -> String) -> Vec<BrokerMessage> {
    let text = change(&String::from_utf8_lossy(input));
    let read = |part: &str| {
        let (head, body) = part.split_once("\n\n").unwrap_or((part, ""));
        let (subject, lines) = head.split_once('\n').unwrap_or((head, ""));
        let headers = headers(lines);
        let reply_to = headers.get(header::CALL).map(|call| format!("_INBOX_w1.{LIFE}.{call}"));
        let body = Bytes::copy_from_slice(body.as_bytes());
        BrokerMessage { subject: subject.into(), reply_to, headers, body, is_no_responders: false }
    };
    text.split("\n---\n").take(MAX_MESSAGES).map(read).collect()
}

/// Returns the headers of a relayed message, one `Name: value` to a line; other lines are ignored.
pub fn headers(text: &str) -> RelayHeaders {
    let lines = text.lines().filter_map(|line| line.split_once(": "));
    let known =
        lines.filter_map(|(name, value)| Some((*HEADER_NAMES.iter().find(|known| **known == name)?, value)));
    known.fold(RelayHeaders::new(), |headers, (name, value)| headers.with(name, value))
}
