//! Config files of other clients: Claude Desktop and Code, Cursor, Windsurf, VS Code, Zed, Gemini. They work
//! unchanged.
//!
//! A server of such a file is translated to Ostler's keys before it is read, so that the rest of the config
//! code knows one format.

use std::collections::BTreeMap;

use super::file_context::FileContext;
use super::node::{ConfigNode, ConfigTable, ConfigValue, TableEntry};
use super::source_text::SourceSpan;
use crate::config::values::secret_literals::quote;

/// Meaning of another client's key to Ostler.
enum Meaning {
    /// No meaning: it configures the client's own UI.
    ClientUi,
    /// A feature that Ostler does not have; the operator is given an alternative.
    Unsupported(&'static str),
    /// The same as this key of Ostler.
    SameAs(&'static str),
    /// `true` disables the server.
    Disabled,
    /// `false` disables the server.
    Enabled,
    /// `stdio`, `http` and the like: checked, since `command` and `url` imply it too.
    Transport,
    /// The only tools that are exposed.
    Allow,
    /// Tools that are not exposed.
    Deny,
}

const TIMEOUT: &str =
    "it means seconds to some clients and milliseconds to others; set `callTimeout` such as \"60s\"";
const AUTH: &str = "set the `Authorization` header";

const KEYS: &[(&str, Meaning)] = &[
    ("alwaysAllow", Meaning::ClientUi),
    ("autoApprove", Meaning::ClientUi),
    ("description", Meaning::ClientUi),
    ("name", Meaning::ClientUi),
    ("title", Meaning::ClientUi),
    ("icon", Meaning::ClientUi),
    ("gallery", Meaning::ClientUi),
    ("dev", Meaning::ClientUi),
    ("source", Meaning::ClientUi),
    ("settings", Meaning::ClientUi),
    ("tags", Meaning::ClientUi),
    ("metadata", Meaning::ClientUi),
    ("version", Meaning::ClientUi),
    ("$schema", Meaning::ClientUi),
    ("comment", Meaning::ClientUi),
    ("_comment", Meaning::ClientUi),
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
    ("timeout", Meaning::Unsupported(TIMEOUT)),
    ("initTimeout", Meaning::Unsupported("set `startTimeout` such as \"20s\"")),
    ("envFile", Meaning::Unsupported("set `env` with `${NAME}` for the variables that the server needs")),
    ("oauth", Meaning::Unsupported(AUTH)),
    ("auth", Meaning::Unsupported(AUTH)),
    ("authProviderType", Meaning::Unsupported(AUTH)),
    ("sandbox", Meaning::Unsupported("put a sandbox into `command` if the server needs one")),
    ("sandboxEnabled", Meaning::Unsupported("put a sandbox into `command` if the server needs one")),
];

fn meaning(key: &str) -> Option<&'static Meaning> {
    KEYS.iter().find(|(known, _)| *known == key).map(|(_, meaning)| meaning)
}

/// Returns the hint for another client's key in Ostler's own file.
pub(crate) fn hint_for(key: &str) -> Option<String> {
    if ["mcpServers", "mcp_servers", "context_servers"].contains(&key) {
        return Some("Ostler's own files have `servers`; name the other file under `include`".into());
    }
    let hint = match meaning(key)? {
        Meaning::ClientUi => "leave it out: it is for another client's surface".to_owned(),
        Meaning::Unsupported(instead) => format!("leave it out: {}", instead.replace("Timeout", "_timeout")),
        Meaning::SameAs(ours) => format!("write `{ours}`"),
        Meaning::Disabled | Meaning::Enabled => "write `disabled = true` to have it not run".to_owned(),
        Meaning::Transport => "leave it out: `command` or `url` says it".to_owned(),
        Meaning::Allow => "write tools = { allow = [\"…\"] }".to_owned(),
        Meaning::Deny => "write tools = { deny = [\"…\"] }".to_owned(),
    };
    Some(hint)
}

/// Translates a server to Ostler's keys; `None` if its client would not start it either.
pub(crate) fn translate(
    context: &FileContext<'_>,
    path: &str,
    at: SourceSpan,
    theirs: &ConfigTable,
) -> Option<ConfigTable> {
    if is_run_by_extension(context, path, at, theirs) {
        return None;
    }
    let mut ours = ConfigTable::default();
    let (mut allow, mut deny) = (None, None);
    for entry in non_null_entries(theirs) {
        match (entry.key.as_str(), &entry.node.value) {
            // GitHub's agents write a list where Ostler has a table.
            ("tools", ConfigValue::List(_)) => allow = Some(entry),
            // Zed once wrote program, arguments and environment as one value.
            ("command", ConfigValue::Table(command)) => {
                ours.entries.extend(non_null_entries(command).map(rename_path_to_command))
            }
            (key, _) => match meaning(key) {
                Some(Meaning::ClientUi) => {}
                Some(Meaning::Disabled) if entry.node.value == ConfigValue::Flag(true) => {
                    ours.entries.push(entry.clone());
                }
                Some(Meaning::Enabled) if entry.node.value == ConfigValue::Flag(false) => {
                    let node = ConfigNode { value: ConfigValue::Flag(true), ..entry.node.clone() };
                    ours.entries.push(TableEntry { key: "disabled".to_owned(), node, ..entry.clone() });
                }
                Some(Meaning::Disabled | Meaning::Enabled) => {}
                Some(Meaning::Unsupported(instead)) => {
                    let message = format!("`{key}` of {path} is not used");
                    context.warn(entry.key_span, &format!("{path}.{key}"), message, *instead);
                }
                Some(Meaning::SameAs(key)) => {
                    ours.entries.push(TableEntry { key: (*key).to_owned(), ..entry.clone() });
                }
                Some(Meaning::Transport) => check_transport(context, path, entry),
                Some(Meaning::Allow) => allow = Some(entry),
                Some(Meaning::Deny) => deny = Some(entry),
                None => ours.entries.push(entry.clone()),
            },
        }
    }
    ours.entries.extend(tools_entry(allow, deny));
    Some(ours)
}

/// Returns the entries without null, which most clients treat as an absent key.
fn non_null_entries(table: &ConfigTable) -> impl Iterator<Item = &TableEntry> {
    table.entries.iter().filter(|entry| entry.node.value != ConfigValue::Null)
}

fn is_run_by_extension(context: &FileContext<'_>, path: &str, at: SourceSpan, theirs: &ConfigTable) -> bool {
    let is_extension = theirs.get("source").is_some_and(|entry| entry.node.as_text() == Some("extension"));
    let is_settings_only = theirs.get("settings").is_some();
    let has_target = ["command", "url", "serverUrl", "httpUrl"].iter().any(|key| theirs.get(key).is_some());
    if !has_target && (is_extension || is_settings_only) {
        let message = format!("{path} is run by an extension of its client, and left out");
        context.warn(at, path, message, "add it with a `command` if Ostler should run it");
        return true;
    }
    false
}

fn check_transport(context: &FileContext<'_>, path: &str, entry: &TableEntry) {
    let path = format!("{path}.{}", entry.key);
    match entry.node.as_text() {
        // The transport of an address is detected: Streamable HTTP, or the older SSE transport.
        Some("stdio" | "local" | "http" | "streamable-http" | "streamableHttp" | "sse" | "remote") => {}
        found => {
            let found = found.map_or_else(|| entry.node.describe(), quote);
            let message = format!("`{path}` wants \"stdio\" or \"http\", found {found}");
            context.error(entry.node.span, &path, message, "leave it out: `command` or `url` says it");
        }
    }
}

fn rename_path_to_command(entry: &TableEntry) -> TableEntry {
    let key = if entry.key == "path" { "command".to_owned() } else { entry.key.clone() };
    TableEntry { key, ..entry.clone() }
}

/// Returns the lists as Ostler's `tools` table.
fn tools_entry(allow: Option<&TableEntry>, deny: Option<&TableEntry>) -> Option<TableEntry> {
    let first = allow.or(deny)?;
    let named = |key: &str, entry: &TableEntry| TableEntry { key: key.to_owned(), ..entry.clone() };
    let lists = [allow.map(|entry| named("allow", entry)), deny.map(|entry| named("deny", entry))];
    let table = ConfigTable { entries: lists.into_iter().flatten().collect() };
    let node = ConfigNode { value: ConfigValue::Table(table), span: first.node.span };
    Some(TableEntry { key: "tools".to_owned(), key_span: first.key_span, node })
}

/// Returns the inputs that VS Code would ask its user for: their descriptions, by id.
pub(crate) fn input_descriptions(root: &ConfigTable) -> BTreeMap<String, String> {
    let inputs = root.get("inputs").or_else(|| root.get("mcp")?.node.as_table()?.get("inputs"));
    let Some(ConfigValue::List(inputs)) = inputs.map(|entry| &entry.node.value) else {
        return BTreeMap::new();
    };
    let text =
        |table: &ConfigTable, key| table.get(key).and_then(|entry| entry.node.as_text()).map(str::to_owned);
    let described = |node: &ConfigNode| {
        let table = node.as_table()?;
        Some((text(table, "id")?, text(table, "description").unwrap_or_default()))
    };
    inputs.iter().filter_map(described).collect()
}

/// Returns the table of servers in a client's file.
pub(crate) fn find_servers(root: &ConfigTable) -> Option<&TableEntry> {
    let table = |entry: &'_ TableEntry| entry.node.as_table().is_some();
    ["mcpServers", "context_servers"].iter().find_map(|key| root.get(key)).or_else(|| {
        // VS Code has `servers` in its own file and `mcp.servers` among its settings.
        let own = root.get("servers").filter(|entry| root.get("version").is_none() && table(entry));
        own.or_else(|| root.get("mcp")?.node.as_table()?.get("servers"))
    })
}
