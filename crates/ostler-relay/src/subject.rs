//! The subjects, and who can be read from one.
//!
//! ```text
//! ostler.<tenant>.manifest.<role>.<worker>                  what may I use?
//! ostler.<tenant>.call.<role>.<worker>                      a request
//! ostler.<tenant>.control.<worker>.<call>                   about a call: cancel, answer, acknowledge, resume
//! ostler.<tenant>.progress.<worker>.<call>                  accepted, progress, questions, chunks
//! ostler.<tenant>.heartbeat.<host>                          the host lives
//! _INBOX_<worker>.<instance>.<call>                         the answer
//! ```
//!
//! A token stands in a subject only where a permission of `ostler relay
//! nats-config` needs it: a worker may publish and read under its own role and
//! name alone, so both are facts here and not claims. What is asked for is the
//! host's to judge; server, method and tool travel in the header and the body,
//! where no monitoring of the broker shows them and any text fits.

use crate::call_id::CallId;
use crate::name::Name;

/// In the place of a call: about the worker as a whole.
const ALIVE: &str = "alive";

/// In the place of a call: about what the worker may use.
const MANIFEST: &str = "manifest";

/// The queue group of all hosts of a tenant.
pub const QUEUE: &str = "ostler-hosts";

/// The subjects of one tenant.
#[derive(Debug, Clone)]
pub struct Subjects {
    tenant: Name,
}

/// What a subject that a host listens to says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToHost {
    /// What may this worker use?
    Manifest {
        /// Its role.
        role: Name,
        /// Who asks.
        worker: Name,
    },
    /// A request.
    Call {
        /// The worker's role.
        role: Name,
        /// Who asks.
        worker: Name,
    },
    /// Something about a call that is under way.
    Control {
        /// Who says so.
        worker: Name,
        /// The call; none where it is about the worker.
        call: Option<CallId>,
    },
}

impl ToHost {
    /// Who says it.
    pub fn worker(&self) -> &Name {
        match self {
            Self::Manifest { worker, .. } | Self::Call { worker, .. } | Self::Control { worker, .. } => {
                worker
            }
        }
    }
}

/// What a subject that a worker listens to says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToWorker {
    /// Something about a call.
    Progress(CallId),
    /// What it may use has changed.
    Manifest,
    /// A host lives.
    Heartbeat(Name),
    /// The answer of a call, or what the worker may use if it asked for that.
    Answer(CallId),
}

impl Subjects {
    /// The subjects of a tenant.
    pub fn new(tenant: Name) -> Self {
        Self { tenant }
    }

    /// The tenant.
    pub fn tenant(&self) -> &Name {
        &self.tenant
    }

    fn root(&self, kind: &str) -> String {
        format!("ostler.{}.{kind}", self.tenant)
    }

    /// Where a worker asks what it may use.
    pub fn manifest(&self, role: &Name, worker: &Name) -> String {
        format!("{}.{role}.{worker}", self.root("manifest"))
    }

    /// Where a worker's requests go.
    pub fn call(&self, role: &Name, worker: &Name) -> String {
        format!("{}.{role}.{worker}", self.root("call"))
    }

    /// Where a worker says something about one of its calls.
    pub fn control(&self, worker: &Name, call: CallId) -> String {
        format!("{}.{worker}.{call}", self.root("control"))
    }

    /// Where a worker says that it lives.
    pub fn alive(&self, worker: &Name) -> String {
        format!("{}.{worker}.{ALIVE}", self.root("control"))
    }

    /// Where a worker hears of one of its calls.
    pub fn progress(&self, worker: &Name, call: CallId) -> String {
        format!("{}.{worker}.{call}", self.root("progress"))
    }

    /// Where a worker hears that what it may use has changed.
    pub fn changed(&self, worker: &Name) -> String {
        format!("{}.{worker}.{MANIFEST}", self.root("progress"))
    }

    /// Where a host says that it lives.
    pub fn heartbeat(&self, host: &Name) -> String {
        format!("{}.{host}", self.root("heartbeat"))
    }

