//! Configs with mistakes, missing configs, and configs that name Ostler.

use ostler_testkit::fake_mcp;

use crate::new_user::NewUser;

const OSTLER: &str = env!("CARGO_BIN_EXE_ostler");

#[test]
fn no_config_at_all() {
    insta::assert_snapshot!(NewUser::without_config().types(&["check", "list"]));
}

#[test]
fn a_config_that_is_named_and_missing() {
    insta::assert_snapshot!(
        NewUser::without_config().types(&["tools --config ostler.tml", "serve --config ostler.toml"])
    );
}

#[test]
fn toml_that_is_broken() {
    let user = NewUser::with_config("[servers.weather\ncommand = \"npx\"\n");
    insta::assert_snapshot!(user.types(&["check", "tools", "serve", "stdio"]));
}

#[test]
fn json_that_is_broken() {
    let user = NewUser::without_config();
    user.home.write("mcp.json", "{ \"mcpServers\": { \"weather\": { \"command\": \"npx\" } \n");
    insta::assert_snapshot!(user.types(&["check --config mcp.json"]));
}

#[test]
fn json_with_comments_and_a_trailing_comma() {
    let user = NewUser::without_config();
    user.home.write(
        "mcp.json",
        "{\n  // my servers\n  \"mcpServers\": { \"weather\": { \"command\": \"cat\", }, },\n}\n",
    );
    insta::assert_snapshot!(user.types(&["check --config mcp.json"]));
}

#[test]
fn a_key_with_a_typo() {
    let user = NewUser::with_config("[servers.weather]\ncomand = \"cat\"\nagrs = []\n");
    insta::assert_snapshot!(user.types(&["check"]));
}

#[test]
fn a_command_line_in_one_string() {
    let user = NewUser::with_config("[servers.weather]\ncommand = \"npx -y @x/weather\"\n");
    insta::assert_snapshot!(user.types(&["check"]));
}

#[test]
fn a_secret_in_the_file() {
    let user = NewUser::with_config(
        "[servers.weather]\ncommand = \"cat\"\nenv = { GITHUB_TOKEN = \"ghp_abcdefghijklmnopqrstuvwxyz0123456789\" }\n",
    );
    let printed = user.types(&["check"]);
    assert!(!printed.contains("ghp_abc"), "{printed}");
    insta::assert_snapshot!(printed);
}

#[test]
fn a_config_without_servers() {
    let user = NewUser::with_config("version = 1\n");
    insta::assert_snapshot!(user.types(&["check", "tools", "call weather__forecast"]));
}

#[test]
fn a_project_that_nobody_has_trusted() {
    let user = NewUser::without_config();
    user.home.write(".mcp.json", "{ \"mcpServers\": { \"weather\": { \"command\": \"cat\" } } }\n");
    insta::assert_snapshot!(user.types(&["tools", "serve", "stdio"]));
}

#[test]
fn a_path_with_a_blank_in_hints() {
    let user = NewUser::without_config();
    user.home.write("my servers.toml", "[servers.weather]\ncommand = \"cat\"\n");
    let line = ["logs", "--config", "my servers.toml"];
    let run = user.home.finish(user.command(&line).spawn().unwrap());
    insta::assert_snapshot!(run);
}

#[test]
fn ostler_among_its_own_servers() {
    let user = NewUser::with_config(&format!(
        "[servers.fake]\ncommand = {:?}\n[servers.ostler]\ncommand = {OSTLER:?}\nargs = [\"stdio\"]\n\
         [servers.gateway]\nurl = \"http://127.0.0.1:7777/mcp\"\n",
        fake_mcp()
    ));
    insta::assert_snapshot!(user.types(&["check", "tools fake__echo", "call ostler__echo"]));
}

/// Uses the config that `claude mcp add --scope project x ostler stdio` writes into an empty project.
#[test]
fn a_project_whose_only_server_is_ostler() {
    let user = NewUser::without_config();
    user.home.write(
        ".mcp.json",
        &format!("{{ \"mcpServers\": {{ \"x\": {{ \"type\": \"stdio\", \"command\": {OSTLER:?}, \"args\": [\"stdio\"] }} }} }}\n"),
    );
    insta::assert_snapshot!(user.types(&[
        "check",
        "list",
        "check --config .mcp.json",
        "tools --config .mcp.json"
    ]));
}
