//! `ostler stdio`: an MCP client's pipes, led to the daemon.
//!
//! Each direction has its own thread and waits for nothing else, so a client
//! that stops reading while it writes stops only itself. No runtime is
//! started: one of these runs for every client, and most of them sleep.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ostler_host::{VIA_HEADER, VIA_VARIABLE};

use crate::config_file::{self, Found, Origin, Reading};
use crate::failure::Failure;
use crate::output::tell;
use crate::proof::{self, Challenge};
use crate::reach::Address;
use crate::spot::{Note, Spot};
use crate::{cli, trust};

/// Carries the token of the client's caller, beside the admin token.
pub(crate) const TOKEN_HEADER: &str = "ostler-token";
/// The variable that holds such a token.
pub(crate) const TOKEN: &str = "OSTLER_TOKEN";
/// The longest file of a token.
const LONGEST_TOKEN: u64 = 32 << 10;

/// What the connection is upgraded to.
pub(crate) const PROTOCOL: &str = "ostler-stdio";

/// How long a daemon that was started for a client stays without any.
const LINGER: &str = "10m";
/// How long a daemon may take to come up.
const COMING_UP: Duration = Duration::from_secs(20);
/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(10);
/// How long it may take to let a client in.
const LET_IN: Duration = Duration::from_secs(10);
/// The longest head of its answer.
const LONGEST_HEAD: u64 = 16 << 10;
/// Lines and bytes of its log that are shown when it does not come up.
const LAST_LINES: usize = 8;
const LAST_BYTES: u64 = 4 << 10;
/// A log that is longer than this begins anew.
const LONGEST_LOG: u64 = 1 << 20;

/// Attaches stdin and stdout to the daemon of a config, which is started if it
/// does not run.
pub(crate) fn run(shared: &cli::Shared, token_file: Option<&Path>) -> Result<(), Failure> {
    let callers = read_token(token_file)?;
    let found = config_file::find(shared.config.as_deref())?;
    let spot = Spot::of(found.file())?;
    if let (Found::Nowhere(places), None) = (&found, &shared.daemon) {
        tell(&format!(
            "warning: no config found, so there is only the built-in server `demo`\n  looked for: {places}\n  hint: write \
             an ostler.toml in your project, or start it as `ostler stdio --config FILE`"
        ));
    }
    let (address, admin) = match &shared.daemon {
        Some(address) => (address.clone(), crate::reach::token_for(address, Some(&spot))),
        None => {
            let note = match spot.running() {
                Some(note) => note,
                None => start(&found, &spot)?,
            };
            (address_of(&note)?, spot.token())
        }
    };
    let connection = attach(&address, &Tokens { admin, callers })?;
    exchange(connection, &address)
}

/// What a client shows: what lets it in, and what says who it is.
struct Tokens {
    admin: Option<String>,
    callers: Option<String>,
}

/// The token of the client's caller. One that can't be read is an error: the
/// client must not be taken for somebody else.
pub(crate) fn read_token(file: Option<&Path>) -> Result<Option<String>, Failure> {
    let text = match file {
        Some(file) => config_file::read_at_most(file, LONGEST_TOKEN).map_err(|why| Failure::Unreadable {
            file: file.to_owned(),
            why: why.to_string(),
            hint: "name a file that holds a token, as `ostler token create` prints it",
        })?,
        None => match std::env::var_os(TOKEN) {
            Some(text) => text.to_string_lossy().into_owned(),
            None => return Ok(None),
        },
    };
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        let what = "the token is no word of printable characters".into();
        return Err(Failure::Usage { what, hint: Some("`ostler token create` makes one".into()) });
    }
    Ok(Some(token.to_owned()))
}

fn address_of(note: &Note) -> Result<Address, Failure> {
    let why = "its address can't be read".to_owned();
    Address::near(&note.url).ok_or_else(|| Failure::Unreachable { url: note.url.clone(), why })
}

/// Starts a daemon and waits until it, or one that somebody else has started
/// at the same moment, can be reached.
fn start(found: &Found, spot: &Spot) -> Result<Note, Failure> {
    if let Found::File { file, origin: Origin::WorkingDirectory } = found {
        // The daemon has no terminal and a log that few read: the client's side asks, and says what is missing.
        let Reading { config, problems, .. } = config_file::read(file.clone())?;
        trust::require(Origin::WorkingDirectory, file, &config_file::usable(file, config, &problems)?)?;
    }
    let mut child = launch(found, spot).map_err(Failure::Machine)?;
    let end = Instant::now() + COMING_UP;
    loop {
        if let Some(note) = spot.running() {
            return Ok(note);
        }
        let failed = child.try_wait().map_err(Failure::Machine)?.filter(|status| !status.success());
        let why = match failed {
            Some(status) => format!("it ended at once ({status})"),
            None if Instant::now() >= end => "it has not come up within 20s".into(),
            None => {
                std::thread::sleep(LOOK);
                continue;
            }
        };
        return Err(Failure::Stillborn { why, last_words: last_words(&spot.log_file()) });
    }
}

/// The daemon: in a session of its own, and with nothing of the client's in its
/// hands that would keep the client from ending.
fn launch(found: &Found, spot: &Spot) -> io::Result<Child> {
    let config = found.file();
    let log = spot.open_log()?;
    if log.metadata()?.len() > LONGEST_LOG {
        log.set_len(0)?;
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["serve", "--linger", LINGER]);
    // It serves others than this client, and hears of each what it comes through.
    command.env_remove(VIA_VARIABLE);
    match config {
        Some(file) => command.arg("--config").arg(file),
        None => command.arg("--builtin"),
    };
    if let Found::File { origin: Origin::WorkingDirectory, .. } = found {
        command.arg("--found");
    }
    // Where the client was started is its affair, and may be gone before the daemon is.
    command.current_dir(config.and_then(Path::parent).unwrap_or(Path::new("/")));
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()
}