    /// What hosts listen to: with whether one of them all is enough.
    pub fn of_hosts(&self) -> [(String, Option<&'static str>); 3] {
        [
            (format!("{}.*.*", self.root("manifest")), Some(QUEUE)),
            (format!("{}.*.*", self.root("call")), Some(QUEUE)),
            (format!("{}.*.*", self.root("control")), None),
        ]
    }

    /// What a worker listens to.
    pub fn of_worker(&self, worker: &Name, inbox: &Inbox) -> [String; 3] {
        [self.progress_of(worker), self.all_heartbeats(), format!("{}.*", inbox.0)]
    }

    /// All that a worker says about its calls and about itself.
    pub(crate) fn all_control(&self, worker: &Name) -> String {
        format!("{}.{worker}.*", self.root("control"))
    }

    /// All that a worker hears of its calls before their answers.
    pub(crate) fn progress_of(&self, worker: &Name) -> String {
        format!("{}.{worker}.*", self.root("progress"))
    }

    /// The same, of all workers.
    pub(crate) fn all_progress(&self) -> String {
        format!("{}.*.*", self.root("progress"))
    }

    /// The signs of life of all hosts.
    pub(crate) fn all_heartbeats(&self) -> String {
        format!("{}.*", self.root("heartbeat"))
    }

    /// What has come to a host.
    pub fn read_to_host(&self, subject: &str) -> Option<ToHost> {
        let mut tokens = self.tokens(subject)?;
        let to_host = match tokens.next()? {
            "manifest" => ToHost::Manifest { role: name(&mut tokens)?, worker: name(&mut tokens)? },
            "call" => ToHost::Call { role: name(&mut tokens)?, worker: name(&mut tokens)? },
            "control" => {
                let worker = name(&mut tokens)?;
                let call = match tokens.next()? {
                    ALIVE => None,
                    call => Some(CallId::parse(call)?),
                };
                ToHost::Control { worker, call }
            }
            _ => return None,
        };
        tokens.next().is_none().then_some(to_host)
    }

    /// What has come to a worker.
    pub fn read_to_worker(&self, inbox: &Inbox, subject: &str) -> Option<ToWorker> {
        if let Some(rest) = subject.strip_prefix(&inbox.0) {
            return CallId::parse(rest.strip_prefix('.')?).map(ToWorker::Answer);
        }
        let mut tokens = self.tokens(subject)?;
        let to_worker = match tokens.next()? {
            "progress" => {
                name(&mut tokens)?;
                match tokens.next()? {
                    MANIFEST => ToWorker::Manifest,
                    call => ToWorker::Progress(CallId::parse(call)?),
                }
            }
            "heartbeat" => ToWorker::Heartbeat(name(&mut tokens)?),
            _ => return None,
        };
        tokens.next().is_none().then_some(to_worker)
    }

    fn tokens<'s>(&self, subject: &'s str) -> Option<std::str::Split<'s, char>> {
        let mut tokens = subject.split('.');
        (tokens.next()? == "ostler" && tokens.next()? == self.tenant.as_str()).then_some(tokens)
    }
}

/// Where the answers of one life of a worker arrive.
#[derive(Debug, Clone)]
pub struct Inbox(String);

impl Inbox {
    /// The inbox of a worker's life.
    pub fn new(worker: &Name, instance: crate::Instance) -> Self {
        Self(format!("_INBOX_{worker}.{instance}"))
    }

    /// Where the answer of a call goes.
    pub fn answer(&self, call: CallId) -> String {
        format!("{}.{call}", self.0)
    }
}

fn name(tokens: &mut std::str::Split<'_, char>) -> Option<Name> {
    Name::new(tokens.next()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Instance;

    fn subjects() -> Subjects {
        Subjects::new(name("acme"))
    }

    fn name(text: &str) -> Name {
        Name::new(text).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_call_is_read_back_from_its_subject() {
        let (role, worker) = (name("dev"), name("w1"));
        let subject = subjects().call(&role, &worker);
        assert_eq!(subject, "ostler.acme.call.dev.w1");
        assert_eq!(subjects().read_to_host(&subject), Some(ToHost::Call { role, worker }));
    }

    #[test]
    fn subjects_of_others_mean_nothing() {
        let call = CallId::new(1, &[0; 10]);
        for subject in [
            "",
            "ostler",
            "ostler.other.manifest.dev.w1",
            "ostler.acme.manifest.dev",
            "ostler.acme.manifest.dev.w1.more",
            "ostler.acme.manifest.d*v.w1",
            "ostler.acme.call.dev",
            "ostler.acme.call.dev.w1.",
            "ostler.acme.call.dev.w1.server.tool",
            "ostler.acme.control.w1.nothing",
            "ostler.acme.progress.w1.alive",
        ] {
            assert_eq!(subjects().read_to_host(subject), None, "{subject}");
        }
        let subject = subjects().control(&name("w1"), call);
        let control = ToHost::Control { worker: name("w1"), call: Some(call) };
        assert_eq!(subjects().read_to_host(&subject), Some(control));
        let control = ToHost::Control { worker: name("w1"), call: None };
        assert_eq!(subjects().read_to_host(&subjects().alive(&name("w1"))), Some(control));
    }

    #[test]
    fn a_worker_reads_what_is_for_it() {
        let (worker, call) = (name("w1"), CallId::new(1, &[0; 10]));
        let inbox = Inbox::new(&worker, Instance(7));
        let table = [
            (subjects().progress(&worker, call), Some(ToWorker::Progress(call))),
            (subjects().changed(&worker), Some(ToWorker::Manifest)),
            (subjects().heartbeat(&name("h")), Some(ToWorker::Heartbeat(name("h")))),
            (inbox.answer(call), Some(ToWorker::Answer(call))),
            (Inbox::new(&worker, Instance(8)).answer(call), None),
            (format!("_INBOX_w1.0000000000000007x.{call}"), None),
        ];
        for (subject, means) in table {
            assert_eq!(subjects().read_to_worker(&inbox, &subject), means, "{subject}");
        }
    }
}
