//! Reply tasks: answers to server requests in progress.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::endpoint_client::EndpointClient;
use super::server_messages::IncomingServerRequest;
use super::session::HttpSessionState;

/// Upper bound on open server requests of one stream; more are not answered, and a server that sends so many does not
/// wait for them either.
const MAX: usize = 32;
/// Timeout for sending an answer.
const SEND: Duration = Duration::from_secs(30);

/// Answers in progress. Dropping it withdraws the server requests.
#[derive(Default)]
pub(crate) struct ReplyTasks {
    tasks: JoinSet<()>,
}

impl ReplyTasks {
    /// Starts a task that gets the answer and sends it back.
    pub(crate) fn begin(
        &mut self,
        link: &Arc<HttpSessionState>,
        asked: IncomingServerRequest,
        back: (EndpointClient, HeaderMap),
    ) {
        while self.tasks.try_join_next().is_some() {}
        if self.tasks.len() >= MAX {
            return link.client.counters.skip();
        }
        let link = Arc::clone(link);
        let (road, headers) = back;
        self.tasks.spawn(async move {
            let body = link.server_messages.answer_request(&link.pending_calls, asked).await;
            let _ = timeout(SEND, road.post(body, headers)).await;
        });
    }
}
