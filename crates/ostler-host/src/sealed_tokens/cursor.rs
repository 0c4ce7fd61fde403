//! Cursors: positions in a list, sealed for one caller and one kind of list.

use ostler_core::caller::Caller;
use ostler_core::server_name::ServerName;

use super::{SealedTokens, server_name};
use crate::host::Host;
use crate::lists::Kind;

const CURSOR: &str = "cursor";

/// Last item of a page. A list that has changed meanwhile continues behind the position where that item stood, so no
/// item is sent twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// Server of the item.
    pub server: ServerName,
    /// The item's own name or URI at its server.
    pub item: String,
}

impl SealedTokens {
    fn seal_cursor(&self, caller: &Caller, kind: Kind, cursor: &Cursor) -> String {
        let parts = [caller.principal(), kind.member(), cursor.server.as_str(), &cursor.item];
        self.sealer.seal(CURSOR, &parts.map(str::as_bytes))
    }

    fn open_cursor(&self, caller: &Caller, kind: Kind, text: &str) -> Option<Cursor> {
        let [owner, member, server, item]: [Vec<u8>; 4] = self.sealer.open(CURSOR, text)?.try_into().ok()?;
        let fits = owner == caller.principal().as_bytes() && member == kind.member().as_bytes();
        let cursor = Cursor { server: server_name(&server)?, item: String::from_utf8(item).ok()? };
        fits.then_some(cursor)
    }
}

impl Host {
    /// Seals the position where a list of a caller continues.
    pub fn seal_cursor(&self, caller: &Caller, kind: Kind, cursor: &Cursor) -> String {
        self.sealed_tokens().seal_cursor(caller, kind, cursor)
    }

    /// Opens a cursor; `None` if it was not sealed here for this caller and kind.
    pub fn open_cursor(&self, caller: &Caller, kind: Kind, text: &str) -> Option<Cursor> {
        self.sealed_tokens().open_cursor(caller, kind, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_was_and_only_from_its_caller_to_its_list() {
        let seals = SealedTokens::new(&[1; 32], 1);
        let [ada, bob] = ["ada", "bob"].map(|name| Caller::new(name, "dev"));
        let cursor = Cursor { server: ServerName::new("time").unwrap(), item: "get_time".into() };
        let sealed = seals.seal_cursor(&ada, Kind::Tools, &cursor);
        assert_eq!(seals.open_cursor(&ada, Kind::Tools, &sealed), Some(cursor));
        assert_eq!(seals.open_cursor(&ada, Kind::Prompts, &sealed), None);
        assert_eq!(seals.open_cursor(&bob, Kind::Tools, &sealed), None);
        assert_eq!(seals.open_cursor(&ada, Kind::Tools, "o1.AAAA"), None);
    }
}
