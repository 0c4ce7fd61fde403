//! Subjects: how they are built and parsed.
//!
//! ```text
//! ostler.<tenant>.manifest.<role>.<worker>                  manifest request
//! ostler.<tenant>.call.<role>.<worker>                      request
//! ostler.<tenant>.control.<worker>.<call>                   cancel, answer, acknowledge, resume a call
//! ostler.<tenant>.progress.<worker>.<call>                  accepted, progress, server requests, chunks
//! ostler.<tenant>.heartbeat.<host>                          heartbeat
//! _INBOX_<worker>.<instance>.<call>                         answer
//! ```
//!
//! A subject contains only the tokens that a permission of `ostler relay nats-config` needs. A worker may
//! publish and subscribe under its own role and name alone, so the host trusts both tokens. Server, method and
//! tool travel in headers and body, where the broker's monitoring does not show them and any text fits; the
//! host checks them.

use crate::call_id::CallId;
use crate::name::RelayName;

/// Token in place of a call id: concerns the worker as a whole.
const ALIVE: &str = "alive";

/// Token in place of a call id: concerns the worker's manifest.
const MANIFEST: &str = "manifest";

/// Queue group of all hosts of a tenant: each request reaches one of them.
pub const HOST_QUEUE_GROUP: &str = "ostler-hosts";

/// Subjects of one tenant.
#[derive(Debug, Clone)]
pub struct Subjects {
    tenant: RelayName,
}

/// Parsed subject of a message to a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostSubject {
    /// A manifest request.
    Manifest {
        /// Role of the worker.
        role: RelayName,
        /// Worker that asks.
        worker: RelayName,
    },
    /// A request.
    Call {
        /// Role of the worker.
        role: RelayName,
        /// Worker that calls.
        worker: RelayName,
    },
    /// A message about a call in flight, or a sign of life.
    Control {
        /// Worker that sends it.
        worker: RelayName,
        /// Id of the call; `None` if the message concerns the worker.
        call: Option<CallId>,
    },
}

impl HostSubject {
    /// Returns the worker that sent the message.
    pub fn worker(&self) -> &RelayName {
        match self {
            Self::Manifest { worker, .. } | Self::Call { worker, .. } | Self::Control { worker, .. } => {
                worker
            }
        }
    }
}

/// Parsed subject of a message to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerSubject {
    /// Progress, server request or chunk of a call.
    Progress(CallId),
    /// The worker's manifest has changed.
    ManifestChanged,
    /// Heartbeat of a host.
    Heartbeat(RelayName),
    /// Answer of a call or of a manifest request.
    Answer(CallId),
}

impl Subjects {
    /// Returns the subjects of `tenant`.
    pub fn new(tenant: RelayName) -> Self {
        Self { tenant }
    }

    /// Returns the tenant.
    pub fn tenant(&self) -> &RelayName {
        &self.tenant
    }

    fn root(&self, kind: &str) -> String {
        format!("ostler.{}.{kind}", self.tenant)
    }

    /// Returns the subject of a worker's manifest requests.
    pub fn manifest(&self, role: &RelayName, worker: &RelayName) -> String {
        format!("{}.{role}.{worker}", self.root("manifest"))
    }

    /// Returns the subject of a worker's calls.
    pub fn call(&self, role: &RelayName, worker: &RelayName) -> String {
        format!("{}.{role}.{worker}", self.root("call"))
    }

    /// Returns the subject of a worker's messages about `call`.
    pub fn control(&self, worker: &RelayName, call: CallId) -> String {
        format!("{}.{worker}.{call}", self.root("control"))
    }

    /// Returns the subject of a worker's signs of life.
    pub fn alive(&self, worker: &RelayName) -> String {
        format!("{}.{worker}.{ALIVE}", self.root("control"))
    }

    /// Returns the subject of a host's messages about `call`.
    pub fn progress(&self, worker: &RelayName, call: CallId) -> String {
        format!("{}.{worker}.{call}", self.root("progress"))
    }

    /// Returns the subject that announces a new manifest to a worker.
    pub fn manifest_changed(&self, worker: &RelayName) -> String {
        format!("{}.{worker}.{MANIFEST}", self.root("progress"))
    }

    /// Returns the subject of a host's heartbeats.
    pub fn heartbeat(&self, host: &RelayName) -> String {
        format!("{}.{host}", self.root("heartbeat"))
    }

    /// Returns the subjects that hosts subscribe to, each with its queue group: with a group one
    /// host gets the message, without one every host.
    pub fn host_subscriptions(&self) -> [(String, Option<&'static str>); 3] {
        [
            (format!("{}.*.*", self.root("manifest")), Some(HOST_QUEUE_GROUP)),
            (format!("{}.*.*", self.root("call")), Some(HOST_QUEUE_GROUP)),
            (format!("{}.*.*", self.root("control")), None),
        ]
    }

    /// Returns the subjects that a worker subscribes to.
    pub fn worker_subscriptions(&self, worker: &RelayName, inbox: &WorkerInbox) -> [String; 3] {
        [self.progress_wildcard(worker), self.heartbeat_wildcard(), format!("{}.*", inbox.0)]
    }

    /// Returns the pattern of all control messages of a worker.
    pub(crate) fn control_wildcard(&self, worker: &RelayName) -> String {
        format!("{}.{worker}.*", self.root("control"))
    }

    /// Returns the pattern of all progress messages to a worker.
    pub(crate) fn progress_wildcard(&self, worker: &RelayName) -> String {
        format!("{}.{worker}.*", self.root("progress"))
    }

    /// Returns the pattern of the progress messages to all workers.
    pub(crate) fn all_progress_wildcard(&self) -> String {
        format!("{}.*.*", self.root("progress"))
    }

    /// Returns the pattern of all heartbeats.
    pub(crate) fn heartbeat_wildcard(&self) -> String {
        format!("{}.*", self.root("heartbeat"))
    }

    /// Parses the subject of a message to a host; `None` if it is not one of this tenant.
    pub fn parse_host_subject(&self, subject: &str) -> Option<HostSubject> {
        let mut tokens = self.tokens(subject)?;
        let parsed = match tokens.next()? {
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
        tokens.next().is_none().then_some(parsed)
    }

    /// Parses the subject of a message to a worker; `None` if it is not one of this tenant or
    /// inbox.
    pub fn parse_worker_subject(&self, inbox: &WorkerInbox, subject: &str) -> Option<WorkerSubject> {
        if let Some(rest) = subject.strip_prefix(&inbox.0) {
            return CallId::parse(rest.strip_prefix('.')?).map(WorkerSubject::Answer);
        }
        let mut tokens = self.tokens(subject)?;
        let parsed = match tokens.next()? {
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
        tokens.next().is_none().then_some(parsed)
    }

    fn tokens<'s>(&self, subject: &'s str) -> Option<std::str::Split<'s, char>> {
        let mut tokens = subject.split('.');
        (tokens.next()? == "ostler" && tokens.next()? == self.tenant.as_str()).then_some(tokens)
    }
}

/// Inbox of one worker instance: the subjects that its answers arrive on.
#[derive(Debug, Clone)]
pub struct WorkerInbox(String);

impl WorkerInbox {
    /// Returns the inbox of a worker instance.
    pub fn new(worker: &RelayName, instance: crate::Instance) -> Self {
        Self(format!("_INBOX_{worker}.{instance}"))
    }

    /// Returns the subject of the answer to `call`.
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
        for (subject, expected) in table {
            assert_eq!(subjects().parse_worker_subject(&inbox, &subject), expected, "{subject}");
        }
    }
}
