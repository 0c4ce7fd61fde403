//! Schema check for definitions of tools, prompts, resources and resource templates.
//!
//! Client libraries validate a list as a whole, so one definition that the schema does not allow costs them
//! all the others. [`check_definition`] finds such a definition and returns a form that a validating client
//! accepts. A wrong member is dropped if it is optional. A required member is completed where that changes no
//! meaning. A definition that the schema allows is never rewritten.
//!
//! The legacy era requires more than the modern one (an `outputSchema` is of type `object`, a property is
//! described by an object) and never less: a definition that it allows is allowed in both.

use std::borrow::Cow;

use crate::era::Era;
use crate::json_string::{decode_string, push_string};
use crate::object::{RawKey, for_each_element, for_each_member, is_object, select_members_str};

/// Kinds of definitions that servers list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefinitionKind {
    /// A tool.
    Tool,
    /// A prompt.
    Prompt,
    /// A resource.
    Resource,
    /// A resource template.
    ResourceTemplate,
}

/// Result of checking a definition against the schema of MCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conformance {
    /// The schema allows the definition as it is.
    Valid,
    /// The schema allows this repaired form.
    Repaired {
        /// The whole definition; every member without a problem keeps the server's text.
        definition: Vec<u8>,
        /// The problems of the original, for people.
        problem: String,
    },
    /// No form of the definition is acceptable to a validating client.
    Unusable {
        /// The problem, for people.
        problem: String,
    },
}

/// Nesting limit: deeper values overflow the stack of some clients' parsers.
const MAX_DEPTH: usize = 128;

/// Digit limit of a number: Python's parsers refuse a message with a longer one.
const MAX_DIGITS: usize = 1_000;

/// Problems of one definition that are listed; the rest is counted.
const MAX_PROBLEMS: usize = 4;

/// Schema of a tool that does not describe its arguments.
const ANY_ARGUMENTS: &str = r#"{"type":"object"}"#;

/// Checks the JSON object `raw` against the schema of an era.
pub fn check_definition(kind: DefinitionKind, raw: &[u8], era: Era) -> Conformance {
    let unusable = |problem: &str| Conformance::Unusable { problem: problem.to_owned() };
    let Ok(text) = std::str::from_utf8(raw) else { return unusable("it is not UTF-8") };
    if let Err(problem) = check_parser_limits(text) {
        return unusable(problem);
    }
    let mut checker = DefinitionChecker { era, problems: Vec::new(), unlisted_problems: 0 };
    match checker.definition(kind, text) {
        ValueFix::Keep => Conformance::Valid,
        ValueFix::Set(form) => {
            Conformance::Repaired { definition: form.into_owned().into_bytes(), problem: checker.summary() }
        }
        ValueFix::Drop | ValueFix::Unusable => Conformance::Unusable { problem: checker.summary() },
    }
}

/// Repair of one value.
enum ValueFix {
    Keep,
    /// Replace the value with this text.
    Set(Cow<'static, str>),
    /// Drop the member or element.
    Drop,
    /// Reject the whole definition.
    Unusable,
}

struct DefinitionChecker {
    era: Era,
    problems: Vec<String>,
    /// Number of problems beyond those that are listed.
    unlisted_problems: usize,
}

impl DefinitionChecker {
    fn definition(&mut self, kind: DefinitionKind, raw: &str) -> ValueFix {
        use DefinitionKind::{Prompt, Resource, ResourceTemplate, Tool};
        let address = match kind {
            Tool | Prompt => None,
            Resource => address(raw, "uri"),
            ResourceTemplate => address(raw, "uriTemplate"),
        };
        let required = match (kind, &address) {
            (Tool, _) => Some(("inputSchema", ANY_ARGUMENTS)),
            (_, Some(address)) => Some(("name", address.as_str())),
            (_, None) => None,
        };
        self.object("", raw, required, |checker, key, value| match (kind, key) {
            (_, "title" | "description") => checker.text(key, value),
            (_, "icons") => checker.list(key, value, |checker, path, icon| checker.icon(path, icon)),
            (_, "_meta") => checker.object_member(key, value, |_, _, _, _| ValueFix::Keep),
            (Tool, "inputSchema") => checker.input_schema(value),
            (Tool, "outputSchema") => checker.output_schema(value),
            (Tool, "annotations") => checker.object_member(key, value, DefinitionChecker::tool_annotation),
            (Tool, "execution") => checker.object_member(key, value, DefinitionChecker::execution),
            (Prompt, "arguments") => checker.arguments(value),
            (Resource | ResourceTemplate, "name") => match (checker.text(key, value), &address) {
                (ValueFix::Drop, Some(address)) => ValueFix::Set(address.clone().into()),
                (fix, _) => fix,
            },
            (Resource | ResourceTemplate, "mimeType") => checker.text(key, value),
            (Resource | ResourceTemplate, "annotations") => {
                checker.object_member(key, value, DefinitionChecker::resource_annotation)
            }
            (Resource, "size") => checker.keep_or_drop("is not an integer", key, is_integer(value)),
            _ => ValueFix::Keep,
        })
    }

