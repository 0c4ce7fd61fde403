//! The config file: finding it, reading it, saying what is wrong with it.

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

/// Looked for in the working directory and in those above it, in this order.
const NAMES: [&str; 2] = ["ostler.toml", CLIENT_CONFIG_NAME];
/// The file of a project's MCP clients.
const CLIENT_CONFIG_NAME: &str = ".mcp.json";
/// Warnings that every command shows; where there are more, it names the command that does.
const SHOWN_WARNINGS: usize = 3;

/// A config file and everything there is to say about it.
#[derive(Debug)]
pub(crate) struct LoadedConfig {
    /// The main file, absolute.
    pub(crate) file: PathBuf,
    /// The config, unless a problem is an error.
    pub(crate) config: Option<Config>,
    /// Errors and warnings.
    pub(crate) problems: Vec<Problem>,
    /// Every file that was read for it, or should have been, as it was then.
    pub(crate) stamps: FileStamps,
    /// The lock file beside it.
    pub(crate) lock_file: LockFileResult,
}

/// How a config was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConfigOrigin {
    /// The user named it, or it is the user's own.
    User,
    /// It lies in the working directory or above it in the repository, whoever wrote it.
    WorkingDirectory,
}

/// Where a config was looked for.
#[derive(Debug)]
pub(crate) enum FoundConfig {
    /// Here it is, absolute.
    File { file: PathBuf, origin: ConfigOrigin },
    /// In none of these places is one.
    NotFound(String),
}

impl FoundConfig {
    /// The file, if there is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::File { file, .. } => Some(file),
            Self::NotFound(_) => None,
        }
    }

    /// Treats the file as found in the working directory, by a command that starts this one.
    pub(crate) fn in_working_directory(self) -> Self {
        match self {
            Self::File { file, .. } => Self::File { file, origin: ConfigOrigin::WorkingDirectory },
            Self::NotFound(places) => Self::NotFound(places),
        }
    }
}

/// A config that can be used, and where it comes from.
#[derive(Debug)]
pub(crate) struct UsableConfig {
    /// The main file, absolute; none for the built-in server.
    pub(crate) file: Option<PathBuf>,
    /// How it was found.
    pub(crate) origin: ConfigOrigin,
    /// What it says.
    pub(crate) config: Config,
    /// Warnings.
    pub(crate) problems: Vec<Problem>,
    /// Every file that was read for it, as it was then.
    pub(crate) stamps: FileStamps,
    /// The approved definitions, if there is a lock file beside it.
    pub(crate) lock: Option<Arc<LockFile>>,
    /// Where the daemon listens, if not where the config says.
    pub(crate) listens: Option<SocketAddr>,
}

/// The config for a command, with its problems said. Without any file it is
/// the built-in server.
pub(crate) fn load(found: FoundConfig) -> Result<UsableConfig, CommandFailure> {
    let chosen = load_quietly(found, None)?;
    if let Some(file) = &chosen.file {
        print_warnings(file, &chosen.problems);
    }
    Ok(chosen)
}

/// The same for a daemon, which tells of warnings itself and may listen elsewhere than its config says.
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
    // Without what was approved, everything would seem to be.
    Ok(UsableConfig { file: Some(file), origin, config, problems, stamps, lock: locked?, listens })
}

/// The file that is meant: the one that was named, or the first that exists.
pub(crate) fn find(named: Option<&Path>) -> Result<FoundConfig, CommandFailure> {
    if let Some(named) = named {
        let file = std::path::absolute(named).map_err(CommandFailure::Machine)?;
        return Ok(FoundConfig::File { file, origin: ConfigOrigin::User });
    }
    let here = std::env::current_dir().map_err(CommandFailure::Machine)?;
    Ok(find_from(&here, user_config_file().as_deref()))
}

/// The config that a command in this directory would find, other than the user's own.
pub(crate) fn find_in(folder: &Path) -> Result<FoundConfig, CommandFailure> {
    let folder = std::path::absolute(folder).map_err(CommandFailure::Machine)?;
    Ok(find_from(&folder, None))
}

