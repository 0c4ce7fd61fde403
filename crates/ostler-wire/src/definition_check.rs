//! Definitions of tools, prompts, resources and resource templates, judged by the schema of MCP.
//!
//! Client libraries validate a list as a whole, so one definition that the schema does not allow costs them all the
//! others. [`conform`] finds such a definition and says in which form a validating client takes it. A member that may be
//! absent is dropped if it is wrong. A member that must be there is completed where that changes no meaning. A
//! definition that the schema allows is never rewritten.
//!
//! The legacy era asks for more than the modern one (an `outputSchema` is of type `object`, a property is described by
//! an object), and for nothing less: what it allows is allowed in both.

use std::borrow::Cow;

use crate::era::Era;
use crate::json_string::{decode_string, push_string};
use crate::object::{RawKey, for_each_element, for_each_member, is_object, select_members_str};

/// The kinds of definitions that servers list.
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

/// How a definition stands to the schema of MCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conformance {
    /// The schema allows it as it is.
    Valid,
    /// The schema allows this form of it.
    Repaired {
        /// The whole definition; every member without a problem has the text that the server wrote.
        definition: Vec<u8>,
        /// The problems of the original, for people.
        problem: String,
    },
    /// No form of it can be given to a client that validates.
    Unusable {
        /// The problem, for people.
        problem: String,
    },
}

/// Containers within each other, beyond which parsers of clients run out of stack.
const MAX_DEPTH: usize = 128;

/// Digits of a number, beyond which Python's parsers refuse the whole message.
const MAX_DIGITS: usize = 1_000;

/// Problems of one definition that are named.
const MAX_PROBLEMS: usize = 4;

/// The schema of a tool that says nothing about its arguments.
const ANY_ARGUMENTS: &str = r#"{"type":"object"}"#;

/// Judges the JSON object `raw` by what clients of an era accept.
pub fn check_definition(kind: DefinitionKind, raw: &[u8], era: Era) -> Conformance {
    let unusable = |problem: &str| Conformance::Unusable { problem: problem.to_owned() };
    let Ok(text) = std::str::from_utf8(raw) else { return unusable("it is not UTF-8") };
    if let Err(problem) = check_parser_limits(text) {
        return unusable(problem);
    }
    let mut judge = DefinitionChecker { era, problems: Vec::new(), unlisted_problems: 0 };
    match judge.definition(kind, text) {
        ValueFix::Keep => Conformance::Valid,
        ValueFix::Set(form) => {
            Conformance::Repaired { definition: form.into_owned().into_bytes(), problem: judge.summary() }
        }
        ValueFix::Drop | ValueFix::Unusable => Conformance::Unusable { problem: judge.summary() },
    }
}

/// What becomes of one value.
enum ValueFix {
    Keep,
    /// It has this text instead.
    Set(Cow<'static, str>),
    /// Its member or element is left out.
    Drop,
    /// The definition can't be given to anybody.
    Unusable,
}

struct DefinitionChecker {
    era: Era,
    problems: Vec<String>,
    /// Problems beyond those that are named.
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
        self.object("", raw, required, |judge, key, value| match (kind, key) {
            (_, "title" | "description") => judge.text(key, value),
            (_, "icons") => judge.list(key, value, |judge, path, icon| judge.icon(path, icon)),
            (_, "_meta") => judge.object_member(key, value, |_, _, _, _| ValueFix::Keep),
            (Tool, "inputSchema") => judge.input_schema(value),
            (Tool, "outputSchema") => judge.output_schema(value),
            (Tool, "annotations") => judge.object_member(key, value, DefinitionChecker::tool_annotation),
            (Tool, "execution") => judge.object_member(key, value, DefinitionChecker::execution),
            (Prompt, "arguments") => judge.arguments(value),
            (Resource | ResourceTemplate, "name") => match (judge.text(key, value), &address) {
                (ValueFix::Drop, Some(address)) => ValueFix::Set(address.clone().into()),
                (verdict, _) => verdict,
            },
            (Resource | ResourceTemplate, "mimeType") => judge.text(key, value),
            (Resource | ResourceTemplate, "annotations") => {
                judge.object_member(key, value, DefinitionChecker::resource_annotation)
            }
            (Resource, "size") => judge.keep_or_drop("is not an integer", key, is_integer(value)),
            _ => ValueFix::Keep,
        })
    }

