//! Review findings: suspicious parts of definitions. They inform a reviewer and decide nothing.

use std::collections::BTreeSet;

use ostler_core::pins::lint::{LintFinding, LintKind, LintLevel, Linter, find_look_alikes};
use ostler_core::pins::{Difference, LockFile, LockSection};
use ostler_core::server_name::ServerName;
use serde::{Serialize, Serializer};

use super::diff_output::item_name;
use super::lock_context::OfferedDefinitions;
use crate::output::{Style, Tint, escape_line, escape_text};

/// One finding, for people and programs.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ReviewFinding {
    server: ServerName,
    #[serde(serialize_with = "key")]
    section: LockSection,
    tool: String,
    /// `alarm` occurs in attacks and hardly ever in honest servers, `notice` in both.
    level: &'static str,
    kind: &'static str,
    /// JSON pointer into the definition.
    pointer: String,
    excerpt: String,
    why: String,
}

fn key<S: Serializer>(section: &LockSection, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(section.key())
}

/// Reviewer of definitions.
#[derive(Default)]
pub(crate) struct Reviewer(Linter);

impl Reviewer {
    /// Returns the findings in the new definitions among differences.
    pub(crate) fn review_differences(
        &self,
        offered: &OfferedDefinitions,
        found: &[Difference],
        lock: &LockFile,
    ) -> Vec<ReviewFinding> {
        let new = found.iter().filter_map(|difference| {
            Some((difference.section, difference.name.as_str(), &**difference.new_definition()?))
        });
        self.inspect(offered, new.collect(), lock)
    }

    /// Returns the findings in everything that a server offers.
    pub(crate) fn review_all(&self, offered: &OfferedDefinitions, lock: &LockFile) -> Vec<ReviewFinding> {
        self.inspect(offered, offered.definitions.items().collect(), lock)
    }

    fn inspect(
        &self,
        offered: &OfferedDefinitions,
        items: Vec<(LockSection, &str, &[u8])>,
        lock: &LockFile,
    ) -> Vec<ReviewFinding> {
        let server = &offered.server;
        let is_tool = |section: LockSection| section == LockSection::Tools;
        let tools = items.iter().filter(|(section, ..)| is_tool(*section));
        let names: BTreeSet<&str> = tools.map(|(_, name, _)| *name).collect();
        let mut found: Vec<ReviewFinding> = Vec::new();
        for (section, name, definition) in &items {
            let suspicions = self.0.lint(server.as_str(), definition);
            found.extend(suspicions.into_iter().map(|it| ReviewFinding::new(server, (*section, name), it)));
        }
        let approved = lock.servers.iter().filter(|(name, _)| *name != server);
        let others =
            approved.flat_map(|(name, it)| it.pins().map(move |(section, tool, _)| (name, section, tool)));
        let others =
            others.filter(|(_, section, _)| is_tool(*section)).map(|(name, _, tool)| (name.as_str(), tool));
        let own = offered.definitions.items().filter(|(section, ..)| is_tool(*section));
        let own = own.map(|(_, tool, _)| (server.as_str(), tool));
        let alike = find_look_alikes(others.chain(own)).into_iter().filter(|it| {
            // The server's name keeps tools of the same name on several servers apart.
            it.server == server.as_str() && names.contains(it.tool.as_str()) && it.kind != LintKind::SameName
        });
        found.extend(alike.map(|it| ReviewFinding::new(server, (LockSection::Tools, &it.tool.clone()), it)));
        found
    }
}

impl ReviewFinding {
    fn new(server: &ServerName, (section, name): (LockSection, &str), suspicion: LintFinding) -> Self {
        Self {
            server: server.clone(),
            section,
            tool: name.to_owned(),
            level: if suspicion.level == LintLevel::Alarm { "alarm" } else { "notice" },
            kind: suspicion.kind.as_str(),
            pointer: suspicion.pointer,
            excerpt: suspicion.excerpt,
            why: suspicion.why,
        }
    }

    pub(crate) fn server(&self) -> &ServerName {
        &self.server
    }

    pub(crate) fn section(&self) -> LockSection {
        self.section
    }

    /// Returns the name under which the item is approved.
    pub(crate) fn name(&self) -> String {
        item_name(&self.server, self.section, &self.tool)
    }

    /// Returns the item of an alarm, which is approved only when named explicitly.
    pub(crate) fn alarm_item(&self) -> Option<(LockSection, &str)> {
        (self.level == "alarm").then_some((self.section, self.tool.as_str()))
    }

    /// Renders two lines: the pointer with the reason, and the text itself.
    pub(crate) fn render(&self, style: Style) -> String {
        let tint = if self.level == "alarm" { Tint::Error } else { Tint::Warning };
        let name = escape_line(&self.name());
        let pointer =
            if self.pointer.is_empty() { String::new() } else { format!(" {}", escape_line(&self.pointer)) };
        let level = style.paint(tint, &format!("{}:", self.level));
        let mut text = format!("{level} {name}{pointer} {}\n", escape_line(&self.why));
        if !self.excerpt.is_empty() {
            text.push_str(&format!("  {}\n", escape_text(&self.excerpt).replace('\n', "\\n")));
        }
        text
    }
}
