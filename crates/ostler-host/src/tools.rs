//! What can be called: lists, looked up and filtered by the gates of calls.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use ostler_core::caller::Caller;
use ostler_core::catalog::exposed_name;
use ostler_core::error::CallError;
use ostler_core::fault::Delivery;
use ostler_core::name::ServerName;
use ostler_wire::{ListPage, Params};

use crate::answer::Answer;
use crate::host::Host;
use crate::request::Request;
use crate::server::Server;
use crate::server::known::{Known, Tool};
use crate::server::slot::Slot;

/// Pages of one list that are followed.
const MAX_PAGES: usize = 1_000;

/// A tool, with what the host knows of it beside the definition and not
/// inside, so that a server can't forge where its tool comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedTool {
    /// Whose tool it is.
    pub server: ServerName,
    /// The name under which it can be called among the tools of all servers.
    pub exposed: String,
    /// The server's own name and definition.
    pub tool: Tool,
}

impl Host {
    /// The tools of one server that the caller may use, in the server's order.
    pub async fn tools(&self, caller: &Caller, server: &str) -> Result<Vec<ListedTool>, CallError> {
        let server = self.visible_server(caller, server)?;
        let slot = server.slot(caller)?;
        let _in_flight = self.count_in()?;
        let known = self.current_tools(&slot, caller).await?;
        Ok(self.show(caller, &server, &known))
    }

    /// Filters a list by the rules of calls.
    pub(crate) fn show(&self, caller: &Caller, server: &Server, known: &Known) -> Vec<ListedTool> {
        let name = &server.spec.name;
        let visible =
            known.tools.iter().filter(|tool| self.may_call(caller, server, &tool.name).is_allowed());
        visible
            .map(|tool| ListedTool {
                server: name.clone(),
                exposed: exposed_name(name, &tool.name),
                tool: tool.clone(),
            })
            .collect()
    }

    /// Whether the server has the tool that is called. Only a name that is not
    /// known makes it look again, and only if there may be a newer list.
    pub(crate) async fn exists(&self, slot: &Arc<Slot>, request: &Request<'_>) -> Result<bool, CallError> {
        let Some(tool) = request.tool_name() else { return Ok(true) };
        match slot.known() {
            Some(known) if known.has(&tool) => return Ok(true),
            Some(known) if known.is_definite(slot.desk().supervisor.generation()) => return Ok(false),
            _ => {}
        }
        let known = within(request, slot, self.fetch_tools(slot, request.caller)).await?;
        Ok(known.has(&tool))
    }

    /// The error for a tool that does not exist and for one that is hidden.
    /// `known` is what was known before the call: looking for an unknown tool
    /// must not make its error better than that of a hidden one.
    pub(crate) fn unknown(&self, request: &Request<'_>, server: &Server, known: Option<&Known>) -> CallError {
        let visible = known.map(|known| self.show(request.caller, server, known)).unwrap_or_default();
        let exposed = exposed_name(&server.spec.name, &request.tool_name().unwrap_or_default());
        CallError::unknown_tool(&exposed, visible.iter().map(|listed| listed.exposed.as_str()))
    }

    /// The list, asked for again unless it is known to be good.
    pub(crate) async fn current_tools(
        &self,
        slot: &Arc<Slot>,
        caller: &Caller,
    ) -> Result<Arc<Known>, CallError> {
        let generation = slot.desk().supervisor.generation();
        match slot.known() {
            Some(known) if known.is_fresh(generation) => Ok(known),
            _ => self.fetch_tools(slot, caller).await,
        }
    }

    /// Asks the server for all pages of its list. Callers that ask at the same
    /// time share one round of requests, and its failure too.
    async fn fetch_tools(&self, slot: &Arc<Slot>, caller: &Caller) -> Result<Arc<Known>, CallError> {
        let before = slot.rounds.load(Ordering::Acquire);
        let mut listing = slot.listing.lock().await;
        if slot.rounds.load(Ordering::Acquire) != before
            && let Some(outcome) = &*listing
            && !outcome.as_ref().is_ok_and(|known| known.is_outdated())
        {
            return outcome.clone();
        }
        let outcome = self.learn_tools(slot, caller).await;
        *listing = Some(outcome.clone());
        slot.rounds.fetch_add(1, Ordering::Release);
        outcome
    }

