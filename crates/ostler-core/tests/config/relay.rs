//! `[relay]`: the broker and its settings.

use ostler_core::config::{RelayConfig, RelayCredentials, RelayJournal, RelayTls};

use crate::fake_files::{parse, parse_invalid, parse_valid};

fn relay(keys: &str) -> RelayConfig {
    parse_valid(&format!("[relay]\nnats = \"nats://127.0.0.1:4222\"\n{keys}")).relay.unwrap()
}

fn messages(keys: &str) -> Vec<(u32, String)> {
    let text = format!("[relay]\nnats = \"nats://127.0.0.1:4222\"\n{keys}");
    let problems = parse("ostler.toml", &text).expect_err("it is wrong").problems;
    problems.into_iter().map(|problem| (problem.line, problem.message)).collect()
}

#[test]
fn an_address_is_enough() {
    assert_eq!(
        relay(""),
        RelayConfig {
            nats: vec!["nats://127.0.0.1:4222".into()],
            tenant: "default".into(),
            host: None,
            credentials: RelayCredentials::None,
            tls: RelayTls::default(),
            max_in_flight: 1_024,
            journal: RelayJournal::Local,
            allow_open_broker: false,
        }
    );
}

#[test]
fn several_servers_of_a_cluster_are_a_list() {
    let text = "[relay]\nnats = [\"nats://a:4222\", \"tls://b:4222\"]\n";
    assert_eq!(parse_valid(text).relay.unwrap().nats, ["nats://a:4222", "tls://b:4222"]);
}

#[test]
fn files_are_relative_to_the_config() {
    let found = relay("nkey = \"host.nk\"\nca = \"ca.pem\"\ncert = \"c.pem\"\nkey = \"/k.pem\"\n");
    assert_eq!(found.credentials, RelayCredentials::Nkey("/proj/host.nk".into()));
    let identity = Some(("/proj/c.pem".into(), "/k.pem".into()));
    assert_eq!(found.tls, RelayTls { ca: Some("/proj/ca.pem".into()), identity });
    assert_eq!(relay("creds = \"h.creds\"\n").credentials, RelayCredentials::Creds("/proj/h.creds".into()));
}

#[test]
fn a_password_is_kept_by_reference_and_shown_to_nobody() {
    let found = relay("user = \"host\"\npassword = \"${env:NATS_PASSWORD}\"\n");
    let password = "${env:NATS_PASSWORD}".to_owned();
    assert_eq!(found.credentials, RelayCredentials::Password { user: "host".into(), password });
    let config = parse_valid("[relay]\nnats = \"nats://x:1\"\nuser = \"host\"\npassword = \"hunter2\"\n");
    assert_eq!(config.notices.len(), 1);
    assert_eq!(config.notices[0].message, "`relay.password` is a secret written into the file");
    assert!(!format!("{config:?} {}", config.notices[0]).contains("hunter2"));
}

#[test]
fn contradictions_are_errors_with_their_line() {
    let table = [
        ("creds = \"a\"\nnkey = \"b\"\n", 4, "`relay.nkey` and `relay.creds` contradict each other"),
        (
            "nkey = \"a\"\nuser = \"u\"\npassword = \"${env:P}\"\n",
            4,
            "`relay.user` and `relay.nkey` contradict each other",
        ),
        ("user = \"u\"\n", 3, "`relay.user` goes with `relay.password`, which is not there"),
        ("password = \"${env:P}\"\n", 3, "`relay.password` goes with `relay.user`, which is not there"),
        ("cert = \"c\"\n", 3, "`relay.cert` goes with `relay.key`, which is not there"),
        ("key = \"c\"\n", 3, "`relay.key` goes with `relay.cert`, which is not there"),
    ];
    for (keys, line, message) in table {
        assert_eq!(messages(keys), [(line, message.to_owned())], "{keys}");
    }
}

#[test]
fn what_can_stand_in_no_subject_is_no_name() {
    for bad in ["a.b", "*", ">", "ä", "a b", &"x".repeat(65)] {
        for key in ["tenant", "host"] {
            assert_eq!(messages(&format!("{key} = \"{bad}\"\n")).len(), 1, "{key} {bad}");
        }
    }
}

#[test]
fn an_address_has_a_host_and_no_credentials() {
    for address in [
        "127.0.0.1:4222",
        "http://x",
        "nats://",
        "nats://u:p@x:1",
        "nats://a,nats://b",
        "nats://a,b",
        "nats://a b",
        "nats://x/y",
        "nats://:1",
    ] {
        let found = parse_invalid(&format!("[relay]\nnats = \"{address}\"\n"));
        assert_eq!(found.len(), 1, "{address}");
        assert!(!found[0].contains("u:p"), "{}", found[0]);
    }
    assert_eq!(parse_invalid("[relay]\nnats = []\n").len(), 1);
    assert_eq!(parse_invalid("[relay]\ntenant = \"t\"\n")[0], "`relay` has no `nats`");
}

#[test]
fn names_of_letters_digits_dashes_and_underscores_are_good() {
    let longest = "x".repeat(64);
    for good in ["a", "A-b_9", "-", "_", &longest] {
        let found = relay(&format!("tenant = \"{good}\"\nhost = \"{good}\"\n"));
        assert_eq!((found.tenant.as_str(), found.host.as_deref()), (good, Some(good)));
    }
}

#[test]
fn a_journal_is_local_or_shared() {
    assert_eq!(relay("journal = \"shared\"\n").journal, RelayJournal::Shared);
    assert_eq!(relay("journal = \"local\"\n").journal, RelayJournal::Local);
}

#[test]
fn credentials_that_are_logged_show_no_password() {
    let shown = |keys: &str| format!("{:?}", relay(keys).credentials);
    assert_eq!(shown("user = \"u\"\npassword = \"${env:HUNTER}\"\n"), "Password { user: \"u\", .. }");
    assert_eq!(shown("creds = \"/a\"\n"), "Creds(\"/a\")");
    assert_eq!(shown("nkey = \"/a\"\n"), "Nkey(\"/a\")");
    assert_eq!(shown(""), "None");
}
