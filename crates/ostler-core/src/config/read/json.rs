//! JSON to the tree; comments and trailing commas are allowed, since editors write them into their own files.

use jsonc_parser::ast::{ObjectPropName, Value as JsonValue};
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::node::{ConfigNode, ConfigTable, ConfigValue, SyntaxError, TableEntry};
use super::source_text::SourceSpan;

/// Parses JSON. The parser bounds nesting itself, so that the recursion below is bounded.
pub(crate) fn parse(text: &str) -> Result<ConfigNode, SyntaxError> {
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let parsed = parse_to_ast(text, &CollectOptions::default(), &options).map_err(|error| SyntaxError {
        message: format!("not valid JSON: {}", lower_first(&error.kind().to_string())),
        span: span(error.range()),
    })?;
    let value = parsed.value.ok_or_else(|| SyntaxError {
        message: "not valid JSON: there is nothing in the file".into(),
        span: SourceSpan::default(),
    })?;
    Ok(node(value))
}

fn node(found: JsonValue<'_>) -> ConfigNode {
    let at = span(found.range());
    let value = match found {
        JsonValue::NullKeyword(_) => ConfigValue::Null,
        JsonValue::BooleanLit(flag) => ConfigValue::Flag(flag.value),
        JsonValue::StringLit(text) => ConfigValue::Text(text.value.into_owned()),
        JsonValue::NumberLit(number) => number.value.parse().map_or_else(
            |_| ConfigValue::Float(number.value.parse().unwrap_or(f64::NAN)),
            ConfigValue::Integer,
        ),
        JsonValue::Array(list) => ConfigValue::List(list.elements.into_iter().map(node).collect()),
        JsonValue::Object(object) => {
            let entries = object.properties.into_iter().map(|property| {
                let key_at = span(property.name.range());
                let key = match property.name {
                    ObjectPropName::String(text) => text.value.into_owned(),
                    ObjectPropName::Word(word) => word.value.to_owned(),
                };
                TableEntry { key, key_span: key_at, node: node(property.value) }
            });
            ConfigValue::Table(ConfigTable { entries: entries.collect() })
        }
    };
    ConfigNode { value, span: at }
}

fn span(range: jsonc_parser::common::Range) -> SourceSpan {
    SourceSpan { start: range.start, end: range.end }
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_trailing_commas_are_welcome() {
        let text = "// hello\n{ \"a\": [1, 2.5, null,], /* b */ \"b\": \"\\u00e9\", }\n";
        let root = parse(text).unwrap();
        let table = root.as_table().unwrap();
        assert_eq!(table.get("b").unwrap().node.as_text(), Some("é"));
        let ConfigValue::List(list) = &table.get("a").unwrap().node.value else { panic!("a list") };
        let values: Vec<_> = list.iter().map(|n| n.value.clone()).collect();
        assert_eq!(values, [ConfigValue::Integer(1), ConfigValue::Float(2.5), ConfigValue::Null]);
        let at = table.get("a").unwrap().key_span;
        assert_eq!(&text[at.start..at.end], "\"a\"");
    }

    #[test]
    fn other_liberties_are_refused_with_their_place() {
        let table = [
            ("{a: 1}", 1, "not valid JSON: expected string for object property"),
            ("{'a': 1}", 1, "not valid JSON: single-quoted strings are not allowed"),
            ("{\"a\": 1 \"b\": 2}", 7, "not valid JSON: expected comma"),
            ("{\"a\": +1}", 6, "not valid JSON: unary plus on numbers is not allowed"),
            ("", 0, "not valid JSON: there is nothing in the file"),
            ("{} {}", 3, "not valid JSON: text cannot contain more than one JSON value"),
        ];
        for (text, start, message) in table {
            let error = parse(text).unwrap_err();
            assert_eq!((error.message.as_str(), error.span.start), (message, start), "{text}");
        }
    }

    #[test]
    fn repeated_keys_are_kept_for_the_reader_to_refuse() {
        let root = parse("{\"a\": 1, \"a\": 2}").unwrap();
        assert_eq!(root.as_table().unwrap().entries.len(), 2);
    }

    #[test]
    fn deep_nesting_is_refused_and_does_not_overflow() {
        for open in ["[", "{\"a\":", "[{\"a\":"] {
            assert!(parse(&open.repeat(100_000)).is_err());
            let deep = format!("{}{}", open.repeat(100), "]");
            assert!(parse(&deep).is_err());
        }
    }
}
