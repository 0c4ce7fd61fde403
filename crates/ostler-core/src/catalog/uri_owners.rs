//! Owners of URIs: resources and templates of all servers, with one owner for each URI that several servers
//! claim.
//!
//! No text of a server makes it the owner:
//!
//! 1. A server for which the resource or template is pinned comes before one for which it is not.
//! 2. Of servers that list the URI, and of servers that have a template for it, one that had it in its first list
//!    comes before one that added it later.
//! 3. Otherwise the order of registration decides, which is that of the config when a daemon starts. The same holds
//!    between a listing and a template, but a template that was added later takes no listed URI.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::uri_template;
use crate::server_name::ServerName;

/// The known resources and templates of all servers.
#[derive(Debug, Default)]
pub struct ResourceTable {
    resources: ClaimTable,
    templates: ClaimTable,
    /// Grows with every table, so that later additions have a later number.
    generation: u64,
}

/// The items of one server for a new table.
#[derive(Debug)]
pub struct ServerClaims {
    /// The server.
    pub server: ServerName,
    /// Each URI or template, and whether it is pinned; `None` while the server has not listed any. The server
    /// then keeps its earlier items, so that one that is being replaced loses nothing to another.
    pub items: Option<Vec<(Arc<str>, bool)>>,
}

/// A URI that a server lists and another one owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShadowedUri<'a> {
    /// The URI or template.
    pub uri: &'a str,
    /// The server whose item is hidden.
    pub server: &'a ServerName,
    /// The server that is asked instead.
    pub owner: &'a ServerName,
}

/// The servers that claim one URI.
#[derive(Debug)]
pub struct Claimants<'a> {
    listed: &'a [UriClaim],
    /// The templates that match the URI.
    by_template: Vec<(&'a str, &'a UriClaim)>,
}

/// One list of every server, by URI or template.
#[derive(Debug, Default)]
struct ClaimTable {
    by_uri: HashMap<Arc<str>, Vec<UriClaim>>,
    /// The servers that have listed, now or in an earlier table.
    listed: HashSet<ServerName>,
}

/// One server's claim of one URI or template.
#[derive(Debug)]
struct UriClaim {
    order: ClaimOrder,
    server: ServerName,
}

/// Claims of the same URI, the owner's first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ClaimOrder {
    is_unpinned: bool,
    /// The generation in which the server added it; 0 if it was in the server's first list.
    added: u64,
    rank: usize,
}

impl ResourceTable {
    /// Builds the table from these lists, each in the order in which servers were registered. `before` tells
    /// which items a server has added since.
    pub fn new(before: &Self, resources: Vec<ServerClaims>, templates: Vec<ServerClaims>) -> Self {
        let generation = before.generation + 1;
        Self {
            resources: ClaimTable::new(&before.resources, resources, generation),
            templates: ClaimTable::new(&before.templates, templates, generation),
            generation,
        }
    }

    /// Finds the servers that list a URI or have a template that matches it. Each template is compared once.
    pub fn claimants(&self, uri: &str) -> Claimants<'_> {
        let fitting =
            self.templates.by_uri.iter().filter(|(template, _)| uri_template::matches(template, uri));
        let by_template =
            fitting.flat_map(|(template, claims)| claims.iter().map(move |claim| (&**template, claim)));
        Claimants { listed: self.resources.claims_on(uri), by_template: by_template.collect() }
    }

    /// Returns the owner of a template, as it is written.
    pub fn owner_of_template(
        &self,
        template: &str,
        may: impl Fn(&ServerName) -> bool,
    ) -> Option<&ServerName> {
        self.templates.owner(template, may)
    }

    /// Returns the owner of a URI among the servers that list it.
    pub fn owner_of_listed(&self, uri: &str, may: impl Fn(&ServerName) -> bool) -> Option<&ServerName> {
        self.resources.owner(uri, may)
    }

    /// Returns whether a server has listed its resources and its templates.
    pub fn has_listed(&self, server: &ServerName) -> bool {
        self.resources.listed.contains(server) && self.templates.listed.contains(server)
    }

    /// Returns the items that two servers list under the same URI or template, with the first of them as
    /// owner.
    pub fn shadowed(&self) -> impl Iterator<Item = ShadowedUri<'_>> {
        let lists = self.resources.by_uri.iter().chain(&self.templates.by_uri);
        lists.flat_map(|(uri, claims)| {
            let owner = claims.first();
            let others = claims.iter().skip(1);
            others.filter_map(move |other| {
                Some(ShadowedUri { uri, server: &other.server, owner: &owner?.server })
            })
        })
    }
}

