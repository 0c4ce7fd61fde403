//! Actors of a simulation: callers, operators, and faults of servers.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use ostler_host::upstream::ServerNotification;
use ostler_host::{CallArguments, Caller, Request};
use tokio::time::{Instant, sleep, timeout};

use crate::world::{HostSimWorld, MAX_CALL_TIME, may_see};

/// Calls that one caller makes.
const CALLS: usize = 16;
/// Acts of one operator.
const ACTIONS: usize = 10;
/// Bound on any act of an operator: longer than a start, a drain and a close.
const PATIENCE: Duration = Duration::from_secs(60);

fn pick<'a, T>(items: &'a [T], rng: &mut Rng) -> &'a T {
    &items[rng.usize(..items.len())]
}

async fn pause(rng: &mut Rng, millis: u64) {
    sleep(Duration::from_millis(rng.u64(..millis))).await;
}

/// Calls tools, with and without timeouts.
pub(crate) async fn call(shared: Arc<HostSimWorld>, number: usize, mut rng: Rng) {
    let role = if number.is_multiple_of(3) { "guest" } else { "worker" };
    // Some callers are the same principal, and may share private answers.
    let caller = Caller::new(format!("{role}-{}", number / 2), role);
    for _ in 0..CALLS {
        pause(&mut rng, 3_000).await;
        call_once(&shared, &caller, &mut rng).await;
    }
}

async fn call_once(shared: &HostSimWorld, caller: &Caller, rng: &mut Rng) {
    let server = pick(&shared.servers, rng).as_str();
    let tool = *pick(&["work", "work", "safe", "fact", "shared", "admin"], rng);
    let arguments = CallArguments::raw(format!("{{\"n\":{}}}", rng.u8(..2)));
    let limit = (rng.u8(..2) == 0).then(|| Duration::from_millis(rng.u64(1..8_000)));
    let leaves = (rng.u8(..8) == 0).then(|| Duration::from_millis(rng.u64(..4_000)));
    let mut request = Request::tool_call(caller, tool, arguments).unwrap();
    if let Some(limit) = limit {
        request = request.with_timeout(limit);
    }
    shared.invariants.observations().requests += 1;
    let began = Instant::now();
    let Ok(result) = timeout(leaves.unwrap_or(Duration::MAX), shared.host.send_to(server, request)).await
    else {
        return;
    };
    let (what, watch) = (format!("{} at {server}/{tool}", caller.principal()), &shared.invariants);
    let longest = limit.unwrap_or(3 * MAX_CALL_TIME) + Duration::from_millis(1);
    watch.expect(began.elapsed() <= longest, || format!("{what}: took {:?} of {longest:?}", began.elapsed()));
    if shared.host.status_of(server).is_ok() {
        watch.check_visibility(may_see(caller.role(), server, Some(tool)), &what, &result);
    }
    if let Ok(answer) = &result
        && !answer.is_error()
    {
        watch.check_owner(caller.principal(), answer);
    }
    let may_be_remembered = ["fact", "shared"].contains(&tool);
    watch.expect(may_be_remembered || !result.is_ok_and(|answer| answer.is_cached()), || {
        format!("{what}: was remembered")
    });
}

/// Reloads, stops, starts, replaces, binds and lists.
pub(crate) async fn operate(shared: Arc<HostSimWorld>, mut rng: Rng) {
    for _ in 0..ACTIONS {
        pause(&mut rng, 10_000).await;
        let server = pick(&shared.servers, &mut rng).clone();
        let act = *pick(&["reload", "stop and start", "respawn", "bind", "tools", "discover"], &mut rng);
        shared.invariants.trace(&format!("{act} {server}"));
        let is_done = timeout(PATIENCE, perform(&shared, act, &server, &mut rng)).await.is_ok();
        shared.invariants.expect(is_done, || format!("{act} of {server} does not end"));
    }
}

async fn perform(shared: &HostSimWorld, act: &str, server: &str, rng: &mut Rng) {
    let (host, guest) = (&shared.host, Caller::new("guest-0", "guest"));
    let forgive = || shared.current_registration(server).inspect(|scene| scene.reset_failures());
    match act {
        "reload" => {
            forgive();
            let _ = host.reload(server).await;
        }
        "stop and start" => {
            let _ = host.stop(server).await;
            forgive();
            pause(rng, 3_000).await;
            let _ = host.start(server).await;
            forgive();
        }
        "respawn" => shared.spawn(server, rng).await,
        "bind" => {
            let binding = host.bind(&Caller::local(), server).await;
            pause(rng, 8_000).await;
            drop(binding);
        }
        "tools" => {
            let listed = host.tools(&guest, server).await.unwrap_or_default();
            let is_clean = listed.iter().all(|listed| may_see("guest", server, Some(&listed.tool.name)));
            shared.invariants.expect(is_clean, || format!("a guest was shown {listed:?}"));
        }
        _ => {
            let found = host.discover(&guest).await;
            let is_clean = found.iter().all(|found| may_see("guest", found.server.as_str(), None));
            shared.invariants.expect(is_clean, || format!("a guest was shown {found:?}"));
            let is_sorted = found.windows(2).all(|pair| pair[0].server < pair[1].server);
            shared.invariants.expect(is_sorted, || "the sweep is not sorted".into());
        }
    }
}

/// Makes servers crash, hang and announce list changes.
pub(crate) async fn inject_faults(shared: Arc<HostSimWorld>, mut rng: Rng) {
    for _ in 0..2 * ACTIONS {
        pause(&mut rng, 5_000).await;
        let Some(scene) = shared.current_registration(pick(&shared.servers, &mut rng).as_str()) else {
            continue;
        };
        match rng.u8(..4) {
            0 | 1 => scene.stage.crash(),
            2 => scene.stage.hang(),
            _ => scene.stage.emit(ServerNotification::ToolsChanged),
        }
    }
}
