//! Remembered answers: what may be kept, for whom, and how it is found again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use ostler_core::cache::{CacheKey, CacheVisibility as CacheScope, CacheableResult};
use ostler_core::spec::{CacheRule, CacheScopeRule, Isolation, ServerSpec};
use ostler_wire::{CacheScopeHint, MemberEdit, ResultHead, ResultKind};
use tokio::time::Instant;

use crate::answer::Answer;
use crate::host::Host;
use crate::request::Request;
use crate::sealed_tokens::tasks::is_legacy_task;
use crate::server::slot::Slot;

impl Host {
    /// Looks for a remembered answer. A server that has none costs nothing here.
    pub(crate) fn lookup_cached(&self, slot: &Slot, request: &Request<'_>) -> Option<Answer> {
        if request.params.is_continuation() || request.is_hidden {
            return None;
        }
        if !slot.has_cached_answers() {
            if has_cache_key(request) {
                slot.uncounted_misses.fetch_add(1, Ordering::Relaxed);
            }
            return None;
        }
        let key = cache_key(slot, request)?;
        let hit =
            self.cache().lookup(&key, &slot.cache_owner(request.caller()), Instant::now().into_std())?;
        Some(Answer {
            body: hit.body,
            server: slot.key.server.clone(),
            generation: None,
            ttl: hit.remaining,
            scope: match hit.scope {
                CacheScope::Public => CacheScopeHint::Public,
                CacheScope::Private => CacheScopeHint::Private,
            },
        })
    }

    /// Keeps an answer if its server or the operator says so, and nothing was
    /// invalidated since `epoch`.
    pub(crate) fn cache_answer(
        &self,
        slot: &Slot,
        request: &Request<'_>,
        mut answer: Answer,
        epoch: u64,
    ) -> Answer {
        // Of the moment: what was forbidden meanwhile is not kept.
        let Some((ttl, scope)) = lifetime(self.current().spec_of(slot), request, &answer.body) else {
            return answer;
        };
        (answer.ttl, answer.scope) = (ttl, scope);
        let Some(key) = cache_key(slot, request) else { return answer };
        let fresh = CacheableResult {
            // The answer is a slice of a read buffer; keeping the slice would keep the buffer.
            body: Bytes::copy_from_slice(&answer.body),
            ttl,
            scope: match scope {
                CacheScopeHint::Public => CacheScope::Public,
                CacheScopeHint::Private => CacheScope::Private,
            },
        };
        let mut cache = self.cache();
        // An invalidation raises the epoch before it purges, and purging takes
        // this lock: either the epoch tells, or the purge removes the entry.
        // So does the end of a credential.
        if slot.cache_epoch() == epoch && !request.caller().is_credential_ended() {
            let ticket = cache.epoch(&slot.key.server);
            cache.store(ticket, key, &slot.cache_owner(request.caller()), fresh, Instant::now().into_std());
            slot.note_cached_answer();
        }
        answer
    }
}

/// The answer as it is told to others: one that its server calls public and the
/// operator does not is not called so downstream either.
pub(crate) fn restrict_cache_scope(spec: &ServerSpec, mut answer: Answer) -> Answer {
    if spec.cache_scope == CacheScopeRule::Server {
        return answer;
    }
    let is_public =
        ResultHead::parse(&answer.body).is_ok_and(|head| head.cache_scope == CacheScopeHint::Public);
    if is_public
        && let Some(body) =
            ostler_wire::edit(&answer.body, &[("cacheScope", MemberEdit::Set(b"\"private\""))])
    {
        answer.body = body.into();
    }
    answer
}

/// How long an answer may be kept, and who may see it.
fn lifetime(spec: &ServerSpec, request: &Request<'_>, body: &[u8]) -> Option<(Duration, CacheScopeHint)> {
    let is_hinted = matches!(
        request.method(),
        "tools/call"
            | "tools/list"
            | "resources/list"
            | "resources/templates/list"
            | "resources/read"
            | "prompts/list"
            | "server/discover"
    );
    if !is_hinted || request.params.is_continuation() {
        return None;
    }
    let rule = request.tool_name().map_or(CacheRule::Hint, |tool| spec.tool_rules(&tool).cache);
    if rule == CacheRule::Never || (rule == CacheRule::Hint && !ostler_wire::may_carry_ttl(body)) {
        return None;
    }
    let head = ResultHead::parse(body).ok()?;
    // A task is its caller's alone.
    if head.is_error || head.kind != ResultKind::Complete || is_legacy_task(body) {
        return None;
    }
    let hinted = head.ttl_ms.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
    let ttl = match rule {
        CacheRule::For(ttl) => Some(ttl),
        CacheRule::Hint => hinted,
        CacheRule::Never => None,
    };
    let scope = match spec.cache_scope {
        // Processes of different workspaces differ in what they are started with.
        CacheScopeRule::Server if spec.isolation != Isolation::Workspace => head.cache_scope,
        _ => CacheScopeHint::Private,
    };
    ttl.filter(|ttl| !ttl.is_zero()).map(|ttl| (ttl, scope))
}

/// Where an answer is kept: under what the rules were asked about. `None` where
/// the answer may depend on more than that. Arguments that RFC 8785 would change
/// in value have no canonical form; they are compared byte for byte.
pub(crate) fn cache_key(slot: &Slot, request: &Request<'_>) -> Option<CacheKey> {
    let params = match request.method() {
        // Its parameters have no part that could be left out.
        "completion/complete" if request.headers.is_empty() => canonical(request.params.raw()),
        _ if !request.is_plain() => return None,
        "tools/call" | "prompts/get" => canonical(request.params.arguments().unwrap_or(b"{}")),
        // An empty cursor is not the absence of one: a server may answer them differently.
        _ => {
            request.params.cursor().map(|cursor| Bytes::from(format!("cursor={cursor}"))).unwrap_or_default()
        }
    };
    Some(CacheKey {
        server: slot.key.server.clone(),
        spec: slot.key.registration,
        method: cacheable_method(request.method())?,
        subject: Arc::from(request.subject().ok()?.item_name()),
        params,
    })
}

/// Whether [`cache_key`] finds a key, which it takes longer to make.
fn has_cache_key(request: &Request<'_>) -> bool {
    let is_whole = request.method() == "completion/complete" && request.headers.is_empty();
    cacheable_method(request.method()).is_some() && (is_whole || request.is_plain())
}

fn canonical(raw: &[u8]) -> Bytes {
    ostler_wire::canonicalize_exact(raw).map_or_else(|_| Bytes::copy_from_slice(raw), Bytes::from)
}

/// The methods whose answers may be kept or shared, by a name that lasts.
fn cacheable_method(method: &str) -> Option<&'static str> {
    const METHODS: [&str; 9] = [
        "tools/call",
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "prompts/list",
        "prompts/get",
        "completion/complete",
        "server/discover",
    ];
    METHODS.into_iter().find(|known| *known == method)
}
