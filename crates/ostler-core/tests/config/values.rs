//! Meaning of a file after it is read.

use std::path::Path;
use std::time::Duration;

use ostler_core::config::{
    AuditedArguments, Config, ConfigSource, GatewayConfig, NoSource, PinMode, RoleBudget, WhenFull,
};
use ostler_core::server_name::ServerName;
use ostler_core::spec::{CacheRule, CacheScopeRule, Isolation, RetryRule, ServerSpec};

use crate::fake_files::{FakeFiles, endpoint, parse, parse_invalid, parse_valid, process};

#[test]
fn the_documented_file_means_what_it_says() {
    let world = FakeFiles::default()
        .with("/proj/ostler.toml", include_str!("../configs/contract.toml"))
        .with("/proj/.mcp.json", include_str!("../configs/mcp.json"));
    let config = world.parse("/proj/ostler.toml").unwrap();
    assert!(config.notices.is_empty(), "{:?}", config.notices);
    let names: Vec<_> = config.servers.iter().map(|spec| spec.name.as_str()).collect();
    assert_eq!(names, ["time", "remote", "git", "docs", "local"]);

    let time = &config.servers[0];
    assert_eq!(process(time).command, "mcp-server-time");
    assert_eq!(process(time).args, ["--local-timezone", "UTC"]);
    assert_eq!(process(time).env["TOKEN"], "${env:TIME_TOKEN}");
    assert_eq!(process(time).cwd.as_deref(), Some("/proj".as_ref()));
    assert_eq!(time.tool_rules("get_current_time").cache, CacheRule::For(Duration::from_secs(5)));
    assert_eq!(time.tool_rules("get_current_time").retry, RetryRule::Safe);
    assert_eq!(time.card.as_deref(), Some("https://example.com/card.json"));

    let remote = endpoint(&config.servers[1]);
    assert_eq!(remote.url, "https://mcp.example.com/mcp");
    assert_eq!(remote.headers["Authorization"], "Bearer ${file:/home/ann/.secrets/remote}");

    let researcher = &config.roles["researcher"];
    assert_eq!(researcher.allow, ["time/*", "git/git_log"]);
    assert_eq!(researcher.deny, ["*/delete_*"]);
    assert_eq!(researcher.budget, Some(RoleBudget { calls: 1000, per: Duration::from_secs(3600) }));
    assert_eq!(config.listen.to_string(), "127.0.0.1:7777");
    assert_eq!(config.pins, PinMode::Enforce);
    let relay = config.relay.unwrap();
    assert_eq!((relay.nats, relay.tenant), (vec!["nats://127.0.0.1:4222".to_owned()], "default".to_owned()));
}

#[test]
fn a_server_with_nothing_but_a_command_is_lazy_and_has_every_default() {
    let config = parse_valid("[servers.a]\ncommand = \"x\"\n");
    assert_eq!(config.servers, [ServerSpec::stdio(ServerName::new("a").unwrap(), "x").cwd("/proj").lazy()]);
}

#[test]
fn an_empty_file_has_every_default() {
    let (config, default) = (parse_valid(""), Config::new(Vec::new()));
    assert!(config.servers.is_empty() && config.roles.is_empty() && config.watch);
    assert_eq!(config.gateway, default.gateway);
    assert_eq!((config.pool, config.cache, config.listen), (default.pool, default.cache, default.listen));
}

#[test]
fn every_setting_of_the_gateway_can_be_set() {
    let config = parse_valid(
        r#"
        [gateway]
        max_body = "1MiB"
        max_sessions = 2
        session_idle = "3m"
        max_connections = 4
        allowed_hosts = ["box.example", "odd.example:8080"]
        allowed_origins = ["https://app.example", "vscode-webview://abc"]
        list_patience = "5s"
        "#,
    );
    let expected = GatewayConfig {
        max_body: 1 << 20,
        max_sessions: 2,
        session_idle: Duration::from_secs(180),
        max_connections: 4,
        allowed_hosts: vec!["box.example".into(), "odd.example:8080".into()],
        allowed_origins: vec!["https://app.example".into(), "vscode-webview://abc".into()],
        list_patience: Duration::from_secs(5),
    };
    assert_eq!(config.gateway, expected);
}

