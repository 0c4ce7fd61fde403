//! Telemetry: everybody who is told what happens. The recorder hears of each request, the observer of what becomes of
//! servers, listeners of what servers say; the redactor keeps secrets out of all of it.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::bus::Bus;
use crate::happening::{Happening, Observer};
use crate::host::Host;
use crate::record::{RecordRoom, Recorder};
use crate::secrets::Veil;

/// Tells what happens.
#[derive(Default)]
pub(crate) struct Telemetry {
    recorder: ArcSwapOption<Recorder>,
    record_room: ArcSwapOption<RecordRoom>,
    observer: ArcSwapOption<Observer>,
    pub(crate) redactor: Arc<Veil>,
    pub(crate) bus: Arc<Bus>,
}

impl Telemetry {
    pub(crate) fn recorder(&self) -> Option<Recorder> {
        self.recorder.load().as_deref().cloned()
    }

    /// Waits until the recorder has room, if it is set to make calls wait.
    pub(crate) async fn record_room(&self) {
        let wait = self.record_room.load().as_deref().and_then(|room| room());
        if let Some(wait) = wait {
            wait.await;
        }
    }

    fn happened(&self, happening: &Happening<'_>) {
        if let Some(observer) = self.observer.load().as_deref() {
            observer(happening);
        }
    }

    /// Tells one more observer, after those that are told already.
    fn add_observer(&self, observer: Observer) {
        let both: Observer = match self.observer.load_full() {
            None => observer,
            Some(before) => Arc::new(move |happening| {
                before(happening);
                observer(happening);
            }),
        };
        self.observer.store(Some(Arc::new(both)));
    }
}

impl Host {
    /// Takes one record per request from now on.
    pub fn set_recorder(&self, recorder: Option<Recorder>) {
        self.shared().telemetry.recorder.store(recorder.map(Arc::new));
    }

    /// Makes calls wait for room for their record before they are sent.
    pub fn set_record_room(&self, room: Option<RecordRoom>) {
        self.shared().telemetry.record_room.store(room.map(Arc::new));
    }

    /// Tells of everything that happens to servers from now on.
    pub fn set_observer(&self, observer: Option<Observer>) {
        self.shared().telemetry.observer.store(observer.map(Arc::new));
    }

    /// Tells one more observer, after those that are told already.
    pub fn add_observer(&self, observer: Observer) {
        self.shared().telemetry.add_observer(observer);
    }

    /// Tells all observers. Must not be called with a lock held.
    pub(crate) fn happened(&self, happening: &Happening<'_>) {
        self.shared().telemetry.happened(happening);
    }

    pub(crate) fn recorder(&self) -> Option<Recorder> {
        self.shared().telemetry.recorder()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::happening::{Act, What};

    #[test]
    fn observers_are_told_in_the_order_in_which_they_came() {
        let telemetry = Telemetry::default();
        let told = Arc::new(Mutex::new(Vec::new()));
        for name in ["first", "second"] {
            let told = Arc::clone(&told);
            telemetry.add_observer(Arc::new(move |happening| {
                told.lock().unwrap().push(format!("{name} {}", happening.server));
            }));
        }
        telemetry.happened(&Happening::of("a", What::Operated { act: Act::Start, by: None }));
        assert_eq!(*told.lock().unwrap(), ["first a", "second a"]);
    }

    #[tokio::test]
    async fn a_recorder_without_room_is_waited_for() {
        let telemetry = Telemetry::default();
        telemetry.record_room().await;
        let is_waited_for = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_waited_for);
        let room: RecordRoom = Arc::new(move || {
            let flag = Arc::clone(&flag);
            Some(Box::pin(async move { flag.store(true, Ordering::Release) }))
        });
        telemetry.record_room.store(Some(Arc::new(room)));
        telemetry.record_room().await;
        assert!(is_waited_for.load(Ordering::Acquire));
    }
}
