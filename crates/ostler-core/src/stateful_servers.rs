//! Published servers that keep state in their process or for a whole machine, detected by the package in a
//! command line.
//!
//! Clients that share a process of such a server share its state: one navigates the page that another one
//! reads. A row is here only if the state was found in the published package, or is described in the server's
//! issue tracker (`chrome-devtools-mcp`). `docs/guide/sharing.md` shows the table; a test compares them.

use std::path::Path;

use crate::spec::{Isolation, ProcessSpec};

/// A published server that keeps state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatefulServer {
    /// Its package first, then its program, its container images and other names that command lines have for
    /// it.
    pub names: &'static [&'static str],
    /// The state, as the end of "it keeps".
    pub state: &'static str,
    /// The isolation that separates clients.
    pub isolation: Isolation,
    /// A further requirement of a separate process that the command line does not meet; empty if none.
    pub also_needs: &'static str,
    /// Arguments that meet it; one of them is enough.
    also_given_by: &'static [&'static str],
}

const fn row(names: &'static [&'static str], keeps: &'static str, isolation: Isolation) -> StatefulServer {
    StatefulServer { names, state: keeps, isolation, also_needs: "", also_given_by: &[] }
}

/// A browser profile on disk can be used by one browser at a time.
const OWN_PROFILE: &str = "the argument \"--isolated\"";
const PROFILE_ARGUMENTS: &[&str] =
    &["--isolated", "--user-data-dir", "--userDataDir", "--cdp-endpoint", "--browserUrl"];

/// The servers, by package.
pub static SERVERS: &[StatefulServer] = &[
    row(
        &["@agent-infra/mcp-server-browser", "mcp-server-browser"],
        "one browser and its pages",
        Isolation::Session,
    ),
    row(&["@cyanheads/git-mcp-server", "git-mcp-server"], "a working directory", Isolation::Session),
    row(
        &["@executeautomation/playwright-mcp-server", "playwright-mcp-server"],
        "one browser and its page",
        Isolation::Session,
    ),
    StatefulServer {
        also_needs: "MEMORY_FILE_PATH = \"${workspaceFolder}/.memory.jsonl\" in `env`",
        also_given_by: &[],
        ..row(
            &["@modelcontextprotocol/server-memory", "mcp-server-memory", "mcp/memory"],
            "one knowledge graph, in one file",
            Isolation::Workspace,
        )
    },
    row(
        &[
            "@modelcontextprotocol/server-puppeteer",
            "mcp-server-puppeteer",
            "puppeteer-mcp-server",
            "mcp/puppeteer",
        ],
        "one browser and its page",
        Isolation::Session,
    ),
    row(
        &[
            "@modelcontextprotocol/server-sequential-thinking",
            "mcp-server-sequential-thinking",
            "mcp/sequentialthinking",
        ],
        "the thoughts of a conversation",
        Isolation::Session,
    ),
    StatefulServer {
        also_needs: OWN_PROFILE,
        also_given_by: PROFILE_ARGUMENTS,
        ..row(
            &["@playwright/mcp", "playwright-mcp", "mcr.microsoft.com/playwright/mcp", "mcp/playwright"],
            "one browser and its pages",
            Isolation::Session,
        )
    },
    row(
        &["@wonderwhy-er/desktop-commander", "desktop-commander"],
        "terminal sessions and searches",
        Isolation::Session,
    ),
    row(&["browser-use"], "one browser and its pages", Isolation::Session),
    StatefulServer {
        also_needs: OWN_PROFILE,
        also_given_by: PROFILE_ARGUMENTS,
        ..row(&["chrome-devtools-mcp"], "one browser and its selected page", Isolation::Session)
    },
    row(&["code-index-mcp"], "the project that it has indexed", Isolation::Workspace),
    row(&["jupyter-mcp-server", "jupyter-mcp"], "the notebook in use", Isolation::Session),
    row(&["mcp-python-interpreter"], "the variables of a Python session", Isolation::Session),
    row(&["mcp-server-mas-sequential-thinking"], "the thoughts of a conversation", Isolation::Session),
    row(
        &["serena-agent", "serena", "serena-mcp-server", "oraios/serena"],
        "the active project",
        Isolation::Workspace,
    ),
    row(&["xcodebuildmcp"], "the defaults of a session", Isolation::Session),
];

