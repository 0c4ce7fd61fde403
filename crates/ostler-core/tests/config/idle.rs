//! Keys that nothing acts on yet are said, and refused where they protect.

use ostler_core::config::Severity;

use crate::world::{World, good};

fn said(text: &str) -> Vec<(Severity, String, u32)> {
    let problems = good(text).unsupported();
    problems.into_iter().map(|problem| (problem.severity, problem.path, problem.line)).collect()
}

#[test]
fn what_is_merely_missing_is_a_warning() {
    let text = "[servers.s]\ncommand = \"x\"\ncard = \"c.json\"\n";
    let found = said(text);
    let paths: Vec<_> = found.iter().map(|(_, path, line)| (path.as_str(), *line)).collect();
    assert_eq!(paths, [("servers.s.card", 3)]);
    assert!(found.iter().all(|(severity, ..)| *severity == Severity::Warning));
}

#[test]
fn what_changes_nothing_is_accepted_in_silence() {
    let text = "version = 1\nlisten = \"127.0.0.1:8888\"\nwatch = true\n[roles.local]\nallow = [\"*\"]\nbudget = { calls = 1, per = \"1h\" }\n[roles.a]\nallow = []\n[pins]\nmode = \"off\"\n\
                [servers.s]\ncommand = \"x\"\nisolation = \"shared\"\n";
    assert_eq!(said(text), []);
}

#[test]
fn the_place_is_known_in_other_clients_files_too() {
    let text = "{\"mcpServers\": {\n  \"My Server\": {\"url\": \"https://e.example\",\n    \"card\": \"https://e.example\"\n  }\n}}";
    let config = World::default().with("/proj/mcp.json", text).parse("/proj/mcp.json").unwrap();
    let found = config.unsupported();
    assert_eq!(
        found[0].to_string(),
        "/proj/mcp.json:3:5: warning: `servers.my-server.card` is read but not yet acted on by this version\n  \
         3 |     \"card\": \"https://e.example\"\n    |     ^\n  \
         hint: leave it out"
    );
}
