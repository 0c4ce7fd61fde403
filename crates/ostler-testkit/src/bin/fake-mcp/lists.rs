//! `tools/list`: pages, cursors and the file that changes them.

use std::fs;
use std::path::PathBuf;

use crate::catalog;
use crate::era::Era;
use crate::reply::{self, Refusal};
use crate::script::{Listing, Paging};

/// The page size when the script wants dishonest cursors and names none.
const PAGE: usize = 8;
const CURSOR: &str = "page-";

/// The file of `--change-tools` and the text it held when last looked at.
#[derive(Debug)]
pub(crate) struct Changes {
    file: Option<PathBuf>,
    seen: String,
}

impl Changes {
    pub(crate) fn new(file: Option<PathBuf>) -> Self {
        let mut changes = Self { file, seen: String::new() };
        changes.look();
        changes
    }

    /// Reads the file again; true when its text differs from the last time. A missing file is an empty one.
    pub(crate) fn look(&mut self) -> bool {
        let Some(file) = &self.file else { return false };
        let text = fs::read_to_string(file).unwrap_or_default();
        let has_changed = text != self.seen;
        self.seen = text;
        has_changed
    }

    /// What the description of `echo` gets appended.
    pub(crate) fn suffix(&self) -> String {
        if self.seen.is_empty() { String::new() } else { format!(": {}", self.seen) }
    }
}

/// The members of one page's result, after `resultType`.
pub(crate) fn page(
    listing: &Listing,
    suffix: &str,
    cursor: Option<&str>,
    era: Era,
) -> Result<String, Refusal> {
    let tools = catalog::definitions(listing, suffix);
    let size = match (listing.page_size, listing.paging) {
        (Some(size), _) => size,
        (None, Paging::Honest) => tools.len(),
        (None, Paging::RepeatCursor | Paging::Endless) => PAGE,
    };
    let start = match cursor {
        None => 0,
        Some(cursor) => offset(cursor).ok_or_else(|| Refusal::bad_params("unknown cursor"))?,
    };
    let end = start.saturating_add(size);
    let shown = tools.get(start.min(tools.len())..end.min(tools.len())).unwrap_or_default().join(",");
    let next = match listing.paging {
        Paging::RepeatCursor if start > 0 => Some(start),
        Paging::Endless => Some(end),
        Paging::Honest | Paging::RepeatCursor => (end < tools.len()).then_some(end),
    };
    let next = next.map_or(String::new(), |next| format!(r#","nextCursor":"{CURSOR}{next}""#));
    let hint = reply::hint_or_default(listing.ttl.as_ref(), era);
    Ok(format!(r#""tools":[{shown}]{next}{hint}"#))
}

fn offset(cursor: &str) -> Option<usize> {
    cursor.strip_prefix(CURSOR)?.parse().ok()
}