impl<'a> Claimants<'a> {
    /// Returns the owner of the URI. `may` selects the servers that count, and is called once for each.
    pub fn owner(&self, may: impl Fn(&ServerName) -> bool) -> Option<&'a ServerName> {
        let mut allowed = self.servers();
        allowed.retain(|server| may(server));
        let may = |server: &ServerName| allowed.contains(server);
        let listed = self.listed.iter().find(|claim| may(&claim.server));
        let Some(listed) = listed else { return self.owner_by_template(|server, _| may(server)) };
        let is_early = |claim: &&UriClaim| claim.order.added == 0 || !claim.order.is_unpinned;
        let templates = self.by_template.iter().map(|(_, claim)| *claim);
        let templates = templates.filter(is_early).filter(|claim| may(&claim.server));
        let by_rank = |claim: &&UriClaim| (claim.order.is_unpinned, claim.order.rank);
        templates.chain([listed]).min_by_key(by_rank).map(|claim| &claim.server)
    }

    /// Returns the owner of the URI among the servers that have a template for it. `may` selects the servers
    /// and templates that count.
    pub fn owner_by_template(&self, may: impl Fn(&ServerName, &str) -> bool) -> Option<&'a ServerName> {
        let templates = self.by_template.iter().filter(|(template, claim)| may(&claim.server, template));
        templates.min_by_key(|(_, claim)| claim.order).map(|(_, claim)| &claim.server)
    }

    /// Returns every server that claims the URI.
    pub fn servers(&self) -> BTreeSet<&'a ServerName> {
        let templates = self.by_template.iter().map(|(_, claim)| *claim);
        self.listed.iter().chain(templates).map(|claim| &claim.server).collect()
    }
}

impl ClaimTable {
    fn new(before: &Self, lists: Vec<ServerClaims>, generation: u64) -> Self {
        let mut claims = Self::default();
        for (rank, ServerClaims { server, items }) in lists.into_iter().enumerate() {
            let has_listed = before.listed.contains(&server);
            let Some(items) = items.or_else(|| has_listed.then(|| before.server_items(&server))) else {
                continue;
            };
            for (uri, is_pinned) in items {
                let known = before.claims_on(&uri).iter().find(|claim| claim.server == server);
                let added = match known {
                    Some(claim) => claim.order.added,
                    None if has_listed => generation,
                    None => 0,
                };
                let order = ClaimOrder { is_unpinned: !is_pinned, added, rank };
                claims.by_uri.entry(uri).or_default().push(UriClaim { order, server: server.clone() });
            }
            claims.listed.insert(server);
        }
        claims.by_uri.values_mut().for_each(|claims| claims.sort_by_key(|claim| claim.order));
        claims
    }

    fn server_items(&self, server: &ServerName) -> Vec<(Arc<str>, bool)> {
        let claims =
            self.by_uri.iter().flat_map(|(uri, claims)| claims.iter().map(move |claim| (uri, claim)));
        let own = claims.filter(|(_, claim)| claim.server == *server);
        own.map(|(uri, claim)| (Arc::clone(uri), !claim.order.is_unpinned)).collect()
    }

    fn owner(&self, uri: &str, may: impl Fn(&ServerName) -> bool) -> Option<&ServerName> {
        self.claims_on(uri).iter().find(|claim| may(&claim.server)).map(|claim| &claim.server)
    }

