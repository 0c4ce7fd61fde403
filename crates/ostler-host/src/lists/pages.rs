//! Pages of one list, assembled into a whole.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashSet;
use ostler_core::error::CallError;
use ostler_wire::{CacheScopeHint, ListPage};

use super::Kind;
use crate::answer::Answer;
use crate::server::server_list::{ServerItem, ServerList};

/// Bounds the pages of one list that are followed.
const MAX_PAGES: usize = 1_000;
/// Bounds the bytes of one list, all pages together.
const MAX_LIST: usize = 64 << 20;

/// The pages of one list that have been read so far.
#[derive(Debug)]
pub(super) struct Pages {
    kind: Kind,
    /// Bound on kept items.
    cap: usize,
    /// At most `cap`; no name twice.
    items: Vec<ServerItem>,
    /// Names of all items so far, kept or not.
    names: HashSet<Arc<str>>,
    /// Number of items that were not kept.
    left_out: usize,
    cursors: Vec<String>,
    /// Bytes of all pages.
    size: usize,
    /// Shortest TTL of any page.
    ttl: Option<Duration>,
    /// Set while every page is public.
    is_public: bool,
    /// Names that occur twice.
    repeated: HashSet<Arc<str>>,
    /// Session of the first page.
    generation: Option<u64>,
    /// Set if another session gave a later page.
    is_mixed: bool,
}

impl Pages {
    pub(super) fn new(kind: Kind, cap: usize) -> Self {
        Self {
            kind,
            cap,
            items: Vec::new(),
            names: HashSet::new(),
            left_out: 0,
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

    /// Returns the cursor of the next page.
    pub(super) fn cursor(&self) -> Option<&str> {
        self.cursors.last().map(String::as_str)
    }

    /// Adds a page; returns true for the last one.
    pub(super) fn add(&mut self, answer: &Answer) -> Result<bool, CallError> {
        let (server, noun) = (&answer.server, self.kind.noun());
        let complain = |detail: String| CallError::UpstreamProtocol { server: server.clone(), detail };
        self.size = self.size.saturating_add(answer.body.len());
        if self.size > MAX_LIST {
            return Err(complain(format!("its {noun} list has more than {} MiB", MAX_LIST >> 20)));
        }
        let left = self.cap - self.items.len();
        let page = ListPage::parse(&answer.body, self.kind.member(), self.kind.name_member(), left)
            .map_err(|error| complain(format!("its {noun} list can't be read: {error}")))?;
        for dropped in &page.dropped {
            tracing::warn!(%server, index = dropped.index, why = %dropped.why, "a {noun} was left out");
        }
        self.left_out += page.dropped_count + page.excess_count;
        self.repeated.extend(page.duplicate_names.iter().map(|name| Arc::from(name.as_str())));
        self.is_mixed |= self.generation.is_some() && self.generation != answer.generation;
        self.generation = answer.generation;
        for item in page.items {
            let name: Arc<str> = item.name.into();
            // Of items with one name on different pages the first counts.
            if self.names.insert(Arc::clone(&name)) {
                // Definitions outlive the buffer that they were read into.
                self.items.push(ServerItem::new(self.kind, name, Bytes::copy_from_slice(&item.raw)));
            } else {
                self.left_out += 1;
                self.repeated.insert(name);
            }
        }
        let ttl = page
            .head
            .ttl_ms
            .and_then(|ms| u64::try_from(ms).ok())
            .map_or(Duration::ZERO, Duration::from_millis);
        self.ttl = Some(self.ttl.map_or(ttl, |shortest| shortest.min(ttl)));
        self.is_public &= page.head.cache_scope == CacheScopeHint::Public;
        let Some(cursor) = page.head.next_cursor else { return Ok(true) };
        if self.items.len() >= self.cap {
            // Items of further pages would be left out anyway.
            tracing::warn!(%server, kept = self.items.len(), "the {noun} list goes on beyond the limit and was not read further");
            self.left_out += 1;
            return Ok(true);
        }
        if self.cursors.contains(&cursor) {
            return Err(complain(format!("its {noun} list names the same next page twice")));
        }
        self.cursors.push(cursor);
        if self.cursors.len() >= MAX_PAGES {
            return Err(complain(format!("its {noun} list has more than {MAX_PAGES} pages")));
        }
        Ok(false)
    }

    /// Returns the whole list.
    pub(super) fn finish(self, is_announced: bool) -> ServerList {
        let generation = self.generation.unwrap_or_default();
        let mut known = ServerList::fresh(self.items, self.ttl.unwrap_or_default(), generation, is_announced);
        (known.is_public, known.left_out) = (self.is_public, self.left_out);
        let known = known.with_repeated(self.repeated);
        if self.is_mixed { known.of_no_session() } else { known }
    }
}
