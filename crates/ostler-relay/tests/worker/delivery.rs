//! Delivery of calls: the outcome that a caller is told.

use std::sync::Arc;

use ostler_core::fault::{Delivery, FaultKind};
use ostler_core::server_name::ServerName;
use ostler_host::upstream::{BoxFuture, CloseMode};
use ostler_relay::broker::memory::{BrokerPermissions, MemoryBroker};
use ostler_relay::broker::{
    Broker, BrokerConnectError, BrokerInfo, BrokerMessage, BrokerSubscription, Denial, LinkError, RelayLink,
};
use ostler_relay::envelope::Control;
use tokio::sync::{broadcast, watch};

use crate::harness::*;

#[tokio::test(start_paused = true)]
async fn a_call_is_carried_and_its_answer_comes_back_byte_for_byte() {
    let harness = WorkerHarness::new().await;
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let arguments = r#"{ "b":1, "a":123456789012345678901234567890 }"#;
    let call = harness
        .call_with("echo", TestCallOptions { arguments: arguments.into(), ..TestCallOptions::default() });
    let received = manual_host.next_call().await;
    let text = String::from_utf8(received.message.body.to_vec()).unwrap();
    assert!(text.contains(arguments), "{text}");
    assert_eq!(received.body["method"], "tools/call");
    assert_eq!(received.body["params"]["name"], "echo");
    let meta = &received.body["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    assert!(!text.ends_with('\n'));
    manual_host.accept(&received).await;
    manual_host.answer(&received, r#"{ "content":[], "big": 1e400 }"#).await;
    assert_eq!(call.result().await, r#"{ "content":[], "big": 1e400 }"#);
}

#[tokio::test(start_paused = true)]
async fn deadlines_are_told_in_the_hosts_time() {
    let harness = WorkerHarness::new().await;
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    tokio::time::sleep(secs(5)).await;
    let call = harness.call("echo");
    let received = manual_host.next_call().await;
    assert_eq!(received.head.begin_by, HOST_TIME + 5_000 + 2_000);
    assert_eq!(received.head.deadline, HOST_TIME + 5_000 + 600_000);
    drop(call);
}

#[tokio::test(start_paused = true)]
async fn without_anybody_who_listens_a_call_was_not_sent_when_its_time_is_over() {
    let harness = WorkerHarness::new().await;
    let (fault, after) = harness.call("echo").fault().await;
    assert_eq!(fault.delivery, Delivery::NotSent);
    assert_eq!(fault.to_string(), "out of reach: no host answers at the broker at memory");
    assert_eq!(after, secs(60));
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_a_host_and_is_sent_as_soon_as_one_is_heard() {
    let harness = WorkerHarness::new().await;
    let call = harness.call("echo");
    tokio::time::sleep(secs(10)).await;
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let received = manual_host.next_call().await;
    manual_host.answer(&received, "{}").await;
    let (outcome, after) = call.end().await;
    assert!(outcome.is_ok(), "{outcome:?}");
    assert!(after < ms(10_010), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_nobody_accepts_is_unknown_after_two_seconds_and_cancelled() {
    let harness = WorkerHarness::new().await;
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    tokio::time::sleep(secs(1)).await;
    let call = harness.call("echo");
    let received = manual_host.next_call().await;
    let (fault, after) = call.fault().await;
    assert_eq!(fault.delivery, Delivery::Unknown);
    assert_eq!(fault.to_string(), "out of reach: no host has accepted it within 2s");
    assert_eq!(after, secs(2));
    let (cancelled, control, _) = manual_host.next_control().await;
    assert_eq!((cancelled, control), (received.head.call, Control::Cancel));
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_host_works_ends_with_its_own_time_as_unknown() {
    let harness = WorkerHarness::new().await;
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    tokio::time::sleep(secs(1)).await;
    let call = harness.call("echo");
    let received = manual_host.next_call().await;
    manual_host.accept(&received).await;
    let (fault, after) = call.fault().await;
    assert_eq!((fault.delivery, fault.kind), (Delivery::Unknown, FaultKind::TimedOut(secs(60))));
    assert_eq!(after, secs(60));
    assert_eq!(manual_host.next_control().await.1, Control::Cancel);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_the_broker_denies_is_rejected_at_once() {
    let publish = ["ostler.acme.manifest.dev.w1", "ostler.acme.control.w1.*"].map(str::to_owned).into();
    let harness = WorkerHarness::with(BrokerPermissions { publish, ..BrokerPermissions::all() }).await;
    let _manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    tokio::time::sleep(secs(1)).await;
    let (fault, after) = harness.call("bad").fault().await;
    assert_eq!(fault.delivery, Delivery::Rejected);
    assert!(matches!(&fault.kind, FaultKind::Denied(why) if why.contains("publish")), "{fault:?}");
    assert!(after <= ms(20), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_the_host_is_an_answer() {
    let harness = WorkerHarness::new().await;
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let call = harness.call("echo");
    let received = manual_host.next_call().await;
    let body =
        format!(r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-31005,"message":"no"}}}}"#, received.id);
    manual_host.reply(&received, ostler_relay::envelope::RelayReply::Answer, body).await;
    match call.end().await.0 {
        Ok(ostler_wire::RpcOutcome::Error(error)) => assert_eq!(error.code, -31_005),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_not_be_sent_any_more_is_not_sent() {
    let harness = WorkerHarness::new().await;
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let (fault, _) = harness
        .call_with("echo", TestCallOptions { may_send: false, ..TestCallOptions::default() })
        .fault()
        .await;
    assert_eq!((fault.delivery, fault.kind), (Delivery::Rejected, FaultKind::StaleSession));
    let call = harness.call("next");
    assert_eq!(manual_host.next_call().await.body["params"]["name"], "next");
    drop(call);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_broker_does_not_take_is_rejected_with_both_lengths() {
    let harness = WorkerHarness::new().await;
    let _manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let arguments = format!(r#"{{"text":"{}"}}"#, "x".repeat(1 << 20));
    let (fault, after) =
        harness.call_with("echo", TestCallOptions { arguments, ..TestCallOptions::default() }).fault().await;
    assert_eq!((fault.delivery, after), (Delivery::Rejected, ms(0)));
    let text = fault.to_string();
    assert!(text.contains("bytes, the broker takes 1048576"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_subject_tells_neither_the_server_nor_the_tool() {
    let harness = WorkerHarness::new().await;
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let tool = format!("a.b > * {}", "x".repeat(600));
    let call = harness.call(&tool);
    let received = manual_host.next_call().await;
    assert_eq!(received.message.subject, "ostler.acme.call.dev.w1");
    assert_eq!(
        (received.head.server.as_str(), &received.body["params"]["name"]),
        ("s", &serde_json::json!(tool))
    );
    manual_host.answer(&received, "{}").await;
    assert_eq!(call.result().await, "{}");
}

#[tokio::test(start_paused = true)]
async fn every_attempt_of_one_call_has_one_id() {
    let harness = WorkerHarness::new().await;
    let mut manual_host = ManualHost::connect_with_heartbeat(&harness.broker, "h").await;
    let options = || TestCallOptions { key: Some("k-1"), ..TestCallOptions::default() };
    let first = harness.call_with("echo", options());
    let one = manual_host.next_call().await;
    manual_host.answer(&one, "{}").await;
    first.result().await;
    let second = harness.call_with("echo", options());
    let other = manual_host.next_call().await;
    assert_eq!(one.head.call, other.head.call);
    assert_ne!(one.id, other.id);
    // The cached answer has the id of the first attempt.
    manual_host.answer(&one, "{}").await;
    assert_eq!(second.result().await, "{}");
}

/// A call that ends while a slow connection takes it.
#[tokio::test(start_paused = true)]
async fn a_call_that_ends_before_the_connection_has_taken_it_is_taken_back() {
    let broker = MemoryBroker::new();
    let (open, gate) = watch::channel(false);
    let slow = Arc::new(GatedBroker { inner: broker.for_user("worker", BrokerPermissions::all()), gate });
    let worker = worker(slow);
    let host = ostler_host::Host::new(ostler_host::HostOptions::default());
    let session = session(&host, worker.connector(ServerName::new("s").unwrap())).await;
    let manual_host = ManualHost::connect_with_heartbeat(&broker, "h").await;
    let call = SpawnedCall::spawn(&session, "echo", TestCallOptions::default());
    tokio::time::sleep(secs(1)).await;
    open.send_replace(true);
    session.close(CloseMode::Graceful).await;
    let (fault, _) = call.fault().await;
    assert_eq!(fault.delivery, Delivery::NotSent, "{fault}");
    manual_host.assert_no_call().await;
}

/// Broker whose connections take calls only on command.
struct GatedBroker {
    inner: Arc<dyn Broker>,
    gate: watch::Receiver<bool>,
}

impl Broker for GatedBroker {
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn RelayLink>, BrokerConnectError>> {
        Box::pin(async {
            let link = self.inner.connect().await?;
            Ok(Arc::new(GatedLink { link, gate: self.gate.clone() }) as Arc<dyn RelayLink>)
        })
    }

    fn address(&self) -> String {
        self.inner.address()
    }
}

struct GatedLink {
    link: Arc<dyn RelayLink>,
    gate: watch::Receiver<bool>,
}

impl RelayLink for GatedLink {
    fn publish(&self, message: BrokerMessage) -> BoxFuture<'_, Result<(), LinkError>> {
        Box::pin(async move {
            if message.subject.contains(".call.") {
                let _ = self.gate.clone().wait_for(|is_open| *is_open).await;
            }
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
        self.link.flush()
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

#[tokio::test(start_paused = true)]
async fn whose_credentials_are_refused_is_told_so_and_does_not_wait_for_its_time() {
    let broker = MemoryBroker::new();
    let worker = worker(broker.with_bad_credentials("worker"));
    let host = ostler_host::Host::new(ostler_host::HostOptions::default());
    let session = session(&host, worker.connector(ServerName::new("s").unwrap())).await;
    let (fault, after) = SpawnedCall::spawn(&session, "echo", TestCallOptions::default()).fault().await;
    assert_eq!(fault.delivery, Delivery::Rejected);
    assert!(fault.to_string().contains("does not accept the credentials"), "{fault}");
    assert!(after < ms(20), "{after:?}");
}
