//! Config file: finds it, reads it, and reports its problems.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::OFlag;
use ostler_core::config::{Config, ConfigError, ConfigFormat, ConfigSource, MAX_FILE_BYTES, Problem};
use ostler_core::pins::LockFile;
use ostler_core::server_name::ServerName;
use ostler_core::shell::quote;

use crate::failure::CommandFailure;
use crate::file_stamp::FileStamps;
use crate::invocation::command;
use crate::output::{self, Style, Tint, escape_line, print_stderr};
use crate::pins::lock_file::KnownLock;
use crate::pins::{self, LockFileResult};
use crate::{instance, self_reference, workspace, xdg};

/// File names of a project's config, in the order of the search.
const NAMES: [&str; 2] = ["ostler.toml", CLIENT_CONFIG_NAME];
/// File of a project's MCP clients.
const CLIENT_CONFIG_NAME: &str = ".mcp.json";
/// Upper bound on warnings that every command shows; for more it names the command that shows them.
const SHOWN_WARNINGS: usize = 3;

/// Config file with its problems and its lock file.
#[derive(Debug)]
pub(crate) struct LoadedConfig {
    /// Main file, absolute.
    pub(crate) file: PathBuf,
    /// Parsed config; `None` if a problem is an error.
    pub(crate) config: Option<Config>,
    /// Errors and warnings.
    pub(crate) problems: Vec<Problem>,
    /// Stamps of every file that was read for it, or should have been, at the time of the read.
    pub(crate) stamps: FileStamps,
    /// The lock file beside it.
    pub(crate) lock_file: LockFileResult,
}

/// Origin of a config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConfigOrigin {
    /// The user named it, or it is the user's own.
    User,
    /// It lies in the working directory or above it in the repository, and may be another person's.
    WorkingDirectory,
}

/// Result of the search for a config.
#[derive(Debug)]
pub(crate) enum FoundConfig {
    /// Path of the file, absolute.
    File { file: PathBuf, origin: ConfigOrigin },
    /// No file in any of these places.
    NotFound(String),
}

impl FoundConfig {
    /// Returns the file, if there is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::File { file, .. } => Some(file),
            Self::NotFound(_) => None,
        }
    }

    /// Treats the file as found in the working directory, for a command that another command has started.
    pub(crate) fn in_working_directory(self) -> Self {
        match self {
            Self::File { file, .. } => Self::File { file, origin: ConfigOrigin::WorkingDirectory },
            Self::NotFound(places) => Self::NotFound(places),
        }
    }
}

/// Config without errors, and its origin.
#[derive(Debug)]
pub(crate) struct UsableConfig {
    /// Main file, absolute; `None` for the built-in server.
    pub(crate) file: Option<PathBuf>,
    /// Origin of the file.
    pub(crate) origin: ConfigOrigin,
    /// Parsed config.
    pub(crate) config: Config,
    /// Warnings.
    pub(crate) problems: Vec<Problem>,
    /// Stamps of every file that was read for it, at the time of the read.
    pub(crate) stamps: FileStamps,
    /// Approved definitions, if there is a lock file beside it.
    pub(crate) lock: Option<Arc<LockFile>>,
    /// Address that the daemon listens on in place of the config's.
    pub(crate) listens: Option<SocketAddr>,
}

/// Loads the config of a command, and prints its problems. Without any file it is the built-in server.
pub(crate) fn load(found: FoundConfig) -> Result<UsableConfig, CommandFailure> {
    let chosen = load_quietly(found, None)?;
    if let Some(file) = &chosen.file {
        print_warnings(file, &chosen.problems);
    }
    Ok(chosen)
}

/// Loads the config of a daemon, which prints warnings itself and may listen on another address.
pub(crate) fn load_quietly(
    found: FoundConfig,
    listens: Option<SocketAddr>,
) -> Result<UsableConfig, CommandFailure> {
    let (file, origin) = match found {
        FoundConfig::File { file, origin } => (file, origin),
        FoundConfig::NotFound(places) => {
            print_stderr(&format!("no config found; using the built-in server `demo` (looked for {places})"));
            let program = std::env::current_exe().map_err(CommandFailure::Machine)?;
            let config = Config::demo(program.to_string_lossy());
            let (problems, stamps) = (Vec::new(), FileStamps::default());
            let origin = ConfigOrigin::User;
            return Ok(UsableConfig { file: None, origin, config, problems, stamps, lock: None, listens });
        }
    };
    let LoadedConfig { file, config, problems, stamps, lock_file: locked } =
        read_with_listen(file, listens, None)?;
    let config = require_usable(&file, config, &problems)?;
    // Without the lock, every definition would count as approved.
    Ok(UsableConfig { file: Some(file), origin, config, problems, stamps, lock: locked?, listens })
}

