//! Exit codes, each reached for real.

use std::fs::File;
use std::process::Stdio;

use crate::home::Home;

#[test]
fn every_exit_code_is_reached() {
    let endless: &[&str] = &["--page-size", "2", "--repeat-cursor"];
    let home =
        Home::with_servers(&[("fake", &[]), ("broken", &["--exit-at-start", "1"]), ("endless", endless)]);
    home.write("wrong.toml", "nonsense = 1\n");
    let table: [(i32, &[&str]); 11] = [
        (0, &["call", "fake__echo"]),
        (2, &["call", "fake__echo", "novalue"]),
        (2, &["call", "fake__text", "text:=7"]),
        (2, &["nothing"]),
        (3, &["tools", "--config", "wrong.toml"]),
        (5, &["call", "fake__nothing"]),
        (6, &["call", "broken__echo"]),
        (6, &["call", "endless__echo"]),
        (7, &["call", "fake__fail"]),
        (8, &["call", "fake__exit", "code=1"]),
        (8, &["call", "fake__hang", "--timeout", "200ms"]),
    ];
    for (code, args) in table {
        let run = home.run(args);
        assert_eq!(run.code, Some(code), "{run}");
        assert_eq!(run.stderr.is_empty(), code == 0, "{run}");
    }
}

#[test]
fn output_that_can_not_be_written_is_an_error() {
    let home = Home::new();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = home.command(&["schema"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("error: the output could not be written:"), "{said}");
}

#[test]
fn a_reader_that_has_had_enough_is_no_error() {
    let home = Home::with_servers(&[("fake", &["--tools", "2000"])]);
    for args in [&["schema"][..], &["tools", "fake", "--json"], &["call", "fake__blob", "size=1000000"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = home.command(args).stdout(Stdio::from(writer)).output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{args:?}");
    }
}

#[test]
fn only_the_verbose_see_the_log() {
    let home = Home::with_servers(&[("fake", &["--bad-tool"])]);
    assert_eq!(home.run(&["tools", "fake"]).stderr, "");
    let said = home.run(&["tools", "fake", "-v"]).stderr;
    assert!(said.contains("a tool was left out"), "{said}");
}
