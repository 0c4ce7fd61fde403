//! Lists of sleeping servers, kept between runs.
//!
//! One small file per server in the state directory, named by the server and
//! bound to its spec by fingerprint, so that a changed spec does not show what
//! the old one offered. Losing a file loses nothing but a start.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use ostler_core::spec::{Isolation, ServerSpec};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Kind;
use crate::host::Host;
use crate::private;
use crate::server::known::{Item, Known};
use crate::server::slot::Slot;

/// A kept file beyond this is neither written nor read.
const MAX_FILE: u64 = 32 << 20;

/// The lists of one server; one that was never asked for is absent.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Kept {
    fingerprint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<KeptItem>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompts: Option<Vec<KeptItem>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<Vec<KeptItem>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_templates: Option<Vec<KeptItem>>,
    /// Whose lists they are, by their member, where they are not everybody's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    owners: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
struct KeptItem {
    name: String,
    definition: Box<RawValue>,
}

impl Kept {
    fn list(&mut self, kind: Kind) -> &mut Option<Vec<KeptItem>> {
        match kind {
            Kind::Tools => &mut self.tools,
            Kind::Prompts => &mut self.prompts,
            Kind::Resources => &mut self.resources,
            Kind::Templates => &mut self.resource_templates,
        }
    }

    fn into_lists(mut self) -> Vec<(Kind, Known)> {
        let mut lists = Vec::new();
        for kind in Kind::ALL {
            let Some(items) = self.list(kind).take() else { continue };
            let mut known = Known::remembered(items.into_iter().map(|kept| item(kind, kept)).collect());
            if let Some(owner) = self.owners.remove(kind.member()) {
                known = known.owned_by(owner);
            }
            lists.push((kind, known));
        }
        lists
    }
}

impl Host {
    /// Keeps what is known for later runs, off the path of the call. Those of a session are for the next one of its
    /// caller, and those of a workspace for the next one.
    pub(crate) fn keep_lists(&self, slot: &Arc<Slot>) {
        let Some(path) = self.kept_path(slot) else { return };
        let slot = Arc::clone(slot);
        tokio::task::spawn_blocking(move || {
            if let Err(error) = write(&path, &slot) {
                tracing::warn!(server = %slot.key.server, %error, "the lists could not be kept");
            }
        });
    }

    /// Fetches the kept lists of a server, as far as they have not been asked
    /// for in this run.
    pub(crate) async fn recall_lists(&self, slot: &Arc<Slot>) {
        let Some(path) = self.kept_path(slot) else { return };
        let recall = async {
            let fingerprint = slot.spec.fingerprint().to_string();
            // Definitions are judged there too: a file may hold thousands.
            let read = move || read(&path, &fingerprint).map(Kept::into_lists);
            if let Ok(Some(lists)) = tokio::task::spawn_blocking(read).await {
                put_back(slot, lists);
            }
        };
        slot.recalled.get_or_init(|| recall).await;
    }

    fn kept_path(&self, slot: &Slot) -> Option<PathBuf> {
        let dir = self.options().state_dir.as_ref()?;
        (slot.spec.isolation != Isolation::Caller)
            .then(|| dir.join("lists").join(format!("{}.json", slot.key.server)))
    }
}

/// Returns a server's list as an earlier run has kept it, if one has and the server is still the same.
pub fn kept_items(state_dir: &Path, spec: &ServerSpec, kind: Kind) -> Option<Vec<Item>> {
    let path = state_dir.join("lists").join(format!("{}.json", spec.name));
    let items = read(&path, &spec.fingerprint().to_string())?.list(kind).take()?;
    Some(items.into_iter().map(|kept| item(kind, kept)).collect())
}

/// Returns the names in such a list.
pub fn kept_names(state_dir: &Path, spec: &ServerSpec, kind: Kind) -> Option<Vec<String>> {
    let items = kept_items(state_dir, spec, kind)?;
    Some(items.into_iter().map(|item| item.name.to_string()).collect())
}

fn put_back(slot: &Slot, lists: Vec<(Kind, Known)>) {
    for (kind, known) in lists {
        if slot.shelf(kind).learn_if_unknown(Arc::new(known)) {
            slot.bus.raise_version();
        }
    }
}

fn write(path: &Path, slot: &Slot) -> std::io::Result<()> {
    let _turn = slot.keeping.lock().unwrap_or_else(PoisonError::into_inner);
    let mut lists = Kept { fingerprint: slot.spec.fingerprint().to_string(), ..Kept::default() };
    for kind in Kind::ALL {
        let Some(known) = slot.known(kind) else { continue };
        let items: Result<Vec<KeptItem>, serde_json::Error> = known.items.iter().map(kept).collect();
        *lists.list(kind) = Some(items?);
        let owner = known.owner().or_else(|| slot.session_owner());
        lists.owners.extend(owner.map(|owner| (kind.member().to_owned(), owner.to_owned())));
    }
    let text = serde_json::to_vec(&lists)?;
    if text.len() as u64 > MAX_FILE {
        // What is there is older than what is known.
        return match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    }
    // A list may be one caller's alone, and roles may hide it.
    private::replace(path, &text)
}

fn kept(item: &Item) -> Result<KeptItem, serde_json::Error> {
    Ok(KeptItem { name: item.name.to_string(), definition: serde_json::from_slice(&item.definition)? })
}

fn item(kind: Kind, kept: KeptItem) -> Item {
    let definition = Bytes::from(Box::<str>::from(kept.definition).into_string());
    Item::new(kind, kept.name, definition)
}

fn read(path: &Path, fingerprint: &str) -> Option<Kept> {
    let kept: Kept = serde_json::from_slice(&private::read(path, MAX_FILE)?).ok()?;
    (kept.fingerprint == fingerprint).then_some(kept)
}
