//! Overload: a flooding worker or a slow broker does not affect other workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ostler_host::upstream::BoxFuture;
use ostler_relay::broker::memory::MemoryBroker;
use ostler_relay::broker::{
    Broker, BrokerConnectError, BrokerInfo, BrokerMessage, BrokerSubscription, Denial, LinkError, RelayLink,
};
use ostler_relay::envelope::{CallHead, Control, ManifestHead, RelayProgress, RelayReply};
use ostler_relay::journal::MemoryJournal;
use ostler_relay::service::Service;
use ostler_relay::{CallId, WallClock};
use ostler_testkit::{Script, ScriptedReply, TestHost};
use serde_json::json;
use tokio::sync::broadcast;

use crate::harness::{
    ManualWorker, START, ServiceHarness, host_permissions, meta, options, test_host, text, tool_call,
};
use crate::{ms, secs};

/// Broker whose connections take nothing while it stalls.
struct StallingBroker {
    inner: Arc<dyn Broker>,
    is_stalled: Arc<AtomicBool>,
}

struct StallingLink {
    link: Arc<dyn RelayLink>,
    is_stalled: Arc<AtomicBool>,
}

impl Broker for StallingBroker {
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn RelayLink>, BrokerConnectError>> {
        Box::pin(async move {
            let (link, is_stalled) = (self.inner.connect().await?, Arc::clone(&self.is_stalled));
            Ok(Arc::new(StallingLink { link, is_stalled }) as Arc<dyn RelayLink>)
        })
    }

    fn address(&self) -> String {
        self.inner.address()
    }
}

impl StallingLink {
    async fn flow(&self) {
        while self.is_stalled.load(Ordering::Relaxed) {
            tokio::time::sleep(ms(10)).await;
        }
    }
}

impl RelayLink for StallingLink {
    fn publish(&self, message: BrokerMessage) -> BoxFuture<'_, Result<(), LinkError>> {
        Box::pin(async move {
            self.flow().await;
            self.link.publish(message).await
        })
    }

    fn subscribe(
        &self,
        subject: &str,
        queue: Option<&str>,
    ) -> BoxFuture<'_, Result<BrokerSubscription, LinkError>> {
        self.link.subscribe(subject, queue)
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), LinkError>> {
        Box::pin(async move {
            self.flow().await;
            self.link.flush().await
        })
    }

    fn ended(&self) -> BoxFuture<'_, String> {
        self.link.ended()
    }

    fn close(&self) {
        self.link.close();
    }

    fn denials(&self) -> broadcast::Receiver<Denial> {
        self.link.denials()
    }

    fn broker_info(&self) -> &BrokerInfo {
        self.link.broker_info()
    }
}

/// Creates a service whose connection can stall.
async fn stalling(test_host: TestHost) -> (ServiceHarness, Arc<AtomicBool>) {
    let (broker, clock) = (MemoryBroker::new(), WallClock::starting_at(START));
    let is_stalled = Arc::new(AtomicBool::new(false));
    let broker_user = StallingBroker {
        inner: broker.for_user("host", host_permissions()),
        is_stalled: Arc::clone(&is_stalled),
    };
    let journal = Arc::new(MemoryJournal::new());
    let service =
        Service::start(test_host.host.clone(), Arc::new(broker_user), journal.clone(), options(clock));
    ostler_testkit::run_until_stalled().await;
    (ServiceHarness { test_host, broker, journal, service, clock }, is_stalled)
}

fn big_id(number: u16) -> CallId {
    let [high, low] = number.to_be_bytes();
    CallId::new(START, &[high, low, 0, 0, 0, 0, 0, 0, 1, 1])
}

impl ManualWorker {
    /// Publishes a tool call and does not wait.
    async fn publish_call(&self, number: u16, tool: &str) {
        let head = CallHead { call: big_id(number), ..self.head(0) };
        let subject = self.subjects.call(&self.role, &self.worker);
        let reply = self.inbox.answer_subject(head.call);
        let message = BrokerMessage::new(subject, head.headers(), tool_call(tool, json!({})));
        self.link.publish(message.with_reply_to(reply)).await.unwrap();
    }

    async fn publish_manifest_request(&self, number: u16) {
        let head = ManifestHead { call: big_id(number), instance: self.instance };
        let subject = self.subjects.manifest(&self.role, &self.worker);
        let reply = self.inbox.answer_subject(head.call);
        self.link
            .publish(BrokerMessage::new(subject, head.headers(), "").with_reply_to(reply))
            .await
            .unwrap();
    }

