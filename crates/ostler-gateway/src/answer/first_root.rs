//! First root of a legacy client: its workspace, where the client may name one.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::caller::Caller;
use ostler_host::{find_workspace, folder_of_root};
use ostler_wire::Outcome;
use serde::Deserialize;

use crate::gateway::Gateway;
use crate::outlet::Outlet;
use crate::session::Session;

/// How long a client may take to name its roots. One that declares them and does not answer is not waited for again.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
struct Roots {
    roots: Vec<Root>,
}

#[derive(Deserialize)]
struct Root {
    uri: String,
}

/// Returns the caller of a request of a session, in the directory of the client's first root. Without one it stays where it
/// was started.
pub(crate) async fn in_first_root(
    gateway: &Gateway,
    session: &Session,
    outlet: &Outlet,
    caller: Caller,
) -> Caller {
    if !caller.may_name_workspace() || !session.can_answer("roots/list") || !gateway.0.host.has_workspaces() {
        return caller;
    }
    let roots = session.first_root();
    match roots.get_or_init(|| ask(session, outlet)).await {
        Some(folder) => caller.in_workspace(Arc::clone(folder)),
        None => caller,
    }
}

async fn ask(session: &Session, outlet: &Outlet) -> Option<Arc<str>> {
    let asked = tokio::time::timeout(PATIENCE, session.ask(outlet, "roots/list", None)).await;
    let Ok(Outcome::Result(answer)) = asked else { return None };
    let first = serde_json::from_slice::<Roots>(&answer).ok()?.roots.into_iter().next()?;
    find_workspace(folder_of_root(&first.uri)?).await.map(Into::into)
}