/// Returns the config file: the one that was named, or the first that exists.
pub(crate) fn find(named: Option<&Path>) -> Result<FoundConfig, CommandFailure> {
    if let Some(named) = named {
        let file = std::path::absolute(named).map_err(CommandFailure::Machine)?;
        return Ok(FoundConfig::File { file, origin: ConfigOrigin::User });
    }
    let here = std::env::current_dir().map_err(CommandFailure::Machine)?;
    Ok(find_from(&here, user_config_file().as_deref()))
}

/// Returns the config that a command in this directory would find, other than the user's own.
pub(crate) fn find_in(folder: &Path) -> Result<FoundConfig, CommandFailure> {
    let folder = std::path::absolute(folder).map_err(CommandFailure::Machine)?;
    Ok(find_from(&folder, None))
}

/// Returns the first file that a command in this directory looks at, whatever it holds.
pub(crate) fn first_candidate(folder: &Path) -> Option<PathBuf> {
    let is_first = |place: &PathBuf| place.is_file() && !is_of_other_user(place, folder);
    candidates_from(folder)
        .into_iter()
        .find(is_first)
        .or_else(|| user_config_file().filter(|place| place.is_file()))
}

/// Returns the path of the user's own config.
fn user_config_file() -> Option<PathBuf> {
    xdg::config_dir().map(|folder| folder.join(NAMES[0]))
}

/// Returns the candidate files from a directory up to the root of its repository.
fn candidates_from(start: &Path) -> Vec<PathBuf> {
    search_dirs(start, xdg::home().as_deref())
        .into_iter()
        .flat_map(|folder| NAMES.map(|name| folder.join(name)))
        .collect()
}

/// Returns the directory and those above it, up to the one with `.git`. Without a repository it is the directory alone:
/// a config above belongs to another project. The search never goes above the user's home, and never reaches `/`. A
/// repository of another user does not count: a user who can write to a directory above, such as `/tmp`, must not
/// choose the config.
fn search_dirs<'a>(start: &'a Path, home: Option<&Path>) -> Vec<&'a Path> {
    let mut folders = Vec::new();
    for folder in start.ancestors() {
        if folder != start && folder.parent().is_none() {
            break;
        }
        folders.push(folder);
        // The owner of the link itself counts: any user can make one to a directory of root's.
        if folder.join(".git").symlink_metadata().is_ok_and(|found| is_own_or_root(found.uid())) {
            return folders;
        }
        if home == Some(folder) {
            break;
        }
    }
    folders.truncate(1);
    folders
}

fn is_own_or_root(owner: u32) -> bool {
    owner == 0 || owner == nix::unistd::geteuid().as_raw()
}

/// Returns whether a file above the start directory, or its directory, belongs to another user. A file in the start
/// directory itself is found whatever its owner, and needs trust.
fn is_of_other_user(file: &Path, start: &Path) -> bool {
    let Some(folder) = file.parent().filter(|folder| *folder != start) else { return false };
    let owners = [file.symlink_metadata(), file.metadata(), folder.metadata()];
    !owners.iter().all(|found| found.as_ref().is_ok_and(|found| is_own_or_root(found.uid())))
}

/// Finds the config of a command in a directory, or the user's own.
fn find_from(start: &Path, own: Option<&Path>) -> FoundConfig {
    let mut looked_for = Vec::new();
    for file in candidates_from(start).into_iter().chain(own.map(Path::to_owned)) {
        let name = display_candidate(&file);
        let is_own = own.is_some_and(|own| own == file);
        if !file.is_file() {
            looked_for.push(name);
        } else if !is_own && is_of_other_user(&file, start) {
            looked_for.push(format!("{name} (of another user)"));
        } else if names_only_ostler(&file) {
            print_stderr(&format!(
                "warning: {name} names nothing but Ostler itself, so it says nothing about what to run; looking further"
            ));
            looked_for.push(format!("{name} (names only Ostler)"));
        } else {
            let origin = if is_own { ConfigOrigin::User } else { ConfigOrigin::WorkingDirectory };
            return FoundConfig::File { file, origin };
        }
    }
    FoundConfig::NotFound(looked_for.join(", "))
}

/// Upper bound on daemons that are named to a client without a config; a longer list would not be read.
const NAMED_DAEMONS: usize = 3;

