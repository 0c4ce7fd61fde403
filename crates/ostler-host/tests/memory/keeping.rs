//! Lists that outlive the host.

use ostler_host::{Caller, HostOptions};
use ostler_testkit::{Script, World};

#[tokio::test(start_paused = true)]
async fn a_sleeping_server_is_listed_from_what_an_earlier_run_has_kept() {
    let state = tempfile::tempdir().unwrap();
    let keep = |options: &mut HostOptions| options.state_dir = Some(state.path().to_owned());
    let world = World::new().options(keep).server("a", Script::echo()).open().await;
    world.call("a", "echo").await.unwrap();
    until_kept(&state.path().join("lists/a.json")).await;
    drop(world);

    let world = World::new().options(keep).server("a", Script::echo()).open().await;
    assert_eq!(world.host.discover(&world.me).await[0].tools.as_ref().unwrap()[0].exposed, "a__echo");
    assert_eq!(world.stage("a").connects(), 0);

    let changed = |spec: &mut ostler_host::ServerSpec| spec.max_queued = 1;
    let world = World::new().options(keep).server_with("a", Script::new(), changed).open().await;
    assert!(world.host.discover(&world.me).await[0].tools.as_ref().unwrap().is_empty());
    assert_eq!(world.stage("a").connects(), 1, "the list of another spec is not its list");
}

#[tokio::test(start_paused = true)]
async fn a_kept_list_that_is_private_is_shown_to_whom_it_was_given() {
    let state = tempfile::tempdir().unwrap();
    let keep = |options: &mut HostOptions| options.state_dir = Some(state.path().to_owned());
    let (ada, bob) = (Caller::new("ada", "researcher"), Caller::new("bob", "researcher"));
    let world = World::new().options(keep).server("a", Script::echo().modern()).open().await;
    world.call_as(&ada, "a", "echo").await.unwrap();
    until_kept(&state.path().join("lists/a.json")).await;
    drop(world);

    let world = World::new().options(keep).server("a", Script::echo().modern()).open().await;
    for (caller, connects) in [(&ada, 0), (&bob, 1)] {
        assert_eq!(world.host.discover(caller).await[0].tools.as_ref().unwrap().len(), 1);
        assert_eq!(world.stage("a").connects(), connects, "{}", caller.principal());
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_can_be_read_by_nobody_else_on_the_machine() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let keep = |options: &mut HostOptions| options.state_dir = Some(state.clone());
    let world = World::new().options(keep).server("a", Script::echo()).open().await;
    world.call("a", "echo").await.unwrap();
    until_kept(&state.join("lists/a.json")).await;
    for kept in ["", "lists", "lists/a.json"] {
        let mode = std::fs::metadata(state.join(kept)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{kept}");
    }
}

/// The file is written by a thread, which paused time waits for.
async fn until_kept(path: &std::path::Path) {
    while !path.exists() {
        tokio::task::yield_now().await;
    }
}
