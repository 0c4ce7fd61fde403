//! What a client sends and what it can read.

use http::{HeaderMap, header};

/// What clients say that keep to the specification, most of them letter by letter.
const USUAL: &str = "application/json, text/event-stream";

/// What a client can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Accepts {
    pub(super) json: bool,
    pub(super) events: bool,
}

impl Accepts {
    const ALL: Self = Self { json: true, events: true };

    /// The specification wants clients to name both; one that names nothing
    /// takes anything, and one that names a single form gets that.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut accepts = Self { json: false, events: false };
        let mut is_named = false;
        for value in headers.get_all(header::ACCEPT) {
            is_named = true;
            if value == USUAL {
                return Self::ALL;
            }
            for range in value.to_str().unwrap_or_default().split(',') {
                let range = range.split(';').next().unwrap_or_default().trim();
                if range == "*/*" {
                    return Self::ALL;
                }
                accepts.json |= is_one_of(range, &["application/json", "application/*"]);
                accepts.events |= is_one_of(range, &["text/event-stream", "text/*"]);
            }
        }
        if is_named { accepts } else { Self::ALL }
    }
}

/// Whether the body is said to be JSON.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return false };
    let said = value.to_str().unwrap_or_default();
    value == "application/json"
        || is_one_of(said.split(';').next().unwrap_or_default().trim(), &["application/json"])
}

fn is_one_of(said: &str, wanted: &[&str]) -> bool {
    wanted.iter().any(|wanted| said.eq_ignore_ascii_case(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_read_is_told_by_all_accept_headers() {
        let table = [
            (&[][..], true, true),
            (&["application/json, text/event-stream"], true, true),
            (&["application/json", "Text/Event-Stream;q=0.5"], true, true),
            (&["*/*"], true, true),
            (&["application/json"], true, false),
            (&["text/event-stream"], false, true),
            (&["text/html"], false, false),
        ];
        for (values, json, events) in table {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::ACCEPT, value.parse().unwrap());
            }
            assert_eq!(Accepts::of(&headers), Accepts { json, events }, "{values:?}");
        }
    }
}
