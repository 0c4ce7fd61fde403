//! Worker status: the current problem, in words for people.

use tokio::time::Instant;

use super::WorkerCore;
use crate::broker::BrokerConnectError;
use crate::reconnect::LinkState;

impl WorkerCore {
    /// Describes the current problem in one sentence; `None` if there is none.
    pub(super) fn problem(&self) -> Option<String> {
        let address = &self.broker_address;
        match &*self.link_state.borrow() {
            LinkState::Disconnected { why: None } => {
                return Some(format!("the broker at {address} has not answered yet"));
            }
            LinkState::Disconnected { why: Some(BrokerConnectError::Unreachable(why)) } => {
                return Some(format!("the broker at {address} can't be reached: {why}"));
            }
            LinkState::Disconnected { why: Some(BrokerConnectError::Credentials(why)) } => {
                return Some(format!("the broker at {address} does not accept the credentials: {why}"));
            }
            LinkState::Closed => return Some("the worker is shut down".into()),
            LinkState::Connected(_) => {}
        }
        if let Some(problem) = self.manifest_refresh.problem() {
            return Some(problem);
        }
        if self.hosts().is_none_accepting(Instant::now()) {
            return Some(format!("no host answers at the broker at {address}"));
        }
        self.manifest.borrow().is_none().then(|| "no host has said yet what this worker may use".into())
    }

    /// Waits until the broker rejects the credentials, which only an operator can correct.
    pub(super) async fn wait_credentials_refused(&self) -> String {
        let mut link_state = self.link_state.clone();
        let is_refused = |link_state: &LinkState| {
            matches!(link_state, LinkState::Disconnected { why: Some(BrokerConnectError::Credentials(_)) })
        };
        if link_state.wait_for(is_refused).await.is_err() {
            std::future::pending::<()>().await;
        }
        self.problem().unwrap_or_else(|| "the broker does not accept the credentials".into())
    }

    /// Waits for a refusal that waiting does not resolve: rejected credentials, a denied subject or
    /// an unknown role. Returns the reason.
    pub(super) async fn wait_refused(&self) -> String {
        let (mut link_state, mut refused) = (self.link_state.clone(), self.manifest_refresh.watch_refused());
        loop {
            let is_rejected = matches!(
                &*link_state.borrow_and_update(),
                LinkState::Disconnected { why: Some(BrokerConnectError::Credentials(_)) }
            );
            let why = refused.borrow_and_update().clone();
            if let Some(why) = if is_rejected { self.problem() } else { why } {
                return why;
            }
            // Both senders are gone, so nothing changes any more.
            let changed = tokio::select! {
                changed = link_state.changed() => changed,
                changed = refused.changed() => changed,
            };
            if changed.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}
