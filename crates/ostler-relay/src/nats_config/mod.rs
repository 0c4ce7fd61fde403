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
use crate::name::RelayName;
use crate::subject::Subjects;

pub use user_key::{BadUserKey, UserKey, generate_user_key};

/// How much longer than a call a host may answer: for the way, and for clocks.
const MARGIN: Duration = Duration::from_secs(60);

/// Where streams are kept unless somebody says so.
const STORE: &str = "/var/lib/nats";

/// What a config is wanted for.
#[derive(Debug, Clone)]
pub struct NatsConfigSpec {
    /// Whose relay it is. Each tenant is an account of its own.
    pub tenant: RelayName,
    /// The hosts that serve it.
    pub hosts: Vec<HostUser>,
    /// Roles that must not be forgotten: one without a worker gets one of the
    /// role's own name, with a password.
    pub roles: Vec<RelayName>,
    /// The workers.
    pub workers: Vec<WorkerUser>,
    /// The longest that any call may take: so long an answer stays allowed.
    pub max_call_time: Duration,
    /// Whether hosts share a journal in a bucket. The server then needs JetStream.
    pub has_kv: bool,
    /// Where the server keeps the bucket; [`Wanted::has_kv`] alone asks for it.
    pub store_dir: Option<String>,
}

/// A host, as a user of the NATS server. Its user name is `host-NAME`.
#[derive(Debug, Clone)]
pub struct HostUser {
    /// Its name.
    pub name: RelayName,
    /// How it proves who it is.
    pub login: NatsLogin,
}

/// A worker, as a user of the NATS server. Its user name is `worker-NAME`.
#[derive(Debug, Clone)]
pub struct WorkerUser {
    /// Its name.
    pub name: RelayName,
    /// Its role.
    pub role: RelayName,
    /// How it proves who it is.
    pub login: NatsLogin,
}

/// How a user proves who it is.
#[derive(Debug, Clone)]
pub enum NatsLogin {
    /// By a password that stands in a variable of the server's environment,
    /// named after the user: `OSTLER_WORKER_CI_7_PASSWORD` for the worker `ci-7`.
    Password,
    /// By its key, of which this is the public part.
    Nkey(UserKey),
}

/// The name of a host's user at the NATS server.
pub fn host_user_name(host: &RelayName) -> String {
    format!("host-{host}")
}

/// The name of a worker's user at the NATS server.
pub fn worker_user_name(worker: &RelayName) -> String {
    format!("worker-{worker}")
}

/// What the subjects begin with on which a host hears answers to its own
/// questions: the inbox prefix of its journal in a bucket. No worker's begins
/// like it, also not that of one with the host's name.
pub fn host_inbox_prefix(host: &RelayName) -> String {
    format!("_HOST_INBOX_{host}")
}

/// Prints the config. It is a whole one, and can be included in another.
pub fn nats_config(wanted: &NatsConfigSpec) -> String {
    let mut page = NatsConfigWriter::new(wanted);
    page.write_header();
    for host in &wanted.hosts {
        page.write_host(host);
    }
    for worker in &wanted.workers {
        page.write_worker(worker);
    }
    for role in &wanted.roles {
        if !wanted.workers.iter().any(|worker| worker.role == *role) {
            page.write_worker(&WorkerUser {
                name: role.clone(),
                role: role.clone(),
                login: NatsLogin::Password,
            });
        }
    }
    page.end()
}

/// A config as it is written.
struct NatsConfigWriter<'a> {
    spec: &'a NatsConfigSpec,
    subjects: Subjects,
    variables: HashSet<String>,
    text: String,
}

/// What a user may do.
struct NatsUserPermissions {
    publish: Vec<String>,
    subscribe: Vec<String>,
    /// How long it may answer what it was asked.
    responses_expire_after: Option<Duration>,
}

impl<'a> NatsConfigWriter<'a> {
    fn new(spec: &'a NatsConfigSpec) -> Self {
        let subjects = Subjects::new(spec.tenant.clone());
        Self { spec, subjects, variables: HashSet::new(), text: String::new() }
    }

    fn write_line(&mut self, depth: usize, line: &str) {
        let _ = writeln!(self.text, "{:1$}{line}", "", depth * 2);
    }

    fn write_header(&mut self) {
        let tenant = &self.spec.tenant;
        self.write_line(0, &format!("# For a nats-server that carries the relay of the tenant `{tenant}`."));
        self.write_line(
            0,
            "# A password is taken from the variable that is named in its place. One that is a",
        );
        self.write_line(0, "# number needs quotes inside the variable.");
        if self.spec.has_kv {
            let store = self.spec.store_dir.as_deref().unwrap_or(STORE);
            self.write_line(0, "# The bucket of claims must outlive the server: this folder must stay.");
            self.write_line(0, &format!("jetstream {{ store_dir: {} }}", quoted(store)));
        }
        self.write_line(0, "accounts {");
        self.write_line(1, &format!("{} {{", quoted(&format!("ostler-{tenant}"))));
        if self.spec.has_kv {
            self.write_line(2, "jetstream: enabled");
        }
        self.write_line(2, "users: [");
    }

