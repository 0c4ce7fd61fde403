//! Exposed tool names: one unique name for each tool of each server.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::server_name::ServerName;

/// Longest exposed name, in bytes: clients pass names to model interfaces that refuse longer ones.
pub const MAX_EXPOSED: usize = 64;

/// Hex digits of the hash in a shortened name. Eight distinguish all tools of a server in practice; the table
/// lengthens the hash if they do not.
const SHORT_HASH: usize = 8;

/// Returns the name under which a tool is exposed: `server__tool`, shortened with a hash of the whole when it
/// is longer than [`MAX_EXPOSED`].
///
/// Characters outside `[A-Za-z0-9_.-]` are kept: some clients accept them, a replacement would be one more
/// name to know, and it could collide with a tool that really has that name.
pub fn exposed_name(server: &ServerName, tool: &str) -> String {
    let plain = plain_name(server, tool);
    if plain.len() <= MAX_EXPOSED { plain } else { hashed_name(server, tool, SHORT_HASH) }
}

fn plain_name(server: &ServerName, tool: &str) -> String {
    format!("{server}__{tool}")
}

/// Returns the beginning of the plain name, as much as fits, and `digits` of its hash.
fn hashed_name(server: &ServerName, tool: &str, digits: usize) -> String {
    let mut name = plain_name(server, tool);
    let room = MAX_EXPOSED - 1 - digits;
    name.truncate(name.floor_char_boundary(room));
    name.push('_');
    name.push_str(&hash_of(server, tool)[..digits]);
    name
}

/// Returns the hash in hex. The parts are separated by a byte that no server name holds: `a__` and `_b` must
/// not hash like `a_` and `__b`.
fn hash_of(server: &ServerName, tool: &str) -> String {
    let digest = Sha256::new().chain_update(server.as_str()).chain_update([0]).chain_update(tool).finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hash lengths that are tried in turn for names that would be equal.
const HASH_DIGITS: [usize; 3] = [8, 16, 32];

/// All exposed names and their tools.
///
/// A name depends on the set of servers and tools alone, never on the order of servers or on earlier tables.
#[derive(Debug, Clone, Default)]
pub struct ToolNameTable {
    /// Sorted by server; within one, in the server's own order.
    tools: Vec<ExposedTool>,
    /// Indexes into `tools`.
    by_exposed_name: HashMap<Arc<str>, usize>,
    /// Indexes by the servers' own names.
    by_tool: HashMap<ServerName, HashMap<Arc<str>, usize>>,
}

/// One row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExposedTool {
    /// The name under which it is called.
    pub exposed: Arc<str>,
    /// The server that has the tool.
    pub server: ServerName,
    /// The server's own name for it.
    pub tool: Arc<str>,
}

impl ToolNameTable {
    /// Names the tools of all servers. If a server lists a tool twice, the first counts.
    pub fn new(servers: impl IntoIterator<Item = (ServerName, Vec<String>)>) -> Self {
        let mut sorted: BTreeMap<ServerName, Vec<String>> = BTreeMap::new();
        for (server, tools) in servers {
            sorted.entry(server).or_default().extend(tools);
        }
        let mut candidates: Vec<NameCandidate> = Vec::new();
        for (server, tools) in sorted {
            let mut seen = HashSet::new();
            for tool in tools.into_iter().filter(|tool| seen.insert(tool.clone())) {
                candidates.push(NameCandidate::new(server.clone(), tool));
            }
        }
        disambiguate(&mut candidates);
        let tools: Vec<ExposedTool> = candidates.into_iter().map(NameCandidate::into_exposed_tool).collect();
        let by_exposed_name =
            tools.iter().enumerate().map(|(i, listed)| (Arc::clone(&listed.exposed), i)).collect();
        let mut by_tool: HashMap<ServerName, HashMap<Arc<str>, usize>> = HashMap::new();
        for (i, listed) in tools.iter().enumerate() {
            by_tool.entry(listed.server.clone()).or_default().insert(Arc::clone(&listed.tool), i);
        }
        Self { tools, by_exposed_name, by_tool }
    }

    /// Returns the name under which a tool of a server is called.
    pub fn exposed_name(&self, server: &ServerName, tool: &str) -> Option<&Arc<str>> {
        let at = *self.by_tool.get(server)?.get(tool)?;
        self.tools.get(at).map(|listed| &listed.exposed)
    }

