//! Why nothing works, for people.

use tokio::time::Instant;

use super::Core;
use crate::broker::Refusal;
use crate::tether::Situation;

impl Core {
    /// What is wrong now, in one sentence; `None` if nothing is.
    pub(super) fn trouble(&self) -> Option<String> {
        let place = &self.place;
        match &*self.situation.borrow() {
            Situation::Waiting { why: None } => {
                return Some(format!("the broker at {place} has not answered yet"));
            }
            Situation::Waiting { why: Some(Refusal::Away(why)) } => {
                return Some(format!("the broker at {place} can't be reached: {why}"));
            }
            Situation::Waiting { why: Some(Refusal::Credentials(why)) } => {
                return Some(format!("the broker at {place} does not accept the credentials: {why}"));
            }
            Situation::Over => return Some("the worker is shut down".into()),
            Situation::Up(_) => {}
        }
        if let Some(problem) = self.asking.problem() {
            return Some(problem);
        }
        if self.hosts().is_none_open(Instant::now()) {
            return Some(format!("no host answers at the broker at {place}"));
        }
        self.manifest.borrow().is_none().then(|| "no host has said yet what this worker may use".into())
    }

    /// Waits until the broker does not accept the credentials, which only a
    /// person can change.
    pub(super) async fn turned_away(&self) -> String {
        let mut situation = self.situation.clone();
        let is_refused = |situation: &Situation| {
            matches!(situation, Situation::Waiting { why: Some(Refusal::Credentials(_)) })
        };
        if situation.wait_for(is_refused).await.is_err() {
            std::future::pending::<()>().await;
        }
        self.trouble().unwrap_or_else(|| "the broker does not accept the credentials".into())
    }

    /// Waits until the broker does not let this worker in, or does not let it
    /// ask or hear, or the host has no such role: who waits for something else then waits in vain.
    pub(super) async fn refusal(&self) -> String {
        let (mut situation, mut refused) = (self.situation.clone(), self.asking.refused());
        loop {
            let is_turned_away = matches!(
                &*situation.borrow_and_update(),
                Situation::Waiting { why: Some(Refusal::Credentials(_)) }
            );
            let why = refused.borrow_and_update().clone();
            if let Some(why) = if is_turned_away { self.trouble() } else { why } {
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