    /// Checks the schema of a tool's arguments. Arguments are always an object, so adding that type changes
    /// nothing.
    fn input_schema(&mut self, raw: &str) -> ValueFix {
        let key = "inputSchema";
        // Servers in PHP write an empty object as `[]`, and `true` allows everything.
        if is_empty_array(raw) || matches!(raw, "null" | "true") {
            self.add_problem(key, "is not an object");
            return ValueFix::Set(ANY_ARGUMENTS.into());
        }
        if !is_object(raw.as_bytes()) {
            self.add_problem(key, "is not an object");
            return ValueFix::Unusable;
        }
        self.object(key, raw, Some(("type", "\"object\"")), |checker, member, value| match member {
            "type" => checker.argument_type(value),
            "properties" => checker.properties(key, value),
            _ => checker.schema_member(key, member, value),
        })
    }

    fn argument_type(&mut self, raw: &str) -> ValueFix {
        let is_object_name = |raw: &str| decode_string(raw).as_deref() == Some("object");
        if is_object_name(raw) {
            return ValueFix::Keep;
        }
        let mut may_be_object = raw == "null";
        for_each_element(raw, |name| may_be_object |= is_object_name(name));
        self.add_problem("inputSchema.type", "is not \"object\"");
        if may_be_object { ValueFix::Set("\"object\"".into()) } else { ValueFix::Unusable }
    }

    /// Checks the schema of a tool's structured results. Only legacy clients require the type `object`, and
    /// structured results of that era always are objects.
    fn output_schema(&mut self, raw: &str) -> ValueFix {
        let key = "outputSchema";
        if !is_object(raw.as_bytes()) {
            return self.keep_or_drop("is not an object", key, false);
        }
        if self.era == Era::Modern {
            return self.object(key, raw, None, |checker, member, value| match member {
                "$schema" => checker.schema_member(key, member, value),
                _ => ValueFix::Keep,
            });
        }
        let mut is_other = false;
        let fix =
            self.object(key, raw, Some(("type", "\"object\"")), |checker, member, value| match member {
                "type" if decode_string(value).as_deref() != Some("object") => {
                    checker.add_problem("outputSchema.type", "is not \"object\"");
                    is_other = true;
                    ValueFix::Keep
                }
                "properties" => checker.properties(key, value),
                _ => checker.schema_member(key, member, value),
            });
        match fix {
            ValueFix::Unusable => ValueFix::Drop,
            _ if is_other => ValueFix::Drop,
            fix => fix,
        }
    }

    /// Checks a member of a schema that clients read.
    fn schema_member(&mut self, schema: &str, key: &str, raw: &str) -> ValueFix {
        let path = || format!("{schema}.{key}");
        match key {
            "$schema" => self.text(&path(), raw),
            "required" => self.list(&path(), raw, |checker, path, name| checker.text(path, name)),
            _ => ValueFix::Keep,
        }
    }

