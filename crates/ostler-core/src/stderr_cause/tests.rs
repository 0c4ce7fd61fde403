use super::*;

fn cause_of_output(output: &str) -> Option<String> {
    let lines: Vec<&str> = output.lines().collect();
    find_cause_line(&lines).map(|line| line.text)
}

/// A file of real output and the line that tells its cause.
macro_rules! outputs {
    ($($name:literal => $cause:expr,)*) => {
        [$(($name, include_str!(concat!("outputs/", $name, ".txt")), $cause),)*]
    };
}

#[test]
fn the_telling_line_of_real_programs_is_found() {
    let table = outputs! {
        "node-require" => "Error: Cannot find module '@modelcontextprotocol/sdk' (MODULE_NOT_FOUND)",
        "node-import" => "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'nothing-here' imported from /srv/app/b.mjs",
        "node-missing-file" => "Error: Cannot find module '/srv/app/missing.js' (MODULE_NOT_FOUND)",
        "node-type-error" => "TypeError: Cannot read properties of undefined (reading 'length')",
        "node-async-throw" => "Error: GITHUB_TOKEN is not set",
        "node-code" => "Error: connect failed (ECONNREFUSED)",
        "node-syntax" => "SyntaxError: Unexpected token '{'",
        "node-refused" => "Error: connect ECONNREFUSED 127.0.0.1:1",
        "node-thrown-object" => "{ message: 'plain' }",
        "node-rejection" => "unhandled promise rejection: \"no key\" (ERR_UNHANDLED_REJECTION)",
        "node-cause" => "ConfigError: bad config file",
        "node-fatal-in-main" => "Fatal error in main(): Error: No API key",
        "node-bad-option" => "node: bad option: --frob",
        "python-module" => "ModuleNotFoundError: No module named 'nothing_here'",
        "python-key" => "KeyError: 'API_KEY'",
        "python-chained" => "RuntimeError: could not read the config: line two",
        "python-syntax" => "SyntaxError: invalid syntax",
        "python-group" => "ValueError: bad token",
        "python-usage" => "mcp-server-git: error: the following arguments are required: --repository",
        "python-exit" => "Error: no database URL given",
        "python-assert" => "AssertionError",
        "python-logging" => "ZeroDivisionError: division by zero",
        "python-missing-file" => "/usr/bin/python3: can't open file '/srv/app/missing.py': [Errno 2] No such file or directory",
        "python-missing-module" => "/usr/bin/python3: No module named nothing_here",
        "rust-panic" => "called `Result::unwrap()` on an `Err` value: \"no config\"",
        "rust-panic-short" => "called `Result::unwrap()` on an `Err` value: \"no config\"",
        "rust-panic-lines" => "port 80 is taken",
        "rust-main" => "Error: Os { code: 2, kind: NotFound, message: \"No such file or directory\" }",
        "cargo-run" => "error[E0308]: mismatched types",
        "cargo-manifest" => "error: manifest path `/nope/Cargo.toml` does not exist",
        "java-exception" => "Exception in thread \"main\" java.lang.IllegalStateException: no token: java.io.IOException: disk",
        "java-jar" => "Error: Unable to access jarfile nope.jar",
        "java-class" => "Error: Could not find or load main class Nope: java.lang.ClassNotFoundException: Nope",
        "java-option" => "Unrecognized option: --frob",
        "npx-404" => "npm error E404: The requested resource '@modelcontextprotocol/server-not-there@*' could not be found or \
                      you do not have permission to access it.",
        "npx-version" => "npm error ETARGET: No matching version found for semver@99.9.9.",
        "npx-refused" => "npm error ECONNREFUSED: FetchError: request to http://127.0.0.1:1/cowsay failed, reason: connect \
                          ECONNREFUSED 127.0.0.1:1",
        "npx-no-program" => "npm error could not determine executable to run",
        "uvx-missing" => "error: No solution found when resolving tool dependencies: Because mcp-server-not-there-xyz was not \
                          found in the package registry and you require mcp-server-not-there-xyz, we can conclude that your \
                          requirements are unsatisfiable.",
        "uvx-refused" => "error: Request failed after 3 retries in 11.5s: Failed to fetch: http://127.0.0.1:1/simple/abc-xyz/: \
                          error sending request for url (http://127.0.0.1:1/simple/abc-xyz/): client error (Connect): tcp \
                          connect error: Connection refused (os error 111)",
        "uvx-certificate" => "error: Failed to fetch: https://index.example/simple/mcp-server-time/: error sending request for url \
                              (https://index.example/simple/mcp-server-time/): client error (Connect): invalid peer certificate: \
                              UnknownIssuer",
        "uvx-no-program" => "Package `iniconfig` does not provide any executables.",
        "uv-run" => "error: Failed to spawn: nope.py: No such file or directory (os error 2)",
        "docker-no-daemon" => "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon \
                               running?",
        "sh-missing" => "sh: 1: nope-cmd: not found",
        "env-missing" => "env: ‘nope-cmd’: No such file or directory",
    };
    for (name, output, cause) in table {
        assert_eq!(cause_of_output(output).as_deref(), Some(cause), "{name}");
    }
}

