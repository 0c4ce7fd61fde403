//! What `lock`, `diff` and `approve` work with: the config, its lock file, and
//! what the servers offer now.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use ostler_core::config::Config;
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_core::pins::{self, Difference, Hash, Lock, LockedServer, Pin, Section};
use ostler_core::spec::ServerSpec;
use ostler_host::Definitions;

use super::reviewed::Reviewed;
use super::{Locked, file};
use crate::api::{Confirmation, Pins};
use crate::audit::{self, Note};
use crate::config_file::{self, Found, Reading};
use crate::failure::Failure;
use crate::invocation::command;
use crate::output::tell;
use crate::reach::{self, Reach, There, Way};
use crate::spot::Spot;
use crate::stamps::Stamps;
use crate::{cli, folders};

/// A config and its lock file.
pub(crate) struct Desk {
    /// The config's own directory.
    folder: PathBuf,
    pub(crate) config: Config,
    /// The lock file.
    pub(crate) file: PathBuf,
    pub(crate) locked: Locked,
    /// What the lock file was like before it was read.
    stamps: Stamps,
    /// Where the config's other files are; a machine without a home has none.
    spot: Option<Spot>,
}

/// What one server offers, beside what was approved of it.
pub(crate) struct Offered {
    pub(crate) server: ServerName,
    /// How it is reached now.
    pub(crate) transport: String,
    pub(crate) definitions: Definitions,
}

impl Desk {
    /// The config that is meant, and who can ask its servers. The built-in
    /// server has no file that anything could lie beside.
    pub(crate) fn open(shared: &cli::Shared) -> Result<(Self, Way), Failure> {
        let (main, origin) = match config_file::find(shared.config.as_deref())? {
            Found::File { file, origin } => (file, origin),
            Found::Nowhere(looked_for) => return Err(Failure::NoConfig { looked_for }),
        };
        let Reading { config, problems, stamps, locked, .. } = config_file::read(main.clone())?;
        let config = config_file::usable(&main, config, &problems)?;
        let way = reach::find_for(shared, &main, &config, origin)?;
        let folder = main.parent().unwrap_or(Path::new("/")).to_owned();
        let spot = Spot::of(Some(&main)).ok();
        let file = file::beside(&main);
        let stamps = stamps.of(&file);
        Ok((Self { folder, config, file, locked, stamps, spot }, way))
    }

    /// The lock, which must be there and in order.
    pub(crate) fn lock(&self) -> Result<Lock, Failure> {
        match self.locked.clone()? {
            Some(lock) => Ok(lock),
            None => Err(Failure::Usage {
                what: format!("there is no {}", config_file::shown(&self.file).display()),
                hint: Some(format!("{} makes one of what the servers offer now", command("lock"))),
            }),
        }
    }

    /// The names of the servers that are meant; all of them if none is named.
    pub(crate) fn names(&self, typed: &[String]) -> Result<Vec<ServerName>, Failure> {
        let known = || self.config.servers.iter().map(|spec| &spec.name);
        if typed.is_empty() {
            let pinned = self.config.servers.iter().filter(|spec| spec.is_pinned);
            return Ok(pinned.map(|spec| spec.name.clone()).collect());
        }
        let is_exempt = |name: &&String| self.config.server(name).is_some_and(|spec| !spec.is_pinned);
        if let Some(name) = typed.iter().find(is_exempt) {
            return Err(Failure::Usage {
                what: format!("`{name}` has `pins = \"off\"`, so that nothing of it is approved or refused"),
                hint: Some("take that key out of the config first".into()),
            });
        }
        let find = |name: &String| {
            let found = known().find(|known| known.as_str() == name).cloned();
            found.ok_or_else(|| Failure::unknown_server(name, &known().cloned().collect::<Vec<_>>()))
        };
        typed.iter().map(find).collect()
    }

    /// How a server is reached, on whichever machine the project lies.
    fn transport(&self, server: &ServerName) -> String {
        let home = folders::home();
        let mut places: Vec<(&Path, &str)> = vec![(&self.folder, ".")];
        places.extend(home.as_deref().map(|home| (home, "~")));
        let spec: Option<&ServerSpec> = self.config.server(server.as_str());
        spec.map(|spec| pins::transport_seen_from(spec, &places)).unwrap_or_default()
    }

