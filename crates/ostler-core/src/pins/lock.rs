//! Lock file: the approved definitions.
//!
//! It is made to be committed and reviewed, so it holds the definitions themselves beside their hashes.
//! Nothing in it is ignored: an unknown or repeated member or a wrong hash is an error, so that nothing
//! unapproved hides in it.

use std::collections::BTreeMap;

use super::hash::{MAX_DEFINITION, Pin, PinHash};
use super::json::{Json, JsonError};
use super::section::LockSection;
use crate::server_name::ServerName;

/// The version of the format that is written, and the newest that is read. Version 1 has tools only, and its
/// hashes leave `_meta` out.
pub const VERSION: u64 = 2;

/// Versions that are read.
const READABLE_VERSIONS: [&str; 2] = ["1", "2"];

/// Longest lock file that is read. A thousand tools with long definitions fit several times over.
pub const MAX_LOCK: usize = 16 << 20;

/// Approved definitions of all servers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LockFile {
    /// By the operator's names.
    pub servers: BTreeMap<ServerName, LockedServer>,
}

/// Approved definitions of one server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LockedServer {
    /// Fingerprint of the server's transport at the approval; see
    /// [`transport_fingerprint`](super::transport_fingerprint).
    pub transport: String,
    /// By the server's own names. A section that is absent is not pinned yet; an empty one approves nothing.
    pub sections: BTreeMap<LockSection, BTreeMap<String, Pin>>,
}

impl LockedServer {
    /// Creates a server with these approved tools and no other section pinned.
    pub fn with_tools(transport: impl Into<String>, tools: BTreeMap<String, Pin>) -> Self {
        Self { transport: transport.into(), sections: [(LockSection::Tools, tools)].into() }
    }

    /// Returns all pins.
    pub fn pins(&self) -> impl Iterator<Item = (LockSection, &str, &Pin)> {
        self.sections
            .iter()
            .flat_map(|(section, pins)| pins.iter().map(|(name, pin)| (*section, name.as_str(), pin)))
    }

    /// Returns the sections that are not pinned yet.
    pub fn unpinned(&self) -> impl Iterator<Item = LockSection> + '_ {
        LockSection::ALL.into_iter().filter(|section| !self.sections.contains_key(section))
    }
}

/// Reason why a text is not a lock file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// Longer than [`MAX_LOCK`].
    #[error("the lock file has {0} bytes, and at most {MAX_LOCK} are read")]
    TooLarge(usize),
    /// Git could not merge two versions of it.
    #[error("line {line} of the lock file is a merge conflict's marker")]
    Conflict {
        /// Line of the first marker.
        line: usize,
    },
    /// Not JSON, or an object with a repeated key.
    #[error("the lock file can't be read: {0}")]
    NotJson(String),
    /// Another version's format.
    #[error("the lock file has version {0}, and this Ostler reads versions 1 to {VERSION}")]
    Version(String),
    /// A member that is missing, unknown or of the wrong type.
    #[error("`{place}` in the lock file {why}")]
    Shape {
        /// The keys that lead to it.
        place: String,
        /// The problem.
        why: String,
    },
    /// A definition that differs from its hash.
    #[error("the definition of {} `{name}` of server `{server}` in the lock file does not match its hash", .section.noun())]
    Mismatch {
        /// The server.
        server: ServerName,
        /// The section.
        section: LockSection,
        /// The item.
        name: String,
        /// The hash in the file.
        written: PinHash,
        /// The hash of the definition.
        found: PinHash,
    },
}

impl LockError {
    /// Returns the next step; `command` formats a command line of Ostler.
    pub fn hint(&self, command: impl Fn(&str) -> String) -> String {
        match self {
            Self::TooLarge(_) => format!("make a new one with {}", command("lock --all")),
            Self::Conflict { .. } => {
                format!("resolve it in favour of either side, then see what is left with {}", command("diff"))
            }
            Self::NotJson(_) | Self::Shape { .. } => {
                format!(
                    "take the last committed version back, or make a new one with {}",
                    command("lock --all")
                )
            }
            Self::Version(_) => {
                format!("update Ostler, or make a new lock file with {}", command("lock --all"))
            }
            Self::Mismatch { .. } => {
                format!(
                    "definitions are not edited by hand: take the last committed version back, see what the server \
                     offers with {} and approve it with {}",
                    command("diff"),
                    command("approve")
                )
            }
        }
    }
}

