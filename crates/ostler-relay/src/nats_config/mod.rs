//! Prints the config of a NATS server that keeps workers and hosts apart.
//!
//! A worker may publish under its own role and name only, and read only what is
//! for it; so a host can believe what a subject says of its sender. A host may
//! take requests as one of the queue of hosts, and answer each once.
//!
//! ```text
//! worker W in role R                              host H
//!   publish    ostler.T.manifest.R.W                subscribe  ostler.T.manifest.*.*      queue ostler-hosts
//!              ostler.T.call.R.W                               ostler.T.call.*.*          queue ostler-hosts
//!              ostler.T.control.W.*                            ostler.T.control.*.*
//!   subscribe  _INBOX_W.>                                      _HOST_INBOX_H.>
//!              ostler.T.progress.W.*                publish    ostler.T.progress.*.*
//!              ostler.T.heartbeat.*                            ostler.T.heartbeat.H
//!                                                              the reply of a request, once
//! ```
//!
//! Where the answer goes is the asker's choice, and the server lets the host
//! publish it anywhere: that it is the asker's own inbox, only the host can check.
//!
//! No secret is printed: users have the public part of a key, or a password
//! that the NATS server takes from its environment.

mod user_key;

use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::Duration;

use crate::journal::kv_bucket;
use crate::name::Name;
use crate::subject::Subjects;

pub use user_key::{BadUserKey, UserKey, new_user_key};

/// How much longer than a call a host may answer: for the way, and for clocks.
const MARGIN: Duration = Duration::from_secs(60);

/// Where streams are kept unless somebody says so.
const STORE: &str = "/var/lib/nats";

/// What a config is wanted for.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Whose relay it is. Each tenant is an account of its own.
    pub tenant: Name,
    /// The hosts that serve it.
    pub hosts: Vec<HostUser>,
    /// Roles that must not be forgotten: one without a worker gets one of the
    /// role's own name, with a password.
    pub roles: Vec<Name>,
    /// The workers.
    pub workers: Vec<WorkerUser>,
    /// The longest that any call may take: so long an answer stays allowed.
    pub max_call_time: Duration,
    /// Whether hosts share a journal in a bucket. The server then needs JetStream.
    pub has_kv: bool,
    /// Where the server keeps the bucket; [`Wanted::has_kv`] alone asks for it.
    pub store: Option<String>,
}

/// A host, as a user of the NATS server. Its user name is `host-NAME`.
#[derive(Debug, Clone)]
pub struct HostUser {
    /// Its name.
    pub name: Name,
    /// How it proves who it is.
    pub login: Login,
}

/// A worker, as a user of the NATS server. Its user name is `worker-NAME`.
#[derive(Debug, Clone)]
pub struct WorkerUser {
    /// Its name.
    pub name: Name,
    /// Its role.
    pub role: Name,
    /// How it proves who it is.
    pub login: Login,
}

/// How a user proves who it is.
#[derive(Debug, Clone)]
pub enum Login {
    /// By a password that stands in a variable of the server's environment,
    /// named after the user: `OSTLER_WORKER_CI_7_PASSWORD` for the worker `ci-7`.
    Password,
    /// By its key, of which this is the public part.
    Nkey(UserKey),
}

/// The name of a host's user at the NATS server.
pub fn host_user(host: &Name) -> String {
    format!("host-{host}")
}

/// The name of a worker's user at the NATS server.
pub fn worker_user(worker: &Name) -> String {
    format!("worker-{worker}")
}

/// What the subjects begin with on which a host hears answers to its own
/// questions: the inbox prefix of its journal in a bucket. No worker's begins
/// like it, also not that of one with the host's name.
pub fn host_inbox(host: &Name) -> String {
    format!("_HOST_INBOX_{host}")
}

/// Prints the config. It is a whole one, and can be included in another.
pub fn nats_config(wanted: &Wanted) -> String {
    let mut page = Page::new(wanted);
    page.begin();
    for host in &wanted.hosts {
        page.host(host);
    }
    for worker in &wanted.workers {
        page.worker(worker);
    }
    for role in &wanted.roles {
        if !wanted.workers.iter().any(|worker| worker.role == *role) {
            page.worker(&WorkerUser { name: role.clone(), role: role.clone(), login: Login::Password });
        }
    }
    page.end()
}

/// A config as it is written.
struct Page<'a> {
    wanted: &'a Wanted,
    subjects: Subjects,
    variables: HashSet<String>,
    text: String,
}