    /// Asks servers what they offer.
    pub(crate) async fn ask(
        &self,
        reach: &Reach,
        names: &[ServerName],
    ) -> Result<BTreeMap<ServerName, Result<Offered, CallError>>, Failure> {
        let mut all = BTreeMap::new();
        for (server, definitions) in reach.definitions(names).await? {
            let transport = self.transport(&server);
            let offered =
                definitions.map(|definitions| Offered { server: server.clone(), transport, definitions });
            all.insert(server, offered);
        }
        Ok(all)
    }

    /// What `ostler diff` has shown of this config. A machine without a home keeps nothing.
    pub(crate) fn reviewed(&self) -> Reviewed {
        self.spot.as_ref().map(Reviewed::open).unwrap_or_default()
    }

    /// Refuses to build on a lock file that the daemon has not taken up: an edit that nobody has looked at would be
    /// taken up with the next approval.
    async fn check_in_force(&self, there: &There) -> Result<(), Failure> {
        let Pins { sha256, .. } = there.get("/api/v1/pins").await?;
        let read = self.locked.as_ref().ok().and_then(Option::as_ref).map(|lock| hash_of(lock).to_string());
        match sha256 == read || self.locked.is_err() {
            true => Ok(()),
            false => Err(Failure::Lock {
                file: config_file::shown(&self.file).to_owned(),
                why: "it has changed on disk since the daemon took it up".into(),
                hint: how_to_take_up(),
            }),
        }
    }

    /// Writes the lock file, has a daemon take it up at once, and writes down
    /// what was done and with which tools.
    pub(crate) async fn write(&self, lock: &Lock, reach: &Reach, done: (&str, &str)) -> Result<(), Failure> {
        // Servers may have taken long to answer, and somebody else been quicker.
        if self.stamps.renewed() != self.stamps {
            let why = io::Error::other("it has changed since it was read; run the command again");
            return Err(Failure::Unwritable { file: config_file::shown(&self.file).to_owned(), why });
        }
        if let Reach::There(there) = reach {
            self.check_in_force(there).await?;
        }
        let text = file::write(&self.file, lock)?;
        if let Some(spot) = &self.spot {
            let (action, detail) = done;
            audit::note(spot, &self.config.audit, &Note { action, detail, ..Note::default() });
        }
        let Reach::There(there) = reach else { return Ok(()) };
        if let Err(failure) = take_up(there, &text).await {
            tell(&format!("warning: the daemon has not taken it up yet: {failure}"));
        }
        Ok(())
    }
}

/// What to do about a lock file that is not in force.
fn how_to_take_up() -> String {
    format!("look at the change; then {} takes it up, or take the last version back", command("reload"))
}

/// Says that the lock file on disk is not the one in force.
pub(crate) async fn say_pending(reach: &Reach) -> Result<(), Failure> {
    if reach.is_lock_pending().await? {
        tell(&format!(
            "warning: the lock file has changed on disk, and the daemon has not taken it up\n  hint: {}",
            how_to_take_up()
        ));
    }
    Ok(())
}

/// Recognizes a lock, however its file is written.
pub(crate) fn hash_of(lock: &Lock) -> Hash {
    Hash::of(lock.write().as_bytes())
}

/// Has the daemon take up the lock file, if it is still the one that was written.
async fn take_up(there: &There, text: &str) -> Result<(), Failure> {
    let path = format!("/api/v1/pins/reload?sha256={}", Hash::of(text.as_bytes()));
    let _: Confirmation = there.post(&path).await?;
    Ok(())
}

impl Offered {
    /// What differs from what was approved. An item that is listed twice always does.
    pub(crate) fn differences(&self, locked: Option<&LockedServer>) -> Vec<Difference> {
        pins::compare(locked, self.definitions.items())
    }

    /// Everything it offers, approved; and what can't be, with the reason.
    pub(crate) fn approved(&self) -> (LockedServer, Vec<(Section, String, String)>) {
        let sections = Section::ALL.map(|section| (section, BTreeMap::new())).into();
        let mut locked = LockedServer { transport: self.transport.clone(), sections };
        let mut unfit = Vec::new();
        for (section, name, definition) in self.definitions.items() {
            match Pin::of(definition) {
                Ok(pin) => drop(locked.sections.entry(section).or_default().insert(name.to_owned(), pin)),
                Err(error) => unfit.push((section, name.to_owned(), error.to_string())),
            }
        }
        (locked, unfit)
    }

    /// Whether the server lists an item more than once.
    pub(crate) fn is_repeated(&self, section: Section, name: &str) -> bool {
        self.definitions.repeated.iter().any(|(kind, repeated)| *kind == section && repeated == name)
    }
}
