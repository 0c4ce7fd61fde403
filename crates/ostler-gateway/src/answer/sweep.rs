//! Looking at every server's list because a name is not known.

use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_host::{Host, Kind};
use tokio::sync::Mutex as Turn;
use tokio::time::{Instant, timeout};

/// How long after a sweep over all servers a name that is still unknown does
/// not cause another, as long as nothing else has changed.
const SWEPT: Duration = Duration::from_secs(1);

/// The last sweeps, by kind. Whoever comes while one is under way waits for it
/// and looks again: a server that was just replaced is unknown to many at once.
#[derive(Debug, Default)]
pub(super) struct Sweeps([Turn<Option<Last>>; 4]);

/// A sweep that is over.
#[derive(Debug)]
struct Last {
    ended: Instant,
    /// What was known when it began: what has come since may be another server.
    version: u64,
}

impl Sweeps {
    /// Asks every server for its list, unless that was just done. Whether
    /// another sweep might bring more.
    pub(super) async fn sweep(&self, host: &Host, caller: &Caller, kind: Kind, patience: Duration) -> bool {
        let turn = match kind {
            Kind::Tools => &self.0[0],
            Kind::Prompts => &self.0[1],
            Kind::Resources => &self.0[2],
            Kind::Templates => &self.0[3],
        };
        // A sweep takes as long as its patience; who waits longer waits for nothing.
        let Ok(mut last) = timeout(patience * 2, turn.lock()).await else { return false };
        let version = host.lists_version();
        let is_fresh = |last: &Last| last.ended.elapsed() < SWEPT && last.version == version;
        if last.as_ref().is_some_and(is_fresh) {
            return false;
        }
        host.offers(caller, kind, patience).await;
        *last = Some(Last { ended: Instant::now(), version });
        true
    }
}
