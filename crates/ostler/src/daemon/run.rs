//! The life of a daemon.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use ostler_core::loopback::is_loopback;
use ostler_core::pins::Pins;
use ostler_gateway::{Activity, HttpService};
use ostler_host::{Caller, Host, HostOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::admin_auth::AdminAuth;
use super::apply::Cause;
use super::attached::AttachedClients;
use super::console::Console;
use super::launch::Launch;
use super::roster::Roster;
use super::{Daemon, api, edge, health, relay, tokens, watch};
use crate::audit::{self, Audit, Stay};
use crate::auth::Keeper;
use crate::config_file;
use crate::descriptors::Descriptors;
use crate::failure::Failure;
use crate::interrupt::Interrupts;
use crate::output::tell;
use crate::spot::{Claim, Kind};

/// How long answers may take to leave once every call has ended.
const LAST_ANSWERS: Duration = Duration::from_millis(300);

/// How long the last lines of the console may take to be written.
const LAST_LINES: Duration = Duration::from_millis(200);

/// Paths that do not keep a daemon alive: monitors ask for them for ever.
const INACTIVE: [&str; 3] = ["/", "/healthz", "/readyz"];

/// Answer to a person who opens the address in a browser.
const FRONT: &str = "Ostler: MCP clients connect to /mcp; `ostler status` shows the servers.\n";

/// How long the last rows of the audit may take to be written.
const LAST_ROWS: Duration = Duration::from_secs(2);

/// Serves until a signal comes, or everybody has left a daemon that was
/// started for somebody; then ends in order.
pub(crate) async fn run(launch: Launch) -> Result<(), Failure> {
    let mut interrupts = Interrupts::listen().map_err(Failure::Machine)?;
    let keeper = Arc::new(Keeper::new(&launch.chosen.config, launch.address(), launch.claim.tokens()));
    let listener = launch.listen(&keeper).await?;
    let address = listener.local_addr().map_err(Failure::Machine)?;
    let note = launch.note(address);
    let Launch { chosen, named, claim, port_file, linger, .. } = launch;
    let token = claim.token().map_err(Failure::Machine)?;

    let descriptors = Descriptors::raise();
    let guard = cfg!(target_os = "linux").then(|| descriptors.guard());
    let options = HostOptions {
        guard,
        login_path: chosen.config.defaults.login_path,
        state_dir: Some(claim.spot().state().to_owned()),
        pins: Pins::of(&chosen.config, chosen.lock.as_ref()),
        budget_file: Some(claim.budget_file()),
        is_started_by_client: note.kind == Kind::Lingering,
        seal_key: Some(claim.seal_key().map_err(Failure::Machine)?),
        ..HostOptions::of(&chosen.config)
    };
    let host = Host::try_new(options)?;
    let audit = Audit::begin(claim.spot(), &chosen.config.audit, Stay::Long);
    if let Some(audit) = &audit {
        audit.watch(&host);
        audit.note(&audit::Note {
            action: "daemon-started",
            detail: env!("CARGO_PKG_VERSION"),
            ..Default::default()
        });
    }
    let console = Console::open(named.as_deref());
    console.watch(&host);
    let fitting = descriptors.fit(&chosen.config);
    let limits = edge::limits(&fitting);
    let relay = relay::prepare(chosen.config.relay.as_ref(), claim.spot()).await?;
    // The model reads it, and can tell the user.
    let notice = chosen.file.is_none().then(config_file::describe_missing);
    let activity = Activity::new();
    let daemon = Arc::new(Daemon {
        gateway: edge::gateway(&host, &fitting, Arc::clone(&keeper), notice),
        host,
        operator: Caller::operator(),
        local: Caller::local(),
        roster: Roster::new(chosen),
        keeper,
        admin_auth: AdminAuth::new(token),
        console,
        attached: AttachedClients::new(Arc::clone(&activity)),
        note,
        began: Instant::now(),
        end: tokio::sync::watch::Sender::new(None),
        relay: OnceLock::new(),
        audit_file: claim.spot().audit_file(),
        audit,
    });
    daemon.host_all().await;
    // After the servers: a worker that asks before would be told that there are none.
    if let Some(relay) = relay {
        let _ = daemon.relay.set(relay.start(&daemon.host));
    }

    let (stop, stopped) = oneshot::channel::<()>();
    let service = service(&daemon, &activity);
    let serving = tokio::spawn(edge::serve(listener, service, limits, async {
        let _ = stopped.await;
    }));
    announce(&claim, &daemon, address, port_file.as_deref())?;
    reload_on_hangup(Arc::clone(&daemon))?;
    tokio::spawn(tokens::run(Arc::clone(&daemon)));
    if daemon.roster.file.is_some() {
        tokio::spawn(watch::run(Arc::clone(&daemon)));
    }

    let over = async {
        tokio::select! {
            () = unused(&daemon, &activity, linger) => {}
            () = daemon.ending() => {}
        }
        Ok(())
    };
    // A signal is how a daemon ends, and nothing went wrong.
    if interrupts.until(over).await.is_err() {
        tell("ending; Ctrl-C again leaves the servers to their guard");
    }
    // Nobody finds it any more; the spot is free when its servers are gone.
    claim.withdraw();
    drop(stop);
    let ended = interrupts.until(end(&daemon, serving)).await;
    daemon.keep_last_uses().await;
    if let Some(audit) = &daemon.audit {
        audit.note(&audit::Note { action: "daemon-ended", ..Default::default() });
        audit.close(LAST_ROWS);
    }
    daemon.host.set_observer(None);
    daemon.console.close(LAST_LINES);
    drop(claim);
    ended
}

/// Waits until a daemon that was started for a client has not been used for long enough.
async fn unused(daemon: &Daemon, activity: &Activity, linger: Option<Duration>) {
    match linger {
        // Workers come without being announced, so they would find nobody.
        Some(linger) if daemon.relay.get().is_none() => activity.idle_for(linger).await,
        _ => std::future::pending().await,
    }
}

/// Ends in order: clients that are attached are told to go on elsewhere, calls in flight finish within their time,
/// then servers end.
async fn end(daemon: &Daemon, mut serving: JoinHandle<()>) -> Result<(), Failure> {
    let began = Instant::now();
    let calls = daemon.tell_end();
    // Servers stay until clients have left and calls are over: what has come in must not hear of none.
    let left = tokio::time::timeout(calls, daemon.until_left());
    // Workers are told, so that they go to another host if there is one.
    let workers = async {
        if let Some(relay) = daemon.relay.get() {
            relay.drain(relay::LAST_CALLS).await;
        }
    };
    let _ = tokio::join!(left, workers);
    // Whoever listens gets the end of it before connections are closed.
    daemon.gateway.drain();
    daemon.host.shutdown_within(calls.saturating_sub(began.elapsed())).await;
    let answered = async {
        let _ = (&mut serving).await;
        daemon.attached.until_told_left().await;
    };
    let _ = tokio::time::timeout(LAST_ANSWERS, answered).await;
    Ok(())
}

/// Makes the one service of all endpoints: those of MCP clients, the admin API and health.
fn service(daemon: &Arc<Daemon>, activity: &Arc<Activity>) -> HttpService {
    let operated = Arc::clone(daemon);
    let service = HttpService::new(daemon.gateway.clone())
        .with_routes(routes(daemon))
        .with_loopback_only(api::PREFIX, api::foreign)
        .with_activity(Arc::clone(activity), &INACTIVE)
        .with_privileged(Arc::new(move |uri, headers| operated.admin_auth.privilege_of(uri, headers)));
    match &daemon.audit {
        Some(audit) => service.with_on_refusal(audit::http::noting_refusals(audit)),
        None => service,
    }
}

/// Makes the routes beside the endpoints of MCP clients.
fn routes(daemon: &Arc<Daemon>) -> Router {
    let front = get(async || (StatusCode::NOT_FOUND, FRONT));
    let open = Router::new().route("/healthz", get(health::alive)).route("/readyz", get(health::ready));
    let open = open.route("/", front).with_state(Arc::clone(daemon));
    api::router(daemon).merge(open)
}

/// Says where the daemon is: to other commands, to scripts and to people.
fn announce(
    claim: &Claim,
    daemon: &Daemon,
    address: SocketAddr,
    port_file: Option<&Path>,
) -> Result<(), Failure> {
    claim.announce(&daemon.note).map_err(Failure::Machine)?;
    if let Some(file) = port_file {
        let unwritable = |why: io::Error| Failure::Unwritable { file: file.to_owned(), why };
        ostler_store::private::replace(file, format!("{}\n", address.port()).as_bytes())
            .map_err(unwritable)?;
    }
    #[cfg(ostler_sabotage)]
    crate::sabotage::warn();
    daemon.tell_summary(&daemon.note.url);
    if !is_loopback(address.ip()) {
        tell(&describe_reach(daemon, address));
    }
    Ok(())
}

/// What those who come from elsewhere need.
fn describe_reach(daemon: &Daemon, address: SocketAddr) -> String {
    let hosts = daemon.roster.with_config(|config, _, _| config.gateway.allowed_hosts.join(", "));
    let hosts = match hosts.is_empty() {
        true => "none yet: name the host that clients use under gateway.allowed_hosts".into(),
        false => hosts,
    };
    format!(
        "  {address} can be reached from other machines\n  hosts:  {hosts}\n  callers: a bearer token each"
    )
}

/// SIGHUP reads the config again.
fn reload_on_hangup(daemon: Arc<Daemon>) -> Result<(), Failure> {
    let mut hangups = signal(SignalKind::hangup()).map_err(Failure::Machine)?;
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            daemon.reload(Cause::Signal).await;
        }
    });
    Ok(())
}
