//! `ostler guard -- CMD` and `ostler demo`.

use crate::home::Home;

#[test]
fn a_guarded_command_exits_as_it_would_alone() {
    let home = Home::new();
    let table: [(&str, i32, &str); 4] =
        [("exit 0", 0, ""), ("echo out; exit 7", 7, "out\n"), ("kill -KILL $$", 137, ""), ("cat", 0, "")];
    for (script, code, stdout) in table {
        let run = home.run(&["guard", "--", "sh", "-c", script]);
        assert_eq!((run.code, run.stdout.as_str()), (Some(code), stdout), "{run}");
    }
    insta::assert_snapshot!(home.run(&["guard", "--", "no-such-program"]));
    insta::assert_snapshot!(home.run(&["guard"]));
}

#[test]
fn what_a_guarded_command_leaves_behind_ends_with_it() {
    let run = Home::new().run(&["guard", "--", "sh", "-c", "setsid sleep 1000 & exit 3"]);
    assert_eq!(run.code, Some(3));
}

#[test]
fn the_built_in_server_ends_with_its_input() {
    let run = Home::new().run_with_input(&["demo"], "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n");
    assert_eq!((run.stdout.as_str(), run.code), ("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n", Some(0)));
}
