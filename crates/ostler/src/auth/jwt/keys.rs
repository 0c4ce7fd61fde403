//! The keys that are known, and how they are kept fresh.
//!
//! One task looks at the source: every hour, and when a token names a key
//! that is not known, at most every ten seconds. Whoever needs such a key
//! waits for that look; all of them for the same one.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use ostler_core::config::Jwks;
use tokio::sync::{Mutex, Notify, watch};
use tokio::time::{Instant, timeout};

use super::key::KeySet;
use super::source::Source;
use crate::output::tell;

/// How often an address is asked.
const EVERY: Duration = Duration::from_secs(3600);
/// How soon again when it did not answer.
const AGAIN: Duration = Duration::from_secs(60);
/// How often a file is looked at.
const EVERY_FILE: Duration = Duration::from_secs(1);
/// How often a key that is not known is worth a look.
const UNKNOWN_EVERY: Duration = Duration::from_secs(10);
/// How long a request waits for such a look.
const WAIT: Duration = Duration::from_secs(2);

/// The keys of an issuer.
#[derive(Debug)]
pub(super) struct Keys {
    known: ArcSwap<KeySet>,
    /// Rises whenever what was verified must be verified again.
    epoch: AtomicU64,
    looks: watch::Sender<Looks>,
    wanted: Notify,
    source: Mutex<Source>,
    is_file: bool,
}

/// Looks that were begun and that are over.
#[derive(Debug, Clone, Copy, Default)]
struct Looks {
    begun: u64,
    over: u64,
    /// When the last one began.
    last: Option<Instant>,
}

impl Looks {
    fn is_due(self, pause: Duration) -> bool {
        self.last.is_none_or(|last| last.elapsed() >= pause)
    }
}

impl Keys {
    pub(super) fn new(jwks: &Jwks) -> Self {
        Self {
            known: ArcSwap::default(),
            epoch: AtomicU64::new(0),
            looks: watch::Sender::default(),
            wanted: Notify::new(),
            source: Mutex::new(Source::new(jwks)),
            is_file: matches!(jwks, Jwks::File(_)),
        }
    }

    pub(super) fn known(&self) -> Arc<KeySet> {
        self.known.load_full()
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// What was verified must be verified again.
    pub(super) fn turn(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// The end of a look that may bring a key that is not known; `None` if it
    /// is too early for one.
    pub(super) fn news(self: &Arc<Self>) -> Option<impl Future<Output = ()> + Send + use<>> {
        let looks = *self.looks.borrow();
        let is_looking = looks.begun > looks.over;
        if !is_looking && !looks.is_due(self.pause()) {
            return None;
        }
        let awaited = if is_looking { looks.begun } else { looks.begun + 1 };
        let keys = Arc::clone(self);
        Some(async move {
            keys.wanted.notify_one();
            let mut looks = keys.looks.subscribe();
            let _ = timeout(WAIT, looks.wait_for(|looks| looks.over >= awaited)).await;
        })
    }

    /// Looks at the source for as long as the future is polled.
    pub(super) async fn refresh(&self) {
        let mut source = self.source.lock().await;
        let mut had_trouble = false;
        loop {
            self.looks.send_modify(|looks| {
                looks.begun += 1;
                looks.last = Some(Instant::now());
            });
            let looked = source.look().await;
            let is_good = looked.is_ok();
            match looked {
                Ok(Some(set)) => self.adopt(set),
                Ok(None) => {}
                Err(why) if !had_trouble => tell(&trouble(&why, self.known.load().knows(None))),
                Err(_) => {}
            }
            // Said once, and again when it had worked in between.
            had_trouble = !is_good;
            self.looks.send_modify(|looks| looks.over = looks.begun);
            let pause = match (self.is_file, is_good) {
                (true, _) => EVERY_FILE,
                (false, true) => EVERY,
                (false, false) => AGAIN,
            };
            let _ = timeout(pause, self.wanted()).await;
        }
    }

    /// Waits until somebody wants a key, and a look for it is not too early.
    /// Those who came while the last look was under way have had it.
    async fn wanted(&self) {
        loop {
            self.wanted.notified().await;
            if self.looks.borrow().is_due(self.pause()) {
                return;
            }
        }
    }

    /// How long after a look the next one is worth it for a key that is not known.
    fn pause(&self) -> Duration {
        if self.is_file { EVERY_FILE } else { UNKNOWN_EVERY }
    }

    fn adopt(&self, set: KeySet) {
        if **self.known.load() != set {
            self.known.store(Arc::new(set));
            self.turn();
        }
    }
}

fn trouble(why: &str, has_keys: bool) -> String {
    let then = match has_keys {
        true => "the keys from before stay",
        false => "no JSON web token is taken until they can be",
    };
    format!("error: the keys of `auth.jwt.jwks` can't be read, so {then}\n  cause: {why}")
}
