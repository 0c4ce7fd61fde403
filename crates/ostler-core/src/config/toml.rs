//! TOML text to the tree.

use toml_edit::{Item, TableLike, Value as TomlValue};

use super::document::Span;
use super::node::{Entry, Node, SyntaxError, Table, Value};

/// The parser bounds nesting itself, so that the recursion below is bounded.
pub(crate) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let document = toml_edit::Document::parse(text).map_err(|error| SyntaxError {
        message: format!("not valid TOML: {}", error.message()),
        at: error.span().unwrap_or_default().into(),
    })?;
    Ok(Node { value: Value::Table(table(document.as_table())), at: Span::default() })
}

fn table(table: &dyn TableLike) -> Table {
    let entries = table.iter().map(|(key, item)| {
        let key_at = table.key(key).and_then(toml_edit::Key::span).map(Span::from).unwrap_or_default();
        Entry { key: key.to_owned(), key_at, node: node(item, key_at) }
    });
    Table { entries: entries.collect() }
}

/// Tables made by dotted keys and headers stand where their key stands.
fn node(item: &Item, key_at: Span) -> Node {
    match item {
        Item::None => Node { value: Value::Null, at: key_at },
        Item::Value(found) => value(found, key_at),
        Item::Table(found) => Node { value: Value::Table(table(found)), at: key_at },
        Item::ArrayOfTables(list) => {
            let nodes = list.iter().map(|t| Node { value: Value::Table(table(t)), at: key_at });
            Node { value: Value::List(nodes.collect()), at: key_at }
        }
    }
}

fn value(found: &TomlValue, key_at: Span) -> Node {
    let at = found.span().map_or(key_at, Span::from);
    let value = match found {
        TomlValue::String(text) => Value::Text(text.value().clone()),
        TomlValue::Integer(number) => Value::Integer(*number.value()),
        TomlValue::Float(number) => Value::Float(*number.value()),
        TomlValue::Boolean(flag) => Value::Flag(*flag.value()),
        TomlValue::Datetime(_) => Value::Date,
        TomlValue::Array(list) => Value::List(list.iter().map(|found| value(found, at)).collect()),
        TomlValue::InlineTable(found) => Value::Table(table(found)),
    };
    Node { value, at }
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
        assert_eq!(&text[time.key_at.start..time.key_at.end], "time");
        let fields = time.node.as_table().unwrap();
        let command = fields.get("command").unwrap();
        assert_eq!(&text[command.node.at.start..command.node.at.end], "\"x\"");
        let max = fields.get("restart").unwrap().node.as_table().unwrap().get("max").unwrap();
        assert_eq!(&text[max.key_at.start..max.key_at.end], "max");
        let Value::List(args) = &fields.get("args").unwrap().node.value else { panic!("a list") };
        assert_eq!(&text[args[1].at.start..args[1].at.end], "true");
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
        assert_eq!((error.message.as_str(), error.at.start), ("not valid TOML: duplicate key", 6));
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
