//! Next action of a caller, drawn from the caller's own RNG.

use std::time::Duration;

use fastrand::Rng;
use ostler_chaos::history::{CallRoute, Purpose};
use serde_json::{Value, json};

use crate::run::environment::config::{SERVERS, SHARED, SICK};
use crate::run::environment::users::{FORBIDDEN, HIDDEN, NONE, SOME, TestUser};

/// TTL of private answers, in milliseconds.
const TTL_MS: u64 = 700;
/// Duration of the sick tool: long enough for calls to overlap.
const SICK_MS: u64 = 200;
/// The large payload: more than a pipe holds.
const PAD: usize = 100 << 10;

/// The next action.
#[derive(Debug)]
pub(crate) enum CallerAction {
    Call(PlannedCall),
    /// Lists the tools: those of one server, where the route leads to one.
    List(&'static str),
}

/// A call before it is made.
#[derive(Debug)]
pub(crate) struct PlannedCall {
    pub(crate) server: &'static str,
    pub(crate) tool: &'static str,
    pub(crate) purpose: Purpose,
    pub(crate) arguments: Value,
    pub(crate) abandon: Abandon,
}

/// The time at which the caller abandons its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Abandon {
    /// It waits for the end.
    Never,
    /// It hangs up after this long.
    After(Duration),
    /// It cancels the call after this long.
    Cancel(Duration),
}

/// The user, route and focus of a caller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallerProfile {
    pub(crate) user: &'static TestUser,
    pub(crate) way: CallRoute,
    pub(crate) focus: Option<Focus>,
}

/// The kind of most actions, for runs that look for one defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Focus {
    /// Calls that are under way when the nemesis acts.
    Long,
    Forbidden,
    List,
    Private,
    Sick,
    /// Calls to the server that an abusive caller shares.
    Shared,
}

impl Focus {
    pub(crate) fn parse(name: &str) -> anyhow::Result<Self> {
        Ok(match name {
            "long" => Self::Long,
            "forbidden" => Self::Forbidden,
            "list" => Self::List,
            "private" => Self::Private,
            "sick" => Self::Sick,
            "shared" => Self::Shared,
            _ => anyhow::bail!(
                "there is no focus `{name}`; there are long, forbidden, list, private, sick, shared"
            ),
        })
    }

    fn draw(self, rng: &mut Rng, profile: CallerProfile, nonce: u64) -> CallerAction {
        let server = any_server(rng);
        CallerAction::Call(match self {
            Self::List => return CallerAction::List(server),
            Self::Private => private(profile.user, server, nonce),
            Self::Sick => sick(profile.user, nonce),
            Self::Shared if profile.user.role != NONE => probe(SHARED, nonce),
            Self::Shared => plain(rng, profile, (server, "deed"), nonce),
            Self::Forbidden => plain(rng, profile, (server, FORBIDDEN), nonce),
            Self::Long => {
                let mut call = plain(rng, profile, (server, "deed"), nonce);
                call.arguments["ms"] = rng.u64(100..600).into();
                PlannedCall { abandon: Abandon::Never, ..call }
            }
        })
    }
}

impl CallerAction {
    pub(crate) fn draw(rng: &mut Rng, profile: CallerProfile, nonce: u64) -> Self {
        if let Some(focus) = profile.focus.filter(|_| rng.u8(..4) > 0) {
            return focus.draw(rng, profile, nonce);
        }
        if profile.user.role == NONE {
            let server = any_server(rng);
            return match rng.u8(..8) {
                0 => Self::List(server),
                _ => Self::Call(plain(rng, profile, (server, "deed"), nonce)),
            };
        }
        match rng.u8(..100) {
            0..=3 => Self::List(any_server(rng)),
            4..=11 => Self::Call(private(profile.user, any_server(rng), nonce)),
            12..=18 => Self::Call(sick(profile.user, nonce)),
            19..=29 if profile.user.role == SOME => {
                let target = if rng.bool() { (HIDDEN, "deed") } else { (any_server(rng), FORBIDDEN) };
                Self::Call(plain(rng, profile, target, nonce))
            }
            30..=39 => Self::Call(probe(SHARED, nonce)),
            _ => {
                let server = allowed_server(rng, profile.user);
                Self::Call(plain(rng, profile, (server, "deed"), nonce))
            }
        }
    }
}

