//! What `lock`, `diff` and `approve` work with: the config, its lock file, and
//! what the servers offer now.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use ostler_core::config::Config;
use ostler_core::error::CallError;
use ostler_core::name::ServerName;
use ostler_core::pins::{self, Difference, Lock, LockedServer, Pin};
use ostler_core::spec::ServerSpec;
use ostler_host::Definitions;

use super::{Locked, file};
use crate::audit::{self, Note};
use crate::config_file::{self, Found, Reading};
use crate::failure::Failure;
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
        let way = reach::find_for(shared, &main, &config, origin);
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
                hint: Some("`ostler lock` makes one of what the servers offer now".into()),
            }),
        }
    }

    /// The names of the servers that are meant; all of them if none is named.
    pub(crate) fn names(&self, typed: &[String]) -> Result<Vec<ServerName>, Failure> {
        let known = || self.config.servers.iter().map(|spec| &spec.name);
        if typed.is_empty() {
            return Ok(known().cloned().collect());
        }
        let find = |name: &String| {
            let found = known().find(|known| known.as_str() == name).cloned();
            found.ok_or_else(|| CallError::unknown_server(name, known().map(ServerName::as_str)).into())
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

    /// Writes the lock file, has a daemon take it up at once, and writes down
    /// what was done and with which tools.
    pub(crate) async fn write(&self, lock: &Lock, reach: &Reach, done: (&str, &str)) -> Result<(), Failure> {
        // Servers may have taken long to answer, and somebody else been quicker.
        if self.stamps.renewed() != self.stamps {
            let why = io::Error::other("it has changed since it was read; run the command again");
            return Err(Failure::Unwritable { file: config_file::shown(&self.file).to_owned(), why });
        }
        file::write(&self.file, lock)?;
        if let Some(spot) = &self.spot {
            let (action, detail) = done;
            audit::note(spot, &self.config.audit, &Note { action, detail, ..Note::default() });
        }
        let Reach::There(there) = reach else { return Ok(()) };
        if let Err(failure) = take_up(there).await {
            tell(&format!("warning: the daemon has not taken it up yet: {failure}"));
        }
        Ok(())
    }
}

async fn take_up(there: &There) -> Result<(), Failure> {
    let _: serde_json::Value = there.post("/api/v1/pins/reload").await?;
    Ok(())
}

impl Offered {
    /// What differs from what was approved. A tool that is listed twice always does.
    pub(crate) fn differences(&self, locked: Option<&LockedServer>) -> Vec<Difference> {
        let offered = self.definitions.tools.iter().map(|tool| (tool.name.as_str(), &*tool.definition));
        pins::compare(locked, offered)
    }

    /// Everything it offers, approved; and what can't be, with the reason.
    pub(crate) fn approved(&self) -> (LockedServer, Vec<(String, String)>) {
        let mut locked = LockedServer { transport: self.transport.clone(), tools: BTreeMap::new() };
        let mut unfit = Vec::new();
        for tool in &self.definitions.tools {
            match Pin::of(&tool.definition) {
                Ok(pin) => drop(locked.tools.insert(tool.name.clone(), pin)),
                Err(error) => unfit.push((tool.name.clone(), error.to_string())),
            }
        }
        (locked, unfit)
    }

    /// Whether the server lists a tool more than once.
    pub(crate) fn is_repeated(&self, tool: &str) -> bool {
        self.definitions.repeated.iter().any(|repeated| repeated == tool)
    }
}
