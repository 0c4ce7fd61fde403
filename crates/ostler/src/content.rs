//! Tool results, rendered for people.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::output::{escape_line, size};

/// Result, rendered for a terminal.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RenderedContent {
    /// Text for stdout; ends in a newline unless it is empty.
    pub(crate) text: String,
    /// One line for each part that is not text.
    pub(crate) non_text: Vec<String>,
}

#[derive(Deserialize)]
struct ToolResultBody<'a> {
    #[serde(borrow, default)]
    content: Vec<&'a RawValue>,
    #[serde(borrow, default, rename = "structuredContent")]
    structured: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContentBlock {
    r#type: String,
    text: Option<String>,
    mime_type: Option<String>,
    uri: Option<String>,
    /// Base64 of images and audio.
    data: Option<String>,
    resource: Option<EmbeddedResource>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct EmbeddedResource {
    uri: Option<String>,
    mime_type: Option<String>,
    text: Option<String>,
    /// Base64.
    blob: Option<String>,
}

/// Renders a result. Parts of unknown types are named and not shown; `--json` shows everything.
pub(crate) fn render(body: &[u8]) -> RenderedContent {
    let Ok(body) = serde_json::from_slice::<ToolResultBody<'_>>(body) else {
        return RenderedContent {
            text: String::new(),
            non_text: vec!["[a result of an unknown shape]".into()],
        };
    };
    let mut shown = RenderedContent::default();
    for raw in &body.content {
        // A part of an unknown shape may still have a known type.
        let part: ContentBlock = serde_json::from_str(raw.get()).unwrap_or_default();
        match part {
            ContentBlock { ref r#type, text: Some(text), .. } if r#type == "text" => shown.add(&text),
            other => shown.non_text.push(describe_block(&other)),
        }
    }
    if let (true, Some(structured)) = (body.content.is_empty(), body.structured) {
        shown.add(structured.get());
    }
    shown
}

/// Renders the messages of a prompt, each after its role.
pub(crate) fn render_prompt(body: &[u8]) -> RenderedContent {
    #[derive(Deserialize)]
    struct PromptResult {
        messages: Vec<PromptMessage>,
    }
    #[derive(Deserialize)]
    struct PromptMessage {
        role: String,
        content: ContentBlock,
    }
    let Ok(prompt) = serde_json::from_slice::<PromptResult>(body) else {
        return RenderedContent {
            text: String::new(),
            non_text: vec!["[a prompt of an unknown shape]".into()],
        };
    };
    let mut shown = RenderedContent::default();
    for PromptMessage { role, content } in prompt.messages {
        match content {
            ContentBlock { ref r#type, text: Some(text), .. } if r#type == "text" => {
                shown.add(&format!("{}: {text}", escape_line(&role)));
            }
            other => shown.non_text.push(describe_block(&other)),
        }
    }
    shown
}

impl RenderedContent {
    fn add(&mut self, text: &str) {
        self.text.push_str(text);
        if !text.is_empty() && !text.ends_with('\n') {
            self.text.push('\n');
        }
    }
}

/// `[image image/png, 12.3 KB]`
fn describe_block(part: &ContentBlock) -> String {
    let kind = if part.r#type.is_empty() { "something" } else { part.r#type.as_str() };
    let (uri, mime, bytes) = match &part.resource {
        Some(resource) => {
            let bytes =
                resource.text.as_ref().map(String::len).or_else(|| resource.blob.as_deref().map(decoded_len));
            (&resource.uri, &resource.mime_type, bytes)
        }
        None => (&part.uri, &part.mime_type, part.data.as_deref().map(decoded_len)),
    };
    let words: Vec<&str> = [Some(kind), uri.as_deref(), mime.as_deref()].into_iter().flatten().collect();
    let size = bytes.map(|bytes| format!(", {}", size(bytes))).unwrap_or_default();
    escape_line(&format!("[{}{size}]", words.join(" ")))
}

/// Returns the number of bytes that a base64 text encodes.
fn decoded_len(base64: &str) -> usize {
    base64.trim_end_matches('=').len() * 3 / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_printed_and_the_rest_is_named() {
        let shown = render(
            br#"{"content":[
                {"type":"text","text":"one"},
                {"type":"image","mimeType":"image/png","data":"AAAAAAA="},
                {"type":"text","text":"two\n"},
                {"type":"resource","resource":{"uri":"file:///x","mimeType":"text/plain","text":"hello"}},
                {"type":"resource_link","uri":"file:///y"},
                {"type":"hologram","voxels":[1]},
                {"type":7}
            ],"structuredContent":{"a":1}}"#,
        );
        assert_eq!(shown.text, "one\ntwo\n");
        assert_eq!(
            shown.non_text,
            [
                "[image image/png, 5 B]",
                "[resource file:///x text/plain, 5 B]",
                "[resource_link file:///y]",
                "[hologram]",
                "[something]",
            ]
        );
    }

    #[test]
    fn structured_content_speaks_where_there_is_no_other() {
        assert_eq!(
            render(br#"{"content":[],"structuredContent":{"n":9007199254740993}}"#).text,
            "{\"n\":9007199254740993}\n"
        );
        assert_eq!(render(br#"{"structuredContent":{"n":1}}"#).text, "{\"n\":1}\n");
    }

    #[test]
    fn an_empty_result_is_silence_and_a_strange_one_is_named() {
        assert_eq!(render(br#"{"content":[]}"#), RenderedContent::default());
        assert_eq!(render(br#"{"content":"x"}"#).non_text, ["[a result of an unknown shape]"]);
    }
}
