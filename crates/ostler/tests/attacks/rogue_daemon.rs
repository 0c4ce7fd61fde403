//! A rogue process that listens at the address of a daemon.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::daemon::Daemon;
use crate::home::{Home, Run};

/// Admin token that must not leave its owner.
const ADMIN: &str = "5ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2";
/// Token of a caller, likewise.
const CALLER: &str = "ostler_1f2e3d4c5b6a_5ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2";
/// Argument of a call, likewise.
const ARGUMENT: &str = "text=for-the-daemon-only";

/// Answers of a rogue to any request.
const ANSWERS: [&str; 4] = [
    "",
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "HTTP/1.1 200 OK\r\nContent-Length: 76\r\n\r\n{\"proof\":\"0000000000000000000000000000000000000000000000000000000000000000\"}",
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: ostler-stdio\r\nConnection: upgrade\r\n\r\n",
];

/// Server on a port of its own that keeps everything it receives.
struct Rogue {
    port: u16,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Rogue {
    fn listen(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::<Mutex<Vec<u8>>>::default();
        let all = Arc::clone(&heard);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let all = Arc::clone(&all);
                std::thread::spawn(move || listen_to(connection.unwrap(), answer, &all));
            }
        });
        Self { port, heard }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn heard(&self) -> String {
        String::from_utf8_lossy(&self.heard.lock().unwrap()).into_owned()
    }

    /// Asserts that it received a request and no secret.
    fn assert_told_nothing(&self, why: &str) {
        let heard = self.heard();
        assert!(heard.contains("GET "), "{why}: nothing was asked");
        for secret in [ADMIN, CALLER, "for-the-daemon-only"] {
            assert!(!heard.contains(secret), "{why}: {heard}");
        }
    }
}

fn listen_to(mut connection: TcpStream, answer: &str, all: &Mutex<Vec<u8>>) {
    let mut chunk = [0; 4_096];
    while let Ok(read) = connection.read(&mut chunk) {
        all.lock().unwrap().extend_from_slice(&chunk[..read]);
        if read == 0 || answer.is_empty() || connection.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// Runs a command that has secrets to send.
fn run(home: &Home, args: &[&str]) -> Run {
    let mut command = home.command(args);
    command.env("OSTLER_ADMIN_TOKEN", ADMIN).env("OSTLER_TOKEN", CALLER).stdin(Stdio::null());
    home.finish(command.spawn().unwrap())
}

const COMMANDS: [&[&str]; 5] =
    [&["status"], &["tools"], &["call", "fake__echo", ARGUMENT], &["logs", "fake", "--follow"], &["stdio"]];

#[test]
fn a_port_that_can_not_prove_itself_is_told_no_secret() {
    let home = Home::with_servers(&[("fake", &[])]);
    for answer in ANSWERS {
        for args in COMMANDS {
            let rogue = Rogue::listen(answer);
            let why = format!("{args:?} answered {answer:?}");
            let run = run(&home, &[args, &["--daemon", &rogue.url()]].concat());
            assert!(matches!(run.code, Some(4 | 5)), "{why}: {run}");
            rogue.assert_told_nothing(&why);
        }
    }
}

#[test]
fn the_port_of_a_daemon_that_is_gone_is_told_no_secret() {
    let home = Home::with_servers(&[("fake", &[])]);
    drop(Daemon::start(&home));
    let only = |folder: &str, end: &str| {
        let files = std::fs::read_dir(home.path(folder)).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|it| it == end)).last().unwrap()
    };
    let lock = only(".local/state/ostler", "lock");
    std::fs::write(only("state/ostler", "token"), ADMIN).unwrap();
    for answer in ANSWERS {
        for args in COMMANDS {
            let rogue = Rogue::listen(answer);
            let why = format!("{args:?} answered {answer:?}");
            let note = serde_json::json!({
                "url": rogue.url(), "pid": 1, "version": "0.1.0", "config": null, "started": 1
            });
            std::fs::write(lock.with_extension("json"), note.to_string()).unwrap();
            let held = File::open(&lock).unwrap();
            held.lock().unwrap();
            let run = run(&home, args);
            assert!(matches!(run.code, Some(4 | 5)), "{why}: {run}");
            rogue.assert_told_nothing(&why);
        }
    }
}