/// Programs that run a package which an argument names.
const RUNNERS: [&str; 17] = [
    "npx", "npm", "pnpx", "pnpm", "yarn", "bunx", "bun", "deno", "node", "uvx", "uv", "pipx", "python",
    "python3", "docker", "podman", "cmd",
];

impl StatefulServer {
    /// Returns the server that a command line runs, if it is one of them. Names chosen by the operator do not
    /// matter.
    pub fn from_process(process: &ProcessSpec) -> Option<&'static Self> {
        let program = program_name(&process.command);
        if let Some(found) = find_by_name(program) {
            return Some(found);
        }
        if !RUNNERS.contains(&program) {
            return None;
        }
        let is_container = matches!(program, "docker" | "podman");
        for argument in &process.args {
            // For a container only the image is a name; the arguments after it are its server's.
            let found = match is_container {
                true => find_by_name(image_name(argument)).filter(|_| argument.contains('/')),
                false => find_by_name(package_name(argument)),
            };
            if found.is_some() {
                return found;
            }
            if !is_container && ends_package_names(argument) {
                return None;
            }
        }
        None
    }

    /// Returns the requirement of separate processes that is not met.
    pub fn missing_requirement(&self, process: &ProcessSpec) -> Option<&'static str> {
        let is_given = |argument: &String| self.also_given_by.iter().any(|given| argument.starts_with(given));
        let has_own_file = process.env.contains_key("MEMORY_FILE_PATH");
        (!self.also_needs.is_empty() && !has_own_file && !process.args.iter().any(is_given))
            .then_some(self.also_needs)
    }
}

fn find_by_name(name: &str) -> Option<&'static StatefulServer> {
    SERVERS.iter().find(|server| server.names.iter().any(|known| known.eq_ignore_ascii_case(name)))
}

/// Returns whether the arguments after this one belong to the server: it is no option, and no subcommand of a
/// runner.
fn ends_package_names(argument: &str) -> bool {
    let is_subcommand = matches!(
        argument,
        "exec" | "x" | "dlx" | "tool" | "run" | "/c" | "npx" | "npx.cmd" | "uvx" | "start"
    );
    !argument.starts_with('-') && !is_subcommand && !argument.starts_with("git+")
}

/// Returns the name of a program, without the directory and the suffixes of Windows.
fn program_name(command: &str) -> &str {
    let name = Path::new(command).file_name().and_then(|name| name.to_str()).unwrap_or(command);
    name.strip_suffix(".exe").or_else(|| name.strip_suffix(".cmd")).unwrap_or(name)
}

/// Returns the package that an argument names, without a version; of a repository or a path, the identifying
/// part.
fn package_name(argument: &str) -> &str {
    let argument =
        argument.strip_prefix("--package=").or_else(|| argument.strip_prefix("--from=")).unwrap_or(argument);
    if let Some((_, repository)) = argument.strip_prefix("git+").and_then(|url| url.split_once("github.com/"))
    {
        return repository.split(['@', '#']).next().unwrap_or(repository).trim_end_matches(".git");
    }
    if let Some((_, path)) = argument.rsplit_once("node_modules/") {
        let path = path.strip_prefix(".bin/").unwrap_or(path);
        let parts = if path.starts_with('@') { 2 } else { 1 };
        let end = path.match_indices('/').nth(parts - 1).map_or(path.len(), |(at, _)| at);
        return &path[..end];
    }
    let end =
        argument.char_indices().skip(1).find(|(_, c)| matches!(c, '@' | '=' | '[' | '>' | '<' | '~' | '!'));
    argument[..end.map_or(argument.len(), |(at, _)| at)].trim_end()
}

