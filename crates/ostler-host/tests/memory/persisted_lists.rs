//! Persisted lists, which outlive the host.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ostler_host::{Caller, HostOptions, Isolation, Kind, Scope, ServerSpec, persisted_names};
use ostler_testkit::{Script, ScriptedReply, TestHost};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn a_sleeping_server_is_listed_from_what_an_earlier_run_has_kept() {
    let state = tempfile::tempdir().unwrap();
    let keep = |options: &mut HostOptions| options.state_dir = Some(state.path().to_owned());
    let world = TestHost::new().options(keep).server("a", Script::echo()).start().await;
    world.call("a", "echo").await.unwrap();
    until_persisted(&state.path().join("lists/a.json")).await;
    drop(world);

    let world = TestHost::new().options(keep).server("a", Script::echo()).start().await;
    assert_eq!(
        world.host.discover(&world.caller).await[0].tools.as_ref().unwrap()[0].exposed_name,
        "a__echo"
    );
    assert_eq!(world.server("a").connects(), 0);

    let changed = |spec: &mut ostler_host::ServerSpec| spec.max_queued = 1;
    let world = TestHost::new().options(keep).server_with("a", Script::new(), changed).start().await;
    assert!(world.host.discover(&world.caller).await[0].tools.as_ref().unwrap().is_empty());
    assert_eq!(world.server("a").connects(), 1, "the list of another spec is not its list");
}

