//! Console of the daemon: one line on stderr for each thing that happens to a server.
//!
//! Each line says what happened, why, and what to type next. A server that flaps gets [`MOST_LINES`] lines a minute and
//! then one that sums up. A thread of its own writes the lines, so a terminal that does not read holds up no server.

mod quota;
mod words;
mod writer;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use ostler_core::config::mask_secrets;
use ostler_host::{Act, Happening, Host, What};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use self::quota::{Quota, Ruling};
use self::words::{Cause, Note};
use self::writer::Writer;
use crate::clock;
use crate::invocation::Invocation;
use crate::output::{Style, Tint, clean};

/// Lines about one server in a minute: a crash and its recovery five times over.
const MOST_LINES: u32 = 10;

/// Time in which changed definitions of one list arrive; they share a line.
const GATHER: Duration = Duration::from_millis(200);

/// Processes of one isolated server whose failures are remembered. Of others the recovery is not told.
const MOST_PARTITIONS: usize = 64;

/// Names of definitions in one line.
const MOST_NAMES: usize = 3;

/// The console of one daemon.
#[derive(Debug)]
pub(crate) struct Console {
    writer: Writer,
    style: Style,
    /// Whether a person reads along: the time of day is enough then.
    is_terminal: bool,
    hints: Invocation,
    servers: Mutex<BTreeMap<String, Server>>,
}

/// What the console remembers of a server.
#[derive(Debug, Default)]
struct Server {
    quota: Quota,
    /// What failed and has not recovered, by partition.
    down: BTreeMap<String, Down>,
    /// Whether it was told that calls are held back.
    is_held_back: bool,
    /// Definitions that are not approved, gathered for one line.
    unapproved: Unapproved,
}

#[derive(Debug, Default)]
struct Down {
    /// A failure whose consequence is told next, by the same task.
    setback: Option<Setback>,
    /// The line that was told last: a failure that repeats is told once.
    told: Option<(Note, String)>,
}

#[derive(Debug)]
struct Setback {
    was_up: bool,
    cause: String,
}

#[derive(Debug, Default)]
struct Unapproved {
    names: Vec<String>,
    more: usize,
    is_refused: bool,
}

impl Console {
    /// Opens the console on stderr. Hints name the config as it was typed.
    pub(super) fn open(config: Option<&Path>) -> Arc<Self> {
        Arc::new(Self {
            writer: Writer::stderr(),
            style: Style::stderr(),
            is_terminal: std::io::stderr().is_terminal(),
            hints: Invocation::new(config),
            servers: Mutex::default(),
        })
    }

    /// The commands that lines name.
    pub(super) fn hints(&self) -> &Invocation {
        &self.hints
    }

    /// Tells of everything that happens to the servers of a host from now on.
    pub(super) fn watch(self: &Arc<Self>, host: &Host) {
        let (console, secrets) = (Arc::clone(self), host.clone());
        host.add_observer(Arc::new(move |happening| {
            console.hear(happening, &|text| secrets.hide_secrets(&mask_secrets(text)).into_owned());
        }));
    }

    /// Writes a line, with the time before it.
    pub(super) fn say(&self, tint: Tint, text: &str) {
        let stamp = clock::rfc3339(SystemTime::now());
        let stamp = match self.is_terminal {
            true => format!("{}Z", &stamp[11..19]),
            false => format!("{}Z", &stamp[..19]),
        };
        self.writer.write(format!(
            "{} {}",
            self.style.paint(Tint::Faint, &stamp),
            self.style.paint(tint, text)
        ));
    }

    /// Waits until all lines are written, or for as long as that may take.
    pub(super) fn close(&self, patience: Duration) {
        self.writer.close(patience);
    }

    fn hear(self: &Arc<Self>, happening: &Happening<'_>, hide: &dyn Fn(&str) -> String) {
        let Happening { server, partition, what } = *happening;
        if let What::DefinitionChanged { tool, is_refused, .. } = what {
            return self.gather(server, &clean(&hide(tool)), is_refused);
        }
        let mut servers = self.servers();
        if let What::Operated { act: Act::Remove, .. } = what {
            servers.remove(server);
            return;
        }
        let known = servers.entry(server.to_owned()).or_default();
        let Some((note, cause)) = known.hear(partition, what, hide) else { return };
        self.tell(server, known, (note.tint(), note.text(server, partition, &cause, &self.hints)));
    }

    /// Says a line about a server unless it has had its share; then it is summed up later.
    fn tell(self: &Arc<Self>, server: &str, known: &mut Server, (tint, text): (Tint, String)) {
        match known.quota.ask(Instant::now(), (tint, &text)) {
            Ruling::Say { before } => {
                before.into_iter().for_each(|(tint, text)| self.say(tint, &self.sum_up(server, &text)));
                self.say(tint, &text);
            }
            Ruling::Hold { until: Some(until) } => self.later(server, until, |console, server, known| {
                if let Some((tint, text)) = known.quota.sum_up() {
                    console.say(tint, &console.sum_up(server, &text));
                }
            }),
            Ruling::Hold { until: None } => {}
        }
    }

