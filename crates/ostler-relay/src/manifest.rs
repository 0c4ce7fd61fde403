//! What a worker may use: the host's catalog, as far as the worker's role sees it.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

/// What a worker may use.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The same for the same servers and tools, whichever host says so.
    pub version: String,
    /// Which host has answered.
    pub host: String,
    /// What its clock showed, in milliseconds since 1970.
    pub time: u64,
    /// The servers, sorted by name.
    pub servers: Vec<ManifestServer>,
}

/// One server of a manifest.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManifestServer {
    /// Its name.
    pub name: String,
    /// Its tools, byte for byte, in its order.
    pub tools: Vec<Box<RawValue>>,
    /// Why the tools are the last known ones, or none: a JSON-RPC error object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<RawValue>>,
    /// How long a call may take without a sign of progress, in milliseconds.
    pub call_timeout: u64,
    /// How long a call may take at most, in milliseconds.
    pub max_call_time: u64,
    /// Its place among the servers of its host, which decides who owns a URI that several of them claim.
    #[serde(default)]
    pub rank: usize,
}

impl Manifest {
    /// A manifest of these servers.
    pub fn new(host: String, time: u64, servers: Vec<ManifestServer>) -> Self {
        Self { version: version_of(&servers), host, time, servers }
    }
}

/// A hash of everything in it but the ranks and why something is old.
fn version_of(servers: &[ManifestServer]) -> String {
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text);
    };
    for server in servers {
        add(&server.name);
        add(&server.tools.len().to_string());
        server.tools.iter().for_each(|tool| add(tool.get()));
        add(&server.call_timeout.to_string());
        add(&server.max_call_time.to_string());
    }
    data_encoding::HEXLOWER.encode(&hash.finalize()[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str, tools: &[&str]) -> ManifestServer {
        let raw = |tool: &&str| RawValue::from_string((*tool).to_owned());
        let tools = tools.iter().map(raw).collect::<Result<_, _>>();
        let tools = tools.unwrap_or_else(|error| panic!("{error}"));
        ManifestServer { name: name.into(), tools, error: None, call_timeout: 1, max_call_time: 2, rank: 0 }
    }

    #[test]
    fn the_version_changes_with_what_may_be_used_and_with_nothing_else() {
        let one = Manifest::new("a".into(), 1, vec![listed("s", &["{\"name\":\"x\"}"])]);
        let same = Manifest::new("b".into(), 2, vec![listed("s", &["{\"name\":\"x\"}"])]);
        assert_eq!(one.version, same.version);
        for other in [
            vec![],
            vec![listed("s", &[])],
            vec![listed("t", &["{\"name\":\"x\"}"])],
            vec![listed("s", &["{\"name\":\"y\"}"])],
            vec![listed("s", &["{\"name\":\"x\"}"]), listed("t", &[])],
        ] {
            assert_ne!(Manifest::new("a".into(), 1, other).version, one.version);
        }
    }

    #[test]
    fn tools_pass_byte_for_byte() {
        let tool = r#"{ "name":"x", "big": 123456789012345678901234567890, "b":1, "a":2 }"#;
        let manifest = Manifest::new("a".into(), 1, vec![listed("s", &[tool])]);
        let text = serde_json::to_string(&manifest).unwrap_or_else(|error| panic!("{error}"));
        assert!(text.contains(tool), "{text}");
    }
}
