//! How long a credential is good: what was begun with it ends with it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ostler_core::caller::CredentialState;
use tokio::sync::watch;

use crate::client_request::GatewayReply;

/// A credential's life, held by everything that was begun with it. Whoever
/// gives passes out ends them; clones are the same pass.
#[derive(Debug, Clone)]
pub struct CredentialLifetime(Arc<watch::Sender<CredentialState>>);

impl CredentialLifetime {
    /// A pass that is good.
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(CredentialState::Valid)))
    }

    /// Its time is over.
    pub fn expire(&self) {
        self.set(CredentialState::Expired);
    }

    /// It is taken back.
    pub fn revoke(&self) {
        self.set(CredentialState::Revoked);
    }

    /// What has become of it.
    pub fn state(&self) -> CredentialState {
        *self.0.borrow()
    }

    /// Whether anybody but whoever asks holds it.
    pub fn is_held(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Ends when the credential is no longer good, for what would last as long
    /// as its client wants.
    pub async fn ended(&self) {
        self.wait_until(CredentialState::Expired).await;
    }

    /// Ends when the credential is taken back, for requests under way.
    pub(crate) async fn revoked(&self) {
        self.wait_until(CredentialState::Revoked).await;
    }

    async fn wait_until(&self, standing: CredentialState) {
        // The sender is held, so waiting can't fail.
        let _ = self.0.subscribe().wait_for(|now| *now >= standing).await;
    }

    /// A standing only gets worse.
    fn set(&self, standing: CredentialState) {
        self.0.send_if_modified(|now| {
            let is_worse = *now < standing;
            *now = (*now).max(standing);
            is_worse
        });
    }
}

impl Default for CredentialLifetime {
    fn default() -> Self {
        Self::new()
    }
}

/// Answers a request, or ends it when its credential is revoked. Whether its server has run it is not known then.
pub(crate) async fn unless_revoked(
    lifetime: Option<CredentialLifetime>,
    answering: impl Future<Output = GatewayReply>,
) -> GatewayReply {
    let Some(lifetime) = lifetime else { return answering.await };
    tokio::select! {
        biased;
        reply = answering => reply,
        () = lifetime.revoked() => GatewayReply::credential_revoked(),
    }
}

/// The end of a credential, for the body of a stream to look out for.
#[derive(Default)]
pub(crate) struct CredentialEnd(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl CredentialEnd {
    /// Of a stream that lasts as long as its client wants: it ends when the
    /// time of the credential is over.
    pub(crate) fn for_long_stream(pass: Option<CredentialLifetime>) -> Self {
        Self(pass.map(|pass| {
            let end: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move { pass.ended().await });
            end
        }))
    }

    /// Whether it has come; the task is woken when it does.
    pub(crate) fn has_ended(&mut self, cx: &mut Context<'_>) -> bool {
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
    fn is_revoked(pass: &CredentialLifetime) -> impl FnMut() -> bool {
        let mut revoked: Pin<Box<dyn Future<Output = ()>>> = Box::pin({
            let pass = pass.clone();
            async move { pass.revoked().await }
        });
        move || revoked.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    #[tokio::test]
    async fn what_lasts_ends_with_the_time_and_a_request_only_when_it_is_taken_back() {
        let pass = CredentialLifetime::new();
        let come = |over: &mut CredentialEnd| {
            let mut cx = Context::from_waker(std::task::Waker::noop());
            over.has_ended(&mut cx)
        };
        let mut long = CredentialEnd::for_long_stream(Some(pass.clone()));
        let mut request = is_revoked(&pass);
        assert!(!come(&mut long) && !request());
        pass.expire();
        assert!(come(&mut long) && !request());
        pass.revoke();
        assert!(request());
        pass.expire();
        assert_eq!(pass.state(), CredentialState::Revoked);
        assert!(!come(&mut CredentialEnd::for_long_stream(None)));
    }
}
