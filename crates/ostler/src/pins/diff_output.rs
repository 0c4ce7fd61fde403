//! Differences from the lock, rendered for people and programs. No text of a server can control the terminal or hide in
//! it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ostler_core::catalog::exposed_name;
use ostler_core::pins::{
    DiffSegment, Difference, DifferenceKind, FieldChange, FieldChangeKind, LockSection, field_changes,
    is_deceptive, spell_out_deceptive,
};
use ostler_core::server_name::ServerName;
use serde::Serialize;
use serde_json::Value;

use crate::failure::CommandFailure;
use crate::output::{self, Style, Tint, count, escape_line, escape_text};

/// One unapproved tool, for programs.
#[derive(Serialize)]
pub(crate) struct DiffEntry {
    server: ServerName,
    section: &'static str,
    /// The server's own name of the tool.
    tool: String,
    /// Name under which it is approved, and its exposed name.
    name: String,
    standing: &'static str,
    /// Hash that an approval writes: `ostler approve NAME@HASH`.
    hash: String,
    /// True if the server lists the tool more than once.
    repeated: bool,
    /// Changes of a changed tool, with invisible characters escaped.
    changes: Vec<DiffChange>,
    /// Approved definition.
    old: Option<Value>,
    /// Offered definition; a string if it is not JSON with one meaning.
    new: Option<Value>,
}

#[derive(Serialize)]
struct DiffChange {
    pointer: String,
    what: &'static str,
    /// `[-gone-]{+come+}`
    text: String,
}

impl DiffEntry {
    pub(crate) fn new(server: &ServerName, difference: &Difference, repeated: bool) -> Self {
        let shown = |standing, changes, old, new| Self {
            server: server.clone(),
            section: difference.section.key(),
            name: item_name(server, difference.section, &difference.name),
            tool: difference.name.clone(),
            standing,
            hash: difference.hash().short(),
            repeated,
            changes,
            old,
            new,
        };
        match &difference.kind {
            DifferenceKind::Changed { old, new } => {
                let found = field_changes(old, new).iter().map(DiffChange::from_change).collect();
                shown("changed", found, Some(value(old)), Some(value(new)))
            }
            DifferenceKind::New { new } => shown("new", Vec::new(), None, Some(value(new))),
            DifferenceKind::Removed { old } => shown("removed", Vec::new(), Some(value(old)), None),
        }
    }
}

impl DiffChange {
    fn from_change(change: &FieldChange) -> Self {
        let plain = Style::plain();
        let (what, text) = match &change.kind {
            FieldChangeKind::Added(text) => ("added", mark_added(text, plain)),
            FieldChangeKind::Removed(text) => ("removed", mark_removed(text, plain)),
            FieldChangeKind::Reworded(pieces) => ("reworded", render_pieces(pieces, plain)),
            FieldChangeKind::Replaced { old, new } => {
                ("replaced", mark_removed(old, plain) + &mark_added(new, plain))
            }
        };
        Self { pointer: change.pointer.clone(), what, text }
    }
}

fn value(definition: &[u8]) -> Value {
    serde_json::from_slice(definition)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(definition).into_owned()))
}

/// Renders one difference for people: the item, and everything to read before approving it.
pub(crate) fn render(server: &ServerName, difference: &Difference, style: Style) -> String {
    let name =
        style.paint(Tint::Heading, &escape_line(&item_name(server, difference.section, &difference.name)));
    let hash = style.paint(Tint::Faint, &format!("@{}", difference.hash().short()));
    let mut text = String::new();
    // Writing into a string can't fail.
    let _ = match &difference.kind {
        DifferenceKind::Changed { old, new } => {
            let _ = writeln!(text, "{name} {} {hash}", style.paint(Tint::Warning, "has changed"));
            field_changes(old, new)
                .iter()
                .try_for_each(|change| write!(text, "{}", render_change(change, style)))
        }
        DifferenceKind::New { new } => {
            let _ = writeln!(text, "{name} {} {hash}", style.paint(Tint::Warning, "is new"));
            let pretty = serde_json::to_string_pretty(&value(new)).unwrap_or_default();
            write!(text, "{}", indented(&escape_text(&spell_out_deceptive(&pretty)), 2))
        }
        DifferenceKind::Removed { .. } => {
            writeln!(text, "{name} {} {hash}", style.paint(Tint::Warning, "is gone"))
        }
    };
    text
}

fn render_change(change: &FieldChange, style: Style) -> String {
    let pointer = if change.pointer.is_empty() { "/" } else { &change.pointer };
    let text = match &change.kind {
        FieldChangeKind::Added(text) => mark_added(text, style),
        FieldChangeKind::Removed(text) => mark_removed(text, style),
        FieldChangeKind::Reworded(pieces) => render_pieces(pieces, style),
        FieldChangeKind::Replaced { old, new } => {
            format!("{}{}", mark_removed(old, style), mark_added(new, style))
        }
    };
    format!("  {}\n{}", style.paint(Tint::Label, &escape_line(pointer)), indented(&text, 4))
}

