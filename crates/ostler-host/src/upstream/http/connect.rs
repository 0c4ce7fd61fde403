//! Making sessions with a remote endpoint.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use ostler_core::fault::{FaultKind, PermanentCause};
use ostler_core::spec::{Endpoint, ServerSpec};
use ostler_core::status::Containment;
use ostler_core::supervisor::Failure;
use ostler_wire::ClientIdentity;
use reqwest::{Client, Url};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::client;
use super::road::Road;
use super::session::{Beginning, HttpSession};
use super::shake::{self, Manner, Opened};
use super::turn_down;
use crate::secrets::Veil;
use crate::upstream::stdio::resolve;
use crate::upstream::{BoxFuture, Connector, Plan, Session};
use crate::via::Via;

/// Makes one session after the other with a remote endpoint.
#[derive(Debug)]
pub struct HttpConnector {
    endpoint: Endpoint,
    identity: ClientIdentity,
    veil: Arc<Veil>,
    via: Arc<Via>,
    /// The longest answer or event.
    cap: usize,
    /// How much time a progress notification gives a call.
    patience: Duration,
    /// Made for the first session: a server that is never used costs nothing.
    client: OnceCell<Client>,
    /// The manner of the last session, which saves the next one a probe.
    manner: Mutex<Option<Manner>>,
    /// Set when it could not be told whose question one was; kept over sessions.
    is_confused: Arc<AtomicBool>,
}

impl HttpConnector {
    pub(crate) fn new(
        spec: &ServerSpec,
        endpoint: Endpoint,
        identity: ClientIdentity,
        veil: Arc<Veil>,
        via: Arc<Via>,
    ) -> Self {
        Self {
            endpoint,
            identity,
            veil,
            via,
            cap: spec.max_line,
            patience: spec.call_timeout,
            client: OnceCell::new(),
            manner: Mutex::new(None),
            is_confused: Arc::default(),
        }
    }

    async fn open(&self, plan: Plan) -> Result<Arc<dyn Session>, FaultKind> {
        let road = self.road(plan.workspace.as_deref()).await?;
        let remembered = *self.lock();
        let opened = match shake::open(&road, &self.identity, remembered).await {
            Ok(opened) => opened,
            Err(fault) => {
                // Whatever it was before, the next start asks anew.
                *self.lock() = None;
                return Err(turn_down::at_handshake(fault.kind));
            }
        };
        *self.lock() = Some(match &opened {
            Opened::Modern(_) => Manner::Modern,
            Opened::Legacy(..) => Manner::Legacy,
            Opened::Wire(..) => Manner::Wire,
        });
        let (identity, is_confused) = (self.identity.clone(), Arc::clone(&self.is_confused));
        let (patience, veil) = (self.patience, Arc::clone(&self.veil));
        let beginning = Beginning { road, plan, identity, patience, is_confused, veil };
        Ok(HttpSession::begin(opened, beginning))
    }

    /// Resolves the references in address and headers, as they are now.
    pub(crate) async fn road(&self, workspace: Option<&str>) -> Result<Road, PermanentCause> {
        let config = PermanentCause::Config;
        let text = resolve(&self.endpoint.url, workspace, &self.veil).await?;
        // The address may hold a secret, so the error does not repeat it.
        let url = Url::parse(&text).map_err(|error| config(format!("its `url` is no address: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(config("its `url` is no http:// or https:// address".into()));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &self.endpoint.headers {
            let value = resolve(value, workspace, &self.veil).await?;
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| config(format!("`{name}` can't be the name of a header")))?;
            let mut value = HeaderValue::from_str(&value)
                .map_err(|_| config(format!("the value of the header `{name}` can't be sent")))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let client = self.client.get_or_try_init(|| make_client(url.clone())).await.map_err(config)?;
        Ok(Road::new(client.clone(), url, headers, (self.cap, Arc::clone(&self.via))))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Manner>> {
        self.manner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes a client off the runtime.
pub(crate) async fn make_client(url: Url) -> Result<Client, String> {
    tokio::task::spawn_blocking(move || client::make(&url)).await.map_err(|error| error.to_string())?
}

impl Connector for HttpConnector {
    fn connect(&self, plan: Plan) -> BoxFuture<'_, Result<Arc<dyn Session>, Failure>> {
        Box::pin(async move {
            self.open(plan)
                .await
                .map_err(|kind| Failure::new(self.veil.over(kind), Instant::now().into_std()))
        })
    }

    fn containment(&self) -> Containment {
        Containment::None
    }

    fn takes_turns(&self) -> bool {
        self.is_confused.load(Ordering::Acquire)
    }
}
