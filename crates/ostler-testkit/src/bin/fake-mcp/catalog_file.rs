//! `--catalog FILE`: lists and instructions from a JSON file, read again at each request.
//!
//! The file holds an object with any of `instructions`, `tools`, `prompts`, `resources` and
//! `resourceTemplates`. A list in it replaces the built-in one, in one page. Every URI is readable,
//! every prompt exists, and a tool without behaviour of its own echoes its arguments.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde_json::value::RawValue;

use crate::era::RequestEra;
use crate::message::FakeParams;
use crate::options::FakeOptions;
use crate::response::{self, quote};

/// Returns the members of a result, after `resultType`; None for a method that the file does not
/// cover.
pub(crate) fn answer(
    options: &FakeOptions,
    method: &str,
    params: &FakeParams<'_>,
    era: RequestEra,
) -> Option<String> {
    let file = options.catalog.as_deref()?;
    let (member, ttl) = match method {
        "tools/list" => ("tools", options.listing.ttl.as_ref()),
        "prompts/list" => ("prompts", None),
        "resources/list" => ("resources", None),
        "resources/templates/list" => ("resourceTemplates", None),
        "resources/read" => return Some(read(options, params, era)),
        "prompts/get" => {
            let text = quote(&format!("prompt {}", params.subject()));
            return Some(format!(
                r#""messages":[{{"role":"user","content":{{"type":"text","text":{text}}}}}]"#
            ));
        }
        _ => return None,
    };
    let items = load(file, member)?;
    Some(format!(r#""{member}":{items}{}"#, response::hint_or_default(ttl, era)))
}

/// Returns the member `instructions` with a leading comma; empty if the file has none.
pub(crate) fn instructions(options: &FakeOptions) -> String {
    let text = options.catalog.as_deref().and_then(|file| load(file, "instructions"));
    text.map_or(String::new(), |text| format!(r#","instructions":{text}"#))
}

/// Returns a resource whose text names the server and the URI.
fn read(options: &FakeOptions, params: &FakeParams<'_>, era: RequestEra) -> String {
    let uri = params.uri.as_ref().map_or("", |uri| &uri.0);
    let text = quote(&format!("{} read {uri}", options.name.as_deref().unwrap_or("fake-mcp")));
    let hint = response::hint_or_default(options.read_ttl.as_ref(), era);
    format!(r#""contents":[{{"uri":{},"mimeType":"text/plain","text":{text}}}]{hint}"#, quote(uri))
}

/// Returns one member as it is written, on one line; None if the file is missing or no JSON.
fn load(file: &Path, member: &str) -> Option<String> {
    let text = fs::read(file).ok()?;
    let mut members: HashMap<String, Box<RawValue>> = serde_json::from_slice(&text).ok()?;
    Some(members.remove(member)?.get().replace(['\n', '\r'], " "))
}
