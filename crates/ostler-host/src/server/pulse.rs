//! Feeling a silent server's pulse.

use std::future::pending;
use std::sync::Arc;

use ostler_core::liveness::{Liveness, Look, PATIENCE, Signs};
use ostler_core::spec::ServerSpec;
use ostler_wire::{Era, Params};
use tokio::time::Instant;

use super::slot::{Live, Slot};
use crate::upstream::{Ask, BoxFuture, Session};

/// The probe that is out, if one is.
#[derive(Default)]
pub(crate) struct Pulse {
    probe: Option<BoxFuture<'static, bool>>,
}

impl Pulse {
    /// When to look next; never while a probe is out.
    pub(crate) fn next_look(&self, liveness: &Liveness, live: &Live, spec: &ServerSpec) -> Option<Instant> {
        if self.probe.is_some() {
            return None;
        }
        let now = Instant::now().into_std();
        match liveness.look(&signs(live, spec), now) {
            Look::Later(at) => Some(Instant::from_std(at)),
            Look::Probe => Some(Instant::now()),
        }
    }

    /// Sends a probe if the server has been silent too long.
    pub(crate) fn feel(&mut self, slot: &Slot, live: Option<&Arc<Live>>) {
        let Some(live) = live else { return };
        if self.probe.is_some() {
            return;
        }
        let look = slot.desk().liveness.look(&signs(live, &slot.spec), Instant::now().into_std());
        if look == Look::Probe {
            self.probe = Some(Box::pin(is_alive(Arc::clone(&live.session))));
        }
    }

    /// Whether the server answered the probe that is out.
    pub(crate) async fn answer(&mut self) -> bool {
        let answered = match &mut self.probe {
            Some(probe) => probe.await,
            None => pending().await,
        };
        self.probe = None;
        answered
    }
}

fn signs(live: &Live, spec: &ServerSpec) -> Signs {
    let (heard, oldest) = live.session.signs();
    Signs {
        heard: heard.unwrap_or(live.since).max(live.since).into_std(),
        oldest_call: oldest.map(Instant::into_std),
        call_timeout: spec.call_timeout,
    }
}

/// Asks the cheapest question the server must answer. Any answer counts, to
/// whatever question: who talks, lives.
async fn is_alive(session: Arc<dyn Session>) -> bool {
    let method = match session.hello().era {
        Era::Modern => "server/discover",
        Era::Legacy => "ping",
    };
    let until = Instant::now() + PATIENCE;
    let params = Params::empty();
    let (heard, _) = session.signs();
    match session.request(Ask::own(method, &params, until)).await {
        Ok(_) => true,
        Err(fault) => fault.delivery == ostler_core::fault::Delivery::Answered || session.signs().0 > heard,
    }
}
