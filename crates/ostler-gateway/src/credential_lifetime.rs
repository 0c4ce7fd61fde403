//! Credential lifetime: requests and streams end with the credential that started them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ostler_core::caller::CredentialState;
use tokio::sync::watch;

use crate::client_request::GatewayReply;

/// Lifetime of a credential, held by every request and stream that it started. The authenticator that makes a lifetime
/// ends it; clones share the same lifetime.
#[derive(Debug, Clone)]
pub struct CredentialLifetime(Arc<watch::Sender<CredentialState>>);

impl CredentialLifetime {
    /// Makes the lifetime of a valid credential.
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(CredentialState::Valid)))
    }

    /// Marks the credential as expired.
    pub fn expire(&self) {
        self.set(CredentialState::Expired);
    }

    /// Marks the credential as revoked.
    pub fn revoke(&self) {
        self.set(CredentialState::Revoked);
    }

    /// Returns the state of the credential.
    pub fn state(&self) -> CredentialState {
        *self.0.borrow()
    }

    /// Returns whether another holder exists beside the caller of this method.
    pub fn is_held(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Waits until the credential is expired or revoked; for streams that last as long as their client wants.
    pub async fn ended(&self) {
        self.wait_until(CredentialState::Expired).await;
    }

    /// Waits until the credential is revoked; for requests in flight.
    pub(crate) async fn revoked(&self) {
        self.wait_until(CredentialState::Revoked).await;
    }

    async fn wait_until(&self, standing: CredentialState) {
        // The sender is held, so the wait can't fail.
        let _ = self.0.subscribe().wait_for(|now| *now >= standing).await;
    }

    /// Sets a state; a state never improves.
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

/// Answers a request, or ends it when its credential is revoked. The gateway does not know then if the server has run
/// it.
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

/// End of a credential, polled by the body of a stream.
#[derive(Default)]
pub(crate) struct CredentialEnd(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl CredentialEnd {
    /// Makes the end of a stream that lasts as long as its client wants: it ends when the credential expires or is
    /// revoked.
    pub(crate) fn for_long_stream(pass: Option<CredentialLifetime>) -> Self {
        Self(pass.map(|pass| {
            let end: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move { pass.ended().await });
            end
        }))
    }

    /// Returns whether the credential has ended; wakes the task when it does.
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

    /// Makes a check that returns whether requests in flight are ended.
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
