//! Remote host behind a URL: its own HTTP endpoint, without a broker.

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

/// Timeout of an agent's wait for an unreachable host: clients give up after a minute, and an error tells them more.
pub(super) const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(30);

/// Name of the remote host in this process and in errors.
const SERVER_NAME: &str = "host";

/// Upper bound on concurrent calls at the host, and on queued ones. The remote host has limits of its own, which it
/// names in its errors.
const MAX_CALLS: usize = 1_024;

/// Upper bound on a response: as long as one of the relay.
const MAX_ANSWER: usize = 64 << 20;

/// Upper bound on a call that reports progress: slightly more than the longest of a host with default settings, so that
/// the host's own error comes first.
const MAX_CALL_TIME: Duration = Duration::from_secs(610);

/// Remote host behind a URL.
#[derive(Debug)]
pub(crate) struct UrlHost {
    url: String,
    /// Bearer token, as a reference that is resolved for every session.
    token: Option<String>,
    /// Timeout of a call without progress.
    timeout: Duration,
}

impl UrlHost {
    /// Returns the host of the command line. An unreadable token fails here, and not at the first call.
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
        // The address contains no references.
        Ok(Self { url: url.replace("${", "$${"), token, timeout })
    }

    /// Registers the remote host as the only server of a host, and reports its status.
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
            // The remote host validates.
            validate: false,
            // Restarts have no budget: no operator is here who could readmit it.
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

/// Returns a reference to the content of a file, read for every session: a token may be renewed.
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

/// Reports the state of the connection to the remote host, once for each change.
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
