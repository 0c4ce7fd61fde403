//! Bare NATS, as the lower bound: a request, and a process that echoes it.

use std::pin::Pin;
use std::process::{Child, Command, Stdio};

use async_nats::Client;
use bytes::Bytes;
use futures_core::Stream as _;
use ostler_testkit::{NatsServer, NatsVersion};

use crate::closed_loop::{Figures, LoadCell, arguments, run_closed_loop};

/// The argument that makes this program the echoing process.
pub(crate) const ECHO: &str = "echo";

const SUBJECT: &str = "bench.echo";

/// A NATS server without users, a client here, and one in another process.
pub(crate) struct BareNats {
    client: Client,
    echo: Child,
    server: NatsServer,
}

impl BareNats {
    pub(crate) async fn start(version: NatsVersion) -> Self {
        let server = NatsServer::start_default(version).await;
        let echo = Command::new(std::env::current_exe().unwrap())
            .args(["relay", ECHO, &server.url()])
            .stdin(Stdio::null())
            .spawn()
            .expect("this program can be started again");
        let client = async_nats::connect(server.url()).await.expect("the server is there");
        while client.request(SUBJECT, Bytes::new()).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        Self { client, echo, server }
    }

    pub(crate) fn version(&self) -> String {
        self.client.server_info().version
    }

    /// Returns the processes: this one, the broker, the echo.
    pub(crate) fn pids(&self) -> [u32; 3] {
        [std::process::id(), self.server.proc().pid, self.echo.id()]
    }

    pub(crate) async fn measure(&self, load: LoadCell) -> Figures {
        let (client, payload) = (self.client.clone(), Bytes::from(arguments(load.payload)));
        run_closed_loop(load, move || {
            let (client, payload) = (client.clone(), payload.clone());
            async move {
                let length = payload.len();
                let answer = client.request(SUBJECT, payload).await.expect("an answer");
                assert_eq!(answer.payload.len(), length);
            }
        })
        .await
    }
}

impl Drop for BareNats {
    fn drop(&mut self) {
        let _ = self.echo.kill();
        let _ = self.echo.wait();
    }
}

/// Echoes requests until the server is gone.
pub(crate) async fn echo(url: &str) {
    let client = async_nats::connect(url).await.expect("the server is there");
    let mut requests = client.subscribe(SUBJECT).await.expect("it lets us listen");
    loop {
        let next = std::future::poll_fn(|cx| Pin::new(&mut requests).poll_next(cx));
        let Some(request) = next.await else { return };
        let Some(reply) = request.reply else { continue };
        if client.publish(reply, request.payload).await.is_err() {
            return;
        }
    }
}
