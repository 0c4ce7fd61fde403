//! How long a credential is good: what was begun with it ends with it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::watch;

/// A credential's life, held by everything that was begun with it. Whoever
/// gives passes out ends them; clones are the same pass.
#[derive(Debug, Clone)]
pub struct Pass(Arc<watch::Sender<Standing>>);

/// What has become of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It is good.
    Good,
    /// Its time is over. Requests under way may finish; streams that would
    /// last are ended.
    Expired,
    /// It was taken back: everything that was begun with it is ended.
    Revoked,
}

impl Pass {
    /// A pass that is good.
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Standing::Good)))
    }

    /// Its time is over.
    pub fn expire(&self) {
        self.set(Standing::Expired);
    }

    /// It is taken back.
    pub fn revoke(&self) {
        self.set(Standing::Revoked);
    }

    /// What has become of it.
    pub fn standing(&self) -> Standing {
        *self.0.borrow()
    }

    /// Whether anybody but whoever asks holds it.
    pub fn is_held(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Ends when the credential is no longer good, for what would last as long
    /// as its client wants.
    pub async fn over(&self) {
        self.at_least(Standing::Expired).await;
    }

    /// Ends when the credential is taken back, for requests under way.
    pub(crate) async fn revoked(&self) {
        self.at_least(Standing::Revoked).await;
    }

    async fn at_least(&self, standing: Standing) {
        // The sender is held, so waiting can't fail.
        let _ = self.0.subscribe().wait_for(|now| *now >= standing).await;
    }

    /// A standing only gets worse.
    fn set(&self, standing: Standing) {
        self.0.send_if_modified(|now| {
            let is_worse = *now < standing;
            *now = (*now).max(standing);
            is_worse
        });
    }
}

impl Default for Pass {
    fn default() -> Self {
        Self::new()
    }
}

/// The end of a credential, for the body of a stream to look out for.
#[derive(Default)]
pub(crate) struct Over(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl Over {
    /// Of a stream that lasts as long as its client wants: it ends when the
    /// time of the credential is over.
    pub(crate) fn of_long(pass: Option<Pass>) -> Self {
        Self(pass.map(|pass| {
            let end: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move { pass.over().await });
            end
        }))
    }

    /// Whether it has come; the task is woken when it does.
    pub(crate) fn has_come(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.0 {
            Some(end) => matches!(end.as_mut().poll(cx), Poll::Ready(())),
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tells whether requests under way are ended.
    fn is_revoked(pass: &Pass) -> impl FnMut() -> bool {
        let mut revoked: Pin<Box<dyn Future<Output = ()>>> = Box::pin({
            let pass = pass.clone();
            async move { pass.revoked().await }
        });
        move || revoked.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    #[tokio::test]
    async fn what_lasts_ends_with_the_time_and_a_request_only_when_it_is_taken_back() {
        let pass = Pass::new();
        let come = |over: &mut Over| {
            let mut cx = Context::from_waker(std::task::Waker::noop());
            over.has_come(&mut cx)
        };
        let mut long = Over::of_long(Some(pass.clone()));
        let mut request = is_revoked(&pass);
        assert!(!come(&mut long) && !request());
        pass.expire();
        assert!(come(&mut long) && !request());
        pass.revoke();
        assert!(request());
        pass.expire();
        assert_eq!(pass.standing(), Standing::Revoked);
        assert!(!come(&mut Over::of_long(None)));
    }
}
