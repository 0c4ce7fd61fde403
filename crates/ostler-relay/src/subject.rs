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
use crate::name::RelayName;

/// In the place of a call: about the worker as a whole.
const ALIVE: &str = "alive";

/// In the place of a call: about what the worker may use.
const MANIFEST: &str = "manifest";

/// The queue group of all hosts of a tenant.
pub const HOST_QUEUE_GROUP: &str = "ostler-hosts";

/// The subjects of one tenant.
#[derive(Debug, Clone)]
pub struct Subjects {
    tenant: RelayName,
}

/// What a subject that a host listens to says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostSubject {
    /// What may this worker use?
    Manifest {
        /// Its role.
        role: RelayName,
        /// Who asks.
        worker: RelayName,
    },
    /// A request.
    Call {
        /// The worker's role.
        role: RelayName,
        /// Who asks.
        worker: RelayName,
    },
    /// Something about a call that is under way.
    Control {
        /// Who says so.
        worker: RelayName,
        /// The call; none where it is about the worker.
        call: Option<CallId>,
    },
}

impl HostSubject {
    /// Who says it.
    pub fn worker(&self) -> &RelayName {
        match self {
            Self::Manifest { worker, .. } | Self::Call { worker, .. } | Self::Control { worker, .. } => {
                worker
            }
        }
    }
}

/// What a subject that a worker listens to says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerSubject {
    /// Something about a call.
    Progress(CallId),
    /// What it may use has changed.
    ManifestChanged,
    /// A host lives.
    Heartbeat(RelayName),
    /// The answer of a call, or what the worker may use if it asked for that.
    Answer(CallId),
}

impl Subjects {
    /// The subjects of a tenant.
    pub fn new(tenant: RelayName) -> Self {
        Self { tenant }
    }

    /// The tenant.
    pub fn tenant(&self) -> &RelayName {
        &self.tenant
    }

    fn root(&self, kind: &str) -> String {
        format!("ostler.{}.{kind}", self.tenant)
    }

    /// Where a worker asks what it may use.
    pub fn manifest(&self, role: &RelayName, worker: &RelayName) -> String {
        format!("{}.{role}.{worker}", self.root("manifest"))
    }

    /// Where a worker's requests go.
    pub fn call(&self, role: &RelayName, worker: &RelayName) -> String {
        format!("{}.{role}.{worker}", self.root("call"))
    }

    /// Where a worker says something about one of its calls.
    pub fn control(&self, worker: &RelayName, call: CallId) -> String {
        format!("{}.{worker}.{call}", self.root("control"))
    }

    /// Where a worker says that it lives.
    pub fn alive(&self, worker: &RelayName) -> String {
        format!("{}.{worker}.{ALIVE}", self.root("control"))
    }

    /// Where a worker hears of one of its calls.
    pub fn progress(&self, worker: &RelayName, call: CallId) -> String {
        format!("{}.{worker}.{call}", self.root("progress"))
    }

    /// Where a worker hears that what it may use has changed.
    pub fn manifest_changed(&self, worker: &RelayName) -> String {
        format!("{}.{worker}.{MANIFEST}", self.root("progress"))
    }

    /// Where a host says that it lives.
    pub fn heartbeat(&self, host: &RelayName) -> String {
        format!("{}.{host}", self.root("heartbeat"))
    }

