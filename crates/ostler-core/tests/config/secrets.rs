//! Secrets belong elsewhere, and no message repeats one.

use crate::fake_files::{messages, parse, parse_valid};

const SECRETS: [&str; 3] = ["hunter2hunter2", "ghp_0123456789abcdefghij", "s3cr3t-value"];

/// Every way in which a file can hold a secret, with mistakes on the same lines.
const LEAKY: &str = r#"
[servers.a]
command = "x"
args = ["--token=hunter2hunter2", "--api-key", "hunter2hunter2", "ghp_0123456789abcdefghij"]
env = { GITHUB_TOKEN = "hunter2hunter2", OTHER = "ghp_0123456789abcdefghij", PORT = 1, REF = "${ghp_0123456789abcdefghij}" }
keep_alive = "ghp_0123456789abcdefghij"
isolation = "ghp_0123456789abcdefghij"
[servers.b]
url = "https://example.com/mcp?api_key=hunter2hunter2"
headers = { Authorization = "Bearer s3cr3t-value", "X Y" = "ghp_0123456789abcdefghij" }
ghp_0123456789abcdefghij = 1
"#;

#[test]
fn a_literal_secret_is_a_warning() {
    let config = parse_valid(
        "[servers.a]\ncommand = \"x\"\nargs = [\"--token=hunter2hunter2\", \"--api-key\", \"hunter2\"]\n\
         [servers.a.env]\nAPI_KEY = \"hunter2\"\nB = \"ghp_0123456789abcdefghij\"\n\
         C_TOKEN = \"${env:C}\"\nD_TOKEN = \"\"\n",
    );
    assert_eq!(
        messages(&config.notices),
        [
            "an argument in `servers.a.args` looks like a secret",
            "an argument in `servers.a.args` looks like a secret",
            "`servers.a.env.API_KEY` is a secret written into the file",
            "`servers.a.env.B` is a secret written into the file",
        ]
    );
    let hint = config.notices[2].hint.as_deref();
    assert_eq!(hint, Some("keep it out of the file: API_KEY = \"${env:NAME}\" or \"${file:path}\""));
}

#[test]
fn no_message_hint_or_excerpt_repeats_a_secret() {
    let report = parse("ostler.toml", LEAKY).unwrap_err();
    assert!(report.problems.len() >= 9, "{report}");
    for secret in SECRETS {
        assert!(!report.to_string().contains(secret), "{secret} in\n{report}");
        assert!(!format!("{report:?}").contains(secret), "{secret} in\n{report:?}");
    }
}

#[test]
fn a_syntax_error_does_not_repeat_a_secret_either() {
    for text in [
        "[servers.a.env]\nAPI_TOKEN = \"hunter2hunter2\" x\n",
        "[servers.a.env]\nA = \"ghp_0123456789abcdefghij\n",
        "{\"mcpServers\": {\"a\": {\"env\": {\"API_KEY\": \"s3cr3t-value\" \"B\": 1}}}}",
    ] {
        for file in ["a.toml", "a.json"] {
            let report = parse(file, text).unwrap_err().to_string();
            assert!(SECRETS.iter().all(|secret| !report.contains(secret)), "{report}");
        }
    }
}
