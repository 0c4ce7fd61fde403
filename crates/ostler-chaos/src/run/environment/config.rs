//! Config of the daemon, in all variants that the nemesis writes.

use std::time::Duration;

use super::testbed::Testbed;
use super::users::{ALL, FORBIDDEN, HIDDEN, NONE, SOME};

/// A server of the config that calls go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TestServer {
    pub(crate) name: &'static str,
    pub(crate) kind: TestServerKind,
}

/// The way a server is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestServerKind {
    /// A process on stdio that always runs.
    Eager,
    /// A process that ends after a short idle time.
    Lazy,
    /// A process that ends as soon as it is idle.
    Brief,
    /// A process for each caller.
    PerCaller,
    /// A shell that starts it, with helpers that leave the process group.
    Wrapped,
    /// A server behind a URL.
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
/// Failures that open its breaker, and the breaker's wait: low, so that a short run covers every
/// state.
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

/// The parts of the config that edits change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ConfigVariant {
    /// Adds one more server.
    pub(crate) has_extra: bool,
    /// Tools of the server `c` beside the usual ones: another number restarts the process.
    pub(crate) tools: u32,
    /// Adds a rule to the roles, for a tool that no caller uses.
    pub(crate) has_rule: bool,
}

/// Returns the text of `ostler.toml`.
pub(crate) fn render(testbed: &Testbed, variant: ConfigVariant) -> String {
    let mut text = String::from("version = 1\n[pool]\nmax_processes = 64\n");
    SERVERS.iter().for_each(|server| text.push_str(&server_table(testbed, server, variant)));
    text.push_str(&sick_table(testbed));
    text.push_str(&shared_table(testbed));
    text.push_str(&hostile_table(testbed));
    if variant.has_extra {
        text.push_str(&server_section("extra", &command(testbed, "extra", &[]), "lazy = false\n"));
    }
    text.push_str(&roles(variant));
    if let Some(port) = testbed.ports.broker {
        text.push_str(&format!("[relay]\nnats = \"nats://127.0.0.1:{port}\"\nhost = \"mill\"\n"));
    }
    text
}

fn roles(variant: ConfigVariant) -> String {
    let more = if variant.has_rule { ", \"*/nothing_of_this_name\"" } else { "" };
    format!(
        "[roles.local]\nallow = [\"*\"]\n[roles.{ALL}]\nallow = [\"*\"{more}]\n\
         [roles.{SOME}]\nallow = [\"*\"]\ndeny = [\"*/{FORBIDDEN}\", \"{HIDDEN}/*\"{more}]\n[roles.{NONE}]\nallow = []\n"
    )
}

fn server_table(testbed: &Testbed, server: &TestServer, variant: ConfigVariant) -> String {
    let name = server.name;
    match server.kind {
        TestServerKind::Eager if name == "c" => {
            let tools = variant.tools.to_string();
            server_section(name, &command(testbed, name, &["--tools", &tools]), "lazy = false\n")
        }
        TestServerKind::Eager => server_section(name, &command(testbed, name, &[]), "lazy = false\n"),
        TestServerKind::Lazy => server_section(
            name,
            &command(testbed, name, &["--start-work", SLOW_IMPORT]),
            "keep_alive = \"300ms\"\n",
        ),
        TestServerKind::Brief => server_section(name, &command(testbed, name, &[]), "keep_alive = \"0s\"\n"),
        TestServerKind::PerCaller => {
            server_section(name, &command(testbed, name, &[]), "isolation = \"caller\"\n")
        }
        TestServerKind::Wrapped => server_section(name, &wrapped(testbed, name), ""),
        TestServerKind::Web => {
            server_section(name, &format!("url = \"http://127.0.0.1:{}/mcp\"\n", testbed.ports.web), "")
        }
    }
}

fn sick_table(testbed: &Testbed) -> String {
    let file = testbed.sick_file().display().to_string();
    let command = command(testbed, SICK, &["--sick-while", &file]);
    let reset = SICK_RESET.as_secs();
    format!(
        "[servers.{SICK}]\n{command}call_timeout = \"800ms\"\n{STARTS}\
         breaker = {{ failures = {SICK_FAILURES}, reset = \"{reset}s\" }}\n"
    )
}

fn shared_table(testbed: &Testbed) -> String {
    let command = command(testbed, SHARED, &[]);
    format!(
        "[servers.{SHARED}]\n{command}lazy = false\ncall_timeout = \"1s\"\nmax_line = \"64KiB\"\nmax_in_flight = 16\n{STARTS}\
         breaker = {{ failures = 3, reset = \"5s\" }}\n"
    )
}

fn hostile_table(testbed: &Testbed) -> String {
    let file = testbed.folder.join("hostile.json").display().to_string();
    let command =
        format!("command = {:?}\nargs = {:?}\n", testbed.programs.fake, ["--catalog", file.as_str()]);
    format!(
        "[servers.{HOSTILE}]\n{command}lazy = false\ncall_timeout = \"5s\"\nmax_tools = 50\nmax_resources = 50\n{STARTS}"
    )
}

/// Returns the lists of the hostile server.
pub(crate) fn hostile_lists() -> String {
    let named: Vec<String> = (0..HOSTILE_ITEMS).map(|n| format!(r#"{{"name":"{n:x}"}}"#)).collect();
    let named = named.join(",");
    format!(r#"{{"tools":[{named}],"prompts":[{named}]}}"#)
}

/// The restart budget is far above real ones, because servers are killed far more often here.
const STARTS: &str = "max_call_time = \"8s\"\nstart_timeout = \"5s\"\n\
    restart = { max = 100000, window = \"5m\", max_delay = \"500ms\" }\n";

fn server_section(name: &str, command: &str, more: &str) -> String {
    format!(
        "[servers.{name}]\n{command}call_timeout = \"5s\"\n{STARTS}breaker = {{ failures = 5, reset = \"1s\" }}\n{more}"
    )
}

fn command(testbed: &Testbed, name: &str, more: &[&str]) -> String {
    let mut args = vec!["--name".to_owned(), name.to_owned(), "--executions".to_owned()];
    args.push(testbed.ledger(name).display().to_string());
    args.extend(more.iter().map(|arg| (*arg).to_owned()));
    format!("command = {:?}\nargs = {args:?}\n", testbed.programs.fake)
}

/// Returns the command of a wrapped server: a shell, a helper in its process group, one in a
/// session of its own, and one that is forked twice.
fn wrapped(testbed: &Testbed, name: &str) -> String {
    let (fake, ledger) = (testbed.programs.fake.display(), testbed.ledger(name).display().to_string());
    let strays = testbed.folder.join("strays").display().to_string();
    let line = format!(
        "sleep 100000 & '{fake}' --name {name} --executions '{ledger}' --start-delay {SLOW_START} --fork-setsid '{strays}' --double-fork '{strays}'; exit $?"
    );
    format!("command = \"sh\"\nargs = [\"-c\", {line:?}]\n")
}
