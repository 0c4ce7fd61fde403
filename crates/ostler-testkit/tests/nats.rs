//! NATS servers of the testkit: start, restart, faults and cleanup.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use ostler_testkit::{NatsServer, NatsSetup, NatsVersion, eventually};

const BOTH: [NatsVersion; 2] = [NatsVersion::Core, NatsVersion::Current];

/// Returns a connection and the server's first line on it.
fn greeting(server: &NatsServer) -> std::io::Result<(TcpStream, String)> {
    let stream = TcpStream::connect(("127.0.0.1", server.port()))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut line = String::new();
    BufReader::new(stream.try_clone()?).read_line(&mut line)?;
    Ok((stream, line))
}

#[tokio::test]
async fn a_server_is_of_the_version_that_was_asked_for() {
    let core = NatsServer::start_default(NatsVersion::Core).await;
    let current = NatsServer::start_default(NatsVersion::Current).await;
    let (_, core) = greeting(&core).unwrap_or_else(|error| panic!("{error}"));
    let (_, current) = greeting(&current).unwrap_or_else(|error| panic!("{error}"));
    assert!(!core.contains(r#""version":"2.15.1""#), "{core}");
    assert!(current.contains(r#""version":"2.15.1""#), "{current}");
}

#[tokio::test]
async fn a_killed_server_is_away_and_comes_back_at_its_place() {
    for which in BOTH {
        let mut server = NatsServer::start_default(which).await;
        let (url, proc) = (server.url(), server.proc());
        server.kill();
        assert!(proc.is_reaped());
        assert!(greeting(&server).is_err());
        server.restart().await;
        assert_eq!(server.url(), url);
        assert!(greeting(&server).is_ok());
    }
}

#[tokio::test]
async fn a_server_takes_another_config_while_it_runs() {
    for which in BOTH {
        let mut server =
            NatsServer::start(NatsSetup { version: which, jetstream: true, ..NatsSetup::default() }).await;
        let (_, before) = greeting(&server).unwrap_or_else(|error| panic!("{error}"));
        assert!(!before.contains("auth_required"), "{before}");
        server.reload("authorization { user: a, password: b }\n").await;
        let (_, after) = greeting(&server).unwrap_or_else(|error| panic!("{error}"));
        assert!(after.contains(r#""auth_required":true"#), "{after}");
    }
}

#[tokio::test]
async fn a_frozen_server_says_nothing_until_it_thaws() {
    let server = NatsServer::start_default(NatsVersion::Core).await;
    let (mut stream, _) = greeting(&server).unwrap_or_else(|error| panic!("{error}"));
    server.freeze().await;
    stream.write_all(b"CONNECT {\"verbose\":false}\r\nPING\r\n").unwrap_or_else(|error| panic!("{error}"));
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap_or_else(|error| panic!("{error}"));
    let mut line = String::new();
    let mut reader = BufReader::new(stream);
    assert!(reader.read_line(&mut line).is_err(), "{line}");
    server.thaw();
    let limit = Some(Duration::from_secs(5));
    reader.get_ref().set_read_timeout(limit).unwrap_or_else(|error| panic!("{error}"));
    reader.read_line(&mut line).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(line.trim_end(), "PONG");
}

#[tokio::test]
async fn nothing_is_left_of_a_server() {
    let server = NatsServer::start_default(NatsVersion::Core).await;
    let (folder, proc) = (server.folder().to_owned(), server.proc());
    drop(server);
    assert!(proc.is_reaped());
    assert!(!folder.exists());
}

#[tokio::test]
async fn a_server_ends_with_the_thread_that_started_it() {
    let thread = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.unwrap_or_else(|error| panic!("{error}"));
        let server = runtime.block_on(NatsServer::start_default(NatsVersion::Core));
        let (proc, folder) = (server.proc(), server.folder().to_owned());
        // As if the process were killed: nothing is dropped.
        std::mem::forget(server);
        (proc, folder)
    });
    let (proc, folder) = thread.join().unwrap_or_else(|_| panic!("the server did not start"));
    eventually("the server is gone", Duration::from_secs(5), || !proc.is_alive()).await;
    std::fs::remove_dir_all(folder).unwrap_or_else(|error| panic!("{error}"));
}
