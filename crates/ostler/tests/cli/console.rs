//! Console of `ostler serve`: its messages while it runs.

use std::fs::File;

use ostler_testkit::fake_mcp;
use serde_json::json;

use crate::daemon::Daemon;
use crate::home::{Home, until};
use crate::mcp;

/// Starts a daemon whose console is the file `console`.
fn serve(home: &Home) -> Daemon<'_> {
    let console = File::create(home.path("console")).unwrap();
    Daemon::start_as(home, |command| {
        command.stderr(console);
    })
}

/// Waits for a line and returns all of them, without their times.
fn told(home: &Home, wanted: &str) -> String {
    until(wanted, || home.lines("console").iter().any(|line| line.contains(wanted)));
    home.lines("console").iter().map(|line| without_time(line).to_owned() + "\n").collect()
}

fn without_time(line: &str) -> &str {
    match line.split_once(' ') {
        Some((stamp, rest)) if stamp.len() == 20 && stamp.ends_with('Z') => rest,
        _ => line,
    }
}

#[test]
fn a_crash_is_told_with_the_telling_line_and_what_to_type_and_so_is_the_recovery() {
    let home = Home::new();
    let script = format!("echo out of luck >&2; exec '{}'", fake_mcp().display());
    home.write("ostler.toml", &format!("[servers.fake]\ncommand = \"sh\"\nargs = [\"-c\", {script:?}]\n"));
    let daemon = serve(&home);
    mcp::call(daemon.port, "fake__echo", json!({}));
    mcp::call(daemon.port, "fake__exit", json!({"code": 3}));
    mcp::call(daemon.port, "fake__echo", json!({}));
    let told = told(&home, "works again");
    let crash = told.lines().find(|line| line.starts_with("`fake` stopped working: ")).unwrap();
    assert!(crash.contains("working: \"out of luck\", exit code 3; it is started again "), "{told}");
    assert!(crash.ends_with("(`ostler logs fake --config ostler.toml`)"), "{told}");
}

#[test]
fn a_missing_program_and_a_changed_definition_are_told_as_they_are_found() {
    let home = Home::new();
    let fake = fake_mcp();
    home.write(
        "ostler.toml",
        &format!(
            "[servers.fake]\ncommand = {fake:?}\nargs = [\"--change-tools\", \"suffix\"]\n\
             [servers.gone]\ncommand = \"no-such-program\"\n"
        ),
    );
    assert_ne!(home.run(&["lock"]).code, Some(0), "one of the two can't be listed");
    home.write("suffix", "and more");
    let daemon = serve(&home);
    mcp::call(daemon.port, "gone__x", json!({}));
    let said = told(&home, "`gone` can't be used");
    assert!(said.contains("`gone` can't be used: program `no-such-program` was not found"), "{said}");
    assert!(
        said.contains("as `command` of `gone`, then `ostler reload gone --config ostler.toml`)"),
        "{said}"
    );
    mcp::call(daemon.port, "fake__echo", json!({}));
    let said = told(&home, "not what was approved");
    assert!(
        said.contains(
            "`fake`: `echo` is not what was approved, so it is refused (`ostler diff fake --config ostler.toml`, then \
             `ostler approve fake --config ostler.toml`)"
        ),
        "{said}"
    );
}

#[test]
fn the_start_is_summed_up_and_so_is_what_became_of_eager_servers() {
    let home = Home::new();
    let fake = fake_mcp();
    home.write(
        "ostler.toml",
        &format!(
            "[servers.bad]\ncommand = {fake:?}\nargs = [\"--exit-at-start\", \"1:no licence\"]\nlazy = false\n\
             [servers.good]\ncommand = {fake:?}\nlazy = false\n\
             [servers.later]\ncommand = {fake:?}\n"
        ),
    );
    let daemon = serve(&home);
    let told = told(&home, "1 of 2 eager servers up");
    let url = daemon.url();
    assert!(
        told.contains(&format!(
            "listening at {url}/mcp\n  config:  ostler.toml\n  servers: 3: 1 lazy (later), 2 eager (bad, good)\n  \
             try:     ostler tools --config ostler.toml\n  client:  claude mcp add --transport http ostler {url}/mcp\n"
        )),
        "{told}"
    );
    assert!(
        told.contains("`bad` could not be started: \"no licence\", exit code 1; it is tried again in "),
        "{told}"
    );
    assert!(
        told.contains("1 of 2 eager servers up; failed: bad (`ostler status --config ostler.toml`)\n"),
        "{told}"
    );
}

#[test]
fn warnings_of_the_config_are_told_at_the_start() {
    let home = Home::new();
    home.write(".mcp.json", r#"{"mcpServers": {"My Server": {"command": "cat"}}}"#);
    let daemon = serve(&home);
    let told = told(&home, "client:");
    assert!(told.contains("warning: "), "{told}");
    assert!(told.contains("my-server"), "{told}");
    drop(daemon);
}

#[test]
fn a_server_that_wants_credentials_is_told_to_need_sign_in() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = std::io::BufReader::new(stream.unwrap());
            let mut line = String::new();
            while std::io::BufRead::read_line(&mut reader, &mut line).is_ok_and(|read| read > 2) {
                line.clear();
            }
            let answer = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let _ = std::io::Write::write_all(reader.get_mut(), answer.as_bytes());
        }
    });
    let home = Home::new();
    home.write("ostler.toml", &format!("[servers.remote]\nurl = \"http://{address}/mcp\"\n"));
    let daemon = serve(&home);
    mcp::call(daemon.port, "remote__x", json!({}));
    let told = told(&home, "needs sign-in");
    assert!(told.contains("`remote` needs sign-in: the server answered HTTP 401"), "{told}");
    assert!(told.contains("then `ostler reload remote --config ostler.toml`)"), "{told}");
}
