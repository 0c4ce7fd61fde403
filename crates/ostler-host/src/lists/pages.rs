//! The pages of one list, put together.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashSet;
use ostler_core::error::CallError;
use ostler_wire::{ListPage, Scope};

use super::Kind;
use crate::answer::Answer;
use crate::server::known::{Item, Known};

/// Pages of one list that are followed.
const MAX_PAGES: usize = 1_000;
/// Bytes of one list, all pages together.
const MAX_LIST: usize = 64 << 20;

/// The pages of one list, as far as they have been read.
#[derive(Debug)]
pub(super) struct Pages {
    kind: Kind,
    items: Vec<Item>,
    cursors: Vec<String>,
    /// The bytes of all pages.
    size: usize,
    /// The shortest time that any page is good for.
    ttl: Option<Duration>,
    /// Whether every page may be seen by everybody.
    is_public: bool,
    /// Names that occur twice on one page.
    repeated: HashSet<Arc<str>>,
    /// The session of the first page.
    generation: Option<u64>,
    /// Whether another session gave a later page.
    is_mixed: bool,
}

impl Pages {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            items: Vec::new(),
            cursors: Vec::new(),
            size: 0,
            ttl: None,
            is_public: true,
            repeated: HashSet::new(),
            generation: None,
            is_mixed: false,
        }
    }

    pub(super) fn is_first(&self) -> bool {
        self.cursors.is_empty()
    }

    /// Where the next page begins.
    pub(super) fn cursor(&self) -> Option<&str> {
        self.cursors.last().map(String::as_str)
    }

    /// Adds a page; true when it was the last.
    pub(super) fn add(&mut self, answer: &Answer) -> Result<bool, CallError> {
        let (server, noun) = (&answer.server, self.kind.noun());
        let complain = |detail: String| CallError::UpstreamProtocol { server: server.clone(), detail };
        self.size = self.size.saturating_add(answer.body.len());
        if self.size > MAX_LIST {
            return Err(complain(format!("its {noun} list has more than {} MiB", MAX_LIST >> 20)));
        }
        let page = ListPage::open(&answer.body, self.kind.member(), self.kind.name_member())
            .map_err(|error| complain(format!("its {noun} list can't be read: {error}")))?;
        for dropped in &page.dropped {
            tracing::warn!(%server, index = dropped.index, why = %dropped.why, "a {noun} was left out");
        }
        self.repeated.extend(page.repeated.iter().map(|name| Arc::from(name.as_str())));
        self.is_mixed |= self.generation.is_some() && self.generation != answer.generation;
        self.generation = answer.generation;
        // Definitions outlive the buffer that they were read into.
        let copies = page
            .items
            .into_iter()
            .map(|item| Item { name: item.name.into(), definition: Bytes::copy_from_slice(&item.raw) });
        self.items.extend(copies);
        let ttl = page
            .head
            .ttl_ms
            .and_then(|ms| u64::try_from(ms).ok())
            .map_or(Duration::ZERO, Duration::from_millis);
        self.ttl = Some(self.ttl.map_or(ttl, |shortest| shortest.min(ttl)));
        self.is_public &= page.head.scope == Scope::Public;
        let Some(cursor) = page.head.next_cursor else { return Ok(true) };
        if self.cursors.contains(&cursor) {
            return Err(complain(format!("its {noun} list names the same next page twice")));
        }
        self.cursors.push(cursor);
        if self.cursors.len() >= MAX_PAGES {
            return Err(complain(format!("its {noun} list has more than {MAX_PAGES} pages")));
        }
        Ok(false)
    }

    /// The whole list; of items of one name on different pages the first counts.
    pub(super) fn finish(self, is_announced: bool) -> Known {
        let (mut names, mut repeated) = (HashSet::new(), self.repeated);
        let mut items = self.items;
        items.retain(|item| {
            let is_first = names.insert(Arc::clone(&item.name));
            if !is_first {
                repeated.insert(Arc::clone(&item.name));
            }
            is_first
        });
        let generation = self.generation.unwrap_or_default();
        let mut known = Known::fresh(items, self.ttl.unwrap_or_default(), generation, is_announced);
        known.is_public = self.is_public;
        let known = known.with_repeated(repeated);
        if self.is_mixed { known.of_no_session() } else { known }
    }
}
