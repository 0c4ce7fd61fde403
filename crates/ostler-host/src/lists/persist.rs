//! Persisted lists of sleeping servers, kept between runs.
//!
//! The state directory has one small file per server, named by the server and bound to its spec by fingerprint, so that
//! a changed spec does not show what the old one offered. Servers with a process per workspace have a file per
//! workspace, so that no caller reads the list of another directory. Lists of servers with a process per caller are not
//! kept. A lost file costs one start.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use ostler_core::caller::Caller;
use ostler_core::spec::{Isolation, ServerSpec};
use ostler_store::private_file;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::Kind;
use crate::host::Host;
use crate::server::server_list::{ServerItem, ServerList};
use crate::server::slot::Slot;
use crate::server::{PartitionOwner, partition};

/// Largest file that is written or read.
const MAX_FILE: u64 = 32 << 20;

/// Bounds the workspaces per server whose lists are kept; the least recently written file goes first. It exceeds the
/// workspaces of one person, and keeps files of deleted directories from adding up.
const MAX_WORKSPACES: usize = 64;

/// The lists of one server; one that was never fetched is absent.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PersistedLists {
    fingerprint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<PersistedItem>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompts: Option<Vec<PersistedItem>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<Vec<PersistedItem>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_templates: Option<Vec<PersistedItem>>,
    /// Owners of private lists, by their member.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    owners: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
struct PersistedItem {
    name: String,
    definition: Box<RawValue>,
}

impl PersistedLists {
    fn list(&mut self, kind: Kind) -> &mut Option<Vec<PersistedItem>> {
        match kind {
            Kind::Tools => &mut self.tools,
            Kind::Prompts => &mut self.prompts,
            Kind::Resources => &mut self.resources,
            Kind::Templates => &mut self.resource_templates,
        }
    }

    fn into_lists(mut self) -> Vec<(Kind, ServerList)> {
        let mut lists = Vec::new();
        for kind in Kind::ALL {
            let Some(items) = self.list(kind).take() else { continue };
            let mut known =
                ServerList::restored(items.into_iter().map(|kept| from_persisted(kind, kept)).collect());
            if let Some(owner) = self.owners.remove(kind.member()) {
                known = known.owned_by(owner);
            }
            lists.push((kind, known));
        }
        lists
    }
}

impl Host {
    /// Persists the known lists for later runs, off the path of the call. Lists of a session are for the caller's next
    /// session, and lists of a workspace for the next process in it.
    pub(crate) fn persist_lists(&self, slot: &Arc<Slot>) {
        let Some(path) = self.persisted_path(slot) else { return };
        let fingerprint = self.current().spec_of(slot).fingerprint().to_string();
        let slot = Arc::clone(slot);
        tokio::task::spawn_blocking(move || {
            if let Err(error) = write(&path, &slot, fingerprint) {
                tracing::warn!(server = %slot.key.server, %error, "the lists could not be kept");
            }
        });
    }

    /// Loads the persisted lists of a server that have not been fetched in this run.
    pub(crate) async fn load_persisted_lists(&self, slot: &Arc<Slot>) {
        let Some(path) = self.persisted_path(slot) else { return };
        let recall = async {
            let fingerprint = self.current().spec_of(slot).fingerprint().to_string();
            // Definitions are checked there too: a file may hold thousands.
            let read = move || read(&path, &fingerprint).map(PersistedLists::into_lists);
            if let Ok(Some(lists)) = tokio::task::spawn_blocking(read).await {
                restore_lists(slot, lists);
            }
        };
        slot.lists_restored.get_or_init(|| recall).await;
    }

    /// Removes the files that hold a private list of a principal that has gone, off the path of the caller.
    pub(crate) fn remove_persisted_lists(&self, owner: PartitionOwner<'_>) {
        let Some(state_dir) = self.options().state_dir.clone() else { return };
        let specs: Vec<_> = self.current().servers.values().map(|server| Arc::clone(&server.spec)).collect();
        let principal = owner.0.to_owned();
        tokio::task::spawn_blocking(move || {
            for spec in &specs {
                remove_owned(&state_dir, spec, PartitionOwner(&principal));
            }
        });
    }

    fn persisted_path(&self, slot: &Slot) -> Option<PathBuf> {
        persisted_path(self.options().state_dir.as_ref()?, &slot.spec, &slot.key.partition)
    }
}

/// Removes the files of a server that hold a private list of a principal. The other lists in them are fetched again.
fn remove_owned(state_dir: &Path, spec: &ServerSpec, owner: PartitionOwner<'_>) {
    let files = match (spec.isolation, persisted_path(state_dir, spec, "")) {
        (Isolation::Workspace, Some(file)) => {
            let entries =
                file.parent().and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten();
            entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
        }
        (_, file) => Vec::from_iter(file),
    };
    let fingerprint = spec.fingerprint().to_string();
    for file in files {
        let is_owned =
            read(&file, &fingerprint).is_some_and(|kept| kept.owners.values().any(|other| owner.owns(other)));
        if is_owned && let Err(error) = std::fs::remove_file(&file) {
            tracing::warn!(server = %spec.name, %error, "the kept lists of a caller that has gone could not be removed");
        }
    }
}

