//! Start limiter: bounds the concurrent starts, and serializes downloads of one package manager.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ostler_core::downloader::Downloader;
use ostler_core::status::StartStage;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

use crate::server::startup::Startup;

/// Concurrent starts on a machine with few cores; one of them is often waiting for a disk or a network.
const MIN_CONCURRENT_STARTS: usize = 4;

/// The start limiter of one host.
pub(crate) struct StartLimiter {
    concurrency: Arc<Semaphore>,
    /// One lock for each package manager that was ever used; there are about a dozen.
    downloads: Mutex<HashMap<Downloader, Arc<tokio::sync::Mutex<()>>>>,
}

/// Permit to start a process. Its parts are released as soon as the start does not need them any more.
#[derive(Default)]
pub(crate) struct StartPermit {
    concurrency: Option<OwnedSemaphorePermit>,
    download: Option<OwnedMutexGuard<()>>,
}

impl StartLimiter {
    pub(crate) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            concurrency: Arc::new(Semaphore::new(MIN_CONCURRENT_STARTS.max(2 * cores))),
            downloads: Mutex::default(),
        }
    }

    /// Waits until no other start downloads with the same package manager.
    pub(crate) async fn acquire_download(&self, downloader: Downloader, startup: &Startup) -> StartPermit {
        let download = {
            let mut downloads = self.downloads.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(downloads.entry(downloader).or_default())
        };
        let download = match Arc::clone(&download).try_lock_owned() {
            Ok(download) => download,
            Err(_) => {
                startup.enter_stage(StartStage::WaitingForDownload);
                download.lock_owned().await
            }
        };
        StartPermit { concurrency: None, download: Some(download) }
    }

    /// Waits for the concurrency permit.
    pub(crate) async fn acquire(&self, permit: &mut StartPermit, startup: &Startup) {
        startup.enter_stage(StartStage::Queued);
        // The semaphore is never closed.
        permit.concurrency = Arc::clone(&self.concurrency).acquire_owned().await.ok();
    }
}

impl StartPermit {
    /// Releases the parts that the start does not need any more.
    pub(crate) fn release_unneeded(&mut self, startup: &Startup) {
        self.concurrency.take_if(|_| startup.may_yield_turn());
        self.download.take_if(|_| startup.may_yield_download());
    }
}
