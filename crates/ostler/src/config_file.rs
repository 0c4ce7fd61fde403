//! The config file: finding it, reading it, saying what is wrong with it.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ostler_core::config::{Config, Format, LARGEST_FILE, Problem, Report, Source};
use ostler_core::pins::Lock;

use crate::failure::Failure;
use crate::folders;
use crate::output::{self, Style, Tint, tell};
use crate::pins::{self, Locked};
use crate::stamps::Stamps;

/// Looked for in the current directory, in this order.
const HERE: [&str; 2] = ["ostler.toml", ".mcp.json"];

/// A config file and everything there is to say about it.
#[derive(Debug)]
pub(crate) struct Reading {
    /// The main file, absolute.
    pub(crate) file: PathBuf,
    /// The config, unless a problem is an error.
    pub(crate) config: Option<Config>,
    /// Errors and warnings.
    pub(crate) problems: Vec<Problem>,
    /// Every file that was read for it, or should have been, as it was then.
    pub(crate) stamps: Stamps,
    /// The lock file beside it.
    pub(crate) locked: Locked,
}

/// How a config was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The user named it, or it is the user's own.
    Chosen,
    /// It lies in the working directory, whoever wrote it.
    WorkingDirectory,
}

/// Where a config was looked for.
#[derive(Debug)]
pub(crate) enum Found {
    /// Here it is, absolute.
    File { file: PathBuf, origin: Origin },
    /// In none of these places is one.
    Nowhere(String),
}

impl Found {
    /// The file, if there is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::File { file, .. } => Some(file),
            Self::Nowhere(_) => None,
        }
    }

    /// Treats the file as found in the working directory, by a command that starts this one.
    pub(crate) fn in_working_directory(self) -> Self {
        match self {
            Self::File { file, .. } => Self::File { file, origin: Origin::WorkingDirectory },
            Self::Nowhere(places) => Self::Nowhere(places),
        }
    }
}

/// A config that can be used, and where it comes from.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// The main file, absolute; none for the built-in server.
    pub(crate) file: Option<PathBuf>,
    /// How it was found.
    pub(crate) origin: Origin,
    /// What it says.
    pub(crate) config: Config,
    /// Warnings.
    pub(crate) problems: Vec<Problem>,
    /// Every file that was read for it, as it was then.
    pub(crate) stamps: Stamps,
    /// The approved definitions, if there is a lock file beside it.
    pub(crate) lock: Option<Lock>,
}

/// The config for a command, with its problems said. Without any file it is
/// the built-in server.
pub(crate) fn choose(found: Found) -> Result<Chosen, Failure> {
    let chosen = choose_untold(found)?;
    // Every command would repeat them; one is there to show them.
    if let Some(file) = chosen.file.as_ref().filter(|_| !chosen.problems.is_empty()) {
        let counted = counted(&chosen.problems);
        tell(&format!("{}: {counted}; `ostler check` shows what about", shown(file).display()));
    }
    Ok(chosen)
}

/// The same for a command that tells of warnings itself.
pub(crate) fn choose_untold(found: Found) -> Result<Chosen, Failure> {
    let (file, origin) = match found {
        Found::File { file, origin } => (file, origin),
        Found::Nowhere(places) => {
            tell(&format!("no config found; using the built-in server `demo` (looked for {places})"));
            let program = std::env::current_exe().map_err(Failure::Machine)?;
            let config = Config::demo(program.to_string_lossy());
            let (problems, stamps) = (Vec::new(), Stamps::default());
            let origin = Origin::Chosen;
            return Ok(Chosen { file: None, origin, config, problems, stamps, lock: None });
        }
    };
    let Reading { file, config, problems, stamps, locked } = read(file)?;
    let config = usable(&file, config, &problems)?;
    // Without what was approved, everything would seem to be.
    Ok(Chosen { file: Some(file), origin, config, problems, stamps, lock: locked? })
}

/// The file that is meant: the one that was named, or the first that exists.
pub(crate) fn find(named: Option<&Path>) -> Result<Found, Failure> {
    if let Some(named) = named {
        let file = std::path::absolute(named).map_err(Failure::Machine)?;
        return Ok(Found::File { file, origin: Origin::Chosen });
    }
    let own = folders::config().map(|folder| folder.join("ostler.toml"));
    first_of(places_in(Path::new(".")).chain(own.clone()).collect(), own.as_deref())
}

