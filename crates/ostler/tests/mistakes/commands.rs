//! Commands that are typed with mistakes.

use ostler_testkit::fake_mcp;

use crate::new_user::NewUser;

fn user() -> NewUser {
    let fake = fake_mcp();
    NewUser::with_config(&format!(
        "[servers.fake]\ncommand = {fake:?}\n[servers.resting]\ncommand = {fake:?}\ndisabled = true\n"
    ))
}

#[test]
fn a_tool_that_does_not_exist() {
    insta::assert_snapshot!(user().types(&[
        "call fake__ecoh",
        "call fake__weather",
        "call fkae__echo",
        "call weather"
    ]));
}

#[test]
fn an_argument_of_the_wrong_type() {
    insta::assert_snapshot!(user().types(&["call fake__blob size=large", "call fake__text text:=7"]));
}

#[test]
fn an_argument_that_is_missing() {
    insta::assert_snapshot!(user().types(&["call fake__text", "call fake__blob"]));
}

#[test]
fn a_server_that_is_disabled() {
    insta::assert_snapshot!(user().types(&["call resting__echo", "tools resting", "status resting"]));
}

#[test]
fn an_operation_without_a_daemon() {
    insta::assert_snapshot!(user().types(&["start fake", "reload", "logs fake"]));
}

#[test]
fn a_command_of_another_program() {
    insta::assert_snapshot!(user().types(&["mcp add weather npx", "lst", "tools --jsno"]));
}
