//! What a caller is offered, by one server or by all of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_core::catalog::Claimed;
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_core::sabotage;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Kind;
use super::fetch::Round;
use crate::happening::{Happening, What};
use crate::host::Host;
use crate::server::Server;
use crate::server::known::{Item, Known};
use crate::server::slot::Slot;
use crate::tally::Errand;

/// The longest wait for a newer list where an older one can be given.
const KNOWN_PATIENCE: Duration = Duration::from_secs(2);

/// Time for a server that came up while others were waited for to list what it offers.
const AGAIN: Duration = Duration::from_secs(1);

/// What one server offers to one caller.
#[derive(Debug, Clone)]
pub struct Offer {
    /// The server.
    pub server: ServerName,
    /// Its items, as far as the caller may use them, in the server's order.
    pub items: Vec<Item>,
    /// Why the items are the last known ones, or none.
    pub error: Option<CallError>,
    /// How much longer the server says that they are good.
    pub ttl: Duration,
    /// Whether the server says that everybody may see its list.
    pub is_public: bool,
}

impl Host {
    /// One server's list, for one caller. Where a list is known, however old,
    /// this does not fail: the error stands beside the items.
    pub async fn offer(
        &self,
        caller: &Caller,
        server: &str,
        kind: Kind,
        patience: Duration,
    ) -> Result<Offer, CallError> {
        let server = self.visible_server(caller, server)?;
        let slot = server.slot(caller)?;
        let (known, error) = self.list_within(&slot, caller, kind, patience).await;
        let error = error.map(|error| self.without_details(caller, error));
        match (known, error) {
            (Some(known), error) => Ok(self.filter(caller, &server, kind, &known).beside(error)),
            (None, Some(error)) => Err(error),
            (None, None) => Ok(nothing(&server, None)),
        }
    }

