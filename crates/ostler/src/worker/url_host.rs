//! A host behind a URL: its own HTTP endpoint, without a broker.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ostler_core::config::redact_url;
use ostler_core::spec::{BreakerSettings, EndpointSpec, RestartSettings, ServerSpec, ServerTransport};
use ostler_core::status::ServerState;
use ostler_host::{Caller, Host, LifecycleEvent, LifecycleEventKind, ServerName};

use super::StatusPrinter;
use crate::failure::CommandFailure;
use crate::stdio;

/// How long an agent is kept waiting for a host that is not there. Clients
/// give up after a minute, and would rather be told.
pub(super) const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(30);

/// What the host elsewhere is called in here, and in errors.
const SERVER_NAME: &str = "host";

/// Calls at the host at once, and those that wait for a place. The host
/// elsewhere has bounds of its own, which it names in its errors.
const MAX_CALLS: usize = 1_024;

/// The longest answer: as long as one of the relay.
const MAX_ANSWER: usize = 64 << 20;

/// A call that reports progress may take this much longer than the longest of
/// a host with the usual settings, so that the host's own answer comes first.
const MAX_CALL_TIME: Duration = Duration::from_secs(610);

/// A host behind a URL.
#[derive(Debug)]
pub(crate) struct UrlHost {
    url: String,
    /// What stands behind `Bearer`, as a reference that is resolved for every session.
    token: Option<String>,
    /// How long a call may take without a sign of progress.
    timeout: Duration,
}

impl UrlHost {
    /// What was typed. A token that can't be read is an error now, and not
    /// when the first call fails.
    pub(crate) fn new(
        url: &str,
        token_file: Option<&Path>,
        timeout: Duration,
    ) -> Result<Self, CommandFailure> {
        let usage = |what: String, hint: &str| CommandFailure::Usage { what, hint: Some(hint.into()) };
        let shown = redact_url(url);
        let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
        if !rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', ':', '?', '#'])) {
            let what = format!("--url wants an http:// or https:// address, found `{shown}`");
            return Err(usage(what, "write it like https://tools.example/mcp"));
        }
        let token = match (stdio::read_token(token_file)?, token_file) {
            (None, _) => None,
            (Some(_), None) => Some(format!("${{env:{}}}", stdio::TOKEN_VARIABLE)),
            (Some(_), Some(file)) => Some(token_reference(file)?),
        };
        // Of the address nothing is a reference.
        Ok(Self { url: url.replace("${", "$${"), token, timeout })
    }

    /// Lets a host have it as its only server, and says how it is.
    pub(super) async fn register(
        &self,
        host: &Host,
        voice: &StatusPrinter,
    ) -> Result<ServerName, CommandFailure> {
        let name = ServerName::new(SERVER_NAME)
            .map_err(|error| CommandFailure::Machine(std::io::Error::other(error)))?;
        let report = ConnectionReporter {
            place: redact_url(&self.url),
            last_state: Mutex::new(None),
            printer: Arc::clone(voice),
        };
        let watched = host.clone();
        host.set_observer(Some(Arc::new(move |happening| report.handle_event(&watched, happening))));
        host.register(&Caller::operator(), self.spec(name.clone())).await?;
        Ok(name)
    }

    fn spec(&self, name: ServerName) -> ServerSpec {
        let bearer = self.token.iter().map(|token| ("Authorization".to_owned(), format!("Bearer {token}")));
        let endpoint = EndpointSpec { url: self.url.clone(), headers: bearer.collect::<BTreeMap<_, _>>() };
        ServerSpec {
            call_timeout: self.timeout,
            max_call_time: self.timeout.max(MAX_CALL_TIME),
            max_in_flight: MAX_CALLS,
            max_queued: MAX_CALLS,
            max_line: MAX_ANSWER,
            // The host behind it checks.
            validate: false,
            // It is tried for ever: nobody is here who could let it in again.
            restart: RestartSettings {
                max: u32::MAX,
                window: Duration::from_millis(1),
                ..RestartSettings::default()
            },
            breaker: BreakerSettings { failures: 0, ..BreakerSettings::default() },
            ..ServerSpec::with_transport(name, ServerTransport::Http(endpoint))
        }
    }
}

/// The content of a file, read whenever it is needed: a token may be renewed.
fn token_reference(file: &Path) -> Result<String, CommandFailure> {
    let file: PathBuf = std::path::absolute(file).map_err(CommandFailure::Machine)?;
    match file.to_str().filter(|path| !path.contains('}')) {
        Some(path) => Ok(format!("${{file:{path}}}")),
        None => Err(CommandFailure::Usage {
            what: format!("the path {} can't be used for a token", file.display()),
            hint: Some("name a file whose path is UTF-8 and has no `}`".into()),
        }),
    }
}

/// Says how the way to the host is, once for each change.
struct ConnectionReporter {
    place: String,
    last_state: Mutex<Option<ReportedState>>,
    printer: StatusPrinter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReportedState {
    Connected,
    Lost,
    Waiting,
    Refused,
}

impl ConnectionReporter {
    fn handle_event(&self, host: &Host, happening: &LifecycleEvent<'_>) {
        let is_refused =
            || host.status_of(SERVER_NAME).is_ok_and(|status| status.state == ServerState::NeedsAuth);
        let (said, cause) = match happening.kind {
            LifecycleEventKind::Started { .. } => (ReportedState::Connected, ""),
            LifecycleEventKind::Lost { cause, .. } | LifecycleEventKind::StartFailed { cause, .. }
                if is_refused() =>
            {
                (ReportedState::Refused, cause)
            }
            LifecycleEventKind::Lost { cause, .. } => (ReportedState::Lost, cause),
            LifecycleEventKind::StartFailed { cause, .. } => (ReportedState::Waiting, cause),
            _ => return,
        };
        let before = self.last_state.lock().unwrap_or_else(PoisonError::into_inner).replace(said);
        if before == Some(said) {
            return;
        }
        let place = &self.place;
        (self.printer)(&match said {
            ReportedState::Connected => format!("connected to the host at {place}"),
            ReportedState::Lost => format!("the connection to the host at {place} was lost: {cause}"),
            ReportedState::Waiting => {
                format!("the host at {place} can't be reached, waiting for it: {cause}")
            }
            ReportedState::Refused => format!(
                "the host at {place} does not accept the credentials, trying again once a minute: {cause}\n  \
                 hint: show a token with --token-file or OSTLER_TOKEN; `ostler token create` on the host makes one"
            ),
        });
    }
}
