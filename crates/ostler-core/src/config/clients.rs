//! Other clients' files: Claude Desktop and Code, Cursor, Windsurf, VS Code,
//! Zed, Gemini. They work unchanged.
//!
//! A server as such a client writes it is translated to Ostler's keys before
//! it is read, so that nothing behind this module knows whose file it was.

use std::collections::BTreeMap;

use super::document::Span;
use super::node::{Entry, Node, Table, Value};
use super::scope::Scope;
use super::secret::quote;

/// What a key of another client means to Ostler.
enum Meaning {
    /// Nothing: it is about the client's own surface.
    Surface,
    /// Something that Ostler does not do; the operator is told what to do instead.
    Unused(&'static str),
    /// The same as this key of Ostler.
    SameAs(&'static str),
    /// `true` disables the server.
    Disabled,
    /// `false` disables the server.
    Enabled,
    /// `stdio`, `http` and their like: checked, since `command` and `url` say it too.
    Transport,
    /// Tools that exist, none but these.
    Allow,
    /// Tools that do not exist.
    Deny,
}

const TIMEOUT: &str =
    "it means seconds to some clients and milliseconds to others; set `callTimeout` such as \"60s\"";
const AUTH: &str = "set the `Authorization` header";

const KEYS: &[(&str, Meaning)] = &[
    ("alwaysAllow", Meaning::Surface),
    ("autoApprove", Meaning::Surface),
    ("description", Meaning::Surface),
    ("name", Meaning::Surface),
    ("title", Meaning::Surface),
    ("icon", Meaning::Surface),
    ("gallery", Meaning::Surface),
    ("dev", Meaning::Surface),
    ("source", Meaning::Surface),
    ("settings", Meaning::Surface),
    ("tags", Meaning::Surface),
    ("metadata", Meaning::Surface),
    ("version", Meaning::Surface),
    ("$schema", Meaning::Surface),
    ("comment", Meaning::Surface),
    ("_comment", Meaning::Surface),
    ("disabled", Meaning::Disabled),
    ("enabled", Meaning::Enabled),
    ("type", Meaning::Transport),
    ("transport", Meaning::Transport),
    ("transportType", Meaning::Transport),
    ("serverUrl", Meaning::SameAs("url")),
    ("httpUrl", Meaning::SameAs("url")),
    ("includeTools", Meaning::Allow),
    ("enabledTools", Meaning::Allow),
    ("excludeTools", Meaning::Deny),
    ("disabledTools", Meaning::Deny),
    ("timeout", Meaning::Unused(TIMEOUT)),
    ("initTimeout", Meaning::Unused("set `startTimeout` such as \"20s\"")),
    ("envFile", Meaning::Unused("set `env` with `${NAME}` for the variables that the server needs")),
    ("oauth", Meaning::Unused(AUTH)),
    ("auth", Meaning::Unused(AUTH)),
    ("authProviderType", Meaning::Unused(AUTH)),
    ("sandbox", Meaning::Unused("put a sandbox into `command` if the server needs one")),
    ("sandboxEnabled", Meaning::Unused("put a sandbox into `command` if the server needs one")),
];

fn meaning(key: &str) -> Option<&'static Meaning> {
    KEYS.iter().find(|(known, _)| *known == key).map(|(_, meaning)| meaning)
}

/// What to do about another client's key in Ostler's own file.
pub(crate) fn hint_for(key: &str) -> Option<String> {
    if ["mcpServers", "mcp_servers", "context_servers"].contains(&key) {
        return Some("Ostler's own files have `servers`; name the other file under `include`".into());
    }
    let hint = match meaning(key)? {
        Meaning::Surface => "leave it out: it is for another client's surface".to_owned(),
        Meaning::Unused(instead) => format!("leave it out: {}", instead.replace("Timeout", "_timeout")),
        Meaning::SameAs(ours) => format!("write `{ours}`"),
        Meaning::Disabled | Meaning::Enabled => "write `disabled = true` to have it not run".to_owned(),
        Meaning::Transport => "leave it out: `command` or `url` says it".to_owned(),
        Meaning::Allow => "write tools = { allow = [\"…\"] }".to_owned(),
        Meaning::Deny => "write tools = { deny = [\"…\"] }".to_owned(),
    };
    Some(hint)
}

/// A server in Ostler's keys; nothing if its client would not start it either.
pub(crate) fn translate(scope: &Scope<'_>, path: &str, at: Span, theirs: &Table) -> Option<Table> {
    if is_left_out(scope, path, at, theirs) {
        return None;
    }
    let mut ours = Table::default();
    let (mut allow, mut deny) = (None, None);
    for entry in given(theirs) {
        match (entry.key.as_str(), &entry.node.value) {
            // GitHub's agents write a list where Ostler has a table.
            ("tools", Value::List(_)) => allow = Some(entry),
            // Zed once wrote program, arguments and environment as one value.
            ("command", Value::Table(command)) => ours.entries.extend(given(command).map(renamed_program)),
            (key, _) => match meaning(key) {
                Some(Meaning::Surface) => {}
                Some(Meaning::Disabled) if entry.node.value == Value::Flag(true) => {
                    ours.entries.push(entry.clone());
                }
                Some(Meaning::Enabled) if entry.node.value == Value::Flag(false) => {
                    let node = Node { value: Value::Flag(true), ..entry.node.clone() };
                    ours.entries.push(Entry { key: "disabled".to_owned(), node, ..entry.clone() });
                }
                Some(Meaning::Disabled | Meaning::Enabled) => {}
                Some(Meaning::Unused(instead)) => {
                    let message = format!("`{key}` of {path} is not used");
                    scope.warn(entry.key_at, &format!("{path}.{key}"), message, *instead);
                }
                Some(Meaning::SameAs(key)) => {
                    ours.entries.push(Entry { key: (*key).to_owned(), ..entry.clone() });
                }
                Some(Meaning::Transport) => check_transport(scope, path, entry),
                Some(Meaning::Allow) => allow = Some(entry),
                Some(Meaning::Deny) => deny = Some(entry),
                None => ours.entries.push(entry.clone()),
            },
        }
    }
    ours.entries.extend(filter(allow, deny));
    Some(ours)
}

/// To most clients, null means that a key is not given.
fn given(table: &Table) -> impl Iterator<Item = &Entry> {
    table.entries.iter().filter(|entry| entry.node.value != Value::Null)
}

fn is_left_out(scope: &Scope<'_>, path: &str, at: Span, theirs: &Table) -> bool {
    let is_extension = theirs.get("source").is_some_and(|entry| entry.node.as_text() == Some("extension"));
    let is_settings_only = theirs.get("settings").is_some();
    let has_target = ["command", "url", "serverUrl", "httpUrl"].iter().any(|key| theirs.get(key).is_some());
    if !has_target && (is_extension || is_settings_only) {
        let message = format!("{path} is run by an extension of its client, and left out");
        scope.warn(at, path, message, "add it with a `command` if Ostler should run it");
        return true;
    }
    false
}

fn check_transport(scope: &Scope<'_>, path: &str, entry: &Entry) {
    let path = format!("{path}.{}", entry.key);
    match entry.node.as_text() {
        // How an address is spoken to is found out: Streamable HTTP, or the older SSE transport.
        Some("stdio" | "local" | "http" | "streamable-http" | "streamableHttp" | "sse" | "remote") => {}
        found => {
            let found = found.map_or_else(|| entry.node.describe(), quote);
            let message = format!("`{path}` wants \"stdio\" or \"http\", found {found}");
            scope.error(entry.node.at, &path, message, "leave it out: `command` or `url` says it");
        }
    }
}

fn renamed_program(entry: &Entry) -> Entry {
    let key = if entry.key == "path" { "command".to_owned() } else { entry.key.clone() };
    Entry { key, ..entry.clone() }
}

/// The lists as Ostler's `tools` table.
fn filter(allow: Option<&Entry>, deny: Option<&Entry>) -> Option<Entry> {
    let first = allow.or(deny)?;
    let named = |key: &str, entry: &Entry| Entry { key: key.to_owned(), ..entry.clone() };
    let lists = [allow.map(|entry| named("allow", entry)), deny.map(|entry| named("deny", entry))];
    let table = Table { entries: lists.into_iter().flatten().collect() };
    let node = Node { value: Value::Table(table), at: first.node.at };
    Some(Entry { key: "tools".to_owned(), key_at: first.key_at, node })
}

/// What VS Code would ask its user for: the description of each input, by id.
pub(crate) fn inputs(root: &Table) -> BTreeMap<String, String> {
    let inputs = root.get("inputs").or_else(|| root.get("mcp")?.node.as_table()?.get("inputs"));
    let Some(Value::List(inputs)) = inputs.map(|entry| &entry.node.value) else { return BTreeMap::new() };
    let text = |table: &Table, key| table.get(key).and_then(|entry| entry.node.as_text()).map(str::to_owned);
    let described = |node: &Node| {
        let table = node.as_table()?;
        Some((text(table, "id")?, text(table, "description").unwrap_or_default()))
    };
    inputs.iter().filter_map(described).collect()
}

/// Where in a client's file its servers stand.
pub(crate) fn servers(root: &Table) -> Option<&Entry> {
    let table = |entry: &'_ Entry| entry.node.as_table().is_some();
    ["mcpServers", "context_servers"].iter().find_map(|key| root.get(key)).or_else(|| {
        // VS Code has `servers` in its own file and `mcp.servers` among its settings.
        let own = root.get("servers").filter(|entry| root.get("version").is_none() && table(entry));
        own.or_else(|| root.get("mcp")?.node.as_table()?.get("servers"))
    })
}
