//! Parsing of configs: reports all problems at once, each at a line of its file, and the same every
//! time.

use std::io;
use std::path::{Path, PathBuf};

use ostler_core::config::{Config, ConfigFormat, ConfigSource, Plan};

/// A source in which every included file has the text of the file itself, so that includes form a
/// cycle.
struct SelfIncluding<'t>(&'t str);

impl ConfigSource for SelfIncluding<'_> {
    fn read(&self, path: &Path) -> io::Result<String> {
        match path.ends_with("missing.toml") {
            true => Err(io::ErrorKind::NotFound.into()),
            false => Ok(self.0.to_owned()),
        }
    }

    fn home(&self) -> Option<PathBuf> {
        Some("/home/ann".into())
    }
}

/// Parses `input` as a config.
pub fn read(input: &[u8], format: ConfigFormat) {
    let text = String::from_utf8_lossy(input);
    let file = Path::new("/etc/ostler/ostler.toml");
    let parse = || Config::parse(file, &text, format, &SelfIncluding(&text));
    let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
    match (parse(), parse()) {
        (Ok(config), Ok(again)) => {
            assert!(config.notices.iter().all(|notice| !notice.is_error()));
            let mut names: Vec<&str> = config.servers.iter().map(|spec| spec.name.as_str()).collect();
            names.sort_unstable();
            assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "names are unique: {names:?}");
            for spec in &config.servers {
                let (_, line) = config.origin(spec.name.as_str()).expect("it stands in the file");
                assert!((1..=lines).contains(&(line as usize)), "line {line} of {lines}");
            }
            assert!(Plan::new(&config.servers, &config, &again).is_empty(), "the same text changes nothing");
        }
        (Err(report), Err(again)) => {
            let mut errors = report.problems.iter().filter(|problem| problem.is_error()).peekable();
            assert!(errors.peek().is_some(), "it says what is wrong");
            for error in errors {
                assert!(
                    (1..=lines).contains(&(error.line as usize)),
                    "and on which line of {lines}: {error:?}"
                );
            }
            assert_eq!(report.to_string(), again.to_string());
        }
        (one, other) => panic!("now {one:?}, then {other:?}"),
    }
}
