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

/// Where a config was looked for.
#[derive(Debug)]
pub(crate) enum Found {
    /// Here it is.
    File(PathBuf),
    /// In none of these places is one.
    Nowhere(String),
}

impl Found {
    /// The file, if there is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::File(file) => Some(file),
            Self::Nowhere(_) => None,
        }
    }
}

/// A config that can be used, and where it comes from.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// The main file, absolute; none for the built-in server.
    pub(crate) file: Option<PathBuf>,
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
    let file = match found {
        Found::File(file) => file,
        Found::Nowhere(places) => {
            tell(&format!("no config found; using the built-in server `demo` (looked for {places})"));
            let program = std::env::current_exe().map_err(Failure::Machine)?;
            let config = Config::demo(program.to_string_lossy());
            let (problems, stamps) = (Vec::new(), Stamps::default());
            return Ok(Chosen { file: None, config, problems, stamps, lock: None });
        }
    };
    let Reading { file, config, problems, stamps, locked } = read(file)?;
    let (short, counted) = (shown(&file).to_owned(), counted(&problems));
    match config {
        Some(config) => {
            // Every command would repeat them; one is there to show them.
            if !problems.is_empty() {
                tell(&format!("{}: {counted}; `ostler check` shows what about", short.display()));
            }
            // Without what was approved, everything would seem to be.
            Ok(Chosen { file: Some(file), config, problems, stamps, lock: locked? })
        }
        None => {
            tell_problems(&problems);
            Err(Failure::Config { file: short, counted })
        }
    }
}

/// The file that is meant: the one that was named, or the first that exists.
pub(crate) fn find(named: Option<&Path>) -> Result<Found, Failure> {
    if let Some(named) = named {
        return std::path::absolute(named).map(Found::File).map_err(Failure::Machine);
    }
    let own = folders::config().map(|folder| folder.join("ostler.toml"));
    let places: Vec<PathBuf> = HERE.iter().map(|name| Path::new(".").join(name)).chain(own).collect();
    match places.iter().find(|place| place.is_file()) {
        Some(file) => std::path::absolute(file).map(Found::File).map_err(Failure::Machine),
        None => {
            let names: Vec<String> = places.iter().map(|place| folders::short(place)).collect();
            Ok(Found::Nowhere(names.join(", ")))
        }
    }
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
