//! Context of `lock`, `diff` and `approve`: the config, its lock file, and the definitions that servers offer now.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ostler_core::config::{Config, PinMode};
use ostler_core::error::CallError;
use ostler_core::pins::{self, Difference, LockFile, LockSection, LockedServer, Pin, PinHash};
use ostler_core::server_name::ServerName;
use ostler_core::spec::ServerSpec;
use ostler_host::UnfilteredDefinitions;

use super::shown_diffs::ShownDiffs;
use super::{LockFileResult, lock_file};
use crate::api::{Confirmation, PinsResponse};
use crate::audit::{self, AuditedAction};
use crate::client::{self, Backend, BackendChoice, DaemonClient, PendingLock};
use crate::config_file::{self, FoundConfig, LoadedConfig};
use crate::failure::CommandFailure;
use crate::file_stamp::FileStamps;
use crate::instance::DaemonInstance;
use crate::invocation::command;
use crate::output::{escape_line, print_stderr};
use crate::{cli, xdg};

/// Config and its lock file.
pub(crate) struct LockContext {
    /// Directory of the config.
    folder: PathBuf,
    pub(crate) config: Config,
    /// Path of the lock file.
    pub(crate) file: PathBuf,
    pub(crate) locked: LockFileResult,
    /// Stamps of the lock file before it was read.
    stamps: FileStamps,
    /// Location of the config's state files; `None` on a machine without a home directory.
    instance: Option<DaemonInstance>,
}

/// Definitions that one server offers, beside the approved ones.
pub(crate) struct OfferedDefinitions {
    pub(crate) server: ServerName,
    /// Transport of the server now.
    pub(crate) transport: String,
    pub(crate) definitions: UnfilteredDefinitions,
}

impl LockContext {
    /// Opens the config of the command line, and chooses the backend for its servers. The built-in server has no file,
    /// and so no lock file.
    pub(crate) fn open(shared: &cli::GlobalOptions) -> Result<(Self, BackendChoice), CommandFailure> {
        let (main, origin) = match config_file::find(shared.config.as_deref())? {
            FoundConfig::File { file, origin } => (file, origin),
            FoundConfig::NotFound(looked_for) => return Err(CommandFailure::NoConfig { looked_for }),
        };
        let LoadedConfig { config, problems, stamps, lock_file: locked, .. } =
            config_file::read(main.clone())?;
        let config = config_file::require_usable(&main, config, &problems)?;
        let way = client::choose_backend_for(shared, &main, &config, origin)?;
        let folder = main.parent().unwrap_or(Path::new("/")).to_owned();
        let spot = DaemonInstance::for_config(Some(&main)).ok();
        let file = lock_file::lock_file_path(&main);
        let stamps = stamps.subset(&file);
        Ok((Self { folder, config, file, locked, stamps, instance: spot }, way))
    }

    /// Returns the lock; fails if it is missing or can't be used.
    pub(crate) fn require_lock(&self) -> Result<LockFile, CommandFailure> {
        match self.locked.clone()? {
            Some(lock) => Ok(Arc::unwrap_or_clone(lock)),
            None => Err(CommandFailure::Usage {
                what: format!("there is no {}", config_file::relative_to_cwd(&self.file).display()),
                hint: Some(format!("{} makes one of what the servers offer now", command("lock"))),
            }),
        }
    }

