//! Lists of sleeping servers, kept between runs.
//!
//! One small file per server in the state directory, named by the server and
//! bound to its spec by fingerprint, so that a changed spec does not show the
//! tools of the old one. Losing a file loses nothing but a start.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::host::Host;
use crate::server::known::{Known, Tool};
use crate::server::slot::Slot;

/// A kept file beyond this is not read.
const MAX_FILE: u64 = 32 << 20;

#[derive(Serialize, Deserialize)]
struct Kept {
    fingerprint: String,
    tools: Vec<KeptTool>,
}

#[derive(Serialize, Deserialize)]
struct KeptTool {
    name: String,
    definition: Box<RawValue>,
}

impl Host {
    /// Keeps a list for later runs, off the path of the call. Only a shared
    /// server's list is everybody's.
    pub(crate) fn keep_list(&self, slot: &Arc<Slot>, known: &Arc<Known>) {
        let Some(path) = self.kept_path(slot) else { return };
        let (fingerprint, tools) = (slot.spec.fingerprint().to_string(), Arc::clone(&known.tools));
        let server = slot.key.server.clone();
        tokio::task::spawn_blocking(move || {
            if let Err(error) = write(&path, fingerprint, &tools) {
                tracing::warn!(%server, %error, "the tool list could not be kept");
            }
        });
    }

    /// Fetches the kept list of a server that has not been listed in this run.
    pub(crate) async fn recall_list(&self, slot: &Arc<Slot>) {
        if slot.known().is_some() {
            return;
        }
        let Some(path) = self.kept_path(slot) else { return };
        let fingerprint = slot.spec.fingerprint().to_string();
        let read = tokio::task::spawn_blocking(move || read(&path, &fingerprint)).await;
        if let Ok(Some(tools)) = read {
            slot.learn_if_unknown(Arc::new(Known::remembered(tools)));
        }
    }

    fn kept_path(&self, slot: &Slot) -> Option<PathBuf> {
        let dir = self.options().state_dir.as_ref()?;
        slot.key.partition.is_empty().then(|| dir.join("lists").join(format!("{}.json", slot.key.server)))
    }
}

fn write(path: &Path, fingerprint: String, tools: &[Tool]) -> std::io::Result<()> {
    let tools: Result<Vec<KeptTool>, serde_json::Error> = tools.iter().map(kept).collect();
    let text = serde_json::to_vec(&Kept { fingerprint, tools: tools? })?;
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    // Written beside and renamed, so that a reader sees the old list or the
    // new one; the number keeps two hosts from writing the same file.
    let beside = path.with_extension(format!("{}.new", fastrand::u64(..)));
    std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path)).inspect_err(|_| {
        let _ = std::fs::remove_file(&beside);
    })
}

fn kept(tool: &Tool) -> Result<KeptTool, serde_json::Error> {
    Ok(KeptTool { name: tool.name.clone(), definition: serde_json::from_slice(&tool.definition)? })
}

fn read(path: &Path, fingerprint: &str) -> Option<Vec<Tool>> {
    if std::fs::metadata(path).ok()?.len() > MAX_FILE {
        return None;
    }
    let kept: Kept = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    if kept.fingerprint != fingerprint {
        return None;
    }
    let tool = |kept: KeptTool| {
        let definition = Bytes::from(Box::<str>::from(kept.definition).into_string());
        Tool { name: kept.name, definition }
    };
    Some(kept.tools.into_iter().map(tool).collect())
}