    fn end(mut self) -> String {
        self.write_line(2, "]");
        self.write_line(1, "}");
        self.write_line(0, "}");
        self.text
    }

    fn write_host(&mut self, host: &HostUser) {
        let subscribe = self.subjects.host_subscriptions().map(|(subject, queue)| match queue {
            Some(queue) => format!("{subject} {queue}"),
            None => subject,
        });
        let mut rights = NatsUserPermissions {
            publish: vec![self.subjects.all_progress_wildcard(), self.subjects.heartbeat(&host.name)],
            subscribe: subscribe.to_vec(),
            // The ttl counts from the request.
            responses_expire_after: Some(self.spec.max_call_time + MARGIN),
        };
        if self.spec.has_kv {
            rights.publish.extend(bucket_permissions(&self.spec.tenant));
            rights.subscribe.push(format!("{}.>", host_inbox_prefix(&host.name)));
        }
        let user = host_user_name(&host.name);
        self.write_user(&format!("The host `{}`.", host.name), &user, &host.login, &rights);
    }

    fn write_worker(&mut self, worker: &WorkerUser) {
        let (role, name) = (&worker.role, &worker.name);
        let rights = NatsUserPermissions {
            publish: vec![
                self.subjects.manifest(role, name),
                self.subjects.call(role, name),
                self.subjects.control_wildcard(name),
            ],
            subscribe: vec![
                format!("_INBOX_{name}.>"),
                self.subjects.progress_wildcard(name),
                self.subjects.heartbeat_wildcard(),
            ],
            responses_expire_after: None,
        };
        let about = format!("The worker `{name}` in the role `{role}`.");
        self.write_user(&about, &worker_user_name(name), &worker.login, &rights);
    }

    fn write_user(&mut self, about: &str, user: &str, login: &NatsLogin, rights: &NatsUserPermissions) {
        self.write_line(3, &format!("# {about}"));
        self.write_line(3, "{");
        match login {
            NatsLogin::Password => {
                let variable = self.password_variable(user);
                self.write_line(4, &format!("user: {}", quoted(user)));
                self.write_line(4, &format!("password: ${variable}"));
            }
            NatsLogin::Nkey(key) => self.write_line(4, &format!("nkey: {}", key.as_str())),
        }
        self.write_line(4, "permissions: {");
        self.write_list("publish", &rights.publish);
        self.write_list("subscribe", &rights.subscribe);
        if let Some(within) = rights.responses_expire_after {
            // A larger `max` makes old servers slow.
            self.write_line(5, &format!("allow_responses: {{ max: 1, expires: \"{}s\" }}", within.as_secs()));
        }
        self.write_line(4, "}");
        self.write_line(3, "}");
    }

    fn write_list(&mut self, what: &str, subjects: &[String]) {
        self.write_line(5, &format!("{what}: ["));
        for subject in subjects {
            self.write_line(6, &quoted(subject));
        }
        self.write_line(5, "]");
    }

    /// A variable of this user's own: two names may differ only in what no
    /// variable can have.
    fn password_variable(&mut self, user: &str) -> String {
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
fn bucket_permissions(tenant: &RelayName) -> [String; 5] {
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

    fn name(text: &str) -> RelayName {
        RelayName::new(text).unwrap_or_else(|error| panic!("{error}"))
    }

    fn wanted() -> NatsConfigSpec {
        let key = "UCK5N7N66OBOINFXAYC2ACJQYFSOD4VYNU6APEJTAVFZB2SVHLKGEW7L";
        let key = UserKey::new(key).unwrap_or_else(|error| panic!("{error}"));
        NatsConfigSpec {
            tenant: name("acme"),
            hosts: vec![HostUser { name: name("h1"), login: NatsLogin::Password }],
            roles: vec![name("dev"), name("ops")],
            workers: vec![WorkerUser { name: name("ci-7"), role: name("dev"), login: NatsLogin::Nkey(key) }],
            max_call_time: Duration::from_secs(600),
            has_kv: false,
            store_dir: None,
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
        assert_eq!(nats_config(&NatsConfigSpec { has_kv: true, ..wanted() }), expected);
        let without = nats_config(&wanted());
        assert!(!without.contains("$JS") && !without.contains("jetstream"), "{without}");
    }

    #[test]
    fn users_whose_names_make_the_same_variable_get_one_each() {
        let worker = |text| WorkerUser { name: name(text), role: name("dev"), login: NatsLogin::Password };
        let config =
            nats_config(&NatsConfigSpec { workers: ["a-b", "a_b", "A-b"].map(worker).into(), ..wanted() });
        for variable in ["PASSWORD", "PASSWORD_2", "PASSWORD_3"] {
            let line = format!("password: $OSTLER_WORKER_A_B_{variable}\n");
            assert_eq!(config.matches(&line).count(), 1, "{config}");
        }
    }
}
