//! TOML to the tree.

use toml_edit::{Item, TableLike, Value as TomlValue};

use super::node::{ConfigNode, ConfigTable, ConfigValue, SyntaxError, TableEntry};
use super::source_text::SourceSpan;

/// Parses TOML. The parser bounds nesting itself, so that the recursion below is bounded.
pub(crate) fn parse(text: &str) -> Result<ConfigNode, SyntaxError> {
    let document = toml_edit::Document::parse(text).map_err(|error| SyntaxError {
        message: format!("not valid TOML: {}", error.message()),
        span: error.span().unwrap_or_default().into(),
    })?;
    Ok(ConfigNode { value: ConfigValue::Table(table(document.as_table())), span: SourceSpan::default() })
}

fn table(table: &dyn TableLike) -> ConfigTable {
    let entries = table.iter().map(|(key, item)| {
        let key_at = table.key(key).and_then(toml_edit::Key::span).map(SourceSpan::from).unwrap_or_default();
        TableEntry { key: key.to_owned(), key_span: key_at, node: node(item, key_at) }
    });
    ConfigTable { entries: entries.collect() }
}

/// Converts an item. Tables made by dotted keys and headers have the location of their key.
fn node(item: &Item, key_at: SourceSpan) -> ConfigNode {
    match item {
        Item::None => ConfigNode { value: ConfigValue::Null, span: key_at },
        Item::Value(found) => value(found, key_at),
        Item::Table(found) => ConfigNode { value: ConfigValue::Table(table(found)), span: key_at },
        Item::ArrayOfTables(list) => {
            let nodes = list.iter().map(|t| ConfigNode { value: ConfigValue::Table(table(t)), span: key_at });
            ConfigNode { value: ConfigValue::List(nodes.collect()), span: key_at }
        }
    }
}

fn value(found: &TomlValue, key_at: SourceSpan) -> ConfigNode {
    let at = found.span().map_or(key_at, SourceSpan::from);
    let value = match found {
        TomlValue::String(text) => ConfigValue::Text(text.value().clone()),
        TomlValue::Integer(number) => ConfigValue::Integer(*number.value()),
        TomlValue::Float(number) => ConfigValue::Float(*number.value()),
        TomlValue::Boolean(flag) => ConfigValue::Flag(*flag.value()),
        TomlValue::Datetime(_) => ConfigValue::Date,
        TomlValue::Array(list) => ConfigValue::List(list.iter().map(|found| value(found, at)).collect()),
        TomlValue::InlineTable(found) => ConfigValue::Table(table(found)),
    };
    ConfigNode { value, span: at }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_knows_where_it_stands() {
        let text = "a = 1\n[servers.time]\ncommand = \"x\"\nrestart.max = 3\nargs = [\"y\", true]\n";
        let root = parse(text).unwrap();
        let time =
            root.as_table().unwrap().get("servers").unwrap().node.as_table().unwrap().get("time").unwrap();
        assert_eq!(&text[time.key_span.start..time.key_span.end], "time");
        let fields = time.node.as_table().unwrap();
        let command = fields.get("command").unwrap();
        assert_eq!(&text[command.node.span.start..command.node.span.end], "\"x\"");
        let max = fields.get("restart").unwrap().node.as_table().unwrap().get("max").unwrap();
        assert_eq!(&text[max.key_span.start..max.key_span.end], "max");
        let ConfigValue::List(args) = &fields.get("args").unwrap().node.value else { panic!("a list") };
        assert_eq!(&text[args[1].span.start..args[1].span.end], "true");
    }

    #[test]
    fn tables_keep_the_order_of_the_file() {
        let root = parse("[servers.b]\n[servers.a]\n[servers.c]").unwrap();
        let servers = root.as_table().unwrap().get("servers").unwrap().node.as_table().unwrap();
        let names: Vec<_> = servers.entries.iter().map(|e| e.key.as_str()).collect();
        assert_eq!(names, ["b", "a", "c"]);
    }

    #[test]
    fn a_repeated_key_is_pointed_at() {
        let error = parse("a = 1\na = 2\n").unwrap_err();
        assert_eq!((error.message.as_str(), error.span.start), ("not valid TOML: duplicate key", 6));
    }

    #[test]
    fn deep_nesting_is_refused_and_does_not_overflow() {
        for open in ["[", "a=[", "[[", "a.", "{a=", "[a.", "a={a="] {
            for text in [open.repeat(100_000), format!("a = {}", open.repeat(100_000))] {
                assert!(parse(&text).is_err(), "{open}");
            }
        }
    }
}
