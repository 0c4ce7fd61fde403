//! Config files: discovery, parsing and diagnostics.

use ostler_testkit::fake_mcp;

use crate::home::Home;

const WRONG: &str = r#"version = 1
lissen = "127.0.0.1:7777"

[servers.Time]
command = "mcp-server-time"

[servers.git]
comand = "mcp-server-git"
keep_alive = "five minutes"

[servers.both]
command = "x"
url = "https://mcp.example.com/mcp"
call_timeout = "20m"

[servers.web]
url = "ftp://example.com"
headers = { Authorization = "Bearer ghp_0123456789abcdef0123456789abcdef" }
"#;

#[test]
fn every_problem_is_told_at_once_with_its_place() {
    let home = Home::new();
    home.write("ostler.toml", WRONG);
    insta::assert_snapshot!(home.run(&["check"]));
    insta::assert_snapshot!(home.run(&["check", "--json"]));
    for command in [&["tools"][..], &["list"], &["status"], &["call", "git__x"]] {
        let run = home.run(command);
        assert_eq!((run.code, run.stdout.as_str()), (Some(3), ""), "{run}");
    }
}

#[test]
fn a_directory_in_place_of_a_config_is_named_as_one() {
    let home = Home::with_servers(&[("fake", &[])]);
    home.write("sub/ostler.toml", "");
    for (typed, said) in [(".", "error: . can't be read"), ("sub", "error: sub can't be read")] {
        let run = home.run_finding(&["tools", "--config", typed]);
        assert_eq!(run.code, Some(3), "{run}");
        assert!(
            run.stderr.starts_with(&format!("{said}\n  cause: it is a directory\n  hint: name a file")),
            "{run}"
        );
    }
}

#[test]
fn a_config_in_order_is_said_to_be_ok() {
    let home = Home::with_servers(&[("fake", &[]), ("more", &[])]);
    insta::assert_snapshot!(home.run(&["check"]));
    insta::assert_snapshot!(home.run(&["check", "--json"]));
}

#[test]
fn what_the_machine_lacks_is_an_error() {
    let home = Home::new();
    home.write(
        "ostler.toml",
        "[servers.gone]\ncommand = \"no-such-program\"\ncwd = \"nowhere\"\n\
         env = { NAME = \"${env:NO_SUCH_VARIABLE}\", OTHER = \"${env:NO_SUCH_VARIABLE:-x}\" }\n\
         [servers.here]\ncommand = \"./server\"\nargs = [\"${file:missing}\"]\n",
    );
    insta::assert_snapshot!(home.run(&["check"]));
}

#[test]
fn a_file_of_another_client_works_unchanged() {
    let home = Home::new();
    let server = serde_json::json!({
        "type": "stdio",
        "command": fake_mcp(),
        "env": {"X": "${HOME}"},
        "autoApprove": ["echo"],
    });
    let text = format!("{{\n  \"mcpServers\": {{\n    \"My Server\":\n      {server}\n  }}\n}}\n");
    home.write(".mcp.json", &text);
    insta::assert_snapshot!(home.run(&["call", "my-server__text", "text=hello"]));
    home.write("elsewhere/client.json", &text);
    let run = home.run(&["call", "my-server__text", "text=hello", "--config", "elsewhere/client.json"]);
    assert_eq!(run.stdout, "hello\n");
}

#[test]
fn files_are_looked_for_in_their_order() {
    let home = Home::new();
    let config = |name: &str| format!("[servers.{name}]\ncommand = \"x\"\n");
    let listed = |args: &[&str]| home.run_finding(args).stdout.lines().nth(1).unwrap_or_default().to_owned();
    home.write(".config/ostler/ostler.toml", &config("own"));
    assert!(listed(&["list"]).starts_with("own "));
    home.write(".mcp.json", r#"{"mcpServers": {"client": {"command": "x"}}}"#);
    assert!(listed(&["list"]).starts_with("client "));
    home.write("ostler.toml", &config("here"));
    assert!(listed(&["list"]).starts_with("here "));
    home.write("named.toml", &config("named"));
    assert!(listed(&["list", "--config", "named.toml"]).starts_with("named "));
}

#[test]
fn a_config_that_is_not_there_is_told() {
    let home = Home::new();
    home.write("config.yaml", "");
    insta::assert_snapshot!(home.run(&["tools", "--config", "nowhere.toml"]));
    insta::assert_snapshot!(home.run(&["tools", "--config", "config.yaml"]));
    insta::assert_snapshot!(home.run(&["check"]));
}

#[test]
fn a_file_without_an_end_fills_no_memory() {
    let home = Home::new();
    let endless = |name: &str| std::fs::File::create(home.path(name)).unwrap().set_len(1 << 36).unwrap();
    endless("endless.toml");
    let run = home.run(&["check", "--config", "endless.toml"]);
    assert_eq!(run.code, Some(3), "{run}");
    assert!(run.stderr.contains("the file is larger than 4 MiB"), "{run}");
    endless("secret");
    home.write("ostler.toml", "[servers.a]\ncommand = \"sh\"\nargs = [\"${file:secret}\"]\n");
    let run = home.run(&["check"]);
    assert!(run.stderr.contains("secret is larger than 1 MiB"), "{run}");
}

/// Puts a pipe or a device in the place of a file: one blocks, the other never ends.
fn make_irregular(home: &Home, name: &str, is_pipe: bool) {
    let path = home.path(name);
    let _ = std::fs::remove_file(&path);
    match is_pipe {
        true => nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap(),
        false => std::os::unix::fs::symlink("/dev/zero", &path).unwrap(),
    }
}

#[test]
fn a_pipe_or_device_in_place_of_a_file_is_refused_at_once() {
    for is_pipe in [true, false] {
        let home = Home::new();
        let refused = |args: &[&str]| {
            let run = home.run_finding(args);
            assert_eq!(run.code, Some(3), "{run}");
            assert!(run.stderr.contains("it is not a regular file"), "{run}");
        };
        make_irregular(&home, "main.toml", is_pipe);
        refused(&["list", "--config", "main.toml"]);
        home.write("ostler.toml", "include = [\"more.toml\"]\n");
        make_irregular(&home, "more.toml", is_pipe);
        refused(&["list"]);
        home.write("ostler.toml", "[servers.a]\ncommand = \"sh\"\nargs = [\"${file:secret}\"]\n");
        make_irregular(&home, "secret", is_pipe);
        refused(&["check"]);
        make_irregular(&home, "ostler.lock", is_pipe);
        for args in [&["list"][..], &["check"], &["tools"]] {
            refused(args);
        }
    }
}

#[test]
fn a_token_may_come_from_a_pipe_that_the_user_names() {
    let home = Home::new();
    home.write("ostler.toml", "");
    make_irregular(&home, "token", true);
    let path = home.path("token");
    let writer = std::thread::spawn(move || std::fs::write(path, "two words\n").unwrap());
    let run = home.run(&["stdio", "--token-file", "token"]);
    writer.join().unwrap();
    assert!(run.stderr.contains("the token is no word of printable characters"), "{run}");
}
