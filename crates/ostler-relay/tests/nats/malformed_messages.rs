//! Malformed messages: a client that respects only the length fields of the protocol.

use ostler_relay::envelope::RelayHeaders;
use ostler_testkit::{MALFORMED_HEADERS, MALFORMED_TOKENS, NatsServer, RawNatsClient};

use super::{BOTH, at, connect, in_time, message, next, publish, round_trip, subscribe};

#[tokio::test]
async fn a_head_that_is_none_comes_as_a_message_without_headers() {
    for which in BOTH {
        let server = NatsServer::start_default(which).await;
        let mut raw_client = RawNatsClient::connect(&server, None).await;
        let (link, other) = (connect(at(&server)).await, connect(at(&server)).await);
        let mut received = subscribe(&link, "a").await;
        round_trip(&link, "settle").await;
        for head in MALFORMED_HEADERS {
            in_time(raw_client.publish(b"a", head, b"rude")).await;
            let incoming = next(&mut received).await;
            assert_eq!(
                (&incoming.body[..], incoming.headers, incoming.is_no_responders),
                (&b"rude"[..], RelayHeaders::new(), false)
            );
            publish(&other, message("a", "good")).await;
            assert_eq!(next(&mut received).await.body, "good");
        }
    }
}

#[tokio::test]
async fn a_subject_of_any_bytes_ends_no_connection() {
    for which in BOTH {
        let server = NatsServer::start_default(which).await;
        let mut raw_client = RawNatsClient::connect(&server, None).await;
        let (link, other) = (connect(at(&server)).await, connect(at(&server)).await);
        let mut received = subscribe(&link, "a.*").await;
        round_trip(&link, "settle").await;
        for (token, head) in
            MALFORMED_TOKENS.iter().flat_map(|token| [(token, ""), (token, "NATS/1.0\r\n\r\n")])
        {
            in_time(raw_client.publish(&[b"a.", *token].concat(), head.as_bytes(), b"rude")).await;
            publish(&other, message("a.b", "good")).await;
            assert_eq!(next(&mut received).await.body, "rude");
            assert_eq!(next(&mut received).await.body, "good");
        }
    }
}