/// What a user may do.
struct Rights {
    publish: Vec<String>,
    subscribe: Vec<String>,
    /// How long it may answer what it was asked.
    answers_within: Option<Duration>,
}

impl<'a> Page<'a> {
    fn new(wanted: &'a Wanted) -> Self {
        let subjects = Subjects::new(wanted.tenant.clone());
        Self { wanted, subjects, variables: HashSet::new(), text: String::new() }
    }

    fn line(&mut self, depth: usize, line: &str) {
        let _ = writeln!(self.text, "{:1$}{line}", "", depth * 2);
    }

    fn begin(&mut self) {
        let tenant = &self.wanted.tenant;
        self.line(0, &format!("# For a nats-server that carries the relay of the tenant `{tenant}`."));
        self.line(0, "# A password is taken from the variable that is named in its place. One that is a");
        self.line(0, "# number needs quotes inside the variable.");
        if self.wanted.has_kv {
            let store = self.wanted.store.as_deref().unwrap_or(STORE);
            self.line(0, "# The bucket of claims must outlive the server: this folder must stay.");
            self.line(0, &format!("jetstream {{ store_dir: {} }}", quoted(store)));
        }
        self.line(0, "accounts {");
        self.line(1, &format!("{} {{", quoted(&format!("ostler-{tenant}"))));
        if self.wanted.has_kv {
            self.line(2, "jetstream: enabled");
        }
        self.line(2, "users: [");
    }

    fn end(mut self) -> String {
        self.line(2, "]");
        self.line(1, "}");
        self.line(0, "}");
        self.text
    }

    fn host(&mut self, host: &HostUser) {
        let subscribe = self.subjects.of_hosts().map(|(subject, queue)| match queue {
            Some(queue) => format!("{subject} {queue}"),
            None => subject,
        });
        let mut rights = Rights {
            publish: vec![self.subjects.all_progress(), self.subjects.heartbeat(&host.name)],
            subscribe: subscribe.to_vec(),
            // The ttl counts from the request.
            answers_within: Some(self.wanted.max_call_time + MARGIN),
        };
        if self.wanted.has_kv {
            rights.publish.extend(bucket_rights(&self.wanted.tenant));
            rights.subscribe.push(format!("{}.>", host_inbox(&host.name)));
        }
        let user = host_user(&host.name);
        self.user(&format!("The host `{}`.", host.name), &user, &host.login, &rights);
    }

    fn worker(&mut self, worker: &WorkerUser) {
        let (role, name) = (&worker.role, &worker.name);
        let rights = Rights {
            publish: vec![
                self.subjects.manifest(role, name),
                self.subjects.call(role, name),
                self.subjects.all_control(name),
            ],
            subscribe: vec![
                format!("_INBOX_{name}.>"),
                self.subjects.progress_of(name),
                self.subjects.all_heartbeats(),
            ],
            answers_within: None,
        };
        let about = format!("The worker `{name}` in the role `{role}`.");
        self.user(&about, &worker_user(name), &worker.login, &rights);
    }

    fn user(&mut self, about: &str, user: &str, login: &Login, rights: &Rights) {
        self.line(3, &format!("# {about}"));
        self.line(3, "{");
        match login {
            Login::Password => {
                let variable = self.variable(user);
                self.line(4, &format!("user: {}", quoted(user)));
                self.line(4, &format!("password: ${variable}"));
            }
            Login::Nkey(key) => self.line(4, &format!("nkey: {}", key.as_str())),
        }
        self.line(4, "permissions: {");
        self.list("publish", &rights.publish);
        self.list("subscribe", &rights.subscribe);
        if let Some(within) = rights.answers_within {
            // A larger `max` makes old servers slow.
            self.line(5, &format!("allow_responses: {{ max: 1, expires: \"{}s\" }}", within.as_secs()));
        }
        self.line(4, "}");
        self.line(3, "}");
    }

    fn list(&mut self, what: &str, subjects: &[String]) {
        self.line(5, &format!("{what}: ["));
        for subject in subjects {
            self.line(6, &quoted(subject));
        }
        self.line(5, "]");
    }

    /// A variable of this user's own: two names may differ only in what no
    /// variable can have.
    fn variable(&mut self, user: &str) -> String {
        let name = user.to_ascii_uppercase().replace('-', "_");
        let first = format!("OSTLER_{name}_PASSWORD");
        let more = (2..).map(|number| format!("OSTLER_{name}_PASSWORD_{number}"));
        let free = std::iter::once(first).chain(more).find(|variable| !self.variables.contains(variable));
        let variable = free.unwrap_or_default();
        self.variables.insert(variable.clone());
        variable
    }
}

