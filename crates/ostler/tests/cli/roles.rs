//! Rules of roles on the command line.

use ostler_testkit::fake_mcp;

use crate::daemon::Daemon;
use crate::home::{Home, until};

/// Returns a config with two servers, one of them with a filter, and some rules.
fn config(roles: &str) -> String {
    let command = fake_mcp();
    format!(
        "[servers.fake]\ncommand = {command:?}\ntools = {{ deny = [\"crash\"] }}\n\n\
         [servers.fake-two]\ncommand = {command:?}\n\n{roles}"
    )
}

const RULES: &str = "[roles.reader]\nallow = [\n  \"fake/echo\",\n  \"fake/prompt:*\",\n  \"fake-two/*\",\n]\n\
                     deny = [\"*/sleep\"]\n";

#[test]
fn explain_names_the_rule_that_decides() {
    let home = Home::new();
    home.write("ostler.toml", &config(RULES));
    for what in
        ["fake__echo", "fake__text", "fake-two__sleep", "fake/prompt:x", "fake__crash", "fake-two", "fkae__x"]
    {
        insta::assert_snapshot!(
            format!("explain-{}", what.replace(['/', ':'], "-")),
            home.run(&["explain", "reader", what])
        );
    }
    insta::assert_snapshot!("explain-unknown-role", home.run(&["explain", "raeder", "fake__echo"]));
    insta::assert_snapshot!("explain-local", home.run(&["explain", "local", "fake__echo"]));
    insta::assert_snapshot!(
        "explain-json",
        home.run(&["explain", "reader", "fake-two__sleep", "--json"])
            .stdout
            .replace(&*home.path("").to_string_lossy(), "/")
    );
}

#[test]
fn check_warns_of_rules_that_match_nothing() {
    let home = Home::new();
    let rules = "[roles.reader]\nallow = [\"fake/ehco\", \"fake/*\", \"fake-two/ehco\"]\ndeny = [\"fake/nonesuch_*\", \"nobody/x\"]\n\
                 [roles.none]\nallow = [\"nobody/*\"]\n[roles.out]\nallow = []\n";
    home.write("ostler.toml", &config(rules));
    home.run(&["tools", "fake"]);
    insta::assert_snapshot!(home.run(&["check"]));
}

#[test]
fn the_name_of_the_operator_is_reserved() {
    let home = Home::new();
    home.write("ostler.toml", "[roles.operator]\nallow = [\"*\"]\n");
    insta::assert_snapshot!(home.run(&["check"]));
}

#[test]
fn the_command_line_is_a_local_caller_and_operates_as_nobody_else_can() {
    let home = Home::new();
    home.write("ostler.toml", &config("[roles.local]\nallow = [\"fake/echo\"]\n"));
    let check = |home: &Home| {
        assert_eq!(home.run(&["call", "fake__echo"]).code, Some(0));
        assert_eq!(home.run(&["call", "fake__text", "text=x"]).code, Some(5));
        assert_eq!(home.run(&["call", "fake-two__echo"]).code, Some(5));
        assert_eq!(home.run(&["tools", "fake-two"]).code, Some(5));
        let tools = home.run(&["tools"]).stdout;
        assert!(tools.contains("fake__echo") && !tools.contains("fake__text"), "{tools}");
        assert!(!tools.contains("fake-two"), "{tools}");
        assert!(home.run(&["status"]).stdout.contains("fake-two"));
    };
    check(&home);
    let daemon = Daemon::start(&home);
    check(&home);
    assert_eq!(home.run(&["start", "fake-two"]).code, Some(0));
    home.write("ostler.toml", &config("[roles.local]\nallow = [\"*\"]\n"));
    until("the edit is applied", || home.run(&["call", "fake-two__echo"]).code == Some(0));
    let (_, _, said) = daemon.end();
    assert!(said.contains("config applied: roles local"), "{said}");
}