    /// Checks the properties that a schema describes.
    fn properties(&mut self, schema: &str, raw: &str) -> ValueFix {
        let path = format!("{schema}.properties");
        if raw == "null" || is_empty_array(raw) {
            return self.keep_or_drop("is not an object", &path, false);
        }
        if !is_object(raw.as_bytes()) {
            self.add_problem(&path, "is not an object");
            return ValueFix::Unusable;
        }
        let is_modern = self.era == Era::Modern;
        self.object(&path, raw, None, |checker, _, value| {
            let instead = match value {
                _ if is_object(value.as_bytes()) => return ValueFix::Keep,
                "true" | "false" if is_modern => return ValueFix::Keep,
                "false" => r#"{"not":{}}"#,
                _ => "{}",
            };
            checker.add_problem(&path, "describes a property by something else than an object");
            ValueFix::Set(instead.into())
        })
    }

    fn tool_annotation(&mut self, path: &str, key: &str, raw: &str) -> ValueFix {
        match key {
            "title" => self.text(path, raw),
            "readOnlyHint" | "destructiveHint" | "idempotentHint" | "openWorldHint" => self.flag(path, raw),
            _ => ValueFix::Keep,
        }
    }

    fn execution(&mut self, path: &str, key: &str, raw: &str) -> ValueFix {
        match key {
            "taskSupport" => {
                let is_known = is_one_of(raw, &["forbidden", "optional", "required"]);
                self.keep_or_drop("is no known word", path, is_known)
            }
            _ => ValueFix::Keep,
        }
    }

    fn resource_annotation(&mut self, path: &str, key: &str, raw: &str) -> ValueFix {
        match key {
            "audience" => self.list(path, raw, |checker, path, role| {
                checker.keep_or_drop("names no known role", path, is_one_of(role, &["user", "assistant"]))
            }),
            "priority" => {
                let priority = raw.parse::<f64>().ok();
                let is_share = priority.is_some_and(|priority| (0.0..=1.0).contains(&priority));
                self.keep_or_drop("is not a number from 0 to 1", path, is_share)
            }
            "lastModified" => {
                let is_time = decode_string(raw).is_some_and(|text| is_timestamp(&text));
                self.keep_or_drop("is not a timestamp as in ISO 8601", path, is_time)
            }
            _ => ValueFix::Keep,
        }
    }

    /// Checks the arguments of a prompt. An argument without a name is dropped, because no client could pass
    /// it.
    fn arguments(&mut self, raw: &str) -> ValueFix {
        let key = "arguments";
        let is_nothing = raw == "null" || (is_object(raw.as_bytes()) && is_empty(raw));
        if !is_nothing && !raw.starts_with('[') {
            self.add_problem(key, "is not an array");
            return ValueFix::Unusable;
        }
        self.list(key, raw, |checker, path, argument| {
            let is_named = select_members_str(argument, &["name"])
                .is_ok_and(|[name]| name.is_some_and(|name| name.starts_with('"')));
            if !is_named {
                return checker.keep_or_drop("has an entry without a name", path, false);
            }
            checker.object(path, argument, None, |checker, key, value| match key {
                "title" | "description" => checker.text(&format!("{path}.{key}"), value),
                "required" => checker.flag(&format!("{path}.{key}"), value),
                _ => ValueFix::Keep,
            })
        })
    }

    fn icon(&mut self, path: &str, raw: &str) -> ValueFix {
        let is_text = |raw: &str| raw.starts_with('"');
        let is_fit = match select_members_str(raw, &["src", "mimeType", "sizes", "theme"]) {
            Ok([Some(source), kind, sizes, theme]) => {
                let mut has_sizes = true;
                let is_list = |sizes| for_each_element(sizes, |size| has_sizes &= is_text(size)).is_some();
                is_text(source)
                    && kind.is_none_or(is_text)
                    && sizes.is_none_or(is_list)
                    && has_sizes
                    && theme.is_none_or(|theme| is_one_of(theme, &["light", "dark"]))
            }
            _ => false,
        };
        self.keep_or_drop("has an entry that is no icon", path, is_fit)
    }
}

impl DefinitionChecker {
    fn text(&mut self, path: &str, raw: &str) -> ValueFix {
        self.keep_or_drop("is not a string", path, raw.starts_with('"'))
    }

