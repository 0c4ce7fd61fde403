//! Record of a server's last good start, kept between runs: the server's era and the duration of the start. It is
//! bound to the transport, so another command under the same name begins without one.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ostler_core::pins::transport_fingerprint;
use ostler_core::spec::ServerSpec;
use ostler_store::private_file;
use ostler_wire::Era;
use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;

/// A record is some hundred bytes; a larger file is none.
const MAX_FILE: u64 = 4 << 10;

/// A good start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StartRecord {
    pub(crate) era: Era,
    /// Time from the first process to the end of the handshake.
    pub(crate) took: Duration,
}

/// The last good start of one server, shared by its sessions.
#[derive(Debug)]
pub(crate) struct LastGoodStart {
    /// The file; `None` keeps nothing between runs.
    path: Option<PathBuf>,
    transport: String,
    last: Mutex<Option<StartRecord>>,
    /// Set once the file was read.
    read: OnceCell<()>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StartRecordFile {
    transport: String,
    is_modern: bool,
    took_ms: u64,
}

impl LastGoodStart {
    pub(crate) fn new(spec: &ServerSpec, state_dir: Option<&PathBuf>) -> Arc<Self> {
        Arc::new(Self {
            path: state_dir.map(|dir| dir.join("starts").join(format!("{}.json", spec.name))),
            transport: transport_fingerprint(spec),
            last: Mutex::default(),
            read: OnceCell::new(),
        })
    }

    /// Returns the last good start, of this run or of one before.
    pub(crate) async fn get(&self) -> Option<StartRecord> {
        self.read
            .get_or_init(|| async {
                let Some(path) = self.path.clone() else { return };
                let read =
                    tokio::task::spawn_blocking(move || private_file::read_at_most(&path, MAX_FILE)).await;
                let kept = read
                    .ok()
                    .flatten()
                    .and_then(|text| serde_json::from_slice::<StartRecordFile>(&text).ok());
                if let Some(kept) = kept.filter(|kept| kept.transport == self.transport) {
                    let era = if kept.is_modern { Era::Modern } else { Era::Legacy };
                    let took = Duration::from_millis(kept.took_ms);
                    self.lock().get_or_insert(StartRecord { era, took });
                }
            })
            .await;
        *self.lock()
    }

    /// Keeps a start. One that differs little from the last is not written: a server that is restarted often must not
    /// wear out a disk.
    pub(crate) fn set(&self, record: StartRecord) {
        let before = self.lock().replace(record);
        let is_like = |before: StartRecord| {
            let (short, long) = (before.took.min(record.took), before.took.max(record.took));
            before.era == record.era && long <= short * 2 + Duration::from_secs(1)
        };
        let Some(path) = self.path.clone() else { return };
        if before.is_some_and(is_like) {
            return;
        }
        let took_ms = u64::try_from(record.took.as_millis()).unwrap_or(u64::MAX);
        let kept = StartRecordFile {
            transport: self.transport.clone(),
            is_modern: record.era == Era::Modern,
            took_ms,
        };
        tokio::task::spawn_blocking(move || {
            let text = serde_json::to_vec(&kept).map_err(Into::into);
            let keep = |text: Vec<u8>| {
                private_file::create_parent_dir(&path)?;
                private_file::replace_file(&path, &text)
            };
            if let Err(error) = text.and_then(keep) {
                tracing::warn!(path = %path.display(), %error, "the record of a start could not be kept");
            }
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<StartRecord>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use ostler_core::server_name::ServerName;

    use super::*;

    fn spec(command: &str) -> ServerSpec {
        ServerSpec::stdio(ServerName::new("s").unwrap(), command)
    }

    #[tokio::test]
    async fn a_record_outlives_the_run_and_is_lost_with_the_command() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().to_owned();
        let record = StartRecord { era: Era::Legacy, took: Duration::from_millis(1_500) };
        let first = LastGoodStart::new(&spec("one"), Some(&home));
        assert_eq!(first.get().await, None);
        first.set(record);
        while !home.join("starts/s.json").exists() {
            tokio::task::yield_now().await;
        }
        assert_eq!(LastGoodStart::new(&spec("one"), Some(&home)).get().await, Some(record));
        assert_eq!(LastGoodStart::new(&spec("two"), Some(&home)).get().await, None);
        std::fs::write(home.join("starts/s.json"), b"{").unwrap();
        assert_eq!(LastGoodStart::new(&spec("one"), Some(&home)).get().await, None);
    }
}
