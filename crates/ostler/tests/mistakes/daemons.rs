//! Daemons that conflict with each other, and servers that fail in one.

use std::net::TcpListener;

use ostler_testkit::fake_mcp;

use crate::daemon::Daemon;
use crate::new_user::NewUser;

fn start<'a>(user: &'a NewUser) -> Daemon<'a> {
    let file = user.home.path("port");
    let line = ["serve", "--listen", "0", "--port-file", file.to_str().unwrap()];
    Daemon::spawn(&user.home, user.command(&line))
}

#[test]
fn a_second_daemon() {
    let user = NewUser::with_config(&format!("[servers.fake]\ncommand = {:?}\n", fake_mcp()));
    let daemon = start(&user);
    let printed = user.types(&["serve"]);
    let printed =
        printed.replace(&daemon.port.to_string(), "[PORT]").replace(&daemon.pid().to_string(), "[PID]");
    insta::assert_snapshot!(printed);
}

#[test]
fn a_port_that_the_daemon_of_another_config_has() {
    let config = format!("[servers.fake]\ncommand = {:?}\n", fake_mcp());
    let user = NewUser::with_config(&config);
    let daemon = start(&user);
    user.home.write("other.toml", &config);
    let printed = user.types(&[&format!("serve --config other.toml --listen {}", daemon.port)]);
    assert!(printed.contains("`ostler down --config ") && printed.contains("--listen"), "{printed}");
}

#[test]
fn a_port_that_another_program_has() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let user = NewUser::with_config(&format!("[servers.fake]\ncommand = {:?}\n", fake_mcp()));
    let printed = user.types(&[&format!("serve --listen {port}")]);
    insta::assert_snapshot!(printed.replace(&port, "[PORT]"));
}

#[test]
fn a_server_that_does_not_start_in_a_daemon() {
    // With a directory of its own in PATH, the daemon asks no login shell for others.
    let user =
        NewUser::with_config("[servers.weather]\ncommand = \"ndoe\"\n").path("/usr/bin:/bin:/opt/tools");
    let _daemon = start(&user);
    insta::assert_snapshot!(user.types(&["tools", "call weather__forecast"]));
}