#[test]
fn hosts_and_origins_that_could_never_match_are_refused() {
    let table = [
        ("allowed_hosts", "https://box.example", "write a name such as"),
        ("allowed_hosts", "*.example", "there are no patterns here"),
        ("allowed_hosts", "", "write a name such as"),
        ("allowed_origins", "app.example", "write a scheme and a name"),
        ("allowed_origins", "https://app.example/", "write a scheme and a name"),
        ("allowed_origins", "https://*.example", "there are no patterns here"),
    ];
    for (key, text, hint) in table {
        let problems =
            parse("ostler.toml", &format!("[gateway]\n{key} = [{text:?}]\n")).unwrap_err().problems;
        assert_eq!(problems.len(), 1, "{key} {text}");
        assert!(problems[0].hint.as_deref().unwrap().contains(hint), "{problems:?}");
    }
}

#[test]
fn json_means_the_same_as_toml_in_both_spellings() {
    let json = parse("ostler.json", include_str!("../configs/own.json")).unwrap();
    let toml = parse_valid(
        "[servers.time]\ncommand = \"mcp-server-time\"\nkeep_alive = \"1m\"\nmax_in_flight = 8\n\
         restart.first_delay = \"50ms\"\ntool.get_current_time.cache = false\n[pool]\nmax_processes = 2",
    );
    assert_eq!(json.servers, toml.servers);
    assert_eq!(json.pool, toml.pool);
}

#[test]
fn every_setting_of_a_server_can_be_set() {
    let config = parse_valid(
        r#"
        [servers.a]
        command = "x"
        lazy = false
        keep_alive = "0s"
        isolation = "session"
        start_timeout = "1s"
        call_timeout = "2s"
        max_call_time = "3s"
        max_in_flight = 4
        max_queued = 0
        max_line = "1MB"
        drain = "0ms"
        trust = true
        restart = { max = 0, window = "6s", first_delay = "7ms", max_delay = "8ms", readmit_after = "9h" }
        breaker = { failures = 0, reset = "10s" }
        tools = { allow = ["a*"], deny = ["ab"] }
        card = "card.json"
        "#,
    );
    let spec = &config.servers[0];
    assert!(!spec.lazy && spec.trust && spec.isolation == Isolation::Session);
    let seconds = |number| Duration::from_secs(number);
    assert_eq!((spec.keep_alive, spec.drain), (seconds(0), seconds(0)));
    assert_eq!(
        (spec.start_timeout, spec.call_timeout, spec.max_call_time),
        (seconds(1), seconds(2), seconds(3))
    );
    assert_eq!((spec.max_in_flight, spec.max_queued, spec.max_line), (4, 0, 1_000_000));
    assert_eq!((spec.restart.max, spec.restart.window), (0, seconds(6)));
    assert_eq!(spec.restart.first_delay, Duration::from_millis(7));
    assert_eq!(spec.restart.max_delay, Duration::from_millis(8));
    assert_eq!(spec.restart.readmit_after, Some(seconds(9 * 3600)));
    assert_eq!((spec.breaker.failures, spec.breaker.reset), (0, seconds(10)));
    assert_eq!(
        (spec.tools.allow.as_slice(), spec.tools.deny.as_slice()),
        (&["a*".into()][..], &["ab".into()][..])
    );
    assert_eq!(spec.card.as_deref(), Some("/proj/card.json"));
}

#[test]
fn commands_with_a_slash_are_paths_and_others_are_names() {
    let table = [
        ("npx", "npx"),
        ("./server", "/proj/server"),
        ("bin/server", "/proj/bin/server"),
        ("../server", "/proj/../server"),
        ("/opt/server", "/opt/server"),
        ("~/bin/server", "/home/ann/bin/server"),
        ("${env:TOOLS}/server", "${env:TOOLS}/server"),
    ];
    for (written, meant) in table {
        let config = parse_valid(&format!("[servers.a]\ncommand = \"{written}\"\n"));
        assert_eq!(process(&config.servers[0]).command, meant, "{written}");
    }
}

#[test]
fn working_directories_are_relative_to_the_file() {
    let table = [(".", "/proj"), ("sub", "/proj/sub"), ("~", "/home/ann"), ("/opt", "/opt")];
    for (written, meant) in table {
        let config = parse_valid(&format!("[servers.a]\ncommand = \"x\"\ncwd = \"{written}\"\n"));
        assert_eq!(process(&config.servers[0]).cwd.as_deref(), Some(meant.as_ref()), "{written}");
    }
    assert_eq!(
        parse_invalid("[servers.a]\ncommand = \"x\"\ncwd = \"${env:DIR}\"\n"),
        ["`servers.a.cwd` can't hold `${env:…}` or `${file:…}`"]
    );
}

