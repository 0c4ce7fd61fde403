//! Telemetry: receivers of everything that happens. The recorder gets each request, observers get the lifecycle events
//! of servers, listeners get the notifications of servers; the redactor keeps secrets out of all of it.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use ostler_core::caller::Caller;

use crate::host::Host;
use crate::lifecycle_event::{LifecycleEvent, LifecycleObserver};
use crate::notifications::NotificationBus;
use crate::record::{RecordBackpressure, Recorder};
use crate::redact::Redactor;

/// Recorder, observers, notification bus and redactor of one host.
#[derive(Default)]
pub(crate) struct Telemetry {
    recorder: ArcSwapOption<Recorder>,
    record_backpressure: ArcSwapOption<RecordBackpressure>,
    observer: ArcSwapOption<LifecycleObserver>,
    pub(crate) redactor: Arc<Redactor>,
    pub(crate) bus: Arc<NotificationBus>,
}

impl Telemetry {
    pub(crate) fn recorder(&self) -> Option<Recorder> {
        self.recorder.load().as_deref().cloned()
    }

    /// Waits until the recorder has room, if backpressure is set.
    pub(crate) async fn wait_for_recorder(&self, caller: &Caller) {
        let wait = self.record_backpressure.load().as_deref().and_then(|room| room(caller));
        if let Some(wait) = wait {
            wait.await;
        }
    }

    fn notify_observers(&self, happening: &LifecycleEvent<'_>) {
        if let Some(observer) = self.observer.load().as_deref() {
            observer(happening);
        }
    }

    /// Adds an observer, after the present ones.
    fn add_observer(&self, observer: LifecycleObserver) {
        let both: LifecycleObserver = match self.observer.load_full() {
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
    /// Sets the recorder, which gets one record per request from now on.
    pub fn set_recorder(&self, recorder: Option<Recorder>) {
        self.inner().telemetry.recorder.store(recorder.map(Arc::new));
    }

    /// Sets the backpressure: calls then wait for room for their record before they are sent.
    pub fn set_record_backpressure(&self, room: Option<RecordBackpressure>) {
        self.inner().telemetry.record_backpressure.store(room.map(Arc::new));
    }

    /// Sets the observer of servers' lifecycle events.
    pub fn set_observer(&self, observer: Option<LifecycleObserver>) {
        self.inner().telemetry.observer.store(observer.map(Arc::new));
    }

    /// Adds an observer, after the present ones.
    pub fn add_observer(&self, observer: LifecycleObserver) {
        self.inner().telemetry.add_observer(observer);
    }

    /// Reports an event to all observers. Must not be called with a lock held.
    pub(crate) fn notify_observers(&self, happening: &LifecycleEvent<'_>) {
        self.inner().telemetry.notify_observers(happening);
    }

    pub(crate) fn recorder(&self) -> Option<Recorder> {
        self.inner().telemetry.recorder()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::lifecycle_event::{LifecycleEventKind, OperatorAction};

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
        telemetry.notify_observers(&LifecycleEvent::for_server(
            "a",
            LifecycleEventKind::Operated { action: OperatorAction::Start, by: None },
        ));
        assert_eq!(*told.lock().unwrap(), ["first a", "second a"]);
    }

    #[tokio::test]
    async fn a_recorder_without_room_is_waited_for() {
        let telemetry = Telemetry::default();
        telemetry.wait_for_recorder(&Caller::local()).await;
        let is_waited_for = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_waited_for);
        let room: RecordBackpressure = Arc::new(move |_| {
            let flag = Arc::clone(&flag);
            Some(Box::pin(async move { flag.store(true, Ordering::Release) }))
        });
        telemetry.record_backpressure.store(Some(Arc::new(room)));
        telemetry.wait_for_recorder(&Caller::local()).await;
        assert!(is_waited_for.load(Ordering::Acquire));
    }
}