/// The first file that a command in this directory looks at, whatever it holds.
pub(crate) fn first_candidate(folder: &Path) -> Option<PathBuf> {
    let is_first = |place: &PathBuf| place.is_file() && !is_of_other_user(place, folder);
    candidates_from(folder)
        .into_iter()
        .find(is_first)
        .or_else(|| user_config_file().filter(|place| place.is_file()))
}

/// Where the user's own config is.
fn user_config_file() -> Option<PathBuf> {
    xdg::config_dir().map(|folder| folder.join(NAMES[0]))
}

/// Files that are looked for from a directory, up to the root of its repository.
fn candidates_from(start: &Path) -> Vec<PathBuf> {
    search_dirs(start, xdg::home().as_deref())
        .into_iter()
        .flat_map(|folder| NAMES.map(|name| folder.join(name)))
        .collect()
}

/// The directory and those above it, up to the one with `.git`. Without a repository it is the directory alone: what
/// lies above is another project's. No search leaves the user's home upwards, and none ends in `/`. A repository of another
/// user is none: who may write to a directory above, such as `/tmp`, must not choose the config.
fn search_dirs<'a>(start: &'a Path, home: Option<&Path>) -> Vec<&'a Path> {
    let mut folders = Vec::new();
    for folder in start.ancestors() {
        if folder != start && folder.parent().is_none() {
            break;
        }
        folders.push(folder);
        // Of a link it is the link that counts: anybody can make one that leads to a directory of root's.
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

/// Returns whether a file above the directory that a search starts in, or its folder, belongs to another user. A file in
/// that directory itself is found whoever wrote it, and needs trust.
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

/// Daemons that are named to a client without a config; more would not be read.
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

/// What a client is told that is served without a config, in words for its user.
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

/// A place as people write it: relative to the working directory, or to their home.
fn display_candidate(file: &Path) -> String {
    let near = relative_to_cwd(file);
    match near.components().count() {
        1 => Path::new(".").join(near).display().to_string(),
        _ => xdg::abbreviate_home(file),
    }
}

/// Whether the file of a project's clients names Ostler and nothing else: that is how a client is told of Ostler.
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

/// The config of a file. One that can't be used is a failure, and its problems are said.
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

/// Reads a file and what it includes.
pub(crate) fn read(file: PathBuf) -> Result<LoadedConfig, CommandFailure> {
    read_with_listen(file, None, None)
}

/// The same for a daemon that listens elsewhere than its config says, and may know the lock file already.
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

/// Says what people should know of a config that can be used. Many warnings are counted: one command shows them all.
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

/// Says that a config has no servers that run, and how one is written in its format. Without a name it is the file that
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

/// Says problems on stderr.
pub(crate) fn print_problems(problems: &[Problem]) {
    problems.iter().for_each(|problem| print_stderr(&render_problem(problem)));
}

/// A problem as it is said on stderr.
pub(crate) fn render_problem(problem: &Problem) -> String {
    let (word, tint) = if problem.is_error() { ("error:", Tint::Error) } else { ("warning:", Tint::Warning) };
    let mut near = problem.clone();
    near.file = relative_to_cwd(&problem.file).to_owned();
    // The first such word is the severity: only the place stands before it.
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

/// A path as short as it can be said from here.
pub(crate) fn relative_to_cwd(path: &Path) -> &Path {
    let Ok(here) = std::env::current_dir() else { return path };
    match path.strip_prefix(here) {
        Ok(near) if near.as_os_str().is_empty() => Path::new("."),
        near => near.unwrap_or(path),
    }
}

/// Reads a regular file, up to one byte beyond a limit: that is enough to refuse it, and a file without an end fills no
/// memory. Pipes, sockets and devices are refused at once: others choose what lies in a directory, and a pipe without a
/// writer holds every command up.
pub(crate) fn read_at_most(path: &Path, limit: u64) -> io::Result<String> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = File::options().read(true).custom_flags(flags.bits()).open(path)?;
    let kind = file.metadata()?.file_type();
    // Reading a directory fails by itself, and says so.
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
        // It was cut within a character.
        Err(error) if error.as_bytes().len() as u64 > limit => {
            Ok(String::from_utf8_lossy(error.as_bytes()).into_owned())
        }
        Err(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text")),
    }
}

/// Files on disk.
#[derive(Debug, Default)]
struct DiskSource {
    /// Every file that was asked for.
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