    fn sum_up(&self, server: &str, held: &quota::Held) -> String {
        words::sum_up(server, held, &self.hints)
    }

    /// Gathers definitions that are not approved; the first of them has the line said a moment later.
    fn gather(self: &Arc<Self>, server: &str, name: &str, is_refused: bool) {
        let mut servers = self.servers();
        let unapproved = &mut servers.entry(server.to_owned()).or_default().unapproved;
        let is_first = unapproved.names.is_empty();
        unapproved.is_refused = is_refused;
        match unapproved.names.len() < MOST_NAMES {
            true => unapproved.names.push(name.to_owned()),
            false => unapproved.more += 1,
        }
        drop(servers);
        if is_first {
            self.later(server, Instant::now() + GATHER, |console, server, known| {
                let Unapproved { names, more, is_refused } = std::mem::take(&mut known.unapproved);
                let text = words::unapproved(server, (&names, more), is_refused, &console.hints);
                console.tell(server, known, (Tint::Doubtful, text));
            });
        }
    }

    /// Does something with what is known of a server at a later time, if both are there still.
    fn later(self: &Arc<Self>, server: &str, at: Instant, act: fn(&Arc<Self>, &str, &mut Server)) {
        let (console, server): (Weak<Self>, String) = (Arc::downgrade(self), server.to_owned());
        // Without a runtime there is no later: the host ends.
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            sleep_until(at).await;
            let Some(console) = console.upgrade() else { return };
            let mut servers = console.servers();
            if let Some(known) = servers.get_mut(&server) {
                act(&console, &server, known);
            }
        });
    }

    fn servers(&self) -> MutexGuard<'_, BTreeMap<String, Server>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    /// Takes note of something; gives what is to be told of it, and its cause.
    fn hear(
        &mut self,
        partition: &str,
        what: What<'_>,
        hide: &dyn Fn(&str) -> String,
    ) -> Option<(Note, String)> {
        let cause_of = |cause: &str| Cause(&hide(cause)).to_string();
        match what {
            What::Lost { cause, .. } => self.note_setback(partition, true, cause_of(cause)),
            What::StartFailed { cause, .. } => self.note_setback(partition, false, cause_of(cause)),
            What::RestartPlanned { delay } => {
                let Setback { was_up, cause } = self.take_setback(partition)?;
                let note = if was_up { Note::Lost { delay } } else { Note::NotStarted { delay } };
                self.once(partition, note, cause)
            }
            What::Ejected { ejection, remedy, readmit_in, .. } => {
                let Setback { cause, .. } = self.take_setback(partition)?;
                let remedy = remedy.map(cause_of);
                self.once(partition, Note::Ejected { ejection, remedy, readmit_in }, cause)
            }
            What::NeedsAuth { retry_in, .. } => {
                let Setback { cause, .. } = self.take_setback(partition)?;
                self.once(partition, Note::NeedsAuth { retry_in }, cause)
            }
            What::Started { took, .. } => {
                self.down.remove(partition)?;
                Some((Note::Up { took }, String::new()))
            }
            What::BreakerOpened { wait } => {
                self.is_held_back = true;
                Some((Note::HeldBack { wait }, String::new()))
            }
            What::BreakerClosed => {
                std::mem::take(&mut self.is_held_back).then(|| (Note::LetThrough, String::new()))
            }
            What::Operated { act: Act::Stop, .. } => {
                self.down.clear();
                None
            }
            What::Ended { .. }
            | What::Readmitted
            | What::Operated { .. }
            | What::ResourceShadowed { .. }
            | What::DefinitionChanged { .. } => None,
        }
    }

    fn note_setback(&mut self, partition: &str, was_up: bool, cause: String) -> Option<(Note, String)> {
        if self.down.len() < MOST_PARTITIONS || self.down.contains_key(partition) {
            self.down.entry(partition.to_owned()).or_default().setback = Some(Setback { was_up, cause });
        }
        None
    }

    fn take_setback(&mut self, partition: &str) -> Option<Setback> {
        self.down.get_mut(partition)?.setback.take()
    }

    /// A failure that repeats in the same words is told once, until the server recovers.
    fn once(&mut self, partition: &str, note: Note, cause: String) -> Option<(Note, String)> {
        let down = self.down.get_mut(partition)?;
        let is_known = down.told.as_ref().is_some_and(|(told, why)| told.is_like(&note) && *why == cause);
        if is_known {
            return None;
        }
        down.told = Some((note.clone(), cause.clone()));
        Some((note, cause))
    }
}

#[cfg(test)]
mod tests;
