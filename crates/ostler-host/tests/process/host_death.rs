//! Host death: every process that the host started ends with it.

use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use ostler_testkit::{Proc, become_subreaper, eventually, fake_mcp, host_under_test};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use crate::fixture::LONG;

/// Servers per host, every hostile kind among them.
const SERVERS: usize = 20;
/// Killed hosts whose servers are stopped at the same time.
const AT_ONCE: usize = 3;
/// Time after which no process may be alive.
const AFTER: Duration = Duration::from_secs(6);

/// A host in a process of its own.
struct KilledHost {
    child: Child,
    host: Proc,
    /// All processes that it has started: spawner, guards, servers, orphans.
    descendants: Vec<Proc>,
    _folder: TempDir,
}

impl KilledHost {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(host_under_test());
        command.args((0..SERVERS).map(|n| serde_json::to_string(&server(n, &folder)).unwrap()));
        let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = tokio::time::timeout(LONG, lines.next_line()).await.unwrap().unwrap();
        assert_eq!(ready.as_deref(), Some("ready"));
        let host = Proc::find(child.id().unwrap()).unwrap();
        let family = host.descendants();
        // A spawner, a guard and a process for every server, and orphans.
        assert!(family.len() > 1 + 2 * SERVERS + SERVERS / 2, "{}", family.len());
        Self { child, host, descendants: family, _folder: folder }
    }

    async fn assert_all_gone(&self, limit: Duration) {
        eventually("everything is gone", limit, || !self.descendants.iter().any(|proc| proc.is_alive()))
            .await;
    }
}

/// Hosts that are killed, one after the other; `scripts/orphans` sets more.
fn rounds() -> usize {
    std::env::var("OSTLER_ROUNDS").map_or(10, |text| text.parse().unwrap())
}

/// Returns the command line of one server; the kinds alternate.
fn server(n: usize, folder: &TempDir) -> Vec<String> {
    let file = |kind: &str| folder.path().join(format!("{n}{kind}")).to_str().unwrap().to_owned();
    let fake = fake_mcp().to_str().unwrap().to_owned();
    let deaf = ["--ignore-sigterm".to_owned(), "--ignore-stdin-close".to_owned()];
    let mut argv = vec![fake.clone()];
    match n % 7 {
        0 => {}
        1 => argv.extend(deaf),
        2 => argv = vec!["sh".into(), "-c".into(), format!("'{fake}' {}; true", deaf.join(" "))],
        3 => argv.extend(["--fork-setsid".into(), file("setsid")]),
        4 => argv.extend(["--double-fork".into(), file("twice")]),
        5 => argv.extend(["--fork-holding-stdio".into(), file("holding")]),
        _ => {
            argv.extend(deaf);
            for switch in ["--fork-setsid", "--double-fork", "--fork-holding-stdio", "--clear-env-child"] {
                argv.extend([switch.into(), file(switch)]);
            }
        }
    }
    argv
}

#[tokio::test]
async fn nothing_outlives_a_killed_host() {
    become_subreaper();
    let mut dying = JoinSet::new();
    for round in 1..=rounds() {
        if dying.len() == AT_ONCE {
            dying.join_next().await.unwrap().unwrap();
        }
        let mut victim = KilledHost::start().await;
        victim.host.kill();
        let killed = Instant::now();
        dying.spawn(async move {
            victim.assert_all_gone(AFTER).await;
            let (count, after) = (victim.descendants.len(), killed.elapsed());
            println!("round {round}: {count} processes, 0 left after {:.1} s", after.as_secs_f64());
            victim.child.wait().await.unwrap();
        });
    }
    dying.join_all().await;
    // Processes missing from the process trees would have become children of this one.
    assert_eq!(Proc::current().descendants(), []);
}

#[tokio::test]
async fn nothing_outlives_a_host_that_is_killed_while_it_shuts_down() {
    become_subreaper();
    let victim = KilledHost::start().await;
    victim.host.signal(Signal::SIGTERM);
    let is_leaving = || victim.descendants.iter().any(|proc| !proc.is_alive());
    eventually("the first server is gone", LONG, is_leaving).await;
    victim.host.kill();
    victim.assert_all_gone(AFTER).await;
    assert_eq!(Proc::current().descendants(), []);
}

#[tokio::test]
async fn nothing_outlives_a_host_whose_warden_was_killed_before() {
    become_subreaper();
    let victim = KilledHost::start().await;
    let warden = victim.descendants.iter().find(|proc| proc.name() == "ostler-warden").unwrap();
    warden.kill();
    eventually("the warden is dead", LONG, || !warden.is_alive()).await;
    victim.host.kill();
    victim.assert_all_gone(AFTER).await;
    assert_eq!(Proc::current().descendants(), []);
}

#[tokio::test]
async fn a_host_that_is_told_to_leave_ends_everything_in_ten_seconds() {
    become_subreaper();
    let mut victim = KilledHost::start().await;
    victim.host.signal(Signal::SIGTERM);
    let end = tokio::time::timeout(Duration::from_secs(10), victim.child.wait()).await;
    assert!(end.expect("it leaves in time").unwrap().success(), "it says that nothing is left");
    victim.assert_all_gone(Duration::from_secs(1)).await;
    assert_eq!(Proc::current().descendants(), []);
}