/// The end of the log, for when nothing else tells what happened.
fn last_words(log: &Path) -> Vec<String> {
    let read = || -> io::Result<String> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LAST_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(LAST_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].iter().map(|line| (*line).to_owned()).collect()
}

/// A connection that carries the client's bytes, and what has come on it already.
/// Tokens are sent once the daemon has proven on it that it is the daemon.
fn attach(address: &Address, tokens: &Tokens) -> Result<BufReader<TcpStream>, Failure> {
    let unreachable = |why: String| Failure::Unreachable { url: address.to_string(), why };
    let lost = |error: io::Error| unreachable(error.to_string());
    let mut reader = connect(address).map_err(lost)?;
    let Some(admin) = tokens.admin.as_deref() else { return Err(no_entry(address)) };
    let challenge = Challenge::new().map_err(Failure::Machine)?;
    let body = ask_for_proof(&mut reader, address, &challenge).map_err(lost)?;
    if !challenge.is_met(admin, &body) {
        return Err(address.unproven());
    }
    let callers = tokens.callers.as_ref().map(|token| format!("{TOKEN_HEADER}: {token}\r\n"));
    let callers = callers.unwrap_or_default();
    let via = std::env::var(VIA_VARIABLE).ok().filter(|via| via.bytes().all(|byte| byte.is_ascii_graphic()));
    let via = via.map(|via| format!("{VIA_HEADER}: {via}\r\n")).unwrap_or_default();
    let opened = (|| -> io::Result<String> {
        let host = address.host();
        reader.get_mut().write_all(
            format!(
                "GET /api/v1/attach HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {admin}\r\n{callers}{via}\
                 Connection: upgrade\r\nUpgrade: {PROTOCOL}\r\n\r\n"
            )
            .as_bytes(),
        )?;
        let head = read_head(&mut reader)?;
        reader.get_ref().set_read_timeout(None)?;
        Ok(head)
    })();
    let head = opened.map_err(lost)?;
    match head.split_whitespace().nth(1) {
        Some("101") => Ok(reader),
        Some("401") => Err(no_entry(address)),
        Some("508") => Err(Failure::Circle),
        Some("403") if tokens.callers.is_some() => Err(Failure::Refused {
            what: "the token is not valid".into(),
            hint: Some(
                "`ostler token list` shows which tokens there are, and until when they are good".into(),
            ),
        }),
        _ => {
            let line = head.lines().next().unwrap_or_default();
            Err(unreachable(format!("what is there does not speak like a daemon: {line}")))
        }
    }
}

fn connect(address: &Address) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(address.authority())?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LET_IN))?;
    Ok(BufReader::new(stream))
}

fn no_entry(address: &Address) -> Failure {
    Failure::Refused {
        what: "the admin token is missing or wrong".into(),
        hint: Some(address.token_hint().into()),
    }
}

/// Challenges whatever listens there; returns the body of its answer, empty if that can't be one.
fn ask_for_proof(
    reader: &mut BufReader<TcpStream>,
    address: &Address,
    challenge: &Challenge,
) -> io::Result<Vec<u8>> {
    let (target, host) = (challenge.target(), address.host());
    reader.get_mut().write_all(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes())?;
    let head = read_head(reader)?;
    let length = head.lines().filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let mut body = vec![0; length.filter(|length| *length <= proof::LONGEST).unwrap_or(0)];
    reader.read_exact(&mut body)?;
    Ok(body)
}

/// The head of an HTTP answer; what follows it stays in the reader.
fn read_head(reader: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut head = String::new();
    let mut reader = reader.take(LONGEST_HEAD);
    loop {
        if reader.read_line(&mut head)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it hung up"));
        }
        if head.ends_with("\r\n\r\n") {
            return Ok(head);
        }
    }
}

/// Copies both ways until both ends have said all they had to say.
fn exchange(mut from_daemon: BufReader<TcpStream>, address: &Address) -> Result<(), Failure> {
    let to_daemon = from_daemon.get_ref().try_clone().map_err(Failure::Machine)?;
    let is_client_done = Arc::new(AtomicBool::new(false));
    let is_done = Arc::clone(&is_client_done);
    std::thread::spawn(move || {
        // A daemon that does not take what the client says is lost; the client is not done.
        let copied = copy(&mut io::stdin().lock(), &mut &to_daemon);
        is_done.store(copied.is_ok(), Ordering::Release);
        // The daemon finishes what it was asked, and then hangs up.
        let _ = to_daemon.shutdown(Shutdown::Write);
    });
    let copied = copy(&mut from_daemon, &mut io::stdout().lock());
    match copied {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::OutputClosed),
        // After the client's last word the daemon's end is the end of it all.
        Ok(()) if is_client_done.load(Ordering::Acquire) => Ok(()),
        Ok(()) | Err(_) => Err(Failure::Detached { url: address.to_string() }),
    }
}

/// Copies at once whatever comes: a message must not wait for the next.
pub(crate) fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = [0; 16 << 10];
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        to.write_all(&buffer[..read])?;
        to.flush()?;
    }
}
