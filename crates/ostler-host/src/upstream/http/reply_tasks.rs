//! Answers to a server's questions that are on their way.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::endpoint_client::EndpointClient;
use super::server_messages::IncomingServerRequest;
use super::session::HttpSessionState;

/// Questions of one stream that are taken at once; what is beyond is not
/// answered, and a server that asks so much does not wait for it either.
const MAX: usize = 32;
/// How long an answer may take to be sent.
const SEND: Duration = Duration::from_secs(30);

/// Answers on their way. Dropping it withdraws the questions.
#[derive(Default)]
pub(crate) struct ReplyTasks {
    tasks: JoinSet<()>,
}

impl ReplyTasks {
    /// Has a question answered and the answer sent back.
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
