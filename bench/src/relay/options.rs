//! What was typed.

use std::str::FromStr;
use std::time::Duration;

use ostler_testkit::NatsVersion;

pub(crate) struct RelayBenchOptions {
    pub(crate) nats: Vec<NatsVersion>,
    /// How long each cell is driven, in each round.
    pub(crate) time: Duration,
    pub(crate) rounds: usize,
    /// One way alone, for a profiler.
    pub(crate) profile: Option<String>,
    pub(crate) callers: usize,
    pub(crate) payload: usize,
    /// As it was typed, for the page.
    pub(crate) line: String,
}

impl RelayBenchOptions {
    pub(crate) fn read(typed: &[String]) -> Self {
        let nats = match word(typed, "--nats") {
            Some("core") => vec![NatsVersion::Core],
            Some("current") => vec![NatsVersion::Current],
            None | Some("both") => vec![NatsVersion::Core, NatsVersion::Current],
            Some(other) => panic!("--nats is core, current or both, not {other}"),
        };
        Self {
            nats,
            time: Duration::from_secs_f64(number(typed, "--seconds", 1.0)),
            rounds: number(typed, "--rounds", 5),
            profile: word(typed, "--profile").map(str::to_owned),
            callers: number(typed, "--callers", 64),
            payload: number(typed, "--payload", 60),
            line: ["bench", "relay"]
                .into_iter()
                .chain(typed.iter().map(|word| &**word))
                .collect::<Vec<_>>()
                .join(" "),
        }
    }
}

fn word<'t>(typed: &'t [String], name: &str) -> Option<&'t str> {
    let at = typed.iter().position(|word| word == name)?;
    Some(typed.get(at + 1).unwrap_or_else(|| panic!("{name} wants a value")))
}

fn number<T: FromStr>(typed: &[String], name: &str, default: T) -> T {
    let Some(text) = word(typed, name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{name} wants a number, not {text}"))
}
