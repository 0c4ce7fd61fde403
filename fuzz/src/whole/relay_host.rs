//! Host that workers reach over a broker in memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use ostler_host::ServerName;
use ostler_relay::broker::BrokerMessage;
use ostler_relay::broker::memory::{BrokerPermissions, MemoryBroker};
use ostler_relay::envelope::CallHead;
use ostler_relay::journal::MemoryJournal;
use ostler_relay::service::{Service, ServiceOptions};
use ostler_relay::subject::{HostSubject, WorkerInbox};
use ostler_relay::{CallId, WallClock};
use ostler_wire::Era;
use tokio::time::timeout;

use super::relay_messages::{LIFE, START, messages, relay_name, subjects};
use super::{ENOUGH, META, run_until_stalled, server};

/// Sends the messages of `input` to a host, and a good call after them, twice.
pub fn serve(input: &[u8]) {
    let sent = messages(input, str::to_owned);
    super::run(async {
        let broker = MemoryBroker::new();
        let (host, executed) = server::host(Era::Modern, Arc::new(server::default_answer)).await;
        let clock = WallClock::starting_at(START);
        let options = ServiceOptions::new(relay_name("acme"), relay_name("h1"));
        let options = ServiceOptions { clock, seed: Some(7), status_sink: Arc::new(|_| {}), ..options };
        let service_broker = broker.for_user("host", BrokerPermissions::all());
        let _service = Service::start(host, service_broker, Arc::new(MemoryJournal::new()), options);
        run_until_stalled().await;

        let link = broker.for_user("w1", BrokerPermissions::all()).connect().await.expect("the broker is up");
        let allowed = AllowedCalls::from_messages(&sent);
        for message in sent {
            let _ = link.publish(message).await;
            run_until_stalled().await;
        }
        allowed.check(&executed.take());

        let inbox = WorkerInbox::new(&relay_name("w1"), LIFE);
        let good = good(clock.now(), &inbox);
        let inbox = good.reply_to.clone().expect("it says where the answer goes");
        let mut answers = link.subscribe(&inbox, None).await.expect("the broker is up");
        for _ in 0..2 {
            link.publish(good.clone()).await.expect("the broker is up");
            let answer = timeout(ENOUGH, answers.next()).await.ok().flatten().expect("it is answered");
            let text = String::from_utf8_lossy(&answer.body);
            assert!(text.contains(r#""structuredContent":{"n":1}"#) && text.contains(r#""id":7"#), "{text}");
        }
        run_until_stalled().await;
        assert_eq!(executed.take(), [server::ECHO], "once, however often it is asked");
    });
}

/// Returns a good call of a worker that may call one tool.
fn good(now: u64, inbox: &WorkerInbox) -> BrokerMessage {
    let call = CallId::new(START, &[0xee; 10]);
    let (begin_by, deadline) = (now + 2_000, now + 60_000);
    let server = ServerName::new("s").expect("it is a name");
    let head = CallHead { call, instance: LIFE, server, begin_by, deadline, manifest: None, trace: None };
    let subject = subjects().call(&relay_name("few"), &relay_name("w1"));
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"echo","arguments":{{"n":1}},{META}}}}}"#
    );
    BrokerMessage::new(subject, head.headers(), body).with_reply_to(inbox.answer_subject(call))
}

/// The calls that the messages allow: each call of each worker once, in its role, before its
/// deadline.
#[derive(Default)]
struct AllowedCalls {
    /// Worker and call id.
    calls: BTreeSet<(String, String)>,
    /// True if some of them have the role that may use every tool.
    is_all: bool,
}

impl AllowedCalls {
    fn from_messages(sent: &[BrokerMessage]) -> Self {
        let mut allowed = Self::default();
        for message in sent {
            let Some(HostSubject::Call { role, worker }) = subjects().parse_host_subject(&message.subject)
            else {
                continue;
            };
            let Ok(head) = CallHead::read(&message.headers) else { continue };
            let is_known = matches!(role.as_str(), "all" | "few");
            if is_known && head.server.as_str() == "s" && head.begin_by >= START && head.deadline > START {
                allowed.calls.insert((worker.to_string(), head.call.to_string()));
                allowed.is_all |= role.as_str() == "all";
            }
        }
        allowed
    }

    fn check(&self, executed: &[String]) {
        assert!(executed.len() <= self.calls.len(), "{executed:?} for {:?}", self.calls);
        assert!(
            self.is_all || executed.iter().all(|tool| tool == server::ECHO),
            "{executed:?} for {:?}",
            self.calls
        );
    }
}
