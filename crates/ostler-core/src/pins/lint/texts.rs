//! All texts of a definition: a model reads keys, defaults and enums as well as descriptions.

use crate::pins::changes::pointer;
use crate::pins::json::Json;

/// A text of a definition.
pub(super) struct DefinitionText {
    /// Its location, as a JSON pointer.
    pub(super) pointer: String,
    pub(super) text: String,
    pub(super) role: TextRole,
}

impl DefinitionText {
    /// Returns whether it is another reading of a text that is listed by itself.
    pub(super) fn is_derived(&self) -> bool {
        matches!(self.role, TextRole::Words | TextRole::Parameter)
    }

    /// Returns its share of the definition's length.
    pub(super) fn length(&self) -> usize {
        if self.is_derived() { 0 } else { self.text.len() }
    }
}

/// Role of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum TextRole {
    /// A key of an object, as it is written.
    Key,
    /// A key of an object, split into words: `readTheFile` becomes "read the file".
    Words,
    /// The description of a parameter of this name.
    Parameter,
    /// An address, a media type or a picture, which is not prose.
    Link,
    /// Any other text.
    Prose,
}

/// Returns every text, in the order of the canonical form.
pub(super) fn collect_texts(definition: &Json) -> Vec<DefinitionText> {
    let mut found = Vec::new();
    walk(definition, &mut Vec::new(), &mut found);
    found
}

fn walk(value: &Json, path: &mut Vec<String>, found: &mut Vec<DefinitionText>) {
    match value {
        Json::Text(text) => {
            found.push(DefinitionText { pointer: pointer(path), text: text.clone(), role: role(path) })
        }
        Json::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push(index.to_string());
                walk(item, path, found);
                path.pop();
            }
        }
        Json::Object(members) => {
            for (key, value) in members {
                path.push(key.clone());
                found.push(DefinitionText { pointer: pointer(path), text: key.clone(), role: TextRole::Key });
                found.push(DefinitionText {
                    pointer: pointer(path),
                    text: split_words(key),
                    role: TextRole::Words,
                });
                if let (Some("properties"), Some(text)) =
                    (parent(path), value.get("description").and_then(Json::text))
                {
                    let text = format!("{key}: {text}");
                    found.push(DefinitionText {
                        pointer: format!("{}/description", pointer(path)),
                        text,
                        role: TextRole::Parameter,
                    });
                }
                walk(value, path, found);
                path.pop();
            }
        }
        _ => {}
    }
}

fn parent(path: &[String]) -> Option<&str> {
    path.iter().rev().nth(1).map(String::as_str)
}

fn role(path: &[String]) -> TextRole {
    match path.last().map(String::as_str) {
        Some("$schema" | "$id" | "$ref" | "src" | "mimeType" | "pattern") => TextRole::Link,
        _ => TextRole::Prose,
    }
}

/// Returns the words of a key, separated by blanks.
fn split_words(key: &str) -> String {
    let mut out = String::with_capacity(key.len() + 8);
    let mut was_lower = false;
    for c in key.chars() {
        if c.is_uppercase() && was_lower {
            out.push(' ');
        }
        was_lower = c.is_lowercase() || c.is_ascii_digit();
        out.push(if matches!(c, '_' | '-' | '.') { ' ' } else { c });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(definition: &str) -> Vec<(String, TextRole)> {
        collect_texts(&Json::parse(definition).unwrap())
            .into_iter()
            .map(|text| (text.text, text.role))
            .collect()
    }

    #[test]
    fn a_key_is_read_as_it_is_and_by_its_words() {
        assert_eq!(split_words("readTheFile2Times.now-x_y"), "read The File2 Times now x y");
        assert_eq!(split_words("HTTPServer"), "HTTPServer");
        assert_eq!(roles(r#"{"aB":1}"#), [("aB".into(), TextRole::Key), ("a B".into(), TextRole::Words)]);
    }

    #[test]
    fn only_what_is_no_prose_is_a_link() {
        for key in ["$schema", "$id", "$ref", "src", "mimeType", "pattern"] {
            assert_eq!(role(&["x".into(), key.into()]), TextRole::Link, "{key}");
        }
        assert_eq!(role(&["src".into(), "description".into()]), TextRole::Prose);
        assert_eq!(role(&[]), TextRole::Prose);
    }

    #[test]
    fn another_reading_of_a_text_adds_nothing_to_the_length() {
        let text = |role| DefinitionText { pointer: String::new(), text: "four".into(), role };
        let lengths = [TextRole::Key, TextRole::Words, TextRole::Parameter, TextRole::Link, TextRole::Prose]
            .map(|role| text(role).length());
        assert_eq!(lengths, [4, 0, 0, 4, 4]);
    }
}
