//! `tools/list`: pages, cursors and the file that changes them.

use std::fs;
use std::path::PathBuf;

use crate::catalog;
use crate::era::RequestEra;
use crate::options::{Paging, ToolListOptions};
use crate::response::{self, ErrorReply};

/// The page size for dishonest cursors without `--page-size`.
const PAGE: usize = 8;
const CURSOR: &str = "page-";

/// The file of `--change-tools` and its text at the last read.
#[derive(Debug)]
pub(crate) struct ChangeFile {
    file: Option<PathBuf>,
    last_text: String,
}

impl ChangeFile {
    pub(crate) fn new(file: Option<PathBuf>) -> Self {
        let mut changes = Self { file, last_text: String::new() };
        changes.reload();
        changes
    }

    /// Reads the file again; true when its text has changed. A missing file is an empty one.
    pub(crate) fn reload(&mut self) -> bool {
        let Some(file) = &self.file else { return false };
        let text = fs::read_to_string(file).unwrap_or_default();
        let has_changed = text != self.last_text;
        self.last_text = text;
        has_changed
    }

    /// Returns the suffix for the description of `echo`.
    pub(crate) fn description_suffix(&self) -> String {
        if self.last_text.is_empty() { String::new() } else { format!(": {}", self.last_text) }
    }
}

/// Returns the members of one page's result, after `resultType`.
pub(crate) fn page(
    listing: &ToolListOptions,
    suffix: &str,
    cursor: Option<&str>,
    era: RequestEra,
) -> Result<String, ErrorReply> {
    let tools = catalog::definitions(listing, suffix);
    let size = match (listing.page_size, listing.paging) {
        (Some(size), _) => size,
        (None, Paging::Honest) => tools.len(),
        (None, Paging::RepeatCursor | Paging::Endless) => PAGE,
    };
    let start = match cursor {
        None => 0,
        Some(cursor) => offset(cursor).ok_or_else(|| ErrorReply::bad_params("unknown cursor"))?,
    };
    let end = start.saturating_add(size);
    let shown = tools.get(start.min(tools.len())..end.min(tools.len())).unwrap_or_default().join(",");
    let next = match listing.paging {
        Paging::RepeatCursor if start > 0 => Some(start),
        Paging::Endless => Some(end),
        Paging::Honest | Paging::RepeatCursor => (end < tools.len()).then_some(end),
    };
    let next = next.map_or(String::new(), |next| format!(r#","nextCursor":"{CURSOR}{next}""#));
    let hint = response::hint_or_default(listing.ttl.as_ref(), era);
    Ok(format!(r#""tools":[{shown}]{next}{hint}"#))
}

fn offset(cursor: &str) -> Option<usize> {
    cursor.strip_prefix(CURSOR)?.parse().ok()
}
