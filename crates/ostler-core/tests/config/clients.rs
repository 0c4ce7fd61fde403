//! Config files of other clients work unchanged.

use ostler_core::config::{Config, Severity};

use crate::fake_files::{FakeFiles, endpoint, messages, parse, process};

fn read(file: &str, text: &str) -> Config {
    FakeFiles::default().with(file, text).parse(file).unwrap_or_else(|report| panic!("{report}"))
}

fn names(config: &Config) -> Vec<&str> {
    config.servers.iter().map(|spec| spec.name.as_str()).collect()
}

#[test]
fn claude_code_variables_become_references() {
    let config = read("/proj/.mcp.json", include_str!("../configs/mcp.json"));
    assert_eq!(names(&config), ["git", "docs", "local"]);
    assert!(config.notices.is_empty(), "{:?}", config.notices);
    let git = process(&config.servers[0]);
    assert_eq!(git.args[2], "${env:REPO:-.}");
    assert_eq!(git.env["GIT_TOKEN"], "${env:GIT_TOKEN}");
    assert_eq!(endpoint(&config.servers[1]).headers["Authorization"], "Bearer ${env:DOCS_TOKEN}");
    assert_eq!(process(&config.servers[2]).command, "/proj/bin/server");
}

#[test]
fn claude_desktop_settings_beside_the_servers_are_nobodys_business() {
    let config =
        read("/cfg/claude_desktop_config.json", include_str!("../configs/claude_desktop_config.json"));
    assert_eq!(names(&config), ["filesystem", "brave-search"]);
    assert_eq!(
        messages(&config.notices),
        [
            "the server \"Brave Search\" is called `brave-search` here",
            "`servers.brave-search.env.BRAVE_API_KEY` is a secret written into the file",
        ]
    );
    assert_eq!(process(&config.servers[0]).args[3], "/Users/ann/My Documents");
}

#[test]
fn cursor_folders_are_known() {
    let config = read("/proj/.cursor/mcp.json", include_str!("../configs/cursor.json"));
    assert_eq!(names(&config), ["sequential-thinking", "figma", "tool"]);
    let tool = process(&config.servers[2]);
    assert_eq!(tool.command, "/proj/tools/run");
    assert_eq!(tool.cwd.as_deref(), Some("/proj".as_ref()));
    assert_eq!(tool.env["CONFIG"], "/home/ann/.tool");
    assert_eq!(tool.env["TOKEN"], "${env:TOOL_TOKEN}");
    assert_eq!(config.servers[2].keep_alive.as_secs(), 60, "our own keys work inside");
    assert_eq!(messages(&config.notices), ["`envFile` of servers.sequential-thinking is not used",]);
}

#[test]
fn vs_code_servers_stand_under_servers() {
    let config = read("/proj/.vscode/mcp.json", include_str!("../configs/vscode.json"));
    assert_eq!(names(&config), ["github", "playwright"]);
    assert!(config.notices.is_empty(), "{:?}", config.notices);
    let settings = r#"{"editor.tabSize": 2, "mcp": {"servers": {"a": {"command": "x"}}}}"#;
    assert_eq!(names(&read("/proj/.vscode/settings.json", settings)), ["a"]);
}

#[test]
fn an_input_that_asks_a_person_disables_its_server_and_no_other() {
    let text = r#"{"inputs": [{"type": "promptString", "id": "github-token", "description": "Token of GitHub"}],
        "servers": {
          "a": {"command": "x", "env": {"A": "${input:github-token}"}},
          "b": {"command": "${command:pick}"},
          "c": {"command": "x"}}}"#;
    let config = parse("mcp.json", text).unwrap();
    assert_eq!(names(&config), ["c"]);
    assert_eq!(
        messages(&config.notices),
        [
            "`servers.a.env.A`: `${input:github-token}` asks a person, and a host has nobody to ask \
             (\"Token of GitHub\"); this server is not run, the others are",
            "`servers.b.command`: `${command:pick}` is known to VS Code alone; this server is not run, the others are",
        ]
    );
    let disabled: Vec<_> = config.disabled.iter().map(|server| server.spec.name.as_str()).collect();
    assert_eq!(disabled, ["a", "b"]);
    assert_eq!(
        config.disabled[0].remedy,
        "set an environment variable and write `${env:GITHUB_TOKEN}`, or write `${file:path}`"
    );
    let own = parse("ostler.toml", "[servers.a]\ncommand = \"${input:x}\"\n");
    assert!(own.is_err(), "in Ostler's own file it is a mistake");
}

#[test]
fn a_server_that_is_switched_off_is_known_and_not_run() {
    for text in [r#""disabled": true"#, r#""enabled": false"#] {
        let text = format!(
            "{{\"mcpServers\": {{\n\"a\": {{\"command\": 7, {text}}},\n\"b\": {{\"command\": \"x\"}}}}}}"
        );
        let config = parse(".mcp.json", &text).unwrap();
        assert_eq!((names(&config), config.notices.len()), (vec!["b"], 0));
    }
    let text = "[servers.a]\ncommand = \"x\"\ndisabled = true # for now\n[servers.b]\ncommand = \"x\"\ndisabled = false\n";
    let config = parse("ostler.toml", text).unwrap();
    assert_eq!(names(&config), ["b"]);
    let [a] = config.disabled.as_slice() else { panic!("{:?}", config.disabled) };
    assert_eq!(process(&a.spec).command, "x");
    assert!(a.cause.ends_with("ostler.toml:3 says so"), "{}", a.cause);
    assert_eq!(a.remedy, "remove `disabled = true` there to enable it");
    assert!(parse("ostler.toml", "[servers.a]\ncommand = \"x\"\ndisabled = \"yes\"\n").is_err());
}

