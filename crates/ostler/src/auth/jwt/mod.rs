//! JSON web tokens of an issuer that the config names.
//!
//! ```text
//! token ── memory.rs: verified before? ──▶ its caller
//!   └───── claims.rs ── key.rs: signature, then issuer, audience, time, role
//!              └ a key that is not known ── keys.rs: one look at the source ── once more
//! ```

mod claims;
mod key;
mod keys;
mod memory;
mod source;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use ostler_core::config;
use ostler_gateway::{Admitted, Check, Pass, Unauthorized};
use ostler_host::Caller;

use self::claims::{Claims, Fault};
use self::keys::Keys;
use self::memory::Memory;
use super::clock::Clock;

/// Whether the keys in a file can be read, and why not.
pub(super) fn check_file(file: &Path) -> Result<(), String> {
    source::read_now(file).map(drop)
}

/// The role that may do everything unless the config says otherwise. Whoever
/// issues tokens must not give it away by chance.
const LOCAL: &str = "local";

/// Verifies the tokens of an issuer.
#[derive(Debug)]
pub(super) struct Jwt {
    rules: config::Jwt,
    keys: Arc<Keys>,
    /// The roles of the config.
    roles: ArcSwap<BTreeSet<String>>,
    memory: Memory,
    clock: Arc<Clock>,
}

impl Jwt {
    pub(super) fn new(rules: config::Jwt, clock: Arc<Clock>) -> Self {
        let keys = Arc::new(Keys::new(&rules.jwks));
        Self { rules, keys, roles: ArcSwap::default(), memory: Memory::new(), clock }
    }

    pub(super) fn set_roles(&self, roles: BTreeSet<String>) {
        if **self.roles.load() != roles {
            self.roles.store(Arc::new(roles));
            self.keys.turn();
        }
    }

    pub(super) async fn refresh(&self) {
        self.keys.refresh().await;
    }

    /// Ends what was begun with tokens whose time is over.
    pub(super) fn expire(&self, now: u64) {
        self.memory.expire(now);
    }

    /// Whose token it is.
    pub(super) fn check(self: &Arc<Self>, token: &str) -> Check {
        if token.len() > claims::LONGEST {
            return refused(Fault::Malformed);
        }
        match self.verify(token) {
            Ok(admitted) => Check::Admitted(admitted),
            Err(Fault::UnknownKey) => match self.keys.news() {
                Some(news) => {
                    let (jwt, token) = (Arc::clone(self), token.to_owned());
                    Check::Wait(Box::pin(async move {
                        news.await;
                        jwt.verify(&token).map_err(|fault| Unauthorized::invalid(fault.why()))
                    }))
                }
                None => refused(Fault::UnknownKey),
            },
            Err(fault) => refused(fault),
        }
    }

    fn verify(&self, token: &str) -> Result<Admitted, Fault> {
        let (name, now) = (memory::name(token), self.clock.now());
        // Asked before the keys are: what is verified with older ones is of an older epoch.
        let epoch = self.keys.epoch();
        if let Some(admitted) = self.memory.recall(&name, epoch, now) {
            return Ok(admitted);
        }
        let Claims { subject, roles, until } = claims::read(&self.rules, &self.keys.known(), token, now)?;
        let role = self.choose(roles)?;
        let caller = Caller::new(format!("jwt:{subject}"), role);
        let admitted = Admitted { caller, pass: Some(Pass::new()) };
        self.memory.remember(name, &admitted, until, epoch);
        Ok(admitted)
    }

    /// The first role that the config has. A role that it does not have is a
    /// role that may nothing; except that `local` would be one that may all.
    fn choose(&self, mut roles: Vec<String>) -> Result<String, Fault> {
        let known = self.roles.load();
        if let Some(at) = roles.iter().position(|role| known.contains(role)) {
            return Ok(roles.swap_remove(at));
        }
        roles.into_iter().find(|role| role != LOCAL).ok_or(Fault::Role)
    }
}

fn refused(fault: Fault) -> Check {
    Check::Refused(Unauthorized::invalid(fault.why()))
}
