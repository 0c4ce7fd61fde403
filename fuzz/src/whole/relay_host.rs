//! A host that workers reach over a broker in memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use ostler_host::ServerName;
use ostler_relay::broker::Message;
use ostler_relay::broker::memory::{MemoryBroker, Rights};
use ostler_relay::envelope::CallHead;
use ostler_relay::journal::MemoryJournal;
use ostler_relay::service::{Service, ServiceOptions};
use ostler_relay::subject::{Inbox, ToHost};
use ostler_relay::{CallId, WallClock};
use ostler_wire::Era;
use tokio::time::timeout;

use super::relay::{LIFE, START, messages, subjects, word};
use super::{ENOUGH, META, server, settle};

/// A host reads the messages of `input`, and a good call after them, twice.
pub fn serve(input: &[u8]) {
    let said = messages(input, str::to_owned);
    super::run(async {
        let broker = MemoryBroker::new();
        let (host, deeds) = server::host(Era::Modern, Arc::new(server::honest)).await;
        let clock = WallClock::starting_at(START);
        let options = ServiceOptions::new(word("acme"), word("h1"));
        let options = ServiceOptions { clock, seed: Some(7), say: Arc::new(|_| {}), ..options };
        let door = broker.door("host", Rights::all());
        let _service = Service::start(host, door, Arc::new(MemoryJournal::new()), options);
        settle().await;

        let link = broker.door("w1", Rights::all()).connect().await.expect("the broker is up");
        let allowed = Allowed::by(&said);
        for message in said {
            let _ = link.publish(message).await;
            settle().await;
        }
        allowed.judge(&deeds.take());

        let inbox = Inbox::new(&word("w1"), LIFE);
        let good = good(clock.now(), &inbox);
        let inbox = good.reply.clone().expect("it says where the answer goes");
        let mut answers = link.subscribe(&inbox, None).await.expect("the broker is up");
        for _ in 0..2 {
            link.publish(good.clone()).await.expect("the broker is up");
            let answer = timeout(ENOUGH, answers.next()).await.ok().flatten().expect("it is answered");
            let text = String::from_utf8_lossy(&answer.body);
            assert!(text.contains(r#""structuredContent":{"n":1}"#) && text.contains(r#""id":7"#), "{text}");
        }
        settle().await;
        assert_eq!(deeds.take(), [server::ECHO], "once, however often it is asked");
    });
}

/// A good call of a worker that may call one tool.
fn good(now: u64, inbox: &Inbox) -> Message {
    let call = CallId::new(START, &[0xee; 10]);
    let (begin_by, deadline) = (now + 2_000, now + 60_000);
    let server = ServerName::new("s").expect("it is a name");
    let head = CallHead { call, instance: LIFE, server, begin_by, deadline, manifest: None, trace: None };
    let subject = subjects().call(&word("few"), &word("w1"));
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"echo","arguments":{{"n":1}},{META}}}}}"#
    );
    Message::new(subject, head.headers(), body).with_reply(inbox.answer(call))
}

/// What messages give leave to do: each call of each worker once, in its role, before its time.
#[derive(Default)]
struct Allowed {
    /// Worker and call.
    calls: BTreeSet<(String, String)>,
    /// Whether some of them are in the role that may use every tool.
    is_all: bool,
}

impl Allowed {
    fn by(said: &[Message]) -> Self {
        let mut allowed = Self::default();
        for message in said {
            let Some(ToHost::Call { role, worker }) = subjects().read_to_host(&message.subject) else {
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

    fn judge(&self, deeds: &[String]) {
        assert!(deeds.len() <= self.calls.len(), "{deeds:?} for {:?}", self.calls);
        assert!(
            self.is_all || deeds.iter().all(|deed| deed == server::ECHO),
            "{deeds:?} for {:?}",
            self.calls
        );
    }
}
