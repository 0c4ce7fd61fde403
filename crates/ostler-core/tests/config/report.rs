//! A report lists every problem with its location and a hint.

use insta::assert_snapshot;

use crate::fake_files::parse;

#[test]
fn a_toml_file_is_told_all_its_problems_at_once() {
    let report = parse("ostler.toml", include_str!("../configs/broken.toml")).unwrap_err();
    assert_snapshot!(report.to_string(), @r#"
    /proj/ostler.toml:1:11: error: `version` wants 1, found the number 2
      1 | version = 2
        |           ^
    /proj/ostler.toml:2:10: error: `listen` wants an address, found "localhost:7777": an address to listen on is an IP address with a port, not a host name
      2 | listen = "localhost:7777"
        |          ^
      hint: write "7777" for a port of this machine, or an address such as "127.0.0.1:7777"
    /proj/ostler.toml:3:1: error: unknown key `colour` in the config
      3 | colour = "red"
        | ^
    /proj/ostler.toml:6:1: error: unknown key `comand` in servers.time
      6 | comand = "mcp-server-time"
        | ^
      hint: did you mean `command`?
    /proj/ostler.toml:7:14: error: `servers.time.keep_alive` wants a duration such as "30s", found the number 300
      7 | keep_alive = 300
        |              ^
      hint: write "300s" for seconds, or "300ms" for milliseconds
    /proj/ostler.toml:11:1: error: servers.both has both `command` and `url`
      11 | url = "https://example.com/mcp"
         | ^
      hint: keep one of them
    /proj/ostler.toml:12:8: error: `servers.both.lazy` wants true or false, found a text
      12 | lazy = "yes"
         |        ^
    /proj/ostler.toml:13:12: error: `servers.both.max_line` wants a size, found "16 megs": a size's units are B, KB, MB, GB, KiB, MiB and GiB
      13 | max_line = "16 megs"
         |            ^
      hint: write it like "64MiB", "4MB" or "512KiB"
    /proj/ostler.toml:15:10: error: "My_Server": a server name is made of a-z, 0-9, `-` and `_`, and begins with a letter or digit; found 'M'
      15 | [servers.My_Server]
         |          ^
      hint: call it `my_server`
    /proj/ostler.toml:19:11: error: `servers.web.command` is a whole command line, and no shell reads it
      19 | command = "npx -y some-server"
         |           ^
      hint: write command = "npx" and args = ["-y", "some-server"]
    /proj/ostler.toml:20:24: warning: `servers.web.env.GITHUB_TOKEN` is a secret written into the file
      hint: keep it out of the file: GITHUB_TOKEN = "${env:NAME}" or "${file:path}"
    /proj/ostler.toml:20:59: error: `servers.web.env.MODE`: `${MODE}` is not a reference
      hint: write `${env:MODE}` for the environment variable
    /proj/ostler.toml:21:13: error: `servers.web.isolation` wants "shared", "caller", "session" or "workspace", found "call"
      21 | isolation = "call"
         |             ^
      hint: did you mean "caller"?
    /proj/ostler.toml:22:16: error: `servers.web.call_timeout` is at least 1ms, found "0s"
      22 | call_timeout = "0s"
         |                ^
    /proj/ostler.toml:23:13: error: the first delay (10s) of `servers.web.restart` is longer than its longest (5s)
      23 | restart = { first_delay = "10s" }
         |             ^
      hint: raise `max_delay`
    /proj/ostler.toml:26:9: error: `servers.web.tool.search.cache` wants a duration such as "30s", or false, found true
      26 | cache = true
         |         ^
      hint: say for how long, such as "30s"
    /proj/ostler.toml:29:10: warning: a rule in `roles.reader.allow` names the server `tmie`, which does not exist
      29 | allow = ["tmie/*", "web"]
         |          ^
      hint: did you mean `time`?
    /proj/ostler.toml:29:20: error: "web" in `roles.reader.allow`: a rule of a role names server and tool, as in `server/tool`
      29 | allow = ["tmie/*", "web"]
         |                    ^
      hint: write "server/*" for all tools of a server
    /proj/ostler.toml:30:1: error: `roles.reader.budget` has no `per`
      30 | budget = { calls = 5 }
         | ^
      hint: write it like { calls = 1000, per = "1h" }
    "#);
}

#[test]
fn a_json_file_is_told_all_its_problems_at_once() {
    let report = parse("ostler.json", include_str!("../configs/broken.json")).unwrap_err();
    assert_snapshot!(report.to_string(), @r#"
    /proj/ostler.json:2:14: error: `version` wants 1, found the number 2
      2 |   "version": 2,
        |              ^
    /proj/ostler.json:3:13: error: `listen` wants an address, found ":7777": `:7777` does not say who may connect: write `7777` for this machine alone, `0.0.0.0:7777` for the network
      3 |   "listen": ":7777",
        |             ^
      hint: write "7777" for a port of this machine, or an address such as "127.0.0.1:7777"
    /proj/ostler.json:5:15: error: unknown key `comand` in servers.time
      5 |     "time": { "comand": "mcp-server-time", "keepAlive": 300 },
        |               ^
      hint: did you mean `command`?
    /proj/ostler.json:5:57: error: `servers.time.keep_alive` wants a duration such as "30s", found the number 300
      5 |     "time": { "comand": "mcp-server-time", "keepAlive": 300 },
        |                                                         ^
      hint: write "300s" for seconds, or "300ms" for milliseconds
    /proj/ostler.json:8:7: error: servers.both has both `command` and `url`
      8 |       "url": "https://example.com/mcp",
        |       ^
      hint: keep one of them
    /proj/ostler.json:9:15: error: `servers.both.lazy` wants true or false, found a text
      9 |       "lazy": "true",
        |               ^
      hint: write true without quotes
    /proj/ostler.json:11:7: error: `servers.both.keep_alive` is given twice, first as `keep_alive` in line 10
      11 |       "keepAlive": "2m",
         |       ^
      hint: keep one of them
    /proj/ostler.json:13:13: error: `servers.list` wants a table, found a list
      13 |     "list": [],
         |             ^
    /proj/ostler.json:16:15: error: `servers.web.args` wants a list of texts, found a text
      16 |       "args": "one two",
         |               ^
      hint: put it into [ ]
    /proj/ostler.json:17:24: error: `servers.web.env.PORT` wants a text, found the number 3000
      17 |       "env": { "PORT": 3000, "AUTH": "${input:auth}" },
         |                        ^
      hint: put it into quotes
    /proj/ostler.json:17:38: error: `servers.web.env.AUTH`: `${input:auth}` asks a person, and a host has nobody to ask
      17 |       "env": { "PORT": 3000, "AUTH": "${input:auth}" },
         |                                      ^
      hint: set an environment variable and write `${env:AUTH}`, or write `${file:path}`
    /proj/ostler.json:18:7: error: `headers` has no meaning for a server with a `command`
      18 |       "headers": { "X": "y" },
         |       ^
      hint: leave it out
    /proj/ostler.json:19:32: error: `servers.web.breaker.failures` wants a whole number from 0 to 4294967295, found the number -1
      19 |       "breaker": { "failures": -1, "reset": "soon" },
         |                                ^
      hint: write 0 or more, or leave it out for 5
    /proj/ostler.json:19:45: error: `servers.web.breaker.reset` wants a duration, found "soon": a duration is made of whole numbers with units
      19 |       "breaker": { "failures": -1, "reset": "soon" },
         |                                             ^
      hint: write it like "30s", "5m", "100ms" or "1h30m"
    /proj/ostler.json:21:5: error: `servers.web` is given twice, first in line 14
      21 |     "web": { "command": "again" },
         |     ^
      hint: keep one of them
    /proj/ostler.json:23:27: error: `cache.max_bytes` wants a size such as "64MiB", found the number 1000
      23 |   "cache": { "max_bytes": 1000, "maxTtl": "400d" },
         |                           ^
      hint: write "1000B" for bytes
    /proj/ostler.json:23:43: error: `cache.max_ttl` wants a duration, found "400d": a duration is at most 366d
      23 |   "cache": { "max_bytes": 1000, "maxTtl": "400d" },
         |                                           ^
      hint: write it like "30s", "5m", "100ms" or "1h30m"
    "#);
}

#[test]
fn a_syntax_error_is_pointed_at() {
    let toml = parse("ostler.toml", "[servers.a]\ncommand = \"x\nlazy = true\n").unwrap_err();
    assert_snapshot!(toml.to_string(), @r#"
    /proj/ostler.toml:2:13: error: not valid TOML: invalid basic string, expected `"`
      2 | command = "x
        |             ^
      hint: a server is [servers.NAME], with `command = "…"` on a line below
    "#);
    let json = parse("mcp.json", "{\"mcpServers\": {\n  \"a\": {\"command\" \"x\"}\n}}").unwrap_err();
    assert_snapshot!(json.to_string(), @r#"
    /proj/mcp.json:2:19: error: not valid JSON: expected colon after the string or word in object property
      2 |   "a": {"command" "x"}
        |                   ^
      hint: see that each `{`, `[` and `"` is closed, and commas stand between members
    "#);
}

#[test]
fn a_value_of_the_wrong_type_has_the_right_one_written_beside_it() {
    let hint = |text: &str| parse("ostler.toml", text).unwrap_err().problems.remove(0).hint;
    let server = |line: &str| hint(&format!("[servers.a]\ncommand = \"x\"\n{line}\n"));
    let table = [
        (server("keep_alive = 5"), Some("write \"5s\" for seconds, or \"5ms\" for milliseconds")),
        (server("keep_alive = 0"), None),
        (server("keep_alive = -5"), None),
        (server("max_line = 7"), Some("write \"7B\" for bytes")),
        (server("max_line = 0"), None),
        (server("max_line = -7"), None),
        (server("lazy = \"false\""), Some("write false without quotes")),
        (server("lazy = \"no\""), None),
        (server("max_in_flight = \"8\""), Some("write 8 without quotes")),
        (server("max_in_flight = \"many\""), None),
        (server("card = 3"), Some("put it into quotes")),
        (server("args = true"), Some("put each member into quotes, inside [ ]")),
        (server("args = \"a\""), Some("put it into [ ]")),
        (server("tool.t.cache = true"), Some("say for how long, such as \"30s\"")),
    ];
    for (row, (found, expected)) in table.into_iter().enumerate() {
        assert_eq!(found.as_deref(), expected, "row {row}");
    }
}

#[test]
fn an_empty_text_is_called_empty() {
    let report = parse("ostler.toml", "[servers.a]\ncommand = \"\"\n").unwrap_err();
    assert_eq!(report.problems[0].message, "`servers.a.command` wants a text, found an empty text");
}
