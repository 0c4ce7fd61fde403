//! Every failure has its message and its exit code.

use std::time::Duration;

use ostler_core::error::BudgetOwner;

use super::*;

fn malformed() -> CallError {
    let server = ostler_core::server_name::ServerName::new("x").unwrap();
    CallError::UpstreamProtocol { server, detail: "rubbish".into() }
}

#[test]
fn a_list_that_fails_does_not_make_people_look_for_effects() {
    assert_eq!(
        CommandFailure::ListFailed(malformed()).render(Style::plain()),
        "error: server `x` answered outside the protocol\n  cause: rubbish\n  \
         hint: the fault is the server's; no tool was called"
    );
}

#[test]
fn every_failure_has_its_row_in_the_table_of_exit_codes() {
    let usage = CommandFailure::Usage { what: "x".into(), hint: None };
    let unreadable = CommandFailure::Unreadable { file: "f".into(), why: "w".into(), hint: "h" };
    let table = [
        (CommandFailure::OutputClosed, 0),
        (CommandFailure::Output(io::Error::other("full")), 1),
        (CommandFailure::Machine(io::Error::other("none")), 1),
        (CommandFailure::UnsafeFolder { folder: "f".into(), why: "w".into() }, 1),
        (CommandFailure::CannotLock { folder: "f".into(), why: "w".into() }, 1),
        (usage, 2),
        (CommandFailure::Config { file: "f".into(), counted: "1 error".into(), first: None }, 3),
        (unreadable, 3),
        (CommandFailure::NoConfig { looked_for: "x".into() }, 3),
        (CommandFailure::NoCredentials("0.0.0.0:1".parse().unwrap()), 3),
        (CommandFailure::AlreadyRunning(None), 1),
        (CommandFailure::Unrecorded { config: None, pid: Some(1) }, 4),
        (CommandFailure::StillRunning { url: "u".into(), pid: 1 }, 1),
        (CommandFailure::Unreachable { url: "u".into(), why: "w".into() }, 4),
        (CommandFailure::NoDaemon { why: "w" }, 4),
        (CommandFailure::DaemonNotStarted { why: "w".into(), last_lines: Vec::new() }, 4),
        (CommandFailure::Refused { what: "w".into(), hint: None }, 5),
        (CallError::unknown_tool("x", std::iter::empty()).into(), 5),
        (CommandFailure::ListFailed(CallError::unknown_tool("x", std::iter::empty())), 5),
        (CommandFailure::ListFailed(malformed()), 6),
        (CommandFailure::Call(malformed()), 8),
        (CommandFailure::ServerLost { error: malformed(), last_lines: Vec::new() }, 8),
        (CommandFailure::NoneAnswered(2), 6),
        (CommandFailure::Incomplete { failed: 1, asked: 2 }, 6),
        (CommandFailure::ToolError("t".into()), 7),
        (CommandFailure::Unfinished { what: "the tool `t`".into(), kind: "task".into() }, 7),
        (CommandFailure::InputRequired { what: "the tool `t`".into(), asked: "\"Go on?\"".into() }, 7),
        (
            CallError::OverBudget { owner: BudgetOwner::Role, reset_after: Some(Duration::from_secs(60)) }
                .into(),
            9,
        ),
        (CommandFailure::Interrupted { signal: 2, may_have_run: false }, 130),
        (CommandFailure::Interrupted { signal: 15, may_have_run: true }, 143),
    ];
    for (failure, code) in table {
        assert_eq!(failure.exit_code(), code, "{failure}");
    }
}

#[test]
fn over_budget_says_when_the_next_call_fits() {
    let failure = CommandFailure::from(CallError::OverBudget {
        owner: BudgetOwner::Role,
        reset_after: Some(Duration::from_secs(60)),
    });
    assert_eq!(
        failure.render(Style::plain()),
        "error: the call budget of your role is used up\n  hint: the next call fits in 1m"
    );
}

#[test]
fn a_full_disk_is_no_reason_to_throw_tokens_away() {
    let hint = |kind: io::ErrorKind| {
        CommandFailure::Tokens { file: "/srv/state/a.tokens".into(), why: io::Error::new(kind, "no") }
            .hint()
            .unwrap()
    };
    assert!(hint(io::ErrorKind::StorageFull).contains("make room"));
    assert!(
        hint(io::ErrorKind::StorageFull).contains("state directory (/srv/state)"),
        "where the tokens are"
    );
    assert!(hint(io::ErrorKind::PermissionDenied).contains("as they were"));
    assert!(hint(io::ErrorKind::InvalidData).contains("move it away"));
    let machine = CommandFailure::Machine(io::Error::from(io::ErrorKind::StorageFull)).hint();
    assert!(machine.unwrap().contains("make room"));
}

#[test]
fn a_start_that_has_a_remedy_is_not_told_to_wait_longer() {
    use ostler_core::error::{Remedy, Unavailable, UnavailableState};
    let server = ostler_core::server_name::ServerName::new("web").unwrap();
    let late = |remedy| {
        let unavailable =
            Unavailable::new(server.clone(), UnavailableState::Starting, "it is starting".into(), None);
        CommandFailure::TimedOut(CallError::Unavailable(Unavailable { remedy, ..unavailable })).hint()
    };
    assert_eq!(late(None).as_deref(), Some("try again with a longer --timeout"));
    let remedy = Remedy::new("write its url".into(), false);
    assert_eq!(late(Some(Box::new(remedy))).as_deref(), Some("write its url"));
}
