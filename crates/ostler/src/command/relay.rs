//! `ostler relay`: the broker's config.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ostler_core::catalog::nearest;
use ostler_core::config::{Config, RelayJournal};
use ostler_relay::RelayName;
use ostler_relay::nats_config::{
    HostUser, NatsConfigSpec, NatsLogin, UserKey, WorkerUser, generate_user_key, host_user_name, nats_config,
    worker_user_name,
};
use ostler_store::private_file;

use crate::cli::{NatsConfigArgs, RelayCommand};
use crate::failure::CommandFailure;
use crate::output::{self, print_stderr};
use crate::{config_file, relay};

/// Limit of a seed file, far above the length of a seed.
const MAX_SEED_BYTES: u64 = 4 << 10;

/// Longest call timeout where the config has no servers to take it from.
const MAX_CALL_TIME: Duration = Duration::from_secs(600);

/// Role of callers on this machine without a credential.
const LOCAL_ROLE: &str = "local";

pub(super) fn run(command: RelayCommand, file: Option<&Path>) -> Result<(), CommandFailure> {
    let RelayCommand::NatsConfig(typed) = command;
    let chosen = config_file::load(config_file::find(file)?)?;
    let wanted = nats_config_input(typed, &chosen.config)?;
    output::print(&nats_config(&wanted))
}

fn nats_config_input(typed: NatsConfigArgs, config: &Config) -> Result<NatsConfigSpec, CommandFailure> {
    // `local` means callers on this machine; a worker gets that role only on request.
    let roles = config.roles.keys().filter(|role| *role != LOCAL_ROLE);
    let roles = roles.map(|role| name(role)).collect::<Result<Vec<_>, _>>()?;
    check_names(&typed, &roles)?;
    let mut workers = Vec::new();
    for worker in typed.worker {
        check_role(&worker.role, config)?;
        let login = login(worker.key, &worker_user_name(&worker.name), typed.new_keys.as_deref())?;
        workers.push(WorkerUser { name: worker.name, role: worker.role, login });
    }
    let taken: BTreeSet<RelayName> = workers.iter().map(|worker| worker.role.clone()).collect();
    for role in roles.iter().filter(|role| !taken.contains(*role)) {
        let login = login(None, &worker_user_name(role), typed.new_keys.as_deref())?;
        workers.push(WorkerUser { name: role.clone(), role: role.clone(), login });
    }
    let mut hosts = Vec::new();
    for host in typed.host {
        let login = login(host.key, &host_user_name(&host.name), typed.new_keys.as_deref())?;
        hosts.push(HostUser { name: host.name, login });
    }
    if hosts.is_empty() {
        let own = config.relay.as_ref().and_then(|relay| relay.host.as_deref()).map(name).transpose()?;
        let own = own.or_else(relay::default_host_name);
        let name = own.ok_or_else(|| usage_error("this machine has no name", "name the host with --host"))?;
        let login = login(None, &host_user_name(&name), typed.new_keys.as_deref())?;
        hosts.push(HostUser { name, login });
    }
    let relay = config.relay.as_ref();
    Ok(NatsConfigSpec {
        tenant: name(relay.map_or("default", |relay| &relay.tenant))?,
        hosts,
        roles,
        workers,
        max_call_time: config.servers.iter().map(|spec| spec.max_call_time).max().unwrap_or(MAX_CALL_TIME),
        has_kv: relay.is_some_and(|relay| relay.journal == RelayJournal::Shared),
        store_dir: None,
    })
}

/// Refuses equal names: two users of one name would receive, and end, each other's calls.
fn check_names(typed: &NatsConfigArgs, roles: &[RelayName]) -> Result<(), CommandFailure> {
    let mut names = BTreeSet::new();
    if let Some(twice) = typed.worker.iter().find(|worker| !names.insert(&worker.name)) {
        let what = format!("there are two workers `{}`", twice.name);
        return Err(usage_error(&what, "give each a name of its own; a worker has one role"));
    }
    // A role without a worker gets one of its own name.
    let is_bare = |role: &&RelayName| !typed.worker.iter().any(|worker| worker.role == **role);
    if let Some(taken) = roles.iter().filter(is_bare).find(|role| names.contains(role)) {
        let what = format!("the role `{taken}` has no worker, and a worker of another role has its name");
        return Err(usage_error(&what, &format!("name a worker of the role with --worker NAME={taken}")));
    }
    let mut names = BTreeSet::new();
    match typed.host.iter().find(|host| !names.insert(&host.name)) {
        Some(twice) => {
            Err(usage_error(&format!("there are two hosts `{}`", twice.name), "give each a name of its own"))
        }
        None => Ok(()),
    }
}

/// Refuses a worker in a role that the config does not have: it could use nothing.
fn check_role(role: &RelayName, config: &Config) -> Result<(), CommandFailure> {
    if config.roles.contains_key(role.as_str()) {
        return Ok(());
    }
    let hint = match nearest(role.as_str(), config.roles.keys().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "write a [roles.NAME] into the config first".into(),
    };
    Err(usage_error(&format!("there is no role `{role}` in the config"), &hint))
}

fn login(key: Option<UserKey>, user: &str, folder: Option<&Path>) -> Result<NatsLogin, CommandFailure> {
    match (key, folder) {
        (Some(key), _) => Ok(NatsLogin::Nkey(key)),
        (None, Some(folder)) => load_or_create_key(folder, user).map(NatsLogin::Nkey),
        (None, None) => Ok(NatsLogin::Password),
    }
}

/// Returns the key of a user whose seed is in a folder; creates it if there is none.
fn load_or_create_key(folder: &Path, user: &str) -> Result<UserKey, CommandFailure> {
    let file = folder.join(format!("{user}.nk"));
    if file.exists() {
        return read_seed(&file);
    }
    let unwritable = |why: io::Error| CommandFailure::Unwritable { file: file.clone(), why };
    let no_chance = || unwritable(io::Error::other("the machine gives no random numbers"));
    let (key, seed) = generate_user_key().ok_or_else(no_chance)?;
    private_file::create_dir(folder).map_err(unwritable)?;
    let written = private_file::open_options().write(true).create_new(true).open(&file);
    written.and_then(|mut open| writeln!(open, "{seed}")).map_err(unwritable)?;
    print_stderr(&format!("wrote {}, the key of {user}; it is a secret", file.display()));
    Ok(key)
}

fn read_seed(file: &PathBuf) -> Result<UserKey, CommandFailure> {
    let unreadable = |why: String| CommandFailure::Unreadable {
        file: file.clone(),
        why,
        hint: "move it away, and a new one is made",
    };
    fs::metadata(file).map_err(|error| unreadable(error.to_string()))?;
    let text =
        config_file::read_at_most(file, MAX_SEED_BYTES).map_err(|error| unreadable(error.to_string()))?;
    UserKey::from_seed(text.trim()).ok_or_else(|| unreadable("it holds no seed of a user's nkey".into()))
}

fn name(text: &str) -> Result<RelayName, CommandFailure> {
    RelayName::new(text).map_err(|error| usage_error(&error.to_string(), "rename it in the config"))
}

fn usage_error(what: &str, hint: &str) -> CommandFailure {
    CommandFailure::Usage { what: what.into(), hint: Some(hint.into()) }
}