fn render_pieces(pieces: &[DiffSegment], style: Style) -> String {
    let piece = |piece: &DiffSegment| match piece {
        DiffSegment::Same(text) => escape_text(text),
        DiffSegment::Removed(text) => mark_removed(text, style),
        DiffSegment::Added(text) => mark_added(text, style),
    };
    pieces.iter().map(piece).collect()
}

/// Marks removed text by colour where there is any, else by brackets.
fn mark_removed(text: &str, style: Style) -> String {
    match style.has_colours() {
        true => style.paint(Tint::Removed, &escape_text(text)),
        false => format!("[-{}-]", escape_text(text)),
    }
}

fn mark_added(text: &str, style: Style) -> String {
    match style.has_colours() {
        true => style.paint(Tint::Added, &escape_text(text)),
        false => format!("{{+{}+}}", escape_text(text)),
    }
}

/// Indents text that is escaped already, and may be painted.
fn indented(text: &str, by: usize) -> String {
    text.lines().map(|line| format!("{:by$}{line}\n", "")).collect()
}

/// `1 changed, 2 new`
pub(crate) fn count_differences(differences: &[Difference]) -> String {
    let number = |is: fn(&Difference) -> bool| differences.iter().filter(|it| is(it)).count();
    let kinds = [
        (number(|it| matches!(it.kind, DifferenceKind::Changed { .. })), "changed"),
        (number(|it| matches!(it.kind, DifferenceKind::New { .. })), "new"),
        (number(|it| matches!(it.kind, DifferenceKind::Removed { .. })), "removed"),
    ];
    let words =
        kinds.iter().filter(|(number, _)| *number > 0).map(|(number, word)| format!("{number} {word}"));
    words.collect::<Vec<_>>().join(", ")
}

/// `instructions, 1 tool, 2 prompts`
pub(crate) fn count_items(sections: impl Iterator<Item = LockSection>) -> String {
    let mut counts: BTreeMap<LockSection, usize> = BTreeMap::new();
    sections.for_each(|section| *counts.entry(section).or_default() += 1);
    let words = counts.into_iter().map(|(section, number)| match section {
        LockSection::Instructions => section.noun().to_owned(),
        _ => count(number, section.noun()),
    });
    let words = words.collect::<Vec<_>>().join(", ");
    if words.is_empty() { "nothing".into() } else { words }
}

/// Returns the name under which an item is approved: `git__log`, `git/prompt:review`, `git/instructions`.
pub(crate) fn item_name(server: &ServerName, section: LockSection, name: &str) -> String {
    match section {
        LockSection::Tools => exposed_name(server, name),
        LockSection::Instructions => format!("{server}/{}", section.noun()),
        _ => format!("{server}/{}:{name}", section.noun()),
    }
}

/// Prints JSON with visible characters only: control and invisible characters are escaped, which means the same to a
/// program.
pub(crate) fn print_json(shown: &impl Serialize) -> Result<(), CommandFailure> {
    let text = serde_json::to_string_pretty(shown).map_err(|error| CommandFailure::Output(error.into()))?;
    let mut safe = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        match c != '\n' && is_deceptive(c) {
            true => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                // Writing into a string can't fail.
                let _ = write!(safe, "\\u{unit:04x}");
            }),
            false => safe.push(c),
        }
    }
    output::print(&(safe + "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(old: &str, new: &str) -> Difference {
        let definition =
            |text: &str| serde_json::json!({"name": "t", "description": text}).to_string().into();
        let what = DifferenceKind::Changed { old: definition(old), new: definition(new) };
        Difference { section: LockSection::Tools, name: "t".into(), kind: what }
    }

    #[test]
    fn a_terminal_shows_colours_and_nothing_of_the_servers_own() {
        let server = ServerName::new("a").unwrap();
        let difference = changed("good", "\u{1b}]0;gotcha\u{7}\u{9b}2J bad\u{202e}");
        let text = render(&server, &difference, Style::painted());
        let own = [
            "\u{1b}[1m",
            "\u{1b}[2m",
            "\u{1b}[33m",
            "\u{1b}[36m",
            "\u{1b}[9;31m",
            "\u{1b}[4;32m",
            "\u{1b}[0m",
        ];
        let rest = own.iter().fold(text.clone(), |text, code| text.replace(code, ""));
        assert!(own.iter().all(|code| text.contains(code)), "{text:?}");
        assert!(rest.chars().all(|c| c == '\n' || !is_deceptive(c)), "{rest:?}");
        assert!(rest.contains("U+001B") && rest.contains("U+202E"), "{rest}");
    }

    #[test]
    fn without_colours_brackets_say_what_is_gone_and_what_has_come() {
        let server = ServerName::new("a").unwrap();
        let text = render(&server, &changed("sends a mail", "sends a letter"), Style::plain());
        let (head, text) = text.split_once('\n').unwrap();
        assert!(head.starts_with("a__t has changed @") && head.len() == 34, "{head}");
        assert_eq!(text, "  /description\n    sends a [-mail-]{+letter+}\n");
        let what = DifferenceKind::New { new: r#"{"name":"t\u200b"}"#.into() };
        let new = Difference { section: LockSection::Tools, name: "t\u{200b}".into(), kind: what };
        let text = render(&server, &new, Style::plain());
        assert!(text.contains("ZERO WIDTH SPACE") && !text.contains('\u{200b}'), "{text}");
    }
}