/// Names the configs of this user's running daemons, which a client without a config may have meant.
pub(crate) fn describe_daemons() -> Option<String> {
    let files = instance::all_running().into_iter().filter_map(|(_, note)| note.config);
    let told = files.take(NAMED_DAEMONS).map(|file| {
        let shown = xdg::abbreviate_home(&file);
        format!(
            "a daemon for {} is running; `ostler stdio --config {}` uses it",
            escape_line(&shown),
            escape_line(&quote(&file.display().to_string()))
        )
    });
    Some(told.collect::<Vec<_>>().join("; ")).filter(|told| !told.is_empty())
}

/// Returns the notice for a client that is served without a config, in words for its user.
pub(crate) fn describe_missing() -> String {
    let daemons = describe_daemons().map(|daemons| format!(" Or else: {daemons}.")).unwrap_or_default();
    let own = user_config_file()
        .map(|file| format!(", and then {}", xdg::abbreviate_home(&file)))
        .unwrap_or_default();
    format!(
        "Ostler found no config, so these are not the user's servers: there is only the built-in server `demo`. It \
         looked for {} in the working directory of this client and up to the root of its repository{own}. Tell the \
         user to write an ostler.toml there, or to start Ostler as `ostler stdio --config FILE`.{daemons}",
        NAMES.join(" and ")
    )
}

/// Returns a path as people write it: relative to the working directory, or to their home.
fn display_candidate(file: &Path) -> String {
    let near = relative_to_cwd(file);
    match near.components().count() {
        1 => Path::new(".").join(near).display().to_string(),
        _ => xdg::abbreviate_home(file),
    }
}

/// Returns whether the file of a project's clients names Ostler and nothing else: that is how a client is configured to
/// use Ostler.
fn names_only_ostler(file: &Path) -> bool {
    if !file.ends_with(CLIENT_CONFIG_NAME) {
        return false;
    }
    let disk = DiskSource::default();
    let parsed = disk.read(file).ok().map(|text| Config::parse(file, &text, ConfigFormat::Json, &disk));
    parsed.and_then(Result::ok).is_some_and(|mut config| {
        let problems = self_reference::disable_own_servers(&mut config, file, None);
        self_reference::has_only_own_servers(&config, &problems)
    })
}

/// Returns the config of a file. If it can't be used, prints its problems and fails.
pub(crate) fn require_usable(
    file: &Path,
    config: Option<Config>,
    problems: &[Problem],
) -> Result<Config, CommandFailure> {
    config.ok_or_else(|| {
        print_problems(problems);
        CommandFailure::invalid_config(file, problems)
    })
}

/// Reads a file and its includes.
pub(crate) fn read(file: PathBuf) -> Result<LoadedConfig, CommandFailure> {
    read_with_listen(file, None, None)
}

/// Reads a file and its includes for a daemon, which may listen on another address, and may know the lock file already.
pub(crate) fn read_with_listen(
    file: PathBuf,
    listens: Option<SocketAddr>,
    known_lock: Option<&KnownLock>,
) -> Result<LoadedConfig, CommandFailure> {
    let unreadable =
        |why: String, hint| CommandFailure::Unreadable { file: relative_to_cwd(&file).to_owned(), why, hint };
    if file.is_dir() {
        let hint = "name a file in it with --config, such as its ostler.toml or .mcp.json";
        return Err(unreadable("it is a directory".into(), hint));
    }
    let format = ConfigFormat::from_path(&file).ok_or_else(|| {
        unreadable("its format is not known".into(), "the name of a config ends in .toml, .json or .jsonc")
    })?;
    let disk = DiskSource::default();
    let text = disk.read(&file).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::NotFound => "it does not exist".to_owned(),
            _ => error.to_string(),
        };
        unreadable(why, "name another file with --config, or write this one")
    })?;
    let (config, problems) = match Config::parse(&file, &text, format, &disk) {
        Err(ConfigError { problems }) => (None, problems),
        Ok(mut config) => {
            workspace::canonicalize_workspaces(&mut config);
            let own = self_reference::disable_own_servers(&mut config, &file, listens);
            let problems = config.notices.iter().cloned().chain(own).collect();
            (Some(config), problems)
        }
    };
    let mut stamps = disk.asked.into_inner();
    let locked = pins::lock_file::read(&file, &mut stamps, known_lock);
    Ok(LoadedConfig { file, config, problems, stamps, lock_file: locked })
}

/// Prints the warnings of a usable config. Many warnings are counted: one command shows them all.
pub(crate) fn print_warnings(file: &Path, problems: &[Problem]) {
    if problems.len() <= SHOWN_WARNINGS {
        return print_problems(problems);
    }
    let counted = count_problems(problems);
    print_stderr(&format!(
        "{}: {counted}; {} shows what about",
        relative_to_cwd(file).display(),
        command("check")
    ));
}

