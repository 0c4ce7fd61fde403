//! Environment of a server's process: the variables that it gets, and those that it does not.

use std::collections::BTreeMap;

use ostler_core::error::{CallError, UnavailableState};
use ostler_host::ServerSpec;
use ostler_testkit::fake_mcp_spec;

use crate::fixture::{ProcessFixture, none, process_of, unavailable};

type EnvironmentMap = BTreeMap<String, String>;

async fn structured(stage: &ProcessFixture, tool: &str) -> EnvironmentMap {
    #[derive(serde::Deserialize)]
    struct Structured {
        #[serde(rename = "structuredContent")]
        content: EnvironmentMap,
    }
    stage.call("fake", tool, none()).await.unwrap().json::<Structured>().unwrap().content
}

#[tokio::test]
async fn a_server_gets_the_allowlist_and_its_own_variables() {
    let stage = ProcessFixture::guarded();
    // Cargo sets this one for every test, and no server needs it.
    let canary = "CARGO_PKG_NAME";
    assert!(std::env::var(canary).is_ok());
    std::fs::write(stage.file("secret"), "s3cret\n").unwrap();
    let mut spec = fake_mcp_spec("fake", &[]);
    let own = [
        ("PLAIN", "a b".to_owned()),
        ("FROM_ENV", format!("<${{env:{canary}}}>")),
        ("FROM_FILE", format!("${{file:{}}}", stage.path("secret"))),
        ("DEFAULTED", "${env:OSTLER_TEST_UNSET:-fallback}".into()),
        ("TZ", "Mars/Olympus".into()),
    ];
    process_of(&mut spec).env.extend(own.map(|(key, value)| (key.to_owned(), value)));
    stage.spawn(spec).await;

    let env = structured(&stage, "env").await;
    assert_eq!(env["PLAIN"], "a b");
    assert_eq!(env["FROM_ENV"], format!("<{}>", std::env::var(canary).unwrap()));
    assert_eq!(env["FROM_FILE"], "s3cret", "without the newline that editors add");
    assert_eq!(env["DEFAULTED"], "fallback");
    assert_eq!(env["TZ"], "Mars/Olympus", "a server's own variable wins");
    assert_eq!(env["PATH"], std::env::var("PATH").unwrap());
    let is_expected = |key: &str| {
        let own = ["PLAIN", "FROM_ENV", "FROM_FILE", "DEFAULTED"];
        own.contains(&key) || ostler_core::inherited_env::is_inherited(key)
    };
    let strangers: Vec<&String> = env.keys().filter(|key| !is_expected(key)).collect();
    assert!(strangers.is_empty(), "{strangers:?}");
    stage.close().await;
}

#[tokio::test]
async fn a_server_gets_variables_that_it_names_and_nobody_reads_them() {
    let stage = ProcessFixture::guarded();
    let mut spec = fake_mcp_spec("fake", &[]);
    process_of(&mut spec).env_pass = vec!["CARGO_PKG_NAME".into(), "CARGO_PKG_VERSION_*".into()];
    stage.spawn(spec).await;
    let env = structured(&stage, "env").await;
    let name = std::env::var("CARGO_PKG_NAME").unwrap();
    assert_eq!(env["CARGO_PKG_NAME"], name);
    assert!(env.contains_key("CARGO_PKG_VERSION_MAJOR") && !env.contains_key("CARGO_MANIFEST_DIR"));
    assert_eq!(stage.host.redact(&format!("it is {name}")), "it is [hidden env:CARGO_PKG_NAME]");
    stage.close().await;
}

/// Returns the remedy of an error.
fn advice(error: &CallError) -> String {
    let CallError::Unavailable(it) = error else { panic!("{error:?}") };
    it.remedy.as_ref().map(|remedy| remedy.text.clone()).unwrap_or_default()
}

#[tokio::test]
async fn a_failed_start_names_the_variables_that_the_server_was_not_given() {
    let stage = ProcessFixture::guarded();
    let script = "echo 'Error: CARGO_PKG_NAME and OSTLER_TEST_UNSET are not set' >&2; exit 1";
    let mut spec = ServerSpec::stdio(fake_mcp_spec("fake", &[]).name, "sh").args(["-c", script]);
    let error = stage.host.spawn(&stage.me, spec.clone()).await.unwrap_err();
    assert!(!error.hint().unwrap().contains("CARGO_PKG_NAME"), "models read hints: {error:?}");
    let said = advice(&error);
    assert!(said.contains("`CARGO_PKG_NAME` is set here and not passed to the server"), "{said}");
    assert!(said.contains("env_pass = [\"CARGO_PKG_NAME\"]"), "{said}");
    assert!(!said.contains(&std::env::var("CARGO_PKG_NAME").unwrap()), "{said}");
    process_of(&mut spec).env_pass.push("CARGO_*".into());
    let error = stage.host.spawn(&stage.me, spec).await.unwrap_err();
    assert!(!advice(&error).contains("not passed"), "{error:?}");
    stage.close().await;
}

