//! Looking at servers' lists because a name is not known.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_host::{Host, Kind};
use tokio::time::{Instant, timeout};

/// How long after a sweep a name that is still unknown does not cause another,
/// as long as nothing else has changed.
const SWEPT: Duration = Duration::from_secs(1);

/// Sweeps that are remembered; beyond that some are made twice.
const MAX_SWEEPS: usize = 1_024;

/// The last sweeps, by kind and by the servers that were asked: what one caller
/// has swept counts for another only if that one would sweep the same.
/// Whoever comes while one is under way waits for it and looks again: a server
/// that was just replaced is unknown to many at once.
#[derive(Debug, Default)]
pub(super) struct Sweeps(Mutex<HashMap<Asked, Sweep>>);

/// What a sweep asks, and whom: of a single server, which process.
type Asked = (Kind, Box<[ServerName]>, Box<str>);

/// Held while a sweep is under way.
type Sweep = Arc<tokio::sync::Mutex<Option<Last>>>;

/// A sweep that is over.
#[derive(Debug)]
struct Last {
    ended: Instant,
    /// What was known when it began: what has come since may be another server.
    version: u64,
    /// Why one server's list is not known at all, with the details that not every caller may read.
    error: Option<CallError>,
}

/// What a sweep has brought.
#[derive(Debug)]
pub(super) struct Swept {
    /// Another one might bring more.
    pub(super) is_news: bool,
    /// Why one server's list is not known at all, for the caller.
    pub(super) error: Option<CallError>,
}

impl Sweeps {
    /// Asks servers that the caller may see for their lists, unless that was just done.
    pub(super) async fn sweep(
        &self,
        host: &Host,
        caller: &Caller,
        (kind, servers): (Kind, &[ServerName]),
        patience: Duration,
    ) -> Swept {
        let partition = match servers {
            [server] => host.partition(caller, server.as_str()),
            _ => Box::default(),
        };
        let sweep = self.of((kind, servers.into(), partition));
        // A sweep takes as long as its patience; who waits longer waits for nothing.
        let Ok(mut last) = timeout(patience * 2, sweep.lock()).await else {
            return Swept { is_news: false, error: None };
        };
        let for_caller = |error: CallError| host.without_details(caller, error);
        let version = host.lists_version();
        let is_fresh = |last: &&Last| last.ended.elapsed() < SWEPT && last.version == version;
        if let Some(last) = last.as_ref().filter(is_fresh) {
            return Swept { is_news: false, error: last.error.clone().map(for_caller) };
        }
        let error = match servers {
            [server] => host.ask_for_list(caller, server.as_str(), kind, patience).await.err(),
            _ => {
                host.offers(caller, kind, patience).await;
                None
            }
        };
        // Too many requests may be those of this caller alone.
        let is_for_all = !matches!(error, Some(CallError::Overloaded { .. }));
        *last = is_for_all.then(|| Last { ended: Instant::now(), version, error: error.clone() });
        Swept { is_news: true, error: error.map(for_caller) }
    }

    fn of(&self, asked: Asked) -> Sweep {
        let mut sweeps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sweeps.len() >= MAX_SWEEPS {
            sweeps.clear();
        }
        Arc::clone(sweeps.entry(asked).or_default())
    }
}
