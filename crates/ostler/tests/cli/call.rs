//! `ostler call`.

use ostler_testkit::fake_mcp;

use crate::home::Home;

fn fake() -> Home {
    Home::with_servers(&[("fake", &[])])
}

#[test]
fn a_tool_is_called_and_its_text_printed() {
    let home = fake();
    insta::assert_snapshot!(home.run(&["call", "fake__text", "text=hello"]));
    insta::assert_snapshot!(home.run(&["call", "fake__add", "a=2", "b=40"]));
}

#[test]
fn a_number_keeps_all_its_digits() {
    let home = fake();
    let big = "123456789012345678901234567890.12345678901234567890";
    let run = home.run(&["call", "fake__echo", &format!("n={big}"), "--json"]);
    assert!(run.stdout.contains(&format!(r#""structuredContent":{{"n":{big}}}"#)), "{run}");
}

#[test]
fn json_prints_the_result_byte_for_byte() {
    let exact = std::process::Command::new(fake_mcp()).arg("--print-exact").output().unwrap();
    let run = fake().run(&["call", "fake__exact", "--json"]);
    assert_eq!(run.stdout.strip_suffix('\n'), Some(std::str::from_utf8(&exact.stdout).unwrap()));
}

#[test]
fn what_is_not_text_is_named() {
    insta::assert_snapshot!(fake().run(&["call", "fake__exact"]));
}

#[test]
fn arguments_come_as_pairs_as_an_object_from_a_file_and_from_stdin() {
    let home = fake();
    home.write("note.txt", "two\nlines\n");
    home.write("all.json", "{\n  \"text\": \"from a file\"\n}\n");
    let table: [(&[&str], &str, &str); 6] = [
        (&["call", "fake__text", "text=@note.txt"], "", "two\nlines\n"),
        (&["call", "fake__text", "--args", "{\"text\": \"whole\"}"], "", "whole\n"),
        (&["call", "fake__text", "--args", "@all.json"], "", "from a file\n"),
        (&["call", "fake__text", "--args", "-"], "{\"text\":\n\"from stdin\"}", "from stdin\n"),
        (&["call", "fake__echo", "a:=[1, 2]", "b=x"], "", "{\"a\":[1, 2],\"b\":\"x\"}\n"),
        (&["call", "fake__echo"], "", "{}\n"),
    ];
    for (args, input, want) in table {
        let run = home.run_with_input(args, input);
        assert_eq!((run.stdout.as_str(), run.code), (want, Some(0)), "{run}");
    }
}

#[test]
fn arguments_that_make_no_sense_are_refused_before_the_tool_runs() {
    let home = Home::with_servers(&[("fake", &["--ledger", "ledger"])]);
    insta::assert_snapshot!(home.run(&["call", "fake__sleep", "ms=soon"]));
    insta::assert_snapshot!(home.run(&["call", "fake__sleep", "soon"]));
    insta::assert_snapshot!(home.run(&["call", "fake__sleep", "ms=1", "ms=2"]));
    insta::assert_snapshot!(home.run(&["call", "fake__sleep", "--args", "[1]"]));
    insta::assert_snapshot!(home.run(&["call", "fake__sleep", "--args", "{"]));
    insta::assert_snapshot!(home.run(&["call", "fake__sleep", "ms=@nothing"]));
    assert!(home.lines("ledger").is_empty());
    let demo = Home::new();
    insta::assert_snapshot!(demo.run(&["call", "demo__echo", "txet=hi"]));
    insta::assert_snapshot!(demo.run(&["call", "demo__time", "zone=UTC"]));
    insta::assert_snapshot!(demo.run(&["call", "demo__add", "a=1"]));
}

#[test]
fn a_tool_that_does_not_exist_is_told_with_what_was_meant() {
    let home = fake();
    insta::assert_snapshot!(home.run(&["call", "fake__ehco"]));
    insta::assert_snapshot!(home.run(&["call", "fka__echo"]));
    insta::assert_snapshot!(home.run(&["call", "fake"]));
}

#[test]
fn the_object_of_arguments_has_a_flag_of_its_own() {
    let home = Home::with_servers(&[("fake", &["--ledger", "ledger"])]);
    insta::assert_snapshot!(home.run(&["call", "fake__text", "--json", "{\"text\": \"a=b\"}"]));
    insta::assert_snapshot!(home.run(&["call", "fake__text", "--json={\"text\": \"x\"}"]));
    insta::assert_snapshot!(home.run(&["call", "fake__text", "text=x", "--args", "{}"]));
    assert!(home.lines("ledger").is_empty());
}

#[test]
fn a_tool_is_called_by_any_spelling_of_its_name() {
    let other: &[&str] = &["--catalog", "wx.json", "--starts", "wx"];
    let home = Home::with_servers(&[("fake", &[]), ("wx", other)]);
    home.write("wx.json", r#"{"tools": []}"#);
    let table: [&[&str]; 5] =
        [&["fake__text"], &["fake.text"], &["fake/text"], &["fake:text"], &["fake", "text"]];
    for words in table {
        let run = home.run(&[&["call"], words, &["text=hi"]].concat());
        assert_eq!((run.stdout.as_str(), run.code), ("hi\n", Some(0)), "{run}");
    }
    assert_eq!(home.lines("wx").len(), 0, "only the server that is meant is started");
    let run = home.run(&["call", "text", "text=hi"]);
    assert_eq!((run.stdout.as_str(), run.code), ("hi\n", Some(0)), "{run}");
}

#[test]
fn a_name_that_two_servers_have_is_not_guessed() {
    let home = Home::with_servers(&[("one", &["--ledger", "ledger"]), ("two", &["--ledger", "ledger"])]);
    insta::assert_snapshot!(home.run(&["call", "text", "text=hi"]));
    let broken: &[&str] = &["--exit-at-start", "1:no licence"];
    let half = Home::with_servers(&[("one", &["--ledger", "ledger"]), ("two", broken)]);
    insta::assert_snapshot!(half.run(&["call", "text", "text=hi"]));
    assert!(home.lines("ledger").is_empty() && half.lines("ledger").is_empty());
}

#[test]
fn a_misspelled_name_is_told_with_what_there_is() {
    let home = Home::with_servers(&[("fake", &[]), ("time", &[])]);
    insta::assert_snapshot!(home.run(&["call", "fake.ehco"]));
    insta::assert_snapshot!(home.run(&["call", "fkae.echo"]));
    insta::assert_snapshot!(home.run(&["call", "fkae__echo"]));
    insta::assert_snapshot!(home.run(&["call", "ehco"]));
    insta::assert_snapshot!(home.run(&["call", "echo", "hello"]));
}

#[test]
fn a_tool_that_says_it_failed_exits_7() {
    let home = fake();
    insta::assert_snapshot!(home.run(&["call", "fake__fail", "text=no such branch"]));
    insta::assert_snapshot!(home.run(&["call", "fake__rpc_error", "code=-32000", "message=not today"]));
    insta::assert_snapshot!(home.run(&["call", "fake__input"]));
}

#[test]
fn a_tool_that_crashes_may_have_run_and_is_not_run_again() {
    let home = Home::with_servers(&[("fake", &["--ledger", "ledger"])]);
    insta::assert_snapshot!(home.run(&["call", "fake__crash"]));
    assert_eq!(home.lines("ledger").len(), 1);
}

#[test]
fn a_server_that_crashes_in_a_call_is_told_with_its_last_words() {
    let home = Home::new();
    let script = format!("echo out of memory >&2; exec '{}'", ostler_testkit::fake_mcp().display());
    home.write("ostler.toml", &format!("[servers.fake]\ncommand = \"sh\"\nargs = [\"-c\", {script:?}]\n"));
    let run = home.run(&["call", "fake__crash"]);
    assert!(run.stderr.ends_with("\n  stderr: out of memory\n"), "{run}");
}

#[test]
fn a_call_that_takes_too_long_is_given_up() {
    let home = fake();
    let run = home.run(&["call", "fake__hang", "--timeout", "500ms"]);
    assert!(run.stderr.contains("did not answer within 500ms"), "{run}");
    insta::assert_snapshot!(run.without_times());
    let slow = Home::with_servers(&[("fake", &["--hang-at-start"])]);
    let run = slow.run(&["call", "fake__echo", "--timeout", "500ms"]);
    assert!(
        run.stderr.contains("error: server `fake` is still starting\n  cause: it has been starting for "),
        "{run}"
    );
    assert!(run.stderr.contains("\n  hint: try again with a longer --timeout"), "{run}");
}

#[test]
fn a_server_that_crashes_at_its_start_is_told_with_its_last_words() {
    let home = Home::with_servers(&[("fake", &["--exit-at-start", "3:missing GITHUB_TOKEN"])]);
    insta::assert_snapshot!(home.run(&["call", "fake__echo"]));
}

#[test]
fn a_server_that_says_nothing_is_waited_for_once() {
    let home = Home::with_servers(&[("fake", &["--hang-at-start", "--starts", "starts"])]);
    let config = std::fs::read_to_string(home.path("ostler.toml")).unwrap();
    home.write("ostler.toml", &format!("{config}\nstart_timeout = \"300ms\"\n"));
    let run = home.run(&["call", "fake__echo"]);
    assert!(run.stderr.contains("it has not answered the MCP handshake within 300ms"), "{run}");
    assert_eq!((run.code, home.lines("starts").len()), (Some(6), 1), "{run}");
}

#[test]
fn a_server_that_speaks_to_people_instead_of_mcp_is_quoted() {
    let home = Home::new();
    home.write("ostler.toml", "[servers.web]\ncommand = \"echo\"\nargs = [\"Listening on port 3000\"]\n");
    let run = home.run(&["call", "web__echo"]);
    assert!(run.stderr.starts_with("error: server `web`"), "{run}");
    assert!(run.stderr.lines().next().unwrap().contains("stdout: Listening on port 3000"), "{run}");
}

#[test]
fn a_program_that_does_not_exist_is_told() {
    let home = Home::new();
    home.write("ostler.toml", "[servers.gone]\ncommand = \"no-such-program\"\n");
    let path = std::env::var("PATH").unwrap();
    insta::assert_snapshot!(home.run(&["call", "gone__echo"]).to_string().replace(&path, "[PATH]"));
}

#[test]
fn only_the_server_that_is_meant_is_started() {
    let home = Home::with_servers(&[("one", &["--starts", "one"]), ("two", &["--starts", "two"])]);
    home.run(&["call", "one__echo"]);
    assert_eq!((home.lines("one").len(), home.lines("two").len()), (1, 0));
}

#[test]
fn an_error_names_the_tool_and_not_its_server() {
    let run = fake().run(&["call", "fake", "fail"]);
    assert!(run.stderr.contains("the tool `fake__fail` reported an error"), "{run}");
}
