//! Questions of servers, progress and warnings on a terminal: in this process and through a daemon, with servers of
//! both eras.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::home::{Home, until};
use crate::http::open;
use crate::terminal::TestTerminal;

const LEGACY: &[&str] = &["--era", "legacy"];
const MODERN: &[&str] = &["--era", "modern"];

/// Calls a tool on a terminal; stdout goes into the file `out`.
fn start(home: &Home, args: &[&str]) -> TestTerminal {
    let out = File::create(home.path("out")).unwrap();
    TestTerminal::start_with_stdout(&home.command(args), Some(out.into()))
}

/// Returns the screen of a terminal without messages about slow servers, which depend on the machine's load.
fn shown(terminal: &TestTerminal) -> String {
    terminal.screen().lines().filter(|line| !line.starts_with("waiting")).collect::<Vec<_>>().join("\n")
}

fn out(home: &Home) -> String {
    std::fs::read_to_string(home.path("out")).unwrap()
}

/// Returns the result with which the question of a legacy server was answered.
fn answer(home: &Home) -> Value {
    let text = out(home);
    let message: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
    message["result"].clone()
}

/// Runs the check with and without a daemon.
fn both(servers: &[(&str, &[&str])], check: impl Fn(&Home)) {
    let home = Home::with_servers(servers);
    check(&home);
    let daemon = Daemon::start(&home);
    check(&home);
    assert_eq!(home.run(&["status", "--json"]).code, Some(0), "the daemon is fine");
    drop(daemon);
}

fn ask(home: &Home, params: &impl ToString) -> TestTerminal {
    let params = format!("params:={}", params.to_string());
    start(home, &["call", "fake__ask", "method=elicitation/create", &params])
}

#[test]
fn a_legacy_server_asks_during_the_call() {
    both(&[("fake", LEGACY)], |home| {
        let mut terminal = start(home, &["call", "fake__input"]);
        terminal.wait_for("`fake` asks:\n  Go on?\n");
        terminal.wait_for("ok (y or n): ");
        terminal.enter("perhaps");
        terminal.wait_for("answer y or n\n  ok (y or n): ");
        terminal.enter("y");
        assert_eq!(terminal.finish(), Some(0), "{}", terminal.screen());
        assert_eq!(answer(home), json!({ "action": "accept", "content": { "ok": true } }));
    });
}

#[test]
fn a_modern_server_asks_in_its_result_and_gets_its_state_back() {
    both(&[("fake", MODERN)], |home| {
        // JSON on stdout does not disable questions to a person.
        let mut terminal = start(home, &["call", "fake__input", "--json"]);
        terminal.wait_for("`fake` asks:\n  Go on?\n");
        terminal.wait_for("ok (y or n): ");
        terminal.enter("n");
        assert_eq!(terminal.finish(), Some(0), "{}", terminal.screen());
        // The server compares the state and prints the answers.
        let given: Value = serde_json::from_str(&out(home)).unwrap();
        let given = &given["structuredContent"];
        assert_eq!(*given, json!({ "confirm": { "action": "accept", "content": { "ok": false } } }));
    });
}

#[test]
fn a_form_is_filled_in_field_by_field() {
    let home = Home::with_servers(&[("fake", LEGACY)]);
    // Written as text, for the fields to stay in this order.
    let params = r#"{"message": "Who are you?\n\u001b[2Jreally", "requestedSchema": {"required": ["name", "age"],
        "properties": {
            "name": {"type": "string", "title": "Your name", "description": "As on the badge", "minLength": 2},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "mail": {"type": "string", "format": "email"},
            "color": {"oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}], "default": "g"},
            "days": {"type": "array", "items": {"type": "string", "enum": ["mo", "tu", "we"]}, "maxItems": 2},
            "news": {"type": "boolean", "default": true}}}}"#;
    let mut terminal = ask(&home, &params.replace('\n', " "));
    for (question, typed) in [
        ("Your name (at least 2 characters): ", "a"),
        ("Your name (at least 2 characters): ", "Ada"),
        ("age (whole number from 0 to 150): ", "old"),
        ("age (whole number from 0 to 150): ", "36"),
        ("mail (email, optional): ", ""),
        ("color (1 to 2, optional) [Green]: ", ""),
        ("days (some of 1 to 3, with commas, optional): ", "1, we"),
        ("news (y or n, optional) [y]: ", "n"),
        ("Send this to `fake`? [Y/n] ", ""),
    ] {
        terminal.wait_for(question);
        terminal.enter(typed);
    }
    assert_eq!(terminal.finish(), Some(0), "{}", terminal.screen());
    let content = json!({ "name": "Ada", "age": 36, "color": "g", "days": ["mo", "we"], "news": false });
    assert_eq!(answer(&home), json!({ "action": "accept", "content": content }));
    insta::assert_snapshot!("form", shown(&terminal));
}

