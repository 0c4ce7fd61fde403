//! Sealed tokens: texts that callers keep for the host, sealed for their caller. The host takes back only sealed ones.
//!
//! ```text
//! task id         server, caller                                      as long as the task is
//! request state   server, caller, method, digest of the parameters,   10 minutes, one use,
//!                 instance of the host, number                        one process
//! cursor          server, caller, kind, item                          always
//! suspended call  server, caller, method, number                      as long as the call is suspended
//! ```
//!
//! Every front end sends through [`Host::send`], so none of them can skip this step. For results without task id and
//! request state it costs two searches over their bytes.

mod cursor;
mod sealer;
mod suspended;
pub(crate) mod tasks;

use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use memchr::memmem::Finder;
use ostler_core::caller::Caller;
use ostler_core::error::CallError;
use ostler_core::nonces::Nonces;
use ostler_core::server_name::ServerName;
use ostler_wire::{MemberEdit, MetaKey, Params, ResultHead, ResultKind};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

pub use self::cursor::Cursor;
use self::sealer::Sealer;
use self::tasks::RELATED_TASK_KEY;
use crate::answer::Answer;
use crate::host::Host;
use crate::request::Request;

const TASK: &str = "task";
const STATE: &str = "state";

/// Lifetime of a request state: the time that a person may take to answer.
pub const REQUEST_STATE_TTL: Duration = Duration::from_secs(10 * 60);

/// Prefix of the id that replaces an unsealed one in a request. Callers have only seen sealed ids, so an unsealed id
/// may be another caller's; the server answers in its own words that it does not know the prefixed id.
const UNSEALED: &str = "unknown to ostler: ";

/// Key of a host, and its unused request states.
#[derive(Debug)]
pub(crate) struct SealedTokens {
    sealer: Sealer,
    /// Random number that distinguishes this host's request states from those of an earlier process with the same key.
    instance: u64,
    states: Mutex<Nonces>,
}

/// An opened request state: its number, and the server's own JSON text.
struct RequestState {
    server: ServerName,
    method: Vec<u8>,
    digest: Vec<u8>,
    instance: u64,
    nonce: u64,
    raw: Vec<u8>,
}

impl SealedTokens {
    pub(crate) fn new(key: &[u8; 32], instance: u64) -> Self {
        Self { sealer: Sealer::new(key), instance, states: Mutex::new(Nonces::new(REQUEST_STATE_TTL)) }
    }

    fn seal_task(&self, caller: &Caller, server: &ServerName, id: &str) -> String {
        self.sealer.seal(TASK, &[server.as_str(), caller.principal(), id].map(str::as_bytes))
    }

    fn open_task(&self, caller: &Caller, text: &str) -> Option<(ServerName, String)> {
        let [server, owner, id]: [Vec<u8>; 3] = self.sealer.open(TASK, text)?.try_into().ok()?;
        let is_own = owner == caller.principal().as_bytes();
        is_own.then_some((server_name(&server)?, String::from_utf8(id).ok()?))
    }

    /// Seals the raw JSON text of a server's request state for one request.
    fn seal_state(&self, request: &Request<'_>, server: &ServerName, raw: &[u8]) -> String {
        let principal = request.caller().principal();
        let now = Instant::now().into_std();
        let number = self.states.lock().unwrap_or_else(PoisonError::into_inner).issue(principal, now);
        self.sealer.seal(
            STATE,
            &[
                server.as_str().as_bytes(),
                principal.as_bytes(),
                request.method().as_bytes(),
                &request_digest(&request.params),
                &self.instance.to_be_bytes(),
                &number.to_be_bytes(),
                raw,
            ],
        )
    }

    /// Opens a request state of the caller, whatever request it belongs to.
    fn open_state(&self, caller: &Caller, text: &[u8]) -> Option<RequestState> {
        let text = serde_json::from_slice::<String>(text).ok()?;
        let parts: [Vec<u8>; 7] = self.sealer.open(STATE, &text)?.try_into().ok()?;
        let [server, owner, method, digest, instance, number, raw] = parts;
        let state = RequestState {
            server: server_name(&server)?,
            method,
            digest,
            instance: u64::from_be_bytes(instance.try_into().ok()?),
            nonce: u64::from_be_bytes(number.try_into().ok()?),
            raw,
        };
        (owner == caller.principal().as_bytes()).then_some(state)
    }
}

impl Host {
    /// Returns the server of a task id that was sealed for the caller.
    pub fn task_server(&self, caller: &Caller, task: &str) -> Result<ServerName, CallError> {
        self.sealed_tokens().open_task(caller, task).map(|(server, _)| server).ok_or_else(unknown_task)
    }

    /// Returns the server that a continued request goes to, if its `requestState` was sealed for the caller.
    pub(crate) fn state_server(&self, caller: &Caller, params: &Params) -> Option<ServerName> {
        self.sealed_tokens().open_state(caller, params.request_state()?).map(|state| state.server)
    }

    /// Opens the task ids and the request state of a request.
    pub(crate) fn open_request(&self, request: &mut Request<'_>) -> Result<(), CallError> {
        if request.method().starts_with("tasks/") {
            self.open_task_id(request)?;
        }
        if request.params.meta_entry(MetaKey::RelatedTask).is_some() {
            self.open_related_task(request)?;
        }
        match request.params.request_state() {
            Some(_) => self.open_state(request),
            None => Ok(()),
        }
    }

