//! Resources and prompts: enough of them to list, read and get.

use crate::era::Era;
use crate::message::Params;
use crate::reply::{self, Refusal, quote};
use crate::script::Script;

const STATIC: &str = "fake://static";
const ITEM: &str = "fake://item/";

/// The members of a result, after `resultType`; None for a method that is not of this file.
pub(crate) fn answer(
    script: &Script,
    method: &str,
    params: &Params<'_>,
    era: Era,
) -> Option<Result<String, Refusal>> {
    let hint = reply::hint_or_default(None, era);
    Some(match method {
        "resources/list" => {
            Ok(format!(r#""resources":[{{"uri":"{STATIC}","name":"static","mimeType":"text/plain"}}]{hint}"#))
        }
        "resources/templates/list" => Ok(format!(
            r#""resourceTemplates":[{{"uriTemplate":"{ITEM}{{id}}","name":"item","mimeType":"text/plain"}}]{hint}"#
        )),
        "resources/read" => read(script, params, era),
        "prompts/list" => Ok(format!(
            r#""prompts":[{{"name":"greet","description":"A greeting","arguments":[{{"name":"who","required":false}}]}}]{hint}"#
        )),
        "prompts/get" => get(params),
        _ => return None,
    })
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