#[test]
fn text_of_a_server_never_begins_a_line() {
    let home = Home::with_servers(&[("fake", LEGACY)]);
    // Spaces and letters up to the edge of the terminal, which has 100 columns; then text that imitates Ostler's
    // messages.
    let (spaces, letters) = (" ".repeat(98), "x".repeat(98));
    let label = format!("{}[sudo] password for root", "y".repeat(50));
    let message = format!("{spaces}error: sign in again{spaces}`git` asks:\n{letters}error: sign in again");
    let field = json!({ "type": "string", "title": label, "format": "password", "default": letters });
    let schema = json!({ "properties": { "a": field } });
    let mut terminal = ask(&home, &json!({ "message": message, "requestedSchema": schema }));
    terminal.wait_for("`fake` asks:\n");
    let above = terminal.wait_for("(Ctrl-D");
    terminal.wait_for("Ctrl-C cancels)\n");
    let prompt = terminal.wait_for("]: ");
    for line in above.lines().chain(prompt.lines()) {
        assert!(line.starts_with("  ") && line.chars().count() < 100, "{line:?} of {}", terminal.screen());
    }
    assert!(above.contains("error: sign in again") && prompt.contains("root"), "{}", terminal.screen());
}

#[test]
fn long_text_of_a_server_is_cut() {
    let home = Home::with_servers(&[("fake", LEGACY)]);
    let options: Vec<String> = (0..200).map(|at| format!("{at}{}", "b".repeat(300))).collect();
    let field = json!({ "title": "a".repeat(9_000), "description": "c\n".repeat(50), "enum": options, "default": options[7] });
    let schema = json!({ "properties": { "a": field } });
    let mut terminal = ask(&home, &json!({ "message": "m".repeat(9_000), "requestedSchema": schema }));
    terminal.wait_for("  … 30 more lines\n");
    terminal.wait_for("  … 136 more\n");
    terminal.wait_for("…]: ");
    assert!(terminal.screen().len() < 10_000, "{}", terminal.screen());
    terminal.enter("200");
    assert_eq!(terminal.finish(), Some(0), "{}", terminal.screen());
    assert_eq!(answer(&home)["content"]["a"], options[199].as_str());
}

#[test]
fn a_question_is_declined_or_cancelled() {
    both(&[("fake", LEGACY)], |home| {
        let text = json!({ "message": "m", "requestedSchema": { "properties": { "a": { "type": "string" } }, "required": ["a"] } });
        let consent =
            json!({ "message": "May I?", "requestedSchema": { "type": "object", "properties": {} } });
        let table = [
            (&text, "a (text): ", "\n", "decline"),
            (&text, "a (text): ", "\u{4}", "decline"),
            (&text, "a (text): ", "\u{3}", "cancel"),
            (&consent, "Agree? [y/N] ", "\n", "decline"),
            (&consent, "Agree? [y/N] ", "n\n", "decline"),
            (&consent, "Agree? [y/N] ", "y\n", "accept"),
        ];
        for (params, question, keys, action) in table {
            let mut terminal = ask(home, params);
            terminal.wait_for(question);
            terminal.press(keys);
            assert_eq!(terminal.finish(), Some(0), "{keys:?}: {}", terminal.screen());
            assert_eq!(answer(home)["action"], action, "{keys:?}");
        }
    });
}