    /// Returns the failure for a missing lock. A lock whose file was deleted is in force as long as the daemon runs.
    pub(crate) fn explain_missing_lock(&self, way: BackendChoice, missing: CommandFailure) -> CommandFailure {
        if !matches!((&self.locked, &way), (Ok(None), BackendChoice::Daemon(_))) {
            return missing;
        }
        let pins = client::run_without_consent(way, async |reach| match reach {
            Backend::Daemon(there) => Ok(Some(there.get::<PinsResponse>("/api/v1/pins").await?)),
            Backend::InProcess(_) => Ok(None),
        });
        let Ok(Some(PinsResponse { mode, sha256: Some(hash), servers, .. })) = pins else { return missing };
        if mode == PinMode::Off {
            return missing;
        }
        let pinned = servers.iter().filter(|server| server.pinned > 0);
        let pinned: Vec<String> =
            pinned.map(|server| format!("{} of `{}`", server.pinned, server.server)).collect();
        CommandFailure::Lock {
            file: config_file::relative_to_cwd(&self.file).to_owned(),
            why: format!(
                "it is gone, and the daemon keeps the pins it held in force: {} ({hash})",
                pinned.join(", ")
            ),
            hint: format!(
                "take the last version back; {} makes one of what the servers offer now, {} drops the pins",
                command("lock"),
                command("reload")
            ),
        }
    }

    /// Returns the names of the servers that were typed; all of them if none was.
    pub(crate) fn select_servers(&self, typed: &[String]) -> Result<Vec<ServerName>, CommandFailure> {
        let known = || self.config.servers.iter().map(|spec| &spec.name);
        if typed.is_empty() {
            let pinned = self.config.servers.iter().filter(|spec| spec.is_pinned);
            return Ok(pinned.map(|spec| spec.name.clone()).collect());
        }
        let is_exempt = |name: &&String| self.config.server(name).is_some_and(|spec| !spec.is_pinned);
        if let Some(name) = typed.iter().find(is_exempt) {
            return Err(CommandFailure::Usage {
                what: format!("`{name}` has `pins = \"off\"`, so that nothing of it is approved or refused"),
                hint: Some("take that key out of the config first".into()),
            });
        }
        let find = |name: &String| {
            let found = known().find(|known| known.as_str() == name).cloned();
            found.ok_or_else(|| CommandFailure::unknown_server(name, &known().cloned().collect::<Vec<_>>()))
        };
        typed.iter().map(find).collect()
    }

    /// Returns the transport of a server, independent of the project's location.
    fn transport(&self, server: &ServerName) -> String {
        let home = xdg::home();
        let mut places: Vec<(&Path, &str)> = vec![(&self.folder, ".")];
        places.extend(home.as_deref().map(|home| (home, "~")));
        let spec: Option<&ServerSpec> = self.config.server(server.as_str());
        spec.map(|spec| pins::portable_transport_fingerprint(spec, &places)).unwrap_or_default()
    }

    /// Fetches the definitions of servers.
    pub(crate) async fn fetch_definitions(
        &self,
        reach: &Backend,
        names: &[ServerName],
    ) -> Result<BTreeMap<ServerName, Result<OfferedDefinitions, CallError>>, CommandFailure> {
        let mut all = BTreeMap::new();
        for (server, definitions) in reach.definitions(names).await? {
            let transport = self.transport(&server);
            let offered = definitions.map(|definitions| OfferedDefinitions {
                server: server.clone(),
                transport,
                definitions,
            });
            all.insert(server, offered);
        }
        Ok(all)
    }

    /// Returns the differences that `ostler diff` has shown of this config. Without a home directory none are kept.
    pub(crate) fn shown_diffs(&self) -> ShownDiffs {
        self.instance.as_ref().map(ShownDiffs::open).unwrap_or_default()
    }

    /// Refuses to build on a lock file that the daemon has not taken up: the next approval would take up an edit
    /// without a review.
    async fn check_in_force(&self, there: &DaemonClient) -> Result<(), CommandFailure> {
        let PinsResponse { sha256, .. } = there.get("/api/v1/pins").await?;
        let read = self.locked.as_ref().ok().and_then(Option::as_ref).map(|lock| lock_hash(lock).to_string());
        match sha256 == read || self.locked.is_err() {
            true => Ok(()),
            false => Err(CommandFailure::Lock {
                file: config_file::relative_to_cwd(&self.file).to_owned(),
                why: "it has changed on disk since the daemon took it up".into(),
                hint: apply_hint(),
            }),
        }
    }