    fn claims_on(&self, uri: &str) -> &[UriClaim] {
        self.by_uri.get(uri).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn claimed(server: &str, items: Option<&[&str]>) -> ServerClaims {
        let items = items
            .map(|items| items.iter().map(|&item| (Arc::from(item), item.starts_with("pinned"))).collect());
        ServerClaims { server: ServerName::new(server).unwrap(), items }
    }

    fn owner<'a>(table: &'a ResourceTable, uri: &str) -> Option<&'a str> {
        table.claimants(uri).owner(|_| true).map(ServerName::as_str)
    }

    #[test]
    fn the_first_registered_server_owns_what_two_list_at_first() {
        let lists = vec![claimed("b", Some(&["x:1"])), claimed("a", Some(&["x:1", "x:2"]))];
        let table = ResourceTable::new(&ResourceTable::default(), lists, Vec::new());
        assert_eq!(
            (owner(&table, "x:1"), owner(&table, "x:2"), owner(&table, "x:3")),
            (Some("b"), Some("a"), None)
        );
        let (a, b) = (ServerName::new("a").unwrap(), ServerName::new("b").unwrap());
        let shadowed: Vec<_> = table.shadowed().collect();
        assert_eq!(shadowed, [ShadowedUri { uri: "x:1", server: &a, owner: &b }]);
        assert_eq!(
            table.claimants("x:1").owner(|server| *server == a),
            Some(&a),
            "the other one does not count"
        );
    }

    #[test]
    fn what_is_added_later_takes_nothing_over_even_after_more_tables() {
        let none = || Vec::new();
        let first = vec![claimed("a", Some(&["x:0"])), claimed("b", Some(&["x:1"]))];
        let mut table = ResourceTable::new(&ResourceTable::default(), first, none());
        for _ in 0..2 {
            let later = vec![claimed("a", Some(&["x:0", "x:1"])), claimed("b", Some(&["x:1"]))];
            table = ResourceTable::new(&table, later, none());
            assert_eq!(owner(&table, "x:1"), Some("b"));
        }
        let gone = vec![claimed("a", Some(&["x:1"])), claimed("b", Some(&[]))];
        let table = ResourceTable::new(&table, gone, none());
        assert_eq!(owner(&table, "x:1"), Some("a"), "alone it has it");
    }

    #[test]
    fn a_first_list_that_comes_late_counts_like_an_early_one() {
        let early = vec![claimed("a", None), claimed("b", Some(&["x:1"]))];
        let table = ResourceTable::new(&ResourceTable::default(), early, Vec::new());
        assert_eq!(owner(&table, "x:1"), Some("b"));
        let late = vec![claimed("a", Some(&["x:1"])), claimed("b", Some(&["x:1"]))];
        assert_eq!(owner(&ResourceTable::new(&table, late, Vec::new()), "x:1"), Some("a"));
    }

    #[test]
    fn a_server_that_is_being_replaced_keeps_what_it_has() {
        let both = || vec![claimed("a", Some(&["x:1"])), claimed("b", Some(&["x:1"]))];
        let table = ResourceTable::new(&ResourceTable::default(), both(), Vec::new());
        let replaced = vec![claimed("a", None), claimed("b", Some(&["x:1"]))];
        let table = ResourceTable::new(&table, replaced, Vec::new());
        assert_eq!(owner(&table, "x:1"), Some("a"));
        assert_eq!(owner(&ResourceTable::new(&table, both(), Vec::new()), "x:1"), Some("a"));
        let removed = vec![claimed("b", Some(&["x:1"]))];
        assert_eq!(owner(&ResourceTable::new(&table, removed, Vec::new()), "x:1"), Some("b"));
    }

    #[test]
    fn listing_and_templates_count_the_same() {
        let resources = || vec![claimed("a", Some(&[])), claimed("b", Some(&["x:1"]))];
        let templates = || vec![claimed("a", Some(&["x:{id}"])), claimed("b", Some(&["x:{id}"]))];
        let table = ResourceTable::new(&ResourceTable::default(), resources(), templates());
        assert_eq!(owner(&table, "x:1"), Some("a"));
        assert_eq!(table.owner_of_template("x:{id}", |_| true).map(ServerName::as_str), Some("a"));
    }

    #[test]
    fn a_template_that_is_added_later_takes_no_listed_uri_and_an_early_one_only_by_rank() {
        let lists = |a: &[&str], b: &[&str]| vec![claimed("a", Some(a)), claimed("b", Some(b))];
        let first = ResourceTable::new(&ResourceTable::default(), lists(&[], &["x:1"]), lists(&[], &[]));
        let later = ResourceTable::new(&first, lists(&[], &["x:1"]), lists(&["{+any}"], &[]));
        assert_eq!((owner(&later, "x:1"), owner(&later, "x:2")), (Some("b"), Some("a")));
        let greedy =
            ResourceTable::new(&ResourceTable::default(), lists(&["x:1"], &[]), lists(&[], &["{+any}"]));
        let grown = ResourceTable::new(&greedy, lists(&["x:1", "x:2"], &[]), lists(&[], &["{+any}"]));
        assert_eq!((owner(&grown, "x:2"), owner(&grown, "x:3")), (Some("a"), Some("b")));
    }

    #[test]
    fn a_pinned_item_comes_before_everything_else() {
        let mut lists = vec![claimed("a", Some(&["x"])), claimed("b", Some(&["x"]))];
        lists[1].items = Some(vec![("x".into(), true)]);
        assert_eq!(owner(&ResourceTable::new(&ResourceTable::default(), lists, Vec::new()), "x"), Some("b"));
    }

    #[test]
    fn a_server_with_many_templates_for_a_uri_is_one_claimant() {
        let templates: Vec<String> = (1..=64).map(|count| format!("x:{}", "{+a}".repeat(count))).collect();
        let templates: Vec<&str> = templates.iter().map(String::as_str).collect();
        let lists = vec![claimed("a", Some(&templates)), claimed("b", Some(&templates))];
        let table = ResourceTable::new(&ResourceTable::default(), Vec::new(), lists);
        let claimants = table.claimants("x:1");
        let names: Vec<_> = claimants.servers().into_iter().map(ServerName::as_str).collect();
        assert_eq!(names, ["a", "b"]);
        let asked = Cell::new(0);
        let may = |_: &ServerName| {
            asked.set(asked.get() + 1);
            false
        };
        assert_eq!((claimants.owner(may), asked.get()), (None, 2));
    }
}