    /// What hosts listen to: with whether one of them all is enough.
    pub fn host_subscriptions(&self) -> [(String, Option<&'static str>); 3] {
        [
            (format!("{}.*.*", self.root("manifest")), Some(HOST_QUEUE_GROUP)),
            (format!("{}.*.*", self.root("call")), Some(HOST_QUEUE_GROUP)),
            (format!("{}.*.*", self.root("control")), None),
        ]
    }

    /// What a worker listens to.
    pub fn worker_subscriptions(&self, worker: &RelayName, inbox: &WorkerInbox) -> [String; 3] {
        [self.progress_wildcard(worker), self.heartbeat_wildcard(), format!("{}.*", inbox.0)]
    }

    /// All that a worker says about its calls and about itself.
    pub(crate) fn control_wildcard(&self, worker: &RelayName) -> String {
        format!("{}.{worker}.*", self.root("control"))
    }

    /// All that a worker hears of its calls before their answers.
    pub(crate) fn progress_wildcard(&self, worker: &RelayName) -> String {
        format!("{}.{worker}.*", self.root("progress"))
    }

    /// The same, of all workers.
    pub(crate) fn all_progress_wildcard(&self) -> String {
        format!("{}.*.*", self.root("progress"))
    }

    /// The signs of life of all hosts.
    pub(crate) fn heartbeat_wildcard(&self) -> String {
        format!("{}.*", self.root("heartbeat"))
    }

    /// What has come to a host.
    pub fn parse_host_subject(&self, subject: &str) -> Option<HostSubject> {
        let mut tokens = self.tokens(subject)?;
        let to_host = match tokens.next()? {
            "manifest" => HostSubject::Manifest { role: name(&mut tokens)?, worker: name(&mut tokens)? },
            "call" => HostSubject::Call { role: name(&mut tokens)?, worker: name(&mut tokens)? },
            "control" => {
                let worker = name(&mut tokens)?;
                let call = match tokens.next()? {
                    ALIVE => None,
                    call => Some(CallId::parse(call)?),
                };
                HostSubject::Control { worker, call }
            }
            _ => return None,
        };
        tokens.next().is_none().then_some(to_host)
    }

    /// What has come to a worker.
    pub fn parse_worker_subject(&self, inbox: &WorkerInbox, subject: &str) -> Option<WorkerSubject> {
        if let Some(rest) = subject.strip_prefix(&inbox.0) {
            return CallId::parse(rest.strip_prefix('.')?).map(WorkerSubject::Answer);
        }
        let mut tokens = self.tokens(subject)?;
        let to_worker = match tokens.next()? {
            "progress" => {
                name(&mut tokens)?;
                match tokens.next()? {
                    MANIFEST => WorkerSubject::ManifestChanged,
                    call => WorkerSubject::Progress(CallId::parse(call)?),
                }
            }
            "heartbeat" => WorkerSubject::Heartbeat(name(&mut tokens)?),
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
pub struct WorkerInbox(String);

impl WorkerInbox {
    /// The inbox of a worker's life.
    pub fn new(worker: &RelayName, instance: crate::Instance) -> Self {
        Self(format!("_INBOX_{worker}.{instance}"))
    }

    /// Where the answer of a call goes.
    pub fn answer_subject(&self, call: CallId) -> String {
        format!("{}.{call}", self.0)
    }
}

fn name(tokens: &mut std::str::Split<'_, char>) -> Option<RelayName> {
    RelayName::new(tokens.next()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Instance;

    fn subjects() -> Subjects {
        Subjects::new(name("acme"))
    }

    fn name(text: &str) -> RelayName {
        RelayName::new(text).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_call_is_read_back_from_its_subject() {
        let (role, worker) = (name("dev"), name("w1"));
        let subject = subjects().call(&role, &worker);
        assert_eq!(subject, "ostler.acme.call.dev.w1");
        assert_eq!(subjects().parse_host_subject(&subject), Some(HostSubject::Call { role, worker }));
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
            assert_eq!(subjects().parse_host_subject(subject), None, "{subject}");
        }
        let subject = subjects().control(&name("w1"), call);
        let control = HostSubject::Control { worker: name("w1"), call: Some(call) };
        assert_eq!(subjects().parse_host_subject(&subject), Some(control));
        let control = HostSubject::Control { worker: name("w1"), call: None };
        assert_eq!(subjects().parse_host_subject(&subjects().alive(&name("w1"))), Some(control));
    }

    #[test]
    fn a_worker_reads_what_is_for_it() {
        let (worker, call) = (name("w1"), CallId::new(1, &[0; 10]));
        let inbox = WorkerInbox::new(&worker, Instance(7));
        let table = [
            (subjects().progress(&worker, call), Some(WorkerSubject::Progress(call))),
            (subjects().manifest_changed(&worker), Some(WorkerSubject::ManifestChanged)),
            (subjects().heartbeat(&name("h")), Some(WorkerSubject::Heartbeat(name("h")))),
            (inbox.answer_subject(call), Some(WorkerSubject::Answer(call))),
            (WorkerInbox::new(&worker, Instance(8)).answer_subject(call), None),
            (format!("_INBOX_w1.0000000000000007x.{call}"), None),
        ];
        for (subject, means) in table {
            assert_eq!(subjects().parse_worker_subject(&inbox, &subject), means, "{subject}");
        }
    }
}
