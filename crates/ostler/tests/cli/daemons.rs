//! `ostler daemons`, `ostler down`, and the daemon that `ostler status` shows.

use serde_json::Value;

use crate::daemon::Daemon;
use crate::home::{Home, Run, until};
use crate::stdio::{EndedDaemon, StdioClient};

fn json(run: &Run) -> Value {
    serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run}"))
}

#[test]
fn every_daemon_of_the_user_is_listed_with_its_clients() {
    let home = Home::with_servers(&[("fake", &[])]);
    home.write("other.toml", "[servers]\n");
    let none = home.run(&["daemons"]);
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""), "{none}");
    assert_eq!(none.stderr, "no daemon runs; `ostler serve` starts one\n");

    let _ended = EndedDaemon(&home);
    let mut client = StdioClient::start(&home);
    client.initialize();
    let served = Daemon::start_with(&home, &["--config", "other.toml"]);
    let shown = home.run_wide(&["daemons"]);
    assert!(shown.stdout.starts_with("URL "), "{shown}");
    assert!(shown.stdout.contains(" ostler serve ") && shown.stdout.contains(" ostler stdio "), "{shown}");
    assert!(shown.stdout.contains(" ~/other.toml\n"), "{shown}");

    let listed = json(&home.run(&["daemons", "--json"]));
    let daemons = listed["daemons"].as_array().unwrap();
    assert_eq!(daemons.len(), 2, "{listed}");
    let of = |kind: &str| daemons.iter().find(|daemon| daemon["kind"] == kind).unwrap();
    assert_eq!((&of("lingering")["clients"], &of("served")["clients"]), (&1.into(), &0.into()), "{listed}");
    assert_eq!((&of("served")["url"], &of("served")["pid"]), (&served.url().into(), &served.pid().into()));
    assert_eq!(of("served")["version"], env!("CARGO_PKG_VERSION"));
    assert!(of("lingering")["config"].as_str().unwrap().ends_with("/ostler.toml"), "{listed}");
    drop(client.child.stdin.take());
    assert!(client.child.wait().unwrap().success());
    until("the client is gone", || {
        let listed = json(&home.run(&["daemons", "--json"]));
        listed["daemons"].as_array().unwrap().iter().all(|daemon| daemon["clients"] == 0)
    });
}

#[test]
fn down_ends_the_daemon_of_the_config_and_no_other() {
    let home = Home::with_servers(&[("fake", &[])]);
    home.write("other.toml", "[servers]\n");
    let daemon = Daemon::start(&home);
    let other = Daemon::start_with(&home, &["--config", "other.toml"]);
    assert_eq!(home.run(&["call", "fake__echo"]).code, Some(0));

    let down = home.run(&["down"]);
    let expected =
        format!("ended the daemon at {} (pid {}), config ~/ostler.toml\n", daemon.url(), daemon.pid());
    assert_eq!((down.code, &down.stdout), (Some(0), &expected), "{down}");
    assert!(!home.left().iter().any(|line| line.contains("fake-mcp")), "its servers are gone with it");
    let again = home.run(&["down"]);
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), ""), "{again}");
    assert_eq!(
        again.stderr,
        "no daemon runs for ~/ostler.toml; one runs for other configs: `ostler daemons` lists them, \
         `ostler down --all` ends them\n"
    );

    let all = json(&home.run(&["down", "--all", "--json"]));
    assert_eq!(all["ended"][0]["pid"], other.pid(), "{all}");
    assert_eq!(home.run(&["down", "--all"]).stderr, "no daemon runs\n");
    assert_eq!(json(&home.run(&["down", "--json"]))["ended"], Value::Array(Vec::new()));
}

#[test]
fn a_daemon_whose_record_is_deleted_is_found_again() {
    let home = Home::with_servers(&[("fake", &[])]);
    let daemon = Daemon::start(&home);
    let entries = std::fs::read_dir(home.path(".local/state/ostler")).unwrap();
    let mut files = entries.map(|entry| entry.unwrap().path());
    let record = files.find(|path| path.extension().is_some_and(|end| end == "json")).unwrap();
    std::fs::remove_file(&record).unwrap();
    let call = home.run(&["call", "fake__pid"]);
    assert_eq!(call.code, Some(0), "{call}");
    assert_eq!(
        home.run(&["call", "fake__pid"]).stdout,
        call.stdout,
        "the daemon has answered, and no second host"
    );
    assert!(record.exists());
    assert_eq!(home.run(&["down"]).code, Some(0));
    assert!(!record.exists());
    let (_, _, said) = daemon.end();
    assert!(said.contains("the record of this daemon was lost, and is written again"), "{said}");
}

#[test]
fn down_ends_a_daemon_that_is_named_and_says_if_there_is_none() {
    let home = Home::with_servers(&[("fake", &[])]);
    let daemon = Daemon::start(&home);
    let url = daemon.url();
    let down = home.run(&["down", "--daemon", &url]);
    assert_eq!(down.code, Some(0), "{down}");
    let again = home.run(&["down", "--daemon", &url]);
    assert_eq!(again.code, Some(4), "{again}");
    assert!(again.stderr.contains(&format!("the daemon at {url} can't be reached")), "{again}");
}

#[test]
fn status_says_which_daemon_it_shows() {
    let home = Home::with_servers(&[("fake", &[])]);
    assert!(!json(&home.run(&["status", "--json"])).as_object().unwrap().contains_key("daemon"));
    let daemon = Daemon::start(&home);
    let (url, pid, version) = (daemon.url(), daemon.pid(), env!("CARGO_PKG_VERSION"));
    let status = home.run(&["status"]);
    let first = format!("daemon: {url}, pid {pid}, version {version}, up ");
    assert!(status.stdout.starts_with(&first), "{status}");
    assert!(status.stdout.contains(", config ~/ostler.toml\nNAME "), "{status}");
    let shown = json(&home.run(&["status", "--json"]));
    assert_eq!((&shown["daemon"]["url"], &shown["daemon"]["pid"]), (&url.into(), &pid.into()), "{shown}");
    assert!(shown["daemon"]["uptime_ms"].is_u64() && shown["servers"].is_array(), "{shown}");
}

#[test]
fn a_directory_without_a_config_and_a_daemon_is_told_as_such_by_down() {
    let run = Home::new().run(&["down"]);
    assert_eq!(run.stderr, "no daemon is running for this directory (no config)\n");
}

#[test]
fn the_root_of_the_endpoint_names_where_to_go() {
    let home = Home::new();
    let daemon = Daemon::start(&home);
    let answer = daemon.ask("GET /", "");
    assert_eq!(answer.status, 404);
    assert!(answer.text.contains("/mcp") && answer.text.contains("`ostler status`"), "{}", answer.text);
    daemon.end();
}
