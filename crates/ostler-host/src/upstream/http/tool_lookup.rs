//! Tool lookup: fetches a tool's definition after the server refused its headers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ostler_wire::headers::ParamHeader;
use ostler_wire::{ListPage, Params, RpcOutcome};
use tokio::time::{Instant, timeout};

use super::param_headers::ParamHeaderCache;
use super::session::HttpSession;
use crate::upstream::{ServerNotification, UpstreamRequest};

/// Upper bound on the pages that are searched.
const MAX_PAGES: usize = 100;
/// Upper bound on the tools of one page that are searched.
const MAX_TOOLS: usize = 10_000;
/// Timeout of the lookup.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(20);

impl HttpSession {
    /// Returns the headers of a tool as its server defines it now; `None` if it has no such tool. Marks the host's
    /// list as stale.
    pub(crate) async fn refresh_tool_headers(
        &self,
        tool: &str,
        marks: &ParamHeaderCache,
    ) -> Option<Arc<[ParamHeader]>> {
        let found = timeout(LOOKUP_TIMEOUT, self.find_tool(tool)).await.ok().flatten()?;
        let headers = marks.replace(tool, &found);
        self.state.server_messages.emit(ServerNotification::ToolsChanged);
        Some(headers)
    }

    async fn find_tool(&self, tool: &str) -> Option<Bytes> {
        let mut cursor: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let params = Params::list(cursor.as_deref());
            let ask = UpstreamRequest::from_host("tools/list", &params, Instant::now() + LOOKUP_TIMEOUT);
            let id = self.state.pending_calls.next_id();
            let Ok(RpcOutcome::Result(list)) = self.send_once(&ask, id, &[]).await else { return None };
            let page = ListPage::parse(&list, "tools", "name", MAX_TOOLS).ok()?;
            if let Some(item) = page.items.into_iter().find(|item| item.name == tool) {
                return Some(item.raw);
            }
            cursor = Some(page.head.next_cursor?);
        }
        None
    }
}
