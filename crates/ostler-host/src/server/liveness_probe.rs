//! Liveness probe: a ping to a server that has been silent for too long.

use std::future::pending;
use std::sync::Arc;

use ostler_core::liveness::{ConnectionActivity, Liveness, PROBE_TIMEOUT, ProbeDecision};
use ostler_core::spec::ServerSpec;
use ostler_wire::{Era, Params};
use tokio::time::Instant;

use super::slot::{LiveSession, Slot};
use crate::upstream::{BoxFuture, ServerSession, UpstreamRequest};

/// The outstanding probe, if any.
#[derive(Default)]
pub(crate) struct LivenessProbe {
    probe: Option<BoxFuture<'static, bool>>,
}

impl LivenessProbe {
    /// Returns the time of the next check; `None` while a probe is outstanding.
    pub(crate) fn next_check(
        &self,
        liveness: &Liveness,
        live: &LiveSession,
        spec: &ServerSpec,
    ) -> Option<Instant> {
        if self.probe.is_some() {
            return None;
        }
        let now = Instant::now().into_std();
        match liveness.decide(&signs(live, spec), now) {
            ProbeDecision::NotBefore(at) => Some(Instant::from_std(at)),
            ProbeDecision::Probe => Some(Instant::now()),
        }
    }

    /// Sends a probe if the server has been silent too long.
    pub(crate) fn probe_if_silent(&mut self, slot: &Slot, live: Option<&Arc<LiveSession>>) {
        let Some(live) = live else { return };
        if self.probe.is_some() {
            return;
        }
        let look = slot.state().liveness.decide(&signs(live, &slot.spec), Instant::now().into_std());
        if look == ProbeDecision::Probe {
            self.probe = Some(Box::pin(is_alive(Arc::clone(&live.session))));
        }
    }

    /// Waits for the outstanding probe and returns whether the server answered it.
    pub(crate) async fn is_answered(&mut self) -> bool {
        let answered = match &mut self.probe {
            Some(probe) => probe.await,
            None => pending().await,
        };
        self.probe = None;
        answered
    }
}

fn signs(live: &LiveSession, spec: &ServerSpec) -> ConnectionActivity {
    let (heard, oldest) = live.session.activity();
    ConnectionActivity {
        last_received: heard.unwrap_or(live.since).max(live.since).into_std(),
        oldest_call: oldest.map(Instant::into_std),
        call_timeout: spec.call_timeout,
    }
}

/// Sends the cheapest request that the server must answer. Any answer counts, to any request: it proves that the
/// server is alive.
async fn is_alive(session: Arc<dyn ServerSession>) -> bool {
    let method = match session.server_info().era {
        Era::Modern => "server/discover",
        Era::Legacy => "ping",
    };
    let until = Instant::now() + PROBE_TIMEOUT;
    let params = Params::empty();
    let (heard, _) = session.activity();
    match session.request(UpstreamRequest::from_host(method, &params, until)).await {
        Ok(_) => true,
        Err(fault) => {
            fault.delivery == ostler_core::fault::Delivery::Answered || session.activity().0 > heard
        }
    }
}
