//! Authentication: the one place that turns credentials into callers.
//!
//! ```text
//!                    ┌ ostler_…  ── token_table.rs ──▶ token:NAME, its role, its budget
//! Authorization ─────┤
//!                    └ a.b.c     ── jwt/ ────────────▶ jwt:SUB, the role of a claim
//! none, on this machine ───────────────────────────▶ local
//! ```
//!
//! The prefixes keep callers of different sources apart, whatever names they have.

pub(crate) mod config_check;
mod jwt;
mod monotonic_clock;
mod token_table;

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use ostler_core::config::Config;
use ostler_core::loopback::is_loopback;
use ostler_gateway::{AuthOutcome, AuthRequest, Authenticate, Authenticated, Unauthorized};
use ostler_host::Caller;

use self::jwt::JwtVerifier;
use self::monotonic_clock::MonotonicClock;
use self::token_table::TokenTable;
use crate::token;
use crate::token::store::{TokenStore, TokenUses};

/// Authenticator with all credentials of a config.
#[derive(Debug)]
pub(crate) struct Authenticator {
    clock: Arc<MonotonicClock>,
    /// True if callers on this machine without a credential are `local`.
    allows_local: bool,
    /// Cloned for each local caller, which allocates nothing.
    local: Authenticated,
    store: TokenStore,
    tokens: ArcSwap<TokenTable>,
    /// Held while tokens are read, so that an older read never overwrites a newer one and revives a revoked token.
    reload_lock: Mutex<()>,
    /// Last uses of tokens, as they were last saved.
    saved_uses: Mutex<TokenUses>,
    jwt: Option<Arc<JwtVerifier>>,
}

impl Authenticator {
    /// Creates an authenticator without tokens. By default, callers without a credential are `local` only if `address`
    /// is a loopback address; the config can allow or forbid them explicitly.
    pub(crate) fn new(config: &Config, address: SocketAddr, store: TokenStore) -> Self {
        let clock = Arc::new(MonotonicClock::default());
        let jwt = config.auth.jwt.clone().map(|jwt| Arc::new(JwtVerifier::new(jwt, Arc::clone(&clock))));
        let (tokens, turn, written_uses) = (ArcSwap::default(), Mutex::default(), Mutex::default());
        let is_open_here = config.auth.local.unwrap_or(is_loopback(address.ip()));
        let local = Authenticated::from(Caller::local());
        let keeper = Self {
            clock,
            allows_local: is_open_here,
            local,
            store,
            tokens,
            reload_lock: turn,
            saved_uses: written_uses,
            jwt,
        };
        keeper.set_roles(config);
        keeper
    }

    /// Reads the tokens again, revokes the removed ones, and ends what their callers have begun before any new token is
    /// valid: a new token may have the name of a removed one. Unreadable tokens stay as they were.
    pub(crate) fn reload(&self, end: impl FnOnce(&[Caller])) -> io::Result<()> {
        let _turn = self.reload_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let records = self.store.read()?;
        let before = self.tokens.load_full();
        let after = Arc::new(before.updated_with(records));
        after.restore_uses(&self.store.read_uses());
        end(&before.revoke_all_but(&after));
        self.tokens.store(after);
        Ok(())
    }

    /// Ends expired credentials, and returns the callers whose sessions end with them.
    pub(crate) fn expire(&self) -> Vec<Caller> {
        let now = self.clock.now();
        if let Some(jwt) = &self.jwt {
            jwt.expire(now);
        }
        self.tokens.load().expire(now)
    }

    /// Sets the roles of a config, of which a token may name several.
    pub(crate) fn set_roles(&self, config: &Config) {
        if let Some(jwt) = &self.jwt {
            jwt.set_roles(config.roles.keys().cloned().collect::<BTreeSet<String>>());
        }
    }

    /// Keeps the keys of the issuer fresh.
    pub(crate) async fn refresh_keys(&self) {
        if let Some(jwt) = &self.jwt {
            jwt.refresh().await;
        }
    }

    /// Returns whether any caller that is not local can authenticate.
    pub(crate) fn has_credentials(&self) -> bool {
        self.jwt.is_some() || self.count() > 0
    }

    /// Returns the number of valid tokens.
    pub(crate) fn count(&self) -> usize {
        self.tokens.load().count(self.clock.now())
    }

    /// Returns the last uses of tokens, by their names.
    pub(crate) fn last_used(&self) -> Vec<(String, Option<u64>)> {
        self.tokens.load().last_used()
    }

    /// Saves the last uses of tokens, if they have changed. Blocks as long as the disk does; meanwhile
    /// other calls return at once.
    pub(crate) fn save_uses(&self) {
        // The holder of the lock is saving.
        let Ok(mut written) = self.saved_uses.try_lock() else { return };
        let uses = self.tokens.load().uses();
        if uses == *written {
            return;
        }
        match self.store.write_uses(&uses) {
            Ok(()) => *written = uses,
            Err(error) => tracing::debug!(%error, "the last uses of tokens are not written down"),
        }
    }

    pub(crate) fn store(&self) -> &TokenStore {
        &self.store
    }

    /// Authenticates a token from any source.
    pub(crate) fn check_token(&self, text: &str) -> AuthOutcome {
        if text.starts_with(token::PREFIX) {
            return match self.tokens.load().find(text, self.clock.now()) {
                Ok(admitted) => AuthOutcome::Accepted(admitted),
                Err(why) => AuthOutcome::Refused(why),
            };
        }
        match &self.jwt {
            Some(jwt) => jwt.authenticate(text),
            None => AuthOutcome::Refused(Unauthorized::invalid("the token is not known here")),
        }
    }
}

impl Authenticate for Authenticator {
    fn check(&self, knock: &AuthRequest<'_>) -> AuthOutcome {
        let is_open = self.allows_local && knock.is_local();
        match knock.bearer() {
            Ok(Some(token)) => self.check_token(token),
            Ok(None) if is_open => AuthOutcome::Accepted(self.local.clone()),
            Ok(None) => {
                let why = match self.allows_local && knock.is_proxied() {
                    true => {
                        "a proxy has passed this request on, so its caller is not local; send a bearer token"
                    }
                    false => "send a bearer token in the Authorization header",
                };
                AuthOutcome::Refused(Unauthorized::missing(why))
            }
            Err(why) => AuthOutcome::Refused(why),
        }
    }
}
