//! Byte transparency: messages pass unchanged, in both directions.

use ostler_host::CallArguments;
use ostler_testkit::fake_mcp;

use crate::fixture::{ProcessFixture, none};

#[tokio::test]
async fn a_result_arrives_byte_for_byte() {
    let stage = ProcessFixture::guarded();
    let exact = std::process::Command::new(fake_mcp()).arg("--print-exact").output().unwrap().stdout;
    for era in ["modern", "legacy"] {
        stage.spawn_fake(era, &["--era", era]).await;
        assert_eq!(stage.call(era, "exact", none()).await.unwrap().body, exact, "{era}");
    }
    stage.close().await;
}

#[tokio::test]
async fn arguments_arrive_byte_for_byte() {
    let stage = ProcessFixture::guarded();
    let table = [
        r#"{"big":9223372036854775808,"negative":-0,"tiny":1e-400,"huge":1000000000000000000000000000000}"#,
        r#"{"z":1,"a":2,"10":3,"9":{"b":1,"a":2}}"#,
        r#"{"text":"caf\u00e9 \/ \ud83d\ude80 \u0041","plain":"café 🚀"}"#,
        r#"{ "spaced" : [ 1 ,	2 ] , "empty" : { } }"#,
        r#"{"_meta":{"progressToken":7},"name":"other","id":1,"jsonrpc":"1.0"}"#,
    ];
    stage.spawn_fake("fake", &["--ledger", &stage.path("ledger")]).await;
    for (n, text) in table.iter().enumerate() {
        let answer = stage.host.call(&stage.me, "fake", "echo", CallArguments::raw(*text)).await.unwrap();
        let body = String::from_utf8(answer.body.to_vec()).unwrap();
        assert!(body.contains(&format!("\"structuredContent\":{text},\"isError\"")), "{body}");
        assert!(stage.lines("ledger")[n].ends_with(text));
    }
    stage.close().await;
}
