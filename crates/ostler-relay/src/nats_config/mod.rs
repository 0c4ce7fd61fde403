//! NATS server config: users and permissions that isolate workers from each other and from hosts.
//!
//! A worker may publish only under its own role and name, and subscribe only to what is addressed to it, so a
//! host can trust the role and name in a subject. A host may take requests as a member of the hosts' queue group
//! and publish one answer to each.
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
//! The worker chooses the reply subject, and the NATS server lets the host publish to any. Only the host can
//! check that it is the worker's own inbox.
//!
//! The config contains no secret: a user has a public key, or a password that the NATS server reads from an
//! environment variable.

mod user_key;

use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::Duration;

use crate::journal::kv_bucket;
use crate::name::RelayName;
use crate::subject::Subjects;

pub use user_key::{BadUserKey, UserKey, generate_user_key};

/// Time beyond a call's deadline in which a host may still answer: covers latency and clock drift.
const MARGIN: Duration = Duration::from_secs(60);

/// Default JetStream folder.
const STORE: &str = "/var/lib/nats";

/// Input of [`nats_config`].
#[derive(Debug, Clone)]
pub struct NatsConfigSpec {
    /// Tenant of the relay; each tenant is a NATS account of its own.
    pub tenant: RelayName,
    /// Hosts of the tenant.
    pub hosts: Vec<HostUser>,
    /// Roles that need a user; a role without a worker gets one named after the role, with a
    /// password.
    pub roles: Vec<RelayName>,
    /// Workers of the tenant.
    pub workers: Vec<WorkerUser>,
    /// Longest `max_call_time` of any server: how long an answer stays permitted.
    pub max_call_time: Duration,
    /// `true` if hosts share a journal in a key-value bucket; the server then needs JetStream.
    pub has_kv: bool,
    /// JetStream folder, used only with [`Self::has_kv`].
    pub store_dir: Option<String>,
}

/// A host as a user of the NATS server, with the user name `host-NAME`.
#[derive(Debug, Clone)]
pub struct HostUser {
    /// Name of the host.
    pub name: RelayName,
    /// Authentication of the user.
    pub login: NatsLogin,
}

/// A worker as a user of the NATS server, with the user name `worker-NAME`.
#[derive(Debug, Clone)]
pub struct WorkerUser {
    /// Name of the worker.
    pub name: RelayName,
    /// Role of the worker.
    pub role: RelayName,
    /// Authentication of the user.
    pub login: NatsLogin,
}

/// Authentication of a NATS user.
#[derive(Debug, Clone)]
pub enum NatsLogin {
    /// Password in a variable of the server's environment, named after the user:
    /// `OSTLER_WORKER_CI_7_PASSWORD` for the worker `ci-7`.
    Password,
    /// Nkey; this is the public part.
    Nkey(UserKey),
}

/// Returns the NATS user name of a host.
pub fn host_user_name(host: &RelayName) -> String {
    format!("host-{host}")
}

/// Returns the NATS user name of a worker.
pub fn worker_user_name(worker: &RelayName) -> String {
    format!("worker-{worker}")
}

/// Returns the inbox prefix of a host's key-value journal. No worker's inbox starts with it, even
/// if the worker has the host's name.
pub fn host_inbox_prefix(host: &RelayName) -> String {
    format!("_HOST_INBOX_{host}")
}

/// Returns a complete config, which another config can include.
pub fn nats_config(spec: &NatsConfigSpec) -> String {
    let mut writer = NatsConfigWriter::new(spec);
    writer.write_header();
    for host in &spec.hosts {
        writer.write_host(host);
    }
    for worker in &spec.workers {
        writer.write_worker(worker);
    }
    for role in &spec.roles {
        if !spec.workers.iter().any(|worker| worker.role == *role) {
            writer.write_worker(&WorkerUser {
                name: role.clone(),
                role: role.clone(),
                login: NatsLogin::Password,
            });
        }
    }
    writer.end()
}

/// Writer of the config text.
struct NatsConfigWriter<'a> {
    spec: &'a NatsConfigSpec,
    subjects: Subjects,
    variables: HashSet<String>,
    text: String,
}

/// Permissions of one NATS user.
struct NatsUserPermissions {
    publish: Vec<String>,
    subscribe: Vec<String>,
    /// Time in which the user may answer a request; `None` if it may not.
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
        let mut permissions = NatsUserPermissions {
            publish: vec![self.subjects.all_progress_wildcard(), self.subjects.heartbeat(&host.name)],
            subscribe: subscribe.to_vec(),
            // The server counts the expiry from the request.
            responses_expire_after: Some(self.spec.max_call_time + MARGIN),
        };
        if self.spec.has_kv {
            permissions.publish.extend(bucket_permissions(&self.spec.tenant));
            permissions.subscribe.push(format!("{}.>", host_inbox_prefix(&host.name)));
        }
        let user = host_user_name(&host.name);
        self.write_user(&format!("The host `{}`.", host.name), &user, &host.login, &permissions);
    }

    fn write_worker(&mut self, worker: &WorkerUser) {
        let (role, name) = (&worker.role, &worker.name);
        let permissions = NatsUserPermissions {
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
        self.write_user(&about, &worker_user_name(name), &worker.login, &permissions);
    }

    fn write_user(&mut self, about: &str, user: &str, login: &NatsLogin, permissions: &NatsUserPermissions) {
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
        self.write_list("publish", &permissions.publish);
        self.write_list("subscribe", &permissions.subscribe);
        if let Some(expiry) = permissions.responses_expire_after {
            // A larger `max` slows down old servers.
            self.write_line(5, &format!("allow_responses: {{ max: 1, expires: \"{}s\" }}", expiry.as_secs()));
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

    /// Returns a variable name that no other user has: two user names may differ only in characters
    /// that a variable can't contain.
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

/// Returns the permissions that the key-value journal needs, and no more.
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

    fn spec() -> NatsConfigSpec {
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
        assert_eq!(nats_config(&NatsConfigSpec { has_kv: true, ..spec() }), expected);
        let without = nats_config(&spec());
        assert!(!without.contains("$JS") && !without.contains("jetstream"), "{without}");
    }

    #[test]
    fn users_whose_names_make_the_same_variable_get_one_each() {
        let worker = |text| WorkerUser { name: name(text), role: name("dev"), login: NatsLogin::Password };
        let config =
            nats_config(&NatsConfigSpec { workers: ["a-b", "a_b", "A-b"].map(worker).into(), ..spec() });
        for variable in ["PASSWORD", "PASSWORD_2", "PASSWORD_3"] {
            let line = format!("password: $OSTLER_WORKER_A_B_{variable}\n");
            assert_eq!(config.matches(&line).count(), 1, "{config}");
        }
    }
}