#[test]
fn a_page_is_named_and_never_opened() {
    let home = Home::with_servers(&[("fake", LEGACY)]);
    let params = json!({ "mode": "url", "message": "Sign in", "elicitationId": "1", "url": "https://\u{430}pple.example/a?b=c" });
    let mut terminal = ask(&home, &params);
    terminal.wait_for("or will you? [y/N] ");
    terminal.enter("y");
    assert_eq!(terminal.finish(), Some(0), "{}", terminal.screen());
    assert_eq!(answer(&home), json!({ "action": "accept" }));
    insta::assert_snapshot!("url", shown(&terminal));
}

#[test]
fn an_address_that_fills_the_screen_is_declined() {
    let home = Home::with_servers(&[("fake", LEGACY)]);
    let url = format!("https://evil.example/{}https://github.com/login/device", "a".repeat(1_890));
    let mut terminal =
        ask(&home, &json!({ "mode": "url", "message": "m", "elicitationId": "1", "url": url }));
    assert_eq!(terminal.finish(), Some(0), "{}", terminal.screen());
    assert_eq!(answer(&home), json!({ "action": "decline" }));
    let screen = terminal.screen();
    assert!(screen.contains("a page of evil.example") && !screen.contains("github.com"), "{screen}");
}

#[test]
fn ctrl_c_without_a_question_ends_the_call() {
    both(&[("fake", LEGACY)], |home| {
        let mut terminal = start(home, &["call", "fake__progress", "count=2000", "ms=50"]);
        terminal.wait_for("fake: 1/2000 (0%)");
        terminal.press("\u{3}");
        assert_eq!(terminal.finish(), Some(130), "{}", terminal.screen());
    });
}

/// Starts a call of a server that asks for a text this many times, whatever the answer.
fn ask_again_and_again(home: &Home, count: u32) -> TestTerminal {
    let text =
        json!({ "message": "More", "requestedSchema": { "properties": { "a": { "type": "string" } } } });
    let (params, count) = (format!("params:={text}"), format!("count={count}"));
    start(home, &["call", "fake__ask", "method=elicitation/create", &params, &count])
}

#[test]
fn ctrl_c_cancels_one_question_and_the_next_ends_the_call() {
    both(&[("fake", LEGACY)], |home| {
        let mut terminal = ask_again_and_again(home, 1_000_000);
        terminal.wait_for("Ctrl-C cancels)");
        terminal.wait_for("a (text, optional): ");
        terminal.press("\u{3}");
        terminal.wait_for("cancelled; Ctrl-C again ends the call\n");
        terminal.wait_for("Ctrl-C ends the call)");
        terminal.wait_for("a (text, optional): ");
        terminal.press("\u{3}");
        assert_eq!(terminal.finish(), Some(130), "{}", terminal.screen());
    });
}

#[test]
fn a_call_may_ask_so_many_questions_and_no_more() {
    both(&[("fake", LEGACY)], |home| {
        let mut terminal = ask_again_and_again(home, 40);
        for _ in 0..32 {
            terminal.wait_for("a (text, optional): ");
            terminal.enter("x");
        }
        assert_eq!(terminal.finish(), Some(0), "{}", terminal.screen());
        let refusals = terminal.screen().matches("has asked 32 questions in this call").count();
        assert_eq!(refusals, 1, "{}", terminal.screen());
        assert_eq!(answer(home), json!({ "action": "cancel" }));
    });
}

#[test]
fn a_question_ends_with_its_call() {
    both(&[("fake", LEGACY)], |home| {
        let mut terminal = start(home, &["call", "fake__input", "--timeout", "4s"]);
        terminal.wait_for("ok (y or n): ");
        terminal.wait_for("\nerror: ");
        assert_eq!(terminal.finish(), Some(8), "{}", terminal.screen());
    });
}

