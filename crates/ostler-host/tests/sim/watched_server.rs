//! Watched server: a scripted server that counts the requests that reach it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ostler_core::fault::Fault;
use ostler_core::spec::ServerSpec;
use ostler_core::status::{CircuitState, Containment, ServerState, ServerStatus};
use ostler_core::supervisor::ServerFailure;
use ostler_host::upstream::{
    BoxFuture, CloseMode, ConnectContext, Connector, ServerSession, SessionStats, UpstreamRequest,
};
use ostler_testkit::ScriptedServer;
use ostler_wire::{RpcOutcome, ServerInfo};
use tokio::time::Instant;

use crate::invariants::InvariantChecker;

/// One registration of a server.
pub(crate) struct WatchedServer {
    pub(crate) spec: ServerSpec,
    pub(crate) stage: ScriptedServer,
    watch: Arc<InvariantChecker>,
    is_registered: AtomicBool,
    in_flight: AtomicUsize,
    /// Requests in flight that came while the breaker was half open.
    probing: AtomicUsize,
    /// Times at which starts failed and sessions ended, since an operator last acted.
    failures: Mutex<VecDeque<Instant>>,
}

impl WatchedServer {
    pub(crate) fn new(spec: ServerSpec, stage: ScriptedServer, watch: Arc<InvariantChecker>) -> Arc<Self> {
        let (in_flight, probing) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let is_registered = AtomicBool::new(false);
        Arc::new(Self { spec, stage, watch, is_registered, in_flight, probing, failures: Mutex::default() })
    }

    /// Notes that the host has registered it.
    pub(crate) fn register(&self) {
        self.is_registered.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.is_registered.load(Ordering::Relaxed)
    }

    fn name(&self) -> &str {
        self.spec.name.as_str()
    }

    fn status(&self) -> Option<ServerStatus> {
        self.watch.host()?.status_of(self.name()).ok()
    }

    /// Notes an operator's act: earlier failures no longer count, or no longer in the same way.
    pub(crate) fn reset_failures(&self) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Checks that in any window at most one generation more fails than the budget allows.
    fn note_failure(&self) {
        let restart = self.spec.restart;
        let recent = {
            let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
            failures.push_back(Instant::now());
            failures.retain(|at| at.elapsed() < restart.window);
            failures.len()
        };
        let is_within = restart.readmit_after.is_some() || recent <= restart.max as usize + 1;
        self.watch.expect(is_within, || format!("{}: {recent} failures in its window", self.name()));
    }

    fn begin_request(self: &Arc<Self>, method: &str) -> TrackedRequest {
        let in_flight = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        let most = self.spec.max_in_flight;
        self.watch.expect(in_flight <= most, || format!("{}: {in_flight} of {most} calls", self.name()));
        self.watch.check_limits();
        let status = self.status();
        // A list bypasses the breaker and is no probe.
        let is_half_open = status.as_ref().is_some_and(|status| status.circuit == CircuitState::HalfOpen);
        let is_probe = is_half_open && !method.ends_with("/list");
        if is_probe {
            let probing = self.probing.fetch_add(1, Ordering::Relaxed) + 1;
            self.watch.expect(probing <= 1, || format!("{}: {probing} probes at once", self.name()));
        }
        let queued = status.map_or(0, |status| status.queued);
        self.watch.expect(queued <= self.spec.max_queued, || format!("{}: {queued} queued", self.name()));
        TrackedRequest { server: Arc::clone(self), is_probe }
    }
}

/// A request at the server.
struct TrackedRequest {
    server: Arc<WatchedServer>,
    is_probe: bool,
}

impl Drop for TrackedRequest {
    fn drop(&mut self) {
        self.server.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.server.probing.fetch_sub(usize::from(self.is_probe), Ordering::Relaxed);
    }
}

/// Connector that makes watched sessions.
pub(crate) struct WatchedConnector(pub(crate) Arc<WatchedServer>);

impl Connector for WatchedConnector {
    fn connect(&self, plan: ConnectContext) -> BoxFuture<'_, Result<Arc<dyn ServerSession>, ServerFailure>> {
        let scene = &self.0;
        Box::pin(async move {
            scene.watch.trace(&format!("{} starts", scene.name()));
            scene.watch.check_limits();
            let session = scene.stage.connect(plan).await.inspect_err(|_| scene.note_failure())?;
            Ok(Arc::new(WatchedSession { server: Arc::clone(scene), session, pings: AtomicUsize::new(0) })
                as _)
        })
    }

    fn containment(&self) -> Containment {
        self.0.stage.containment()
    }
}

struct WatchedSession {
    server: Arc<WatchedServer>,
    session: Arc<dyn ServerSession>,
    pings: AtomicUsize,
}

impl WatchedSession {
    async fn ping(&self, ask: UpstreamRequest<'_>) -> Result<RpcOutcome, Fault> {
        let pings = self.pings.fetch_add(1, Ordering::Relaxed) + 1;
        self.server.watch.expect(pings == 1, || format!("{}: {pings} pings at once", self.server.name()));
        let result = self.session.request(ask).await;
        self.pings.fetch_sub(1, Ordering::Relaxed);
        result
    }
}

impl ServerSession for WatchedSession {
    fn server_info(&self) -> &ServerInfo {
        self.session.server_info()
    }

    fn request<'a>(&'a self, ask: UpstreamRequest<'a>) -> BoxFuture<'a, Result<RpcOutcome, Fault>> {
        Box::pin(async move {
            if ask.method == "ping" {
                return self.ping(ask).await;
            }
            let _visit = self.server.begin_request(ask.method);
            self.session.request(ask).await
        })
    }

    fn ended(&self) -> BoxFuture<'_, ServerFailure> {
        Box::pin(async move {
            let failure = self.session.ended().await;
            self.server.watch.trace(&format!("{} ends", self.server.name()));
            // A session that the host was ending anyway does not count.
            if self.server.status().is_some_and(|status| status.state == ServerState::Ready) {
                self.server.note_failure();
            }
            failure
        })
    }

    fn close(&self, force: CloseMode) -> BoxFuture<'_, ()> {
        self.session.close(force)
    }

    fn stats(&self) -> SessionStats {
        self.session.stats()
    }

    fn activity(&self) -> (Option<Instant>, Option<Instant>) {
        self.session.activity()
    }
}
