//! Included files provide their servers and nothing else.

use crate::fake_files::{FakeFiles, messages};

const MAIN: &str = "include = [\"more.json\", \"sub/more.toml\"]\n[servers.a]\ncommand = \"x\"\n";

fn files() -> FakeFiles {
    FakeFiles::default()
        .with("/proj/ostler.toml", MAIN)
        .with("/proj/more.json", r#"{"mcpServers": {"b": {"command": "./y"}}}"#)
        .with("/proj/sub/more.toml", "[servers.c]\ncommand = \"./z\"\n")
}

fn refused(world: &FakeFiles) -> Vec<String> {
    messages(&world.parse("/proj/ostler.toml").unwrap_err().problems)
}

#[test]
fn servers_come_in_the_order_of_the_files_with_paths_of_their_own() {
    let config = files().parse("/proj/ostler.toml").unwrap();
    let commands: Vec<_> =
        config.servers.iter().map(|spec| crate::fake_files::process(spec).command.as_str()).collect();
    assert_eq!(commands, ["x", "/proj/y", "/proj/sub/z"]);
}

#[test]
fn a_repeated_name_is_an_error_that_names_both_places() {
    let world = files().with("/proj/sub/more.toml", "\n[servers.b]\ncommand = \"z\"\n");
    let report = world.parse("/proj/ostler.toml").unwrap_err();
    let problem = &report.problems[0];
    assert_eq!(problem.message, "the server `b` is also given in /proj/more.json:1");
    assert_eq!((problem.file.to_str(), problem.line), (Some("/proj/sub/more.toml"), 2));
}

#[test]
fn an_included_file_includes_nothing_and_sets_nothing() {
    let world = files().with("/proj/sub/more.toml", "include = [\"x.toml\"]\nroles.a.allow = [\"*\"]\n");
    assert_eq!(
        refused(&world),
        [
            "`include` in an included file: only its servers are taken",
            "`roles` in an included file: only its servers are taken",
        ]
    );
}

#[test]
fn a_file_that_includes_itself_ends() {
    let world = FakeFiles::default().with("/proj/ostler.toml", "include = [\"ostler.toml\"]\n");
    assert_eq!(refused(&world), ["`include` in an included file: only its servers are taken"]);
}

#[test]
fn a_missing_or_strange_file_is_pointed_at_from_the_main_file() {
    let world =
        FakeFiles::default().with("/proj/ostler.toml", "include = [\n  \"a.json\",\n  \"b.yaml\",\n]\n");
    let report = world.parse("/proj/ostler.toml").unwrap_err();
    let lines: Vec<_> =
        report.problems.iter().map(|problem| (problem.line, problem.message.as_str())).collect();
    assert_eq!(
        lines,
        [
            (2, "\"a.json\" can't be read: no such file"),
            (3, "\"b.yaml\" can't be included: its format is not known")
        ]
    );
}

#[test]
fn rules_may_name_servers_of_included_files() {
    let text = format!("{MAIN}\n[roles.r]\nallow = [\"b/*\", \"c/*\", \"d/*\"]\n");
    let config = files().with("/proj/ostler.toml", &text).parse("/proj/ostler.toml").unwrap();
    assert_eq!(
        messages(&config.notices),
        ["a rule in `roles.r.allow` names the server `d`, which does not exist"]
    );
}