#[test]
fn a_caller_that_leaves_ends_its_call_at_the_daemon() {
    let home = Home::with_servers(&[("fake", LEGACY)]);
    let daemon = Daemon::start(&home);
    let mut terminal = start(&home, &["call", "fake__input"]);
    terminal.wait_for("ok (y or n): ");
    assert_eq!(daemon.server("fake")["leases"], 1);
    drop(terminal);
    until("the call is over", || daemon.server("fake")["leases"] == 0);
}

#[test]
fn progress_is_one_line_that_is_rewritten() {
    for era in [LEGACY, MODERN] {
        both(&[("fake", era)], |home| {
            let mut terminal = start(home, &["call", "fake__progress", "count=3"]);
            assert_eq!(terminal.finish(), Some(0), "{}", terminal.screen());
            let screen = terminal.screen();
            assert!(screen.contains("\rfake: 3/3 (100%)\u{1b}[K\r\u{1b}[K"), "{screen:?}");
            assert!(!screen.contains("%)\n"), "{screen:?}");
        });
    }
}

#[test]
fn warnings_of_the_server_are_shown_and_lesser_ones_are_not() {
    both(&[("fake", LEGACY)], |home| {
        let params = |level: &str| format!("params:={}", json!({ "level": level, "data": "disk\u{7} full" }));
        let mut terminal = start(home, &["call", "fake__notify", &params("warning")]);
        assert_eq!(terminal.finish(), Some(0));
        assert!(terminal.screen().contains("fake: warning: disk\\u{7} full\n"), "{}", terminal.screen());
        let mut terminal = start(home, &["call", "fake__notify", &params("info")]);
        assert_eq!(terminal.finish(), Some(0));
        assert!(!terminal.screen().contains("disk"), "{}", terminal.screen());
    });
}

#[test]
fn without_a_terminal_nothing_is_shown_or_asked() {
    for era in [LEGACY, MODERN] {
        both(&[("fake", era)], |home| {
            let run = home.run(&["call", "fake__progress", "count=3"]);
            assert!(!run.stderr.contains("fake:") && run.code == Some(0), "{run}");
        });
    }
    let home = Home::with_servers(&[("fake", MODERN)]);
    insta::assert_snapshot!("nobody", home.run(&["call", "fake__input"]));
    let run = home.run(&["call", "fake__input", "--json"]);
    assert!(run.stdout.starts_with(r#"{"resultType":"input_required","#), "{run}");
    assert_eq!(run.code, Some(7), "{run}");
    both(&[("fake", LEGACY)], |home| {
        let run = home.run(&["call", "fake__input"]);
        assert!(run.stdout.contains("-32601"), "the server is told that nobody can: {run}");
        let said = "warning: the tool `fake__input` asked \"Go on?\", and went on without an answer";
        assert!(run.code == Some(0) && run.stderr.contains(said), "{run}");
    });
}

/// Legacy server whose tools ask a question and forward its refusal, as a result (`ask`) or as an error (`rpc`).
const ASKING_SERVER: &str = r#"
while read -r line; do
  id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
  case "$line" in
    *'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"a","version":"1"}}}' ;;
    *'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"ask","inputSchema":{"type":"object"}},{"name":"rpc","inputSchema":{"type":"object"}}]}}' ;;
    *'"tools/call"'*) call=$id kind=result; case "$line" in *'"rpc"'*) kind=error ;; esac
      echo '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Which city?","requestedSchema":{"type":"object","properties":{}}}}' ;;
    *'"id":"q"'*) case $kind in
        error) echo '{"jsonrpc":"2.0","id":'$call',"error":{"code":-32601,"message":"the client said no"}}' ;;
        *) echo '{"jsonrpc":"2.0","id":'$call',"result":{"content":[{"type":"text","text":"MCP error -32601"}],"isError":true}}' ;;
      esac ;;
    *'"server/discover"'*) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no such method"}}' ;;
  esac
done
"#;

