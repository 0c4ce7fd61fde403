//! Abusive caller: sends bad arguments, oversize answers, timeouts and floods to a server that good
//! callers share, and makes a hostile server crash, flood and list. Its calls are not in the
//! records.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use ostler_chaos::history::{CallRoute, Purpose};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::http_client::HttpClient;
use super::next_action::{Abandon, PlannedCall};
use super::{CallerContext, CallerDeadlines};
use crate::run::environment::config::{HOSTILE, SHARED};
use crate::run::environment::users::ABUSER;

/// Calls at once: more than the caller's share of the shared server's slots.
const AT_ONCE: usize = 12;
/// Pause between two rounds.
const PAUSE: Duration = Duration::from_millis(100);

/// Abuses servers, round by round, until the run is over.
pub(crate) async fn run(context: Arc<CallerContext>, seed: u64) {
    let mut rng = Rng::with_seed(seed ^ 0xab5e);
    let token = context.testbed.tokens.get(ABUSER.name).map_or("", String::as_str);
    let ways = [CallRoute::HttpModern, CallRoute::HttpFace].into_iter().cycle();
    let mut clients: Vec<HttpClient> =
        ways.take(AT_ONCE).map(|way| HttpClient::new(way, token, context.testbed.ports.daemon)).collect();
    while !*context.is_over.borrow() {
        let (server, tool, arguments) = draw(&mut rng);
        let mut round = JoinSet::new();
        for mut client in clients.drain(..) {
            let arguments = arguments.clone();
            round.spawn(async move {
                let call =
                    PlannedCall { server, tool, purpose: Purpose::Once, arguments, abandon: Abandon::Never };
                client.call(&call, CallerDeadlines::from_now()).await;
                client
            });
        }
        while let Some(client) = round.join_next().await {
            clients.extend(client);
        }
        if let Some(client) = clients.first_mut() {
            let _ = client.list(HOSTILE, Instant::now() + Duration::from_secs(5)).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Draws one kind of abuse: the server, the tool and its arguments.
fn draw(rng: &mut Rng) -> (&'static str, &'static str, Value) {
    match rng.u8(..6) {
        0 => (SHARED, "rpc_error", json!({"code": -32603, "message": "bad arguments"})),
        1 => (SHARED, "huge_line", json!({"bytes": 200_000})),
        2 => (HOSTILE, "exit", json!({})),
        3 => (HOSTILE, "flood_notifications", json!({"count": 2_000})),
        _ => (SHARED, "sleep", json!({"ms": 60_000})),
    }
}