#[test]
fn windsurf_tools_that_are_switched_off_stay_off() {
    let config = read("/home/ann/mcp_config.json", include_str!("../configs/windsurf.json"));
    assert_eq!(names(&config), ["github", "figma"]);
    assert_eq!(config.servers[0].tools.allow, ["*"]);
    assert_eq!(config.servers[0].tools.deny, ["delete_repository", "push_files"]);
    assert_eq!(endpoint(&config.servers[1]).url, "https://figma.example.com/mcp");
    assert_eq!(config.disabled[0].spec.name.as_str(), "old");
    assert!(config.notices.is_empty(), "{:?}", config.notices);
}

#[test]
fn zed_writes_commands_in_two_ways_and_extensions_in_a_third() {
    let config = read("/home/ann/.config/zed/settings.json", include_str!("../configs/zed.json"));
    assert_eq!(names(&config), ["new", "older"]);
    assert_eq!(process(&config.servers[1]).command, "older-command");
    assert_eq!(process(&config.servers[1]).args, ["x"]);
    assert_eq!(
        messages(&config.notices),
        ["servers.mcp-server-github is run by an extension of its client, and left out"]
    );
}

#[test]
fn gemini_filters_are_kept_and_its_timeouts_are_not_guessed() {
    let config = read("/home/ann/.gemini/settings.json", include_str!("../configs/gemini.json"));
    assert_eq!(config.servers[0].tools.allow, ["search", "fetch"]);
    assert_eq!(config.servers[0].tools.deny, ["fetch"]);
    assert_eq!(process(&config.servers[1]).cwd.as_deref(), Some("/home/ann/server".as_ref()));
    assert_eq!(
        messages(&config.notices),
        [
            "`timeout` of servers.remote is not used",
            "`timeout` of servers.python is not used",
            "unknown key `colour` in servers.python",
        ]
    );
}

#[test]
fn names_are_slugged_once_and_never_collide() {
    let text = r#"{"mcpServers": {
        "Time": {"command": "a"}, "time": {"command": "b"}, "TIME": {"command": "c"}, "My Server": {"command": "d"}
    }}"#;
    let config = read("/proj/mcp.json", text);
    assert_eq!(names(&config), ["time-2", "time", "time-3", "my-server"]);
    assert_eq!(config.notices.len(), 3);
    let report = parse("mcp.json", r#"{"mcpServers": {"日本": {"command": "a"}}}"#).unwrap_err();
    assert_eq!(report.problems.len(), 1);
}

#[test]
fn a_misspelled_key_is_a_warning_there() {
    let config = read("/proj/mcp.json", r#"{"mcpServers": {"a": {"command": "x", "keepAlvie": "1m"}}}"#);
    assert_eq!(config.notices[0].severity, Severity::Warning);
    assert_eq!(config.notices[0].hint.as_deref(), Some("did you mean `keep_alive`?"));
}

#[test]
fn our_own_top_level_keys_are_not_silently_ignored_there() {
    let config = read("/proj/mcp.json", r#"{"mcpServers": {}, "listen": "0.0.0.0:1", "other": 1}"#);
    assert_eq!(messages(&config.notices), ["`listen` is not read in a file with `mcpServers`"]);
    let report = parse("mcp.json", r#"{"mcpServers": {}, "roles": {"a": {"allow": []}}}"#).unwrap_err();
    assert_eq!(messages(&report.problems), ["`roles` is not read in a file with `mcpServers`"]);
}

#[test]
fn a_list_of_tools_is_a_filter() {
    let config = read("/proj/mcp.json", r#"{"mcpServers": {"a": {"command": "x", "tools": ["one"]}}}"#);
    assert_eq!(config.servers[0].tools.allow, ["one"]);
}

#[test]
fn a_json_file_of_neither_kind_is_refused_in_one_line() {
    let report = parse("package.json", r#"{"name": "x", "dependencies": {}, "scripts": {}}"#).unwrap_err();
    assert_eq!(messages(&report.problems), ["the file has no `mcpServers` and is not one of Ostler's"]);
    assert_eq!(parse("a.json", "[]").unwrap_err().problems.len(), 1);
    assert!(parse("a.json", "{}").unwrap().servers.is_empty());
}

#[test]
fn only_what_an_extension_runs_is_left_out_for_want_of_a_command() {
    let text = |server: &str| format!(r#"{{"context_servers": {{"a": {server}}}}}"#);
    for left_out in [r#"{"source": "extension"}"#, r#"{"settings": {}}"#] {
        let config = read("/proj/settings.json", &text(left_out));
        assert_eq!(names(&config), [""; 0], "{left_out}");
        assert_eq!(messages(&config.notices).len(), 1, "{left_out}");
    }
    let kept = read("/proj/settings.json", &text(r#"{"source": "extension", "command": "x"}"#));
    assert_eq!(names(&kept), ["a"]);
    assert!(crate::fake_files::parse("settings.json", &text(r#"{"source": "custom"}"#)).is_err());
}
