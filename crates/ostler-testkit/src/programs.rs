//! Paths of the programs under test.

use std::path::PathBuf;

use ostler_host::process::GuardCommand;
use ostler_host::{ServerName, ServerSpec};

/// Returns the path of the scripted MCP server.
pub fn fake_mcp() -> PathBuf {
    program("fake-mcp")
}

/// Returns the path of the product's own binary.
pub fn ostler() -> PathBuf {
    program("ostler")
}

/// Returns the path of a host in a process of its own, for tests that kill it.
pub fn host_under_test() -> PathBuf {
    program("host-under-test")
}

/// Returns the path of an example of the crate under test.
pub fn example(name: &str) -> PathBuf {
    program(&format!("examples/{name}"))
}

/// Returns the command of guards by the product's own binary.
pub fn guard_command() -> GuardCommand {
    GuardCommand { program: ostler(), args: vec!["guard".into(), "--warden".into()] }
}

/// Returns a server that runs `fake-mcp` with these arguments.
pub fn fake_mcp_spec(name: &str, args: &[&str]) -> ServerSpec {
    let name = ServerName::new(name).expect("a test names its servers well");
    ServerSpec::stdio(name, fake_mcp().to_string_lossy()).args(args.iter().copied())
}

/// Returns the path of a program. Test programs stand in `target/<profile>/deps`, binaries one
/// folder up.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a running program has a path");
    let folder = test.ancestors().find(|folder| folder.join(name).is_file());
    match folder {
        Some(folder) => folder.join(name),
        None => panic!("`{name}` is not built: run `cargo build --workspace --bins --examples` first"),
    }
}
