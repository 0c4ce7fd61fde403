//! Downloader: a package manager that fetches a program before it runs it, detected from the command line.

use std::path::Path;

use crate::spec::ProcessSpec;
use crate::stderr_cause::without_colours;

/// A package manager that may download what it starts. Its name is the key that serializes downloads: two at
/// once would share one cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Downloader(&'static str);

/// Commands that download: the program, the subcommand that downloads (empty if the program always does), the
/// manager.
const COMMANDS: [(&str, &str, Downloader); 21] = [
    ("npx", "", Downloader("npm")),
    ("npm", "exec", Downloader("npm")),
    ("npm", "x", Downloader("npm")),
    ("pnpx", "", Downloader("pnpm")),
    ("pnpm", "dlx", Downloader("pnpm")),
    ("pnpm", "exec", Downloader("pnpm")),
    ("yarn", "dlx", Downloader("yarn")),
    ("bunx", "", Downloader("bun")),
    ("bun", "x", Downloader("bun")),
    ("deno", "run", Downloader("deno")),
    ("uvx", "", Downloader("uv")),
    ("uv", "run", Downloader("uv")),
    ("uv", "tool", Downloader("uv")),
    ("uv", "x", Downloader("uv")),
    ("pipx", "run", Downloader("pipx")),
    ("dnx", "", Downloader("dotnet")),
    ("dotnet", "run", Downloader("dotnet")),
    ("docker", "run", Downloader("docker")),
    ("podman", "run", Downloader("podman")),
    ("go", "run", Downloader("go")),
    ("cargo", "run", Downloader("cargo")),
];

/// Line prefixes that package managers print while they download. The output of other managers can't be told
/// from that of the programs they run.
const PROGRESS_PREFIXES: [(&str, &[&str]); 2] = [
    (
        "npm",
        &[
            "npm ",
            "need to install",
            "ok to proceed",
            "added ",
            "changed ",
            "up to date",
            "(node:",
            "(use `node",
            ">",
        ],
    ),
    (
        "uv",
        &[
            "audited ",
            "build",
            "built ",
            "bytecode",
            "creating ",
            "download",
            "install",
            "prepar",
            "resolv",
            "uninstalled ",
            "updat",
            "using ",
            "warning: ",
            "+ ",
            "- ",
        ],
    ),
];

impl Downloader {
    /// Returns the downloader of a command line.
    pub fn from_process(process: &ProcessSpec) -> Option<Self> {
        let program = Path::new(&process.command).file_name()?.to_str()?;
        let program =
            program.strip_suffix(".exe").or_else(|| program.strip_suffix(".cmd")).unwrap_or(program);
        // Options of the program itself may precede the subcommand.
        let subcommand = process.args.iter().find(|argument| !argument.starts_with('-')).map(String::as_str);
        let is_it = |(name, wanted): (&str, &str)| {
            name == program && (wanted.is_empty() || subcommand == Some(wanted))
        };
        COMMANDS.iter().find(|(name, wanted, _)| is_it((name, wanted))).map(|(_, _, manager)| *manager)
    }

    /// Returns whether a line of output is certainly the program's, so that the download has ended.
    pub fn is_program_output(self, line: &str) -> bool {
        let Some((_, own)) = PROGRESS_PREFIXES.iter().find(|(manager, _)| *manager == self.0) else {
            return false;
        };
        let line = without_colours(line).to_lowercase();
        // Progress lines start with blocks, bars and dots.
        let text = line.trim_start_matches(|c: char| !c.is_alphanumeric() && !"(>+-".contains(c));
        let has_words = text.contains(char::is_alphabetic);
        has_words && !own.iter().any(|begin| text.starts_with(begin))
    }

    /// Returns the name of the package manager.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_program_is_told_from_those_of_its_downloader() {
        let table = [
            ("npm", "npm warn deprecated glob@7.2.3: no longer supported", false),
            (
                "npm",
                "npm WARN exec The following package was not found and will be installed: x@1.0.0",
                false,
            ),
            ("npm", "\\u{1b}[33mnpm notice\\u{1b}[39m New major version", false),
            ("npm", "npm error code E404", false),
            ("npm", "Need to install the following packages:", false),
            ("npm", "added 93 packages in 4s", false),
            ("npm", "(node:71) ExperimentalWarning: CommonJS module loads an ES module", false),
            ("npm", "⠙", false),
            ("npm", "", false),
            ("npm", "MCP Streamable HTTP Server listening on port 3001", true),
            ("npm", "[info] Secure MCP Filesystem Server running on stdio", true),
            ("npm", "stdout: hello", true),
            ("uv", "Installed 31 packages in 25ms", false),
            ("uv", "⠼ Resolving dependencies...", false),
            ("uv", " + mcp==1.2.0", false),
            ("uv", "   Building cryptography", false),
            ("uv", "INFO:     Uvicorn running on http://127.0.0.1:8000", true),
            ("cargo", "Server is up", false),
        ];
        for (manager, line, is_of_program) in table {
            assert_eq!(Downloader(manager).is_program_output(line), is_of_program, "{manager}: {line}");
        }
    }

    #[test]
    fn a_downloader_is_told_by_its_command_line() {
        let table = [
            ("npx -y @modelcontextprotocol/server-memory", Some("npm")),
            ("/usr/local/bin/npx server", Some("npm")),
            ("npx.cmd server", Some("npm")),
            ("npm exec server", Some("npm")),
            ("npm --silent exec server", Some("npm")),
            ("pnpm dlx server", Some("pnpm")),
            ("bunx server", Some("bun")),
            ("uvx mcp-server-time", Some("uv")),
            ("uv tool run mcp-server-time", Some("uv")),
            ("uv run server.py", Some("uv")),
            ("pipx run server", Some("pipx")),
            ("dnx Server", Some("dotnet")),
            ("docker run -i --rm mcp/time", Some("docker")),
            ("go run ./cmd/server", Some("go")),
            ("cargo run --release", Some("cargo")),
            ("npm start", None),
            ("docker exec -i box server", None),
            ("node server.js", None),
            ("npx-server", None),
            ("/opt/npx/server", None),
            ("docker", None),
        ];
        for (line, manager) in table {
            let mut words = line.split(' ').map(str::to_owned);
            let process = ProcessSpec {
                command: words.next().unwrap(),
                args: words.collect(),
                env_pass: Vec::new(),
                env: Default::default(),
                cwd: None,
            };
            assert_eq!(Downloader::from_process(&process).map(Downloader::as_str), manager, "{line}");
        }
    }
}