#[test]
fn a_call_that_fails_because_nobody_answers_tells_what_its_legacy_server_asked() {
    let home = Home::new();
    home.write("asking.sh", ASKING_SERVER);
    home.write("ostler.toml", "[servers.asking]\ncommand = \"sh\"\nargs = [\"asking.sh\"]\n");
    let check = || {
        for tool in ["ask", "rpc"] {
            let run = home.run(&["call", &format!("asking__{tool}")]);
            assert_eq!(run.code, Some(7), "{run}");
            let said =
                format!("error: the tool `asking__{tool}` was not finished: its server asks \"Which city?\"");
            assert!(run.stderr.contains(&said) && run.stderr.contains("run it in a terminal"), "{run}");
        }
        let told = home.run(&["call", "asking__rpc", "--json"]);
        let told: Value = serde_json::from_str(&told.stdout).unwrap();
        assert_eq!(told["error"]["code"], "input-required");
    };
    check();
    let _daemon = Daemon::start(&home);
    check();
}

#[test]
fn progress_is_told_in_lines_where_it_is_asked_for() {
    both(&[("fake", MODERN)], |home| {
        let run = home.run(&["call", "fake__progress", "count=2", "--verbose"]);
        assert!(run.stderr.contains("fake: 1/2 (50%)\nfake: 2/2 (100%)\n"), "{run}");
    });
}

#[test]
fn sampling_and_roots_are_refused_by_name() {
    both(&[("fake", LEGACY)], |home| {
        for method in ["sampling/createMessage", "roots/list"] {
            let mut terminal = start(home, &["call", "fake__ask", &format!("method={method}")]);
            assert_eq!(terminal.finish(), Some(0));
            let message: Value = serde_json::from_str(&out(home)).unwrap();
            assert_eq!(message["error"]["code"], -32601, "{message}");
            let why = format!("the client of this call does not offer `{method}`");
            assert_eq!(message["error"]["message"], why.as_str());
        }
    });
}

/// Begins a call as commands do, and reads until the server has asked; returns the id of the question.
fn observe(daemon: &Daemon<'_>) -> (BufReader<TcpStream>, Value) {
    let bearer = format!("Authorization: Bearer {}", daemon.token());
    let headers = [bearer.as_str(), "Connection: upgrade", "Upgrade: ostler-stdio", "Ostler-Commands: 1"];
    let mut stream = open(daemon.port, "GET /api/v1/attach", &headers, "");
    let client = json!({ "name": "test", "version": "1" });
    let said = json!({ "protocolVersion": "2025-11-25", "capabilities": { "elicitation": {} }, "clientInfo": client });
    let meta = json!({ "dev.ostler/server": "fake", "dev.ostler/elicitation": true, "progressToken": 0 });
    let call = json!({ "name": "input", "arguments": {}, "_meta": meta });
    for message in [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": said }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call }),
    ] {
        writeln!(stream.get_mut(), "{message}").unwrap();
    }
    loop {
        let mut line = String::new();
        assert_ne!(stream.read_line(&mut line).unwrap(), 0, "the daemon hung up");
        let message: Value = serde_json::from_str(&line).unwrap_or_default();
        if message["method"] == "elicitation/create" {
            return (stream, message["id"].clone());
        }
    }
}

#[test]
fn a_question_of_a_server_is_a_request_to_the_command_and_answered_by_its_id() {
    let home = Home::with_servers(&[("fake", LEGACY)]);
    let daemon = Daemon::start(&home);
    let (mut stream, id) = observe(&daemon);
    let stray = json!({ "jsonrpc": "2.0", "id": 7, "result": {} });
    let answer = json!({ "jsonrpc": "2.0", "id": id, "result": { "action": "decline" } });
    write!(stream.get_mut(), "{stray}\n{answer}\n").unwrap();
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    let message: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(message["id"], 2, "{message}");
    assert_eq!(message["result"]["structuredContent"]["result"]["action"], "decline", "{message}");
}

#[test]
fn a_command_that_leaves_cancels_its_call_at_once() {
    let home = Home::with_servers(&[("fake", LEGACY)]);
    let daemon = Daemon::start(&home);
    let (stream, _) = observe(&daemon);
    assert_eq!(daemon.server("fake")["leases"], 1);
    drop(stream);
    until("the call is over", || daemon.server("fake")["leases"] == 0);
}