/// What a journal in a bucket needs, and nothing more.
fn bucket_rights(tenant: &Name) -> [String; 5] {
    let bucket = kv_bucket(tenant);
    [
        "$JS.API.INFO".into(),
        format!("$JS.API.STREAM.INFO.KV_{bucket}"),
        format!("$JS.API.STREAM.CREATE.KV_{bucket}"),
        format!("$JS.API.DIRECT.GET.KV_{bucket}.>"),
        format!("$KV.{bucket}.*"),
    ]
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap_or_else(|error| panic!("{error}"))
    }

    fn wanted() -> Wanted {
        let key = "UCK5N7N66OBOINFXAYC2ACJQYFSOD4VYNU6APEJTAVFZB2SVHLKGEW7L";
        let key = UserKey::new(key).unwrap_or_else(|error| panic!("{error}"));
        Wanted {
            tenant: name("acme"),
            hosts: vec![HostUser { name: name("h1"), login: Login::Password }],
            roles: vec![name("dev"), name("ops")],
            workers: vec![WorkerUser { name: name("ci-7"), role: name("dev"), login: Login::Nkey(key) }],
            max_call_time: Duration::from_secs(600),
            has_kv: false,
            store: None,
        }
    }

    #[test]
    fn the_config_is_what_people_can_read_and_check() {
        let expected = r#"# For a nats-server that carries the relay of the tenant `acme`.
# A password is taken from the variable that is named in its place. One that is a
# number needs quotes inside the variable.
# The bucket of claims must outlive the server: this folder must stay.
jetstream { store_dir: "/var/lib/nats" }
accounts {
  "ostler-acme" {
    jetstream: enabled
    users: [
      # The host `h1`.
      {
        user: "host-h1"
        password: $OSTLER_HOST_H1_PASSWORD
        permissions: {
          publish: [
            "ostler.acme.progress.*.*"
            "ostler.acme.heartbeat.h1"
            "$JS.API.INFO"
            "$JS.API.STREAM.INFO.KV_ostler_claims_acme"
            "$JS.API.STREAM.CREATE.KV_ostler_claims_acme"
            "$JS.API.DIRECT.GET.KV_ostler_claims_acme.>"
            "$KV.ostler_claims_acme.*"
          ]
          subscribe: [
            "ostler.acme.manifest.*.* ostler-hosts"
            "ostler.acme.call.*.* ostler-hosts"
            "ostler.acme.control.*.*"
            "_HOST_INBOX_h1.>"
          ]
          allow_responses: { max: 1, expires: "660s" }
        }
      }
      # The worker `ci-7` in the role `dev`.
      {
        nkey: UCK5N7N66OBOINFXAYC2ACJQYFSOD4VYNU6APEJTAVFZB2SVHLKGEW7L
        permissions: {
          publish: [
            "ostler.acme.manifest.dev.ci-7"
            "ostler.acme.call.dev.ci-7"
            "ostler.acme.control.ci-7.*"
          ]
          subscribe: [
            "_INBOX_ci-7.>"
            "ostler.acme.progress.ci-7.*"
            "ostler.acme.heartbeat.*"
          ]
        }
      }
      # The worker `ops` in the role `ops`.
      {
        user: "worker-ops"
        password: $OSTLER_WORKER_OPS_PASSWORD
        permissions: {
          publish: [
            "ostler.acme.manifest.ops.ops"
            "ostler.acme.call.ops.ops"
            "ostler.acme.control.ops.*"
          ]
          subscribe: [
            "_INBOX_ops.>"
            "ostler.acme.progress.ops.*"
            "ostler.acme.heartbeat.*"
          ]
        }
      }
    ]
  }
}
"#;
        assert_eq!(nats_config(&Wanted { has_kv: true, ..wanted() }), expected);
        let without = nats_config(&wanted());
        assert!(!without.contains("$JS") && !without.contains("jetstream"), "{without}");
    }

    #[test]
    fn users_whose_names_make_the_same_variable_get_one_each() {
        let worker = |text| WorkerUser { name: name(text), role: name("dev"), login: Login::Password };
        let config = nats_config(&Wanted { workers: ["a-b", "a_b", "A-b"].map(worker).into(), ..wanted() });
        for variable in ["PASSWORD", "PASSWORD_2", "PASSWORD_3"] {
            let line = format!("password: $OSTLER_WORKER_A_B_{variable}\n");
            assert_eq!(config.matches(&line).count(), 1, "{config}");
        }
    }
}