/// Prints that a config has no enabled servers, and an example in its format. Without a name it is the file that
/// commands find here.
pub(crate) fn print_no_servers(named: Option<&Path>, disabled: &[ServerName]) {
    match disabled {
        [] => {}
        [only] => return print_stderr(&format!("the config has 1 server, and it is disabled: `{only}`")),
        several => {
            let names = output::quote_names(several.iter().map(ServerName::as_str));
            return print_stderr(&format!(
                "the config has {} servers, and all are disabled: {names}",
                several.len()
            ));
        }
    }
    let found = || std::env::current_dir().ok().and_then(|here| first_candidate(&here));
    let file = named.map(Path::to_owned).or_else(found);
    let one = match file.as_deref().and_then(ConfigFormat::from_path) {
        Some(ConfigFormat::Json) => {
            r#""mcpServers": {"NAME": {"command": "…"}}, or "url" in place of "command""#
        }
        _ => "[servers.NAME], and below it command = \"…\" or url = \"…\"",
    };
    print_stderr(&format!("the config has no servers\n  hint: write one: {one}"));
}

/// Prints problems on stderr.
pub(crate) fn print_problems(problems: &[Problem]) {
    problems.iter().for_each(|problem| print_stderr(&render_problem(problem)));
}

/// Renders a problem for stderr.
pub(crate) fn render_problem(problem: &Problem) -> String {
    let (word, tint) = if problem.is_error() { ("error:", Tint::Error) } else { ("warning:", Tint::Warning) };
    let mut near = problem.clone();
    near.file = relative_to_cwd(&problem.file).to_owned();
    // The first such word is the severity: only the location stands before it.
    near.to_string().replacen(word, &Style::stderr().paint(tint, word), 1)
}

/// `2 errors, 1 warning`; nothing if there is no problem.
pub(crate) fn count_problems(problems: &[Problem]) -> String {
    let errors = problems.iter().filter(|problem| problem.is_error()).count();
    let kinds = [(errors, "error"), (problems.len() - errors, "warning")];
    let words =
        kinds.iter().filter(|(number, _)| *number > 0).map(|(number, noun)| output::count(*number, noun));
    words.collect::<Vec<_>>().join(", ")
}

/// Returns a path relative to the working directory, if that is shorter.
pub(crate) fn relative_to_cwd(path: &Path) -> &Path {
    let Ok(here) = std::env::current_dir() else { return path };
    match path.strip_prefix(here) {
        Ok(near) if near.as_os_str().is_empty() => Path::new("."),
        near => near.unwrap_or(path),
    }
}

/// Reads a regular file, up to one byte beyond a limit: that is enough to refuse it, and a file without an end fills no
/// memory. Pipes, sockets and devices are refused at once: other users choose the files of a directory, and a pipe
/// without a writer would block every command.
pub(crate) fn read_at_most(path: &Path, limit: u64) -> io::Result<String> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = File::options().read(true).custom_flags(flags.bits()).open(path)?;
    let kind = file.metadata()?.file_type();
    // Reading a directory fails with an error of its own.
    if !kind.is_file() && !kind.is_dir() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    read_text(file, limit)
}

/// Reads a file that the user names on the command line, which may be a pipe: `--token-file <(pass show ostler)`.
pub(crate) fn read_named_at_most(path: &Path, limit: u64) -> io::Result<String> {
    read_text(File::open(path)?, limit)
}

fn read_text(file: File, limit: u64) -> io::Result<String> {
    let mut text = Vec::new();
    file.take(limit + 1).read_to_end(&mut text)?;
    match String::from_utf8(text) {
        Ok(text) => Ok(text),
        // The limit has split a character.
        Err(error) if error.as_bytes().len() as u64 > limit => {
            Ok(String::from_utf8_lossy(error.as_bytes()).into_owned())
        }
        Err(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text")),
    }
}

/// Files on disk.
#[derive(Debug, Default)]
struct DiskSource {
    /// Stamps of every requested file.
    asked: RefCell<FileStamps>,
}

impl ConfigSource for DiskSource {
    fn read(&self, path: &Path) -> io::Result<String> {
        self.asked.borrow_mut().add(path);
        read_at_most(path, MAX_FILE_BYTES)
    }

    fn home(&self) -> Option<PathBuf> {
        xdg::home()
    }

    fn config_dir(&self) -> Option<PathBuf> {
        xdg::config_dir()
    }
}
