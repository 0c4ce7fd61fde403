//! Static contents of tools, prompts and resources.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::{Value, json};

/// A PNG file of one red pixel.
pub(crate) const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// A WAV file without samples.
const SILENCE: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";

/// Returns the result of a tool that always answers the same, if `name` is one.
pub(crate) fn static_result(name: &str) -> Option<Result<CallToolResult, serde_json::Error>> {
    let blocks = match name {
        "test_simple_text" => json!([text("This is a simple text response for testing.")]),
        "test_image_content" => json!([image()]),
        "test_audio_content" => json!([{ "type": "audio", "data": SILENCE, "mimeType": "audio/wav" }]),
        "test_embedded_resource" => json!([embedded(
            "test://embedded-resource",
            "text/plain",
            "This is an embedded resource content."
        )]),
        "test_multiple_content_types" => json!([
            text("Multiple content types test:"),
            image(),
            embedded("test://mixed-content-resource", "application/json", r#"{"test":"data","value":123}"#),
        ]),
        _ => return None,
    };
    Some(serde_json::from_value::<Vec<ContentBlock>>(blocks).map(CallToolResult::success))
}

pub(crate) fn text(text: impl Into<String>) -> Value {
    json!({ "type": "text", "text": text.into() })
}

pub(crate) fn image() -> Value {
    json!({ "type": "image", "data": PIXEL, "mimeType": "image/png" })
}

pub(crate) fn embedded(uri: &str, mime_type: &str, text: &str) -> Value {
    json!({ "type": "resource", "resource": { "uri": uri, "mimeType": mime_type, "text": text } })
}

/// Returns a result of one text block.
pub(crate) fn text_result(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

/// Returns the resource with a URI, if there is one.
pub(crate) fn resource(uri: &str) -> Option<ResourceContents> {
    let contents = match uri {
        "test://static-text" => {
            text_resource(uri, "text/plain", "This is the content of the static text resource.")
        }
        "test://watched-resource" => {
            text_resource(uri, "text/plain", "This is the content of the watched resource.")
        }
        "test://static-binary" => json!({ "uri": uri, "mimeType": "image/png", "blob": PIXEL }),
        _ => {
            let id = uri.strip_prefix("test://template/")?.strip_suffix("/data")?;
            let data = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
            text_resource(uri, "application/json", &data.to_string())
        }
    };
    serde_json::from_value(contents).ok()
}

fn text_resource(uri: &str, mime_type: &str, text: &str) -> Value {
    json!({ "uri": uri, "mimeType": mime_type, "text": text })
}
