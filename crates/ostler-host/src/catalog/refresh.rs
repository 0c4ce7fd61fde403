//! Refreshes of servers' lists after a name was not found. Equal refreshes are coalesced and not repeated for a second.

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

/// Interval in which a name that stays unknown causes no other refresh while no list changes.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Bounds the remembered refreshes; beyond that some are repeated.
const MAX_REFRESHES: usize = 1_024;

/// Last refreshes, by kind and by the servers that were asked: the refresh of one caller counts for another only if
/// that one would ask the same servers. Callers wait for a refresh in progress: a server that was just replaced is
/// unknown to many at once.
#[derive(Debug, Default)]
pub(super) struct RefreshCoalescer(Mutex<HashMap<RefreshKey, RefreshCell>>);

/// Kind and servers; for a single server, also its process.
type RefreshKey = (Kind, Box<[ServerName]>, Box<str>);

/// Locked while a refresh is in progress.
type RefreshCell = Arc<tokio::sync::Mutex<Option<LastRefresh>>>;

/// A finished refresh.
#[derive(Debug)]
struct LastRefresh {
    ended: Instant,
    /// Version of the lists at its beginning: a later version may come from another server.
    version: u64,
    /// Error of one server whose list is not known at all, with details that not every caller may read.
    error: Option<CallError>,
}

/// Result of a refresh.
#[derive(Debug)]
pub(super) struct RefreshOutcome {
    /// Set if another lookup might succeed.
    pub(super) may_have_changed: bool,
    /// Error of one server whose list is not known at all, as the caller may read it.
    pub(super) error: Option<CallError>,
}

impl RefreshCoalescer {
    /// Asks the servers that the caller may see for their lists, unless that was just done.
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
        // A refresh takes as long as its timeout; a longer wait gains nothing.
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
        // An overload may be this caller's alone.
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
