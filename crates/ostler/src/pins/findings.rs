//! What a reviewer should look at: pointed at, never decided by.

use std::collections::BTreeSet;

use ostler_core::name::ServerName;
use ostler_core::pins::suspect::{Inspector, Kind, Level, Suspicion, look_alikes};
use ostler_core::pins::{Difference, Lock, Section};
use serde::{Serialize, Serializer};

use super::desk::Offered;
use super::show::item_name;
use crate::output::{Style, Tint, clean, tame};

/// One thing to look at, for people and programs.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Finding {
    server: ServerName,
    #[serde(serialize_with = "key")]
    section: Section,
    tool: String,
    /// `alarm` is seen in attacks and hardly ever in honest servers, `notice` in both.
    level: &'static str,
    kind: &'static str,
    /// Where in the definition, as a JSON pointer.
    pointer: String,
    excerpt: String,
    why: String,
}

fn key<S: Serializer>(section: &Section, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(section.key())
}

/// Looks through definitions.
#[derive(Default)]
pub(crate) struct Reviewer(Inspector);

impl Reviewer {
    /// What there is to see in the new definitions among differences.
    pub(crate) fn of_differences(
        &self,
        offered: &Offered,
        found: &[Difference],
        lock: &Lock,
    ) -> Vec<Finding> {
        let new = found.iter().filter_map(|difference| {
            Some((difference.section, difference.name.as_str(), &**difference.new_definition()?))
        });
        self.look(offered, new.collect(), lock)
    }

    /// What there is to see in everything that a server offers.
    pub(crate) fn of_everything(&self, offered: &Offered, lock: &Lock) -> Vec<Finding> {
        self.look(offered, offered.definitions.items().collect(), lock)
    }

    fn look(&self, offered: &Offered, items: Vec<(Section, &str, &[u8])>, lock: &Lock) -> Vec<Finding> {
        let server = &offered.server;
        let is_tool = |section: Section| section == Section::Tools;
        let tools = items.iter().filter(|(section, ..)| is_tool(*section));
        let names: BTreeSet<&str> = tools.map(|(_, name, _)| *name).collect();
        let mut found: Vec<Finding> = Vec::new();
        for (section, name, definition) in &items {
            let suspicions = self.0.inspect(server.as_str(), definition);
            found.extend(suspicions.into_iter().map(|it| Finding::new(server, (*section, name), it)));
        }
        let approved = lock.servers.iter().filter(|(name, _)| *name != server);
        let others =
            approved.flat_map(|(name, it)| it.pins().map(move |(section, tool, _)| (name, section, tool)));
        let others =
            others.filter(|(_, section, _)| is_tool(*section)).map(|(name, _, tool)| (name.as_str(), tool));
        let own = offered.definitions.items().filter(|(section, ..)| is_tool(*section));
        let own = own.map(|(_, tool, _)| (server.as_str(), tool));
        let alike = look_alikes(others.chain(own)).into_iter().filter(|it| {
            // The name of the server tells tools of one name apart wherever they are shown.
            it.server == server.as_str() && names.contains(it.tool.as_str()) && it.kind != Kind::SameName
        });
        found.extend(alike.map(|it| Finding::new(server, (Section::Tools, &it.tool.clone()), it)));
        found
    }
}

impl Finding {
    fn new(server: &ServerName, (section, name): (Section, &str), suspicion: Suspicion) -> Self {
        Self {
            server: server.clone(),
            section,
            tool: name.to_owned(),
            level: if suspicion.level == Level::Alarm { "alarm" } else { "notice" },
            kind: suspicion.kind.word(),
            pointer: suspicion.pointer,
            excerpt: suspicion.excerpt,
            why: suspicion.why,
        }
    }

    pub(crate) fn server(&self) -> &ServerName {
        &self.server
    }

    pub(crate) fn section(&self) -> Section {
        self.section
    }

    /// The name under which the item is approved.
    pub(crate) fn name(&self) -> String {
        item_name(&self.server, self.section, &self.tool)
    }

    /// The item of an alarm, which is approved only on purpose.
    pub(crate) fn alarming(&self) -> Option<(Section, &str)> {
        (self.level == "alarm").then_some((self.section, self.tool.as_str()))
    }

    /// Two lines: where and why, and the place itself.
    pub(crate) fn render(&self, style: Style) -> String {
        let tint = if self.level == "alarm" { Tint::Bad } else { Tint::Doubtful };
        let name = clean(&self.name());
        let pointer =
            if self.pointer.is_empty() { String::new() } else { format!(" {}", clean(&self.pointer)) };
        let level = style.paint(tint, &format!("{}:", self.level));
        let mut text = format!("{level} {name}{pointer} {}\n", clean(&self.why));
        if !self.excerpt.is_empty() {
            text.push_str(&format!("  {}\n", tame(&self.excerpt).replace('\n', "\\n")));
        }
        text
    }
}