    async fn publish_resume(&self, number: u8) {
        let call = crate::harness::call_id(number);
        let subject = self.subjects.control(&self.worker, call);
        let message = BrokerMessage::new(subject, Control::Resume.headers(self.instance), "");
        self.link.publish(message.with_reply_to(self.inbox.answer_subject(call))).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_takes_every_call_that_has_come() {
    let test_host = test_host().server("a", Script::echo()).start().await;
    let harness = ServiceHarness::open_with(test_host, |options| options.max_in_flight = 4_096).await;
    let mut worker = harness.worker("w1").await;
    for number in 0..1_000 {
        worker.publish_call(number, "echo").await;
    }
    harness.service.drain(secs(10)).await;
    let mut answers = 0;
    while worker.next_answer_within(ms(1)).await.is_some() {
        answers += 1;
    }
    assert_eq!((answers, harness.test_host.server("a").count("echo")), (1_000, 1_000));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_a_stalled_broker_did_not_take_is_announced_when_it_does() {
    let script = Script::echo().tool_replying("slow", ScriptedReply::text("done").after(secs(1)));
    let (harness, is_stalled) = stalling(test_host().server("a", script).start().await).await;
    let mut worker = harness.worker("w1").await;
    worker.call(1, "a", "slow").await;
    assert_eq!(worker.next_accepted().await, 1);
    is_stalled.store(true, Ordering::Relaxed);
    for _ in 0..7 {
        harness.test_host.advance(secs(1)).await;
        worker.alive().await;
    }
    is_stalled.store(false, Ordering::Relaxed);
    harness.test_host.advance(secs(2)).await;
    assert_eq!(worker.next_accepted().await, 1);
    worker.control(1, Control::Resume, "").await;
    assert_eq!(text(&worker.next_answer().await.1), "done");
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_by_its_deadline_though_the_broker_takes_no_progress() {
    let reply = ScriptedReply::never().reporting(r#""progress":1"#);
    let script = Script::echo().tool_replying("report", reply);
    let (harness, is_stalled) = stalling(test_host().server("a", script).start().await).await;
    let mut worker = harness.worker("w1").await;
    let mut meta = meta();
    meta["progressToken"] = json!("t");
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "report", "_meta": meta}});
    let head = CallHead { deadline: harness.clock.now() + 1_000, ..worker.head(1) };
    let subject = worker.subjects.call(&worker.role, &worker.worker);
    let reply = worker.inbox.answer_subject(head.call);
    let message = BrokerMessage::new(subject, head.headers(), body.to_string()).with_reply_to(reply);
    // The stall begins right after the host has accepted the call.
    let flag = Arc::clone(&is_stalled);
    harness.broker.set_fault_injector(Some(Box::new(move |_, _, message| {
        let is_accepted = matches!(RelayProgress::read(&message.headers), Ok(RelayProgress::Accepted { .. }));
        flag.fetch_or(is_accepted, Ordering::Relaxed);
        ostler_relay::broker::memory::MessageAction::Deliver
    })));
    worker.publish(message).await;
    assert_eq!(worker.next_accepted().await, 1);
    harness.test_host.advance(ms(1_100)).await;
    assert_eq!(
        (harness.test_host.server("a").in_flight(), harness.test_host.server("a").cancelled()),
        (0, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_in_its_time_though_the_broker_stalls() {
    let script = Script::echo().tool_replying("never", ScriptedReply::never());
    let (harness, is_stalled) = stalling(test_host().server("a", script).start().await).await;
    let mut worker = harness.worker("w1").await;
    worker.call(1, "a", "never").await;
    assert_eq!(worker.next_accepted().await, 1);
    is_stalled.store(true, Ordering::Relaxed);
    let began = tokio::time::Instant::now();
    harness.service.drain(secs(2)).await;
    assert!(began.elapsed() <= ms(3_000), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn who_says_much_about_its_calls_does_not_keep_out_those_of_others() {
    let script = Script::echo().tool_replying("never", ScriptedReply::never());
    let harness = ServiceHarness::open(test_host().server("a", script).start().await).await;
    let mut loud = harness.worker("loud").await;
    let mut other = harness.worker("other").await;
    loud.call(1, "a", "never").await;
    assert_eq!(loud.next_accepted().await, 1);
    for _ in 0..4_000 {
        loud.publish_resume(1).await;
    }
    other.publish_call(1, "echo").await;
    while other.next_answer_within(ms(0)).await.is_none() {}
    let mut received = 0;
    while let Ok(Some(_)) = tokio::time::timeout(ms(0), loud.progress.next()).await {
        received += 1;
    }
    assert!(received < 1_000, "{received} messages were dealt with first");
}

#[tokio::test(start_paused = true)]
async fn who_takes_no_long_answers_does_not_keep_others_from_theirs() {
    let long = ScriptedReply::result(format!(r#"{{"text":"{}"}}"#, "x".repeat(9 << 18)));
    let harness = ServiceHarness::open(
        test_host().server("a", Script::echo().tool_replying("long", long)).start().await,
    )
    .await;
    let slow = harness.worker("slow").await;
    let mut other = harness.worker("other").await;
    for number in 0..70 {
        slow.publish_call(number, "long").await;
        ostler_testkit::run_until_stalled().await;
    }
    other.call(1, "a", "long").await;
    let reply = tokio::time::timeout(ms(100), other.answers.next()).await.unwrap().unwrap();
    assert!(matches!(RelayReply::read(&reply.headers), Ok(RelayReply::Chunked { .. })));
}

#[tokio::test(start_paused = true)]
async fn who_asks_without_end_what_it_may_use_does_not_keep_others_from_asking() {
    let script = Script::echo().on("tools/list", |_| ScriptedReply::never());
    let harness = ServiceHarness::open(test_host().server("a", script).start().await).await;
    let loud = harness.worker("loud").await;
    let mut other = harness.worker("other").await;
    for number in 0..2_000 {
        loud.publish_manifest_request(number).await;
    }
    ostler_testkit::run_until_stalled().await;
    other.ask_manifest(1).await;
    let reply = tokio::time::timeout(secs(11), other.answers.next()).await;
    assert!(reply.is_ok(), "the host waits ten seconds for its server");
}
