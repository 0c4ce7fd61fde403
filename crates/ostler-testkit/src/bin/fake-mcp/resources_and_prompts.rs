//! Resources and prompts: enough of them to list, read and get.

use crate::era::RequestEra;
use crate::message::FakeParams;
use crate::options::FakeOptions;
use crate::response::{self, ErrorReply, quote};

const STATIC: &str = "fake://static";
const ITEM: &str = "fake://item/";
/// The number of items on one page.
const PAGE: usize = 2;

/// Returns the members of a result, after `resultType`; None for another method.
pub(crate) fn answer(
    options: &FakeOptions,
    method: &str,
    params: &FakeParams<'_>,
    era: RequestEra,
) -> Option<Result<String, ErrorReply>> {
    Some(match method {
        "resources/list" | "resources/templates/list" | "prompts/list" => list(options, method, params, era),
        "resources/read" => read(options, params, era),
        "prompts/get" => get(params),
        _ => return None,
    })
}

/// Returns one page of a list; without `--shelf` there is one item and one page.
fn list(
    options: &FakeOptions,
    method: &str,
    params: &FakeParams<'_>,
    era: RequestEra,
) -> Result<String, ErrorReply> {
    let (member, items) = match method {
        "prompts/list" => ("prompts", prompts(options.extra_items)),
        "resources/list" => ("resources", resources(options.extra_items)),
        _ => ("resourceTemplates", templates(options.extra_items)),
    };
    let start = match &params.cursor {
        None => 0,
        Some(cursor) => cursor.0.parse().map_err(|_| ErrorReply::bad_params("unknown cursor"))?,
    };
    let end = items.len().min(start + PAGE);
    let shown = items.get(start..end).unwrap_or_default().join(",");
    let next = if end < items.len() { format!(r#","nextCursor":"{end}""#) } else { String::new() };
    let hint = response::hint_or_default(None, era);
    Ok(format!(r#""{member}":[{shown}]{next}{hint}"#))
}

fn prompts(more: usize) -> Vec<String> {
    let first =
        r#"{"name":"greet","description":"A greeting","arguments":[{"name":"who","required":false}]}"#;
    with_extra_items(first, r#"{"description":"nameless"}"#, more, |n| format!(r#"{{"name":"prompt_{n}"}}"#))
}

fn resources(more: usize) -> Vec<String> {
    let first = format!(r#"{{"uri":"{STATIC}","name":"static","mimeType":"text/plain"}}"#);
    with_extra_items(&first, r#"{"uri":7}"#, more, |n| format!(r#"{{"uri":"{ITEM}{n}","name":"item {n}"}}"#))
}

fn templates(more: usize) -> Vec<String> {
    let first = format!(r#"{{"uriTemplate":"{ITEM}{{id}}","name":"item","mimeType":"text/plain"}}"#);
    with_extra_items(&first, "[]", more, |n| {
        format!(r#"{{"uriTemplate":"fake://{n}/{{id}}","name":"template {n}"}}"#)
    })
}

/// Returns the first item, and with `more` above 0 a malformed one and `more` good ones.
fn with_extra_items(first: &str, bad: &str, more: usize, item: impl Fn(usize) -> String) -> Vec<String> {
    let bad = (more > 0).then(|| bad.to_owned());
    [first.to_owned()].into_iter().chain(bad).chain((1..=more).map(item)).collect()
}

fn read(options: &FakeOptions, params: &FakeParams<'_>, era: RequestEra) -> Result<String, ErrorReply> {
    let uri = params.uri.as_ref().map_or("", |uri| &uri.0);
    let text = match uri.strip_prefix(ITEM) {
        _ if uri == STATIC => "static text",
        Some(item) if !item.is_empty() => item,
        _ if era == RequestEra::Modern => return Err(ErrorReply::bad_params("unknown resource")),
        // The code of the older revisions for an unknown resource.
        _ => return Err(ErrorReply::new(-32002, "unknown resource")),
    };
    let (uri, text) = (quote(uri), quote(text));
    let hint = response::hint_or_default(options.read_ttl.as_ref(), era);
    Ok(format!(r#""contents":[{{"uri":{uri},"mimeType":"text/plain","text":{text}}}]{hint}"#))
}

fn get(params: &FakeParams<'_>) -> Result<String, ErrorReply> {
    if params.subject() != "greet" {
        return Err(ErrorReply::bad_params("unknown prompt"));
    }
    let arguments: serde_json::Value = serde_json::from_str(params.arguments()).unwrap_or_default();
    let who = arguments.get("who").and_then(serde_json::Value::as_str).unwrap_or("world");
    let text = quote(&format!("Hello, {who}"));
    Ok(format!(r#""messages":[{{"role":"user","content":{{"type":"text","text":{text}}}}}]"#))
}
