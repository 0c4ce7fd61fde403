//! Guards: their cost, and the effect of killing them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use ostler_core::status::Containment;
use ostler_testkit::{Proc, eventually, fake_mcp_spec, ostler};
use serde_json::json;

use crate::fixture::{LONG, ProcessFixture, none, restarting_forever};

fn spawner() -> Proc {
    let all = Proc::current().descendants();
    let wardens: Vec<Proc> = all.into_iter().filter(|proc| proc.name() == "ostler-warden").collect();
    assert_eq!(wardens.len(), 1, "{wardens:?}");
    wardens[0]
}

#[tokio::test]
async fn a_killed_guard_takes_its_server_and_its_strays_along_and_nobody_else() {
    let stage = ProcessFixture::guarded();
    let (setsid, twice) = (stage.path("setsid"), stage.path("twice"));
    let args =
        ["--ignore-sigterm", "--ignore-stdin-close", "--fork-setsid", &setsid, "--double-fork", &twice];
    stage.spawn(restarting_forever(fake_mcp_spec("fake", &args))).await;
    stage.spawn_fake("other", &[]).await;
    let (guard, other) = (stage.guard("fake"), stage.process("other"));
    let all = guard.descendants();
    assert_eq!(all.len(), 3);

    guard.kill();
    eventually("everything below the guard is gone", LONG, || all.iter().all(|proc| !proc.is_alive())).await;
    stage.until("fake", "is up again", |status| status.generation == 2 && status.active).await;
    assert_eq!(stage.text("fake", "text", json!({"text": "back"})).await, "back");
    assert_eq!(stage.guard("fake").descendants().len(), 3);
    assert_eq!((stage.process("other"), stage.status("other").restarts.used), (other, 0));
    stage.close().await;
}

#[tokio::test]
async fn servers_outlive_a_killed_warden_and_new_ones_can_be_started() {
    let stage = ProcessFixture::guarded();
    stage.spawn(restarting_forever(fake_mcp_spec("old", &["--ignore-sigterm"]))).await;
    let (first, process) = (spawner(), stage.process("old"));
    first.kill();
    eventually("the warden is dead", LONG, || first.is_reaped()).await;
    assert_eq!(stage.text("old", "pid", none()).await, process.pid.to_string());

    stage.spawn_fake("new", &[]).await;
    assert_eq!(stage.text("new", "text", json!({"text": "here"})).await, "here");
    assert_ne!(spawner(), first);
    assert_eq!(stage.process("old"), process);

    process.kill();
    stage.until("old", "is up again", |status| status.generation == 2 && status.active).await;
    assert_eq!(stage.text("old", "text", json!({"text": "back"})).await, "back");
    let all = [stage.process("old"), stage.process("new")];
    stage.host.stop("old").await.unwrap();
    assert_eq!(all.map(Proc::is_alive), [false, true]);
    stage.close().await;
}

#[tokio::test]
async fn a_warden_that_is_told_to_leave_stays_for_its_host() {
    let stage = ProcessFixture::guarded();
    stage.spawn_fake("fake", &[]).await;
    let process = stage.process("fake");
    spawner().signal(nix::sys::signal::Signal::SIGTERM);
    spawner().signal(nix::sys::signal::Signal::SIGINT);
    stage.spawn_fake("more", &[]).await;
    assert_eq!(stage.text("fake", "pid", none()).await, process.pid.to_string());
    stage.close().await;
}

#[tokio::test]
async fn a_guard_costs_little() {
    let stage = ProcessFixture::guarded();
    for n in 0..5 {
        stage.spawn_fake(&format!("s{n}"), &[]).await;
    }
    let guards: Vec<Proc> = (0..5).map(|n| stage.guard(&format!("s{n}"))).collect();
    let costs = guards.iter().map(|guard| (guard.rss_kib(), guard.private_kib())).collect::<Vec<_>>();
    println!(
        "KiB in memory, and its own: warden {}, {}; guards {costs:?}",
        spawner().rss_kib(),
        spawner().private_kib(),
    );
    // Only root can read guards' memory maps; other users see nothing.
    assert!(costs.iter().all(|(_, own)| *own <= 300), "{costs:?}");
    assert_eq!(stage.status("s0").containment, Containment::Guard);
    stage.close().await;
}

#[tokio::test]
async fn a_stop_brings_no_page_of_the_program_into_memory() {
    let stage = ProcessFixture::guarded();
    let file = stage.path("setsid");
    stage
        .spawn(restarting_forever(fake_mcp_spec(
            "fake",
            &["--ignore-sigterm", "--ignore-stdin-close", "--fork-setsid", &file],
        )))
        .await;
    let (guard, server) = (stage.guard("fake"), stage.process("fake"));
    let loose = || [guard, spawner()].map(Proc::unlocked_file_kib);
    assert_eq!(guard.descendants().len(), 2);
    let before = loose();

    // After the server is killed the guard signals its descendants; the second round is due half a second later.
    server.signal(nix::sys::signal::Signal::SIGKILL);
    eventually("the guard reaps its server", LONG, || server.is_reaped()).await;
    let after = loose();
    assert!(guard.is_alive());
    // The kernel may have dropped some pages meanwhile.
    assert!(
        after.iter().zip(before).all(|(after, before)| *after <= before),
        "KiB: {before:?} became {after:?}"
    );
    stage.close().await;
}

#[tokio::test]
async fn servers_start_where_no_file_may_be_written() {
    let stage = ProcessFixture::guarded();
    let (soft, hard) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
    setrlimit(Resource::RLIMIT_FSIZE, 0, hard).unwrap();
    stage.spawn_fake("fake", &[]).await;
    assert_eq!(stage.text("fake", "text", json!({"text": "here"})).await, "here");
    assert_eq!(stage.status("fake").containment, Containment::Guard);
    setrlimit(Resource::RLIMIT_FSIZE, soft, hard).unwrap();
    stage.close().await;
}

#[tokio::test]
async fn a_command_under_a_guard_has_the_whole_environment_whatever_its_bytes() {
    let odd = OsStr::from_bytes(b"\xff odd");
    let mut command = tokio::process::Command::new(ostler());
    command.args(["guard", "--", "sh", "-c", "printf %s \"$ODD\"; exit 7"]).env("ODD", odd);
    let output = command.output().await.unwrap();
    assert_eq!((output.stdout.as_slice(), output.status.code()), (odd.as_bytes(), Some(7)));
}
