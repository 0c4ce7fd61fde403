//! Cache policy of answers: cacheability, visibility and keys.

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
    /// Looks up a cached answer. A server without cached answers costs nothing here.
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

    /// Caches an answer if its server or the operator allows it, and nothing was invalidated since `epoch`.
    pub(crate) fn cache_answer(
        &self,
        slot: &Slot,
        request: &Request<'_>,
        mut answer: Answer,
        epoch: u64,
    ) -> Answer {
        // Reads the spec in force: an answer whose caching was forbidden meanwhile is not cached.
        let Some((ttl, scope)) = lifetime(self.current().spec_of(slot), request, &answer.body) else {
            return answer;
        };
        (answer.ttl, answer.scope) = (ttl, scope);
        let Some(key) = cache_key(slot, request) else { return answer };
        let fresh = CacheableResult {
            // The answer is a slice of a read buffer, which the slice would keep alive.
            body: Bytes::copy_from_slice(&answer.body),
            ttl,
            scope: match scope {
                CacheScopeHint::Public => CacheScope::Public,
                CacheScopeHint::Private => CacheScope::Private,
            },
        };
        let mut cache = self.cache();
        // An invalidation raises the epoch before it purges, and purging takes this lock: either the epoch differs, or
        // the purge removes the entry. The same holds for the end of a credential.
        if slot.cache_epoch() == epoch && !request.caller().is_credential_ended() {
            let ticket = cache.epoch(&slot.key.server);
            cache.store(ticket, key, &slot.cache_owner(request.caller()), fresh, Instant::now().into_std());
            slot.note_cached_answer();
        }
        answer
    }
}

/// Restricts the cache scope of an answer: one that its server calls public and the operator does not is not called
/// public downstream either.
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

/// Returns the TTL of an answer and its cache scope.
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
    // A task belongs to its caller alone.
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
        // Processes of different workspaces are started with different values.
        CacheScopeRule::Server if spec.isolation != Isolation::Workspace => head.cache_scope,
        _ => CacheScopeHint::Private,
    };
    ttl.filter(|ttl| !ttl.is_zero()).map(|ttl| (ttl, scope))
}

/// Returns the key of a cached answer, by the subject that the rules were asked about. `None` where the answer may
/// depend on more than that. Arguments that RFC 8785 would change in value have no canonical form; they are compared
/// byte for byte.
pub(crate) fn cache_key(slot: &Slot, request: &Request<'_>) -> Option<CacheKey> {
    let params = match request.method() {
        // Every part of its parameters affects the answer.
        "completion/complete" if request.headers.is_empty() => canonical(request.params.raw()),
        _ if !request.is_plain() => return None,
        "tools/call" | "prompts/get" => canonical(request.params.arguments().unwrap_or(b"{}")),
        // An empty cursor differs from an absent one: a server may answer them differently.
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

/// Returns whether [`cache_key`] finds a key, which takes longer to build.
fn has_cache_key(request: &Request<'_>) -> bool {
    let is_whole = request.method() == "completion/complete" && request.headers.is_empty();
    cacheable_method(request.method()).is_some() && (is_whole || request.is_plain())
}

fn canonical(raw: &[u8]) -> Bytes {
    ostler_wire::canonicalize_exact(raw).map_or_else(|_| Bytes::copy_from_slice(raw), Bytes::from)
}

/// Returns the static name of a method whose answers may be cached or shared.
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
