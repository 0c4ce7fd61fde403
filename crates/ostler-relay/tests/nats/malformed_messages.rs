//! Messages of somebody who keeps to no rule of NATS but the lengths.

use ostler_relay::envelope::RelayHeaders;
use ostler_testkit::{MALFORMED_HEADERS, MALFORMED_TOKENS, NatsServer, RawNatsClient};

use super::{BOTH, at, connect, in_time, message, next, publish, round_trip, subscribe};

#[tokio::test]
async fn a_head_that_is_none_comes_as_a_message_without_headers() {
    for which in BOTH {
        let server = NatsServer::start_default(which).await;
        let mut rude = RawNatsClient::connect(&server, None).await;
        let (link, other) = (connect(at(&server)).await, connect(at(&server)).await);
        let mut heard = subscribe(&link, "a").await;
        round_trip(&link, "settle").await;
        for head in MALFORMED_HEADERS {
            in_time(rude.publish(b"a", head, b"rude")).await;
            let came = next(&mut heard).await;
            assert_eq!(
                (&came.body[..], came.headers, came.is_no_responders),
                (&b"rude"[..], RelayHeaders::new(), false)
            );
            publish(&other, message("a", "good")).await;
            assert_eq!(next(&mut heard).await.body, "good");
        }
    }
}

#[tokio::test]
async fn a_subject_of_any_bytes_ends_no_connection() {
    for which in BOTH {
        let server = NatsServer::start_default(which).await;
        let mut rude = RawNatsClient::connect(&server, None).await;
        let (link, other) = (connect(at(&server)).await, connect(at(&server)).await);
        let mut heard = subscribe(&link, "a.*").await;
        round_trip(&link, "settle").await;
        for (token, head) in
            MALFORMED_TOKENS.iter().flat_map(|token| [(token, ""), (token, "NATS/1.0\r\n\r\n")])
        {
            in_time(rude.publish(&[b"a.", *token].concat(), head.as_bytes(), b"rude")).await;
            publish(&other, message("a.b", "good")).await;
            assert_eq!(next(&mut heard).await.body, "rude");
            assert_eq!(next(&mut heard).await.body, "good");
        }
    }
}
