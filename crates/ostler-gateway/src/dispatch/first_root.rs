//! First root of a legacy client: its workspace, where the client may name one.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_host::{resolve_workspace, root_uri_to_path};
use ostler_wire::RpcOutcome;
use serde::Deserialize;

use crate::client_session::ClientSession;
use crate::gateway::Gateway;
use crate::notification_sink::NotificationSink;

/// Timeout for `roots/list`. A client that declares roots and does not answer is not waited for again.
const ROOTS_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
struct Roots {
    roots: Vec<Root>,
}

#[derive(Deserialize)]
struct Root {
    uri: String,
}

/// Returns the caller of a request of a session, in the directory of the client's first root. Without a root it keeps
/// the directory in which it was started.
pub(crate) async fn in_first_root(
    gateway: &Gateway,
    session: &ClientSession,
    outlet: &NotificationSink,
    caller: Caller,
) -> Caller {
    if !caller.may_name_workspace() || !session.can_answer("roots/list") || !gateway.0.host.has_workspaces() {
        return caller;
    }
    let roots = session.first_root();
    match roots.get_or_init(|| request_first_root(session, outlet)).await {
        Some(folder) => caller.in_workspace(Arc::clone(folder)),
        None => caller,
    }
}

async fn request_first_root(session: &ClientSession, outlet: &NotificationSink) -> Option<Arc<str>> {
    let asked = tokio::time::timeout(ROOTS_TIMEOUT, session.send_request(outlet, "roots/list", None)).await;
    let Ok(RpcOutcome::Result(answer)) = asked else { return None };
    let first = serde_json::from_slice::<Roots>(&answer).ok()?.roots.into_iter().next()?;
    resolve_workspace(root_uri_to_path(&first.uri)?).await.map(Into::into)
}
