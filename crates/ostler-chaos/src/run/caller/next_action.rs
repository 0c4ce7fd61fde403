//! What a caller does next. Everything here comes from the caller's own dice.

use std::time::Duration;

use fastrand::Rng;
use ostler_chaos::history::{CallRoute, Purpose};
use serde_json::{Value, json};

use crate::run::environment::config::{SERVERS, SHARED, SICK};
use crate::run::environment::users::{FORBIDDEN, HIDDEN, NONE, SOME, TestUser};

/// How long answers of the private tool may be remembered.
const TTL_MS: u64 = 700;
/// What the sick tool takes: long enough for calls to meet.
const SICK_MS: u64 = 200;
/// The large payload, which is more than a pipe holds.
const PAD: usize = 100 << 10;

/// The next thing to do.
#[derive(Debug)]
pub(crate) enum CallerAction {
    Call(PlannedCall),
    /// Ask which tools there are: of one server, where the way is to one.
    List(&'static str),
}

/// A call that is about to be made.
#[derive(Debug)]
pub(crate) struct PlannedCall {
    pub(crate) server: &'static str,
    pub(crate) tool: &'static str,
    pub(crate) purpose: Purpose,
    pub(crate) arguments: Value,
    pub(crate) abandon: Abandon,
}

/// How long the caller stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Abandon {
    /// To the end.
    Never,
    /// So long; then it hangs up.
    After(Duration),
    /// So long; then it says that it does not want the answer any more.
    Cancel(Duration),
}

/// Who decides, and where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallerProfile {
    pub(crate) user: &'static TestUser,
    pub(crate) way: CallRoute,
    pub(crate) focus: Option<Focus>,
}

/// What most calls are made for, where one thing is to be found out soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Focus {
    /// Calls that are under way when something is hurt.
    Long,
    Forbidden,
    List,
    Private,
    Sick,
    /// Calls of the server that an abusive caller shares.
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

    fn draw(self, rng: &mut Rng, who: CallerProfile, nonce: u64) -> CallerAction {
        let server = any_server(rng);
        CallerAction::Call(match self {
            Self::List => return CallerAction::List(server),
            Self::Private => private(who.user, server, nonce),
            Self::Sick => sick(who.user, nonce),
            Self::Shared if who.user.role != NONE => probe(SHARED, nonce),
            Self::Shared => plain(rng, who, (server, "deed"), nonce),
            Self::Forbidden => plain(rng, who, (server, FORBIDDEN), nonce),
            Self::Long => {
                let mut call = plain(rng, who, (server, "deed"), nonce);
                call.arguments["ms"] = rng.u64(100..600).into();
                PlannedCall { abandon: Abandon::Never, ..call }
            }
        })
    }
}

impl CallerAction {
    pub(crate) fn draw(rng: &mut Rng, who: CallerProfile, nonce: u64) -> Self {
        if let Some(focus) = who.focus.filter(|_| rng.u8(..4) > 0) {
            return focus.draw(rng, who, nonce);
        }
        if who.user.role == NONE {
            let server = any_server(rng);
            return match rng.u8(..8) {
                0 => Self::List(server),
                _ => Self::Call(plain(rng, who, (server, "deed"), nonce)),
            };
        }
        match rng.u8(..100) {
            0..=3 => Self::List(any_server(rng)),
            4..=11 => Self::Call(private(who.user, any_server(rng), nonce)),
            12..=18 => Self::Call(sick(who.user, nonce)),
            19..=29 if who.user.role == SOME => {
                let target = if rng.bool() { (HIDDEN, "deed") } else { (any_server(rng), FORBIDDEN) };
                Self::Call(plain(rng, who, target, nonce))
            }
            30..=39 => Self::Call(probe(SHARED, nonce)),
            _ => {
                let server = allowed_server(rng, who.user);
                Self::Call(plain(rng, who, (server, "deed"), nonce))
            }
        }
    }
}

/// A call that asks nothing but whether a server works.
pub(crate) fn probe(server: &'static str, nonce: u64) -> PlannedCall {
    let arguments = json!({"nonce": nonce});
    PlannedCall { server, tool: "deed", purpose: Purpose::Once, arguments, abandon: Abandon::Never }
}

fn any_server(rng: &mut Rng) -> &'static str {
    SERVERS[rng.usize(..SERVERS.len())].name
}

fn allowed_server(rng: &mut Rng, person: &TestUser) -> &'static str {
    loop {
        let server = any_server(rng);
        if person.may_use(server, "deed") {
            return server;
        }
    }
}

fn purpose(person: &TestUser, target: (&str, &str), otherwise: Purpose) -> Purpose {
    if person.may_use(target.0, target.1) { otherwise } else { Purpose::Forbidden }
}

fn plain(rng: &mut Rng, who: CallerProfile, target: (&'static str, &'static str), nonce: u64) -> PlannedCall {
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
    let purpose = purpose(who.user, target, Purpose::Once);
    PlannedCall { server: target.0, tool: target.1, purpose, arguments, abandon: leaving }
}

/// The same arguments for everybody who may ask: only the caller tells the answers apart. Of the calls
/// that must not run every other one has its number in them, so that an execution of it would be known
/// for what it is; the rest would also be answered by what is remembered for others.
fn private(person: &TestUser, server: &'static str, nonce: u64) -> PlannedCall {
    let mut arguments = json!({"ttl_ms": TTL_MS, "ms": 5});
    let purpose = purpose(person, (server, "secret"), Purpose::Private);
    if purpose == Purpose::Forbidden && nonce.is_multiple_of(2) {
        arguments["nonce"] = nonce.into();
    }
    PlannedCall { server, tool: "secret", purpose, arguments, abandon: Abandon::Never }
}

fn sick(person: &TestUser, nonce: u64) -> PlannedCall {
    let arguments = json!({"nonce": nonce, "ms": SICK_MS});
    let purpose = purpose(person, (SICK, "sick"), Purpose::Sick);
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