    /// Returns the server and tool of an exposed name.
    pub fn resolve(&self, exposed: &str) -> Option<(&ServerName, &str)> {
        let listed = &self.tools[*self.by_exposed_name.get(exposed)?];
        Some((&listed.server, &listed.tool))
    }

    /// Returns all rows, sorted by server and then in the server's own order.
    pub fn iter(&self) -> impl Iterator<Item = &ExposedTool> {
        self.tools.iter()
    }

    /// Returns the number of names.
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// Returns whether there is no name.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }
}

struct NameCandidate {
    server: ServerName,
    tool: String,
    name: String,
    /// Number of steps of [`HASH_DIGITS`] taken.
    hash_step: usize,
}

impl NameCandidate {
    fn new(server: ServerName, tool: String) -> Self {
        let name = exposed_name(&server, &tool);
        Self { server, tool, name, hash_step: 0 }
    }

    /// Takes the next longer hash. Returns whether there was one.
    fn lengthen(&mut self) -> bool {
        let Some(&digits) = HASH_DIGITS.get(self.hash_step) else { return false };
        self.name = hashed_name(&self.server, &self.tool, digits);
        self.hash_step += 1;
        true
    }

    fn into_exposed_tool(self) -> ExposedTool {
        ExposedTool { exposed: self.name.into(), server: self.server, tool: self.tool.into() }
    }
}

