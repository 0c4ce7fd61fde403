//! Servers that are programs and do not start.

use crate::new_user::NewUser;
use crate::web_servers;

/// Returns the config of one server.
fn server(keys: &str) -> String {
    format!("[servers.weather]\n{keys}\n")
}

#[test]
fn a_typo_in_a_command() {
    let user = NewUser::with_config(&server("command = \"ndoe\"\nargs = [\"server.js\"]"));
    insta::assert_snapshot!(user.types(&[
        "check",
        "check --json",
        "tools",
        "call weather__forecast city=Oslo",
        "status --probe",
    ]));
}

#[test]
fn a_script_that_is_not_executable() {
    let user = NewUser::with_config(&server("command = \"./server.py\""));
    user.home.write(".config/ostler/server.py", "import mcp\n");
    insta::assert_snapshot!(user.types(&["check", "tools"]));
}

#[test]
fn a_script_whose_interpreter_is_missing() {
    let user = NewUser::with_config(&server("command = \"./server\""));
    user.home.write(".config/ostler/server", "#!/opt/venv/bin/python\n");
    make_executable(&user, ".config/ostler/server");
    insta::assert_snapshot!(user.types(&["tools"]));
}

#[test]
fn npx_without_node() {
    let user = NewUser::with_config(&server("command = \"npx\"\nargs = [\"-y\", \"@x/weather\"]"));
    insta::assert_snapshot!(user.path("/nowhere").types(&["check", "tools"]));
}

#[test]
fn the_whole_path_of_npx_without_node() {
    let user = NewUser::with_config(&server("command = \"./npx\"\nargs = [\"-y\", \"@x/weather\"]"));
    user.home.write(".config/ostler/npx", "#!/usr/bin/env node\n");
    make_executable(&user, ".config/ostler/npx");
    insta::assert_snapshot!(user.path("/nowhere").types(&["tools"]));
}

#[test]
fn uvx_without_uv() {
    let user = NewUser::with_config(&server("command = \"uvx\"\nargs = [\"mcp-server-weather\"]"));
    insta::assert_snapshot!(user.path("/nowhere").types(&["check", "tools"]));
}

#[test]
fn a_package_that_does_not_exist() {
    let registry = web_servers::serve(
        "404 Not Found",
        "content-type: application/json\r\n",
        "{\"error\":\"Not found\"}",
    );
    let user = NewUser::with_config(&format!(
        "[servers.weather]\ncommand = \"npx\"\nargs = [\"-y\", \"@x/mcp-server-wether\"]\n\
         env = {{ npm_config_registry = \"http://{registry}/\", npm_config_update_notifier = \"false\" }}\n"
    ));
    insta::assert_snapshot!(user.types(&["tools"]));
}

#[test]
fn a_variable_that_is_not_set() {
    let user = NewUser::with_config(&server("command = \"cat\"\nenv = { TOKEN = \"${env:WEATHER_TOKEN}\" }"));
    insta::assert_snapshot!(user.types(&["check", "tools"]));
}

#[test]
fn a_file_of_a_secret_that_is_missing() {
    let user =
        NewUser::with_config(&server("command = \"cat\"\nenv = { TOKEN = \"${file:~/.secrets/weather}\" }"));
    insta::assert_snapshot!(user.types(&["check", "tools"]));
}

#[test]
fn a_server_that_wants_a_variable() {
    let script = "console.error('Error: WEATHER_API_KEY environment variable is required'); process.exit(1)";
    let user = NewUser::with_config(&server(&format!("command = \"node\"\nargs = [\"-e\", {script:?}]")));
    insta::assert_snapshot!(user.types(&["tools"]));
}

#[test]
fn a_variable_that_is_set_and_not_passed() {
    let script = "import os; os.environ['WEATHER_API_KEY']";
    let user = NewUser::with_config(&server(&format!("command = \"python3\"\nargs = [\"-c\", {script:?}]")));
    let user = user.variable("WEATHER_API_KEY", "k-4711");
    let printed = user.types(&["tools"]);
    assert!(!printed.contains("k-4711"), "{printed}");
    insta::assert_snapshot!(printed);
}

#[test]
fn a_server_that_prints_its_usage_and_ends() {
    let user = NewUser::with_config(&server(
        "command = \"sh\"\nargs = [\"-c\", \"echo 'Usage: weather-server [--stdio | --port N]'\"]",
    ));
    insta::assert_snapshot!(user.types(&["tools"]));
}

#[test]
fn an_argument_that_the_server_needs() {
    let script =
        "import argparse; p = argparse.ArgumentParser('files'); p.add_argument('directory'); p.parse_args()";
    let user = NewUser::with_config(&server(&format!("command = \"python3\"\nargs = [\"-c\", {script:?}]")));
    insta::assert_snapshot!(user.types(&["tools", "status --probe"]));
}

#[test]
fn a_server_that_hangs_at_its_start() {
    let user =
        NewUser::with_config(&server("command = \"sleep\"\nargs = [\"600\"]\nstart_timeout = \"300ms\""));
    insta::assert_snapshot!(user.types(&["tools"]));
}

#[test]
fn a_server_that_serves_http_instead() {
    let script = "echo 'Weather server listening on http://localhost:3000'; sleep 600";
    let user = NewUser::with_config(&server(&format!(
        "command = \"sh\"\nargs = [\"-c\", {script:?}]\nstart_timeout = \"2s\""
    )));
    insta::assert_snapshot!(user.types(&["tools"]));
}

#[test]
fn a_server_that_crashes_at_an_import() {
    let user =
        NewUser::with_config(&server("command = \"python3\"\nargs = [\"-c\", \"import mcp_weather\"]"));
    insta::assert_snapshot!(user.types(&["tools", "call weather__forecast", "status --probe"]));
}

#[test]
fn a_script_that_is_not_where_the_config_says() {
    let user = NewUser::with_config(&server("command = \"node\"\nargs = [\"dist/index.js\"]"));
    insta::assert_snapshot!(user.types(&["tools"]));
}

#[test]
fn a_directory_that_does_not_exist() {
    let user = NewUser::with_config(&server("command = \"cat\"\ncwd = \"~/projects/weather\""));
    insta::assert_snapshot!(user.types(&["check", "tools"]));
}

#[test]
fn a_program_that_is_no_server() {
    let user = NewUser::with_config(&server("command = \"true\""));
    insta::assert_snapshot!(user.types(&["tools"]));
}

#[test]
fn a_server_that_logs_to_stdout_works_all_the_same() {
    let fake = ostler_testkit::fake_mcp();
    let script = format!("echo 'INFO starting'; exec {} --tools 0", fake.display());
    let user = NewUser::with_config(&server(&format!("command = \"sh\"\nargs = [\"-c\", {script:?}]")));
    let printed = user.types(&["tools weather__echo"]);
    insta::assert_snapshot!(printed);
}

#[test]
fn one_of_two_servers_does_not_start() {
    let fake = ostler_testkit::fake_mcp();
    let user = NewUser::with_config(&format!(
        "[servers.good]\ncommand = {fake:?}\n[servers.weather]\ncommand = \"ndoe\"\n"
    ));
    insta::assert_snapshot!(user.types(&["check", "tools good__echo", "warm", "prompts weather"]));
}

fn make_executable(user: &NewUser, name: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(user.home.path(name), std::fs::Permissions::from_mode(0o755)).unwrap();
}
