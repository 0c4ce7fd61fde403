//! Life of a daemon: start, serving, and shutdown in order.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use ostler_core::loopback::is_loopback;
use ostler_core::pins::PinPolicy;
use ostler_gateway::{Activity, HttpService};
use ostler_host::{Caller, Host, HostOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::admin_auth::AdminAuth;
use super::apply::ReloadCause;
use super::attached_clients::AttachedClients;
use super::config_state::ConfigState;
use super::console::Console;
use super::launch::LaunchOptions;
use super::{Daemon, api, config_watcher, gateway_setup, health, relay, tokens};
use crate::audit::{self, AuditLog, ProcessLifetime};
use crate::auth::Authenticator;
use crate::config_file;
use crate::failure::CommandFailure;
use crate::fd_limits::FdLimits;
use crate::instance::{DaemonKind, InstanceClaim};
use crate::output::{Tint, print_stderr};
use crate::signals::SignalListener;

/// Timeout of the last responses after every call has ended.
const RESPONSES_TIMEOUT: Duration = Duration::from_millis(300);

/// Timeout of the console's last lines.
const CONSOLE_TIMEOUT: Duration = Duration::from_millis(200);

/// Paths that do not keep a daemon alive: monitors poll them for ever.
const IDLE_PATHS: [&str; 3] = ["/", "/healthz", "/readyz"];

/// Response to a person who opens the address in a browser.
const FRONT_PAGE: &str = "Ostler: MCP clients connect to /mcp; `ostler status` shows the servers.\n";

/// Timeout of the audit's last rows.
const AUDIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves until a signal comes, or until a daemon that a client started is idle; then shuts down in order.
pub(crate) async fn run(launch: LaunchOptions) -> Result<(), CommandFailure> {
    let mut interrupts = SignalListener::listen().map_err(CommandFailure::Machine)?;
    let keeper =
        Arc::new(Authenticator::new(&launch.chosen.config, launch.address(), launch.claim.token_store()));
    let listener = launch.listen(&keeper).await?;
    let address = listener.local_addr().map_err(CommandFailure::Machine)?;
    let note = launch.record(address);
    let LaunchOptions { chosen, config_arg: named, claim, port_file, linger, .. } = launch;
    let token = claim.admin_token().map_err(CommandFailure::Machine)?;

    let descriptors = FdLimits::raise();
    let guard = cfg!(target_os = "linux").then(|| descriptors.guard());
    let options = HostOptions {
        guard,
        use_login_path: chosen.config.defaults.login_path,
        state_dir: Some(claim.instance().state_dir().to_owned()),
        pins: PinPolicy::from_config(&chosen.config, chosen.lock.as_ref()),
        budget_file: Some(claim.budget_file()),
        is_started_by_client: note.kind == DaemonKind::Lingering,
        seal_key: Some(claim.seal_key().map_err(CommandFailure::Machine)?),
        ..HostOptions::from_config(&chosen.config)
    };
    let host = Host::try_new(options)?;
    let audit = AuditLog::start(claim.instance(), &chosen.config.audit, ProcessLifetime::Daemon);
    if let Some(audit) = &audit {
        audit.observe(&host);
        audit.record_action(&audit::AuditedAction {
            action: "daemon-started",
            detail: env!("CARGO_PKG_VERSION"),
            ..Default::default()
        });
    }
    let console = Console::open(named.as_deref());
    console.observe(&host);
    let fitting = descriptors.fit_connections(&chosen.config);
    let limits = gateway_setup::connection_limits(&fitting);
    let relay = relay::prepare(chosen.config.relay.as_ref(), claim.instance()).await?;
    // The model reads it, and can tell the user.
    let notice = chosen.file.is_none().then(config_file::describe_missing);
    let activity = Activity::new();
    let daemon = Arc::new(Daemon {
        gateway: gateway_setup::build_gateway(&host, &fitting, Arc::clone(&keeper), notice),
        host,
        operator: Caller::operator(),
        local_caller: Caller::local(),
        config_state: ConfigState::new(chosen),
        authenticator: keeper,
        admin_auth: AdminAuth::new(token),
        console,
        attached_clients: AttachedClients::new(Arc::clone(&activity)),
        record: note,
        published: Arc::clone(claim.record()),
        started: Instant::now(),
        shutdown: tokio::sync::watch::Sender::new(None),
        relay: OnceLock::new(),
        audit_file: claim.instance().audit_file(),
        audit,
    });
    daemon.apply_initial().await;
    // After the servers: a worker that asks earlier would find none.
    if let Some(relay) = relay {
        let _ = daemon.relay.set(relay.start(&daemon.host));
    }

    let (stop, stopped) = oneshot::channel::<()>();
    let service = http_service(&daemon, &activity);
    let serving = tokio::spawn(gateway_setup::serve(listener, service, limits, async {
        let _ = stopped.await;
    }));
    announce(&claim, &daemon, address, port_file.as_deref())?;
    reload_on_hangup(Arc::clone(&daemon))?;
    tokio::spawn(tokens::run(Arc::clone(&daemon)));
    if daemon.config_state.file.is_some() {
        tokio::spawn(config_watcher::run(Arc::clone(&daemon)));
    }

    let over = async {
        tokio::select! {
            () = until_unused(&daemon, &activity, linger) => {}
            () = daemon.until_shutdown() => {}
        }
        Ok(())
    };
    // A signal is the usual end of a daemon, and no failure.
    if interrupts.run_until_signal(over).await.is_err() {
        daemon.console.write_line(Tint::Plain, "ending; Ctrl-C again leaves the servers to their guard");
    }
    // Commands do not find this daemon any more; the instance is released when its servers have ended.
    claim.unpublish();
    drop(stop);
    let ended = interrupts.run_until_signal(shut_down(&daemon, serving)).await;
    daemon.save_last_uses().await;
    if let Some(audit) = &daemon.audit {
        audit.record_action(&audit::AuditedAction { action: "daemon-ended", ..Default::default() });
        audit.close(AUDIT_TIMEOUT);
    }
    daemon.host.set_observer(None);
    daemon.console.close(CONSOLE_TIMEOUT);
    drop(claim);
    ended
}

/// Waits until a daemon that a client started has been idle for `linger`.
async fn until_unused(daemon: &Daemon, activity: &Activity, linger: Option<Duration>) {
    match linger {
        // Workers come without notice, so a daemon with a relay stays.
        Some(linger) if daemon.relay.get().is_none() => activity.idle_for(linger).await,
        _ => std::future::pending().await,
    }
}

/// Shuts down in order: attached clients get a farewell, calls in flight finish within their time, then servers end.
async fn shut_down(daemon: &Daemon, mut serving: JoinHandle<()>) -> Result<(), CommandFailure> {
    let began = Instant::now();
    let calls = daemon.announce_shutdown();
    // Servers stay until clients have left and calls are over: requests that have come in still need them.
    let left = tokio::time::timeout(calls, daemon.until_drained());
    // Workers get a notice, so that they switch to another host if there is one.
    let workers = async {
        if let Some(relay) = daemon.relay.get() {
            relay.drain(relay::DRAIN_TIMEOUT).await;
        }
    };
    let _ = tokio::join!(left, workers);
    // Event streams end before their connections are closed.
    daemon.gateway.drain();
    daemon.host.shutdown_within(calls.saturating_sub(began.elapsed())).await;
    let answered = async {
        let _ = (&mut serving).await;
        daemon.attached_clients.until_farewell_clients_left().await;
    };
    let _ = tokio::time::timeout(RESPONSES_TIMEOUT, answered).await;
    Ok(())
}

/// Returns the service of all endpoints: those of MCP clients, the admin API and health.
fn http_service(daemon: &Arc<Daemon>, activity: &Arc<Activity>) -> HttpService {
    let operated = Arc::clone(daemon);
    let service = HttpService::new(daemon.gateway.clone())
        .with_routes(routes(daemon))
        .with_loopback_only(api::PREFIX, api::refuse_foreign_origin)
        .with_activity(Arc::clone(activity), &IDLE_PATHS)
        .with_privileged(Arc::new(move |uri, headers| operated.admin_auth.privilege(uri, headers)));
    match &daemon.audit {
        Some(audit) => service.with_on_refusal(audit::http_refusals::refusal_recorder(audit)),
        None => service,
    }
}

/// Returns the routes beside the endpoints of MCP clients.
fn routes(daemon: &Arc<Daemon>) -> Router {
    let front = get(async || (StatusCode::NOT_FOUND, FRONT_PAGE));
    let open = Router::new().route("/healthz", get(health::healthz)).route("/readyz", get(health::readyz));
    let open = open.route("/", front).with_state(Arc::clone(daemon));
    api::router(daemon).merge(open)
}

/// Announces the daemon: to other commands, to scripts and to people.
fn announce(
    claim: &InstanceClaim,
    daemon: &Daemon,
    address: SocketAddr,
    port_file: Option<&Path>,
) -> Result<(), CommandFailure> {
    claim.publish(&daemon.record).map_err(CommandFailure::Machine)?;
    if let Some(file) = port_file {
        let unwritable = |why: io::Error| CommandFailure::Unwritable { file: file.to_owned(), why };
        ostler_store::private_file::replace_file(file, format!("{}\n", address.port()).as_bytes())
            .map_err(unwritable)?;
    }
    #[cfg(ostler_sabotage)]
    crate::sabotage::warn();
    daemon.print_summary(&daemon.record.url);
    if !is_loopback(address.ip()) {
        print_stderr(&describe_exposure(daemon, address));
    }
    Ok(())
}

/// Describes the credentials that clients on other machines need.
fn describe_exposure(daemon: &Daemon, address: SocketAddr) -> String {
    let hosts = daemon.config_state.with_config(|config, _, _| config.gateway.allowed_hosts.join(", "));
    let hosts = match hosts.is_empty() {
        true => "none yet: name the host that clients use under gateway.allowed_hosts".into(),
        false => hosts,
    };
    format!(
        "  {address} can be reached from other machines\n  hosts:  {hosts}\n  callers: a bearer token each"
    )
}

/// Reloads the config on SIGHUP.
fn reload_on_hangup(daemon: Arc<Daemon>) -> Result<(), CommandFailure> {
    let mut hangups = signal(SignalKind::hangup()).map_err(CommandFailure::Machine)?;
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            daemon.reload(ReloadCause::Signal).await;
        }
    });
    Ok(())
}
