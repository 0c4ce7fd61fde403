//! Every failure has its words and its exit code.

use std::time::Duration;

use ostler_core::error::BudgetOf;

use super::*;

fn malformed() -> CallError {
    let server = ostler_core::name::ServerName::new("x").unwrap();
    CallError::UpstreamProtocol { server, detail: "rubbish".into() }
}

#[test]
fn a_list_that_fails_does_not_make_people_look_for_effects() {
    assert_eq!(
        Failure::Unlisted(malformed()).render(Style::plain()),
        "error: server `x` answered outside the protocol\n  cause: rubbish\n  \
         hint: the fault is the server's; no tool was called"
    );
}

#[test]
fn every_failure_has_its_row_in_the_table_of_exit_codes() {
    let usage = Failure::Usage { what: "x".into(), hint: None };
    let unreadable = Failure::Unreadable { file: "f".into(), why: "w".into(), hint: "h" };
    let table = [
        (Failure::OutputClosed, 0),
        (Failure::Output(io::Error::other("full")), 1),
        (Failure::Machine(io::Error::other("none")), 1),
        (Failure::UnsafeFolder { folder: "f".into(), why: "w".into() }, 1),
        (Failure::Unlockable { folder: "f".into(), why: "w".into() }, 1),
        (usage, 2),
        (Failure::Config { file: "f".into(), counted: "1 error".into(), first: None }, 3),
        (unreadable, 3),
        (Failure::NoConfig { looked_for: "x".into() }, 3),
        (Failure::Exposed("0.0.0.0:1".parse().unwrap()), 3),
        (Failure::AlreadyRunning(None), 1),
        (Failure::StillRunning { url: "u".into(), pid: 1 }, 1),
        (Failure::Unreachable { url: "u".into(), why: "w".into() }, 4),
        (Failure::NoDaemon { why: "w" }, 4),
        (Failure::Stillborn { why: "w".into(), last_words: Vec::new() }, 4),
        (Failure::Refused { what: "w".into(), hint: None }, 5),
        (CallError::unknown_tool("x", std::iter::empty()).into(), 5),
        (Failure::Unlisted(CallError::unknown_tool("x", std::iter::empty())), 5),
        (Failure::Unlisted(malformed()), 6),
        (Failure::Call(malformed()), 8),
        (Failure::Lost { error: malformed(), last_words: Vec::new() }, 8),
        (Failure::NoneAnswered(2), 6),
        (Failure::Incomplete { failed: 1, asked: 2 }, 6),
        (Failure::ToolError("t".into()), 7),
        (Failure::Unfinished { what: "the tool `t`".into(), kind: "task".into() }, 7),
        (Failure::InputRequired { what: "the tool `t`".into(), asked: "\"Go on?\"".into() }, 7),
        (CallError::OverBudget { of: BudgetOf::Role, reset_after: Some(Duration::from_secs(60)) }.into(), 9),
        (Failure::Interrupted { signal: 2, may_have_run: false }, 130),
        (Failure::Interrupted { signal: 15, may_have_run: true }, 143),
    ];
    for (failure, code) in table {
        assert_eq!(failure.exit_code(), code, "{failure}");
    }
}

#[test]
fn over_budget_says_when_the_next_call_fits() {
    let failure = Failure::from(CallError::OverBudget {
        of: BudgetOf::Role,
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
        Failure::Tokens { file: "a.tokens".into(), why: io::Error::new(kind, "no") }.hint().unwrap()
    };
    assert!(hint(io::ErrorKind::StorageFull).contains("make room"));
    assert!(hint(io::ErrorKind::PermissionDenied).contains("as they were"));
    assert!(hint(io::ErrorKind::InvalidData).contains("move it away"));
    let machine = Failure::Machine(io::Error::from(io::ErrorKind::StorageFull)).hint();
    assert!(machine.unwrap().contains("make room"));
}

#[test]
fn a_start_that_has_a_remedy_is_not_told_to_wait_longer() {
    use ostler_core::error::{Remedy, Unavailable, UnavailableState};
    let server = ostler_core::name::ServerName::new("web").unwrap();
    let late = |remedy| {
        let unavailable =
            Unavailable::new(server.clone(), UnavailableState::Starting, "it is starting".into(), None);
        Failure::Late(CallError::Unavailable(Unavailable { remedy, ..unavailable })).hint()
    };
    assert_eq!(late(None).as_deref(), Some("try again with a longer --timeout"));
    let remedy = Remedy::new("write its url".into(), false);
    assert_eq!(late(Some(Box::new(remedy))).as_deref(), Some("write its url"));
}
