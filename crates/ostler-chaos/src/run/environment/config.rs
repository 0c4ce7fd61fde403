//! The daemon's config, in all the shapes that the nemesis gives it.

use std::time::Duration;

use super::testbed::Testbed;
use super::users::{ALL, FORBIDDEN, HIDDEN, NONE, SOME};

/// A server of the config that calls go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TestServer {
    pub(crate) name: &'static str,
    pub(crate) kind: TestServerKind,
}

/// How a server is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestServerKind {
    /// A process on stdio, always there.
    Eager,
    /// One that ends when it is idle for a moment.
    Lazy,
    /// One that ends as soon as it is idle.
    Brief,
    /// One for each caller.
    PerCaller,
    /// A shell that starts it, with helpers that leave the group.
    Wrapped,
    /// Behind a URL.
    Web,
}

/// Servers that are expected to work.
pub(crate) const SERVERS: [TestServer; 8] = [
    TestServer { name: "a", kind: TestServerKind::Eager },
    TestServer { name: HIDDEN, kind: TestServerKind::Eager },
    TestServer { name: "c", kind: TestServerKind::Eager },
    TestServer { name: "lazy", kind: TestServerKind::Lazy },
    TestServer { name: "brief", kind: TestServerKind::Brief },
    TestServer { name: "own", kind: TestServerKind::PerCaller },
    TestServer { name: "wrap", kind: TestServerKind::Wrapped },
    TestServer { name: "web", kind: TestServerKind::Web },
];

/// The server whose tool fails for a while, now and then.
pub(crate) const SICK: &str = "sick";
/// When its breaker opens and for how long: soon, so that a short run sees it all.
pub(crate) const SICK_FAILURES: u32 = 3;
pub(crate) const SICK_RESET: Duration = Duration::from_secs(2);

/// The server that good callers and an abusive one share. The nemesis leaves it alone.
pub(crate) const SHARED: &str = "shared";
/// The server that harms others: huge lists, floods, crashes.
pub(crate) const HOSTILE: &str = "hostile";
/// Items of each of its lists.
const HOSTILE_ITEMS: usize = 100_000;

/// Milliseconds that a slow server computes or sleeps before it reads: published ones take seconds.
const SLOW_IMPORT: &str = "400";
const SLOW_START: &str = "1500";

/// What edits change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ConfigVariant {
    /// Whether there is one server more.
    pub(crate) has_extra: bool,
    /// Tools of the server `c` beside the usual ones: another number is another process.
    pub(crate) tools: u32,
    /// Whether the roles have a rule more, about something that nobody calls.
    pub(crate) has_rule: bool,
}

/// The text of `ostler.toml`.
pub(crate) fn render(site: &Testbed, shape: ConfigVariant) -> String {
    let mut text = String::from("version = 1\n[pool]\nmax_processes = 64\n");
    SERVERS.iter().for_each(|server| text.push_str(&server_table(site, server, shape)));
    text.push_str(&sick_table(site));
    text.push_str(&shared_table(site));
    text.push_str(&hostile_table(site));
    if shape.has_extra {
        text.push_str(&server_section("extra", &command(site, "extra", &[]), "lazy = false\n"));
    }
    text.push_str(&roles(shape));
    if let Some(port) = site.ports.broker {
        text.push_str(&format!("[relay]\nnats = \"nats://127.0.0.1:{port}\"\nhost = \"mill\"\n"));
    }
    text
}

fn roles(shape: ConfigVariant) -> String {
    let more = if shape.has_rule { ", \"*/nothing_of_this_name\"" } else { "" };
    format!(
        "[roles.local]\nallow = [\"*\"]\n[roles.{ALL}]\nallow = [\"*\"{more}]\n\
         [roles.{SOME}]\nallow = [\"*\"]\ndeny = [\"*/{FORBIDDEN}\", \"{HIDDEN}/*\"{more}]\n[roles.{NONE}]\nallow = []\n"
    )
}

