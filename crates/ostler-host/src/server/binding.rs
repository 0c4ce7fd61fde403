//! Binding: keeps a server up for longer than one call.

use std::sync::Arc;

use ostler_core::error::CallError;
use tokio::time::Instant;

use super::slot::Slot;
use crate::lifecycle::wait_until_started;

/// Keeps a server up. While it is held, the server is started if it is not running and is neither ended for idleness
/// nor evicted. Dropping it starts the keep-alive clock.
#[must_use = "dropping a binding lets the server go"]
pub struct Binding(Arc<Slot>);

impl Binding {
    /// Requests a session and waits until it is up. The binding itself is the demand; a stopped server stays stopped.
    pub(crate) async fn acquire(slot: &Arc<Slot>) -> Result<Self, CallError> {
        slot.update(|desk| desk.supervisor.on_bind());
        let binding = Self(Arc::clone(slot));
        wait_until_started(slot).await?;
        Ok(binding)
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        self.0.update(|desk| desk.supervisor.on_unbind(Instant::now().into_std()));
        self.0.process_pool.note_idle();
    }
}

impl std::fmt::Debug for Binding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Binding({})", self.0.key.server)
    }
}