    /// Judges the schema of a tool's arguments. Arguments are always an object, so that saying so changes nothing.
    fn input_schema(&mut self, raw: &str) -> ValueFix {
        let key = "inputSchema";
        // Servers in PHP write an empty object so, and `true` allows everything.
        if is_empty_array(raw) || matches!(raw, "null" | "true") {
            self.add_problem(key, "is not an object");
            return ValueFix::Set(ANY_ARGUMENTS.into());
        }
        if !is_object(raw.as_bytes()) {
            self.add_problem(key, "is not an object");
            return ValueFix::Unusable;
        }
        self.object(key, raw, Some(("type", "\"object\"")), |judge, member, value| match member {
            "type" => judge.argument_type(value),
            "properties" => judge.properties(key, value),
            _ => judge.schema_member(key, member, value),
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

    /// Judges the schema of a tool's structured results. Only legacy clients want it to be of type `object`, and
    /// structured results of that era always are.
    fn output_schema(&mut self, raw: &str) -> ValueFix {
        let key = "outputSchema";
        if !is_object(raw.as_bytes()) {
            return self.keep_or_drop("is not an object", key, false);
        }
        if self.era == Era::Modern {
            return self.object(key, raw, None, |judge, member, value| match member {
                "$schema" => judge.schema_member(key, member, value),
                _ => ValueFix::Keep,
            });
        }
        let mut is_other = false;
        let verdict =
            self.object(key, raw, Some(("type", "\"object\"")), |judge, member, value| match member {
                "type" if decode_string(value).as_deref() != Some("object") => {
                    judge.add_problem("outputSchema.type", "is not \"object\"");
                    is_other = true;
                    ValueFix::Keep
                }
                "properties" => judge.properties(key, value),
                _ => judge.schema_member(key, member, value),
            });
        match verdict {
            ValueFix::Unusable => ValueFix::Drop,
            _ if is_other => ValueFix::Drop,
            verdict => verdict,
        }
    }

    /// Judges a member of a schema that clients look at.
    fn schema_member(&mut self, schema: &str, key: &str, raw: &str) -> ValueFix {
        let path = || format!("{schema}.{key}");
        match key {
            "$schema" => self.text(&path(), raw),
            "required" => self.list(&path(), raw, |judge, path, name| judge.text(path, name)),
            _ => ValueFix::Keep,
        }
    }

    /// Judges the properties that a schema describes.
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
        self.object(&path, raw, None, |judge, _, value| {
            let instead = match value {
                _ if is_object(value.as_bytes()) => return ValueFix::Keep,
                "true" | "false" if is_modern => return ValueFix::Keep,
                "false" => r#"{"not":{}}"#,
                _ => "{}",
            };
            judge.add_problem(&path, "describes a property by something else than an object");
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
            "audience" => self.list(path, raw, |judge, path, role| {
                judge.keep_or_drop("names no known role", path, is_one_of(role, &["user", "assistant"]))
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

    /// Judges the arguments of a prompt; nobody could give one without a name.
    fn arguments(&mut self, raw: &str) -> ValueFix {
        let key = "arguments";
        let is_nothing = raw == "null" || (is_object(raw.as_bytes()) && is_empty(raw));
        if !is_nothing && !raw.starts_with('[') {
            self.add_problem(key, "is not an array");
            return ValueFix::Unusable;
        }
        self.list(key, raw, |judge, path, argument| {
            let is_named = select_members_str(argument, &["name"])
                .is_ok_and(|[name]| name.is_some_and(|name| name.starts_with('"')));
            if !is_named {
                return judge.keep_or_drop("has an entry without a name", path, false);
            }
            judge.object(path, argument, None, |judge, key, value| match key {
                "title" | "description" => judge.text(&format!("{path}.{key}"), value),
                "required" => judge.flag(&format!("{path}.{key}"), value),
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

    /// Keeps what is fit, and notes and drops what is not.
    fn keep_or_drop(&mut self, problem: &str, path: &str, is_fit: bool) -> ValueFix {
        if is_fit {
            return ValueFix::Keep;
        }
        self.add_problem(path, problem);
        ValueFix::Drop
    }

    /// Judges a member whose value is an object, and the members of that.
    fn object_member(
        &mut self,
        key: &str,
        raw: &str,
        mut each: impl FnMut(&mut Self, &str, &str, &str) -> ValueFix,
    ) -> ValueFix {
        if !is_object(raw.as_bytes()) {
            return self.keep_or_drop("is not an object", key, false);
        }
        self.object(key, raw, None, |judge, member, value| {
            each(judge, &format!("{key}.{member}"), member, value)
        })
    }

    /// Judges the members of an object. A required one that is absent is added.
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
            let verdict = each(self, &name, value);
            found.push((key, value, verdict));
        });
        if walked.is_err() || found.iter().any(|(_, _, verdict)| matches!(verdict, ValueFix::Unusable)) {
            return ValueFix::Unusable;
        }
        if is_there && found.iter().all(|(_, _, verdict)| matches!(verdict, ValueFix::Keep)) {
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
        for (key, value, verdict) in &found {
            match verdict {
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

    /// Judges the elements of an array; wrong ones are left out.
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
        if found.iter().all(|(_, verdict)| matches!(verdict, ValueFix::Keep)) {
            return ValueFix::Keep;
        }
        let kept = found.iter().filter_map(|(element, verdict)| match verdict {
            ValueFix::Keep => Some(*element),
            ValueFix::Set(instead) => Some(&**instead),
            ValueFix::Drop | ValueFix::Unusable => None,
        });
        let kept: Vec<&str> = kept.collect();
        ValueFix::Set(format!("[{}]", kept.join(",")).into())
    }

    fn add_problem(&mut self, path: &str, problem: &str) {
        let told = format!("`{path}` {problem}");
        if self.problems.contains(&told) {
            return;
        }
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(told);
        } else {
            self.unlisted_problems += 1;
        }
    }

    fn summary(self) -> String {
        let mut told = self.problems.join(", ");
        if self.unlisted_problems > 0 {
            told.push_str(", and more");
        }
        if told.is_empty() { "it can't be read".to_owned() } else { told }
    }
}

/// The raw text of the member that addresses a resource.
fn address(raw: &str, key: &str) -> Option<String> {
    let [address] = select_members_str(raw, &[key]).ok()?;
    address.filter(|address| address.starts_with('"')).map(str::to_owned)
}

fn is_empty_array(raw: &str) -> bool {
    raw.starts_with('[') && is_empty(raw)
}

/// Whether there is nothing between the brackets of a container.
fn is_empty(raw: &str) -> bool {
    raw.get(1..raw.len() - 1).is_some_and(|inside| inside.trim_ascii().is_empty())
}

fn is_one_of(raw: &str, words: &[&str]) -> bool {
    decode_string(raw).is_some_and(|word| words.contains(&&*word))
}

/// Whether a number is whole, however it is written.
fn is_integer(raw: &str) -> bool {
    raw.parse::<f64>().is_ok_and(|number| number.is_finite() && number.fract() == 0.0)
}

/// Whether a text is `YYYY-MM-DDThh:mm:ss`, with or without a fraction, and an offset or `Z`: the only form that the
/// TypeScript SDKs take.
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

/// Numbers of two digits each, as many as are wanted.
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

/// Finds what JSON allows and parsers of clients refuse, whatever member it stands in.
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

/// The place of the quote that ends a string; `None` if an escape stands for no character.
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

/// The number of the escape `\uXXXX` at a place.
fn escape(bytes: &[u8], at: usize) -> Option<u32> {
    let written = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u32::from_str_radix(std::str::from_utf8(written).ok()?, 16).ok()
}

#[cfg(test)]
#[path = "definition_check_tests.rs"]
mod tests;
