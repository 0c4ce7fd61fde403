//! Looking a tool up at its server, when its headers were refused.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ostler_wire::headers::ParamHeader;
use ostler_wire::{ListPage, Outcome, Params};
use tokio::time::{Instant, timeout};

use super::marks::Marks;
use super::session::HttpSession;
use crate::upstream::{Ask, Event};

/// Pages that are looked through.
const MAX_PAGES: usize = 100;
/// Tools of one page that are looked through.
const MAX_TOOLS: usize = 10_000;
/// How long looking may take.
const PATIENCE: Duration = Duration::from_secs(20);

impl HttpSession {
    /// The headers of a tool as its server defines it now; `None` if it has no
    /// such tool. The host's list is out of date then, and is told so.
    pub(crate) async fn look_up(&self, tool: &str, marks: &Marks) -> Option<Arc<[ParamHeader]>> {
        let found = timeout(PATIENCE, self.find(tool)).await.ok().flatten()?;
        let headers = marks.replace(tool, &found);
        self.link.ear.tell(Event::ToolsChanged);
        Some(headers)
    }

    async fn find(&self, tool: &str) -> Option<Bytes> {
        let mut cursor: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let params = Params::list(cursor.as_deref());
            let ask = Ask::own("tools/list", &params, Instant::now() + PATIENCE);
            let id = self.link.calls.number();
            let Ok(Outcome::Result(list)) = self.say(&ask, id, &[]).await else { return None };
            let page = ListPage::open(&list, "tools", "name", MAX_TOOLS).ok()?;
            if let Some(item) = page.items.into_iter().find(|item| item.name == tool) {
                return Some(item.raw);
            }
            cursor = Some(page.head.next_cursor?);
        }
        None
    }
}