    fn flag(&mut self, path: &str, raw: &str) -> ValueFix {
        self.keep_or_drop("is not a boolean", path, matches!(raw, "true" | "false"))
    }

    /// Keeps a valid member; records and drops an invalid one.
    fn keep_or_drop(&mut self, problem: &str, path: &str, is_fit: bool) -> ValueFix {
        if is_fit {
            return ValueFix::Keep;
        }
        self.add_problem(path, problem);
        ValueFix::Drop
    }

    /// Checks a member whose value is an object, and the members of that object.
    fn object_member(
        &mut self,
        key: &str,
        raw: &str,
        mut each: impl FnMut(&mut Self, &str, &str, &str) -> ValueFix,
    ) -> ValueFix {
        if !is_object(raw.as_bytes()) {
            return self.keep_or_drop("is not an object", key, false);
        }
        self.object(key, raw, None, |checker, member, value| {
            each(checker, &format!("{key}.{member}"), member, value)
        })
    }

    /// Checks the members of an object and adds required ones that are absent.
    fn object(
        &mut self,
        path: &str,
        raw: &str,
        required: Option<(&str, &str)>,
        mut each: impl FnMut(&mut Self, &str, &str) -> ValueFix,
    ) -> ValueFix {
        let mut found: Vec<(RawKey<'_>, &str, ValueFix)> = Vec::new();
        let mut is_there = required.is_none();
        let walked = for_each_member(raw, |key, value| {
            let name = key.text();
            is_there |= required.is_some_and(|(required, _)| required == name);
            let fix = each(self, &name, value);
            found.push((key, value, fix));
        });
        if walked.is_err() || found.iter().any(|(_, _, fix)| matches!(fix, ValueFix::Unusable)) {
            return ValueFix::Unusable;
        }
        if is_there && found.iter().all(|(_, _, fix)| matches!(fix, ValueFix::Keep)) {
            return ValueFix::Keep;
        }
        let mut out = String::with_capacity(raw.len() + 32);
        out.push('{');
        let mut push = |key: &str, value: &str| {
            if out.len() > 1 {
                out.push(',');
            }
            out.push_str(key);
            out.push(':');
            out.push_str(value);
        };
        for (key, value, fix) in &found {
            match fix {
                ValueFix::Keep => push(key.0, value),
                ValueFix::Set(instead) => push(key.0, instead),
                ValueFix::Drop | ValueFix::Unusable => {}
            }
        }
        if let Some((key, value)) = required.filter(|_| !is_there) {
            let mut name = Vec::new();
            push_string(&mut name, key);
            push(&String::from_utf8_lossy(&name), value);
            let path = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
            self.add_problem(&path, "is missing");
        }
        out.push('}');
        ValueFix::Set(out.into())
    }

    /// Checks the elements of an array and drops wrong ones.
    fn list(
        &mut self,
        path: &str,
        raw: &str,
        mut each: impl FnMut(&mut Self, &str, &str) -> ValueFix,
    ) -> ValueFix {
        let mut found: Vec<(&str, ValueFix)> = Vec::new();
        if for_each_element(raw, |element| found.push((element, each(self, path, element)))).is_none() {
            return self.keep_or_drop("is not an array", path, false);
        }
        if found.iter().all(|(_, fix)| matches!(fix, ValueFix::Keep)) {
            return ValueFix::Keep;
        }
        let kept = found.iter().filter_map(|(element, fix)| match fix {
            ValueFix::Keep => Some(*element),
            ValueFix::Set(instead) => Some(&**instead),
            ValueFix::Drop | ValueFix::Unusable => None,
        });
        let kept: Vec<&str> = kept.collect();
        ValueFix::Set(format!("[{}]", kept.join(",")).into())
    }

    fn add_problem(&mut self, path: &str, problem: &str) {
        let text = format!("`{path}` {problem}");
        if self.problems.contains(&text) {
            return;
        }
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(text);
        } else {
            self.unlisted_problems += 1;
        }
    }