    async fn learn_tools(&self, slot: &Arc<Slot>, caller: &Caller) -> Result<Arc<Known>, CallError> {
        let epoch = slot.epoch();
        let known = Arc::new(self.read_pages(slot, caller).await?);
        let is_news = slot.known().is_none_or(|before| before.tools != known.tools);
        slot.learn(Arc::clone(&known));
        // A change that was announced meanwhile found the list before this one.
        if slot.epoch() != epoch {
            known.outdate();
        }
        if is_news {
            self.keep_list(slot, &known);
        }
        Ok(known)
    }

    async fn read_pages(&self, slot: &Arc<Slot>, caller: &Caller) -> Result<Known, CallError> {
        let server = slot.key.server.clone();
        let mut pages = Pages::default();
        loop {
            let params = Params::list(pages.cursors.last().map(String::as_str));
            let request = Request::new(caller, server.as_str(), "tools/list", params);
            let answer = match self.perform(slot, &request).await {
                Ok(answer) => answer,
                // A server without tools says that it has no such method.
                Err(CallError::Rpc(error))
                    if error.code == ostler_wire::METHOD_NOT_FOUND && pages.is_first() =>
                {
                    return Ok(Known::fresh(
                        Vec::new(),
                        Duration::ZERO,
                        slot.desk().supervisor.generation(),
                        true,
                    ));
                }
                Err(error) => return Err(error),
            };
            if pages.add(&answer)? {
                let is_announced = slot.has_capability("tools.listChanged");
                return Ok(pages.finish(answer.generation.unwrap_or_default(), is_announced));
            }
        }
    }
}

/// The pages of one list, as far as they have been read.
#[derive(Debug, Default)]
struct Pages {
    tools: Vec<Tool>,
    cursors: Vec<String>,
    /// The shortest time that any page is good for.
    ttl: Option<Duration>,
}

impl Pages {
    fn is_first(&self) -> bool {
        self.cursors.is_empty()
    }

    /// Adds a page; true when it was the last.
    fn add(&mut self, answer: &Answer) -> Result<bool, CallError> {
        let server = &answer.server;
        let complain = |detail: String| CallError::UpstreamProtocol { server: server.clone(), detail };
        let page = ListPage::open(&answer.body, "tools", "name")
            .map_err(|error| complain(format!("its tool list can't be read: {error}")))?;
        for dropped in &page.dropped {
            tracing::warn!(%server, index = dropped.index, why = %dropped.why, "a tool was left out");
        }
        // Definitions outlive the buffer that they were read into.
        let copies = page
            .items
            .into_iter()
            .map(|item| Tool { name: item.name, definition: Bytes::copy_from_slice(&item.raw) });
        self.tools.extend(copies);
        let ttl = page
            .head
            .ttl_ms
            .and_then(|ms| u64::try_from(ms).ok())
            .map_or(Duration::ZERO, Duration::from_millis);
        self.ttl = Some(self.ttl.map_or(ttl, |shortest| shortest.min(ttl)));
        let Some(cursor) = page.head.next_cursor else { return Ok(true) };
        if self.cursors.contains(&cursor) {
            return Err(complain("its tool list names the same next page twice".into()));
        }
        self.cursors.push(cursor);
        if self.cursors.len() >= MAX_PAGES {
            return Err(complain(format!("its tool list has more than {MAX_PAGES} pages")));
        }
        Ok(false)
    }

    fn finish(self, generation: u64, is_announced: bool) -> Known {
        let mut names = std::collections::HashSet::new();
        let tools = self.tools.into_iter().filter(|tool| names.insert(tool.name.clone())).collect();
        Known::fresh(tools, self.ttl.unwrap_or_default(), generation, is_announced)
    }
}

/// Bounds what comes before a request is sent.
async fn within<T>(
    request: &Request<'_>,
    slot: &Slot,
    work: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    match request.deadline {
        Some(deadline) => match tokio::time::timeout_at(deadline, work).await {
            Ok(result) => result,
            Err(_) => Err(slot.out_of_time(request, Delivery::NotSent)),
        },
        None => work.await,
    }
}
