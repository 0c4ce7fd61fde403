//! Writer of lock files, in a form that is readable in a diff.
//!
//! Each member or element has its own line, so that adding a tool changes its own lines and a comma, and a
//! description has a line of its own. Deceptive characters are escaped, because a reviewer must see what a
//! model reads.

use super::deceptive::is_deceptive;
use super::json::Json;
use super::lock::{LockFile, VERSION};

impl LockFile {
    /// Returns the file's text. Equal locks have equal texts.
    pub fn write(&self) -> String {
        let mut writer = LockWriter::default();
        writer.open('{');
        writer.key("version");
        writer.out.push_str(&VERSION.to_string());
        writer.key("servers");
        writer.open('{');
        for (name, server) in &self.servers {
            writer.key(name.as_str());
            writer.open('{');
            writer.key("transport");
            writer.text(&server.transport);
            for (section, pins) in &server.sections {
                writer.key(section.key());
                writer.open('{');
                for (name, pin) in pins {
                    writer.key(name);
                    writer.open('{');
                    writer.key("sha256");
                    writer.text(&pin.hash.to_string());
                    writer.key("definition");
                    writer.definition(&pin.definition);
                    writer.close('}');
                }
                writer.close('}');
            }
            writer.close('}');
        }
        writer.close('}');
        writer.close('}');
        writer.out.push('\n');
        writer.out
    }
}

/// Builder of the text.
#[derive(Default)]
struct LockWriter {
    out: String,
    depth: usize,
    /// True if the innermost bracket has an item already.
    has_item: bool,
}

impl LockWriter {
    fn open(&mut self, bracket: char) {
        self.out.push(bracket);
        self.depth += 1;
        self.has_item = false;
    }

    fn close(&mut self, bracket: char) {
        self.depth -= 1;
        if self.has_item {
            self.new_line();
        }
        self.out.push(bracket);
        self.has_item = true;
    }

    fn new_line(&mut self) {
        self.out.push('\n');
        self.out.extend(std::iter::repeat_n("  ", self.depth));
    }

    fn item(&mut self) {
        if self.has_item {
            self.out.push(',');
        }
        self.new_line();
        self.has_item = true;
    }

    fn key(&mut self, key: &str) {
        self.item();
        self.text(key);
        self.out.push_str(": ");
    }

    /// Writes a pin's definition, which is canonical JSON. Anything else is left out, and parsing the file
    /// then reports it.
    fn definition(&mut self, definition: &[u8]) {
        let tree = std::str::from_utf8(definition).ok().and_then(|text| Json::parse(text).ok());
        self.value(&tree.unwrap_or(Json::Null));
    }

    fn value(&mut self, value: &Json) {
        match value {
            Json::Text(text) => self.text(text),
            Json::Array(items) => {
                self.open('[');
                for item in items {
                    self.item();
                    self.value(item);
                }
                self.close(']');
            }
            Json::Object(members) => {
                self.open('{');
                for (key, value) in members {
                    self.key(key);
                    self.value(value);
                }
                self.close('}');
            }
            plain => self.out.push_str(&plain.canonical()),
        }
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\t' => self.out.push_str("\\t"),
                c if is_deceptive(c) => self.escape(c),
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    fn escape(&mut self, c: char) {
        for unit in c.encode_utf16(&mut [0; 2]) {
            self.out.push_str(&format!("\\u{unit:04x}"));
        }
    }
}
