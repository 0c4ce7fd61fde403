//! Cache of an issuer's keys, and its refresh.
//!
//! One task fetches the keys: every hour, and when a token names an unknown key, at most every ten seconds. All
//! requests with unknown keys wait for the same fetch.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use ostler_core::config::JwksLocation;
use tokio::sync::{Mutex, Notify, watch};
use tokio::time::{Instant, timeout};

use super::key_set::KeySet;
use super::key_source::KeySource;
use crate::output::print_timed;

/// Refresh interval of a URL.
const REFRESH_INTERVAL: Duration = Duration::from_secs(3600);
/// Retry interval after a failed fetch.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// Poll interval of a file.
const FILE_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Shortest interval of fetches for unknown keys.
const UNKNOWN_KEY_INTERVAL: Duration = Duration::from_secs(10);
/// Timeout of a request's wait for a fetch.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(2);

/// Keys of an issuer.
#[derive(Debug)]
pub(super) struct KeyCache {
    keys: ArcSwap<KeySet>,
    /// Grows whenever verified tokens must be verified again.
    epoch: AtomicU64,
    refreshes: watch::Sender<RefreshCounts>,
    refresh_wanted: Notify,
    source: Mutex<KeySource>,
    is_file: bool,
}

/// Counts of fetches that have started and that have ended.
#[derive(Debug, Clone, Copy, Default)]
struct RefreshCounts {
    started: u64,
    finished: u64,
    /// Start of the last fetch.
    last_start: Option<Instant>,
}

impl RefreshCounts {
    fn is_due(self, pause: Duration) -> bool {
        self.last_start.is_none_or(|last| last.elapsed() >= pause)
    }
}

impl KeyCache {
    pub(super) fn new(jwks: &JwksLocation) -> Self {
        Self {
            keys: ArcSwap::default(),
            epoch: AtomicU64::new(0),
            refreshes: watch::Sender::default(),
            refresh_wanted: Notify::new(),
            source: Mutex::new(KeySource::new(jwks)),
            is_file: matches!(jwks, JwksLocation::File(_)),
        }
    }

    pub(super) fn current(&self) -> Arc<KeySet> {
        self.keys.load_full()
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Invalidates all verified tokens.
    pub(super) fn bump_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the end of a fetch that may bring an unknown key; `None` if it is too early for one.
    pub(super) fn wait_for_refresh(self: &Arc<Self>) -> Option<impl Future<Output = ()> + Send + use<>> {
        let looks = *self.refreshes.borrow();
        let is_looking = looks.started > looks.finished;
        if !is_looking && !looks.is_due(self.min_interval()) {
            return None;
        }
        let awaited = if is_looking { looks.started } else { looks.started + 1 };
        let keys = Arc::clone(self);
        Some(async move {
            keys.refresh_wanted.notify_one();
            let mut looks = keys.refreshes.subscribe();
            let _ = timeout(REFRESH_TIMEOUT, looks.wait_for(|looks| looks.finished >= awaited)).await;
        })
    }

    /// Refreshes the keys for as long as the future is polled.
    pub(super) async fn refresh(&self) {
        let mut source = self.source.lock().await;
        let mut had_trouble = false;
        loop {
            self.refreshes.send_modify(|looks| {
                looks.started += 1;
                looks.last_start = Some(Instant::now());
            });
            let looked = source.fetch_if_changed().await;
            let is_good = looked.is_ok();
            match looked {
                Ok(Some(set)) => self.replace(set),
                Ok(None) => {}
                Err(why) if !had_trouble => {
                    print_timed(&describe_failure(&why, self.keys.load().knows(None)))
                }
                Err(_) => {}
            }
            // Reported once, and again after a success in between.
            had_trouble = !is_good;
            self.refreshes.send_modify(|looks| looks.finished = looks.started);
            let pause = match (self.is_file, is_good) {
                (true, _) => FILE_POLL_INTERVAL,
                (false, true) => REFRESH_INTERVAL,
                (false, false) => RETRY_INTERVAL,
            };
            let _ = timeout(pause, self.until_refresh_wanted()).await;
        }
    }

    /// Waits until a request needs an unknown key, and a fetch is not too early. Requests that came during the last
    /// fetch are served by it.
    async fn until_refresh_wanted(&self) {
        loop {
            self.refresh_wanted.notified().await;
            if self.refreshes.borrow().is_due(self.min_interval()) {
                return;
            }
        }
    }

    /// Returns the shortest interval between fetches for unknown keys.
    fn min_interval(&self) -> Duration {
        if self.is_file { FILE_POLL_INTERVAL } else { UNKNOWN_KEY_INTERVAL }
    }

    fn replace(&self, set: KeySet) {
        if **self.keys.load() != set {
            self.keys.store(Arc::new(set));
            self.bump_epoch();
        }
    }
}

fn describe_failure(why: &str, has_keys: bool) -> String {
    let then = match has_keys {
        true => "the keys from before stay",
        false => "no JSON web token is taken until they can be",
    };
    format!("error: the keys of `auth.jwt.jwks` can't be read, so {then}\n  cause: {why}")
}
