//! HTTP connector: starts sessions with a remote endpoint.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use ostler_core::fault::{FaultKind, PermanentCause};
use ostler_core::spec::{EndpointSpec, ServerSpec};
use ostler_core::status::Containment;
use ostler_core::supervisor::ServerFailure;
use ostler_wire::ClientInfo;
use reqwest::{Client, Url};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::client_builder;
use super::endpoint_client::EndpointClient;
use super::faults;
use super::handshake::{self, HttpHandshake, HttpTransport};
use super::session::{HttpSession, HttpSessionParts};
use crate::loop_detection::LoopDetector;
use crate::redact::Redactor;
use crate::upstream::stdio::resolve;
use crate::upstream::{BoxFuture, ConnectContext, Connector, ServerSession};

/// Starts sessions with a remote endpoint, one after the other.
#[derive(Debug)]
pub struct HttpConnector {
    endpoint: EndpointSpec,
    identity: ClientInfo,
    redactor: Arc<Redactor>,
    loop_detector: Arc<LoopDetector>,
    /// Upper bound on one response or event, in bytes.
    cap: usize,
    /// Time that a call gets from a progress notification on.
    progress_extension: Duration,
    /// Built for the first session: a server that is never used costs nothing.
    client: OnceCell<Client>,
    /// The transport of the last session, which saves the next one a probe.
    transport: Mutex<Option<HttpTransport>>,
    /// Set once a server request could not be attributed; kept across sessions.
    has_ambiguous_requests: Arc<AtomicBool>,
}

impl HttpConnector {
    pub(crate) fn new(
        spec: &ServerSpec,
        endpoint: EndpointSpec,
        identity: ClientInfo,
        redactor: Arc<Redactor>,
        loop_detector: Arc<LoopDetector>,
    ) -> Self {
        Self {
            endpoint,
            identity,
            redactor,
            loop_detector,
            cap: spec.max_line,
            progress_extension: spec.call_timeout,
            client: OnceCell::new(),
            transport: Mutex::new(None),
            has_ambiguous_requests: Arc::default(),
        }
    }

    async fn open(&self, plan: ConnectContext) -> Result<Arc<dyn ServerSession>, FaultKind> {
        let road = self.endpoint_client(plan.workspace.as_deref()).await?;
        let remembered = *self.lock();
        let opened = match handshake::open(&road, &self.identity, remembered).await {
            Ok(opened) => opened,
            Err(fault) => {
                // The transport may have changed, so the next start probes anew.
                *self.lock() = None;
                return Err(faults::handshake_fault_kind(fault.kind));
            }
        };
        *self.lock() = Some(match &opened {
            HttpHandshake::Modern(_) => HttpTransport::Modern,
            HttpHandshake::Legacy(..) => HttpTransport::Legacy,
            HttpHandshake::Sse(..) => HttpTransport::Sse,
        });
        let (identity, is_confused) = (self.identity.clone(), Arc::clone(&self.has_ambiguous_requests));
        let (patience, veil) = (self.progress_extension, Arc::clone(&self.redactor));
        let beginning = HttpSessionParts {
            client: road,
            context: plan,
            identity,
            progress_extension: patience,
            has_ambiguous_requests: is_confused,
            redactor: veil,
        };
        Ok(HttpSession::start(opened, beginning))
    }

    /// Resolves the references in address and headers to their present values.
    pub(crate) async fn endpoint_client(
        &self,
        workspace: Option<&str>,
    ) -> Result<EndpointClient, PermanentCause> {
        let config = PermanentCause::Config;
        let text = resolve(&self.endpoint.url, workspace, &self.redactor).await?;
        // The address may hold a secret, so the error does not repeat it.
        let url = Url::parse(&text).map_err(|error| config(format!("its `url` is no address: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(config("its `url` is no http:// or https:// address".into()));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &self.endpoint.headers {
            let value = resolve(value, workspace, &self.redactor).await?;
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| config(format!("`{name}` can't be the name of a header")))?;
            let mut value = HeaderValue::from_str(&value)
                .map_err(|_| config(format!("the value of the header `{name}` can't be sent")))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let client = self.client.get_or_try_init(|| make_client(url.clone())).await.map_err(config)?;
        Ok(EndpointClient::new(client.clone(), url, headers, (self.cap, Arc::clone(&self.loop_detector))))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<HttpTransport>> {
        self.transport.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Builds a client off the runtime.
pub(crate) async fn make_client(url: Url) -> Result<Client, String> {
    tokio::task::spawn_blocking(move || client_builder::build_client(&url))
        .await
        .map_err(|error| error.to_string())?
}

impl Connector for HttpConnector {
    fn connect(&self, plan: ConnectContext) -> BoxFuture<'_, Result<Arc<dyn ServerSession>, ServerFailure>> {
        Box::pin(async move {
            self.open(plan).await.map_err(|kind| {
                ServerFailure::new(self.redactor.redact_kind(kind), Instant::now().into_std())
            })
        })
    }

    fn containment(&self) -> Containment {
        Containment::None
    }

    fn needs_exclusive_calls(&self) -> bool {
        self.has_ambiguous_requests.load(Ordering::Acquire)
    }
}