    /// Asks one server for its list. Returns why none is known, with all details: whoever is told gets it
    /// [without](Self::without_details) those that it may not read.
    pub async fn ask_for_list(
        &self,
        caller: &Caller,
        server: &str,
        kind: Kind,
        patience: Duration,
    ) -> Result<(), CallError> {
        let slot = self.visible_server(caller, server)?.slot(caller)?;
        match self.list_within(&slot, caller, kind, patience).await {
            (None, Some(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// The lists of all servers that the caller may see, sorted by server. A
    /// sleeping lazy server whose list is known is not woken. A server that has not
    /// answered after `patience`, which is one deadline for all of them, is answered
    /// for with what is known, and asked on in the background; one that is being
    /// started is not waited for where a list is known, or where its last start failed.
    pub async fn offers(&self, caller: &Caller, kind: Kind, patience: Duration) -> Vec<Offer> {
        let mut sweep = JoinSet::new();
        for server in self.visible_servers(caller) {
            let (host, caller) = (self.clone(), caller.clone());
            sweep.spawn(async move { host.offer_of(&caller, &server, kind, patience).await });
        }
        let mut offers: Vec<Offer> = Vec::new();
        while let Some(joined) = sweep.join_next().await {
            offers.extend(joined);
        }
        // Servers that came up while others were waited for have something newer to offer.
        let is_late = |offer: &Offer| offer.error.as_ref().is_some_and(CallError::is_start_under_way);
        let late: Vec<ServerName> =
            offers.iter().filter(|offer| is_late(offer)).map(|offer| offer.server.clone()).collect();
        let mut again = JoinSet::new();
        for server in late.iter().filter_map(|name| self.server(name.as_str()).ok()) {
            if server.existing_slot(caller).is_some_and(|slot| slot.live().is_some()) {
                let (host, caller) = (self.clone(), caller.clone());
                again.spawn(async move { host.offer_of(&caller, &server, kind, patience.min(AGAIN)).await });
            }
        }
        while let Some(joined) = again.join_next().await {
            let Some(newer) = joined.ok().filter(|newer| newer.error.is_none()) else { continue };
            offers.retain(|offer| offer.server != newer.server);
            offers.push(newer);
        }
        offers.sort_by(|a: &Offer, b| a.server.cmp(&b.server));
        offers
    }

    async fn offer_of(&self, caller: &Caller, server: &Server, kind: Kind, patience: Duration) -> Offer {
        let slot = match server.slot(caller) {
            Ok(slot) => slot,
            Err(error) => return nothing(server, Some(error)),
        };
        if let Some(known) = self.list_of_sleeper(&slot, caller, kind).await {
            return self.filter(caller, server, kind, &known);
        }
        let (known, error) = self.list_within(&slot, caller, kind, patience).await;
        let error = error.map(|error| self.without_details(caller, error));
        match known {
            Some(known) => self.filter(caller, server, kind, &known).beside(error),
            None => nothing(server, error),
        }
    }

    /// The known list of a lazy server that sleeps, which is not woken for it.
    pub(crate) async fn list_of_sleeper(
        &self,
        slot: &Arc<Slot>,
        caller: &Caller,
        kind: Kind,
    ) -> Option<Arc<Known>> {
        if !slot.spec.lazy || slot.is_active() {
            return None;
        }
        if let Some(pinned) = self.pinned_instead(slot, kind) {
            return Some(pinned);
        }
        self.recall_lists(slot).await;
        slot.known_to(caller, kind)
    }

    /// The list, or the last known one and why it is that. The asking goes
    /// on when the patience has ended.
    async fn list_within(
        &self,
        slot: &Arc<Slot>,
        caller: &Caller,
        kind: Kind,
        patience: Duration,
    ) -> (Option<Arc<Known>>, Option<CallError>) {
        if let Some(known) = slot.fresh_list(caller, kind) {
            return (Some(known), None);
        }
        self.recall_lists(slot).await;
        // A server that was waited for in vain before is not waited for as long again, and one whose last start failed
        // not at all: its next start may take as long and fail as well.
        let has_missed = slot.shelf(kind).is_missed.load(Ordering::Acquire);
        let is_brief = has_missed || self.last_list(slot, caller, kind).is_some();
        let has_failed = slot.has_failed_start();
        let patience = match is_brief {
            _ if has_failed => Duration::ZERO,
            true if slot.is_coming_up() => Duration::ZERO,
            true => patience.min(KNOWN_PATIENCE),
            false => patience,
        };
        let missed = |error| {
            slot.shelf(kind).is_missed.store(true, Ordering::Release);
            (self.last_list(slot, caller, kind), Some(error))
        };
        let round = async {
            tokio::select! {
                biased;
                outcome = self.share_round(slot, caller, kind) => Ok(outcome),
                // The round goes on, and what it brings is announced.
                error = slot.until_start_failed() => Err(error),
            }
        };
        match timeout(patience, round).await {
            Ok(Ok(Ok(known))) => (Some(known), None),
            Ok(Ok(Err(error))) if slot.live().is_some() => (self.last_list(slot, caller, kind), Some(error)),
            Ok(Ok(Err(error))) => missed(error),
            Ok(Err(error)) => missed(error),
            Err(_) if has_failed => missed(slot.failed(&slot.desk())),
            Err(_) => missed(slot.list_timed_out(patience)),
        }
    }

    /// Waits for the round that is under way, or makes one in a task of its
    /// own. Only that task outlives whoever wanted the list, so there is never
    /// more than one of them for a list.
    async fn share_round(
        &self,
        slot: &Arc<Slot>,
        caller: &Caller,
        kind: Kind,
    ) -> Result<Arc<Known>, CallError> {
        let listing = match slot.join_round(caller, kind).await? {
            Round::Shared(outcome) => return outcome,
            Round::Own(listing) => listing,
        };
        let in_flight = self.count_in(caller, Errand::Look)?;
        let (host, asked, caller) = (self.clone(), Arc::clone(slot), caller.clone());
        let round = tokio::spawn(async move {
            let _in_flight = in_flight;
            host.ask_round(&asked, (&caller, kind), listing).await
        });
        round.await.unwrap_or_else(|_| Err(slot.vanished()))
    }

    /// What the caller may use of a list.
    fn filter(&self, caller: &Caller, server: &Server, kind: Kind, known: &Known) -> Offer {
        let usable = self.approved(server, kind, known).filter(|item| {
            sabotage!(UnfilteredList, return true);
            self.may_use_item(caller, server, kind, &item.name)
        });
        Offer {
            server: server.spec.name.clone(),
            items: usable.cloned().collect(),
            error: None,
            ttl: known.remaining(),
            is_public: known.is_public,
        }
    }

    /// Items kept of a list of a server; a server that is gone has none.
    pub fn list_cap(&self, server: &str, kind: Kind) -> usize {
        self.server(server).map_or(0, |server| kind.cap(&server.spec))
    }

    /// Rises whenever a known list of any server changes, or a server comes or goes.
    pub fn lists_version(&self) -> u64 {
        self.shared().bus.version()
    }

    /// What is known now, of every server once, sorted by server and not
    /// filtered: whoever may not use an item learns so from the call. Pinned
    /// tools are known. Nobody is asked.
    pub fn known_items(&self, kind: Kind) -> Vec<(ServerName, Vec<Item>)> {
        let registry = self.shared().registry.load();
        let known = |server: &Arc<Server>| {
            let mut items = server.known_items(kind);
            self.add_pinned(server, kind, &mut items);
            (server.spec.name.clone(), items)
        };
        registry.values().map(known).collect()
    }
}

impl Host {
    /// Returns the names of all servers in the order of their registration; one that was replaced keeps its place.
    pub fn ranked_servers(&self) -> Vec<ServerName> {
        let registry = self.shared().registry.load();
        let mut servers: Vec<&Arc<Server>> = registry.values().collect();
        servers.sort_by_key(|server| server.rank);
        servers.into_iter().map(|server| server.spec.name.clone()).collect()
    }

    /// Returns the known resources or templates of every server, in the order of [`Self::ranked_servers`]. Asks no
    /// server.
    pub fn claimed(&self, kind: Kind) -> Vec<Claimed> {
        let registry = self.shared().registry.load();
        let claimed = |server: ServerName| {
            let items = registry.get(&server)?.known_list(kind);
            let items = items.map(|items| {
                let claim = |item: Item| (Arc::clone(&item.name), self.is_pinned(&server, kind, &item.name));
                items.into_iter().map(claim).collect()
            });
            Some(Claimed { server, items })
        };
        self.ranked_servers().into_iter().filter_map(claimed).collect()
    }

    /// Reports that a server lists a resource or template that another server owns.
    pub fn report_shadowed(&self, server: &ServerName, uri: &str, owner: &ServerName) {
        tracing::warn!(%server, %uri, %owner, "a server lists a resource that another one answers for");
        let what = What::ResourceShadowed { uri, owner: owner.as_str() };
        self.happened(&Happening::of(server.as_str(), what));
    }
}

impl Offer {
    /// Says why the items are not newer; such ones are good for no time.
    fn beside(mut self, error: Option<CallError>) -> Self {
        if error.is_some() {
            (self.error, self.ttl) = (error, Duration::ZERO);
        }
        self
    }
}

fn nothing(server: &Server, error: Option<CallError>) -> Offer {
    let server = server.spec.name.clone();
    Offer { server, items: Vec::new(), error, ttl: Duration::ZERO, is_public: false }
}
