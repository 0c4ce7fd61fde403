//! State that all sessions of one fixture share.

use std::sync::atomic::{AtomicBool, Ordering};

use rmcp::model::{Prompt, RequestStateCodec, RequestStateError, Tool};
use rmcp::task_manager::TaskManager;
use tokio::sync::broadcast;

use crate::catalog::FixtureCatalog;

/// The number of changes kept for a slow listener. It misses the oldest beyond them, which does no
/// harm: every change says the same.
const CHANGES_HELD: usize = 16;

/// The key of sealed states. They protect nothing, and a fixed key lets a state outlive the process
/// that sealed it, as a stateless server's must.
const STATE_KEY: &[u8] = b"the fixture seals nothing of value";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangedList {
    Tools,
    Prompts,
}

pub(crate) struct FixtureState {
    pub(crate) catalog: FixtureCatalog,
    pub(crate) tasks: TaskManager,
    pub(crate) states: RequestStateCodec,
    changes: broadcast::Sender<ChangedList>,
    has_extra_tool: AtomicBool,
    has_extra_prompt: AtomicBool,
}

impl FixtureState {
    pub(crate) fn new(catalog: FixtureCatalog) -> Result<Self, RequestStateError> {
        Ok(Self {
            catalog,
            tasks: TaskManager::new(),
            states: RequestStateCodec::try_new(STATE_KEY)?,
            changes: broadcast::Sender::new(CHANGES_HELD),
            has_extra_tool: AtomicBool::new(false),
            has_extra_prompt: AtomicBool::new(false),
        })
    }

    /// Changes a list and notifies every listener.
    pub(crate) fn toggle(&self, change: ChangedList) {
        let flag = match change {
            ChangedList::Tools => &self.has_extra_tool,
            ChangedList::Prompts => &self.has_extra_prompt,
        };
        flag.fetch_xor(true, Ordering::SeqCst);
        // A change without listeners is no failure.
        let _ = self.changes.send(change);
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<ChangedList> {
        self.changes.subscribe()
    }

    pub(crate) fn tools(&self) -> Vec<Tool> {
        let mut tools = self.catalog.tools.clone();
        if self.has_extra_tool.load(Ordering::SeqCst) {
            tools.push(self.catalog.extra_tool.clone());
        }
        tools
    }

    pub(crate) fn prompts(&self) -> Vec<Prompt> {
        let mut prompts = self.catalog.prompts.clone();
        if self.has_extra_prompt.load(Ordering::SeqCst) {
            prompts.push(self.catalog.extra_prompt.clone());
        }
        prompts
    }
}