#[tokio::test]
async fn a_reference_that_leads_nowhere_is_named_and_its_value_is_not() {
    let stage = ProcessFixture::guarded();
    // A device has no end to read to; a start must neither wait for it nor fill memory with it.
    let table = [
        ("${env:OSTLER_TEST_UNSET}", "`OSTLER_TEST_UNSET` is not set"),
        ("${file:/no/such/file}", "/no/such/file does not exist"),
        ("${file:/dev/zero}", "/dev/zero can't be read: it is not a regular file"),
    ];
    for (reference, expected) in table {
        let mut spec = fake_mcp_spec("fake", &["--starts", &stage.path("starts")]);
        process_of(&mut spec).env.insert("TOKEN".into(), format!("Bearer {reference}"));
        let error = stage.host.spawn(&stage.me, spec).await.unwrap_err();
        let (state, cause) = unavailable(&error);
        assert_eq!(state, UnavailableState::CannotStart);
        assert!(cause.contains(expected), "{cause}");
        assert!(!cause.contains("Bearer"), "{cause}");
    }
    assert!(stage.lines("starts").is_empty());
    stage.close().await;
}

#[tokio::test]
async fn a_server_has_its_three_pipes_and_no_other_descriptor() {
    for stage in [ProcessFixture::guarded(), ProcessFixture::unguarded()] {
        stage.spawn_fake("other", &[]).await;
        stage.spawn_fake("fake", &[]).await;
        let descriptors = structured(&stage, "fds").await;
        assert_eq!(descriptors.keys().map(String::as_str).collect::<Vec<_>>(), ["0", "1", "2"]);
        assert!(descriptors.values().all(|link| link.starts_with("pipe:")), "{descriptors:?}");
        stage.close().await;
    }
}

#[tokio::test]
async fn arguments_are_never_split_and_never_expanded() {
    let stage = ProcessFixture::guarded();
    let odd = "a 'b' \"c\" $HOME *; touch x\\";
    stage.spawn_fake("fake", &["--name", odd, "--starts", &stage.path("starts")]).await;
    let pid = stage.process("fake").pid;
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    let argv: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    assert_eq!(argv[1..3], [&b"--name"[..], odd.as_bytes()]);

    let spec = ServerSpec::stdio(
        stage.status("fake").name,
        format!("{} --slow 1", ostler_testkit::fake_mcp().display()),
    );
    let error = stage.host.spawn(&stage.me, spec).await.unwrap_err();
    assert_eq!(unavailable(&error).0, UnavailableState::CannotStart, "a command is a program and not a line");
    stage.close().await;
}

#[tokio::test]
async fn a_server_runs_in_its_directory_and_in_a_group_of_its_own() {
    let stage = ProcessFixture::guarded();
    let mut spec = fake_mcp_spec("fake", &[]);
    let folder = stage.file("here");
    std::fs::create_dir(&folder).unwrap();
    process_of(&mut spec).cwd = Some(folder.clone());
    stage.spawn(spec).await;
    let pid = stage.process("fake").pid;
    assert_eq!(std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), folder.canonicalize().unwrap());
    let group = nix::unistd::getpgid(Some(nix::unistd::Pid::from_raw(pid.cast_signed()))).unwrap();
    assert_eq!(group.as_raw().cast_unsigned(), pid);
    stage.close().await;
}

#[tokio::test]
async fn what_a_server_says_about_its_secret_is_read_without_it() {
    let stage = ProcessFixture::guarded();
    std::fs::write(stage.file("secret"), "canary-5d41402a\n").unwrap();
    let mut spec = ServerSpec::stdio(fake_mcp_spec("fake", &[]).name, "sh").args([
        "-c",
        "echo \"the token is $TOKEN, or is it $1?\" >&2; exit 3",
        "sh",
    ]);
    let reference = format!("${{file:{}}}", stage.path("secret"));
    process_of(&mut spec).env.insert("TOKEN".into(), reference.clone());
    process_of(&mut spec).args.push(format!("Bearer {reference}"));
    let error = stage.host.spawn(&stage.me, spec.clone().lazy()).await;
    assert!(error.is_ok(), "a lazy server is not started yet: {error:?}");
    let error = stage.host.spawn(&stage.me, ServerSpec { lazy: false, ..spec }).await.unwrap_err();
    assert!(error.render().contains("the token is [hidden file:"), "{}", error.render());
    let failed = stage.host.call(&stage.me, "fake", "any", none()).await.unwrap_err();
    let status = serde_json::to_string(&stage.status("fake")).unwrap();
    for text in [error.render(), error.data().to_string(), failed.render(), status] {
        assert!(!text.contains("5d41402a"), "{text}");
    }
    assert_eq!(stage.host.redact("-canary-5d41402a-").split('[').count(), 2);
    stage.close().await;
}
