//! Where a list goes on.

use ostler_core::name::ServerName;
use ostler_host::Sealer;

const PURPOSE: &str = "cursor";

/// The last item of a page. A list that has changed meanwhile goes on behind
/// the place where that item stood, so nothing is told twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) server: ServerName,
    /// The item's own name or URI at its server.
    pub(crate) item: String,
}

impl Cursor {
    /// The text that a client gives back. It holds for one caller and one kind
    /// of list only.
    pub(crate) fn seal(&self, seal: &Sealer, principal: &str, kind: &str) -> String {
        let parts = [principal, kind, self.server.as_str(), &self.item];
        seal.seal(PURPOSE, &parts.map(str::as_bytes))
    }

    /// Reads a client's cursor; `None` if it is none of ours, or one of another list or caller.
    pub(crate) fn open(seal: &Sealer, principal: &str, kind: &str, sealed: &str) -> Option<Self> {
        let [caller, for_kind, server, item]: [Vec<u8>; 4] = seal.open(PURPOSE, sealed)?.try_into().ok()?;
        if caller != principal.as_bytes() || for_kind != kind.as_bytes() {
            return None;
        }
        let server = ServerName::new(std::str::from_utf8(&server).ok()?).ok()?;
        Some(Self { server, item: String::from_utf8(item).ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_was_and_only_from_its_caller_to_its_list() {
        let seal = Sealer::new(&[1; 32]);
        let time = ServerName::new("time").unwrap();
        let cursor = Cursor { server: time, item: "get_time".into() };
        let sealed = cursor.seal(&seal, "ada", "tools");
        assert_eq!(Cursor::open(&seal, "ada", "tools", &sealed), Some(cursor));
        assert_eq!(Cursor::open(&seal, "ada", "prompts", &sealed), None);
        assert_eq!(Cursor::open(&seal, "bob", "tools", &sealed), None);
        assert_eq!(Cursor::open(&seal, "ada", "tools", "o1.AAAA"), None);
    }
}