/// The config that a command in this directory would find there.
pub(crate) fn find_in(folder: &Path) -> Result<Found, Failure> {
    first_of(places_in(folder).collect(), None)
}

fn places_in(folder: &Path) -> impl Iterator<Item = PathBuf> {
    HERE.iter().map(|name| folder.join(name))
}

fn first_of(places: Vec<PathBuf>, own: Option<&Path>) -> Result<Found, Failure> {
    match places.iter().find(|place| place.is_file()) {
        Some(file) => {
            let file = std::path::absolute(file).map_err(Failure::Machine)?;
            let is_own = own.is_some_and(|own| own == file);
            let origin = if is_own { Origin::Chosen } else { Origin::WorkingDirectory };
            Ok(Found::File { file, origin })
        }
        None => {
            let names: Vec<String> = places.iter().map(|place| folders::short(place)).collect();
            Ok(Found::Nowhere(names.join(", ")))
        }
    }
}

/// The config of a file. One that can't be used is a failure, and its problems are said.
pub(crate) fn usable(file: &Path, config: Option<Config>, problems: &[Problem]) -> Result<Config, Failure> {
    config.ok_or_else(|| {
        tell_problems(problems);
        Failure::Config { file: shown(file).to_owned(), counted: counted(problems) }
    })
}

/// Reads a file and what it includes.
pub(crate) fn read(file: PathBuf) -> Result<Reading, Failure> {
    let unreadable = |why: String, hint| Failure::Unreadable { file: shown(&file).to_owned(), why, hint };
    let format = Format::of(&file).ok_or_else(|| {
        unreadable("its format is not known".into(), "the name of a config ends in .toml, .json or .jsonc")
    })?;
    let disk = Disk::default();
    let text = disk.read(&file).map_err(|error| {
        unreadable(error.to_string(), "name another file with --config, or write this one")
    })?;
    let (config, problems) = match Config::parse(&file, &text, format, &disk) {
        Err(Report { problems }) => (None, problems),
        Ok(config) => {
            let unsupported = config.unsupported();
            let is_usable = !unsupported.iter().any(Problem::is_error);
            let problems = config.notices.iter().cloned().chain(unsupported).collect();
            (is_usable.then_some(config), problems)
        }
    };
    let mut stamps = disk.asked.into_inner();
    let locked = pins::file::read(&file, &mut stamps);
    Ok(Reading { file, config, problems, stamps, locked })
}

/// Says problems on stderr.
pub(crate) fn tell_problems(problems: &[Problem]) {
    let style = Style::stderr();
    for problem in problems {
        let (word, tint) =
            if problem.is_error() { ("error:", Tint::Bad) } else { ("warning:", Tint::Doubtful) };
        let mut near = problem.clone();
        near.file = shown(&problem.file).to_owned();
        // The first such word is the severity: only the place stands before it.
        tell(&near.to_string().replacen(word, &style.paint(tint, word), 1));
    }
}

/// `2 errors, 1 warning`; nothing if there is no problem.
pub(crate) fn counted(problems: &[Problem]) -> String {
    let errors = problems.iter().filter(|problem| problem.is_error()).count();
    let kinds = [(errors, "error"), (problems.len() - errors, "warning")];
    let words =
        kinds.iter().filter(|(number, _)| *number > 0).map(|(number, noun)| output::count(*number, noun));
    words.collect::<Vec<_>>().join(", ")
}

/// A path as short as it can be said from here.
pub(crate) fn shown(path: &Path) -> &Path {
    let Ok(here) = std::env::current_dir() else { return path };
    path.strip_prefix(here).unwrap_or(path)
}

/// The text of a file, as far as one byte beyond a limit: that is enough for
/// whoever refuses it, and a file without an end fills no memory.
pub(crate) fn read_at_most(path: &Path, limit: u64) -> io::Result<String> {
    let mut text = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut text)?;
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
struct Disk {
    /// Every file that was asked for.
    asked: RefCell<Stamps>,
}

impl Source for Disk {
    fn read(&self, path: &Path) -> io::Result<String> {
        self.asked.borrow_mut().add(path);
        read_at_most(path, LARGEST_FILE)
    }

    fn home(&self) -> Option<PathBuf> {
        folders::home()
    }
}
