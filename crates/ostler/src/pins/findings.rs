//! What a reviewer should look at: pointed at, never decided by.

use std::collections::BTreeSet;

use ostler_core::catalog::exposed_name;
use ostler_core::name::ServerName;
use ostler_core::pins::suspect::{Inspector, Kind, Level, Suspicion, look_alikes};
use ostler_core::pins::{Difference, Lock};
use serde::Serialize;

use super::desk::Offered;
use crate::output::{Style, Tint, clean, tame};

/// One thing to look at, for people and programs.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Finding {
    server: ServerName,
    tool: String,
    /// `alarm` is seen in attacks and hardly ever in honest servers, `notice` in both.
    level: &'static str,
    kind: &'static str,
    /// Where in the definition, as a JSON pointer.
    pointer: String,
    excerpt: String,
    why: String,
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
        let new = found.iter().filter_map(|difference| match difference {
            Difference::Changed { tool, new, .. } | Difference::New { tool, new } => {
                Some((tool.as_str(), &**new))
            }
            Difference::Removed { .. } => None,
        });
        self.look(offered, new.collect(), lock)
    }

    /// What there is to see in everything that a server offers.
    pub(crate) fn of_everything(&self, offered: &Offered, lock: &Lock) -> Vec<Finding> {
        let tools = offered.definitions.tools.iter().map(|tool| (tool.name.as_str(), &*tool.definition));
        self.look(offered, tools.collect(), lock)
    }

    fn look(&self, offered: &Offered, tools: Vec<(&str, &[u8])>, lock: &Lock) -> Vec<Finding> {
        let server = &offered.server;
        let names: BTreeSet<&str> = tools.iter().map(|(name, _)| *name).collect();
        let mut found: Vec<Finding> = Vec::new();
        for (tool, definition) in &tools {
            let suspicions = self.0.inspect(server.as_str(), definition);
            found.extend(suspicions.into_iter().map(|it| Finding::new(server, tool, it)));
        }
        let approved = lock.servers.iter().filter(|(name, _)| *name != server);
        let others =
            approved.flat_map(|(name, it)| it.tools.keys().map(|tool| (name.as_str(), tool.as_str())));
        let own = offered.definitions.tools.iter().map(|tool| (server.as_str(), tool.name.as_str()));
        let alike = look_alikes(others.chain(own)).into_iter().filter(|it| {
            // The name of the server tells tools of one name apart wherever they are shown.
            it.server == server.as_str() && names.contains(it.tool.as_str()) && it.kind != Kind::SameName
        });
        found.extend(alike.map(|it| Finding::new(server, &it.tool.clone(), it)));
        found
    }
}

impl Finding {
    fn new(server: &ServerName, tool: &str, suspicion: Suspicion) -> Self {
        Self {
            server: server.clone(),
            tool: tool.to_owned(),
            level: if suspicion.level == Level::Alarm { "alarm" } else { "notice" },
            kind: suspicion.kind.word(),
            pointer: suspicion.pointer,
            excerpt: suspicion.excerpt,
            why: suspicion.why,
        }
    }

    /// Two lines: where and why, and the place itself.
    pub(crate) fn render(&self, style: Style) -> String {
        let tint = if self.level == "alarm" { Tint::Bad } else { Tint::Doubtful };
        let name = clean(&exposed_name(&self.server, &self.tool));
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