/// Lengthens all names that are equal until each is unique. All tools that share a name give it up, since
/// keeping it for one would depend on an order. A name that is shortened anyway stays through the first
/// round, so a tool that happens to have that name gives way. Each round lengthens at least one name, so the
/// loop ends; two tools can share their last name only if 128 bits of SHA-256 collide.
fn disambiguate(candidates: &mut [NameCandidate]) {
    loop {
        let mut claims: HashMap<&str, usize> = HashMap::new();
        for candidate in candidates.iter() {
            *claims.entry(&candidate.name).or_default() += 1;
        }
        let shared: Vec<bool> =
            candidates.iter().map(|candidate| claims[candidate.name.as_str()] > 1).collect();
        let mut is_changed = false;
        for (candidate, _) in candidates.iter_mut().zip(shared).filter(|(_, is_shared)| *is_shared) {
            is_changed |= candidate.lengthen();
        }
        if !is_changed {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn time() -> ServerName {
        ServerName::new("time").unwrap()
    }

    #[test]
    fn names_that_fit_are_kept_as_they_are() {
        assert_eq!(exposed_name(&time(), "get_current_time"), "time__get_current_time");
        assert_eq!(exposed_name(&time(), "föö/bär baz"), "time__föö/bär baz");
        let longest = "x".repeat(MAX_EXPOSED - "time__".len());
        assert_eq!(exposed_name(&time(), &longest), format!("time__{longest}"));
    }

    #[test]
    fn longer_names_end_in_a_hash_that_never_changes() {
        insta::assert_snapshot!(
            exposed_name(&time(), &"x".repeat(59)),
            @"time__xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx_8904847b"
        );
        assert_ne!(exposed_name(&time(), &"x".repeat(59)), exposed_name(&time(), &"x".repeat(60)));
    }

    fn table(servers: &[(&str, &[&str])]) -> ToolNameTable {
        ToolNameTable::new(servers.iter().map(|(server, tools)| {
            (ServerName::new(server).unwrap(), tools.iter().map(|&tool| tool.to_owned()).collect())
        }))
    }

    fn meaning<'a>(table: &'a ToolNameTable, exposed: &str) -> Option<(&'a str, &'a str)> {
        table.resolve(exposed).map(|(server, tool)| (server.as_str(), tool))
    }

    #[test]
    fn a_name_means_its_server_and_tool_and_is_not_parsed() {
        let table = table(&[("time", &["now", "a__b"]), ("git", &["log"])]);
        assert_eq!(meaning(&table, "time__now"), Some(("time", "now")));
        assert_eq!(meaning(&table, "time__a__b"), Some(("time", "a__b")));
        assert_eq!(meaning(&table, "time__log"), None);
        assert_eq!(meaning(&table, "now"), None);
    }

    #[test]
    fn rows_are_sorted_by_server_and_keep_the_servers_own_order() {
        let table = table(&[("time", &["z", "a"]), ("git", &["log", "add", "log"])]);
        let names: Vec<_> = table.iter().map(|listed| &*listed.exposed).collect();
        assert_eq!(names, ["git__log", "git__add", "time__z", "time__a"]);
        let time = ServerName::new("time").unwrap();
        assert_eq!(table.exposed_name(&time, "z").map(|name| &**name), Some("time__z"));
        assert_eq!(table.exposed_name(&time, "log"), None);
    }

    #[test]
    fn all_who_would_share_a_name_get_a_hash_instead() {
        let servers: [(&str, &[&str]); 2] = [("a", &["_b", "c"]), ("a_", &["b"])];
        let table = table(&servers);
        assert_eq!(meaning(&table, "a___b"), None);
        assert_eq!(meaning(&table, "a__c"), Some(("a", "c")));
        let names: Vec<_> = table.iter().map(|listed| listed.exposed.to_string()).collect();
        for (name, expected) in names.iter().zip([("a", "_b"), ("a", "c"), ("a_", "b")]) {
            assert_eq!(meaning(&table, name), Some(expected));
        }
    }

    #[test]
    fn a_tool_that_is_called_like_anothers_hash_form_takes_nothing_over() {
        let long = "x".repeat(100);
        let time = ServerName::new("time").unwrap();
        let forged = exposed_name(&time, &long)["time__".len()..].to_owned();
        let table = table(&[("time", &[&long, &forged])]);
        assert_eq!(table.len(), 2);
        for listed in table.iter() {
            assert_eq!(meaning(&table, &listed.exposed), Some(("time", &*listed.tool)));
        }
        assert_eq!(meaning(&table, &format!("time__{forged}")), Some(("time", &*long)));
    }

    #[test]
    fn a_name_that_was_lengthened_into_another_is_lengthened_again() {
        let a = ServerName::new("a").unwrap();
        let forged = hashed_name(&a, "_b", HASH_DIGITS[0])["a__".len()..].to_owned();
        let table = table(&[("a", &["_b", &forged]), ("a_", &["b"])]);
        assert_eq!((table.len(), table.by_exposed_name.len(), table.is_empty()), (3, 3, false));
        for listed in table.iter() {
            assert_eq!(meaning(&table, &listed.exposed), Some((listed.server.as_str(), &*listed.tool)));
        }
        assert!(ToolNameTable::default().is_empty());
    }

    #[test]
    fn a_name_takes_more_of_its_hash_with_every_step_and_there_are_three() {
        let mut candidate = NameCandidate::new(ServerName::new("a").unwrap(), "b".into());
        for digits in [8, 16, 32] {
            assert!(candidate.lengthen());
            assert_eq!(candidate.name.len(), "a__b_".len() + digits);
        }
        assert!(!candidate.lengthen());
    }

    fn tools() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec("_{0,2}[ab]{0,2}(x{60})?", 0..6)
    }

    proptest! {
        #[test]
        fn an_exposed_name_fits_and_begins_with_its_server(tool in "\\PC{0,100}") {
            let name = exposed_name(&time(), &tool);
            prop_assert!(name.len() <= MAX_EXPOSED);
            prop_assert!(name.starts_with("time__"));
            prop_assert_eq!(name == format!("time__{tool}"), tool.len() + 6 <= MAX_EXPOSED);
        }

        #[test]
        fn every_tool_has_one_name_whatever_the_order_of_servers(
            servers in prop::collection::btree_map("a_?(b_)?", tools(), 0..4),
        ) {
            let lists = || servers.iter().map(|(name, tools)| (ServerName::new(name).unwrap(), tools.clone()));
            let forward = ToolNameTable::new(lists());
            let backward = ToolNameTable::new(lists().rev());
            prop_assert_eq!(&forward.tools, &backward.tools);
            let distinct: usize = servers.values().map(|tools| tools.iter().collect::<HashSet<_>>().len()).sum();
            prop_assert_eq!((forward.len(), forward.by_exposed_name.len()), (distinct, distinct));
            for listed in forward.iter() {
                prop_assert!(listed.exposed.len() <= MAX_EXPOSED);
                prop_assert_eq!(forward.resolve(&listed.exposed), Some((&listed.server, &*listed.tool)));
                prop_assert_eq!(forward.exposed_name(&listed.server, &listed.tool), Some(&listed.exposed));
            }
        }
    }
}