    /// Writes the lock file, has a daemon take it up at once, and records the action and its tools in the audit.
    pub(crate) async fn write_lock(
        &self,
        lock: &LockFile,
        reach: &Backend,
        done: (&str, &str),
    ) -> Result<(), CommandFailure> {
        // Servers may have taken long to answer, and another command may have written the file meanwhile.
        if self.stamps.refreshed() != self.stamps {
            let why = io::Error::other("it has changed since it was read; run the command again");
            return Err(CommandFailure::Unwritable {
                file: config_file::relative_to_cwd(&self.file).to_owned(),
                why,
            });
        }
        if let Backend::Daemon(there) = reach {
            self.check_in_force(there).await?;
        }
        let text = lock_file::write(&self.file, lock)?;
        if let Some(spot) = &self.instance {
            let (action, detail) = done;
            audit::record_action(
                spot,
                &self.config.audit,
                &AuditedAction { action, detail, ..AuditedAction::default() },
            );
        }
        let Backend::Daemon(there) = reach else { return Ok(()) };
        if let Err(failure) = apply_on_daemon(there, &text).await {
            print_stderr(&format!("warning: the daemon has not taken it up yet: {failure}"));
        }
        Ok(())
    }
}

/// Returns the remedy for a lock file that is not in force.
fn apply_hint() -> String {
    format!("look at the change; then {} takes it up, or take the last version back", command("reload"))
}

/// Warns that the lock file on disk is not the one in force.
pub(crate) async fn warn_pending_lock(reach: &Backend) -> Result<(), CommandFailure> {
    match reach.pending_lock().await? {
        Some(PendingLock::Changed) => print_stderr(&format!(
            "warning: the lock file has changed on disk, and the daemon has not taken it up\n  hint: {}",
            apply_hint()
        )),
        Some(PendingLock::Unusable(why)) => print_stderr(&format!(
            "warning: the lock file has changed on disk and can't be used, so what was approved before stays in force: {}\n  \
             hint: correct it or take the last version back; then {} takes it up",
            escape_line(&why),
            command("reload")
        )),
        None => {}
    }
    Ok(())
}

/// Returns the hash of a lock, independent of its file's formatting.
pub(crate) fn lock_hash(lock: &LockFile) -> PinHash {
    PinHash::digest(lock.write().as_bytes())
}

/// Asks the daemon to take up the lock file, if it is still the one that was written.
async fn apply_on_daemon(there: &DaemonClient, text: &str) -> Result<(), CommandFailure> {
    let path = format!("/api/v1/pins/reload?sha256={}", PinHash::digest(text.as_bytes()));
    let _: Confirmation = there.post(&path).await?;
    Ok(())
}

impl OfferedDefinitions {
    /// Returns the differences from the approved definitions. An item that is listed twice always differs.
    pub(crate) fn differences(&self, locked: Option<&LockedServer>) -> Vec<Difference> {
        pins::compare(locked, self.definitions.items())
    }

    /// Returns the lock of everything it offers; and the items that can't be approved, with the reason.
    pub(crate) fn to_locked(&self) -> (LockedServer, Vec<(LockSection, String, String)>) {
        let sections = LockSection::ALL.map(|section| (section, BTreeMap::new())).into();
        let mut locked = LockedServer { transport: self.transport.clone(), sections };
        let mut unfit = Vec::new();
        for (section, name, definition) in self.definitions.items() {
            match Pin::from_definition(definition) {
                Ok(pin) => drop(locked.sections.entry(section).or_default().insert(name.to_owned(), pin)),
                Err(error) => unfit.push((section, name.to_owned(), error.to_string())),
            }
        }
        (locked, unfit)
    }

    /// Returns whether the server lists an item more than once.
    pub(crate) fn is_repeated(&self, section: LockSection, name: &str) -> bool {
        self.definitions.repeated.iter().any(|(kind, repeated)| *kind == section && repeated == name)
    }
}