#[test]
fn a_zero_that_makes_no_sense_is_refused() {
    let server = |line: &str| format!("[servers.a]\ncommand = \"x\"\n{line}\n");
    for line in [
        "call_timeout = \"0s\"",
        "start_timeout = \"0s\"",
        "max_call_time = \"0s\"",
        "max_in_flight = 0",
        "max_line = \"0B\"",
        "restart.window = \"0s\"",
        "restart.first_delay = \"0s\"",
        "breaker.reset = \"0s\"",
        "tool.x.cache = \"0s\"",
    ] {
        assert!(!parse_invalid(&server(line)).is_empty(), "{line}");
    }
    assert!(!parse_invalid("[pool]\nmax_in_flight = 0").is_empty());
    assert_eq!(
        parse_invalid("[pool]\nmax_processes = 0"),
        ["`pool.max_processes` wants a whole number, at least 1, found the number 0"],
    );
}

#[test]
fn more_servers_than_processes_that_may_live_at_once_are_warned_of() {
    let servers = |count: usize| -> String {
        (0..count).map(|number| format!("[servers.s{number}]\ncommand = \"x\"\n")).collect()
    };
    assert!(parse_valid(&servers(64)).notices.is_empty());
    let crowded = parse_valid(&servers(65));
    assert_eq!(
        crowded.notices.iter().map(|notice| notice.message.as_str()).collect::<Vec<_>>(),
        ["there are 65 servers with a process and room for 64 at once"]
    );
    let small = parse_valid(&format!("[pool]\nmax_processes = 1\n{}", servers(2)));
    assert_eq!((small.notices[0].line, small.notices[0].path.as_str()), (2, "pool.max_processes"));
    let remote = "[servers.r]\nurl = \"http://127.0.0.1:1/mcp\"\n[servers.s]\ncommand = \"x\"\n";
    assert!(parse_valid(&format!("[pool]\nmax_processes = 1\n{remote}")).notices.is_empty());
}

#[test]
fn limits_that_contradict_each_other_are_refused() {
    assert_eq!(
        parse_invalid("[servers.a]\ncommand = \"x\"\ncall_timeout = \"20m\"\n"),
        ["`call_timeout` (20m) of servers.a is longer than `max_call_time` (10m)"]
    );
    assert_eq!(
        parse_invalid("[servers.a]\ncommand = \"x\"\nrestart.max_delay = \"1ms\"\n"),
        ["the first delay (100ms) of `servers.a.restart` is longer than its longest (1ms)"]
    );
}

#[test]
fn a_key_that_belongs_to_the_other_kind_of_server_is_refused() {
    assert_eq!(
        parse_invalid("[servers.a]\nurl = \"https://a.example/mcp\"\nargs = [\"x\"]\n"),
        ["`args` has no meaning for a server with a `url`"]
    );
    assert_eq!(
        parse_invalid("[servers.a]\ncommand = \"x\"\nheaders = { A = \"b\" }\n"),
        ["`headers` has no meaning for a server with a `command`"]
    );
}

#[test]
fn keys_of_other_clients_are_explained_in_our_own_file() {
    let report =
        parse("ostler.toml", "[servers.a]\ncommand = \"x\"\ntype = \"stdio\"\ntimeout = 5\n").unwrap_err();
    let hints: Vec<_> = report.problems.iter().map(|problem| problem.hint.as_deref().unwrap_or("")).collect();
    assert_eq!(hints[0], "leave it out: `command` or `url` says it");
    assert!(hints[1].ends_with("set `call_timeout` such as \"60s\""), "{}", hints[1]);
}

#[test]
fn the_demo_is_the_program_itself() {
    let config = Config::demo("/usr/bin/ostler");
    assert_eq!(config.servers.len(), 1);
    assert_eq!(config.server("demo").map(process).unwrap().command, "/usr/bin/ostler");
}