    fn open_state(&self, request: &mut Request<'_>) -> Result<(), CallError> {
        let seals = self.sealed_tokens();
        let params = &request.params;
        let state = params.request_state().and_then(|text| seals.open_state(request.caller(), text));
        let state = state.filter(|state| {
            state.server.as_str() == request.server()
                && state.method == request.method().as_bytes()
                && state.digest == request_digest(params)
        });
        let state = state.ok_or_else(state_not_issued)?;
        if state.instance != seals.instance {
            return Err(state_expired());
        }
        request.params = with_member(params, "requestState", &state.raw).ok_or_else(state_not_issued)?;
        request.state_nonce = Some(state.nonce);
        Ok(())
    }

    fn open_task_id(&self, request: &mut Request<'_>) -> Result<(), CallError> {
        let Some(id) = request.params.task_id() else {
            // An id that is no text may become another caller's at its server.
            return match ostler_wire::member(request.params.raw(), "taskId") {
                Some(_) => Err(unknown_task()),
                None => Ok(()),
            };
        };
        let (id, is_own) = match sealer::is_sealed(&id) {
            true => (self.open_own_task(request, &id).ok_or_else(unknown_task)?, true),
            false => (format!("{UNSEALED}{id}"), false),
        };
        request.params =
            with_member(&request.params, "taskId", &json_string(&id)).ok_or_else(unknown_task)?;
        request.is_for_own_task = is_own;
        Ok(())
    }

    /// Opens the id of the task that a request claims to belong to.
    fn open_related_task(&self, request: &mut Request<'_>) -> Result<(), CallError> {
        let raw = request.params.raw();
        let opened = tasks::edit_member(raw, "_meta", |meta| {
            tasks::edit_member(meta, RELATED_TASK_KEY, |related| {
                let id = self.open_own_task(request, &ostler_wire::text_member(related, "taskId")?)?;
                ostler_wire::edit(related, &[("taskId", MemberEdit::Set(&json_string(&id)))])
            })
        });
        let opened = opened.and_then(|raw| Params::parse(raw.into()).ok());
        request.params = opened.ok_or_else(unknown_task)?;
        Ok(())
    }

    fn open_own_task(&self, request: &Request<'_>, id: &str) -> Option<String> {
        let (server, id) = self.sealed_tokens().open_task(request.caller(), id)?;
        (server.as_str() == request.server()).then_some(id)
    }

    /// Redeems the request state of an opened request. Of several requests with one state, one succeeds.
    pub(crate) fn redeem_state(&self, request: &Request<'_>) -> Result<(), CallError> {
        // A hidden request is never sent.
        let Some(number) = request.state_nonce.filter(|_| !request.is_hidden) else { return Ok(()) };
        let now = Instant::now().into_std();
        let mut states = self.sealed_tokens().states.lock().unwrap_or_else(PoisonError::into_inner);
        match states.redeem(request.caller().principal(), number, now) {
            true => Ok(()),
            false => Err(state_expired()),
        }
    }

    /// Seals the task ids and the request state of an answer for the caller of `request`.
    pub(crate) fn seal_answer(&self, request: &Request<'_>, mut answer: Answer) -> Answer {
        static KEY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"requestState\""));
        let seals = self.sealed_tokens();
        if tasks::may_contain_task_id(request.method(), &answer.body) {
            let body = std::mem::take(&mut answer.body);
            let seal = |id: &str| seals.seal_task(request.caller(), &answer.server, id);
            answer.body = tasks::seal_ids(request.method(), body, seal);
        }
        if KEY.find(&answer.body).is_some()
            && ResultHead::parse(&answer.body).is_ok_and(|head| head.kind == ResultKind::InputRequired)
            && let Some(raw) = ostler_wire::member(&answer.body, "requestState")
        {
            let text = json_string(&seals.seal_state(request, &answer.server, raw));
            let sealed = ostler_wire::edit(&answer.body, &[("requestState", MemberEdit::Set(&text))]);
            answer.body = sealed.map_or(answer.body, Bytes::from);
        }
        answer
    }
}

/// Returns a digest of the parts that stay the same when a request is continued: its parameters without answers, state
/// and `_meta`.
pub fn request_digest(params: &Params) -> [u8; 32] {
    let gone = ["inputResponses", "requestState", "_meta"].map(|key| (key, MemberEdit::Remove));
    let rest = ostler_wire::edit(params.raw(), &gone).unwrap_or_default();
    let rest = ostler_wire::canonicalize_exact(&rest).unwrap_or(rest);
    Sha256::digest(&rest).into()
}

fn server_name(text: &[u8]) -> Option<ServerName> {
    ServerName::new(std::str::from_utf8(text).ok()?).ok()
}

fn with_member(params: &Params, key: &str, value: &[u8]) -> Option<Params> {
    let text = ostler_wire::edit(params.raw(), &[(key, MemberEdit::Set(value))])?;
    Params::parse(text.into()).ok()
}

fn json_string(text: &str) -> Vec<u8> {
    let mut value = Vec::with_capacity(text.len() + 2);
    ostler_wire::push_json_string(&mut value, text);
    value
}

fn unknown_task() -> CallError {
    CallError::Invalid {
        what: "unknown task".into(),
        hint: "use a `taskId` as it was given to this caller".into(),
    }
}

fn state_not_issued() -> CallError {
    CallError::Invalid {
        what: "`requestState` was not given for this request".into(),
        hint: "repeat the request that it was given for, with the same caller, name and arguments".into(),
    }
}

fn state_expired() -> CallError {
    CallError::Invalid {
        what: "`requestState` was used before, is older than 10 minutes, or was given before ostler was restarted"
            .into(),
        hint: "find out whether the request has run; if not, send it again without `requestState`".into(),
    }
}
