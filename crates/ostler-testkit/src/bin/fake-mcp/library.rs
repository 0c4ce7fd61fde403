//! Resources and prompts: enough of them to list, read and get.

use crate::era::Era;
use crate::message::Params;
use crate::reply::{self, Refusal, quote};
use crate::script::Script;

const STATIC: &str = "fake://static";
const ITEM: &str = "fake://item/";
/// Items on one page.
const PAGE: usize = 2;

/// The members of a result, after `resultType`; None for a method that is not of this file.
pub(crate) fn answer(
    script: &Script,
    method: &str,
    params: &Params<'_>,
    era: Era,
) -> Option<Result<String, Refusal>> {
    Some(match method {
        "resources/list" | "resources/templates/list" | "prompts/list" => list(script, method, params, era),
        "resources/read" => read(script, params, era),
        "prompts/get" => get(params),
        _ => return None,
    })
}

/// One page of a list; without `--shelf` there is one item and one page.
fn list(script: &Script, method: &str, params: &Params<'_>, era: Era) -> Result<String, Refusal> {
    let (member, items) = match method {
        "prompts/list" => ("prompts", prompts(script.shelf)),
        "resources/list" => ("resources", resources(script.shelf)),
        _ => ("resourceTemplates", templates(script.shelf)),
    };
    let start = match &params.cursor {
        None => 0,
        Some(cursor) => cursor.0.parse().map_err(|_| Refusal::bad_params("unknown cursor"))?,
    };
    let end = items.len().min(start + PAGE);
    let shown = items.get(start..end).unwrap_or_default().join(",");
    let next = if end < items.len() { format!(r#","nextCursor":"{end}""#) } else { String::new() };
    let hint = reply::hint_or_default(None, era);
    Ok(format!(r#""{member}":[{shown}]{next}{hint}"#))
}

fn prompts(more: usize) -> Vec<String> {
    let first =
        r#"{"name":"greet","description":"A greeting","arguments":[{"name":"who","required":false}]}"#;
    shelved(first, r#"{"description":"nameless"}"#, more, |n| format!(r#"{{"name":"prompt_{n}"}}"#))
}

fn resources(more: usize) -> Vec<String> {
    let first = format!(r#"{{"uri":"{STATIC}","name":"static","mimeType":"text/plain"}}"#);
    shelved(&first, r#"{"uri":7}"#, more, |n| format!(r#"{{"uri":"{ITEM}{n}","name":"item {n}"}}"#))
}

fn templates(more: usize) -> Vec<String> {
    let first = format!(r#"{{"uriTemplate":"{ITEM}{{id}}","name":"item","mimeType":"text/plain"}}"#);
    shelved(&first, "[]", more, |n| format!(r#"{{"uriTemplate":"fake://{n}/{{id}}","name":"template {n}"}}"#))
}

/// The first item, and where more are wanted a bad one and so many more.
fn shelved(first: &str, bad: &str, more: usize, item: impl Fn(usize) -> String) -> Vec<String> {
    let bad = (more > 0).then(|| bad.to_owned());
    [first.to_owned()].into_iter().chain(bad).chain((1..=more).map(item)).collect()
}

fn read(script: &Script, params: &Params<'_>, era: Era) -> Result<String, Refusal> {
    let uri = params.uri.as_ref().map_or("", |uri| &uri.0);
    let text = match uri.strip_prefix(ITEM) {
        _ if uri == STATIC => "static text",
        Some(item) if !item.is_empty() => item,
        _ if era == Era::Modern => return Err(Refusal::bad_params("unknown resource")),
        // The code the older revisions gave an unknown resource.
        _ => return Err(Refusal::new(-32002, "unknown resource")),
    };
    let (uri, text) = (quote(uri), quote(text));
    let hint = reply::hint_or_default(script.read_ttl.as_ref(), era);
    Ok(format!(r#""contents":[{{"uri":{uri},"mimeType":"text/plain","text":{text}}}]{hint}"#))
}

fn get(params: &Params<'_>) -> Result<String, Refusal> {
    if params.subject() != "greet" {
        return Err(Refusal::bad_params("unknown prompt"));
    }
    let arguments: serde_json::Value = serde_json::from_str(params.arguments()).unwrap_or_default();
    let who = arguments.get("who").and_then(serde_json::Value::as_str).unwrap_or("world");
    let text = quote(&format!("Hello, {who}"));
    Ok(format!(r#""messages":[{{"role":"user","content":{{"type":"text","text":{text}}}}}]"#))
}