#[test]
fn every_word_of_a_choice_is_understood() {
    let pins = |mode| parse_valid(&format!("[pins]\nmode = \"{mode}\"\n")).pins;
    assert_eq!(["enforce", "warn", "off"].map(pins), [PinMode::Enforce, PinMode::Warn, PinMode::Off]);
    let arguments = |word| parse_valid(&format!("[audit]\narguments = \"{word}\"\n")).audit.arguments;
    assert_eq!(["hash", "full"].map(arguments), [AuditedArguments::Hash, AuditedArguments::Full]);
    let when_full = |word| parse_valid(&format!("[audit]\nwhen_full = \"{word}\"\n")).audit.when_full;
    assert_eq!(["gap", "wait"].map(when_full), [WhenFull::Gap, WhenFull::Wait]);
    let server =
        |line: &str| parse_valid(&format!("[servers.a]\ncommand = \"x\"\n{line}\n")).servers.remove(0);
    let isolation = |word| server(&format!("isolation = \"{word}\"")).isolation;
    assert_eq!(
        ["shared", "caller", "session", "workspace"].map(isolation),
        [Isolation::Shared, Isolation::Caller, Isolation::Session, Isolation::Workspace]
    );
    let scope = |word| server(&format!("cache_scope = \"{word}\"")).cache_scope;
    assert_eq!(["server", "private"].map(scope), [CacheScopeRule::Server, CacheScopeRule::Private]);
}

#[test]
fn what_is_exactly_at_a_bound_is_within_it() {
    assert_eq!(parse_valid("[audit]\nmax_size = \"1MiB\"\n").audit.max_size, 1 << 20);
    assert_eq!(parse_invalid("[audit]\nmax_size = \"1048575B\"\n").len(), 1);
    assert_eq!(parse_valid("[gateway]\nmax_body = \"1KiB\"\n").gateway.max_body, 1_024);
    assert_eq!(parse_invalid("[gateway]\nmax_body = \"1023B\"\n").len(), 1);
    let server = "[servers.a]\ncommand = \"x\"\n";
    let same = parse_valid(&format!("{server}restart = {{ first_delay = \"5s\", max_delay = \"5s\" }}\n"));
    assert_eq!(same.servers[0].restart.first_delay, Duration::from_secs(5));
    let year = parse_valid(&format!("{server}keep_alive = \"366d\"\n"));
    assert_eq!(year.servers[0].keep_alive, Duration::from_secs(366 * 86_400));
    assert_eq!(parse_invalid(&format!("{server}keep_alive = \"366d1ms\"\n")).len(), 1);
}

fn place(origin: Option<(&Path, u32)>) -> Option<(&str, u32)> {
    origin.map(|(file, line)| (file.to_str().unwrap(), line))
}

#[test]
fn the_config_knows_where_its_parts_stand() {
    let text = "listen = \"127.0.0.1:1\"\n[servers.a]\ncommand = \"x\"\n[roles.r]\nallow = [\n\"a/x\",\n\"a/y\",\n]\n\
                deny = [\"a/z\"]\n[pins]\nmode = \"warn\"\n";
    let config = parse_valid(text);
    assert_eq!(place(config.origin("a")), Some(("/proj/ostler.toml", 2)));
    assert_eq!(place(config.origin("b")), None);
    assert_eq!(place(config.origin_of_rule("r", "allow", 1)), Some(("/proj/ostler.toml", 7)));
    assert_eq!(place(config.origin_of_rule("r", "deny", 0)), Some(("/proj/ostler.toml", 9)));
    assert_eq!(place(config.origin_of_rule("r", "deny", 1)), None);
    assert_eq!(place(config.origin_of_key("listen")), Some(("/proj/ostler.toml", 1)));
    assert_eq!(place(config.origin_of_pins()), Some(("/proj/ostler.toml", 11)));
    assert_eq!(place(parse_valid("").origin_of_pins()), None);
}