    fn summary(self) -> String {
        let mut text = self.problems.join(", ");
        if self.unlisted_problems > 0 {
            text.push_str(", and more");
        }
        if text.is_empty() { "it can't be read".to_owned() } else { text }
    }
}

/// Returns the raw text of the member that addresses a resource.
fn address(raw: &str, key: &str) -> Option<String> {
    let [address] = select_members_str(raw, &[key]).ok()?;
    address.filter(|address| address.starts_with('"')).map(str::to_owned)
}

fn is_empty_array(raw: &str) -> bool {
    raw.starts_with('[') && is_empty(raw)
}

/// Returns whether a container is empty.
fn is_empty(raw: &str) -> bool {
    raw.get(1..raw.len() - 1).is_some_and(|inside| inside.trim_ascii().is_empty())
}

fn is_one_of(raw: &str, words: &[&str]) -> bool {
    decode_string(raw).is_some_and(|word| words.contains(&&*word))
}

/// Returns whether a number is whole, in any spelling.
fn is_integer(raw: &str) -> bool {
    raw.parse::<f64>().is_ok_and(|number| number.is_finite() && number.fract() == 0.0)
}

/// Returns whether a text is `YYYY-MM-DDThh:mm:ss`, with or without a fraction, and an offset or `Z`: the
/// only form that the TypeScript SDKs accept.
fn is_timestamp(text: &str) -> bool {
    let Some((date, time)) = text.split_once('T') else { return false };
    let is_offset = |offset: &str| matches!(numbers(offset, ':'), Some([0..=23, 0..=59]));
    let time = match time.strip_suffix('Z') {
        Some(time) => time,
        None => match time.rsplit_once(['+', '-']) {
            Some((time, offset)) if is_offset(offset) => time,
            _ => return false,
        },
    };
    let time = match time.split_once('.') {
        Some((time, fraction)) if is_digits(fraction) => time,
        Some(_) => return false,
        None => time,
    };
    let Some((year, month_and_day)) = date.split_once('-').filter(|(year, _)| year.len() == 4) else {
        return false;
    };
    let (Some(year), Some([month, day])) = (number(year), numbers(month_and_day, '-')) else { return false };
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        1..=12 => 31,
        _ => return false,
    };
    (1..=days).contains(&day) && matches!(numbers(time, ':'), Some([0..=23, 0..=59, 0..=59]))
}

/// Parses `N` numbers of two digits each, separated by `between`.
fn numbers<const N: usize>(text: &str, between: char) -> Option<[u32; N]> {
    let parts: Option<Vec<u32>> =
        text.split(between).map(|part| number(part).filter(|_| part.len() == 2)).collect();
    parts?.try_into().ok()
}

fn number(text: &str) -> Option<u32> {
    is_digits(text).then(|| text.parse().ok()).flatten()
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Rejects valid JSON that parsers of clients refuse, in any member.
fn check_parser_limits(text: &str) -> Result<(), &'static str> {
    let bytes = text.as_bytes();
    let (mut at, mut depth, mut digits) = (0, 0_usize, 0);
    while let Some(byte) = bytes.get(at) {
        digits = if byte.is_ascii_digit() { digits + 1 } else { 0 };
        match byte {
            _ if digits > MAX_DIGITS => return Err("it has a number that is too long"),
            b'{' | b'[' if depth == MAX_DEPTH => return Err("it is nested too deeply"),
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                at = find_string_end(bytes, at + 1).ok_or("it has a string with half a surrogate pair")?
            }
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

/// Returns the position of the quote that ends a string, or `None` if an escape encodes no character.
fn find_string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some(at);
        }
        at += match (bytes.get(at + 1)?, escape(bytes, at)) {
            (b'u', Some(0xd800..=0xdbff)) => {
                matches!(escape(bytes, at + 6), Some(0xdc00..=0xdfff)).then_some(12)?
            }
            (b'u', Some(0xdc00..=0xdfff)) => return None,
            (b'u', _) => 6,
            _ => 2,
        };
    }
}

/// Returns the number of the escape `\u` with four hexadecimal digits at a position.
fn escape(bytes: &[u8], at: usize) -> Option<u32> {
    let written = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u32::from_str_radix(std::str::from_utf8(written).ok()?, 16).ok()
}

#[cfg(test)]
#[path = "definition_check_tests.rs"]
mod tests;
