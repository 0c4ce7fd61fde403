//! JSON web tokens of an issuer that the config names.
//!
//! ```text
//! token ── verified_tokens.rs: verified before? ──▶ its caller
//!   └───── claims.rs ── key_set.rs: signature, then issuer, audience, time, role
//!              └ an unknown key ── key_cache.rs: one fetch from key_source.rs ── retry
//! ```

mod claims;
mod key_cache;
mod key_set;
mod key_source;
#[cfg(test)]
mod tests;
mod verified_tokens;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use ostler_core::config;
use ostler_gateway::{AuthOutcome, Authenticated, CredentialLifetime, Unauthorized};
use ostler_host::Caller;

use self::claims::{JwtClaims, JwtError};
use self::key_cache::KeyCache;
use self::verified_tokens::VerifiedTokens;
use super::monotonic_clock::MonotonicClock;

/// Checks that the keys in a file can be read.
pub(super) fn check_file(file: &Path) -> Result<(), String> {
    key_source::read_file_blocking(file).map(drop)
}

/// Role with all rights unless the config says otherwise. An issuer must not grant it by chance.
const LOCAL_ROLE: &str = "local";

/// Verifier of an issuer's tokens.
#[derive(Debug)]
pub(super) struct JwtVerifier {
    rules: config::JwtConfig,
    keys: Arc<KeyCache>,
    /// Roles of the config.
    roles: ArcSwap<BTreeSet<String>>,
    verified: VerifiedTokens,
    clock: Arc<MonotonicClock>,
}

impl JwtVerifier {
    pub(super) fn new(rules: config::JwtConfig, clock: Arc<MonotonicClock>) -> Self {
        let keys = Arc::new(KeyCache::new(&rules.jwks));
        Self { rules, keys, roles: ArcSwap::default(), verified: VerifiedTokens::new(), clock }
    }

    pub(super) fn set_roles(&self, roles: BTreeSet<String>) {
        if **self.roles.load() != roles {
            self.roles.store(Arc::new(roles));
            self.keys.bump_epoch();
        }
    }

    pub(super) async fn refresh(&self) {
        self.keys.refresh().await;
    }

    /// Ends the lifetimes of expired tokens.
    pub(super) fn expire(&self, now: u64) {
        self.verified.expire(now);
    }

    /// Authenticates a token.
    pub(super) fn authenticate(self: &Arc<Self>, token: &str) -> AuthOutcome {
        if token.len() > claims::MAX_TOKEN_BYTES {
            return refused(JwtError::Malformed);
        }
        match self.verify(token) {
            Ok(admitted) => AuthOutcome::Accepted(admitted),
            Err(JwtError::UnknownKey) => match self.keys.wait_for_refresh() {
                Some(news) => {
                    let (jwt, token) = (Arc::clone(self), token.to_owned());
                    AuthOutcome::Pending(Box::pin(async move {
                        news.await;
                        jwt.verify(&token).map_err(|fault| Unauthorized::invalid(fault.message()))
                    }))
                }
                None => refused(JwtError::UnknownKey),
            },
            Err(fault) => refused(fault),
        }
    }

    fn verify(&self, token: &str) -> Result<Authenticated, JwtError> {
        let (name, now) = (verified_tokens::token_hash(token), self.clock.now());
        // Read before the keys, so that a token verified with older keys is of an older epoch.
        let epoch = self.keys.epoch();
        if let Some(admitted) = self.verified.get(&name, epoch, now) {
            return Ok(admitted);
        }
        let JwtClaims { subject, roles, until } =
            claims::verify(&self.rules, &self.keys.current(), token, now)?;
        let role = self.choose_role(roles)?;
        let caller = Caller::new(format!("jwt:{subject}"), role);
        let admitted = Authenticated { caller, lifetime: Some(CredentialLifetime::new()) };
        self.verified.insert(name, &admitted, until, epoch);
        Ok(admitted)
    }

    /// Returns the first of the roles that the config has. A role that the config does not have grants nothing, except
    /// `local`, which would grant everything.
    fn choose_role(&self, mut roles: Vec<String>) -> Result<String, JwtError> {
        let known = self.roles.load();
        if let Some(at) = roles.iter().position(|role| known.contains(role)) {
            return Ok(roles.swap_remove(at));
        }
        roles.into_iter().find(|role| role != LOCAL_ROLE).ok_or(JwtError::Role)
    }
}

fn refused(fault: JwtError) -> AuthOutcome {
    AuthOutcome::Refused(Unauthorized::invalid(fault.message()))
}
