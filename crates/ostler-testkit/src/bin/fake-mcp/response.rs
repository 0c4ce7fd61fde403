//! Answer lines. Each function returns a whole line, newline included.

use serde_json::value::RawValue;

use crate::era::RequestEra;
use crate::options::CacheHint;

/// The result of the tool `exact`: numbers beyond 64 bits, odd spacing, order and escapes, unknown
/// fields and content. Any re-serialization changes it. It carries `resultType` in both eras so
/// that one string serves both.
pub(crate) const EXACT: &str = r#"{"zeta":9223372036854775808,"isError":false,"huge":1000000000000000000000000000000,"content":[{"text":"caf\u00e9 \/ \ud83d\ude80","type":"text","annotations":{"priority":1.0,"zz":null,"aa":-0}},{"type":"hologram","voxels":[ 1E+2 ,0.10 ],"depth":{"b":1,"a":2}}],"resultType":"complete","x-unknown":{"z":[],"a":{}, "m" : "\u0041"},"structuredContent":{"10":"ten","9":"nine","tiny":1e-400},"alpha":true}"#;

/// An error answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ErrorReply {
    code: i64,
    message: String,
    /// Raw JSON of the `data` member.
    detail: Option<String>,
}

impl ErrorReply {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), detail: None }
    }

    pub(crate) fn unknown_method(method: &str) -> Self {
        Self::new(-32601, format!("unknown method `{method}`"))
    }

    pub(crate) fn bad_params(message: impl Into<String>) -> Self {
        Self::new(-32602, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(-32603, message)
    }

    pub(crate) fn unsupported_version(requested: &str, supported: &str) -> Self {
        let detail = format!(r#"{{"supported":["{supported}"],"requested":{}}}"#, quote(requested));
        Self { detail: Some(detail), ..Self::new(-32022, "unsupported protocol version") }
    }
}

/// Returns an error line.
pub(crate) fn error(id: &str, refusal: &ErrorReply) -> Vec<u8> {
    let detail = refusal.detail.as_ref().map_or(String::new(), |detail| format!(r#","data":{detail}"#));
    let message = quote(&refusal.message);
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{},"message":{message}{detail}}}}}{}"#,
        refusal.code, '\n'
    )
    .into_bytes()
}

/// Returns a result line around a body that is already JSON.
pub(crate) fn result(id: &str, body: &str) -> Vec<u8> {
    let mut line = begin_result(id, body.len());
    line.extend_from_slice(body.as_bytes());
    line.extend_from_slice(b"}\n");
    line
}

/// Returns a result line with the members given as raw JSON, completed with those that the era
/// requires.
pub(crate) fn result_with_members(id: &str, era: RequestEra, members: &str) -> Vec<u8> {
    result(id, &format!("{{{}{members}}}", result_type(era)))
}

/// Returns a notification line.
pub(crate) fn notification(method: &str, params: &str) -> Vec<u8> {
    format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\",\"params\":{params}}}\n").into_bytes()
}

/// Returns the first member of every modern result.
pub(crate) fn result_type(era: RequestEra) -> &'static str {
    match era {
        RequestEra::Modern => r#""resultType":"complete","#,
        RequestEra::Legacy => "",
    }
}

/// Returns the members of a caching hint, each with a leading comma.
pub(crate) fn hint(hint: &CacheHint) -> String {
    let scope =
        hint.scope.as_ref().map_or(String::new(), |scope| format!(r#","cacheScope":{}"#, quote(scope)));
    format!(r#","ttlMs":{}{scope}"#, hint.ttl_ms)
}

/// Returns the hint of a list or read: the given one, or where the modern era requires one, "do not
/// cache".
pub(crate) fn hint_or_default(given: Option<&CacheHint>, era: RequestEra) -> String {
    match (given, era) {
        (Some(given), _) => hint(given),
        (None, RequestEra::Modern) => r#","ttlMs":0,"cacheScope":"private""#.into(),
        (None, RequestEra::Legacy) => String::new(),
    }
}

/// Returns a string as JSON.
pub(crate) fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The result of a tool.
#[derive(Debug)]
pub(crate) struct FakeToolResult<'a> {
    pub(crate) text: &'a str,
    /// Raw JSON of an object.
    pub(crate) structured: Option<&'a str>,
    pub(crate) is_error: bool,
    pub(crate) hint: Option<&'a CacheHint>,
}

impl<'a> FakeToolResult<'a> {
    pub(crate) fn text(text: &'a str) -> Self {
        Self { text, structured: None, is_error: false, hint: None }
    }

    /// Makes a result from a JSON object, as text and as structured content, byte for byte.
    pub(crate) fn object(raw: &'a str) -> Self {
        Self { structured: Some(raw), ..Self::text(raw) }
    }

    pub(crate) fn line(&self, id: &str, era: RequestEra) -> Vec<u8> {
        let mut line = begin_result(id, 2 * self.text.len() + 128);
        line.push(b'{');
        line.extend_from_slice(result_type(era).as_bytes());
        line.extend_from_slice(br#""content":[{"type":"text","text":"#);
        push_quoted(&mut line, self.text);
        line.extend_from_slice(b"}]");
        if let Some(raw) = self.structured {
            line.extend_from_slice(br#","structuredContent":"#);
            line.extend_from_slice(raw.as_bytes());
        }
        line.extend_from_slice(if self.is_error { br#","isError":true"# } else { br#","isError":false"# });
        if let Some(given) = self.hint {
            line.extend_from_slice(hint(given).as_bytes());
        }
        line.extend_from_slice(b"}}\n");
        line
    }
}

/// Writes the answer of `--raw-echo`: the arguments unescaped, so nothing is parsed or quoted.
pub(crate) fn raw_echo(out: &mut Vec<u8>, id: &RawValue, era: RequestEra, arguments: &str) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id.get().as_bytes());
    out.extend_from_slice(br#","result":{"#);
    out.extend_from_slice(result_type(era).as_bytes());
    out.extend_from_slice(br#""content":[{"type":"text","text":"ok"}],"structuredContent":"#);
    out.extend_from_slice(arguments.as_bytes());
    out.extend_from_slice(b",\"isError\":false}}\n");
}

fn begin_result(id: &str, body: usize) -> Vec<u8> {
    let mut line = Vec::with_capacity(id.len() + body + 40);
    line.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    line.extend_from_slice(id.as_bytes());
    line.extend_from_slice(br#","result":"#);
    line
}

#[expect(clippy::expect_used, reason = "writing a string into memory can't fail")]
fn push_quoted(line: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(line, text).expect("a string is JSON");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exact_result_is_json_that_no_reserialization_reproduces() {
        let raw: Box<RawValue> = serde_json::from_str(EXACT).unwrap();
        assert_eq!(raw.get(), EXACT);
        let value: serde_json::Value = serde_json::from_str(EXACT).unwrap();
        assert_eq!(value["content"][1]["type"], "hologram");
        assert_ne!(value.to_string(), EXACT);
    }

    #[test]
    fn a_modern_outcome_says_so_and_a_legacy_one_does_not() {
        let outcome = FakeToolResult::object(r#"{"b":1}"#);
        let modern = String::from_utf8(outcome.line("7", RequestEra::Modern)).unwrap();
        assert_eq!(
            modern,
            "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"resultType\":\"complete\",\"content\":[{\"type\":\"text\",\
             \"text\":\"{\\\"b\\\":1}\"}],\"structuredContent\":{\"b\":1},\"isError\":false}}\n"
        );
        let legacy = String::from_utf8(outcome.line("7", RequestEra::Legacy)).unwrap();
        assert!(!legacy.contains("resultType"));
    }
}