impl LockFile {
    /// Parses a lock file and checks every hash in it.
    pub fn parse(text: &str) -> Result<Self, LockError> {
        if text.len() > MAX_LOCK {
            return Err(LockError::TooLarge(text.len()));
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let root = Json::parse(text).map_err(|error| parse_error(text, &error))?;
        check_version(&root)?;
        let place = LockPath { keys: Vec::new() };
        let [_, servers] = place.members(&root, ["version", "servers"])?;
        let mut lock = Self::default();
        for (name, server) in place.child("servers").object(servers)? {
            let place = place.child("servers").child(name);
            let name = ServerName::new(name)
                .map_err(|error| place.shape_error(format!("can't be read: {error}")))?;
            let server = read_server(&place, &name, server)?;
            lock.servers.insert(name, server);
        }
        Ok(lock)
    }
}

/// Returns the error of invalid JSON. The markers of a merge conflict are reported as such.
fn parse_error(text: &str, error: &JsonError) -> LockError {
    let is_marker =
        |line: &str| ["<<<<<<< ", ">>>>>>> ", "||||||| "].iter().any(|marker| line.starts_with(marker));
    match text.lines().position(is_marker) {
        Some(index) => LockError::Conflict { line: index + 1 },
        None => LockError::NotJson(error.to_string()),
    }
}

/// Checks the version first: a member of a newer version must not be called unknown.
fn check_version(root: &Json) -> Result<(), LockError> {
    match root.get("version") {
        Some(Json::Number(version)) if READABLE_VERSIONS.contains(&version.as_str()) => Ok(()),
        Some(version @ (Json::Number(_) | Json::Text(_))) => Err(LockError::Version(version.canonical())),
        _ => Err(LockPath { keys: vec!["version".into()] }.shape_error("is missing or not a number")),
    }
}

fn read_server(place: &LockPath, name: &ServerName, server: &Json) -> Result<LockedServer, LockError> {
    let members = place.object(server)?;
    let section_of = |key: &str| LockSection::ALL.into_iter().find(|section| section.key() == key);
    if let Some((key, _)) = members.iter().find(|(key, _)| key != "transport" && section_of(key).is_none()) {
        return Err(place.child(key).shape_error("is unknown"));
    }
    if let Some(key) = ["transport", "tools"].into_iter().find(|key| server.get(key).is_none()) {
        return Err(place.child(key).shape_error("is missing"));
    }
    let mut locked = LockedServer::default();
    for (key, value) in members {
        let place = place.child(key);
        let Some(section) = section_of(key) else {
            let transport = place.text(value)?;
            // The form is checked, so that a truncated hash is not taken for a change of the server.
            transport
                .parse::<PinHash>()
                .map_err(|error| place.shape_error(format!("can't be read: {error}")))?;
            locked.transport = transport.to_owned();
            continue;
        };
        let pins = place
            .object(value)?
            .iter()
            .map(|(item, pin)| Ok((item.clone(), read_pin(&place.child(item), name, (section, item, pin))?)))
            .collect::<Result<_, LockError>>()?;
        locked.sections.insert(section, pins);
    }
    Ok(locked)
}

fn read_pin(
    place: &LockPath,
    server: &ServerName,
    (section, name, pin): (LockSection, &str, &Json),
) -> Result<Pin, LockError> {
    let [written, definition] = place.members(pin, ["sha256", "definition"])?;
    let written: PinHash =
        place.child("sha256").text(written)?.parse().map_err(|error: super::HashParseError| {
            place.child("sha256").shape_error(format!("can't be read: {error}"))
        })?;
    let place = place.child("definition");
    place.object(definition)?;
    if definition.get(section.name_member()).is_some_and(|found| found.text() != Some(name)) {
        return Err(place.shape_error(format!("is the definition of another {}", section.noun())));
    }
    let pin = Pin::from_canonical(definition.canonical());
    if pin.definition.len() > MAX_DEFINITION {
        return Err(place.shape_error(format!("has more than {MAX_DEFINITION} bytes")));
    }
    if pin.hash != written {
        let (server, name) = (server.clone(), name.to_owned());
        return Err(LockError::Mismatch { server, section, name, written, found: pin.hash });
    }
    Ok(pin)
}

/// Location of a value in the file.
struct LockPath {
    keys: Vec<String>,
}

impl LockPath {
    fn child(&self, key: &str) -> Self {
        Self { keys: self.keys.iter().map(String::as_str).chain([key]).map(str::to_owned).collect() }
    }

    fn shape_error(&self, why: impl Into<String>) -> LockError {
        let place = if self.keys.is_empty() { "the whole".into() } else { self.keys.join(".") };
        LockError::Shape { place: super::spell_out_deceptive(&place), why: why.into() }
    }

    fn object<'j>(&self, value: &'j Json) -> Result<&'j [(String, Json)], LockError> {
        match value {
            Json::Object(members) => Ok(members),
            _ => Err(self.shape_error("is not an object")),
        }
    }

    fn text<'j>(&self, value: &'j Json) -> Result<&'j str, LockError> {
        value.text().ok_or_else(|| self.shape_error("is not a text"))
    }

    /// Returns the members of these names; all are required, and no others are allowed.
    fn members<'j, const N: usize>(
        &self,
        value: &'j Json,
        names: [&str; N],
    ) -> Result<[&'j Json; N], LockError> {
        let members = self.object(value)?;
        if let Some((key, _)) = members.iter().find(|(key, _)| !names.contains(&key.as_str())) {
            return Err(self.child(key).shape_error("is unknown"));
        }
        let mut found = [&Json::Null; N];
        for (slot, name) in found.iter_mut().zip(names) {
            *slot = value.get(name).ok_or_else(|| self.child(name).shape_error("is missing"))?;
        }
        Ok(found)
    }
}