fn server_table(site: &Testbed, server: &TestServer, shape: ConfigVariant) -> String {
    let name = server.name;
    match server.kind {
        TestServerKind::Eager if name == "c" => {
            let tools = shape.tools.to_string();
            server_section(name, &command(site, name, &["--tools", &tools]), "lazy = false\n")
        }
        TestServerKind::Eager => server_section(name, &command(site, name, &[]), "lazy = false\n"),
        TestServerKind::Lazy => server_section(
            name,
            &command(site, name, &["--start-work", SLOW_IMPORT]),
            "keep_alive = \"300ms\"\n",
        ),
        TestServerKind::Brief => server_section(name, &command(site, name, &[]), "keep_alive = \"0s\"\n"),
        TestServerKind::PerCaller => {
            server_section(name, &command(site, name, &[]), "isolation = \"caller\"\n")
        }
        TestServerKind::Wrapped => server_section(name, &wrapped(site, name), ""),
        TestServerKind::Web => {
            server_section(name, &format!("url = \"http://127.0.0.1:{}/mcp\"\n", site.ports.web), "")
        }
    }
}

fn sick_table(site: &Testbed) -> String {
    let file = site.sick_file().display().to_string();
    let command = command(site, SICK, &["--sick-while", &file]);
    let reset = SICK_RESET.as_secs();
    format!(
        "[servers.{SICK}]\n{command}call_timeout = \"800ms\"\n{STARTS}\
         breaker = {{ failures = {SICK_FAILURES}, reset = \"{reset}s\" }}\n"
    )
}

fn shared_table(site: &Testbed) -> String {
    let command = command(site, SHARED, &[]);
    format!(
        "[servers.{SHARED}]\n{command}lazy = false\ncall_timeout = \"1s\"\nmax_line = \"64KiB\"\nmax_in_flight = 16\n{STARTS}\
         breaker = {{ failures = 3, reset = \"5s\" }}\n"
    )
}

fn hostile_table(site: &Testbed) -> String {
    let file = site.folder.join("hostile.json").display().to_string();
    let command = format!("command = {:?}\nargs = {:?}\n", site.programs.fake, ["--catalog", file.as_str()]);
    format!(
        "[servers.{HOSTILE}]\n{command}lazy = false\ncall_timeout = \"5s\"\nmax_tools = 50\nmax_resources = 50\n{STARTS}"
    )
}

/// The lists of the hostile server.
pub(crate) fn hostile_lists() -> String {
    let named: Vec<String> = (0..HOSTILE_ITEMS).map(|n| format!(r#"{{"name":"{n:x}"}}"#)).collect();
    let named = named.join(",");
    format!(r#"{{"tools":[{named}],"prompts":[{named}]}}"#)
}

/// A server is killed more often here than any budget of the real world allows.
const STARTS: &str = "max_call_time = \"8s\"\nstart_timeout = \"5s\"\n\
    restart = { max = 100000, window = \"5m\", max_delay = \"500ms\" }\n";

fn server_section(name: &str, command: &str, more: &str) -> String {
    format!(
        "[servers.{name}]\n{command}call_timeout = \"5s\"\n{STARTS}breaker = {{ failures = 5, reset = \"1s\" }}\n{more}"
    )
}

fn command(site: &Testbed, name: &str, more: &[&str]) -> String {
    let mut args = vec!["--name".to_owned(), name.to_owned(), "--executions".to_owned()];
    args.push(site.ledger(name).display().to_string());
    args.extend(more.iter().map(|arg| (*arg).to_owned()));
    format!("command = {:?}\nargs = {args:?}\n", site.programs.fake)
}

/// A shell, a helper in its group, one in a session of its own, and one that is forked twice.
fn wrapped(site: &Testbed, name: &str) -> String {
    let (fake, ledger) = (site.programs.fake.display(), site.ledger(name).display().to_string());
    let strays = site.folder.join("strays").display().to_string();
    let line = format!(
        "sleep 100000 & '{fake}' --name {name} --executions '{ledger}' --start-delay {SLOW_START} --fork-setsid '{strays}' --double-fork '{strays}'; exit $?"
    );
    format!("command = \"sh\"\nargs = [\"-c\", {line:?}]\n")
}