#[test]
fn a_client_without_the_admin_token_does_not_show_its_own() {
    let home = Home::with_servers(&[("fake", &[])]);
    let rogue = Rogue::listen(ANSWERS[3]);
    let mut command = home.command(&["stdio", "--daemon", &rogue.url()]);
    let run = home.finish(command.env("OSTLER_TOKEN", CALLER).spawn().unwrap());
    assert_eq!(run.code, Some(5), "{run}");
    assert!(!rogue.heard().contains(CALLER));
}

#[test]
fn a_wrong_admin_token_is_not_sent_to_the_daemon_either() {
    let home = Home::with_servers(&[("fake", &[])]);
    let daemon = Daemon::start(&home);
    for args in COMMANDS {
        let run = run(&home, &[args, &["--daemon", &daemon.url()]].concat());
        assert_eq!(run.code, Some(5), "{run}");
        assert!(run.stderr.contains("does not know this admin token"), "{run}");
    }
}

#[test]
fn a_directory_of_notes_that_others_can_write_to_is_refused() {
    let home = Home::with_servers(&[("fake", &[])]);
    let folder = home.path(".local/state/ostler");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
    for args in
        [&["serve", "--listen", "127.0.0.1:0"][..], &["status"], &["tools"], &["stdio"], &["token", "list"]]
    {
        let run = home.run(args);
        assert_eq!(run.code, Some(1), "{run}");
        assert!(run.stderr.contains("[HOME]/.local/state/ostler can't be trusted"), "{run}");
        assert!(run.stderr.contains("other users may write to it (mode 777)"), "{run}");
    }
}

/// Listens as a daemon that knows its admin token, refuses a shutdown and names another process as its own.
fn impersonate(pid: u32) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            std::thread::spawn(move || answer_as_daemon(connection.unwrap(), pid));
        }
    });
    url
}

fn answer_as_daemon(mut connection: TcpStream, pid: u32) {
    let mut heard = [0; 8_192];
    while let Ok(read @ 1..) = connection.read(&mut heard) {
        let request = String::from_utf8_lossy(&heard[..read]).into_owned();
        let (status, body) = match request.split_once("nonce=") {
            Some((_, rest)) => ("200 OK", format!(r#"{{"proof":"{}"}}"#, prove(&rest[..64]))),
            None if request.starts_with("GET /api/v1/version") => {
                ("200 OK", format!(r#"{{"version":"0.0.1","pid":{pid},"name":"ostler"}}"#))
            }
            None => ("404 Not Found", "{}".to_owned()),
        };
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}", body.len());
        if connection.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).is_err() {
            return;
        }
    }
}

/// Returns the answer to a challenge, in hexadecimal digits as the nonce.
fn prove(nonce: &str) -> String {
    let digits = |at: usize| u8::from_str_radix(&nonce[at..at + 2], 16).unwrap();
    let nonce: Vec<u8> = (0..nonce.len()).step_by(2).map(digits).collect();
    let mut code = Hmac::<Sha256>::new_from_slice(ADMIN.as_bytes()).unwrap();
    code.update(b"ostler daemon proof 1\0");
    code.update(&nonce);
    code.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_daemon_has_no_process_ended_that_does_not_hold_its_lock() {
    let home = Home::with_servers(&[("fake", &[])]);
    let mut bystander = Command::new("sleep").arg("600").spawn().unwrap();
    let url = impersonate(bystander.id());
    let by_address = run(&home, &["down", "--daemon", &url]);
    assert_ne!(by_address.code, Some(0), "{by_address}");
    assert!(bystander.try_wait().unwrap().is_none(), "{by_address}");

    drop(Daemon::start(&home));
    let only = |folder: &str, end: &str| {
        let files = std::fs::read_dir(home.path(folder)).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|it| it == end)).last().unwrap()
    };
    let lock = only(".local/state/ostler", "lock");
    std::fs::write(only("state/ostler", "token"), ADMIN).unwrap();
    let held = File::open(&lock).unwrap();
    held.lock().unwrap();
    for kind in ["served", "lingering"] {
        let note = serde_json::json!({
            "url": url, "pid": bystander.id(), "version": "0.0.1", "config": null, "started": 1, "kind": kind
        });
        std::fs::write(lock.with_extension("json"), note.to_string()).unwrap();
        let by_note = run(&home, &["down"]);
        assert_ne!(by_note.code, Some(0), "{by_note}");
        assert!(bystander.try_wait().unwrap().is_none(), "{by_note}");
    }
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}