/// Returns the file that holds the lists of a partition; `None` where lists are not kept.
fn persisted_path(state_dir: &Path, spec: &ServerSpec, partition: &str) -> Option<PathBuf> {
    let lists = state_dir.join("lists");
    match spec.isolation {
        Isolation::Shared | Isolation::Session => Some(lists.join(format!("{}.json", spec.name))),
        // A path may be longer than the name of a file, and has separators.
        Isolation::Workspace => {
            let hash: String = Sha256::digest(partition).iter().map(|byte| format!("{byte:02x}")).collect();
            Some(lists.join("workspaces").join(spec.name.as_str()).join(format!("{hash}.json")))
        }
        Isolation::Caller => None,
    }
}

/// Returns a server's list as an earlier run has persisted it, if the server's spec is unchanged and the caller may see
/// the list. The operator sees private lists too; lists of a workspace are for callers in it alone.
pub fn persisted_items(
    state_dir: &Path,
    spec: &ServerSpec,
    caller: &Caller,
    kind: Kind,
) -> Option<Vec<ServerItem>> {
    let path = persisted_path(state_dir, spec, &partition(spec, caller))?;
    let mut kept = read(&path, &spec.fingerprint().to_string())?;
    let owner = kept.owners.get(kind.member());
    if !caller.is_operator() && owner.is_some_and(|owner| owner != caller.principal()) {
        return None;
    }
    let items = kept.list(kind).take()?;
    Some(items.into_iter().map(|kept| from_persisted(kind, kept)).collect())
}

/// Returns the names in a persisted list.
pub fn persisted_names(
    state_dir: &Path,
    spec: &ServerSpec,
    caller: &Caller,
    kind: Kind,
) -> Option<Vec<String>> {
    let items = persisted_items(state_dir, spec, caller, kind)?;
    Some(items.into_iter().map(|item| item.name.to_string()).collect())
}

fn restore_lists(slot: &Slot, lists: Vec<(Kind, ServerList)>) {
    for (kind, known) in lists {
        if slot.list_cache(kind).store_if_empty(Arc::new(known)) {
            slot.bus.bump_lists_version();
        }
    }
}

fn write(path: &Path, slot: &Slot, fingerprint: String) -> std::io::Result<()> {
    let _turn = slot.persist_lock.lock().unwrap_or_else(PoisonError::into_inner);
    let mut lists = PersistedLists { fingerprint, ..PersistedLists::default() };
    for kind in Kind::ALL {
        let Some(known) = slot.cached_list(kind) else { continue };
        let items: Result<Vec<PersistedItem>, serde_json::Error> =
            known.items.iter().map(to_persisted).collect();
        *lists.list(kind) = Some(items?);
        let owner = known.owner().or_else(|| slot.session_owner());
        lists.owners.extend(owner.map(|owner| (kind.member().to_owned(), owner.to_owned())));
    }
    let text = serde_json::to_vec(&lists)?;
    if text.len() as u64 > MAX_FILE {
        // The file is older than the known lists.
        return match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    }
    // A list may be private to one caller, and roles may hide it.
    private_file::create_parent_dir(path)?;
    private_file::replace_file(path, &text)?;
    match path.parent() {
        Some(folder) if slot.spec.isolation == Isolation::Workspace => remove_oldest(folder),
        _ => Ok(()),
    }
}

/// Removes the least recently written files, beyond the bound.
fn remove_oldest(folder: &Path) -> std::io::Result<()> {
    let entries = std::fs::read_dir(folder)?.filter_map(Result::ok);
    let mut files: Vec<_> =
        entries.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()))).collect();
    let Some(surplus) = files.len().checked_sub(MAX_WORKSPACES).filter(|surplus| *surplus > 0) else {
        return Ok(());
    };
    files.sort_unstable();
    for (_, file) in files.into_iter().take(surplus) {
        match std::fs::remove_file(file) {
            // Another host may remove the same file.
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn to_persisted(item: &ServerItem) -> Result<PersistedItem, serde_json::Error> {
    Ok(PersistedItem { name: item.name.to_string(), definition: serde_json::from_slice(&item.definition)? })
}

fn from_persisted(kind: Kind, kept: PersistedItem) -> ServerItem {
    let definition = Bytes::from(Box::<str>::from(kept.definition).into_string());
    ServerItem::new(kind, kept.name, definition)
}

fn read(path: &Path, fingerprint: &str) -> Option<PersistedLists> {
    let kept: PersistedLists = serde_json::from_slice(&private_file::read_at_most(path, MAX_FILE)?).ok()?;
    (kept.fingerprint == fingerprint).then_some(kept)
}