#[test]
fn a_source_without_files_has_none_and_no_home() {
    assert_eq!(NoSource.read("/etc/passwd".as_ref()).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    assert_eq!(NoSource.home(), None);
}

#[test]
fn a_file_reference_never_comes_to_a_path_that_would_end_it() {
    let world = FakeFiles::default()
        .with("/pr}oj/ostler.toml", "[servers.a]\ncommand = \"x\"\nenv = { A = \"${file:secret}\" }\n");
    let report = world.parse("/pr}oj/ostler.toml").unwrap_err();
    assert_eq!(report.problems[0].message, "the path of a `${file:}` reference can't contain `}`");
}

#[test]
fn an_unreadable_reference_in_another_clients_file_stays_as_it_is() {
    let text = r#"{"mcpServers": {"a": {"command": "x", "env": {"A": "${what is this}"}}}}"#;
    let config = parse("mcp.json", text).unwrap();
    assert_eq!(process(&config.servers[0]).env["A"], "$${what is this}");
    assert_eq!(config.notices.len(), 1);
}

#[test]
fn a_tool_has_a_name_of_one_to_256_characters() {
    let tool = |name: &str| format!("[servers.a]\ncommand = \"x\"\ntool.\"{name}\".retry = \"safe\"\n");
    let longest = "t".repeat(256);
    assert!(parse_valid(&tool(&longest)).servers[0].tool.contains_key(&longest));
    for wrong in [String::new(), "t".repeat(257)] {
        assert_eq!(parse_invalid(&tool(&wrong)).len(), 1);
    }
}

#[test]
fn a_call_may_take_all_the_time_there_is_and_no_more() {
    let times = |call: &str| {
        format!("[servers.a]\ncommand = \"x\"\ncall_timeout = \"{call}\"\nmax_call_time = \"5m\"\n")
    };
    assert_eq!(parse_valid(&times("5m")).servers[0].call_timeout, Duration::from_secs(300));
    assert_eq!(parse_invalid(&times("301s")).len(), 1);
}

#[test]
fn a_server_is_told_that_it_has_neither_command_nor_url() {
    assert_eq!(parse_invalid("[servers.a]\nlazy = true\n"), ["servers.a has neither `command` nor `url`"]);
    assert_eq!(
        parse_invalid("[servers.a]\ncomand = \"x\"\n"),
        ["unknown key `comand` in servers.a"],
        "one mistake is told once"
    );
    let theirs = parse("mcp.json", r#"{"mcpServers": {"a": {"comand": "x"}}}"#).unwrap_err();
    let errors: Vec<_> = theirs.problems.iter().filter(|problem| problem.is_error()).collect();
    assert_eq!(errors[0].message, "servers.a has neither `command` nor `url`");
}

#[test]
fn an_address_has_a_host_and_no_blanks() {
    for wrong in ["https://", "https:///x", "https://:80", "https://?", "ftp://a", "https://a b", "a"] {
        assert_eq!(parse_invalid(&format!("[servers.a]\nurl = \"{wrong}\"\n")).len(), 1, "{wrong}");
    }
    for right in ["https://a", "http://a:80/x", "${env:URL}"] {
        assert_eq!(
            endpoint(&parse_valid(&format!("[servers.a]\nurl = \"{right}\"\n")).servers[0]).url,
            right
        );
    }
}

#[test]
fn names_and_values_of_variables_and_headers_are_checked() {
    let process = |env: &str| format!("[servers.a]\ncommand = \"x\"\nenv = {{ {env} }}\n");
    let remote = |headers: &str| format!("[servers.a]\nurl = \"https://a\"\nheaders = {{ {headers} }}\n");
    for wrong in [
        process(r#""" = "v""#),
        process(r#""A=B" = "v""#),
        remote(r#""" = "v""#),
        remote(r#""A B" = "v""#),
        remote(r#""A:" = "v""#),
        remote(r#"A = "a\u0001b""#),
        remote(r#"A = "a\r\nB: b""#),
    ] {
        assert_eq!(parse_invalid(&wrong).len(), 1, "{wrong}");
    }
    assert_eq!(endpoint(&parse_valid(&remote(r#"X-A = "a\tb""#)).servers[0]).headers["X-A"], "a\tb");
    assert_eq!(
        crate::fake_files::process(&parse_valid(&process(r#"A = "a\u001bb""#)).servers[0]).env["A"],
        "a\u{1b}b"
    );
}

#[test]
fn variables_to_pass_are_those_of_the_server_and_of_the_defaults() {
    let text = "[defaults]\nenv_pass = [\"AWS_*\", \"A\"]\nlogin_path = false\n\
                [servers.a]\ncommand = \"x\"\nenv_pass = [\"A\", \"B\"]\n\
                [servers.b]\nurl = \"http://localhost/mcp\"\n[servers.c]\ncommand = \"x\"\n";
    let config = parse_valid(text);
    assert_eq!(process(&config.servers[0]).env_pass, ["A", "B", "AWS_*"]);
    assert_eq!(process(&config.servers[2]).env_pass, ["AWS_*", "A"]);
    assert!(!config.defaults.login_path && parse_valid("").defaults.login_path);
    for key in ["envPass", "env_pass"] {
        let json = format!("{{\"mcpServers\": {{\"a\": {{\"command\": \"x\", \"{key}\": [\"A\"]}}}}}}");
        assert_eq!(process(&parse("mcp.json", &json).unwrap().servers[0]).env_pass, ["A"]);
    }
    let wrong = parse_invalid("[servers.a]\ncommand = \"x\"\nenv_pass = [\"A=b\"]\n");
    assert_eq!(wrong, ["\"A=b\" in `servers.a.env_pass`: it wants the name of a variable, and no value"]);
}

#[test]
fn an_ejected_server_is_readmitted_after_a_minute_unless_the_config_says_otherwise() {
    let table = [
        ("", Some(Duration::from_secs(60))),
        ("restart.readmit_after = \"2m\"", Some(Duration::from_secs(120))),
        ("restart.readmit_after = \"never\"", None),
    ];
    for (line, expected) in table {
        let config = parse("ostler.toml", &format!("[servers.a]\ncommand = \"a\"\n{line}\n")).unwrap();
        assert_eq!(config.servers[0].restart.readmit_after, expected, "{line}");
    }
    for (value, hint) in [("\"0s\"", "write \"never\""), ("\"often\"", ""), ("60", "write \"60s\"")] {
        let text = format!("[servers.a]\ncommand = \"a\"\nrestart.readmit_after = {value}\n");
        let problems = parse("ostler.toml", &text).unwrap_err().problems;
        let errors = problems[0].hint.clone().unwrap_or_default();
        assert!(problems.len() == 1 && errors.contains(hint), "{value}: {problems:?}");
    }
}

#[test]
fn the_workspace_is_the_files_directory_unless_there_is_a_process_for_each() {
    let server = |lines: &str| {
        let text = format!(
            "[servers.a]\ncommand = \"${{workspace}}/run\"\nargs = [\"${{workspaceFolder}}\", \"$${{workspace}}\"]\n\
             env = {{ ROOT = \"${{workspace}}/x\" }}\ncwd = \"${{workspaceFolder}}/sub\"\n{lines}\n"
        );
        FakeFiles::default()
            .with("/proj/ostler.toml", &text)
            .parse("/proj/ostler.toml")
            .unwrap()
            .servers
            .remove(0)
    };
    let shared = server("");
    assert_eq!(process(&shared).command, "/proj/run");
    assert_eq!(process(&shared).args, ["/proj", "$${workspace}"]);
    assert_eq!(process(&shared).env["ROOT"], "/proj/x");
    assert_eq!(process(&shared).cwd.as_deref(), Some("/proj/sub".as_ref()));
    assert_eq!(shared.workspace, None);

    let own = server("isolation = \"workspace\"");
    assert_eq!(process(&own).command, "${workspace}/run");
    assert_eq!(process(&own).args, ["${workspace}", "$${workspace}"]);
    assert_eq!(process(&own).env["ROOT"], "${workspace}/x");
    assert_eq!(process(&own).cwd_in(Some("/home/ann/p")), Some("/home/ann/p/sub".into()));
    assert_eq!(own.workspace.as_deref(), Some(Path::new("/proj")));
    assert_ne!(own.fingerprint(), shared.fingerprint());
    let elsewhere = server("isolation = \"workspace\"\nworkspace = \"~/p\"");
    assert_eq!(elsewhere.workspace.as_deref(), Some(Path::new("/home/ann/p")));
}

/// Returns the warnings about a file.
fn warnings(file: &str, text: &str) -> Vec<(String, Option<String>)> {
    let config = FakeFiles::default().with(file, text).parse(file).unwrap();
    config.notices.iter().map(|notice| (notice.message.clone(), notice.hint.clone())).collect()
}

#[test]
fn a_workspace_in_a_file_of_no_project_is_warned_of_once_for_each_server() {
    let line = "command = \"x\"\nargs = [\"${workspaceFolder}\", \"${workspace}/a\"]\n";
    let text = format!("[servers.a]\n{line}[servers.b]\n{line}isolation = \"workspace\"\n");
    let errors = |file: &str| warnings(file, &text);
    let found = errors("/home/ann/.config/ostler/ostler.toml");
    assert_eq!(
        found,
        [(
            "`${workspaceFolder}` in `servers.a.args` is /home/ann/.config/ostler for every client: the folder of this \
             file, which is no project's"
                .to_owned(),
            Some(
                "add isolation = \"workspace\" to the server to have the directory of each client, or write a path".to_owned()
            )
        )]
    );
    for wide in ["/home/ann/ostler.toml", "/etc/ostler/ostler.toml", "/settings/ostler/ostler.toml"] {
        assert_eq!(errors(wide).len(), 1, "{wide}");
    }
    for project in ["/proj/ostler.toml", "/home/ann/code/ostler.toml", "/srv/bob/.config/ostler.toml"] {
        assert_eq!(errors(project), [], "{project}");
    }
    let client = r#"{"mcpServers": {"a": {"command": "x", "args": ["${workspaceFolder}"]}}}"#;
    let found = warnings("/home/ann/.cursor/mcp.json", client);
    assert_eq!(found.len(), 1);
    assert!(found[0].1.as_ref().unwrap().contains("\"isolation\": \"workspace\""), "{found:?}");
    assert_eq!(warnings("/home/ann/code/.cursor/mcp.json", client), []);
}

#[test]
fn a_command_in_a_list_is_told_how_it_is_written() {
    let errors = |name: &str, text: &str| {
        let problems = parse(name, text).unwrap_err().problems;
        assert_eq!(problems.len(), 1, "{problems:?}");
        (problems[0].message.clone(), problems[0].hint.clone().unwrap())
    };
    let message = "`servers.a.command` wants a text, found a list".to_owned();
    let client = r#"{"mcpServers": {"a": {"command": ["npx", "-y", "x"]}}}"#;
    let hint = r#"write "command": "npx" and "args": ["-y", "x"]"#.to_owned();
    assert_eq!(errors(".mcp.json", client), (message.clone(), hint));
    let own = "[servers.a]\ncommand = [\"npx\", \"-y\"]\nargs = [\"x\"]\n";
    let hint = r#"write command = "npx" and args = ["-y", "x"]"#.to_owned();
    assert_eq!(errors("ostler.toml", own), (message, hint));
}

#[test]
fn a_tilde_is_the_home_directory_of_paths_and_warned_of_in_arguments() {
    let config = parse_valid("[servers.a]\ncommand = \"~/bin/run\"\ncwd = \"~/work\"\n");
    assert_eq!(process(&config.servers[0]).command, "/home/ann/bin/run");
    assert_eq!(process(&config.servers[0]).cwd.as_deref(), Some("/home/ann/work".as_ref()));
    assert_eq!(config.notices, []);
    let args = "[servers.a]\ncommand = \"x\"\nargs = [\"~/docs\", \"~\", \"a~/b\", \"~bob\"]\n";
    assert_eq!(process(&parse_valid(args).servers[0]).args, ["~/docs", "~", "a~/b", "~bob"]);
    let warned = |text: &str, hint: &str| {
        let message =
            format!("{text:?} in `servers.a.args` reaches the program as it is: no shell expands `~`");
        (message, Some(format!("write the whole path, or {hint:?}")))
    };
    assert_eq!(
        warnings("/proj/ostler.toml", args),
        [warned("~/docs", "${env:HOME}/docs"), warned("~", "${env:HOME}")]
    );
    // A shell reads this one.
    let shell = "[servers.a]\ncommand = \"sh\"\nargs = [\"-lc\", \"~/bin/run\"]\n";
    assert_eq!(warnings("/proj/ostler.toml", shell), []);
}

#[test]
fn a_workspace_has_no_meaning_without_a_process_for_each() {
    let problems = parse_invalid("[servers.a]\ncommand = \"x\"\nworkspace = \"/w\"\n");
    assert_eq!(problems, ["`servers.a.workspace` has no meaning without isolation = \"workspace\""]);
    let mixed = "[servers.a]\ncommand = \"x\"\nisolation = \"workspace\"\ncwd = \"x/${workspace}\"\n";
    assert_eq!(parse_invalid(mixed).len(), 1);
}