/// Returns a call that only checks whether a server works.
pub(crate) fn probe(server: &'static str, nonce: u64) -> PlannedCall {
    let arguments = json!({"nonce": nonce});
    PlannedCall { server, tool: "deed", purpose: Purpose::Once, arguments, abandon: Abandon::Never }
}

fn any_server(rng: &mut Rng) -> &'static str {
    SERVERS[rng.usize(..SERVERS.len())].name
}

fn allowed_server(rng: &mut Rng, user: &TestUser) -> &'static str {
    loop {
        let server = any_server(rng);
        if user.may_use(server, "deed") {
            return server;
        }
    }
}

fn purpose(user: &TestUser, target: (&str, &str), otherwise: Purpose) -> Purpose {
    if user.may_use(target.0, target.1) { otherwise } else { Purpose::Forbidden }
}

fn plain(
    rng: &mut Rng,
    profile: CallerProfile,
    target: (&'static str, &'static str),
    nonce: u64,
) -> PlannedCall {
    let ms = match rng.u8(..100) {
        0..=69 => 0,
        70..=94 => rng.u64(1..30),
        95..=98 => rng.u64(50..400),
        _ => rng.u64(500..2_500),
    };
    let mut arguments = json!({"nonce": nonce, "ms": ms});
    if rng.u8(..50) == 0 {
        arguments["pad"] = Value::String("x".repeat(PAD));
    }
    let leaving = match rng.u8(..40) {
        0 => Abandon::After(Duration::from_millis(rng.u64(1..300))),
        1 => Abandon::Cancel(Duration::from_millis(rng.u64(1..100))),
        _ => Abandon::Never,
    };
    let purpose = purpose(profile.user, target, Purpose::Once);
    PlannedCall { server: target.0, tool: target.1, purpose, arguments, abandon: leaving }
}

/// Returns a call of the private tool. The arguments are the same for every user, so that only the
/// caller tells the answers apart. Every second forbidden call holds its number, so that its
/// execution would be recognized; the others could also be answered from another caller's cache.
fn private(user: &TestUser, server: &'static str, nonce: u64) -> PlannedCall {
    let mut arguments = json!({"ttl_ms": TTL_MS, "ms": 5});
    let purpose = purpose(user, (server, "secret"), Purpose::Private);
    if purpose == Purpose::Forbidden && nonce.is_multiple_of(2) {
        arguments["nonce"] = nonce.into();
    }
    PlannedCall { server, tool: "secret", purpose, arguments, abandon: Abandon::Never }
}

fn sick(user: &TestUser, nonce: u64) -> PlannedCall {
    let arguments = json!({"nonce": nonce, "ms": SICK_MS});
    let purpose = purpose(user, (SICK, "sick"), Purpose::Sick);
    PlannedCall { server: SICK, tool: "sick", purpose, arguments, abandon: Abandon::Never }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_must_not_run_bear_their_number_or_look_like_those_that_may() {
        let private = |role, nonce| private(&TestUser { name: "", role }, "a", nonce);
        let (allowed, numbered, alike) = (private(SOME, 8), private(NONE, 8), private(NONE, 9));
        assert_eq!(allowed.purpose, Purpose::Private);
        assert_eq!((numbered.purpose, alike.purpose), (Purpose::Forbidden, Purpose::Forbidden));
        assert_eq!(numbered.arguments["nonce"], 8);
        assert_eq!(alike.arguments, allowed.arguments);
    }
}
