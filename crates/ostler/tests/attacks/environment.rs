//! A server that inspects the processes above it: its guard, the warden and the daemon.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;

use crate::daemon::Daemon;
use crate::home::{Home, until};

/// Variable of the daemon that no server is given.
const SECRET: &str = "correct-horse-battery-staple";
/// Uid of an ordinary user, to whom the kernel refuses access that it allows root.
const NOBODY: u32 = 65_534;

/// Script that inspects every process above the server, then becomes one. Each line of the result is a process, a file
/// and the finding.
const LOOK: &str = r#"
pid=$PPID
for who in guard warden daemon; do
    echo "$who name $(cat /proc/$pid/comm)"
    for file in environ maps auxv; do
        if found=$(tr -cd '[:print:]' 2>/dev/null < /proc/$pid/$file); then
            echo "$who $file read $found"
        else
            echo "$who $file refused"
        fi
    done
    (exec 3< /proc/$pid/mem) 2>/dev/null && echo "$who mem opened" || echo "$who mem refused"
    ls /proc/$pid/fd >/dev/null 2>&1 && echo "$who fd listed" || echo "$who fd refused"
    pid=$(sed 's/.*) //' /proc/$pid/stat | cut -d ' ' -f 2)
done > "$HOME/looked.part"
mv "$HOME/looked.part" "$HOME/looked"
exec "$0"
"#;

/// Starts a daemon with a curious server, as an ordinary user if possible; returns the findings.
#[allow(clippy::print_stdout, reason = "a test that can't be played says so")]
fn look(is_ordinary: bool) -> Option<Vec<String>> {
    let home = Home::new();
    let args = ["-c", LOOK, ostler_testkit::fake_mcp().to_str().unwrap()].map(|arg| format!("{arg:?}"));
    home.write(
        "ostler.toml",
        &format!("[servers.curious]\ncommand = \"sh\"\nlazy = false\nargs = [{}]\n", args.join(", ")),
    );
    let is_root = nix::unistd::geteuid().is_root();
    let is_changed = is_ordinary && is_root;
    if is_changed {
        for path in [".", "ostler.toml"] {
            chown(home.path(path), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let mut tried = home.command(&["--version"]);
        if !tried.uid(NOBODY).gid(NOBODY).output().is_ok_and(|output| output.status.success()) {
            println!("skipped: other users may not execute the program here");
            return None;
        }
    }
    let daemon = Daemon::start_as(&home, |command| {
        command.env("SECRET_OF_THE_DAEMON", SECRET);
        if is_changed {
            command.uid(NOBODY).gid(NOBODY);
        }
    });
    until("the server has looked", || home.path("looked").exists());
    let lines = home.lines("looked");
    drop(daemon);
    Some(lines)
}

#[test]
fn guards_and_warden_have_nothing_of_the_daemons_environment() {
    let Some(lines) = look(false) else { return };
    for who in ["guard", "warden"] {
        assert!(lines.contains(&format!("{who} name ostler-{who}")), "{lines:#?}");
        let environ = lines.iter().find(|line| line.starts_with(&format!("{who} environ"))).unwrap();
        assert!(!environ.contains('='), "{environ}");
    }
}

#[test]
fn a_server_of_an_ordinary_user_can_not_look_into_the_processes_above_it() {
    let Some(lines) = look(true) else { return };
    assert!(!lines.iter().any(|line| line.contains(SECRET)), "{lines:#?}");
    for who in ["guard", "warden", "daemon"] {
        for file in ["environ", "maps", "auxv", "mem", "fd"] {
            assert!(lines.contains(&format!("{who} {file} refused")), "{who} {file}: {lines:#?}");
        }
    }
}
