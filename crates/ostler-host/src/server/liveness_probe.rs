//! Feeling a silent server's pulse.

use std::future::pending;
use std::sync::Arc;

use ostler_core::liveness::{ConnectionActivity, Liveness, PROBE_TIMEOUT, ProbeDecision};
use ostler_core::spec::ServerSpec;
use ostler_wire::{Era, Params};
use tokio::time::Instant;

use super::slot::{LiveSession, Slot};
use crate::upstream::{BoxFuture, ServerSession, UpstreamRequest};

/// The probe that is out, if one is.
#[derive(Default)]
pub(crate) struct LivenessProbe {
    probe: Option<BoxFuture<'static, bool>>,
}

impl LivenessProbe {
    /// When to look next; never while a probe is out.
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

    /// Whether the server answered the probe that is out.
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

/// Asks the cheapest question the server must answer. Any answer counts, to
/// whatever question: who talks, lives.
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