/// Returns a container image without its tag and digest.
fn image_name(argument: &str) -> &str {
    let name = argument.split('@').next().unwrap_or(argument);
    match name.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => name,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(line: &str) -> ProcessSpec {
        let mut words = line.split(' ').map(str::to_owned);
        ProcessSpec {
            command: words.next().unwrap(),
            args: words.collect(),
            env_pass: Vec::new(),
            env: Default::default(),
            cwd: None,
        }
    }

    #[test]
    fn a_server_is_told_by_the_package_that_its_command_line_names() {
        let table = [
            ("npx -y @playwright/mcp@latest --headless", Some("@playwright/mcp")),
            ("npx @playwright/mcp", Some("@playwright/mcp")),
            ("/usr/local/bin/npx -y @Playwright/MCP@0.0.83", Some("@playwright/mcp")),
            ("playwright-mcp --isolated", Some("@playwright/mcp")),
            ("./node_modules/.bin/playwright-mcp", Some("@playwright/mcp")),
            ("node ./node_modules/@playwright/mcp/cli.js", Some("@playwright/mcp")),
            ("docker run -i --rm --init mcr.microsoft.com/playwright/mcp:latest", Some("@playwright/mcp")),
            ("docker run -i mcp/memory", Some("@modelcontextprotocol/server-memory")),
            ("cmd /c npx -y chrome-devtools-mcp@latest", Some("chrome-devtools-mcp")),
            ("pnpm dlx @modelcontextprotocol/server-memory", Some("@modelcontextprotocol/server-memory")),
            ("npm exec --package=chrome-devtools-mcp", Some("chrome-devtools-mcp")),
            ("uvx --from git+https://github.com/oraios/serena serena start-mcp-server", Some("serena-agent")),
            ("uvx --from git+https://github.com/oraios/serena@v1.0 other", Some("serena-agent")),
            ("uv tool run serena-agent==2.1.0", Some("serena-agent")),
            ("uvx browser-use[cli] --mcp", Some("browser-use")),
            ("python3 -m jupyter-mcp-server", Some("jupyter-mcp-server")),
            // Names that only look like one.
            ("npx -y @modelcontextprotocol/server-filesystem /home/ann/browser-use", None),
            ("uvx mcp-server-git --repository serena", None),
            ("mcp-server-git --repository serena", None),
            ("docker run -i mcp/git serena", None),
            ("docker run --name serena mcp/git", None),
            ("npx -y @playwright/mcp-extras", None),
            ("node server.js playwright-mcp", None),
            ("my-memory", None),
            ("npx", None),
        ];
        for (line, package) in table {
            assert_eq!(
                StatefulServer::from_process(&process(line)).map(|found| found.names[0]),
                package,
                "{line}"
            );
        }
    }

    #[test]
    fn what_a_process_of_its_own_needs_is_told_until_it_is_given() {
        let lacks = |line: &str| {
            let process = process(line);
            StatefulServer::from_process(&process).and_then(|server| server.missing_requirement(&process))
        };
        assert_eq!(lacks("npx @playwright/mcp"), Some(OWN_PROFILE));
        assert_eq!(lacks("npx @playwright/mcp --isolated"), None);
        assert_eq!(lacks("npx chrome-devtools-mcp --userDataDir=/x"), None);
        assert_eq!(lacks("npx @wonderwhy-er/desktop-commander"), None);
        assert!(lacks("npx @modelcontextprotocol/server-memory").is_some());
    }

    #[test]
    fn every_row_is_one_server_and_none_is_better_shared() {
        let mut names: Vec<&str> = SERVERS.iter().flat_map(|server| server.names).copied().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(SERVERS.is_sorted_by_key(|server| server.names[0]));
        assert!(
            SERVERS.iter().all(|server| !server.state.is_empty() && server.isolation != Isolation::Shared)
        );
    }
}
