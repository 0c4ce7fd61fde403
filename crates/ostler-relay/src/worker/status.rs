//! Why nothing works, for people.

use tokio::time::Instant;

use super::WorkerCore;
use crate::broker::BrokerConnectError;
use crate::reconnect::LinkState;

impl WorkerCore {
    /// What is wrong now, in one sentence; `None` if nothing is.
    pub(super) fn problem(&self) -> Option<String> {
        let place = &self.broker_address;
        match &*self.link_state.borrow() {
            LinkState::Disconnected { why: None } => {
                return Some(format!("the broker at {place} has not answered yet"));
            }
            LinkState::Disconnected { why: Some(BrokerConnectError::Unreachable(why)) } => {
                return Some(format!("the broker at {place} can't be reached: {why}"));
            }
            LinkState::Disconnected { why: Some(BrokerConnectError::Credentials(why)) } => {
                return Some(format!("the broker at {place} does not accept the credentials: {why}"));
            }
            LinkState::Closed => return Some("the worker is shut down".into()),
            LinkState::Connected(_) => {}
        }
        if let Some(problem) = self.manifest_refresh.problem() {
            return Some(problem);
        }
        if self.hosts().is_none_accepting(Instant::now()) {
            return Some(format!("no host answers at the broker at {place}"));
        }
        self.manifest.borrow().is_none().then(|| "no host has said yet what this worker may use".into())
    }

    /// Waits until the broker does not accept the credentials, which only a
    /// person can change.
    pub(super) async fn wait_credentials_refused(&self) -> String {
        let mut situation = self.link_state.clone();
        let is_refused = |situation: &LinkState| {
            matches!(situation, LinkState::Disconnected { why: Some(BrokerConnectError::Credentials(_)) })
        };
        if situation.wait_for(is_refused).await.is_err() {
            std::future::pending::<()>().await;
        }
        self.problem().unwrap_or_else(|| "the broker does not accept the credentials".into())
    }

    /// Waits until the broker does not let this worker in, or does not let it
    /// ask or hear, or the host has no such role: who waits for something else then waits in vain.
    pub(super) async fn wait_refused(&self) -> String {
        let (mut situation, mut refused) = (self.link_state.clone(), self.manifest_refresh.watch_refused());
        loop {
            let is_turned_away = matches!(
                &*situation.borrow_and_update(),
                LinkState::Disconnected { why: Some(BrokerConnectError::Credentials(_)) }
            );
            let why = refused.borrow_and_update().clone();
            if let Some(why) = if is_turned_away { self.problem() } else { why } {
                return why;
            }
            // Without anybody left who could change it, nothing changes.
            let changed = tokio::select! {
                changed = situation.changed() => changed,
                changed = refused.changed() => changed,
            };
            if changed.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}
