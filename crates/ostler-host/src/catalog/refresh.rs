//! Refreshes of servers' lists because a name is not known. Equal ones are coalesced and not repeated for a second.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::server_name::ServerName;
use tokio::time::{Instant, timeout};

use super::resolve::Scope;
use crate::host::Host;
use crate::lists::Kind;

/// Time after a refresh in which a name that is still unknown does not cause another, as long as no list has changed.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Refreshes that are remembered; beyond that some are made twice.
const MAX_REFRESHES: usize = 1_024;

/// The last refreshes, by kind and by the servers that were asked: the refresh of one caller counts for another only
/// if that one would ask the same servers. Callers that come while one is under way wait for it: a server that was
/// just replaced is unknown to many at once.
#[derive(Debug, Default)]
pub(super) struct RefreshCoalescer(Mutex<HashMap<RefreshKey, RefreshCell>>);

/// Kind and servers; of a single server, which process.
type RefreshKey = (Kind, Box<[ServerName]>, Box<str>);

/// Held while a refresh is under way.
type RefreshCell = Arc<tokio::sync::Mutex<Option<LastRefresh>>>;

/// A refresh that is over.
#[derive(Debug)]
struct LastRefresh {
    ended: Instant,
    /// What was known when it began: what has come since may be another server.
    version: u64,
    /// Why one server's list is not known at all, with the details that not every caller may read.
    error: Option<CallError>,
}

/// Result of a refresh.
#[derive(Debug)]
pub(super) struct RefreshOutcome {
    /// Whether another one might bring more.
    pub(super) may_have_changed: bool,
    /// Why one server's list is not known at all, for the caller.
    pub(super) error: Option<CallError>,
}

impl RefreshCoalescer {
    /// Asks servers that the caller may see for their lists, unless that was just done.
    pub(super) async fn refresh(
        &self,
        host: &Host,
        caller: &Caller,
        (kind, servers): (Kind, &[ServerName]),
        patience: Duration,
    ) -> RefreshOutcome {
        let partition = match servers {
            [server] => host.partition(caller, server.as_str()),
            _ => Box::default(),
        };
        let refresh = self.cell((kind, servers.into(), partition));
        // A refresh takes as long as its patience; waiting longer brings nothing.
        let Ok(mut last) = timeout(patience * 2, refresh.lock()).await else {
            return RefreshOutcome { may_have_changed: false, error: None };
        };
        let for_caller = |error: CallError| host.current().without_details(caller, error);
        let version = host.lists_version();
        let is_fresh = |last: &&LastRefresh| last.ended.elapsed() < MIN_INTERVAL && last.version == version;
        if let Some(last) = last.as_ref().filter(is_fresh) {
            return RefreshOutcome { may_have_changed: false, error: last.error.clone().map(for_caller) };
        }
        let error = match servers {
            [server] => host.refresh_list(caller, server.as_str(), kind, patience).await.err(),
            _ => {
                host.list(caller, &Scope::All, kind, patience).await;
                None
            }
        };
        // Too many requests may be those of this caller alone.
        let is_for_all = !matches!(error, Some(CallError::Overloaded { .. }));
        *last = is_for_all.then(|| LastRefresh { ended: Instant::now(), version, error: error.clone() });
        RefreshOutcome { may_have_changed: true, error: error.map(for_caller) }
    }

    fn cell(&self, asked: RefreshKey) -> RefreshCell {
        let mut refreshes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if refreshes.len() >= MAX_REFRESHES {
            refreshes.clear();
        }
        Arc::clone(refreshes.entry(asked).or_default())
    }
}
