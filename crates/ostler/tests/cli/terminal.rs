//! Pseudo-terminal with a program in it, and the keys of a person.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use nix::pty::{OpenptyResult, Winsize, openpty};

use crate::home::until;

/// Terminal whose foreground program is under test.
pub(crate) struct TestTerminal {
    keyboard: File,
    screen: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
    child: Child,
    /// Offset of the output that `wait_for` has not matched yet.
    read: usize,
}

impl TestTerminal {
    /// Starts a command on a terminal of its own, which is its stdin, stdout and stderr.
    pub(crate) fn start(command: &Command) -> Self {
        Self::start_with_stdout(command, None)
    }

    /// Starts a command on a terminal, with stdout redirected if a target is given.
    pub(crate) fn start_with_stdout(command: &Command, stdout: Option<Stdio>) -> Self {
        let size = Winsize { ws_row: 50, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        let OpenptyResult { master, slave } = openpty(Some(&size), None).unwrap();
        // It makes the terminal the controlling one, so that Ctrl-C and /dev/tty work as for a person.
        let mut inside = Command::new("setsid");
        inside.args(["--ctty", "--wait"]).arg(command.get_program()).args(command.get_args());
        inside.env_clear();
        inside.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
        inside.current_dir(command.get_current_dir().unwrap());
        inside.stdin(slave.try_clone().unwrap());
        inside.stdout(stdout.unwrap_or_else(|| slave.try_clone().unwrap().into()));
        inside.stderr(slave);
        let child = inside.spawn().unwrap();
        drop(inside);
        let keyboard = File::from(master);
        let screen = Arc::new(Mutex::new(Vec::new()));
        let (mut from, shown) = (keyboard.try_clone().unwrap(), Arc::clone(&screen));
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The terminal of a program that has ended can't be read.
            while let Ok(read @ 1..) = from.read(&mut buffer) {
                shown.lock().unwrap().extend_from_slice(&buffer[..read]);
            }
        });
        Self { keyboard, screen, reader: Some(reader), child, read: 0 }
    }

    /// Returns everything that was shown.
    pub(crate) fn screen(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).replace("\r\n", "\n")
    }

    /// Waits until a text is shown behind the one that was waited for before; returns the text between them.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let mut end = self.read;
        until_shown(text, || {
            let screen = self.screen();
            match screen[self.read..].find(text) {
                Some(at) => {
                    end = self.read + at + text.len();
                    Ok(())
                }
                None => Err(screen),
            }
        });
        let between = self.screen()[self.read..end - text.len()].to_owned();
        self.read = end;
        between
    }

    /// Presses keys.
    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Types a line.
    pub(crate) fn enter(&mut self, line: &str) {
        self.press(&format!("{line}\n"));
    }

    /// Waits for the end of the program and of its output; returns its exit code.
    pub(crate) fn finish(&mut self) -> Option<i32> {
        let mut ended = None;
        until(&format!("the program ends:\n{}", self.screen()), || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        ended.unwrap().code()
    }
}

impl Drop for TestTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn until_shown(text: &str, mut look: impl FnMut() -> Result<(), String>) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while let Err(screen) = look() {
        assert!(std::time::Instant::now() < end, "`{text}` does not appear on the screen:\n{screen}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Returns whether a program is in `PATH`.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(OsStr::new(program)).is_file())
}
