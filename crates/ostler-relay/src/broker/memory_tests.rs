use super::*;

async fn connect(user: &Arc<dyn Broker>) -> Arc<dyn RelayLink> {
    user.connect().await.unwrap_or_else(|error| panic!("{error}"))
}

async fn subscribe(link: &Arc<dyn RelayLink>, subject: &str, queue: Option<&str>) -> BrokerSubscription {
    link.subscribe(subject, queue).await.unwrap_or_else(|error| panic!("{error}"))
}

fn message(subject: &str, body: &'static str) -> BrokerMessage {
    BrokerMessage::new(subject.into(), RelayHeaders::new(), body)
}

#[test]
fn patterns_match_as_the_broker_does() {
    for (pattern, subject, expected) in [
        ("a.*.c", "a.b.c", true),
        ("a.*.c", "a.b.b.c", false),
        ("a.>", "a.b.c", true),
        ("a.>", "a", false),
        ("a", "a.b", false),
        (">", "a", true),
    ] {
        assert_eq!(subject_matches(pattern, subject), expected, "{pattern} {subject}");
    }
    assert!(pattern_covers("a.>", "a.*.c") && pattern_covers("a.*", "a.*") && !pattern_covers("a.*", "a.>"));
}

#[tokio::test(start_paused = true)]
async fn one_of_a_queue_gets_each_message_and_everybody_else_all() {
    let broker = MemoryBroker::new();
    let link = connect(&broker.for_user("a", BrokerPermissions::all())).await;
    let mut one = subscribe(&link, "x.*", Some("q")).await;
    let mut other = subscribe(&link, "x.*", Some("q")).await;
    let mut all = subscribe(&link, "x.>", None).await;
    for body in ["1", "2"] {
        assert_eq!(link.publish(message("x.y", body)).await, Ok(()));
    }
    let one = one.next().await.map(|message| message.body);
    let other = other.next().await.map(|message| message.body);
    assert_ne!(one, other);
    for body in ["1", "2"] {
        assert_eq!(all.next().await.map(|message| message.body), Some(Bytes::from_static(body.as_bytes())));
    }
}

#[tokio::test(start_paused = true)]
async fn who_asks_where_nobody_listens_is_told() {
    let broker = MemoryBroker::new();
    let link = connect(&broker.for_user("a", BrokerPermissions::all())).await;
    let mut inbox = subscribe(&link, "in.*", None).await;
    assert_eq!(link.publish(message("x", "?").with_reply_to("in.1".into())).await, Ok(()));
    let reply = inbox.next().await;
    assert!(reply.is_some_and(|message| message.is_no_responders && message.subject == "in.1"));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_allowed_is_denied_aloud() {
    let broker = MemoryBroker::new();
    let all = connect(&broker.for_user("a", BrokerPermissions::all())).await;
    let permissions = BrokerPermissions {
        publish: vec!["mine.>".into()],
        subscribe: vec!["in.*".into()],
        may_respond: true,
    };
    let some = connect(&broker.for_user("b", permissions)).await;
    let mut denials = some.denials();
    let mut everything = subscribe(&all, ">", None).await;
    assert_eq!(some.publish(message("yours.x", "no")).await, Ok(()));
    assert_eq!(denials.recv().await, Ok(Denial::Publish("yours.x".into())));
    let _denied = subscribe(&some, "other.*", None).await;
    assert_eq!(denials.recv().await, Ok(Denial::Subscribe("other.*".into())));
    // `may_respond` allows one publish to the reply subject of a received message.
    let mut requests = subscribe(&some, "in.*", None).await;
    assert_eq!(all.publish(message("in.q", "?").with_reply_to("back.1".into())).await, Ok(()));
    assert!(requests.next().await.is_some());
    assert_eq!(some.publish(message("back.1", "yes")).await, Ok(()));
    assert_eq!(some.publish(message("back.1", "again")).await, Ok(()));
    assert_eq!(denials.recv().await, Ok(Denial::Publish("back.1".into())));
    let bodies =
        [everything.next().await, everything.next().await].map(|message| message.map(|message| message.body));
    assert_eq!(bodies, [Some("?".into()), Some("yes".into())]);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_goes_down_ends_every_link() {
    let broker = MemoryBroker::new();
    let user = broker.for_user("a", BrokerPermissions::all());
    let link = connect(&user).await;
    let mut inbox = subscribe(&link, "x", None).await;
    broker.go_down();
    assert_eq!(link.ended().await, "the broker went down");
    assert_eq!(inbox.next().await, None);
    assert_eq!(link.publish(message("x", "late")).await, Err(LinkError::Closed));
    assert!(user.connect().await.is_err());
    broker.come_up();
    assert!(user.connect().await.is_ok());
}