#[tokio::test(start_paused = true)]
async fn a_kept_list_that_is_private_is_shown_to_whom_it_was_given() {
    let state = tempfile::tempdir().unwrap();
    let keep = |options: &mut HostOptions| options.state_dir = Some(state.path().to_owned());
    let (ada, bob) = (Caller::new("ada", "researcher"), Caller::new("bob", "researcher"));
    let world = TestHost::new().options(keep).server("a", Script::echo().modern()).start().await;
    world.call_as(&ada, "a", "echo").await.unwrap();
    until_persisted(&state.path().join("lists/a.json")).await;
    drop(world);

    let world = TestHost::new().options(keep).server("a", Script::echo().modern()).start().await;
    for (caller, connects) in [(&ada, 0), (&bob, 1)] {
        assert_eq!(world.host.discover(caller).await[0].tools.as_ref().unwrap().len(), 1);
        assert_eq!(world.server("a").connects(), connects, "{}", caller.principal());
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_can_be_read_by_nobody_else_on_the_machine() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let keep = |options: &mut HostOptions| options.state_dir = Some(state.clone());
    let world = TestHost::new().options(keep).server("a", Script::echo()).start().await;
    world.call("a", "echo").await.unwrap();
    until_persisted(&state.join("lists/a.json")).await;
    for kept in ["", "lists", "lists/a.json"] {
        let mode = std::fs::metadata(state.join(kept)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{kept}");
    }
}

/// Waits until the file exists. A thread writes it; paused time does not advance meanwhile.
async fn until_persisted(path: &Path) {
    while !path.exists() {
        tokio::task::yield_now().await;
    }
}

/// A server that lists one item of each kind, named `item`.
fn secretive(item: &'static str) -> Script {
    let capabilities = r#"{"tools":{},"prompts":{},"resources":{}}"#;
    Kind::ALL.into_iter().fold(Script::new().capabilities(capabilities), |script, kind| {
        script.on(kind.method(), move |_| {
            let definition = json!({kind.name_member(): item, "inputSchema": {"type": "object"}});
            ScriptedReply::result(json!({kind.member(): [definition]}).to_string())
        })
    })
}

/// Returns the files below a folder that hold a text.
fn files_with(folder: &Path, text: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    let below = |path: PathBuf| match path.is_dir() {
        true => files_with(&path, text),
        false => vec![path],
    };
    let holds = |path: &PathBuf| std::fs::read_to_string(path).is_ok_and(|it| it.contains(text));
    entries.flat_map(below).filter(holds).collect()
}

/// Requests every list of `a` and returns the names in them.
async fn listed(world: &TestHost, caller: &Caller) -> Vec<String> {
    let mut names = Vec::new();
    for kind in Kind::ALL {
        let listings = world.host.list(caller, &Scope::All, kind, Duration::from_secs(10)).await;
        names.extend(listings[0].items.iter().map(|listed| listed.item.name.to_string()));
    }
    names
}

#[tokio::test(start_paused = true)]
async fn a_kept_list_is_recalled_for_its_partition_alone() {
    let ada = || Caller::new("ada", "researcher");
    let bob = || Caller::new("bob", "researcher");
    let (one, two) = (|it: Caller| it.in_workspace("/one"), |it: Caller| it.in_workspace("/two"));
    // Cases: whether the lists of the first caller are persisted, then the callers that read them in a later run.
    let cases = [
        (Isolation::Shared, ada(), true, vec![(ada(), true), (bob(), true)]),
        (
            Isolation::Session,
            ada().in_session("1"),
            true,
            vec![(ada().in_session("2"), true), (bob(), false)],
        ),
        (Isolation::Caller, ada(), false, vec![(ada(), false), (bob(), false)]),
        (
            Isolation::Workspace,
            one(ada()),
            true,
            vec![
                (one(ada()), true),
                (two(ada()), false),
                (ada(), false),
                (bob(), false),
                (two(bob()), false),
            ],
        ),
        (Isolation::Workspace, ada(), true, vec![(ada(), true), (bob(), true), (one(ada()), false)]),
    ];
    for (isolation, first, is_kept, readers) in cases {
        let state = tempfile::tempdir().unwrap();
        let keep = |options: &mut HostOptions| options.state_dir = Some(state.path().to_owned());
        let change = |spec: &mut ServerSpec| spec.isolation = isolation;
        let world = TestHost::new().options(keep).server_with("a", secretive("secret"), change).start().await;
        assert_eq!(listed(&world, &first).await, ["secret"; 4]);
        while is_kept && files_with(state.path(), "resourceTemplates").is_empty() {
            tokio::task::yield_now().await;
        }
        drop(world);
        for (reader, is_reader) in readers {
            let case = format!("{isolation:?}, {reader:?}");
            let mut spec = TestHost::spec("a").lazy();
            spec.isolation = isolation;
            // A state directory of its own: lists that this reader persists are not for the next one.
            let copy = tempfile::tempdir().unwrap();
            copy_files(state.path(), copy.path());
            let kept = persisted_names(copy.path(), &spec, &reader, Kind::Resources);
            assert_eq!(kept.is_some(), is_reader, "{case}");
            let keep = |options: &mut HostOptions| options.state_dir = Some(copy.path().to_owned());
            let world =
                TestHost::new().options(keep).server_with("a", secretive("own"), change).start().await;
            let expected = if is_reader { "secret" } else { "own" };
            assert_eq!(listed(&world, &reader).await, [expected; 4], "{case}");
        }
    }
}

/// Copies a folder with everything below it.
fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_files(&path, &copy);
        } else if path.extension().is_some_and(|it| it == "json") {
            std::fs::copy(&path, &copy).unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lists_of_workspaces_without_end_leave_a_bounded_number_of_files() {
    let state = tempfile::tempdir().unwrap();
    let keep = |options: &mut HostOptions| options.state_dir = Some(state.path().to_owned());
    let change = |spec: &mut ServerSpec| spec.isolation = Isolation::Workspace;
    let folder = state.path().join("lists/workspaces/a");
    std::fs::create_dir_all(&folder).unwrap();
    for number in 0..80 {
        std::fs::write(folder.join(format!("{number}.json")), "old").unwrap();
    }
    let world = TestHost::new().options(keep).server_with("a", Script::echo(), change).start().await;
    world.call_as(&Caller::local().in_workspace("/one"), "a", "echo").await.unwrap();
    while std::fs::read_dir(&folder).unwrap().count() > 64 {
        tokio::task::yield_now().await;
    }
    assert_eq!(files_with(&folder, "fingerprint").len(), 1, "the newest stays");
}