#[test]
fn other_known_forms_are_found_too() {
    let table = [
        (
            "panic: open config.json: no such file or directory\n\ngoroutine 1 [running]:\nmain.main()\n /srv/main.go:8 +0x85\nexit status 2",
            "panic: open config.json: no such file or directory",
        ),
        ("2024/05/06 07:08:09 missing API_TOKEN\nexit status 1", "2024/05/06 07:08:09 missing API_TOKEN"),
        (
            "thread 'main' panicked at 'no config', src/main.rs:2:5\nnote: run with `RUST_BACKTRACE=1`",
            "no config",
        ),
        (
            "  × No solution found when resolving tool dependencies:\n  ╰─▶ Because x was not found in the package registry",
            "× No solution found when resolving tool dependencies: Because x was not found in the package registry",
        ),
        (
            "Error: could not open the database\n\nCaused by:\n    0: open /x\n    1: permission denied",
            "Error: could not open the database: open /x: permission denied",
        ),
        (
            "error: the following required arguments were not provided:\n  --root <DIR>\n\nUsage: x --root <DIR>\n\nFor more information, try '--help'.",
            "error: the following required arguments were not provided: --root <DIR>",
        ),
        (
            "Unhandled exception. System.InvalidOperationException: no key\n   at Program.Main() in /srv/P.cs:line 3",
            "Unhandled exception. System.InvalidOperationException: no key",
        ),
        (
            "run.rb:1:in `main': no token (RuntimeError)\n from run.rb:3",
            "run.rb:1:in `main': no token (RuntimeError)",
        ),
        (
            "\\u{1b}[2m2026-01-02T03:04:05Z\\u{1b}[0m \\u{1b}[31mERROR\\u{1b}[0m app: no token\n2026-01-02T03:04:05Z INFO app: bye",
            "2026-01-02T03:04:05Z ERROR app: no token",
        ),
        (
            "Error: no key\n    at main (/srv/x.js:1:1)\nnpm error Lifecycle script `start` failed with error:\nnpm error code 1\nnpm error path /srv",
            "Error: no key",
        ),
        (
            "npm ERR! code E404\nnpm ERR! 404  'x@*' is not in this registry.",
            "npm error E404: 'x@*' is not in this registry.",
        ),
        ("}\n", "}"),
    ];
    for (output, cause) in table {
        assert_eq!(cause_of_output(output).as_deref(), Some(cause));
    }
    assert_eq!(cause_of_output("\n  \n"), None);
}

#[test]
fn an_error_that_the_server_survived_is_not_its_cause() {
    let later: String = (0..=STALE_AFTER).map(|n| format!("request {n}\n")).collect();
    let output = format!("Error: no cache\n{later}");
    assert_eq!(cause_of_output(&output).unwrap(), format!("request {STALE_AFTER}"));
}

#[test]
fn a_long_cause_is_cut_and_its_place_is_known() {
    let line = find_cause_line(&["starting".to_owned(), format!("Error: {}", "ä".repeat(400))]).unwrap();
    assert_eq!((line.at, line.text.chars().count()), (1, MAX_CHARS + 1));
}

#[test]
fn a_server_that_runs_on_stdio_is_not_taken_for_one_that_serves_http() {
    for line in [
        "listening on port 3001",
        "Server running on http://localhost:1",
        "Uvicorn running on http://[::]:8000",
    ] {
        assert_eq!(KnownCause::parse(line), Some(KnownCause::ServesHttp), "{line}");
    }
    for line in
        ["Weather server running on stdio transport", "started on import", "listening for stdio, port unused"]
    {
        assert_eq!(KnownCause::parse(line), None, "{line}");
    }
}

#[test]
fn a_program_that_waits_for_a_login_or_has_a_page_for_people_is_no_mere_http_server() {
    let table: [(&[&str], bool); 5] = [
        (&["MCP Streamable HTTP Server listening on port 3001"], true),
        (&["loading", "stdout: Weather server listening on http://localhost:3000"], true),
        (
            &[
                "Please authorize this client by visiting: https://x",
                "server running at http://127.0.0.1:3334",
            ],
            false,
        ),
        (&["Dashboard running on http://127.0.0.1:24282"], false),
        (&["loading"], false),
    ];
    for (lines, is_http) in table {
        assert_eq!(is_http_server(lines), is_http, "{lines:?}");
    }
}
