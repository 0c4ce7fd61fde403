//! Default names of hosts and workers.

use ostler_relay::RelayName;

/// Upper bound on the characters of a name.
const MAX_NAME_CHARS: usize = 64;

/// Returns the name of this host: the machine's.
pub(crate) fn default_host_name() -> Option<RelayName> {
    fit(&machine_name())
}

/// Returns the name of a worker: the user's and the machine's.
pub(crate) fn default_worker_name() -> Option<RelayName> {
    let user = ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    match user.filter(|user| !user.is_empty()) {
        Some(user) => fit(&format!("{user}-{}", machine_name())),
        None => fit(&machine_name()),
    }
}

fn machine_name() -> String {
    let name = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned());
    name.ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "host".into())
}

/// Converts a text to a name: replaces other characters by `-`.
fn fit(text: &str) -> Option<RelayName> {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let text: String = text.chars().map(|c| if is_fit(c) { c } else { '-' }).take(MAX_NAME_CHARS).collect();
    RelayName::new(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_machine_has_a_name() {
        let table = [("mill", "mill"), ("mill.example.org", "mill-example-org"), ("möller", "m-ller")];
        for (machine, name) in table {
            assert_eq!(fit(machine).map(|name| name.to_string()).as_deref(), Some(name));
        }
        assert_eq!(fit(&"x".repeat(100)).map(|name| name.as_str().len()), Some(64));
        assert!(default_host_name().is_some() && default_worker_name().is_some());
    }
}
